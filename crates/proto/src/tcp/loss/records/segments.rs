//! Segments among the records: how many there are of each fate, where they end, and which are retransmitted as one.
//!
//! The congestion window counts segments, a short one as one. A part that is cut off counts as another segment, as on
//! Linux (`tcp_fragment`). Invariant: the counts are the sums of the records' own. Tests: `segments/tests.rs`, those of
//! the scoreboard, `tests/tail.rs`.

#[cfg(test)]
mod tests;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::super::timers::since_us;
use super::waiting::LOOKED_AT_MAX;
use super::{Fate, Record, Records, Repeat};

/// Cells of time that are an eighth of a round trip.
const NEAR_CELLS: u64 = super::CELLS_PER_ROUND_TRIP as u64 / 8;

/// Segments, by fate: as the congestion window counts them, a short one as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::tcp) struct Counts {
    pub flying: u32,
    pub sacked: u32,
    pub lost: u32,
}

impl Counts {
    pub(super) fn of(&mut self, fate: Fate) -> &mut u32 {
        match fate {
            Fate::Flying => &mut self.flying,
            Fate::Sacked => &mut self.sacked,
            Fate::Lost => &mut self.lost,
        }
    }

    pub(super) fn shift(&mut self, from: Fate, to: Fate, count: u32) {
        *self.of(from) -= count;
        *self.of(to) += count;
    }

    /// All outstanding segments.
    pub fn all(&self) -> u32 {
        self.flying + self.sacked + self.lost
    }
}

impl Records {
    /// Segments of each fate.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// True if the peer has reported the data at SND.UNA, and not acknowledged it.
    pub fn starts_sacked(&self) -> bool {
        self.first().is_some_and(|first| first.fate == Fate::Sacked)
    }

    /// The first `segment` bytes are lost, unless they are already marked lost or were retransmitted. Returns how many
    /// bytes that is.
    pub fn lose_first(&mut self, segment: u32) -> u32 {
        let Some(first) = self.list.front().copied().filter(|first| first.fate == Fate::Flying) else {
            return 0;
        };
        if first.repeated {
            return 0;
        }
        let segment = first.segment_or(segment);
        if first.count > 1 && first.len() > segment {
            self.split(first.start + segment);
        }
        self.lose(0)
    }

    /// A retransmission ends at `end`. If the peer has no room for the rest of that segment, the rest becomes a segment
    /// of its own; otherwise, what follows would not begin with a segment. Segments that are too large are
    /// retransmitted in another size.
    pub(super) fn end_repetition(&mut self, end: SeqNum) {
        let record = self.list.get(self.find(end)).filter(|record| record.segment <= self.segment);
        if let Some(behind) = record.and_then(|record| record.cut_segment_end(end)) {
            self.split(behind);
        }
        self.split(end);
    }

    /// Whether something from `start` to `end` is in flight, and none of it was retransmitted. Visits the records up to
    /// the first that was.
    pub fn is_sent_once(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let mut at = self.find(start);
        let mut is_any = false;
        while let Some(record) = self.list.get(at).copied().filter(|record| record.start.before(end)) {
            self.step(1);
            if record.repeated {
                return false;
            }
            (is_any, at) = (true, at + 1);
        }
        is_any
    }

    /// Number of segments up to `until` that were retransmitted before `at`, and about which nothing is known. Visits
    /// every record.
    pub fn repeated_count(&mut self, until: SeqNum, at: Instant) -> u32 {
        self.step(self.list.len() as u64);
        self.list.iter().filter(|record| is_repeat(record, until, at)).map(|record| record.count).sum()
    }

    /// Whether there are any; of many records, the first [`LOOKED_AT_MAX`] are visited.
    pub fn has_repeated(&mut self, until: SeqNum, at: Instant) -> bool {
        let looked_at = self.list.len().min(LOOKED_AT_MAX);
        let found = self.list.iter().take(looked_at).position(|record| is_repeat(record, until, at));
        self.step(found.unwrap_or(looked_at) as u64);
        found.is_some()
    }

