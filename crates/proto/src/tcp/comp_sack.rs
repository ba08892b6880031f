//! Fewer acknowledgments while a hole is open: Linux's SACK compression (`tcp_comp_sack_*`).
//!
//! Each segment behind a hole is answered with a duplicate acknowledgment, so that a sender that counts to three finds
//! the loss. With SACK, the blocks tell a sender more than the count. So after the third for one RCV.NXT, an
//! acknowledgment waits a little, together with those that follow: a twentieth of the round trip, at most
//! [`DELAY_MAX_US`], and at most [`COMPRESSED_MAX`] of them. It does not wait if news could be lost: an acknowledgment
//! names the blocks that changed last, so one is sent before a third block changes.
//!
//! A wait shorter than [`DELAY_MIN_US`] is not worth a timer, which may be a millisecond late, and while the round trip
//! of incoming data is unknown, nothing waits. Then one acknowledgment stands for all segments that are processed before
//! the next output.
//!
//! The state is in the out-of-order queue, which exists while there is a hole. A waiting acknowledgment uses the timer
//! of delayed acknowledgments. Tests: `tests/comp_sack.rs`.

use crate::time::Instant;

use super::pcb::Pcb;
use super::rcv_tune::RcvTune;
use super::segment::Payload;
use super::timers::after_us;
use crate::seq::SeqNum;

/// Longest wait, microseconds (`tcp_comp_sack_delay_ns`).
const DELAY_MAX_US: u32 = 1_000;
/// Shortest wait, microseconds.
const DELAY_MIN_US: u32 = 500;
/// The wait is a round trip divided by this.
const RTT_PARTS: u32 = 20;
/// Largest number of acknowledgments left out in a row (`tcp_comp_sack_nr`).
const COMPRESSED_MAX: u8 = 44;
/// Number of duplicates by which a sender without SACK finds a loss (RFC 5681 section 3.2).
const DUPLICATES_TO_COUNT: u8 = 3;

/// The state of one hole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CompSack {
    /// Acknowledgments left out since the last.
    compressed: u8,
    /// Acknowledgments sent for `nxt` without waiting.
    sent: u8,
    /// The RCV.NXT of that count.
    nxt: SeqNum,
    /// Number of blocks at the beginning of the present output: all its new text leaves room for them (`tcp_write_xmit`
    /// computes the size of segments once).
    pub burst_blocks: u8,
}

impl CompSack {
    /// An acknowledgment is sent. True if it also stands for others that were left out.
    pub fn restart(&mut self) -> bool {
        core::mem::take(&mut self.compressed) > 0
    }

    /// An acknowledgment is due for RCV.NXT. True if it may be left out for now.
    fn leaves_out(&mut self, nxt: SeqNum) -> bool {
        if self.compressed >= COMPRESSED_MAX {
            // The one that is due stands for them.
            self.compressed = 0;
            return false;
        }
        if self.nxt != nxt {
            (self.nxt, self.sent) = (nxt, 0);
        }
        if self.sent < DUPLICATES_TO_COUNT {
            self.sent += 1;
            return false;
        }
        self.compressed += 1;
        true
    }
}

impl<P: Payload> Pcb<P> {
    /// A segment has arrived behind a hole.
    ///
    /// Each is answered with its own acknowledgment. Otherwise the peer would not count three of them when they arrive
    /// in one batch.
    pub(super) fn owe_duplicate(&mut self, now: Instant) {
        self.acks.scheduled = true;
        let is_quick = self.acks.is_quick() || self.has_full_segment();
        let delay_us = self.compression_us();
        let nxt = self.rcv_nxt;
        if let Some(reass) = self.reass.as_deref_mut()
            && self.sack_ok
            && !is_quick
        {
            // What was left out so far is sent before its blocks are forgotten.
            if reass.comp.compressed > 0 && reass.is_late_block() {
                reass.comp.restart();
                self.dup_acks_owed = self.dup_acks_owed.saturating_add(1);
            }
            if reass.comp.leaves_out(nxt) {
                if delay_us >= DELAY_MIN_US {
                    self.delack_at = self.delack_at.min(after_us(now, u64::from(delay_us)));
                    return;
                }
                if reass.comp.compressed > 1 {
                    // The first that was left out is owed, and names what has arrived until then.
                    return;
                }
            }
        }
        self.dup_acks_owed = self.dup_acks_owed.saturating_add(1);
    }

    /// How long an acknowledgment may wait, microseconds. It depends on the shorter round trip time of the two
    /// directions. If that of incoming data is unknown, it does not wait (RFC 5681 section 4.2); Linux then waits as
    /// long as its timer is inexact, 100 microseconds.
    fn compression_us(&self) -> u32 {
        let tune = self.meter.as_deref().and_then(|meter| meter.tune.as_ref());
        let incoming_us = tune.and_then(RcvTune::rtt).map_or(0, super::settings::micros);
        let rtt_us = match self.rtt.srtt_us() {
            0 => incoming_us,
            ours_us => ours_us.min(incoming_us),
        };
        (rtt_us / RTT_PARTS).min(DELAY_MAX_US)
    }

    /// New text is sent while blocks must be reported.
    #[cold]
    pub(super) fn begin_burst(&mut self) {
        if let Some(reass) = self.reass.as_deref_mut() {
            let count = u8::try_from(reass.sack_count()).unwrap_or(u8::MAX);
            reass.comp.burst_blocks = reass.comp.burst_blocks.max(count);
        }
    }

    /// Output has ended.
    #[inline]
    pub(super) fn end_burst(&mut self) {
        if let Some(reass) = self.reass.as_deref_mut() {
            reass.comp.burst_blocks = 0;
            if reass.is_empty() {
                self.reass = None;
            }
        }
    }

    /// The timer has expired. True if it was for acknowledgments that were left out.
    pub(super) fn ends_compression(&mut self) -> bool {
        self.reass.as_deref_mut().is_some_and(|reass| reass.comp.restart())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_leave_for_a_number_then_44_are_left_out_until_one_leaves() {
        let (mut comp, nxt) = (CompSack::default(), SeqNum::new(7));
        assert!(!comp.restart(), "none was left out");
        assert!((0..3).all(|_| !comp.leaves_out(nxt)));
        assert!((0..44).all(|_| comp.leaves_out(nxt)) && !comp.leaves_out(nxt));
        assert!(!comp.restart(), "that one stands for them");
        assert!(comp.leaves_out(nxt) && comp.restart() && !comp.restart());
        assert!(comp.leaves_out(nxt) && !comp.leaves_out(nxt + 1));
    }
}
