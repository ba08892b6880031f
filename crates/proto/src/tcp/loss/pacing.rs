//! Pacing: when the next segment may be sent, at the rate that congestion control asks for.
//!
//! A segment of n bytes delays the next one by n / rate. A timer for each segment would cost too much. So all data due
//! within a millisecond is sent at once, but at least two segments ([`quantum`]), and then nothing until all of it is
//! due. Pacing makes up for up to [`LAG_US`] that a late timer or an idle application has left unused. It does not
//! depend on the algorithm. No wake-up is lost: while a caller has to wait, [`Pacing::deadline`] has a time for it
//! until it asks again. Tests at the end.

use core::num::NonZeroU64;

use crate::time::Instant;

use super::super::timers::{NEVER, after_us};

#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Pacing {
    /// When the next segment may be sent.
    next_at: Instant,
    /// How much ahead of its time a segment may be sent, microseconds, unless one waits.
    ahead_us: u32,
    /// A segment waits for that time.
    waiting: bool,
}

impl Pacing {
    pub fn new() -> Self {
        Self { next_at: Instant::ZERO, ahead_us: 0, waiting: false }
    }

    /// True if a segment may be sent now. If not, the caller waits from now on.
    pub fn may_send(&mut self, now: Instant) -> bool {
        let ahead_us = if self.waiting { 0 } else { u64::from(self.ahead_us) };
        self.waiting = self.next_at > after_us(now, ahead_us);
        !self.waiting
    }

    /// Nothing waits any more.
    pub fn stop_waiting(&mut self) {
        self.waiting = false;
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// `bytes` are sent now, at `rate` bytes per second; `mss` is the size of a segment.
    pub fn on_sent(&mut self, bytes: u32, mss: u32, rate: NonZeroU64, now: Instant) {
        // The rest of the quantum after one segment of it.
        let ahead = u64::from(quantum(rate, mss).saturating_sub(mss)) * 1_000_000 / rate;
        self.ahead_us = u32::try_from(ahead).unwrap_or(u32::MAX);
        let least = Instant::from_micros(now.as_micros().saturating_sub(LAG_US));
        self.next_at = after_us(self.next_at.max(least), u64::from(bytes) * 1_000_000 / rate);
    }

    /// When everything that was sent has had its time.
    pub fn free_at(&self) -> Instant {
        self.next_at
    }

    /// When to ask again; [`NEVER`] if no caller waits.
    pub fn deadline(&self) -> Instant {
        if self.waiting { self.next_at } else { NEVER }
    }
}

/// Bytes that are sent at once at `rate` bytes per second: a whole number of segments of `mss` bytes.
pub(in crate::tcp) fn quantum(rate: NonZeroU64, mss: u32) -> u32 {
    let least = if rate.get() < SLOW_RATE { mss } else { 2 * mss };
    let due = u32::try_from(rate.get() / QUANTA_PER_SECOND).unwrap_or(u32::MAX);
    (due / mss.max(1)).saturating_mul(mss).max(least)
}

/// A quantum is a millisecond's worth: about the resolution of timers.
const QUANTA_PER_SECOND: u64 = 1_000;
/// Below this rate, bytes per second, single segments are sent: two would occupy the line for too long.
const SLOW_RATE: u64 = 150_000;
/// Delay for which pacing makes up: the lateness of timers.
const LAG_US: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments of 1,000 bytes that are sent in `ms` milliseconds, and how many wake-ups they took.
    fn run(rate: u64, ms: u64, late_us: u64) -> (u64, u64) {
        let rate = NonZeroU64::new(rate).unwrap();
        let mut pacing = Pacing::new();
        let start = Instant::from_micros(5_000_000);
        let (mut now, mut sent, mut woken) = (start, 0, 0);
        while now < after_us(start, ms * 1000) {
            while pacing.may_send(now) {
                pacing.on_sent(1000, 1000, rate, now);
                sent += 1;
            }
            assert!(pacing.deadline() > now);
            now = after_us(pacing.deadline(), late_us);
            woken += 1;
        }
        pacing.stop_waiting();
        assert_eq!(pacing.deadline(), NEVER);
        (sent, woken)
    }

    #[test]
    fn segments_leave_at_the_rate_in_quanta_of_two_or_a_millisecond() {
        for (rate, in_quantum) in [(100_000, 1), (1_000_000, 2), (100_000_000, 100)] {
            let (sent, woken) = run(rate, 200, 0);
            let due = rate / 1000 * 200 / 1000;
            assert!((due..=due + 2 * in_quantum + 2).contains(&sent), "{rate}: {sent}");
            assert!(woken * in_quantum <= sent + in_quantum, "{rate}: {sent} in {woken}");
            assert_eq!(u64::from(quantum(NonZeroU64::new(rate).unwrap(), 1000)), in_quantum * 1000);
        }
    }

    #[test]
    fn a_late_timer_is_made_up_for() {
        let (sent, _) = run(10_000_000, 200, 1_500);
        assert!((1990..=2040).contains(&sent), "{sent}");
    }

    #[test]
    fn idle_time_of_the_application_is_not_made_up_for() {
        let rate = NonZeroU64::new(1_000_000).unwrap();
        let mut pacing = Pacing::new();
        let now = Instant::from_micros(9_000_000);
        let mut sent = 0;
        while pacing.may_send(now) {
            pacing.on_sent(1000, 1000, rate, now);
            sent += 1;
        }
        assert!(sent <= 4, "{sent}");
    }

    #[test]
    fn two_segments_leave_at_once_from_150_000_bytes_a_second_on() {
        let of = |rate| quantum(NonZeroU64::new(rate).unwrap(), 1_000);
        assert_eq!([149_999, 150_000, 2_999_999, 3_000_000].map(of), [1_000, 2_000, 2_000, 3_000]);
    }

    #[test]
    fn a_caller_that_may_not_send_waits_until_it_may_or_has_nothing() {
        let (mut pacing, now) = (Pacing::new(), Instant::from_micros(9_000_000));
        pacing.on_sent(10_000, 1_000, NonZeroU64::new(1_000_000).unwrap(), now);
        assert!(!pacing.is_waiting());
        assert!(!pacing.may_send(now) && pacing.is_waiting());
        assert!(pacing.may_send(pacing.deadline()) && !pacing.is_waiting());
        assert!(!pacing.may_send(now));
        pacing.stop_waiting();
        assert!(!pacing.is_waiting());
    }
}
