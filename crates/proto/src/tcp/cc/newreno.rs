//! Slow start and congestion avoidance as in RFC 5681, counting bytes (RFC 3465).
//!
//! Invariants: `mss <= cwnd <= CWND_MAX`. Tests stand at the end.

use super::{
    Ack, CWND_MAX, Cause, Congestion, CongestionControl, as_many_of, idle_window, ssthresh_after_pause,
    unused_window, whole_segments,
};

/// The classic algorithm: additive increase, multiplicative decrease.
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

    /// Continues from the state of another algorithm.
    pub fn take_over(&mut self, cwnd: u32, ssthresh: u32) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }

    /// RFC 5681 equation 4, applied to the window and not to the data in flight, as on Linux: an unused window does not
    /// grow, and what is in flight after a burst of losses says little about what the path carries.
    fn reduce(&mut self, mss: u32, keep_percent: u64) {
        let window = self.cwnd - self.cwnd % mss.max(1);
        self.ssthresh = whole_segments(u64::from(window) * keep_percent / 100, mss);
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
        let is_slow_start = self.cwnd < self.ssthresh;
        let mut growth = ack.growth(self.cwnd, is_slow_start);
        if is_slow_start {
            // No limit for each acknowledgment (RFC 3465's L): with receivers that join segments, it would cost round
            // trips.
            let cwnd = self.cwnd.saturating_add(growth).min(self.ssthresh);
            growth -= cwnd - self.cwnd;
            self.cwnd = cwnd;
        }
        if growth == 0 {
            return;
        }
        self.bytes_acked = self.bytes_acked.saturating_add(growth);
        let windows = self.bytes_acked / self.cwnd;
        self.bytes_acked -= windows * self.cwnd;
        self.cwnd = self.cwnd.saturating_add(windows.saturating_mul(ack.mss)).min(CWND_MAX);
    }

    fn on_congestion(&mut self, congestion: &Congestion) {
        let keep_percent = match congestion.cause {
            Cause::Loss => BETA_PERCENT,
            Cause::Mark => BETA_ECN_PERCENT,
        };
        self.reduce(congestion.mss, keep_percent);
        self.cwnd = self.ssthresh;
    }

    fn adopt_recovery_window(&mut self, cwnd: u32) {
        self.cwnd = cwnd;
    }

    fn on_rto(&mut self, pipe: u32, mss: u32, reduces: bool) {
        if reduces {
            self.reduce(mss, BETA_PERCENT);
        }
        self.cwnd = pipe.saturating_add(mss).min(CWND_MAX);
    }

    fn on_undo(&mut self, before: &Self, mss: u32) {
        self.cwnd = self.cwnd.max(before.cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh_after_pause(before.ssthresh, before.cwnd, mss));
    }

    fn on_unused(&mut self, used: u32, mss: u32) {
        let cwnd = unused_window(self.cwnd, used, mss);
        if cwnd < self.cwnd {
            self.ssthresh = ssthresh_after_pause(self.ssthresh, self.cwnd, mss);
            self.cwnd = cwnd;
        }
    }

    fn on_smaller_segments(&mut self, from: u32, to: u32) {
        self.cwnd = as_many_of(to, from, self.cwnd).max(to);
        self.ssthresh = as_many_of(to, from, self.ssthresh);
    }

    fn on_resegmented(&mut self, left: Option<u32>, mss: u32) {
        match left {
            Some(left) => self.cwnd = left.max(mss),
            None => self.ssthresh = ssthresh_after_pause(self.ssthresh, self.cwnd, mss),
        }
    }

    fn on_idle(&mut self, rtos: u32, mss: u32) {
        self.ssthresh = ssthresh_after_pause(self.ssthresh, self.cwnd, mss);
        self.cwnd = idle_window(self.cwnd, rtos, mss);
    }
}

/// Percentage of the window kept at a loss (RFC 5681).
const BETA_PERCENT: u64 = 50;
/// The same at a mark (RFC 8511): marks come before a queue is full.
const BETA_ECN_PERCENT: u64 = 80;

#[cfg(test)]
mod tests {
    use super::super::Phase;
    use super::*;

    const MSS: u32 = 1000;

