//! Busy polling: how long a loop polls before it sleeps.
//!
//! When a client sends one request after the other, each request waits twice at the gateway for a thread to wake, and waking the idle core of a virtual machine takes longer than
//! the work itself. So a loop polls for up to `--busy` after the last event, in a *look*:
//!
//! * A look that finds nothing halves the length of the next one. Once the length is below [`LOOK_MIN`], only one sleep in [`TRY_EVERY`] is preceded by a look.
//! * A look that finds something restores the full length.
//! * If the loop did not run for [`LOST_MIN`] during a look, another thread wants its core. Then the loop makes no looks for [`HOLD`]. The time doubles, up to [`HOLD_MAX`], if it happens again
//!   soon afterwards.
//!
//! The driver sees events from inside. Tasks report events from outside to the loop of their thread ([`note`]).
//!
//! Does not depend on the kind of event. Tests: below.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A shorter one would find little.
const LOOK_MIN: Duration = Duration::from_micros(25);
/// Sleeps, of which one is preceded by a look, where looks find nothing.
const TRY_EVERY: u32 = 16;
/// Between two turns of a look: no task takes as long as a rule.
const LOST_MIN: Duration = Duration::from_millis(1);
/// Without looks after one that was lost: the first time, and when each time doubles it.
const HOLD: Duration = Duration::from_millis(50);
const HOLD_MAX: Duration = Duration::from_secs(16);

thread_local! {
    static CAME: Cell<u32> = const { Cell::new(0) };
}

/// Something has come from outside.
pub fn note() {
    CAME.set(CAME.get().wrapping_add(1));
}

/// See the module's head.
pub struct Looks {
    /// The longest.
    max: Duration,
    length: Duration,
    /// Sleeps without a look.
    skipped: u32,
    /// The end of the time without looks, and how long that was. Forgotten as much later.
    held: Option<(Instant, Duration)>,
}

/// A look that is being made.
pub struct Look {
    until: Instant,
    last: Instant,
    /// How much had come from outside.
    came: u32,
}

impl Looks {
    /// Looks of at most this length; none if that is less than [`LOOK_MIN`].
    pub fn new(max: Duration) -> Self {
        Self { max, length: max, skipped: 0, held: None }
    }

    /// Before a sleep: the look that precedes it, if one does.
    pub fn begin(&mut self, now: Instant) -> Option<Look> {
        if self.max < LOOK_MIN || self.held.is_some_and(|(end, _)| now < end) {
            return None;
        }
        if self.length < LOOK_MIN {
            self.skipped += 1;
            if self.skipped < TRY_EVERY {
                return None;
            }
            self.skipped = 0;
        }
        Some(Look { until: now + self.length.max(LOOK_MIN), last: now, came: CAME.get() })
    }

    /// Something was found.
    pub fn found(&mut self) {
        self.length = self.max;
    }

    /// Nothing has come from inside so far. Whether the look goes on.
    pub fn goes_on(&mut self, look: &mut Look, now: Instant) -> bool {
        let is_lost = now.saturating_duration_since(look.last) >= LOST_MIN;
        look.last = now;
        let came = CAME.get();
        if std::mem::replace(&mut look.came, came) != came {
            self.found();
            look.until = now + self.max;
        }
        if is_lost {
            let again = self.held.filter(|(end, length)| now < *end + *length);
            let length = again.map_or(HOLD, |(_, length)| (2 * length).min(HOLD_MAX));
            self.held = Some((now + length, length));
        } else if now >= look.until {
            self.length /= 2;
        }
        !is_lost && now < look.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(5);
    const LOOK_MAX: Duration = Duration::from_micros(200);

    /// Looks until nothing more is looked for. How long that was.
    fn in_vain(looks: &mut Looks, now: &mut Instant) -> Option<Duration> {
        let start = *now;
        let mut look = looks.begin(*now)?;
        loop {
            *now += STEP;
            if !looks.goes_on(&mut look, *now) {
                return Some(*now - start);
            }
        }
    }

    #[test]
    fn looks_that_find_nothing_become_short_and_rare_and_one_that_does_restores_them() {
        let (mut looks, mut now) = (Looks::new(LOOK_MAX), Instant::now());
        let first: Vec<_> = (0..4).map(|_| in_vain(&mut looks, &mut now).unwrap().as_micros()).collect();
        assert_eq!(first, [200, 100, 50, 25]);
        let made: Vec<_> = (0..64).filter_map(|_| in_vain(&mut looks, &mut now)).collect();
        assert_eq!(made, [LOOK_MIN; 4]);
        assert!((1..TRY_EVERY).all(|_| looks.begin(now).is_none()) && looks.begin(now).is_some());
        looks.found();
        assert_eq!(in_vain(&mut looks, &mut now), Some(LOOK_MAX));
        assert!((0..100).all(|_| Looks::new(Duration::ZERO).begin(now).is_none()));
    }

    #[test]
    fn what_comes_from_outside_prolongs_a_look() {
        let (mut looks, mut now) = (Looks::new(LOOK_MAX), Instant::now());
        in_vain(&mut looks, &mut now);
        let mut look = looks.begin(now).unwrap();
        now += STEP;
        note();
        assert!(looks.goes_on(&mut look, now));
        assert!(looks.goes_on(&mut look, now + LOOK_MAX - STEP));
        assert!(!looks.goes_on(&mut look, now + LOOK_MAX));
    }

    /// Loses a look at `now`. When the next one may be made.
    fn lose(looks: &mut Looks, now: Instant) -> Duration {
        let mut look = looks.begin(now).unwrap();
        assert!(looks.goes_on(&mut look, now + STEP));
        let now = now + STEP + LOST_MIN;
        assert!(!looks.goes_on(&mut look, now));
        (0..).map(|n| n * HOLD / 2).find(|after| looks.begin(now + *after).is_some()).unwrap()
    }

    #[test]
    fn a_loop_that_is_not_alone_on_its_core_sleeps_at_once_for_a_while() {
        let (mut looks, mut now) = (Looks::new(LOOK_MAX), Instant::now());
        let mut holds = Vec::new();
        for _ in 0..11 {
            holds.push(lose(&mut looks, now).as_millis());
            now += Duration::from_millis(holds[holds.len() - 1] as u64 + 10);
        }
        assert_eq!(holds, [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 16_000, 16_000]);
        assert_eq!(in_vain(&mut looks, &mut now), Some(LOOK_MAX), "as before");
        assert_eq!(lose(&mut looks, now + 2 * HOLD_MAX), HOLD, "that was long ago");
    }
}
