//! How long to spin before going to sleep.
//!
//! A sleep and a wake cost from 4 µs across two busy cores to some 50 µs where the idle core of a
//! virtual machine has to be started again; a round trip between two spinning threads costs 0.3.
//! So a thread that will be answered soon does well to spin, and any other does not: it burns the
//! core that its peer may need. Hence three things:
//!
//! * A spin begins with pauses, of some 10 µs in all however long a look takes, and goes on with `sched_yield`: if another thread wants this core,
//!   it gets it, and spinning turns into waiting in the run queue, which is cheaper than a sleep and
//!   needs no wake. If the thread that will answer ran last on our core, the pauses are left out.
//! * The bound is a time. It has to cover the sleep and wake of *the other side*: two threads that
//!   both sleep answer each other only after a wake, and if that is longer than their spins they would
//!   never find back to spinning.
//! * Not more threads than twice the cores yield at a time: beyond that they would only take turns in
//!   finding that there is nothing to do. They are counted, on a line of their own, which only waits
//!   that outlast the pauses touch.
//! * Where a thread of other work computes on the same CPU, a yield lasts as long as that thread's time slice. If one of ours yields and none was seen there
//!   for two milliseconds, nothing yields on that CPU for a while (`spin/kept.rs`): a sleep is cheaper there.
//! * Each thread remembers how its last spins ended. No answer halves the time, and after a few
//!   failures in a row it sleeps at once and only now and then tries a full spin; one answer while
//!   spinning restores the full time.
//!
//! Does not depend on the awaited event. Invariant: a spin is bounded by the caller's `max` and a few yields, by more
//! only if other threads used the core in between. Tests: below.

use core::cell::Cell;
use core::time::Duration;

use crossbeam_utils::CachePadded;

use crate::cpu;
use crate::facade::unmodelled::{AtomicU32, Ordering};
use crate::facade::{spin_loop, thread, thread_local};

mod kept;

use kept::Kept;

/// The caller's permissions and hints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spin {
    max: Duration,
    waker_cpu: Option<u32>,
    /// See [`Spin::for_one_answer`].
    is_for_one: bool,
}

impl Spin {
    /// Never spin.
    pub const OFF: Self = Self::up_to(Duration::ZERO);

    /// Spin for at most so long.
    pub const fn up_to(max: Duration) -> Self {
        Self { max, waker_cpu: None, is_for_one: false }
    }

    /// The same, knowing the CPU on which the thread that will wake us ran last (as of
    /// [`cpu::current`]). If it is ours, that thread cannot run while we pause, so we only yield.
    pub const fn woken_from(self, waker_cpu: Option<u32>) -> Self {
        Self { waker_cpu, ..self }
    }

    /// The same, for one answer of one thread, and not for whatever comes first: if that thread ran last on our CPU, the
    /// first yield brings the answer, and is not timed.
    pub const fn for_one_answer(self) -> Self {
        Self { is_for_one: true, ..self }
    }

    /// Spins until `done`, within the budget. Whether it was done.
    pub fn until(self, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        let Some(budget) = self.budget() else { return false };
        let is_waker_here = self.waker_cpu.is_some_and(|waker| waker == cpu::current());
        let spun = if pause(is_waker_here, &mut done) {
            Spun::InTime
        } else if KEPT.is_held(cpu::current(), cpu::monotonic_micros) {
            return false;
        } else {
            // A yield that took long is looked at more closely the next time.
            let untimed = self.is_for_one && is_waker_here && HISTORY.with(Cell::get) == History::START;
            yield_among_others(budget, untimed, &mut done)
        };
        HISTORY.with(|history| {
            history.set(match spun {
                Spun::InTime => History::START,
                Spun::Late | Spun::InVain => history.get().after_failure(),
            });
        });
        spun != Spun::InVain
    }

    fn budget(self) -> Option<Duration> {
        if self.max.is_zero() {
            return None;
        }
        HISTORY.with(|history| {
            let (next, shift) = history.get().ask();
            history.set(next);
            shift.map(|shift| self.max / (1 << shift))
        })
    }
}

