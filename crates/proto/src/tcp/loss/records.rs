//! Data that was sent and is not acknowledged: when it was sent, and the peer's reports on it (the
//! scoreboard).
//!
//! A queue of records without gaps, from SND.UNA to the end of the sent data. A record is a range of bytes that were sent at the same microsecond and share a
//! fate: [`Fate::Flying`], [`Fate::Sacked`], [`Fate::Lost`]. So the data sent for one acknowledgment, or by one call, is one record. From [`EXACT_MAX`] records
//! on, time is cut into cells of a fraction of the round trip, and all data sent in one cell goes into one record with the latest of its times: a larger window
//! costs some hundred records more, and a block still has few records behind it to move. Neighbours that were selectively acknowledged are joined if that is
//! cheap: their times no longer matter.
//!
//! These functions change a fate: `sack` (to Sacked), `detect`, `lose_overdue` and `lose_all` (to Lost), `sent` (Lost to Flying: it was repeated), `unlose`
//! (Lost to Flying: it was no loss). Only `forget_sacks` ends Sacked.
//!
//! Bounds, whatever a peer sends. A block that would cut a record counts only for whole records if there are already two records for each segment in flight
//! (but at least [`SPLIT_MIN`] and at most [`RECORDS_MAX`]), or if more than [`MOVED_MAX`] others would have to move for it. At most as many move to join
//! records, unless [`RUN_MIN`] are joined. New data joins the last record once there are [`RECORDS_MAX`]. Only at a timeout, an undo, and where a repair begins or
//! ends does a loop visit every record (a peer that echoes old times can have a repair end and another begin with each segment that we retransmit, and no more
//! often); the report of a duplicate visits those of its range only if it counts, which no more do than something was retransmitted.
//! A block is found by bisection and moves only records whose fate it changes. Of the data that may be lost, only the part not judged yet is
//! visited (`edge` for first transmissions, whose times rise with their numbers; the queue `repeats`, in order of time, for the others). It does not depend on
//! clocks, windows or why something is repeated. Invariants: `sacked` and `lost` are the bytes of that fate. Tests: `loss/records/tests.rs`.

mod record;
mod segments;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::timers::{after_us, since_us};
pub(in crate::tcp) use record::{Fate, Record, Sent};
pub(in crate::tcp) use segments::Counts;
pub(in crate::tcp) use waiting::{Bounds, Detection, Patience};

/// A range that was retransmitted.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    start: SeqNum,
    end: SeqNum,
    sent_at: Instant,
}

/// See the head of this file.
#[derive(Debug)]
pub(in crate::tcp) struct Records {
    list: VecDeque<Record>,
    repeats: VecDeque<Repeat>,
    sacked: u32,
    lost: u32,
    /// Segments of each fate.
    counts: Counts,
    /// First transmissions before this have been judged.
    edge: SeqNum,
    /// Nothing before this is Lost.
    hint: SeqNum,
    /// From this many records on, a selective acknowledgment cuts none.
    split_max: u16,
    /// A cell of time is two to the power of this many microseconds.
    cell_shift: u8,
    /// Bytes of a full segment; 0 if segments do not matter.
    segment: u16,
    /// What is sent now is from a write before which nothing waited.
    is_write: bool,
    /// Number of records visited or moved, for the tests of a hostile segment's cost.
    #[cfg(test)]
    pub steps: u64,
}

