//! Round-trip time and retransmission timeout (RFC 6298), in microseconds.
//!
//! A pure estimator: it does not depend on segments, timers or clocks, but only on samples. Invariant: `rto_us` is
//! at least SRTT and the floor together, and no more than the ceiling, as given with each sample. Tests stand at the
//! end.

use core::time::Duration;

use super::settings::micros;

/// SRTT, RTTVAR and RTO.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    /// SRTT in eighths of a microsecond; 0 while nothing has been measured.
    srtt_8: u32,
    /// RTTVAR in quarters of a microsecond.
    rttvar_4: u32,
    /// RTO before back-off.
    rto_us: u32,
    /// How often the timer has expired since the last sample: each doubles the timeout.
    backoff: u8,
}

impl Rtt {
    pub fn new(rto_initial: Duration) -> Self {
        Self { srtt_8: 0, rttvar_4: 0, rto_us: micros(rto_initial).max(1), backoff: 0 }
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

    /// How often the timeout is doubled now.
    pub fn backoff(&self) -> u8 {
        self.backoff
    }

    /// Takes in a measured round trip (RFC 6298 sections 2.2 and 2.3) and ends the back-off.
    pub fn sample(&mut self, rtt_us: u64, rto_min_us: u32, rto_max_us: u32) {
        let r = u32::try_from(rtt_us).unwrap_or(u32::MAX).clamp(1, SAMPLE_MAX_US);
        if self.srtt_8 == 0 {
            self.srtt_8 = r * 8;
            self.rttvar_4 = r * 2;
        } else {
            let deviation = (self.srtt_8 / 8).abs_diff(r);
            self.rttvar_4 = self.rttvar_4 - self.rttvar_4 / 4 + deviation;
            self.srtt_8 = (self.srtt_8 - self.srtt_8 / 8 + r).max(8);
        }
        // The floor holds for the variance term and not for the sum: a delayed acknowledgment takes its time on a long
        // path too, where a steady round trip leaves next to no variance.
        self.rto_us = (self.srtt_8 / 8).saturating_add(self.rttvar_4.max(rto_min_us)).min(rto_max_us);
        self.backoff = 0;
    }

    /// The time to arm the retransmission or persist timer with, microseconds.
    pub fn rto_us(&self, rto_max_us: u32) -> u64 {
        (u64::from(self.rto_us) << self.backoff).min(u64::from(rto_max_us))
    }

    /// The same without back-off.
    pub fn base_rto_us(&self, rto_max_us: u32) -> u64 {
        u64::from(self.rto_us).min(u64::from(rto_max_us))
    }

    /// The timer has expired (RFC 6298 section 5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// Ends the back-off without a sample: the window opened after probes, which say nothing about time.
    pub fn end_backoff(&mut self) {
        self.backoff = 0;
    }

    /// The SYN had to be repeated, so nothing is known about the path: be careful (RFC 6298 section 5.7).
    pub fn distrust_after_syn_loss(&mut self, rto_max_us: u32) {
        self.backoff = 0;
        if self.srtt_8 == 0 {
            self.rto_us = self.rto_us.max(RTO_AFTER_SYN_LOSS_US).min(rto_max_us);
        }
    }
}

/// Doublings of the timeout, more than enough to reach any ceiling.
const BACKOFF_MAX: u8 = 24;
/// A longer sample is cut off: it stems from a peer's nonsense, and its eighths must fit.
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
        rtt.sample(100_000, MIN, MAX);
        assert_eq!(rtt.srtt(), Some(ms(100)));
        assert_eq!(rto(&rtt), ms(300));
    }

    #[test]
    fn later_samples_are_smoothed_by_an_eighth() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        rtt.sample(100_000, MIN, MAX);
        rtt.sample(180_000, MIN, MAX);
        assert_eq!(rtt.srtt(), Some(ms(110)));
        // RTTVAR = 3/4 * 50 + 1/4 * 80 = 57.5 ms.
        assert_eq!(rto(&rtt), ms(110 + 230));
    }

    #[test]
    fn the_variance_term_has_a_floor_and_the_timeout_a_ceiling() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        rtt.sample(20, MIN, MAX);
        assert_eq!(rto(&rtt), Duration::from_micros(200_020));
        rtt.sample(u64::MAX, MIN, MAX);
        assert_eq!(rto(&rtt), Duration::from_secs(120));
    }

    #[test]
    fn a_delayed_acknowledgment_on_a_long_steady_path_causes_no_timeout() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        for _ in 0..100 {
            rtt.sample(157_000, MIN, MAX);
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
        rtt.sample(100_000, MIN, MAX);
        assert_eq!(rto(&rtt), ms(300));
    }

    #[test]
    fn many_zero_samples_do_not_forget_that_something_was_measured() {
        let mut rtt = Rtt::new(Duration::from_secs(1));
        for _ in 0..1000 {
            rtt.sample(0, MIN, MAX);
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
}
