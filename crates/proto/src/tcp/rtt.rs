//! Round-trip time and retransmission timeout (RFC 6298), in microseconds, as Linux estimates them (`tcp_rtt_estimator`).
//!
//! Every acknowledgment may give a sample. The variance term is the largest mean deviation within a round trip, and
//! falls slowly: RFC 6298's factors are made for one sample per round trip, and with more samples the timeout would
//! forget the past (its section 3). A sample far below the mean shows less about the deviation than one above it.
//! Expiries of the retransmission timer double the timeout, and window probes double the time between probes; both
//! until the next sample.
//!
//! It depends only on samples, not on segments, timers or clocks. Invariant: the timeout is at least SRTT plus the
//! floor, and at most the ceiling, as given with each sample. Tests stand at the end.

use core::time::Duration;

use super::settings::micros;

/// SRTT, RTTVAR and RTO.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    /// SRTT in eighths of a microsecond; 0 before the first measurement.
    srtt_8: u32,
    /// The mean deviation in quarters of a microsecond.
    mdev_4: u32,
    /// The largest since the round trip began, at least the floor.
    mdev_max_4: u32,
    /// RTTVAR in quarters of a microsecond: the timeout's distance from SRTT.
    rttvar_4: u32,
    /// Doublings of the timeout.
    doublings: u8,
    /// How often the retransmission or persist timer has expired since the last sample.
    backoff: u8,
    /// The least and the latest round trip of loss detection, microseconds, from when its memory was last freed; zeros before that.
    kept_us: (u32, u32),
}

impl Rtt {
    pub fn new(rto_initial: Duration) -> Self {
        let rttvar_4 = micros(rto_initial).max(1);
        Self { srtt_8: 0, mdev_4: 0, mdev_max_4: 0, rttvar_4, doublings: 0, backoff: 0, kept_us: (0, 0) }
    }

