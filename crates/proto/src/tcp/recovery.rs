//! Loss detected by duplicate acknowledgments: limited transmit (RFC 3042), fast retransmit and fast
//! recovery (RFC 5681 section 3.2, NewReno's answer to partial acknowledgments, RFC 6582).
//!
//! It decides *that* a segment was lost and how much the congestion window is inflated meanwhile; congestion control
//! decides about the window itself, and output sends. On a path that may lose segments, `loss/` finds losses instead,
//! and only the phase and the window are kept here: the rest is for paths inside one process. It does not depend on
//! buffers, timers or the peer's window. Tests are at the end and, with real losses, in `tests/loss.rs`.
//!
//! Phases: `Open` -> `Recovery` (third duplicate) -> `Partial` (first partial acknowledgment) -> `Guard` (everything
//! outstanding when the loss was found is acknowledged) -> `Open` (more than that is). A retransmission timeout leads
//! from any phase to `Guard`: duplicates of repeated data bring no news.

use crate::seq::SeqNum;

use crate::time::Instant;

use super::cc::{self, Ack, Cause, Cc, Congestion, CongestionControl};

/// State of the detection.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    /// RFC 6582's `recover`, as the sequence number after it; meaningless in `Open`.
    recover: SeqNum,
    /// Bytes added to the congestion window (or subtracted) for segments that have left the network.
    inflation: i32,
    dup_ack_count: u8,
    phase: Phase,
    /// The segment at SND.UNA must be retransmitted.
    rexmt_now: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    Recovery,
    Partial,
    /// After a timeout, until more than what was outstanding then is acknowledged.
    Guard,
    /// The same after a recovery.
    Ended,
}

impl Recovery {
    pub fn new() -> Self {
        Self {
            recover: SeqNum::default(),
            inflation: 0,
            dup_ack_count: 0,
            phase: Phase::Open,
            rexmt_now: false,
        }
    }

    /// The congestion window for sending, bytes.
    #[inline]
    pub fn window(&self, cc: &Cc, mss: u32) -> u32 {
        cc.cwnd().saturating_add_signed(self.inflation).max(mss)
    }

    /// Where recovery stands, as congestion control sees it. The time between the phases of NewReno's end
    /// counts as open: the window grows again.
    pub fn phase(&self) -> cc::Phase {
        match self.phase {
            Phase::Open => cc::Phase::Open,
            Phase::Recovery | Phase::Partial => cc::Phase::Recovery,
            Phase::Guard | Phase::Ended => cc::Phase::Loss,
        }
    }

    /// The same for diagnosis: a recovery without SACK lasts until more than what was outstanding at its beginning is
    /// acknowledged, and duplicates are signs of a hole (`tcpi_ca_state`).
    pub fn ca_state(&self) -> (cc::Phase, bool) {
        let phase = if self.phase == Phase::Ended { cc::Phase::Recovery } else { self.phase() };
        (phase, self.dup_ack_count > 0)
    }

