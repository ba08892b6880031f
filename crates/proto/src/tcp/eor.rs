//! Boundaries in the stream that no segment crosses: the ends of records that were written with `MSG_EOR`.
//!
//! As on Linux they are the sender's alone: they say where segments end, first or again, so that their times (or a receiver that looks at packets)
//! tell records apart. Bound: [`ENDS_MAX`] of them that are not acknowledged; of more, the oldest are forgotten. It does not depend on buffers.
//! Tests: below, `tests/output.rs`.

use std::collections::VecDeque;

use crate::seq::SeqNum;

/// The ends of records, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordEnds(VecDeque<SeqNum>);

impl RecordEnds {
    /// A record ends before `at`. Those up to `una` are acknowledged.
    pub fn end_at(&mut self, at: SeqNum, una: SeqNum) {
        while self.0.front().is_some_and(|end| end.at_or_before(una)) {
            self.0.pop_front();
        }
        if self.0.back() == Some(&at) {
            return;
        }
        if self.0.len() >= ENDS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(at);
    }

    /// How many of `len` bytes from `start` on may be in one segment, and whether there are more behind them: then a short one does
    /// not wait for company.
    pub fn limit(&self, start: SeqNum, len: u32) -> (u32, bool) {
        let next = self.0.partition_point(|end| end.at_or_before(start));
        match self.0.get(next).map(|end| end.since(start)) {
            Some(within) if within < len => (within, true),
            Some(_) | None => (len, false),
        }
    }
}

/// Ends that are kept.
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
    fn ends_are_bounded() {
        let mut ends = RecordEnds::default();
        (1..10_000).for_each(|i| ends.end_at(seq(i), seq(0)));
        assert_eq!((ends.0.len(), ends.limit(seq(9_000), 500)), (ENDS_MAX, (1, true)));
    }
}