impl Default for Spin {
    /// Up to [`SPIN_MAX_DEFAULT`].
    fn default() -> Self {
        Self::up_to(SPIN_MAX_DEFAULT)
    }
}

/// The first part of a spin: keeps the core.
fn pause(is_waker_here: bool, done: &mut impl FnMut() -> bool) -> bool {
    if cpu::count() < 2 || is_waker_here {
        return false;
    }
    // Others yield: then another thread has use for this core.
    if yielding_count() > 0 {
        return false;
    }
    let mut end = None;
    for look in 1..=PAUSES {
        spin_loop();
        if done() {
            return true;
        }
        if look % LOOKS_UNTIMED == 0 {
            let now = cpu::monotonic_micros();
            if now >= *end.get_or_insert(now + PAUSE_MAX_MICROS) {
                break;
            }
        }
    }
    false
}

/// The second part of a spin, if there is room among the threads that do the same.
fn yield_among_others(budget: Duration, untimed: bool, done: &mut impl FnMut() -> bool) -> Spun {
    let others = YIELDING.fetch_add(1, Ordering::Relaxed);
    let spun = match (others as usize) < 2 * cpu::count() {
        true if untimed => yield_untimed(budget, done),
        true => yield_until(budget, done),
        false => {
            KEPT.see(cpu::current(), cpu::monotonic_micros());
            Spun::InVain
        }
    };
    YIELDING.fetch_sub(1, Ordering::Relaxed);
    spun
}

/// How many threads offer their core to others while they wait; a measure that may be old at once.
fn yielding_count() -> u32 {
    YIELDING.load(Ordering::Relaxed)
}

/// In a child of fork(2), of whose parent's threads only one is left.
pub(crate) fn forget_others() {
    YIELDING.store(0, Ordering::Relaxed);
    KEPT.forget_offers();
}

/// Threads in the second part of a spin. A measure and no protocol: nothing is ordered by it.
static YIELDING: CachePadded<AtomicU32> = CachePadded::new(AtomicU32::new(0));

/// [`yield_until`], whose first yields are not timed: two threads that take turns on one core are answered by the first,
/// and to ask for the time would cost them a twentieth of their round trip. Whether another thread kept the core is then
/// told by the clock of ticks, since a thread that keeps it loses it at a tick. Threads that wait for many others have to
/// know the time: a thread that never parks is never put elsewhere by the scheduler.
fn yield_untimed(budget: Duration, done: &mut impl FnMut() -> bool) -> Spun {
    let tick = cpu::tick();
    for _ in 0..UNTIMED_YIELDS {
        thread::yield_now();
        if done() {
            return if cpu::tick() == tick { Spun::InTime } else { Spun::Late };
        }
    }
    yield_until(budget, done)
}

/// Offers the core to others each time. Under the model checker, which has no
/// time, it is one look.
fn yield_until(budget: Duration, done: &mut impl FnMut() -> bool) -> Spun {
    let start = cpu::monotonic_micros();
    let mut now = start;
    loop {
        now = KEPT.offer(cpu::current(), now, || {
            thread::yield_now();
            cpu::monotonic_micros()
        });
        let is_late = cfg!(loom) || u128::from(now.saturating_sub(start)) >= budget.as_micros();
        match (done(), is_late) {
            (true, false) => return Spun::InTime,
            (true, true) => return Spun::Late,
            (false, true) => return Spun::InVain,
            (false, false) => {}
        }
    }
}

/// How a spin ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spun {
    /// With an answer.
    InTime,
    /// With an answer, but another thread kept the core for longer than the budget: a sleeper would have been woken
    /// earlier.
    Late,
    /// Without an answer.
    InVain,
}

/// Twice the cost of a sleep and a wake where they are dear.
pub const SPIN_MAX_DEFAULT: Duration = Duration::from_micros(100);
/// Pauses before the first yield, of 15 to 70 ns each: some answers of a busy peer.
const PAUSES: u32 = if cfg!(loom) { 1 } else { 200 };
/// The time for them, microseconds, from the end of the first [`LOOKS_UNTIMED`] looks on. A look may be a system call, and 200 of them took as long as
/// three sleeps.
const PAUSE_MAX_MICROS: u64 = 8;
/// Looks between two at the clock: a quick answer does not wait for it.
const LOOKS_UNTIMED: u32 = 8;