    fn ack(acked: u32, flight: u32, mss: u32) -> Ack {
        let now = crate::time::Instant::ZERO;
        let (delivered, lost, pipe) = (acked, 0, flight.saturating_sub(acked));
        let (phase, rtt_us, rate, loss, used) = (Phase::Open, None, None, None, (true, flight));
        let (paced, reorders) = (false, false);
        Ack {
            now,
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

    fn lose(cc: &mut NewReno, flight: u32) {
        let now = crate::time::Instant::ZERO;
        cc.on_congestion(&Congestion { now, cause: Cause::Loss, flight, mss: MSS });
    }

    #[test]
    fn slow_start_grows_by_the_acknowledged_data_up_to_the_threshold() {
        let mut cc = NewReno::new(10 * MSS);
        cc.on_ack(&ack(MSS, 10 * MSS, MSS));
        assert_eq!(cc.cwnd(), 11 * MSS);
        cc.on_ack(&ack(11 * MSS, 11 * MSS, MSS));
        assert_eq!(cc.cwnd(), 22 * MSS, "by all of it");
        cc.ssthresh = 24 * MSS;
        cc.on_ack(&ack(22 * MSS, 22 * MSS, MSS));
        assert_eq!(cc.cwnd(), 24 * MSS);
        cc.on_ack(&ack(4 * MSS, 24 * MSS, MSS));
        assert_eq!(cc.cwnd(), 25 * MSS, "what is left of it counts in congestion avoidance");
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
    fn an_unused_window_does_not_grow_and_one_in_slow_start_to_twice_of_what_was_out() {
        let unused = |acked, flight| Ack { used: (false, flight), ..ack(acked, flight, MSS) };
        let mut cc = NewReno::new(10 * MSS);
        cc.on_ack(&unused(5 * MSS, 5 * MSS));
        assert_eq!(cc.cwnd(), 10 * MSS, "just half of it was used");
        cc.on_ack(&unused(6 * MSS, 6 * MSS));
        assert_eq!(cc.cwnd(), 16 * MSS);
        cc.ssthresh = MSS;
        for _ in 0..1000 {
            cc.on_ack(&unused(15 * MSS, 15 * MSS));
        }
        assert_eq!(cc.cwnd(), 16 * MSS, "in congestion avoidance");
    }

    #[test]
    fn only_an_acknowledgment_that_moves_lets_the_window_grow_and_by_what_it_reports() {
        let mut cc = NewReno::new(10 * MSS);
        cc.on_ack(&Ack { acked: 0, ..ack(3 * MSS, 10 * MSS, MSS) });
        assert_eq!(cc.cwnd(), 10 * MSS);
        cc.on_ack(&Ack { delivered: MSS, ..ack(4 * MSS, 10 * MSS, MSS) });
        assert_eq!(cc.cwnd(), 11 * MSS);
    }

    #[test]
    fn a_timeout_leaves_a_segment_more_than_is_in_the_network_and_half_of_the_window_as_threshold() {
        let mut cc = NewReno::new(21 * MSS);
        cc.on_rto(0, MSS, true);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (MSS, 10 * MSS));
        cc.on_rto(2 * MSS, MSS, false);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (3 * MSS, 10 * MSS), "once for a window");
    }

    #[test]
    fn the_threshold_comes_from_the_window_in_whole_segments() {
        let mut cc = NewReno::new(11 * MSS);
        lose(&mut cc, 4 * MSS);
        assert_eq!(cc.ssthresh(), 5 * MSS);
    }

    /// RFC 6582 section 3.2 step 3, second option.
    #[test]
    fn a_recovery_ends_at_the_threshold() {
        let mut cc = NewReno::new(20 * MSS);
        lose(&mut cc, 20 * MSS);
        cc.on_recovery_end(2 * MSS, MSS, false);
        assert_eq!(cc.cwnd(), 10 * MSS);
    }

    #[test]
    fn idleness_halves_the_window_for_each_timeout_down_to_the_initial_one() {
        for (rtos, left) in [(1, 50_000), (2, 25_000), (3, 12_000), (4, 10_000), (40, 10_000)] {
            let mut cc = NewReno::new(100 * MSS);
            cc.ssthresh = 40 * MSS;
            cc.on_idle(rtos, MSS);
            assert_eq!((cc.cwnd(), cc.ssthresh()), (left, 75 * MSS));
        }
        let mut small = NewReno::new(2 * MSS);
        small.on_idle(1, MSS);
        assert_eq!((small.cwnd(), small.ssthresh()), (2 * MSS, CWND_MAX));
    }

    #[test]
    fn an_unused_window_falls_half_way_and_one_that_was_used_leaves_the_threshold_too() {
        for (used, cwnd, ssthresh) in [(20, 20, 10), (12, 16, 15), (2, 15, 15)] {
            let mut cc = NewReno::new(20 * MSS);
            cc.ssthresh = 10 * MSS;
            cc.on_unused(used * MSS, MSS);
            assert_eq!((cc.cwnd() / MSS, cc.ssthresh() / MSS), (cwnd, ssthresh), "{used}");
        }
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
        cc.on_undo(&before, MSS);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (20 * MSS, CWND_MAX));
        cc.on_ack(&ack(5 * MSS, 20 * MSS, MSS));
        cc.on_undo(&before, MSS);
        assert_eq!(cc.cwnd(), 25 * MSS);
    }

    #[test]
    fn fast_recovery_grows_nothing() {
        let mut cc = NewReno::new(20 * MSS);
        cc.on_ack(&Ack { phase: Phase::Recovery, ..ack(5 * MSS, 20 * MSS, MSS) });
        assert_eq!(cc.cwnd(), 20 * MSS);
    }

    #[test]
    fn the_threshold_is_half_of_the_whole_segments_of_the_window() {
        for (cwnd, ssthresh) in [(11_900, 5_000), (12_000, 6_000), (12_999, 6_000)] {
            let mut cc = NewReno::new(cwnd);
            lose(&mut cc, cwnd);
            assert_eq!(cc.ssthresh(), ssthresh, "{cwnd}");
        }
    }

    /// More than half of it was in flight, which is enough only in slow start.
    #[test]
    fn at_the_threshold_a_window_that_is_not_full_does_not_grow() {
        for (cwnd, used, counted) in [(10_000, false, 0), (10_000, true, MSS), (9_999, false, MSS - 1)] {
            let mut cc = NewReno::new(cwnd);
            cc.ssthresh = 10_000;
            cc.on_ack(&Ack { used: (used, 10_000), ..ack(MSS, 10_000, MSS) });
            assert_eq!(cc.bytes_acked, counted, "{cwnd} {used}");
        }
    }
}