    /// SRTT; `None` before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        (self.srtt_8 != 0).then(|| Duration::from_micros(u64::from(self.srtt_8 / 8)))
    }

    /// SRTT in whole microseconds; 0 before the first sample.
    pub fn srtt_us(&self) -> u32 {
        self.srtt_8 / 8
    }

    /// RTTVAR in whole microseconds.
    pub fn rttvar_us(&self) -> u32 {
        self.rttvar_4 / 4
    }

    /// The memory of loss detection is freed: its least and latest round trips, microseconds.
    pub fn keep(&mut self, least_and_latest_us: (u32, u32)) {
        self.kept_us = least_and_latest_us;
    }

    /// What [`keep`](Self::keep) was last told.
    pub fn kept(&self) -> Option<(u32, u32)> {
        (self.kept_us != (0, 0)).then_some(self.kept_us)
    }

    /// How often the timers have expired since the last sample.
    pub fn backoff(&self) -> u8 {
        self.backoff
    }

    /// Processes a measured round trip and ends the back-off. `ends_round`: everything is acknowledged that was in
    /// flight at the last sample for which this was true.
    pub fn sample(&mut self, rtt_us: u64, ends_round: bool, rto_min_us: u32, rto_max_us: u32) {
        let r = u32::try_from(rtt_us).unwrap_or(u32::MAX).clamp(1, SAMPLE_MAX_US);
        if self.srtt_8 == 0 {
            self.srtt_8 = r * 8;
            self.mdev_4 = r * 2;
            self.rttvar_4 = self.mdev_4.max(rto_min_us);
            self.mdev_max_4 = self.rttvar_4;
        } else {
            let srtt = self.srtt_8 / 8;
            let deviation = srtt.abs_diff(r);
            let more = deviation.saturating_sub(self.mdev_4 / 4);
            // Below the mean, the sample shows less.
            let more = if r < srtt { more / 8 } else { more };
            let less = (self.mdev_4 / 4).saturating_sub(deviation);
            self.mdev_4 = self.mdev_4 + more - less;
            self.srtt_8 = (self.srtt_8 - srtt + r).max(8);
            self.mdev_max_4 = self.mdev_max_4.max(self.mdev_4);
            self.rttvar_4 = self.rttvar_4.max(self.mdev_max_4);
            if ends_round {
                self.rttvar_4 -= (self.rttvar_4 - self.mdev_max_4) / 4;
                self.mdev_max_4 = rto_min_us;
            }
        }
        // The floor applies to the variance term, not to the sum: acknowledgments are also delayed on a long path,
        // where a steady round trip leaves almost no variance.
        self.rttvar_4 = self.rttvar_4.max(rto_min_us).min(rto_max_us);
        (self.doublings, self.backoff) = (0, 0);
    }

    /// The time for which the retransmission timer is armed, microseconds.
    #[inline]
    pub fn rto_us(&self, rto_max_us: u32) -> u64 {
        let rto_us = u64::from(self.srtt_8 / 8) + u64::from(self.rttvar_4);
        (rto_us << self.doublings).min(u64::from(rto_max_us))
    }

    /// The same for the persist timer, if it has not expired yet since the peer's window was closed
    /// (`tcp_probe0_base`).
    pub fn first_probe_us(&self, rto_min_us: u32, rto_max_us: u32) -> u64 {
        self.rto_us(rto_max_us).max(u64::from(rto_min_us))
    }

    /// The time between two probes (`tcp_probe0_when`).
    pub fn next_probe_us(&self, rto_min_us: u32, rto_max_us: u32) -> u64 {
        (self.first_probe_us(rto_min_us, rto_max_us) << self.backoff).min(u64::from(rto_max_us))
    }

    /// The retransmission timer has expired (RFC 6298 section 5.5).
    pub fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(BACKOFF_MAX);
        self.back_off_probe();
    }

    /// The persist timer has expired.
    pub fn back_off_probe(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// The last expiry of the retransmission timer no longer counts. False if none has counted.
    pub fn revert_back_off(&mut self) -> bool {
        let Some(backoff) = self.backoff.checked_sub(1) else { return false };
        (self.doublings, self.backoff) = (backoff, backoff);
        true
    }

    /// The back-off says nothing about the round trip: it was of probes of a window that is open now, or of a SYN-ACK
    /// that is acknowledged.
    pub fn end_back_off(&mut self) {
        self.backoff = 0;
    }

    /// The SYN had to be repeated, so nothing is known about the path: be careful (RFC 6298 section 5.7).
    pub fn distrust_after_syn_loss(&mut self, rto_max_us: u32) {
        if self.srtt_8 == 0 {
            self.rttvar_4 = RTO_AFTER_SYN_LOSS_US.min(rto_max_us);
            (self.mdev_4, self.mdev_max_4, self.doublings) = (self.rttvar_4, self.rttvar_4, 0);
        }
    }
}

