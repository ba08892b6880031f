//! Peers without SACK: a duplicate acknowledgment stands for a segment that has arrived behind a hole; it is unknown
//! which.
//!
//! These segments are counted ([`Loss::stood_for`], Linux's `sacked_out` of Reno) and are no longer in the network. An
//! acknowledgment that moves SND.UNA fills the hole; duplicates have already reported the rest of what it covers. If
//! there are as many duplicates as the path is believed to reorder segments, the first segment is lost; so it is after
//! progress in a recovery that does not end it (NewReno, RFC 6582). A recovery, or the repair after a timeout, lasts
//! until more is acknowledged than what was outstanding when it began: duplicates that its repetitions cause are no
//! signs of a loss.
//!
//! Everything else is as with SACK: records, proportional rate reduction, F-RTO, undoing. No tail loss probe is sent
//! and RACK finds nothing. Bound: no more segments can have arrived than are outstanding, less at least one hole. It
//! does not depend on time. Tests: `tests/reno.rs`.

use crate::seq::SeqNum;

use super::super::cc::Phase;
use super::super::pcb::Pcb;
use super::super::segment::Payload;
use super::Loss;
use super::ack::Report;
use super::rack::REORDERING_MAX;

impl Loss {
    /// SND.UNA has moved over the segments of a report. The segments that remain in the report are those that were not
    /// known to have arrived.
    #[cold]
    pub(super) fn fill_hole(&mut self, report: &mut Report) {
        if report.count > 0 {
            let count = report.count;
            report.count = count.saturating_sub(self.stood_for).max(1);
            self.stood_for = self.stood_for.saturating_sub(count - 1);
            self.bound_stood_for(count, u32::MAX);
        }
        // Duplicates may have reported long ago what was sent once, and the repetition may have filled the hole.
        report.original &= !report.is_ambiguous;
    }

    /// What was sent from `start` to `end` is retransmitted as one segment. If that joins several, a duplicate no
    /// longer shows which of them has arrived (`tcp_adjust_pcount`). With SACK, no segments are counted by duplicates.
    pub(super) fn make_one(&mut self, start: SeqNum, end: SeqNum) {
        let before = self.records.counts().all();
        self.records.make_one(start, end);
        let joined = before.saturating_sub(self.records.counts().all());
        self.stood_for = self.stood_for.saturating_sub(joined);
    }

    /// The repair continues although everything that was outstanding at its beginning is acknowledged.
    #[cold]
    pub(super) fn hold(&mut self, phase: Phase) {
        if phase == Phase::Recovery {
            self.stood_for = 0;
        }
    }

    /// A duplicate has arrived, and at most `most` segments can have arrived besides the hole. Returns how many it
    /// stands for: none if all of these have arrived.
    fn count_duplicate(&mut self, most: u32) -> u32 {
        let before = self.stood_for;
        self.stood_for += 1;
        self.bound_stood_for(0, most);
        self.stood_for.saturating_sub(before)
    }

    /// At least one hole is among what is outstanding (`tcp_limit_reno_sacked`). More duplicates than that show that
    /// the path reorders by this many segments plus those that were `acked` just now. Never more than `most`.
    fn bound_stood_for(&mut self, acked: u32, most: u32) {
        let counts = self.records.counts();
        let out = counts.all();
        let most = most.min(out - counts.lost.max(1).min(out));
        if self.stood_for > most {
            self.stood_for = most;
            self.rack.degree = u16::try_from((out + acked).min(REORDERING_MAX)).unwrap_or(u16::MAX);
            self.rack.reordered_count = self.rack.reordered_count.saturating_add(1);
        }
    }
}