/// Yields before the first look at the clock; of half a microsecond each, if no other thread wants the core.
const UNTIMED_YIELDS: u32 = if cfg!(loom) { 0 } else { 4 };

/// The CPUs on which nothing yields.
static KEPT: Kept = Kept::new();

/// How this thread's last spins ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct History {
    /// The budget is the maximum halved so often; `GIVEN_UP` is not to spin.
    halvings: u8,
    /// Waits without a spin since giving up.
    skipped: u8,
}

impl History {
    const START: Self = Self { halvings: 0, skipped: 0 };

    /// The history after this question, and how often to halve the maximum; `None`: do not spin.
    fn ask(self) -> (Self, Option<u8>) {
        if self.halvings < GIVEN_UP {
            return (self, Some(self.halvings));
        }
        if self.skipped < PROBE_EVERY {
            return (Self { skipped: self.skipped + 1, ..self }, None);
        }
        // A full spin: a shorter one could not outlast the other side's wake.
        (Self { skipped: 0, ..self }, Some(0))
    }

    fn after_failure(self) -> Self {
        Self { halvings: (self.halvings + 1).min(GIVEN_UP), ..self }
    }
}

thread_local! {
    static HISTORY: Cell<History> = const { Cell::new(History::START) };
}

/// So many failures in a row, and a thread sleeps at once.
const GIVEN_UP: u8 = 4;
/// Waits between two probes.
const PROBE_EVERY: u8 = 24;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn failures_halve_the_budget_until_spinning_stops() {
        let mut history = History::START;
        let mut shifts = Vec::new();
        while let (next, Some(shift)) = history.ask() {
            shifts.push(shift);
            history = next.after_failure();
        }
        assert_eq!(shifts, [0, 1, 2, 3]);
    }

    #[test]
    fn a_thread_that_stopped_spinning_sometimes_probes_with_a_full_spin() {
        let mut history = History { halvings: GIVEN_UP, skipped: 0 };
        let mut skipped_count = 0;
        loop {
            let (next, shift) = history.ask();
            history = next;
            if shift.is_some() {
                assert_eq!(shift, Some(0));
                break;
            }
            skipped_count += 1;
        }
        assert_eq!(skipped_count, PROBE_EVERY);
        assert_eq!(history.after_failure().ask().1, None);
    }

    #[test]
    fn an_answer_restores_the_full_spin() {
        assert!(in_the_end(|| {
            HISTORY.with(|history| history.set(History { halvings: 2, skipped: 0 }));
            let mut looks_count = 0;
            // Long enough for a yield to a machine full of other work.
            let was_done = Spin::up_to(Duration::from_secs(60)).until(|| {
                looks_count += 1;
                looks_count > 2
            });
            was_done && HISTORY.with(Cell::get) == History::START
        }));
    }

    #[test]
    fn a_condition_that_already_holds_needs_no_budget() {
        assert!(Spin::OFF.until(|| true));
        assert!(!Spin::OFF.until(|| false));
    }

    #[test]
    fn a_waker_on_the_same_cpu_causes_a_yield_instead_of_a_pause() {
        // The thread may be moved between the two looks at the CPU, too.
        assert!(in_the_end(|| {
            HISTORY.with(|history| history.set(History::START));
            let mut looks_count = 0;
            let spin = Spin::up_to(Duration::from_nanos(1)).woken_from(Some(cpu::current()));
            assert!(!spin.until(|| {
                looks_count += 1;
                false
            }));
            looks_count == 2
        }));
    }

    #[test]
    fn a_spin_ends() {
        assert!(in_the_end(|| {
            HISTORY.with(|history| history.set(History::START));
            let mut looks_count = 0u32;
            assert!(!Spin::up_to(Duration::from_micros(1)).until(|| {
                looks_count += 1;
                false
            }));
            looks_count >= 2
        }));
    }

    /// Whether `holds` is true once: nothing yields for up to a second where other work keeps the CPU.
    fn in_the_end(mut holds: impl FnMut() -> bool) -> bool {
        (0..300).any(|_| {
            holds() || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        })
    }
}
