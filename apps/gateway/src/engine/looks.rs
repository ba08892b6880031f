//! Busy polling: how long a loop polls before it sleeps.
//!
//! When a client sends one request after the other, each request waits twice at the gateway for a thread to wake, and waking the idle core of a virtual machine takes longer than
//! the work itself. So a loop polls for up to `--busy` after the last event, in a *look*:
//!
//! * From its second turn on, a look yields the core in each turn: the thread that the loop waits for may want the same one. With many connections the first turn mostly finds something.
//! * After [`VAIN_MAX`] looks in a row that found nothing, only one sleep in [`TRY_EVERY`] is preceded by a look, until one finds something. These looks are as long as all others: a shorter one would not see that the
//!   events of now come at a distance that pays.
//! * If a yield takes [`LOST_MIN`], a thread that computes has the core. Then the loop makes no looks for [`HOLD`]. The time doubles, up to [`HOLD_MAX`], if it happens again
//!   soon afterwards.
//!
//! The driver sees events from inside. Tasks report events from outside to the loop of their thread ([`note`]).
//!
//! Does not depend on the kind of event. Tests: below.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Looks in a row that find nothing, before they become rare.
const VAIN_MAX: u32 = 4;
/// Sleeps, of which one is preceded by a look, where looks find nothing.
const TRY_EVERY: u32 = 16;
/// For a yield. The threads that serve a request or send the next one seldom need so long; one that computes takes its time slice, which is milliseconds.
const LOST_MIN: Duration = Duration::from_micros(250);
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
    /// Looks in a row that found nothing.
    in_vain: u32,
    /// Sleeps without a look.
    skipped: u32,
    /// The end of the time without looks, and how long that was. Forgotten as much later.
    held: Option<(Instant, Duration)>,
}

/// A look that is being made.
pub struct Look {
    until: Instant,
    has_begun: bool,
    /// A yield took [`LOST_MIN`].
    is_lost: bool,
    /// How much had come from outside.
    came: u32,
    /// The end of its first turn, if that found nothing.
    idle_since: Option<Instant>,
}

impl Looks {
    /// Looks of at most this length; none if it is zero.
    pub fn new(max: Duration) -> Self {
        Self { max, in_vain: 0, skipped: 0, held: None }
    }

    /// Before a sleep: the look that precedes it, if one does.
    pub fn begin(&mut self, now: Instant) -> Option<Look> {
        if self.max.is_zero() || self.held.is_some_and(|(end, _)| now < end) {
            return None;
        }
        if self.in_vain >= VAIN_MAX {
            self.skipped += 1;
            if self.skipped < TRY_EVERY {
                return None;
            }
            self.skipped = 0;
        }
        Some(Look {
            until: now + self.max,
            has_begun: false,
            is_lost: false,
            came: CAME.get(),
            idle_since: None,
        })
    }

    /// Something was found.
    pub fn found(&mut self) {
        self.in_vain = 0;
    }

    /// Nothing has come from inside so far. Whether the look goes on.
    pub fn goes_on(&mut self, look: &mut Look, now: Instant) -> bool {
        look.idle_since.get_or_insert(now);
        let came = CAME.get();
        if std::mem::replace(&mut look.came, came) != came {
            self.found();
            look.until = now + self.max;
        }
        if look.is_lost {
            let again = self.held.filter(|(end, length)| now < *end + *length);
            let length = again.map_or(HOLD, |(_, length)| (2 * length).min(HOLD_MAX));
            self.held = Some((now + length, length));
        } else if now >= look.until {
            self.in_vain += 1;
        }
        !look.is_lost && now < look.until
    }
}

impl Look {
    /// How long it has found nothing. Its first turn counts as work: that mostly finds what other tasks have done.
    pub fn idle(&self, now: Instant) -> Duration {
        self.idle_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// A turn begins: another thread may have the core.
    pub fn give_way(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            let before = Instant::now();
            std::thread::yield_now();
            self.is_lost |= before.elapsed() >= LOST_MIN;
        }
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
    fn looks_that_find_nothing_become_rare_and_one_that_finds_something_restores_them() {
        let (mut looks, mut now) = (Looks::new(LOOK_MAX), Instant::now());
        assert!((0..VAIN_MAX).all(|_| in_vain(&mut looks, &mut now) == Some(LOOK_MAX)));
        let made: Vec<_> = (0..4 * TRY_EVERY).filter_map(|_| in_vain(&mut looks, &mut now)).collect();
        assert_eq!(made, [LOOK_MAX; 4]);
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
        let now = now + 2 * STEP;
        look.is_lost = true;
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
