//! The kernel's timer wheel: when a timer that was started at some time expires, depending on the kernel's ticks.
//!
//! A timer is due a whole number of ticks later, and expires at the next multiple of its level's granularity after that: each level is eight times as
//! coarse as the one below. How late that is depends on the phase of the ticks, which a run does not know, but which is the same for all timers of a
//! run. Does not depend on the stack. Tests: below.

use std::time::Duration;

use crate::random::Random;

/// A tick (HZ is 250).
pub const JIFFY: Duration = Duration::from_millis(4);
/// The number of phases that are tried.
pub const PHASES: u64 = 48;
/// Ticks of a turn of the coarsest level that scenarios meet.
const TURN: u64 = 64 << (3 * LEVEL_SHIFT);
/// The binary logarithm of how much coarser each level is.
const LEVEL_SHIFT: u32 = 3;
/// A timer of at least this many ticks of a level goes to the next level.
const LEVEL_END: u64 = 63;

/// A wheel at a phase.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    /// The time since tick 0, at time 0 of the clock.
    phase: Duration,
}

impl Wheel {
    /// The phase of this number.
    pub fn at_phase(number: u64) -> Self {
        let us = Random::new(number).number() % (TURN * JIFFY.as_micros() as u64);
        Self { phase: Duration::from_micros(us) }
    }

    /// The part of the phase within a millisecond, which is the phase of the clock for timestamps.
    pub fn within_a_millisecond(self) -> Duration {
        Duration::from_micros(u64::from(self.phase.subsec_micros() % 1000))
    }

    /// When a timer expires that was started at `since` for `wait`.
    pub fn expires(self, since: Duration, wait: Duration) -> Duration {
        let now = (since + self.phase).as_micros() / JIFFY.as_micros();
        let ticks = (wait.as_micros().div_ceil(JIFFY.as_micros()) as u64).max(1);
        let due = now as u64 + ticks;
        let mut shift = 0;
        while ticks >= LEVEL_END << shift {
            shift += LEVEL_SHIFT;
        }
        let end = ((due >> shift) + 1) << shift;
        (JIFFY * end as u32).saturating_sub(self.phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::granularity;

    #[test]
    fn a_timer_is_late_by_its_granularity_at_most_and_at_some_phase_by_nearly_that() {
        for wait_ms in [1, 40, 200, 300, 1_000, 1_900, 3_000, 15_000] {
            let (since, wait) = (Duration::from_secs(10), Duration::from_millis(wait_ms));
            let late = |phase| Wheel::at_phase(phase).expires(since, wait) - since - wait;
            let latest = (0..500).map(late).max().unwrap();
            let most = granularity(wait);
            assert!(latest <= most + JIFFY && latest * 10 > most * 8, "{wait_ms}: {latest:?} of {most:?}");
            let earliest = (0..500).map(late).min().unwrap();
            assert!(earliest < JIFFY + JIFFY, "{wait_ms}: {earliest:?}");
        }
    }
}
