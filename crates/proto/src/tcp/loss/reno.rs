//! Peers without SACK: a duplicate acknowledgment stands for a segment that has arrived behind a hole, nobody knows which.
//!
//! These segments are counted ([`Loss::stood_for`], Linux's `sacked_out` of Reno) and not in the network any more. One acknowledgment that moves
//! SND.UNA fills the hole; what else it covers was told by duplicates before. As many duplicates as the path is believed to reorder segments
//! say that the first segment is lost, and so does progress in a recovery that does not end it (NewReno, RFC 6582). A recovery, and the repair
//! after a timeout, hold until more than what was out then is acknowledged: duplicates that their repetitions cause are no signs of a loss.
//!
//! Everything else is as with SACK: records, proportional rate reduction, F-RTO, undoing. No tail loss probe is sent and RACK finds
//! nothing. Bound: no more segments can have arrived than are out, but for one hole at least. It does not depend on time. Tests: `tests/reno.rs`.

use super::super::cc::Phase;
use super::super::pcb::Pcb;
use super::super::segment::Payload;
use super::Loss;
use super::ack::Report;
use super::rack::REORDERING_MAX;

impl Loss {
    /// SND.UNA has moved over the segments of a report. Those that are left there are the ones that were not known to have arrived.
    #[cold]
    pub(super) fn fill_hole(&mut self, report: &mut Report) {
        if report.count > 0 {
            let count = report.count;
            report.count = count.saturating_sub(self.stood_for).max(1);
            self.stood_for = self.stood_for.saturating_sub(count - 1);
            self.bound_stood_for(count);
        }
        // What was sent once may have been told by duplicates long ago, and the repetition have filled the hole.
        report.original &= !report.is_ambiguous;
    }

    /// The repair goes on although everything that was out at its beginning is acknowledged.
    #[cold]
    pub(super) fn hold(&mut self, phase: Phase) {
        if phase == Phase::Recovery {
            self.stood_for = 0;
        }
    }

    /// A duplicate has come. Returns how many segments it stands for: none if all but the hole have arrived.
    fn count_duplicate(&mut self) -> u32 {
        let before = self.stood_for;
        self.stood_for += 1;
        self.bound_stood_for(0);
        self.stood_for.saturating_sub(before)
    }

    /// A hole at least is among what is out (`tcp_limit_reno_sacked`). More duplicates than that say that the path reorders by as many segments,
    /// and by those that were `acked` just now.
    fn bound_stood_for(&mut self, acked: u32) {
        let counts = self.records.counts();
        let out = counts.all();
        let most = out - counts.lost.max(1).min(out);
        if self.stood_for > most {
            self.stood_for = most;
            self.rack.degree = u16::try_from((out + acked).min(REORDERING_MAX)).unwrap_or(u16::MAX);
            self.rack.reordered_count = self.rack.reordered_count.saturating_add(1);
        }
    }
}

impl<P: Payload> Pcb<P> {
    /// What an acknowledgment says of losses: bytes that are lost by it, and the segments that have arrived by it as a duplicate.
    #[cold]
    pub(super) fn judge_duplicates(&mut self, loss: &mut Loss, report: &Report) -> (u32, u32) {
        let (has_moved, recover) = (report.moves(), self.recovery.recover());
        let is_duplicate = report.is_duplicate && !has_moved && !loss.records.is_empty();
        let mut told = 0;
        let is_sign = match self.recovery.phase() {
            // What comes now may be caused by the repair.
            Phase::Recovery | Phase::Loss if !self.snd_una.before(recover) => false,
            Phase::Recovery => {
                if is_duplicate {
                    told = loss.count_duplicate();
                }
                has_moved
            }
            Phase::Loss => {
                if is_duplicate && self.snd_max.after(recover) {
                    told = loss.count_duplicate();
                } else if has_moved {
                    loss.stood_for = 0;
                }
                false
            }
            Phase::Open => {
                if has_moved {
                    loss.stood_for = 0;
                }
                if is_duplicate {
                    told = loss.count_duplicate();
                }
                loss.stood_for >= u32::from(loss.rack.degree)
            }
        };
        let lost = if is_sign { loss.records.lose_first(self.mss.into()) } else { 0 };
        (lost, told)
    }

    /// Whether a repair stays as it is although everything that was out at its beginning is acknowledged, and no more
    /// (`tcp_is_non_sack_preventing_reopen`).
    pub(super) fn holds_repair(&self) -> bool {
        !self.sack_ok && self.snd_una == self.recovery.recover()
    }
}