    /// Number of segments from `seq` on, where new data was sent; of many records, the last [`LOOKED_AT_MAX`] count.
    pub fn count_from(&self, seq: SeqNum) -> u32 {
        let latest = self.list.iter().rev().take(LOOKED_AT_MAX);
        latest.take_while(|record| !record.start.before(seq)).map(|record| record.count).sum()
    }

    /// Bytes up to `until` that were retransmitted and about which nothing is known. Visits every record.
    pub fn repeated_len(&mut self, until: SeqNum) -> u32 {
        self.step(self.list.len() as u64);
        self.repeats().filter(|record| !record.end.after(until)).map(Record::len).sum()
    }

    fn repeats(&self) -> impl Iterator<Item = &Record> {
        self.list.iter().filter(|record| record.repeated && record.fate == Fate::Flying)
    }

    /// The end of the segment that begins at `start`, the beginning of a record, if it is retransmitted in segments of
    /// `mss`. It is retransmitted as it was sent, or as much of it as fits. If there is room, whole segments after it
    /// that the peer does not hold are joined to it (`tcp_retrans_try_collapse`), up to `edge`, the end of what the
    /// peer accepts. `behind` is the number of a FIN, which takes no room. `None` if the segment is a full one, or if
    /// its end is not known.
    pub fn short_segment(
        &mut self,
        start: SeqNum,
        (mss, edge): (u32, SeqNum),
        behind: Option<SeqNum>,
    ) -> Option<SeqNum> {
        let first = self.find(start);
        let record = *self.list.get(first)?;
        if record.segment == 0 || u32::from(record.segment) == mss && record.len() >= mss {
            return None;
        }
        let text =
            |from: SeqNum, to: SeqNum| to.since(from) - u32::from(behind.is_some_and(|fin| to.after(fin)));
        let mut end = record.start + record.len().min(record.segment.into());
        if text(start, end) > mss {
            // The rest was a part of the segment, and makes no segment with what follows.
            self.split(end);
            return Some(start + mss);
        }
        if text(start, end) == mss {
            // Nothing is joined to a full segment, not even a FIN.
            return Some(end);
        }
        let mut at = first;
        while let Some(record) = self.list.get(at).copied().filter(|record| record.fate != Fate::Sacked) {
            self.step(1);
            if end == record.end {
                at += 1;
                continue;
            }
            let next = end + record.end.since(end).min(u32::from(record.segment));
            if record.segment == 0 || text(start, next) > mss || next.after(edge) {
                break;
            }
            end = next;
        }
        Some(end)
    }

    /// Whether `at` lies inside a segment, as far as segments are known.
    pub fn is_inside(&self, at: SeqNum) -> bool {
        self.list
            .get(self.find(at))
            .is_some_and(|record| record.start.before(at) && record.whole_before(at) != at)
    }

    /// A part of a segment was sent, up to `at`: the rest counts as many segments as it will be sent in
    /// (`tcp_fragment`). `behind` is the number of a FIN, which takes no room.
    pub fn count_rest(&mut self, at: SeqNum, mss: u32, behind: Option<SeqNum>) {
        let rest = self.find(at);
        if let Some(record) = self.list.get_mut(rest).filter(|record| record.start == at) {
            let text = record.len() - u32::from(behind.is_some_and(|fin| record.end.after(fin)));
            let count = text.div_ceil(mss.max(1)).max(1);
            let all = self.counts.of(record.fate);
            *all = *all + count - record.count;
            record.count = count;
        }
    }

    /// What was retransmitted from `start` to `end` has become one segment.
    pub fn make_one(&mut self, start: SeqNum, end: SeqNum) {
        // It may have been joined with what was retransmitted before it.
        let from = self.split(start);
        let to = self.list.partition_point(|record| record.end.at_or_before(end));
        if to <= from || self.list.range(from..to).any(|record| record.fate != Fate::Flying) {
            return;
        }
        self.collapse(from, to);
        if let Some(record) = self.list.get_mut(from) {
            self.counts.flying -= record.count - 1;
            (record.count, record.segment) = (1, u16::try_from(record.len()).unwrap_or(0));
        }
    }