    /// Nothing is known to be lost, and no duplicate acknowledgment has arrived since SND.UNA moved.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.phase == Phase::Open && self.dup_ack_count == 0 && self.inflation == 0
    }

    /// Bytes that duplicate acknowledgments have reported, and that the next acknowledgment that moves SND.UNA reports
    /// again.
    pub fn told_by_duplicates(&self, mss: u32) -> u32 {
        u32::from(self.dup_ack_count).saturating_mul(mss)
    }

    /// RFC 6582's `recover`; meaningless while the phase is open.
    pub fn recover(&self) -> SeqNum {
        self.recover
    }

    /// A loss was found by other means than duplicates; `snd_max` is the end of the sent data.
    pub fn begin(&mut self, snd_max: SeqNum) {
        self.phase = Phase::Recovery;
        self.recover = snd_max;
    }

    /// Recovery or the repairs after a timeout have ended.
    pub fn finish(&mut self) {
        (self.phase, self.inflation, self.rexmt_now, self.dup_ack_count) = (Phase::Open, 0, false, 0);
    }

    /// Sets by how many bytes the window exceeds `cwnd`, or is below it.
    pub fn inflate(&mut self, bytes: i32) {
        self.inflation = bytes;
    }

    /// The first unacknowledged segment must be retransmitted, regardless of the windows.
    pub fn repeat_first(&mut self) {
        self.rexmt_now = true;
    }

    /// True, once, if the first unacknowledged segment must be retransmitted.
    pub fn take_rexmt(&mut self) -> bool {
        core::mem::take(&mut self.rexmt_now)
    }

    /// Everything up to `ack` was acknowledged; `news` has how much that was. Returns whether the retransmission timer
    /// restarts: in recovery, only the first partial acknowledgment restarts it (RFC 6582 section 4, the "impatient"
    /// variant).
    pub fn on_new_ack(&mut self, cc: &mut Cc, ack: SeqNum, news: &Ack) -> bool {
        let Ack { acked, flight, mss, .. } = *news;
        self.dup_ack_count = 0;
        match self.phase {
            Phase::Open => {
                self.inflation = 0;
                cc.on_ack(news);
                true
            }
            Phase::Guard | Phase::Ended => {
                self.inflation = 0;
                if ack.after(self.recover) {
                    self.phase = Phase::Open;
                }
                cc.on_ack(news);
                true
            }
            Phase::Recovery | Phase::Partial if ack.at_or_after(self.recover) => {
                self.inflation = 0;
                self.rexmt_now = false;
                self.phase = if ack.after(self.recover) { Phase::Open } else { Phase::Ended };
                cc.on_recovery_end(flight.saturating_sub(acked), mss, false);
                true
            }
            Phase::Recovery | Phase::Partial => {
                self.rexmt_now = true;
                let back = if acked >= mss { mss } else { 0 };
                self.inflation = self.inflation.saturating_sub_unsigned(acked).saturating_add_unsigned(back);
                let first = self.phase == Phase::Recovery;
                self.phase = Phase::Partial;
                first
            }
        }
    }

    /// A duplicate acknowledgment of `una`, with `flight` bytes outstanding up to `snd_max`. Returns true if it starts
    /// fast recovery.
    pub fn on_dup_ack(&mut self, cc: &mut Cc, una: SeqNum, snd_max: SeqNum, mss: u32, now: Instant) -> bool {
        let flight = snd_max.since(una);
        // One of the segments is missing, so at most as many duplicates count as there are others
        // (`tcp_limit_reno_sacked`).
        let most = u8::try_from(flight.div_ceil(mss.max(1)).saturating_sub(1)).unwrap_or(u8::MAX);
        if self.dup_ack_count >= most {
            return false;
        }
        self.dup_ack_count += 1;
        match self.phase {
            Phase::Recovery | Phase::Partial => {
                // No more can have left the network than was in it, regardless of what a peer invents.
                let most = i32::try_from(flight).unwrap_or(i32::MAX);
                self.inflation = self.inflation.saturating_add_unsigned(mss).min(most);
                false
            }
            Phase::Open | Phase::Ended if self.dup_ack_count < DUP_ACKS => {
                self.inflation = 0i32.saturating_add_unsigned(mss * u32::from(self.dup_ack_count));
                false
            }
            // The duplicates may be of retransmissions after a timeout or in the recovery.
            Phase::Guard | Phase::Ended => false,
            Phase::Open => {
                if self.dup_ack_count != DUP_ACKS {
                    return false;
                }
                self.phase = Phase::Recovery;
                self.recover = snd_max;
                self.rexmt_now = true;
                cc.on_congestion(&Congestion { now, cause: Cause::Loss, flight, mss });
                self.inflation = 0i32.saturating_add_unsigned(mss * u32::from(DUP_ACKS));
                true
            }
        }
    }

    /// The retransmission timer has expired: everything up to `snd_max` may be retransmitted.
    pub fn on_timeout(&mut self, snd_max: SeqNum) {
        self.phase = Phase::Guard;
        self.recover = snd_max;
        self.inflation = 0;
        self.dup_ack_count = 0;
        self.rexmt_now = false;
    }
}

