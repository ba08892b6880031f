//! Slow start and congestion avoidance as in RFC 5681, counting bytes (RFC 3465).
//!
//! Invariants: `mss <= cwnd <= CWND_MAX`. Tests stand at the end.

use super::{
    Ack, CWND_MAX, Cause, Congestion, CongestionControl, Phase, SLOW_START_SEGMENTS_MAX, initial_window,
    percent,
};

/// The classic: additive increase, multiplicative decrease.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct NewReno {
    cwnd: u32,
    ssthresh: u32,
    /// Bytes acknowledged in congestion avoidance since `cwnd` last grew.
    bytes_acked: u32,
}

impl NewReno {
    pub fn new(cwnd: u32) -> Self {
        Self { cwnd, ssthresh: CWND_MAX, bytes_acked: 0 }
    }

    /// RFC 5681 equation 4.
    fn reduce(&mut self, flight: u32, mss: u32, keep_percent: u32) {
        self.ssthresh = percent(flight, keep_percent).max(2 * mss);
        self.bytes_acked = 0;
    }
}

impl CongestionControl for NewReno {
    fn cwnd(&self) -> u32 {
        self.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    fn on_ack(&mut self, ack: &Ack) {
        match ack.phase {
            Phase::Open | Phase::Loss => {}
            Phase::Recovery => return,
        }
        // A window that was not used proves nothing about the path (RFC 7661 section 4.3).
        if ack.flight < self.cwnd / 2 {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd = (self.cwnd + ack.acked.min(SLOW_START_SEGMENTS_MAX * ack.mss)).min(CWND_MAX);
            return;
        }
        self.bytes_acked = self.bytes_acked.saturating_add(ack.acked);
        if self.bytes_acked >= self.cwnd {
            self.bytes_acked -= self.cwnd;
            self.cwnd = (self.cwnd + ack.mss).min(CWND_MAX);
        }
    }

    fn on_congestion(&mut self, congestion: &Congestion) {
        let keep_percent = match congestion.cause {
            Cause::Loss => BETA_PERCENT,
            Cause::Mark => BETA_ECN_PERCENT,
        };
        // Data of limited transmit lies beyond cwnd and does not count (RFC 5681 section 3.2 step 2).
        self.reduce(congestion.flight.min(self.cwnd), congestion.mss, keep_percent);
        self.cwnd = self.ssthresh;
    }

    fn on_recovery_end(&mut self, flight: u32, mss: u32, _paces: bool) {
        // RFC 6582 section 3.2 step 3, first option: no burst when little is left in flight.
        self.cwnd = self.ssthresh.min(flight.max(mss) + mss);
    }

    fn on_rto(&mut self, flight: u32, mss: u32, first: bool) {
        if first {
            self.reduce(flight, mss, BETA_PERCENT);
        }
        self.cwnd = mss;
    }

    fn on_undo(&mut self, before: &Self) {
        self.cwnd = self.cwnd.max(before.cwnd);
        self.ssthresh = before.ssthresh;
    }

    fn on_idle(&mut self, mss: u32) {
        // RFC 5681 section 4.1: the restart window.
        self.cwnd = self.cwnd.min(initial_window(mss));
    }
}

/// Share of the window that is kept at a loss (RFC 5681).
const BETA_PERCENT: u32 = 50;
/// The same at a mark (RFC 8511): marks come before a queue is full.
const BETA_ECN_PERCENT: u32 = 80;

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn ack(acked: u32, flight: u32, mss: u32) -> Ack {
        let now = crate::time::Instant::ZERO;
        let (delivered, lost, pipe) = (acked, 0, flight.saturating_sub(acked));
        let (phase, rtt_us, rate, loss) = (Phase::Open, None, None, None);
        Ack { now, acked, delivered, lost, flight, pipe, mss, phase, rtt_us, paced: false, rate, loss }
    }

    fn lose(cc: &mut NewReno, flight: u32) {
        let now = crate::time::Instant::ZERO;
        cc.on_congestion(&Congestion { now, cause: Cause::Loss, flight, mss: MSS });
    }