    /// Whether the byte at `at` is lost.
    pub fn is_lost_at(&self, at: SeqNum) -> bool {
        self.list.get(self.find(at)).is_some_and(|record| record.fate == Fate::Lost)
    }

    /// True if one segment is outstanding.
    pub fn is_single(&self) -> bool {
        self.counts.all() == 1
    }

    /// Whether joining the records from index `from` up to `to` loses little information: their segments are known, and
    /// were sent within an eighth of a round trip.
    pub(super) fn is_alike(&self, from: usize, to: usize) -> bool {
        let (first, last) = (self.list.get(from), self.list.get(to.saturating_sub(1)));
        let span_us = first.zip(last).map_or(0, |(first, last)| since_us(last.sent_at, first.sent_since()));
        span_us >> self.cell_shift < NEAR_CELLS && self.is_aligned(from, to)
    }

    /// Whether the segments of the records from index `from` up to `to` are known if these are joined.
    fn is_aligned(&self, from: usize, to: usize) -> bool {
        let pairs = self.list.range(from..to).zip(self.list.range(from + 1..to));
        pairs.into_iter().all(|(a, b)| a.goes_on_with(b.segment))
    }

    /// Bytes that were retransmitted and are not acknowledged in any way. Visits every record.
    pub fn repeated(&self) -> u32 {
        self.repeats().map(Record::len).sum()
    }

    /// The first transmission just made ends with a FIN, after `text` bytes: the FIN needs no segment of its own if
    /// there are any.
    pub fn seat_fin(&mut self, text: u32) {
        let segment = u32::from(self.segment);
        let is_extra = text > 0 && segment != 0 && text.is_multiple_of(segment);
        if let Some(last) = self.list.back_mut().filter(|last| is_extra && last.count > 1) {
            last.count -= 1;
            self.counts.flying -= 1;
        }
    }

    /// Retransmissions are also judged anew, by the times at which they were sent: a timeout had marked them lost.
    pub(super) fn note_repeats_anew(&mut self) {
        // Twice: the caller has visited all, too.
        self.step(2 * self.list.len() as u64);
        let repeat =
            |record: &Record| Repeat { start: record.start, end: record.end, sent_at: record.sent_at };
        self.repeats = self.repeats().map(repeat).collect();
        self.repeats.make_contiguous().sort_by_key(|repeat| repeat.sent_at);
    }

    /// Outstanding data from `seq` on that the peer does not hold is lost.
    pub fn lose_from(&mut self, seq: SeqNum) {
        let from = self.split(seq);
        for at in from..self.list.len() {
            self.lose_flying(at);
        }
        if let Some(last) = self.list.back() {
            self.edge = last.end;
        }
    }

    /// Segments of more than `size` bytes that the peer does not hold are lost: they are too long to arrive. Arrivals
    /// decide about the others.
    pub fn lose_longer_than(&mut self, size: u32) {
        let mut at = 0;
        while let Some(record) = self.list.get(at).copied() {
            let last = record.last_segment();
            // The last may be short enough even if the others are not.
            if last != record.start && record.end.since(last) <= size && record.segment_or(size) > size {
                self.split(last);
            }
            if self
                .list
                .get(at)
                .is_some_and(|record| record.segment_or(record.len()).min(record.len()) > size)
            {
                self.lose_flying(at);
            }
            at += 1;
        }
    }

    fn lose_flying(&mut self, at: usize) {
        if self.list.get(at).is_some_and(|record| record.fate == Fate::Flying) {
            self.lose(at);
        }
    }
}

/// Whether `record` was retransmitted before `at`, nothing is known about it, and it ends by `until`.
pub(super) fn is_repeat(record: &Record, until: SeqNum, at: Instant) -> bool {
    let is_out = record.repeated && record.fate == Fate::Flying;
    is_out && record.sent_at < at && !record.end.after(until)
}