/// Number of duplicates that indicate a loss (RFC 5681's threshold).
const DUP_ACKS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::super::cc::Algorithm;
    use super::*;

    const MSS: u32 = 1000;
    const NOW: Instant = Instant::ZERO;

    fn news(acked: u32, flight: u32) -> Ack {
        let (delivered, lost, pipe) = (acked, 0, flight.saturating_sub(acked));
        let (phase, rtt_us, rate, loss) = (cc::Phase::Open, None, None, None);
        let (mss, paced, reorders, used) = (MSS, false, false, (false, flight));
        Ack {
            now: NOW,
            acked,
            delivered,
            lost,
            flight,
            pipe,
            used,
            mss,
            phase,
            rtt_us,
            paced,
            reorders,
            rate,
            loss,
        }
    }

    fn una() -> SeqNum {
        SeqNum::new(u32::MAX - 3000)
    }

    /// Ten segments are in flight, and three duplicates arrive.
    fn lost() -> (Recovery, Cc) {
        let mut cc = Cc::new(Algorithm::NewReno, MSS, false);
        let mut recovery = Recovery::new();
        for _ in 0..2 {
            assert!(!recovery.on_dup_ack(&mut cc, una(), una() + 10 * MSS, MSS, NOW));
        }
        assert!(recovery.on_dup_ack(&mut cc, una(), una() + 10 * MSS, MSS, NOW));
        (recovery, cc)
    }

    #[test]
    fn the_first_two_duplicates_let_two_more_segments_out() {
        let mut cc = Cc::new(Algorithm::NewReno, MSS, false);
        let mut recovery = Recovery::new();
        let _ = recovery.on_dup_ack(&mut cc, una(), una() + 10 * MSS, MSS, NOW);
        assert_eq!(recovery.window(&cc, MSS), 11 * MSS);
        let _ = recovery.on_dup_ack(&mut cc, una(), una() + 11 * MSS, MSS, NOW);
        assert_eq!(recovery.window(&cc, MSS), 12 * MSS);
        assert!(!recovery.take_rexmt());
        assert!(recovery.on_new_ack(&mut cc, una() + MSS, &news(MSS, MSS)));
        assert_eq!(recovery.window(&cc, MSS), 10 * MSS);
    }

    #[test]
    fn the_third_duplicate_retransmits_and_halves_and_further_ones_inflate() {
        let (mut recovery, mut cc) = lost();
        assert!(recovery.take_rexmt() && !recovery.take_rexmt());
        assert_eq!(cc.cwnd(), 5 * MSS);
        assert_eq!(recovery.window(&cc, MSS), 8 * MSS);
        assert!(!recovery.on_dup_ack(&mut cc, una(), una() + 10 * MSS, MSS, NOW));
        assert_eq!(recovery.window(&cc, MSS), 9 * MSS);
        assert!(!recovery.take_rexmt());
    }

    #[test]
    fn a_partial_ack_sends_the_next_hole_and_restarts_the_timer_once() {
        let (mut recovery, mut cc) = lost();
        let _ = recovery.take_rexmt();
        assert!(recovery.on_new_ack(&mut cc, una() + 2 * MSS, &news(2 * MSS, 10 * MSS)));
        assert!(recovery.take_rexmt());
        // Eight segments, less two acknowledged, plus one.
        assert_eq!(recovery.window(&cc, MSS), 7 * MSS);
        assert!(!recovery.on_new_ack(&mut cc, una() + 4 * MSS, &news(2 * MSS, 8 * MSS)));
        assert!(recovery.take_rexmt());
    }

    #[test]
    fn a_full_ack_ends_recovery() {
        let (mut recovery, mut cc) = lost();
        let _ = recovery.take_rexmt();
        assert!(recovery.on_new_ack(&mut cc, una() + 11 * MSS, &news(11 * MSS, 11 * MSS)));
        assert!(recovery.phase == Phase::Open && !recovery.take_rexmt());
        assert!(recovery.window(&cc, MSS) <= 5 * MSS);
    }

    #[test]
    fn duplicates_of_retransmissions_after_a_timeout_do_not_start_recovery() {
        let mut cc = Cc::new(Algorithm::NewReno, MSS, false);
        let mut recovery = Recovery::new();
        recovery.on_timeout(una() + 10 * MSS);
        for _ in 0..5 {
            assert!(!recovery.on_dup_ack(&mut cc, una() + 10 * MSS, una() + 12 * MSS, MSS, NOW));
        }
        assert!(recovery.on_new_ack(&mut cc, una() + 11 * MSS, &news(MSS, 2 * MSS)));
        assert!(recovery.phase == Phase::Open);
    }

    #[test]
    fn invented_duplicates_inflate_no_further_than_the_data_in_flight() {
        let (mut recovery, mut cc) = lost();
        for _ in 0..100_000 {
            let _ = recovery.on_dup_ack(&mut cc, una(), una() + 10 * MSS, MSS, NOW);
        }
        // Nine others were in flight.
        assert_eq!(recovery.window(&cc, MSS), 14 * MSS);
    }

    #[test]
    fn a_duplicate_is_a_sign_until_the_next_acknowledgment_and_tells_of_a_segment() {
        let (mut recovery, mut cc) = (Recovery::new(), Cc::new(Algorithm::NewReno, MSS, false));
        assert!(recovery.is_at_rest() && recovery.told_by_duplicates(MSS) == 0);
        for count in 1..3 {
            let _ = recovery.on_dup_ack(&mut cc, una(), una() + 10 * MSS, MSS, NOW);
            assert_eq!((recovery.is_at_rest(), recovery.told_by_duplicates(MSS)), (false, count * MSS));
        }
        let _ = recovery.on_new_ack(&mut cc, una() + MSS, &news(MSS, 10 * MSS));
        assert!(recovery.is_at_rest() && recovery.told_by_duplicates(MSS) == 0);
    }

    #[test]
    fn a_phase_a_duplicate_and_an_inflated_window_are_no_rest() {
        let (fresh, mut cc) = (Recovery::new(), Cc::new(Algorithm::NewReno, MSS, false));
        assert_eq!(fresh.ca_state(), (cc::Phase::Open, false));
        let mut repairing = fresh.clone();
        repairing.begin(una() + MSS);
        assert!(!repairing.is_at_rest());
        let mut inflated = fresh.clone();
        inflated.inflate(1_000);
        assert!(!inflated.is_at_rest());
        let mut counting = fresh.clone();
        let _ = counting.on_dup_ack(&mut cc, una(), una() + 10 * MSS, MSS, NOW);
        counting.inflate(0);
        assert!(!counting.is_at_rest() && fresh.is_at_rest());
        assert_eq!(counting.ca_state(), (cc::Phase::Open, true));
    }
}