impl Records {
    pub fn new(una: SeqNum) -> Self {
        Self {
            list: VecDeque::new(),
            repeats: VecDeque::new(),
            sacked: 0,
            lost: 0,
            counts: Counts::default(),
            edge: una,
            hint: una,
            split_max: SPLIT_MIN as u16,
            cell_shift: 0,
            segment: 0,
            is_write: false,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Bytes that the peer reports to hold behind a hole.
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes that are to be repeated.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// The first record: it begins at SND.UNA.
    pub fn first(&self) -> Option<&Record> {
        self.list.front()
    }

    /// The last record: the latest first transmission.
    pub fn last(&self) -> Option<&Record> {
        self.list.back()
    }

    /// True if nothing is outstanding.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sets the cell of time to a fraction of the round trip.
    pub fn set_round_trip(&mut self, rtt_us: u32) {
        let cell = rtt_us / CELLS_PER_ROUND_TRIP;
        // The logarithm of 32 bits fits the octet.
        self.cell_shift = u8::try_from(cell.checked_ilog2().unwrap_or(0)).unwrap_or(0);
    }

    /// Sets the length of a full segment, for data that is sent from now on.
    pub fn set_segment(&mut self, mss: u16) {
        self.segment = mss;
    }

    /// Sets whether what is sent from now on is from a write before which nothing waited.
    pub fn set_write(&mut self, is_write: bool) {
        self.is_write = is_write;
    }

    /// Sets how many segments are outstanding. It limits how far a peer can cut them to pieces.
    pub fn set_segments(&mut self, count: u32) {
        // At most RECORDS_MAX, which fits.
        self.split_max = (2 * count as usize).clamp(SPLIT_MIN, RECORDS_MAX) as u16;
    }

    /// Frees memory. Only when nothing is outstanding.
    pub fn shrink(&mut self) {
        self.list.shrink_to_fit();
        self.repeats.shrink_to_fit();
    }

    /// Bytes from `start` to `end` were sent at `now`: new, repeated, or both.
    pub fn sent(&mut self, start: SeqNum, end: SeqNum, now: Instant, snapshot: u32) {
        let known = self.list.back().map_or(start, |last| last.end);
        if start.before(known) {
            self.repeat(start, end.min(known), now, snapshot);
        }
        if end.after(known) {
            self.append(start.max(known), end, now, snapshot);
        }
    }

    /// Everything before `una` is acknowledged. `report` gets the bytes that were not known to have arrived; a record with no segment is a part of one. Returns
    /// whether that includes a whole segment, and whether one of them was retransmitted, also among what had arrived before.
    pub fn ack(&mut self, una: SeqNum, mut report: impl FnMut(&Record)) -> (bool, bool) {
        let (mut is_whole, mut is_repeated) = (false, false);
        while let Some(first) = self.list.front_mut()
            && first.start.before(una)
        {
            let mut part = Record { end: first.end.min(una), ..*first };
            let whole = part.end == first.end;
            if !whole {
                if let Some(edge) = first.cut_segment_end(una).or_else(|| first.cut_segment_start(una)) {
                    self.split(edge);
                    continue;
                }
                (part.count, first.count) = first.counts_at(una);
            }
            first.start = part.end;
            let cut = u16::try_from(part.len()).map_or(u16::MAX, |len| first.cut.saturating_add(len));
            first.cut = if part.count == 0 { cut } else { 0 };
            is_whole |= part.count > 0;
            is_repeated |= part.repeated && part.count > 0;
            *self.counts.of(part.fate) -= part.count;
            if whole {
                self.list.pop_front();
            }
            self.step(1);
            self.arrived(&part, &mut report);
        }
        self.edge = self.edge.max(una);
        self.hint = self.hint.max(una);
        while self.repeats.front().is_some_and(|repeat| repeat.end.at_or_before(una)) {
            self.repeats.pop_front();
        }
        if self.list.is_empty() {
            self.repeats.clear();
        }
        (is_whole, is_repeated)
    }

    /// The peer reports that it holds `start` to `end`, which lies inside the outstanding data. `report` gets the bytes that were not known. Only whole
    /// segments count, as on Linux: a part of one does not show that something was overtaken, and would be retransmitted with the rest anyway.
    pub fn sack(&mut self, start: SeqNum, end: SeqNum, mut report: impl FnMut(&Record)) {
        let Some(from) = self.whole_from(start, end) else { return };
        let mut to = from;
        while let Some(record) = self.list.get(to).copied()
            && record.start.before(end)
        {
            let mut part = record;
            if record.end.after(end) {
                let cut = record.whole_before(end);
                if record.fate == Fate::Sacked || !self.may_split(to) || cut == record.start {
                    break;
                }
                self.split(cut);
                part = self.list.get(to).copied().unwrap_or(part);
            }
            self.step(1);
            if part.fate != Fate::Sacked {
                self.sacked += part.len();
                self.counts.shift(part.fate, Fate::Sacked, part.count);
                report(&part);
            }
            if part.fate == Fate::Lost {
                self.lost -= part.len();
            }
            to += 1;
        }
        for at in from..to {
            if let Some(record) = self.list.get_mut(at) {
                record.fate = Fate::Sacked;
            }
        }
        self.join_sacked(from, to);
    }

    /// Data that was sent before `latest` and has been in flight for longer than `patience` is lost (RFC 8985 section 6.2 step 5). `undone`: what an
    /// undone repair has retransmitted.
    pub fn detect(&mut self, latest: Sent, patience: Patience, undone: Bounds, now: Instant) -> Detection {
        let mut found = Detection::NOTHING;
        self.detect_repeats((latest, undone), patience, now, &mut found);
        let mut at = self.find(self.edge);
        let mut run = at;
        while let Some(record) = self.list.get(at).copied() {
            self.step(1);
            if record.fate == Fate::Flying && !record.repeated {
                if !(Sent { at: record.sent_at, end: record.end, repeated: false }).before(latest) {
                    break;
                }
                if !patience.is_over(&record, latest, now) {
                    found.wait_until(self.last_due(at, latest, patience));
                    break;
                }
                found.snapshot = Some(record.snapshot);
                found.lost += self.lose(at);
            } else {
                at = self.close_run(run, at);
                run = at + 1;
            }
            self.edge = record.end;
            at += 1;
        }
        self.close_run(run, at);
        found
    }

    /// The first range to be repeated.
    pub fn next_lost(&mut self) -> Option<(SeqNum, SeqNum)> {
        if self.lost == 0 {
            return None;
        }
        let mut at = self.find(self.hint);
        while let Some(record) = self.list.get(at).copied() {
            self.step(1);
            if record.fate == Fate::Lost {
                self.hint = record.start;
                return Some((record.start, record.end));
            }
            at += 1;
        }
        None
    }

    /// The retransmission timer has expired: the first `segment` bytes are lost, and everything that has been in flight for `wait_us`. Arrivals decide about
    /// later data.
    pub fn lose_overdue(&mut self, segment: u32, wait_us: u64, now: Instant) {
        let is_overdue = |sent_at: Instant| after_us(sent_at, wait_us) <= now;
        if let Some(first) = self.list.front().copied().filter(|first| first.fate == Fate::Flying) {
            let segment = first.segment_or(segment);
            if !is_overdue(first.sent_at) && first.count > 1 && first.len() > segment {
                self.split(first.start + segment);
            }
            self.lose(0);
        }
        let mut kept = None;
        for at in 1..self.list.len() {
            let Some(record) = self.list.get(at).copied().filter(|record| record.fate == Fate::Flying) else {
                continue;
            };
            if is_overdue(record.sent_at) {
                self.lose(at);
            } else if !record.repeated {
                kept = kept.or(Some(record.start));
            }
        }
        while self.repeats.front().is_some_and(|repeat| is_overdue(repeat.sent_at)) {
            self.repeats.pop_front();
        }
        if let Some(last) = self.list.back() {
            self.edge = kept.unwrap_or(last.end);
        }
    }

    /// Everything that the peer does not hold is lost.
    pub fn lose_all(&mut self) {
        for at in 0..self.list.len() {
            if self.list.get(at).is_some_and(|record| record.fate == Fate::Flying) {
                self.lose(at);
            }
        }
        self.repeats.clear();
        if let Some(last) = self.list.back() {
            self.edge = last.end;
        }
    }

    /// The data believed lost was not lost. It is judged anew.
    pub fn unlose(&mut self) {
        for record in &mut self.list {
            if record.fate == Fate::Lost {
                record.fate = Fate::Flying;
            }
        }
        self.lost = 0;
        self.counts.shift(Fate::Lost, Fate::Flying, self.counts.lost);
        if let Some(first) = self.list.front() {
            self.edge = first.start;
        }
        self.note_repeats_anew();
    }

    /// The peer has discarded data that it had reported (RFC 2018 section 8).
    pub fn forget_sacks(&mut self) {
        for record in &mut self.list {
            if record.fate == Fate::Sacked {
                record.fate = Fate::Flying;
            }
        }
        self.sacked = 0;
        self.counts.shift(Fate::Sacked, Fate::Flying, self.counts.sacked);
    }

    /// `part`, cut off the front, is acknowledged.
    fn arrived(&mut self, part: &Record, report: &mut impl FnMut(&Record)) {
        match part.fate {
            Fate::Sacked => self.sacked -= part.len(),
            Fate::Lost => {
                self.lost -= part.len();
                report(part);
            }
            Fate::Flying => report(part),
        }
    }

    fn append(&mut self, start: SeqNum, end: SeqNum, now: Instant, snapshot: u32) {
        // New data leaves after what was retransmitted for the same acknowledgment, and has a later time (`tcp_write_xmit`).
        let is_behind = self.repeats.back().is_some_and(|repeat| repeat.sent_at == now);
        let now = after_us(now, u64::from(is_behind));
        let full = self.list.len() >= RECORDS_MAX;
        let shift = self.time_shift();
        let count = if self.segment == 0 { 1 } else { end.since(start).div_ceil(self.segment.into()) };
        self.counts.flying += count;
        if let Some(last) = self.list.back_mut()
            && last.fate == Fate::Flying
            && !last.repeated
            && (full || (same_cell(last.sent_at, now, shift) && last.goes_on_with(self.segment)))
        {
            let first_at = last.sent_since();
            last.segment = last.segment_with(self.segment);
            (last.end, last.sent_at, last.snapshot) = (end, now, snapshot);
            last.span_us = span_us(first_at, now);
            last.count += count;
            last.is_write = self.is_write;
            return;
        }
        let (segment, is_write) = (self.segment, self.is_write);
        let sent = Record::sent(start, end, now, snapshot);
        self.list.push_back(Record { count, segment, is_write, ..sent });
    }

    /// Bytes were retransmitted. Those that the peer already holds keep their fate.
    fn repeat(&mut self, start: SeqNum, end: SeqNum, now: Instant, snapshot: u32) {
        let from = self.split(start);
        self.end_repetition(end);
        let mut at = from;
        while let Some(record) = self.list.get_mut(at)
            && record.start.before(end)
        {
            if record.fate == Fate::Lost {
                self.lost -= record.len();
            }
            if record.fate != Fate::Sacked {
                self.counts.shift(record.fate, Fate::Flying, record.count);
                record.fate = Fate::Flying;
                (record.sent_at, record.span_us) = (now, 0);
                (record.snapshot, record.repeated) = (snapshot, true);
            }
            at += 1;
        }
        self.step(1);
        self.join_repeated(from, now);
        self.note_repeat(Repeat { start, end, sent_at: now });
    }

    /// The repaired part of a hole grows at its end: it is one record, not one for each segment.
    fn join_repeated(&mut self, at: usize, now: Instant) {
        let full = self.list.len() >= RECORDS_MAX;
        let Some(before) = at.checked_sub(1) else { return };
        let (Some(a), Some(b)) = (self.list.get(before), self.list.get(at)) else { return };
        let alike = |r: &Record| r.fate == Fate::Flying && r.repeated;
        let known = full || a.goes_on_with(b.segment);
        if alike(a) && alike(b) && known && (full || same_cell(a.sent_at, now, self.time_shift())) {
            self.collapse(before, at + 1);
        }
    }

    fn note_repeat(&mut self, repeat: Repeat) {
        let shift = self.time_shift();
        if let Some(last) = self.repeats.back_mut()
            && last.end == repeat.start
            && same_cell(last.sent_at, repeat.sent_at, shift)
        {
            (last.end, last.sent_at) = (repeat.end, repeat.sent_at);
            return;
        }
        if self.repeats.len() >= RECORDS_MAX {
            // The retransmission timer will find whether the oldest is lost again.
            self.repeats.pop_front();
        }
        self.repeats.push_back(repeat);
    }

    /// Two to the power of this many microseconds count as one time now.
    fn time_shift(&self) -> u8 {
        if self.list.len() < EXACT_MAX { 0 } else { self.cell_shift }
    }

    /// The record at index `at` is lost. Returns its bytes.
    fn lose(&mut self, at: usize) -> u32 {
        let Some(record) = self.list.get_mut(at) else { return 0 };
        self.counts.shift(record.fate, Fate::Lost, record.count);
        record.fate = Fate::Lost;
        let len = record.len();
        self.lost += len;
        self.hint = self.hint.min(record.start);
        len
    }

    /// Joins the records from index `run` up to `at`, all marked lost just now. A few that were sent at different times keep them: some may have arrived, and
    /// give a round trip. Returns the new index of `at`.
    fn close_run(&mut self, run: usize, at: usize) -> usize {
        if at > run + 1 && self.may_collapse(run, at) && (at - run >= RUN_MIN || self.is_alike(run, at)) {
            self.collapse(run, at);
            return run + 1;
        }
        at
    }

    /// The index from which on a block acknowledges whole records; `None` if it reports nothing new.
    fn whole_from(&mut self, start: SeqNum, end: SeqNum) -> Option<usize> {
        let at = self.find(start);
        let record = *self.list.get(at)?;
        if record.fate == Fate::Sacked && record.end.at_or_after(end) {
            return None;
        }
        if !record.start.before(start) {
            return Some(at);
        }
        let cut = record.whole_after(start);
        if record.fate != Fate::Sacked && cut.before(end.min(record.end)) && self.may_split(at) {
            self.split(cut);
        }
        Some(at + 1)
    }

    /// True if a block may cut the record at index `at`. Data that arrives in order behind holes cuts near the end, where little moves no matter how many holes
    /// there are.
    fn may_split(&self, at: usize) -> bool {
        let len = self.list.len();
        len < usize::from(self.split_max) && at.min(len - at.min(len)) <= MOVED_MAX
    }

    /// Joins the records from index `from` up to `to`, all Sacked just now, and neighbours that are Sacked as well. What was sent more than once is joined with
    /// what was sent once, whose acknowledgment then measures no round trip, as on Linux (`tcp_shift_skb_data`): if what is Sacked now follows what is Sacked,
    /// and then also what follows, if all their segments are equally long.
    fn join_sacked(&mut self, from: usize, to: usize) {
        let is_sacked = |at: usize| self.list.get(at).is_some_and(|record| record.fate == Fate::Sacked);
        let begin = from.checked_sub(1).filter(|&before| is_sacked(before)).unwrap_or(from);
        let mut end = if is_sacked(to) { to + 1 } else { to };
        while let Some(last) = end.checked_sub(1).filter(|last| *last >= begin) {
            let takes = |at: usize| self.list[at].takes_segments(&self.list[at + 1]);
            let joins = |at: usize| {
                let is_new = at + 1 < to || (at > begin && takes(at - 1));
                self.list[at].repeated == self.list[at + 1].repeated || (is_new && takes(at))
            };
            let first = last - (begin..last).rev().take_while(|at| joins(*at)).count();
            if self.may_collapse(first, end) {
                self.collapse(first, end);
            }
            end = first;
        }
    }

    /// True if few records move for it, or if it joins so many that it pays. Records that stay apart in the middle are visited one by one, fewer than
    /// [`RUN_MIN`] at a time.
    fn may_collapse(&self, from: usize, to: usize) -> bool {
        let len = self.list.len();
        to - from >= RUN_MIN || from.min(len - from.min(len)) <= MOVED_MAX
    }

    /// Joins the records from index `from` up to `to` to one with the last one's time.
    fn collapse(&mut self, from: usize, to: usize) {
        if to <= from + 1 {
            return;
        }
        if let (Some(last), Some(first)) = (self.list.get(to - 1).copied(), self.list.get_mut(from)) {
            let first_at = first.sent_since().min(last.sent_since());
            first.segment = first.segment_with(last.segment);
            first.end = last.end;
            first.sent_at = first.sent_at.max(last.sent_at);
            first.span_us = span_us(first_at, first.sent_at);
            (first.snapshot, first.is_write) = (last.snapshot, last.is_write);
        }
        let more = self.list.range(from + 1..to).map(|record| record.count).sum::<u32>();
        let repeated = self.list.range(from + 1..to).any(|record| record.repeated);
        if let Some(first) = self.list.get_mut(from) {
            first.count += more;
            first.repeated |= repeated;
        }
        self.step(moved(from, self.list.len()));
        self.list.drain(from + 1..to);
    }

    /// Cuts the record that contains `at`. Returns the index of the record that begins there.
    fn split(&mut self, at: SeqNum) -> usize {
        let index = self.find(at);
        let Some(record) = self.list.get_mut(index) else { return index };
        if !record.start.before(at) {
            return index;
        }
        let (whole, behind) = record.counts_at(at);
        let is_cut = whole == 0 || at != record.whole_before(at);
        let tail = Record { start: at, count: behind, cut: 0, ..*record };
        (record.end, record.count) = (at, whole + u32::from(is_cut));
        if is_cut {
            *self.counts.of(record.fate) += 1;
        }
        self.step(moved(index, self.list.len()));
        self.list.insert(index + 1, tail);
        index + 1
    }

    /// The index of the record that contains `seq`; the number of records if it lies after all.
    fn find(&self, seq: SeqNum) -> usize {
        self.list.partition_point(|record| record.end.at_or_before(seq))
    }

    #[cfg(test)]
    fn step(&mut self, count: u64) {
        self.steps += count;
    }

    #[cfg(not(test))]
    #[inline]
    fn step(&mut self, _: u64) {}
}

/// Cost of moving the shorter side of a queue of `len`, in visited records: they move in blocks.
fn moved(index: usize, len: usize) -> u64 {
    (index.min(len - index.min(len)) / MOVED_PER_STEP) as u64 + 1
}

/// Microseconds from `first` to `last`.
fn span_us(first: Instant, last: Instant) -> u32 {
    u32::try_from(since_us(last, first)).unwrap_or(u32::MAX)
}

fn same_cell(a: Instant, b: Instant, shift: u8) -> bool {
    a.as_micros() >> shift == b.as_micros() >> shift
}

/// From this many records on, their times are kept in cells: half of the number that a block may move.
const EXACT_MAX: usize = 1024;
/// Number of cells in a round trip. RACK waits for a quarter of a round trip.
const CELLS_PER_ROUND_TRIP: u32 = 64;
/// Number of records that selective acknowledgments may make by cutting, regardless of what is outstanding.
const SPLIT_MIN: usize = 512;
/// Largest number of records that move when a block cuts one or joins some. This takes as long as visiting some tens of them.
const MOVED_MAX: usize = if cfg!(test) { 512 } else { 2048 };
/// This many records are joined wherever they are: their cost is covered by that of making them.
const RUN_MIN: usize = 64;
/// From this many records on, new data joins the last one, and no block cuts any: enough for 16,000 holes. Repairs can cut each lost record once more, so there
/// are never more than twice as many: 2 MiB.
const RECORDS_MAX: usize = if cfg!(test) { 4096 } else { 32_768 };
/// Number of records that are moved in the time of one visit.
const MOVED_PER_STEP: usize = 32;
