//! Whether a loop that has nothing to do should look again before it sleeps.
//!
//! A loop that sleeps is woken by an interrupt of another core, which takes longer than all that it does for a small request. So it looks again, for `--busy` at
//! most, if the average time between two things that came lies between [`GAP_MIN`] and [`GAP_MAX`]. Below, there are many flows and a sleep ends with work for many
//! of them, so it costs each little, while somebody else has use for the core. Above, a look would find nothing. A look that comes late means that the
//! loop did not run meanwhile: others want the core, and it sleeps at once for [`PAUSE`].
//!
//! ```text
//! beat: something has come ─► the gap since the last one ─► the average, in which each counts an eighth
//! ```
//!
//! Does not depend on what comes. Cost: a reading of the clock for each beat, and at most `--busy` of a core's time after each. Tests: below.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The average gaps at which it does.
const GAP_MIN: Duration = Duration::from_micros(15);
const GAP_MAX: Duration = Duration::from_micros(80);
/// A gap counts as no longer than this, so that a few short ones tell that there is work again.
const GAP_COUNTED: Duration = Duration::from_micros(400);
/// Between two looks of a loop that runs.
const LOOK_MAX: Duration = Duration::from_micros(50);
/// For how long a loop that did not run leaves the core to others.
const PAUSE: Duration = Duration::from_millis(20);

/// See the module's head. Of one thread.
pub struct Busy {
    /// For how long the loop looks again at most.
    max: Duration,
    last: Cell<Instant>,
    /// The average gap.
    gap: Cell<Duration>,
    /// The last look of this wait.
    looked: Cell<Option<Instant>>,
    paused_until: Cell<Instant>,
}

impl Busy {
    /// One that sleeps at first.
    pub fn new(now: Instant, max: Duration) -> Self {
        Self {
            max,
            last: Cell::new(now),
            gap: Cell::new(GAP_COUNTED),
            looked: Cell::new(None),
            paused_until: Cell::new(now),
        }
    }

    /// Something has come, now.
    pub fn beat(&self, now: Instant) {
        let gap = now.saturating_duration_since(self.last.replace(now)).min(GAP_COUNTED);
        self.gap.set((self.gap.get() * 7 + gap) / 8);
    }

    /// A wait begins.
    pub fn waits(&self) {
        self.looked.set(None);
    }

    /// Whether to look again, now, instead of sleeping.
    pub fn looks_again(&self, now: Instant) -> bool {
        let before = self.looked.replace(Some(now));
        if before.is_some_and(|before| now.saturating_duration_since(before) > LOOK_MAX) {
            self.paused_until.set(now + PAUSE);
        }
        (GAP_MIN..=GAP_MAX).contains(&self.gap.get())
            && now.saturating_duration_since(self.last.get()) < self.max
            && now >= self.paused_until.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY_MAX: Duration = Duration::from_micros(100);

    #[test]
    fn a_loop_with_few_flows_looks_again_and_others_sleep() {
        let mut now = Instant::now();
        let busy = Busy::new(now, BUSY_MAX);
        busy.waits();
        assert!(!busy.looks_again(now));
        let mut pass = |micros: u64, times: u32| {
            for _ in 0..times {
                now += Duration::from_micros(micros);
                busy.beat(now);
            }
            busy.waits();
            let is_early = busy.looks_again(now);
            busy.waits();
            (is_early, busy.looks_again(now + BUSY_MAX * 2))
        };
        assert_eq!(pass(50, 40), (true, false), "for a while after the last beat only");
        assert_eq!(pass(1000, 20), (false, false));
        assert_eq!(pass(50, 2), (false, false), "two short gaps are no habit");
        assert_eq!(pass(50, 40), (true, false));
        assert_eq!(pass(5, 40), (false, false), "many flows");
        assert!(!Busy::new(now, Duration::ZERO).looks_again(now));
    }

    #[test]
    fn a_late_look_leaves_the_core_to_others() {
        let mut now = Instant::now();
        let busy = Busy::new(now, BUSY_MAX);
        for _ in 0..40 {
            now += Duration::from_micros(50);
            busy.beat(now);
        }
        busy.waits();
        assert!(busy.looks_again(now) && busy.looks_again(now + LOOK_MAX));
        assert!(!busy.looks_again(now + LOOK_MAX * 2 + Duration::from_micros(1)), "it did not run");
        now += PAUSE * 2;
        busy.beat(now);
        for _ in 0..40 {
            now += Duration::from_micros(50);
            busy.beat(now);
        }
        busy.waits();
        assert!(busy.looks_again(now), "and then it does again");
    }
}
