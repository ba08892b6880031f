//! One record of the scoreboard: bytes that were sent together, and when.
//!
//! Does not depend on the others. Tests: here, and those of the scoreboard.

use crate::seq::SeqNum;
use crate::time::Instant;

/// State of a range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tcp) enum Fate {
    /// Nothing is known.
    Flying,
    /// The peer reports that it holds the bytes.
    Sacked,
    /// Believed lost, and not repeated since.
    Lost,
}

/// Bytes that were last sent together.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Record {
    pub start: SeqNum,
    pub end: SeqNum,
    /// When the latest of them was last sent.
    pub sent_at: Instant,
    /// How much earlier the first of them was, microseconds.
    pub span_us: u32,
    /// The rate estimator's snapshot at that time (`rate.rs`).
    pub snapshot: u32,
    pub fate: Fate,
    /// Number of its segments.
    pub count: u32,
    /// Bytes of each of its segments but the last, which may have fewer; 0 if they are of several sizes.
    pub segment: u16,
    /// Bytes of its first segment that are acknowledged, and no longer in it.
    pub cut: u16,
    /// It was sent more than once.
    pub repeated: bool,
    /// The last of it is from a write before which nothing waited: its segments were sent one by one, although at one time of our clock.
    pub is_write: bool,
}

impl Record {
    /// New bytes that were sent at `now`, as one segment.
    pub fn sent(start: SeqNum, end: SeqNum, now: Instant, snapshot: u32) -> Self {
        Self {
            start,
            end,
            sent_at: now,
            span_us: 0,
            snapshot,
            fate: Fate::Flying,
            count: 1,
            segment: 0,
            cut: 0,
            repeated: false,
            is_write: false,
        }
    }

    pub fn len(&self) -> u32 {
        self.end.since(self.start)
    }

    /// Bytes of its first segment, if it has several; `unknown` if their sizes differ.
    pub fn segment_or(&self, unknown: u32) -> u32 {
        if self.segment == 0 { unknown } else { self.segment.into() }
    }

    /// How many of its segments lie completely before `at`, and how many others there are. A segment that is cut at
    /// `at` counts in both parts; if nothing is cut, it counts in the second.
    pub fn counts_at(&self, at: SeqNum) -> (u32, u32) {
        let (before, len) = (at.since(self.start), self.len().max(1));
        let segment = u32::from(self.segment);
        let share = || (u64::from(self.count) * u64::from(before) / u64::from(len)) as u32;
        let whole = before.checked_div(segment).unwrap_or_else(share);
        let whole = whole.min(self.count.saturating_sub(1));
        (whole, self.count - whole)
    }

    /// The end of the segment that contains `at`, if `at` is not its beginning and others follow. A segment of which a
    /// part is acknowledged is still one segment, and is kept apart: otherwise, what follows would not begin with a
    /// segment.
    pub fn cut_segment_end(&self, at: SeqNum) -> Option<SeqNum> {
        let end = self.whole_after(at);
        (end != at && end != self.end).then_some(end)
    }

    /// The beginning of the segment that contains `at`, if that is another number and segments are before it.
    pub fn cut_segment_start(&self, at: SeqNum) -> Option<SeqNum> {
        let start = self.whole_before(at);
        (start != at && start != self.start).then_some(start)
    }

    /// The beginning of the first segment at or after `at`, as far as segments are known; the record's end if there is
    /// none.
    pub fn whole_after(&self, at: SeqNum) -> SeqNum {
        let segment = u32::from(self.segment);
        if segment == 0 {
            return at;
        }
        let into = at.since(self.start).div_ceil(segment).saturating_mul(segment);
        self.start + into.min(self.len())
    }

    /// The end of the last segment at or before `at`, which lies in the record; the record's beginning if there is
    /// none.
    pub fn whole_before(&self, at: SeqNum) -> SeqNum {
        let segment = u32::from(self.segment);
        let into = at.since(self.start);
        self.start + if segment == 0 { into } else { into - into % segment }
    }

    /// The beginning of its last segment if that is known, else its own beginning.
    pub fn last_segment(&self) -> SeqNum {
        let segment = u32::from(self.segment);
        let before = self.len().saturating_sub(1);
        // A FIN may have been sent with it.
        let most = self.count.saturating_sub(1).saturating_mul(segment);
        self.start + if segment == 0 { 0 } else { (before - before % segment).min(most) }
    }

    /// Its segments, if `more` with segments of `segment` bytes goes on where it ends.
    pub fn segment_with(&self, segment: u16) -> u16 {
        let is_whole = segment != 0 && self.len().is_multiple_of(u32::from(segment));
        if self.segment == segment && is_whole { segment } else { 0 }
    }

    /// Whether its segments are then still known, or do not matter.
    pub fn goes_on_with(&self, segment: u16) -> bool {
        segment == 0 || self.segment_with(segment) != 0
    }

    /// Whether `next` goes on where it ends, with segments that are all as long as its own.
    pub fn takes_segments(&self, next: &Self) -> bool {
        let is_whole = next.len() == next.count.saturating_mul(next.segment.into());
        is_whole && self.segment_with(next.segment) != 0
    }

    /// The time when the first of it was sent: the time that counts at arrival. Data still in flight counts from
    /// `sent_at`, so that an arrival never counts as sent later than data that was sent after it.
    pub fn sent_since(&self) -> Instant {
        Instant::from_micros(self.sent_at.as_micros().saturating_sub(u64::from(self.span_us)))
    }

