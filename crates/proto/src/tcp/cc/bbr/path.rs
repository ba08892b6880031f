//! BBR's model of the path: the bandwidth, the minimum round trip time, and how much acknowledgments are aggregated.
//!
//! Each is a filter over the past. It does not depend on states or windows; its callers report rounds and phases. Rates are
//! bytes per second. Tests: below, and `tests.rs`.

use crate::time::Instant;

use super::super::super::timers::since_us;
use super::super::RateSample;

/// The rate that a sample shows; 0 for none.
pub(super) fn rate_of(sample: &RateSample) -> u64 {
    u64::from(sample.delivered) * 1_000_000 / u64::from(sample.interval_us.max(1))
}

/// Bytes that `rate` carries in `us` microseconds.
pub(super) fn bytes_in(rate: u64, us: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(us) / 1_000_000).unwrap_or(u64::MAX)
}

/// BBR.MaxBwFilter: the maximum of this probing cycle and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxBw {
    before: u64,
    current: u64,
}

impl MaxBw {
    pub fn get(&self) -> u64 {
        self.before.max(self.current)
    }

    /// Takes a sample that the application has not limited, or that is larger than the known bandwidth.
    pub fn update(&mut self, rate: u64) {
        self.current = self.current.max(rate);
    }

    /// The next cycle begins. One without any sample keeps the old value.
    pub fn advance(&mut self) {
        if self.current > 0 {
            *self = Self { before: self.current, current: 0 };
        }
    }
}

/// The minimum round trip time of the last 10 s, and that of the last 5 s, which determines when to search for it
/// again.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    /// BBR.min_rtt, microseconds; 0 if unknown.
    us: u32,
    at: Instant,
    /// BBR.probe_rtt_min_delay.
    probe_us: u32,
    probe_at: Instant,
}

impl MinRtt {
    pub fn new() -> Self {
        Self { us: 0, at: Instant::ZERO, probe_us: 0, probe_at: Instant::ZERO }
    }

    /// Microseconds; 0 if unknown.
    pub fn us(&self) -> u32 {
        self.us
    }

    /// Takes a sample. True if the minimum round trip time was not seen for so long that BBR must search for it.
    pub fn update(&mut self, rtt_us: Option<u32>, now: Instant) -> bool {
        let expired = self.probe_us != 0 && since_us(now, self.probe_at) > PROBE_RTT_INTERVAL_US;
        if let Some(rtt_us) = rtt_us
            && (rtt_us < self.probe_us || self.probe_us == 0 || expired)
        {
            (self.probe_us, self.probe_at) = (rtt_us, now);
        }
        let aged = since_us(now, self.at) > MIN_RTT_FILTER_US;
        if self.probe_us != 0 && (self.probe_us < self.us || self.us == 0 || aged) {
            (self.us, self.at) = (self.probe_us, self.probe_at);
        }
        expired
    }

    /// The search has ended.
    pub fn probed(&mut self, now: Instant) {
        self.probe_at = now;
    }
}

/// BBR.extra_acked: how much more arrives at once than the bandwidth explains, because acknowledgments are aggregated.
/// The maximum of the last ten to twenty rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aggregation {
    since: Instant,
    delivered: u64,
    /// The maximum in the previous window of rounds, and in this one, bytes.
    before: u32,
    current: u32,
    round_count: u8,
}

impl Aggregation {
    pub fn new() -> Self {
        Self { since: Instant::ZERO, delivered: 0, before: 0, current: 0, round_count: 0 }
    }

    /// Bytes.
    pub fn extra(&self) -> u32 {
        self.before.max(self.current)
    }

