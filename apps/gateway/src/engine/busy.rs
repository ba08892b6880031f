//! Whether a loop that has nothing to do should look again before it sleeps.
//!
//! A loop that sleeps is woken by an interrupt of another core, which takes longer than all that it does for a small request. So it looks again for [`BUSY_MAX`] if
//! what has come lately came sooner than that after what was before. Each look gives the core to whoever waits for it. An idle loop is one whose last gaps were long:
//! it sleeps at once.
//!
//! ```text
//! beat: something has come ─► the gap since the last one: short or long ─► share of short ones, each counts an eighth
//! ```
//!
//! Does not depend on what comes. Cost: a reading of the clock for each beat; at most [`BUSY_MAX`] of a core's time that nobody else wanted after each. Tests: below.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// For how long a loop looks again at most; longer gaps are worth a sleep.
const BUSY_MAX: Duration = Duration::from_micros(100);
/// All gaps were short.
const ALL: u32 = 256;

/// See the module's head. Of one thread.
pub struct Busy {
    last: Cell<Instant>,
    /// Of [`ALL`].
    short: Cell<u32>,
}

impl Busy {
    /// One that sleeps at first.
    pub fn new(now: Instant) -> Self {
        Self { last: Cell::new(now), short: Cell::new(0) }
    }

    /// Something has come, now.
    pub fn beat(&self, now: Instant) {
        let is_short = now.saturating_duration_since(self.last.replace(now)) <= BUSY_MAX;
        let before = self.short.get();
        self.short.set(before - before / 8 + if is_short { ALL / 8 } else { 0 });
    }

    /// Whether to look again, now, instead of sleeping.
    pub fn looks_again(&self, now: Instant) -> bool {
        self.short.get() > ALL / 2 && now.saturating_duration_since(self.last.get()) <= BUSY_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_loop_looks_again_and_an_idle_one_sleeps() {
        let start = Instant::now();
        let busy = Busy::new(start);
        assert!(!busy.looks_again(start));
        let mut now = start;
        let mut pass = |micros: u64, times: u32| {
            for _ in 0..times {
                now += Duration::from_micros(micros);
                busy.beat(now);
            }
            (busy.looks_again(now), busy.looks_again(now + BUSY_MAX * 2))
        };
        assert_eq!(pass(50, 20), (true, false), "for a while after the last beat only");
        assert_eq!(pass(1000, 20), (false, false));
        assert_eq!(pass(50, 2), (false, false), "two short gaps are no habit");
        assert_eq!(pass(50, 10), (true, false));
    }
}