    /// When the first and the last segment were sent of it and of what was reported before it.
    pub fn span_with(&self, before: Option<(Instant, Instant)>) -> (Instant, Instant) {
        let since = self.sent_since();
        (before.map_or(since, |(first, _)| first.min(since)), self.sent_at)
    }

    /// Its place in the order of transmissions, now that it has arrived.
    pub fn arrived(&self) -> Sent {
        Sent { at: self.sent_since(), end: self.end, repeated: self.repeated }
    }
}

/// A transmission's place in the order of transmissions (RFC 8985 section 6.1, `RACK_sent_after`).
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Sent {
    pub at: Instant,
    pub end: SeqNum,
    /// It was not the first transmission of its bytes.
    pub repeated: bool,
}

impl Sent {
    /// True if `self` was sent before `other`. Among first transmissions the numbers decide, else the time, which is
    /// known to a cell.
    pub fn before(self, other: Self) -> bool {
        if !self.repeated && !other.repeated {
            return self.end.before(other.end);
        }
        self.at < other.at || (self.at == other.at && self.end.before(other.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of `len` bytes in segments of `segment`, from a number after which numbers wrap.
    fn record(len: u32, segment: u16) -> Record {
        let start = SeqNum::new(u32::MAX - 5);
        let count = len.div_ceil(u32::from(segment.max(1))).max(1);
        Record { count, segment, ..Record::sent(start, start + len, Instant::from_micros(100), 0) }
    }

    /// The beginnings of segments, and the end of the last.
    fn edges(len: u32, segment: u16) -> Vec<u32> {
        (0..len).step_by(segment.into()).chain([len]).collect()
    }

    #[test]
    fn a_place_in_a_record_lies_between_two_edges_of_its_segments() {
        for (segment, len) in (1..6).flat_map(|segment| (1..14).map(move |len| (segment, len))) {
            let (record, edges) = (record(len, segment), edges(len, segment));
            let place = |seq: SeqNum| seq.since(record.start);
            assert_eq!(place(record.last_segment()), edges[edges.len() - 2], "{len} by {segment}");
            for at in 0..len {
                let (seq, what) = (record.start + at, (len, segment, at));
                let after = *edges.iter().find(|edge| **edge >= at).unwrap();
                // The end of the record is no edge within it.
                let before = *edges.iter().rfind(|edge| **edge <= at).unwrap();
                assert_eq!(
                    (place(record.whole_after(seq)), place(record.whole_before(seq))),
                    (after, before),
                    "{what:?}"
                );
                let cut = record.cut_segment_end(seq).map(place);
                assert_eq!(cut, (after != at && after != len).then_some(after), "{what:?}");
                let whole = edges.iter().filter(|edge| **edge > 0 && **edge <= at).count() as u32;
                assert_eq!(record.counts_at(seq), (whole, record.count - whole), "{what:?}");
            }
        }
    }

    #[test]
    fn of_several_sizes_each_byte_is_an_edge_and_segments_are_shared_out() {
        let record = Record { count: 4, segment: 0, ..record(100, 1) };
        let seq = record.start + 30;
        assert_eq!((record.whole_after(seq), record.whole_before(seq)), (seq, seq));
        assert_eq!((record.last_segment(), record.cut_segment_end(seq)), (record.start, None));
        let counts = [0, 24, 25, 50, 99, 100].map(|at| record.counts_at(record.start + at).0);
        assert_eq!(counts, [0, 0, 1, 2, 3, 3], "no part is without a segment");
    }

    #[test]
    fn a_fin_needs_no_segment_of_its_own() {
        // Two segments of five bytes, and a FIN at the end of the second.
        let record = Record { count: 2, ..record(11, 5) };
        assert_eq!(record.last_segment(), record.start + 5);
    }

    #[test]
    fn segments_stay_known_where_whole_ones_of_the_same_size_go_on() {
        for (len, segment, more, known) in
            [(10, 5, 5, true), (11, 5, 5, false), (10, 5, 4, false), (10, 0, 5, false)]
        {
            let record = record(len, segment);
            assert_eq!(record.segment_with(more), if known { segment } else { 0 }, "{len} {segment} {more}");
            assert_eq!(record.goes_on_with(more), known);
            assert!(record.goes_on_with(0), "they do not matter");
        }
        assert_eq!([0, 7].map(|segment| record(21, segment).segment_or(3)), [3, 7]);
    }

    #[test]
    fn first_transmissions_are_ordered_by_number_and_others_by_time() {
        let sent = |at, end, repeated| Sent { at: Instant::from_micros(at), end: SeqNum::new(end), repeated };
        for (a, b, is_before) in [
            (sent(9, 1, false), sent(1, 2, false), true),
            (sent(1, 2, false), sent(9, 2, false), false),
            (sent(9, 1, true), sent(1, 2, false), false),
            (sent(1, 2, false), sent(9, 1, true), true),
            (sent(5, 1, true), sent(5, 2, false), true),
            (sent(5, 2, false), sent(5, 2, true), false),
            (sent(5, 3, true), sent(5, 2, true), false),
        ] {
            assert_eq!(a.before(b), is_before, "{a:?} {b:?}");
        }
    }

    #[test]
    fn what_has_arrived_counts_from_the_time_of_its_first_segment() {
        let record = Record { span_us: 30, repeated: true, ..record(10, 5) };
        let sent = record.arrived();
        assert_eq!((sent.at.as_micros(), sent.end, sent.repeated), (70, record.end, true));
        assert_eq!(Record { span_us: 200, ..record }.sent_since().as_micros(), 0);
    }
}
