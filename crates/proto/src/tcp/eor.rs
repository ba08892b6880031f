//! Boundaries in the stream that no segment crosses: the ends of records written with `MSG_EOR`.
//!
//! As on Linux, only the sender knows them. They determine where segments end, in first transmissions and
//! retransmissions, so that timestamps (or a receiver that sees packets) can distinguish records. Bound: [`ENDS_MAX`]
//! unacknowledged ends; if there are more, the oldest are forgotten. It does not depend on buffers. Tests: below,
//! `tests/output.rs`.

use std::collections::VecDeque;

use crate::seq::SeqNum;

use super::pcb::Pcb;
use super::segment::Payload;
use super::state::State;

/// The ends of records, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordEnds(VecDeque<SeqNum>);

impl RecordEnds {
    /// Everything before `una` is acknowledged.
    pub fn pass(&mut self, una: SeqNum) {
        while self.0.front().is_some_and(|end| end.before(una)) {
            self.0.pop_front();
        }
    }

    /// A record ends before `at`. Those up to `una` are acknowledged.
    pub fn end_at(&mut self, at: SeqNum, una: SeqNum) {
        self.pass(una + 1);
        if self.0.back() == Some(&at) {
            return;
        }
        if self.0.len() >= ENDS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(at);
    }

    /// How many of `len` bytes from `start` on may be in one segment, and whether more follow: then a short one does
    /// not wait for more data.
    pub fn limit(&self, start: SeqNum, len: u32) -> (u32, bool) {
        let next = self.0.partition_point(|end| end.at_or_before(start));
        match self.0.get(next).map(|end| end.since(start)) {
            Some(within) if within < len => (within, true),
            Some(_) | None => (len, false),
        }
    }

    /// Whether a record ends at `at`, before `end`.
    pub fn parts_at(&self, at: SeqNum, end: SeqNum) -> bool {
        let next = self.0.partition_point(|known| known.before(at));
        at.before(end) && self.0.get(next) == Some(&at)
    }

    /// How far after `una` the last record ends.
    pub fn last(&self, una: SeqNum) -> u32 {
        self.0.back().map_or(0, |end| end.max(una).since(una))
    }

    /// Number of packets of `full` bytes that begin in writes from `from` up to `to`; the text before them begins at
    /// `una`. Each record begins one.
    pub fn packets_begun(&self, una: SeqNum, (mut from, to): (SeqNum, SeqNum), full: u32) -> u32 {
        let next = self.0.partition_point(|end| end.at_or_before(from));
        let before = next.checked_sub(1).and_then(|last| self.0.get(last));
        let mut start = before.map_or(una, |end| end.max(una));
        let mut count = 0;
        let within = self.0.range(next..).copied().take_while(|end| end.before(to));
        for end in within.chain([to]) {
            count += end.since(start).div_ceil(full) - from.since(start).div_ceil(full);
            (start, from) = (end, end);
        }
        count
    }
}

impl<P: Payload> Pcb<P> {
    /// A record ends with the first `len` bytes of `so_snd` (`MSG_EOR`): no segment has text from both sides of the boundary.
    pub fn end_record(&mut self, len: u32) {
        let is_syn_out = matches!(self.state, State::SynSent | State::SynReceived);
        let at = if is_syn_out { self.iss + 1 } else { self.snd_una } + len;
        let una = self.snd_una;
        let mut records = self.rare.take_records().unwrap_or_default();
        records.end_at(at, una);
        self.rare.set_records(Some(records));
        if self.rare.pushed().is_some_and(|pushed| pushed.after(at)) {
            // The last packet of a push ends here.
            self.rare.set_pushed(Some(at));
        }
    }

    /// How many of `len` bytes that begin `offset` past SND.UNA may be in one segment.
    #[inline]
    pub(super) fn within_record(&self, offset: u32, len: u32) -> u32 {
        self.rare.records().map_or(len, |records| records.limit(self.snd_una + offset, len).0)
    }

    /// Whether queued text ends with the end of a record; then it is sent as soon as more is written.
    pub(super) fn ends_with_record(&self) -> bool {
        let end = self.snd_una + self.snd_len;
        self.rare.records().is_some_and(|records| records.0.back() == Some(&end))
    }
}

/// Largest number of ends kept.
const ENDS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(offset: u32) -> SeqNum {
        SeqNum::new(u32::MAX - 150) + offset
    }

    #[test]
    fn a_segment_ends_with_its_record() {
        let mut ends = RecordEnds::default();
        ends.end_at(seq(100), seq(0));
        ends.end_at(seq(300), seq(0));
        ends.end_at(seq(300), seq(0));
        assert_eq!(ends.limit(seq(0), 1_000), (100, true));
        assert_eq!(ends.limit(seq(0), 100), (100, false));
        assert_eq!(ends.limit(seq(100), 1_000), (200, true));
        assert_eq!(ends.limit(seq(300), 1_000), (1_000, false));
        ends.end_at(seq(400), seq(300));
        assert_eq!(ends.0.len(), 1);
    }

    #[test]
    fn each_record_begins_a_packet() {
        let mut ends = RecordEnds::default();
        let begun = |ends: &RecordEnds, from, to| ends.packets_begun(seq(0), (seq(from), seq(to)), 100);
        assert_eq!([begun(&ends, 0, 1), begun(&ends, 0, 100), begun(&ends, 50, 101)], [1, 1, 1]);
        assert_eq!([begun(&ends, 50, 100), begun(&ends, 100, 301)], [0, 3]);
        ends.end_at(seq(150), seq(0));
        assert_eq!([begun(&ends, 140, 150), begun(&ends, 150, 151), begun(&ends, 150, 251)], [0, 1, 2]);
        ends.end_at(seq(160), seq(0));
        assert_eq!([begun(&ends, 150, 160), begun(&ends, 150, 161), begun(&ends, 140, 300)], [1, 2, 3]);
    }

    #[test]
    fn ends_are_bounded() {
        let mut ends = RecordEnds::default();
        (1..10_000).for_each(|i| ends.end_at(seq(i), seq(0)));
        assert_eq!((ends.0.len(), ends.limit(seq(9_000), 500)), (ENDS_MAX, (1, true)));
    }
}
