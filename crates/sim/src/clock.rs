//! A host's own clock: it may go fast or slow, and be set to another time of day.
//!
//! Computes only, in whole nanoseconds. The clock shows monotonic time, which never goes back, and real time, which can be set. Neither moves packets nor the stack's timers: those
//! follow the simulation's time. Tests: below, `tests/hosts/clocks.rs`.

use crate::event::Nanos;

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LocalClock {
    /// Since this moment of the simulation it has its present rate.
    since: Nanos,
    /// What it showed then.
    shown: Nanos,
    /// Nanoseconds that it gains in a millisecond, or loses if negative.
    ppm: i32,
    /// Real time beyond monotonic time.
    ahead: i64,
}

/// Parts of a whole.
const MILLION: i128 = 1_000_000;
/// The fastest and slowest clock: half as fast again, and half as fast.
#[cfg(any(feature = "entropy", test))]
pub(crate) const PPM_MAX: i32 = 500_000;

impl LocalClock {
    fn rate(&self) -> i128 {
        MILLION + i128::from(self.ppm)
    }

    /// Monotonic time since the start at a moment of the simulation.
    pub fn monotonic(&self, now: Nanos) -> Nanos {
        let passed = i128::from(now.saturating_sub(self.since)) * self.rate() / MILLION;
        self.shown.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// The first moment of the simulation at which monotonic time is `shown`.
    pub fn when(&self, shown: Nanos) -> Nanos {
        let left = i128::from(shown.saturating_sub(self.shown)) * MILLION;
        let rate = self.rate();
        let passed = (left + rate - 1) / rate;
        self.since.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// From now on it gains so much; not more than [`PPM_MAX`] either way.
    #[cfg(any(feature = "entropy", test))]
    pub fn set_rate(&mut self, now: Nanos, ppm: i32) {
        self.shown = self.monotonic(now);
        (self.since, self.ppm) = (now, ppm.clamp(-PPM_MAX, PPM_MAX));
    }

    /// Sets real time forward, or back.
    #[cfg(any(feature = "entropy", test))]
    pub fn step(&mut self, by: i64) {
        self.ahead = self.ahead.saturating_add(by);
    }

    /// Monotonic and real time beyond the simulation's.
    pub fn offsets(&self, now: Nanos) -> (i64, i64) {
        let beyond = i128::from(self.monotonic(now)) - i128::from(now);
        let beyond = i64::try_from(beyond).unwrap_or(i64::MAX);
        (beyond, beyond.saturating_add(self.ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_each_time_first_at_the_moment_that_it_says() {
        let mut clock = LocalClock::default();
        assert_eq!((clock.monotonic(77), clock.when(77), clock.offsets(77)), (77, 77, (0, 0)));
        let mut now = 1000;
        for ppm in [1, -1, 333_333, -499_999, PPM_MAX, -PPM_MAX, 7] {
            let before = clock.monotonic(now);
            clock.set_rate(now, ppm);
            assert_eq!(clock.monotonic(now), before, "it does not jump");
            for shown in before..before + 2000 {
                let when = clock.when(shown);
                assert!(clock.monotonic(when) >= shown, "{clock:?} {shown}");
                assert!(when == now || clock.monotonic(when - 1) < shown, "{clock:?} {shown}");
            }
            now += 12_345;
        }
    }

    #[test]
    fn a_step_moves_real_time_only() {
        let mut clock = LocalClock::default();
        clock.set_rate(0, 1000);
        clock.step(-50);
        assert_eq!(clock.offsets(1_000_000), (1000, 950));
    }
}