impl<P: Payload> Pcb<P> {
    /// What an acknowledgment shows about losses: bytes that it shows to be lost, and the segments for which it stands
    /// as a duplicate. `was`: the phase when it arrived.
    #[cold]
    pub(super) fn judge_duplicates(&mut self, loss: &mut Loss, report: &Report, was: Phase) -> (u32, u32) {
        let (has_moved, recover) = (report.moves(), self.recovery.recover());
        // What had arrived behind the hole of an undone recovery has still arrived, and the rest of these duplicates
        // may be the sign of another recovery.
        let is_undone = was == Phase::Recovery && self.snd_una.before(recover);
        let is_duplicate = report.is_duplicate && !has_moved && !loss.records.is_empty();
        let mut told = 0;
        let is_sign = match self.recovery.phase() {
            // The repair may cause what arrives now.
            Phase::Recovery | Phase::Loss if !self.snd_una.before(recover) => false,
            Phase::Recovery => {
                if is_duplicate {
                    told = loss.count_duplicate(u32::MAX);
                }
                has_moved
            }
            Phase::Loss => {
                if is_duplicate && self.snd_max.after(recover) {
                    // Everything outstanding at the timeout was marked lost, and stays so when it is retransmitted, but
                    // not when an echo has shown that it was not lost (`lost_out`).
                    let is_lost = loss.undo.is_some();
                    told = loss.count_duplicate(if is_lost {
                        loss.records.count_from(recover)
                    } else {
                        u32::MAX
                    });
                } else if has_moved {
                    loss.stood_for = 0;
                }
                false
            }
            Phase::Open => {
                let is_enough = |loss: &Loss| loss.stood_for >= u32::from(loss.rack.degree);
                // Duplicates of what was sent behind the end of a timeout's repair are a sign as soon as that has ended,
                // and only then (`tcp_fastretrans_alert`).
                let is_behind = was == Phase::Loss && is_enough(loss);
                if has_moved && !is_undone {
                    loss.stood_for = 0;
                }
                if is_duplicate {
                    told = loss.count_duplicate(u32::MAX);
                }
                is_behind || is_enough(loss)
            }
        };
        let lost = if is_sign { loss.records.lose_first(self.mss.into()) } else { 0 };
        (lost, told)
    }

    /// Whether a repair stays as it is although everything outstanding at its beginning, and no more, is acknowledged
    /// (`tcp_is_non_sack_preventing_reopen`).
    pub(in crate::tcp) fn holds_repair(&self) -> bool {
        !self.sack_ok && self.snd_una == self.recovery.recover()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    /// Ten segments of 100 bytes are in flight, and `stood_for` duplicates have arrived.
    fn loss(stood_for: u32) -> Box<Loss> {
        let start = SeqNum::new(u32::MAX - 150);
        let mut loss = Loss::new(start, (10_000, 10_000), Instant::ZERO);
        loss.records.set_segment(100);
        loss.records.sent(start, start + 1_000, Instant::ZERO, 0);
        loss.stood_for = stood_for;
        loss
    }

    /// One of the segments fills the hole; duplicates have reported the others.
    #[test]
    fn an_acknowledgment_tells_of_what_no_duplicate_stood_for() {
        for (count, stood_for, told, left) in
            [(1, 0, 1, 0), (1, 5, 1, 5), (3, 5, 1, 3), (3, 1, 2, 0), (6, 5, 1, 0), (7, 5, 2, 0)]
        {
            let (mut loss, mut report) = (loss(stood_for), Report::default());
            report.count = count;
            loss.fill_hole(&mut report);
            assert_eq!((report.count, loss.stood_for), (told, left), "{count} {stood_for}");
        }
    }

    #[test]
    fn segments_that_are_joined_take_their_duplicates_along() {
        for (joined, stood_for, left) in [(1, 5, 5), (2, 5, 4), (4, 5, 2), (4, 1, 0)] {
            let mut loss = loss(stood_for);
            let start = loss.records.first().map(|first| first.start).unwrap();
            let end = start + joined * 100;
            loss.records.sent(start, end, Instant::from_micros(1), 0);
            loss.make_one(start, end);
            assert_eq!(loss.stood_for, left, "{joined} {stood_for}");
        }
    }

    /// One of them is the hole.
    #[test]
    fn more_duplicates_than_others_are_out_say_that_the_path_reorders() {
        for (stood_for, left, seen) in [(8, 8, 0), (9, 9, 0), (10, 9, 1)] {
            let mut loss = loss(stood_for);
            loss.bound_stood_for(2, u32::MAX);
            assert_eq!((loss.stood_for, loss.rack.reordered_count), (left, seen), "{stood_for}");
            assert_eq!(loss.rack.degree, if seen == 0 { 3 } else { 12 });
        }
    }
}