    #[test]
    fn slow_start_grows_by_the_acknowledged_data_up_to_eight_segments() {
        let mut cc = NewReno::new(10 * MSS);
        cc.on_ack(&ack(MSS, 10 * MSS, MSS));
        assert_eq!(cc.cwnd(), 11 * MSS);
        cc.on_ack(&ack(11 * MSS, 11 * MSS, MSS));
        assert_eq!(cc.cwnd(), 19 * MSS);
    }

    #[test]
    fn congestion_avoidance_grows_one_segment_per_window() {
        let mut cc = NewReno::new(20 * MSS);
        lose(&mut cc, 20 * MSS);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (10 * MSS, 10 * MSS));
        for _ in 0..9 {
            cc.on_ack(&ack(MSS, 10 * MSS, MSS));
        }
        assert_eq!(cc.cwnd(), 10 * MSS);
        cc.on_ack(&ack(MSS, 10 * MSS, MSS));
        assert_eq!(cc.cwnd(), 11 * MSS);
    }

    #[test]
    fn a_mark_takes_a_fifth_where_a_loss_takes_half() {
        let mut cc = NewReno::new(20 * MSS);
        let now = crate::time::Instant::ZERO;
        cc.on_congestion(&Congestion { now, cause: Cause::Mark, flight: 20 * MSS, mss: MSS });
        assert_eq!((cc.cwnd(), cc.ssthresh()), (16 * MSS, 16 * MSS));
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut cc = NewReno::new(10 * MSS);
        for _ in 0..1000 {
            cc.on_ack(&ack(1, 1, MSS));
        }
        assert_eq!(cc.cwnd(), 10 * MSS);
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_keeps_ssthresh_when_it_repeats() {
        let mut cc = NewReno::new(20 * MSS);
        cc.on_rto(16 * MSS, MSS, true);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (MSS, 8 * MSS));
        cc.on_rto(MSS, MSS, false);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (MSS, 8 * MSS));
    }

    #[test]
    fn limited_transmit_does_not_count_into_the_threshold() {
        let mut cc = NewReno::new(10 * MSS);
        lose(&mut cc, 12 * MSS);
        assert_eq!(cc.ssthresh(), 5 * MSS);
    }

    #[test]
    fn the_end_of_recovery_allows_no_burst() {
        let mut cc = NewReno::new(20 * MSS);
        lose(&mut cc, 20 * MSS);
        cc.on_recovery_end(2 * MSS, MSS, false);
        assert_eq!(cc.cwnd(), 3 * MSS);
    }

    #[test]
    fn idleness_shrinks_to_the_initial_window_and_never_grows() {
        let mut cc = NewReno::new(100 * MSS);
        cc.on_idle(MSS);
        assert_eq!(cc.cwnd(), 10 * MSS);
        let mut small = NewReno::new(2 * MSS);
        small.on_idle(MSS);
        assert_eq!(small.cwnd(), 2 * MSS);
    }

    #[test]
    fn the_window_stops_at_its_ceiling() {
        let mut cc = NewReno::new(CWND_MAX - 1);
        cc.on_ack(&ack(u32::MAX, u32::MAX, 65_535));
        assert_eq!(cc.cwnd(), CWND_MAX);
    }

    #[test]
    fn an_undo_restores_the_window_and_never_shrinks_it() {
        let mut cc = NewReno::new(20 * MSS);
        let before = cc.clone();
        lose(&mut cc, 20 * MSS);
        cc.on_undo(&before);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (20 * MSS, CWND_MAX));
        cc.on_ack(&ack(5 * MSS, 20 * MSS, MSS));
        cc.on_undo(&before);
        assert_eq!(cc.cwnd(), 25 * MSS);
    }

    #[test]
    fn fast_recovery_grows_nothing() {
        let mut cc = NewReno::new(20 * MSS);
        cc.on_ack(&Ack { phase: Phase::Recovery, ..ack(5 * MSS, 20 * MSS, MSS) });
        assert_eq!(cc.cwnd(), 20 * MSS);
    }
}
