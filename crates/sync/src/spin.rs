//! How long to spin before going to sleep.
//!
//! A sleep and a wake cost some 4 µs across cores, a round trip between two spinning threads 0.3.
//! So a thread that will be answered at once does well to spin, and any other does not: it burns
//! the core that its peer may need. Each thread remembers how its last spins ended and adapts: an
//! answer while spinning doubles the budget, none halves it, and after a few failures in a row it
//! sleeps at once and tries a spin only now and then. That also keeps more spinners than cores from
//! spinning: their spins fail, and they learn it without a shared count that each wait would write.
//!
//! Must not know what is waited for. Invariant: a spin is bounded by the caller's `pauses_max`.
//! Tests: below.

use core::cell::Cell;

use crate::cpu;
use crate::facade::{spin_loop, thread_local};

/// What the caller allows and knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spin {
    pauses_max: u32,
    waker_cpu: Option<u32>,
}

impl Spin {
    /// Never spin.
    pub const OFF: Self = Self::up_to(0);

    /// Spin for at most so many pause instructions, of 15 to 70 ns each.
    pub const fn up_to(pauses_max: u32) -> Self {
        Self {
            pauses_max,
            waker_cpu: None,
        }
    }

    /// The same, knowing the CPU on which the thread that will wake us ran last (as of
    /// [`cpu::current`]). If it is ours, that thread cannot run while we spin, so we do not.
    pub const fn woken_from(self, waker_cpu: Option<u32>) -> Self {
        Self { waker_cpu, ..self }
    }

    /// Spins until `done`, within the budget. Whether it was done.
    pub(crate) fn until(self, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        let pauses = self.budget();
        if pauses == 0 {
            return false;
        }
        for _ in 0..pauses {
            spin_loop();
            if done() {
                HISTORY.with(|history| history.set(history.get().after_success()));
                return true;
            }
        }
        HISTORY.with(|history| history.set(history.get().after_failure()));
        false
    }

    fn budget(self) -> u32 {
        if self.pauses_max == 0 || cpu::count() < 2 {
            return 0;
        }
        if self.waker_cpu.is_some_and(|waker| waker == cpu::current()) {
            return 0;
        }
        HISTORY.with(|history| {
            let (next, shift) = history.get().ask();
            history.set(next);
            // A budget allowed at all is not rounded away.
            shift.map_or(0, |shift| (self.pauses_max >> shift).max(1))
        })
    }
}

impl Default for Spin {
    /// Up to [`PAUSES_MAX_DEFAULT`].
    fn default() -> Self {
        Self::up_to(PAUSES_MAX_DEFAULT)
    }
}

/// About 20 to 70 µs, several times what a sleep and a wake cost.
pub const PAUSES_MAX_DEFAULT: u32 = 1000;

/// How this thread's last spins ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct History {
    /// The budget is the maximum halved so often; `GIVEN_UP` is not to spin.
    halvings: u8,
    /// Waits without a spin since giving up.
    skipped: u8,
}

impl History {
    const START: Self = Self {
        halvings: 0,
        skipped: 0,
    };

    /// The history after this question, and how often to halve the maximum; `None`: do not spin.
    fn ask(self) -> (Self, Option<u8>) {
        if self.halvings < GIVEN_UP {
            return (self, Some(self.halvings));
        }
        if self.skipped < PROBE_EVERY {
            return (
                Self {
                    skipped: self.skipped + 1,
                    ..self
                },
                None,
            );
        }
        (Self { skipped: 0, ..self }, Some(PROBE_HALVINGS))
    }

    fn after_success(self) -> Self {
        Self {
            halvings: self.halvings.min(PROBE_HALVINGS + 1).saturating_sub(1),
            skipped: 0,
        }
    }

    fn after_failure(self) -> Self {
        Self {
            halvings: (self.halvings + 1).min(GIVEN_UP),
            ..self
        }
    }
}

thread_local! {
    static HISTORY: Cell<History> = const { Cell::new(History::START) };
}

/// So many failures in a row, and a thread sleeps at once.
const GIVEN_UP: u8 = 5;
/// A probe gets a quarter of the maximum: enough for an answer that is under way.
const PROBE_HALVINGS: u8 = 2;
/// Waits between two probes. A probe that fails costs some 10 µs, a wait some 5.
const PROBE_EVERY: u8 = 32;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn failures_halve_the_budget_and_end_in_giving_up() {
        let mut history = History::START;
        let mut shifts = Vec::new();
        while let (next, Some(shift)) = history.ask() {
            shifts.push(shift);
            history = next.after_failure();
        }
        assert_eq!(shifts, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn who_gave_up_probes_now_and_then_and_comes_back() {
        let mut history = History {
            halvings: GIVEN_UP,
            skipped: 0,
        };
        let mut skipped_count = 0;
        loop {
            let (next, shift) = history.ask();
            history = next;
            if shift.is_some() {
                assert_eq!(shift, Some(PROBE_HALVINGS));
                break;
            }
            skipped_count += 1;
        }
        assert_eq!(skipped_count, PROBE_EVERY);
        assert_eq!(history.after_failure().ask().1, None);
        let history = history.after_success();
        assert_eq!(history.halvings, PROBE_HALVINGS);
        assert_eq!(history.after_success().after_success(), History::START);
    }

    #[test]
    fn what_is_done_needs_no_budget() {
        assert!(Spin::OFF.until(|| true));
        assert!(!Spin::OFF.until(|| false));
    }

    #[test]
    fn a_waker_on_our_own_cpu_is_not_spun_for() {
        // The thread may be moved between the two looks at the CPU, so a few tries are allowed.
        let waited_none = (0..100).any(|_| {
            let mut looks_count = 0;
            let spin = Spin::up_to(8).woken_from(Some(cpu::current()));
            assert!(!spin.until(|| {
                looks_count += 1;
                false
            }));
            looks_count == 1
        });
        assert!(waited_none);
    }

    #[test]
    fn a_spin_is_bounded() {
        if cpu::count() < 2 {
            return;
        }
        HISTORY.with(|history| history.set(History::START));
        let mut looks_count = 0;
        assert!(!Spin::up_to(8).until(|| {
            looks_count += 1;
            false
        }));
        assert_eq!(looks_count, 9);
    }
}