/// Largest number of doublings of the timeout, more than enough to reach any ceiling.
pub(super) const BACKOFF_MAX: u8 = 24;
/// A longer sample is reduced to this: it comes from a misbehaving peer, and its eighths must fit.
const SAMPLE_MAX_US: u32 = 1 << 28;
/// RFC 6298 section 5.7.
const RTO_AFTER_SYN_LOSS_US: u32 = 3_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u32 = 200_000;
    const MAX: u32 = 120_000_000;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn rto(rtt: &Rtt) -> Duration {
        Duration::from_micros(rtt.rto_us(MAX))
    }

    #[test]
    fn the_first_sample_gives_srtt_and_twice_itself_as_variance_term() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        assert_eq!(rtt.srtt(), None);
        assert_eq!(rto(&rtt), Duration::from_secs(1));
        rtt.sample(100_000, true, MIN, MAX);
        assert_eq!(rtt.srtt(), Some(ms(100)));
        assert_eq!((rtt.rttvar_us(), rto(&rtt)), (50_000, ms(300)));
    }

    #[test]
    fn later_samples_are_smoothed_by_an_eighth() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        rtt.sample(100_000, true, MIN, MAX);
        rtt.sample(180_000, true, MIN, MAX);
        assert_eq!(rtt.srtt(), Some(ms(110)));
        // RTTVAR = 3/4 * 50 + 1/4 * 80 = 57.5 ms.
        assert_eq!(rto(&rtt), ms(110 + 230));
    }

    #[test]
    fn the_variance_term_has_a_floor_and_the_timeout_a_ceiling() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        rtt.sample(20, true, MIN, MAX);
        assert_eq!(rto(&rtt), Duration::from_micros(200_020));
        rtt.sample(u64::MAX, true, MIN, MAX);
        assert_eq!(rto(&rtt), Duration::from_secs(120));
    }

    #[test]
    fn a_delayed_acknowledgment_on_a_long_steady_path_causes_no_timeout() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        for _ in 0..100 {
            rtt.sample(157_000, true, MIN, MAX);
        }
        assert!(rto(&rtt) >= ms(157 + 40 + 150), "{:?}", rto(&rtt));
    }

    #[test]
    fn back_off_doubles_up_to_the_ceiling_and_ends_with_a_sample() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        for doubled in [2, 4, 8, 16, 32, 64, 120, 120] {
            rtt.back_off();
            assert_eq!(rto(&rtt), Duration::from_secs(doubled));
        }
        for _ in 0..300 {
            rtt.back_off();
        }
        assert_eq!(rto(&rtt), Duration::from_secs(120));
        rtt.sample(100_000, true, MIN, MAX);
        assert_eq!(rto(&rtt), ms(300));
    }

    #[test]
    fn many_zero_samples_do_not_forget_that_something_was_measured() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        for _ in 0..1000 {
            rtt.sample(0, true, MIN, MAX);
        }
        assert!(rtt.srtt().is_some());
    }

    #[test]
    fn a_lost_syn_makes_the_first_timeout_three_seconds() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        rtt.back_off();
        rtt.distrust_after_syn_loss(MAX);
        assert_eq!(rto(&rtt), Duration::from_secs(3));
    }

    #[test]
    fn a_deviation_is_forgotten_by_a_quarter_for_each_round_trip_and_not_for_each_sample() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        rtt.sample(100_000, true, MIN, MAX);
        rtt.sample(500_000, true, MIN, MAX);
        let high = rto(&rtt);
        for _ in 0..3 {
            rtt.sample(150_000, false, MIN, MAX);
        }
        assert!(rto(&rtt) >= high, "the largest of a round trip counts");
        for _ in 0..20 {
            rtt.sample(150_000, true, MIN, MAX);
        }
        assert!(rto(&rtt) < ms(400), "{:?}", rto(&rtt));
    }

    #[test]
    fn a_sample_far_below_the_mean_says_an_eighth_of_one_above() {
        let deviation = |us| {
            let mut rtt = Rtt::new(Duration::from_secs(1));
            rtt.sample(1_000_000, true, MIN, MAX);
            for _ in 0..20 {
                rtt.sample(1_000_000, true, MIN, MAX);
            }
            let before = rtt.mdev_4;
            rtt.sample(us, true, MIN, MAX);
            rtt.mdev_4 - before
        };
        let (above, below) = (deviation(1_900_000), deviation(100_000));
        assert!(above / 9 < below && below < above / 7, "{above} {below}");
    }

    #[test]
    fn probes_have_a_back_off_of_their_own_and_only_a_sample_ends_the_timeouts() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        rtt.sample(100_000, true, MIN, MAX);
        rtt.back_off_probe();
        assert_eq!((rto(&rtt), rtt.next_probe_us(MIN, MAX)), (ms(300), 600_000));
        rtt.back_off();
        rtt.end_back_off();
        assert_eq!((rto(&rtt), rtt.backoff()), (ms(600), 0), "the window opened, and nothing was measured");
        assert_eq!(rtt.first_probe_us(MIN, MAX), 600_000);
    }

    #[test]
    fn expiries_are_counted_until_a_sample_comes() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        assert_eq!(rtt.backoff(), 0);
        rtt.back_off();
        rtt.back_off_probe();
        assert_eq!(rtt.backoff(), 2);
        rtt.sample(100_000, true, MIN, MAX);
        assert_eq!(rtt.backoff(), 0);
    }
}