    /// `delivered` bytes have arrived; `rate` was expected. Before the pipe was full (`startup`), only the last round
    /// counts.
    pub fn on_ack(&mut self, delivered: u32, rate: u64, cwnd: u32, now: Instant, round: bool, startup: bool) {
        if round {
            self.round_count += 1;
            if self.round_count >= if startup { 1 } else { ROUNDS } {
                (self.before, self.current, self.round_count) = (self.current, 0, 0);
            }
        }
        let mut expected = bytes_in(rate, since_us(now, self.since));
        if self.delivered <= expected {
            (self.since, self.delivered, expected) = (now, 0, 0);
        }
        self.delivered += u64::from(delivered);
        let extra = u32::try_from(self.delivered.saturating_sub(expected)).unwrap_or(u32::MAX);
        self.current = self.current.max(extra.min(cwnd));
    }

    /// Sending begins again after a pause.
    pub fn restart(&mut self, now: Instant) {
        (self.since, self.delivered) = (now, 0);
    }
}

/// BBR.ProbeRTTInterval.
const PROBE_RTT_INTERVAL_US: u64 = 5_000_000;
/// BBR.MinRTTFilterLen.
const MIN_RTT_FILTER_US: u64 = 10_000_000;
/// BBR.ExtraAckedFilterLen: of one half of the window.
const ROUNDS: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    #[test]
    fn the_bandwidth_is_that_of_two_cycles() {
        let mut bw = MaxBw::default();
        bw.update(100);
        bw.update(50);
        bw.advance();
        bw.update(70);
        assert_eq!(bw.get(), 100);
        bw.advance();
        assert_eq!(bw.get(), 70);
        bw.advance();
        assert_eq!(bw.get(), 70, "nothing was measured");
    }

    #[test]
    fn the_minimum_round_trip_is_probed_after_five_seconds_and_expires_after_ten() {
        let mut rtt = MinRtt::new();
        assert!(!rtt.update(Some(20_000), at(1000)));
        assert!(!rtt.update(Some(30_000), at(6000)));
        assert!(rtt.update(Some(25_000), at(6001)));
        assert_eq!(rtt.us(), 20_000);
        assert!(!rtt.update(Some(26_000), at(11_000)));
        assert!(!rtt.update(None, at(11_001)));
        assert_eq!(rtt.us(), 25_000);
        rtt.probed(at(11_001));
        assert!(!rtt.update(Some(26_000), at(16_000)));
    }

    #[test]
    fn aggregated_acknowledgments_exceed_the_estimated_rate() {
        let mut heaps = Aggregation::new();
        // A megabyte a second, acknowledged every 10 ms.
        for i in 1..100u64 {
            heaps.on_ack(10_000, 1_000_000, 100_000, at(10 * i), i % 10 == 0, false);
        }
        assert_eq!(heaps.extra(), 10_000);
    }

    #[test]
    fn a_smaller_round_trip_counts_at_once_and_an_equal_one_does_not_make_it_younger() {
        let mut rtt = MinRtt::new();
        rtt.update(Some(20_000), at(1_000));
        rtt.update(Some(10_000), at(2_000));
        assert_eq!(rtt.us(), 10_000);
        let mut rtt = MinRtt::new();
        rtt.update(Some(20_000), at(1_000));
        assert!(rtt.update(Some(20_000), at(6_001)), "looked for after five seconds, and found again");
        assert!(rtt.update(Some(30_000), at(11_002)));
        assert_eq!(rtt.us(), 30_000, "eleven seconds old");
    }

    #[test]
    fn a_heap_ends_with_a_pause() {
        let mut heaps = Aggregation::new();
        heaps.on_ack(50_000, 1_000_000, 100_000, at(10), false, false);
        heaps.restart(at(20));
        heaps.on_ack(1_000, 1_000_000, 100_000, at(20), false, false);
        assert_eq!((heaps.since, heaps.delivered), (at(20), 1_000));
        // In a continuing flow, earlier acknowledgments count.
        heaps.on_ack(1_000, 1_000_000, 100_000, at(20), false, false);
        assert_eq!((heaps.since, heaps.delivered), (at(20), 2_000));
    }
}
