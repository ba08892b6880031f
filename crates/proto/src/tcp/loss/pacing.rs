//! Pacing: when the next segment may leave, at the rate that congestion control asks for.
//!
//! A segment of n bytes delays the next one by n / rate. Up to [`LAG_US`] of delay that a late timer or an
//! idle application has left unused is made up. It must not know the algorithm. No wake-up is lost: whoever
//! is told to wait is waited for by [`Pacing::deadline`], until it has asked again. Tests at the end.

use core::num::NonZeroU64;

use crate::time::Instant;

use super::super::timers::{NEVER, after_us};

#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Pacing {
    /// When the next segment may leave.
    next_at: Instant,
    /// There is one that waits for it.
    waiting: bool,
}

impl Pacing {
    pub fn new() -> Self {
        Self { next_at: Instant::ZERO, waiting: false }
    }

    /// True if a segment may leave now. If not, somebody waits from now on.
    pub fn may_send(&mut self, now: Instant) -> bool {
        self.waiting = self.next_at > now;
        !self.waiting
    }

    /// Nothing waits any more.
    pub fn stop_waiting(&mut self) {
        self.waiting = false;
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// `bytes` leave now, at `rate` bytes per second.
    pub fn on_sent(&mut self, bytes: u32, rate: NonZeroU64, now: Instant) {
        let least = Instant::from_micros(now.as_micros().saturating_sub(LAG_US));
        self.next_at = after_us(self.next_at.max(least), u64::from(bytes) * 1_000_000 / rate);
    }

    /// When to ask again; [`NEVER`] if nobody waits.
    pub fn deadline(&self) -> Instant {
        if self.waiting { self.next_at } else { NEVER }
    }
}

/// Time whose share may leave at once: about the resolution of timers.
const LAG_US: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_leave_at_the_rate_and_make_up_a_millisecond_at_most() {
        let rate = NonZeroU64::new(1_000_000).unwrap();
        let mut pacing = Pacing::new();
        let start = Instant::from_micros(5_000_000);
        let mut now = start;
        let mut sent = 0;
        while now < after_us(start, 100_000) {
            while pacing.may_send(now) {
                pacing.on_sent(1000, rate, now);
                sent += 1;
            }
            assert!(pacing.deadline() > now);
            now = pacing.deadline();
        }
        // A megabyte a second is a segment a millisecond, and one more for the millisecond made up.
        assert!((100..=102).contains(&sent), "{sent}");
        pacing.stop_waiting();
        assert_eq!(pacing.deadline(), NEVER);
    }
}
