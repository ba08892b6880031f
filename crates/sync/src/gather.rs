//! Bringing a writer to the core where its reader runs, and a poller to the core of those who wake it.
//!
//! Where more threads move bytes than there are cores, a pair of writer and reader does best on one core: what is
//! written is read from that core's cache, and the two take turns anyway. A kernel's own sockets get that from the
//! scheduler, which is told at each wake that the waker is about to wait. Threads that spin, yield and sleep on futexes
//! tell it nothing: once two pairs lie crosswise over two cores, both stay so, because both cores are equally busy.
//!
//! So a writer whose buffer is full, with its reader on another core and other threads yielding too, moves itself: it
//! allows itself that core alone and at once all that it was allowed before. Only writers do, or both ends would change
//! places for ever. The scheduler may move the thread away again at any time.
//!
//! Pollers ([`follow_marks`]) are both ends at once, so there the *number* of pollers that wait on a core decides: one goes only
//! from a core where another one waits too, and not to where more do, after [`MARKS_PATIENCE`] batches of marks in a row
//! that began on that same other core. Two pairs that lie crosswise over two cores are two on each: the
//! first to move makes it one and three, and then only the odd one of the three can move. A pair with a core for each end stays as it is.
//!
//! Bounds: a move costs some microseconds, so a thread moves after [`PATIENCE`] such waits in a row and once in
//! [`THREAD_GAP`] at most, all threads together once in [`PROCESS_GAP`]. A thread that may not run there (it is pinned, or
//! the kernel refuses) asks again after [`REFUSED_GAP`].
//!
//! The known weakness: somebody else who changes this thread's affinity (`taskset -p`) in the microseconds between
//! the two calls is overruled by the second. Where that matters, the stack has a setting to turn this off.
//!
//! Must not know sockets. All of it is a hint: nothing is ordered by it. Tests: below.

use core::cell::Cell;
use core::time::Duration;

use crossbeam_utils::CachePadded;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cpu;
use crate::facade::thread_local;
use crate::facade::unmodelled::{AtomicU32, AtomicU64, Ordering};
use crate::spin::{self, Spin};

/// A writer is about to wait for a reader that ran last on CPU `reader` (as of [`cpu::current`]). True if the
/// thread has moved there. Costs a load where no other thread yields; a move is two system calls and a migration.
/// Does not block.
pub fn follow(reader: u32) -> bool {
    if spin::yielding_count() == 0 {
        return false;
    }
    TRAIL.with(|trail| {
        let (next, wants) = trail.get().ask(reader != cpu::current(), PATIENCE, micros_now);
        trail.set(next);
        wants && go(trail, reader)
    })
}

/// A poller has found marks, the first of which was made on CPU `waker` (as of [`cpu::current`]). True if the thread has
/// moved there. Costs a few loads as long as it has no reason to; does not block.
pub fn follow_marks(waker: u32) -> bool {
    let here = cpu::current();
    MARKS.with(|(trail, last)| {
        let is_same = last.replace(waker) == waker;
        let was = if is_same { trail.get() } else { Trail { elsewhere: 0, ..trail.get() } };
        let (next, wants) = was.ask(waker != here, MARKS_PATIENCE, micros_now);
        trail.set(next);
        wants && is_worth(polling_on(here), polling_on(waker)) && go(trail, waker)
    })
}

/// Whether a poller goes from a core where so many others wait to one where so many do.
fn is_worth(others_here: u32, others_there: u32) -> bool {
    others_here > 0 && others_there <= others_here
}

/// [`Spin::until`] of a thread that polls: others who do see that it waits on this core.
pub fn spin_polling(spin: Spin, done: impl FnMut() -> bool) -> bool {
    let here = polling(cpu::current());
    here.fetch_add(1, Ordering::Relaxed);
    let is_done = spin.until(done);
    here.fetch_sub(1, Ordering::Relaxed);
    is_done
}

fn polling_on(cpu: u32) -> u32 {
    polling(cpu).load(Ordering::Relaxed)
}

fn polling(cpu: u32) -> &'static AtomicU32 {
    &POLLING[cpu as usize % CPUS_MAX]
}

/// Moves the thread, if it is time and nobody else does.
fn go(trail: &Cell<Trail>, target: u32) -> bool {
    let now = micros_now();
    if !may_move(now) {
        return false;
    }
    let has_moved = move_to(target);
    trail.set(trail.get().after(has_moved, now));
    has_moved
}

/// Moves the calling thread to this CPU and leaves what it is allowed as it was. False if it may not run there.
pub(crate) fn move_to(cpu: u32) -> bool {
    let target = cpu as usize;
    let Ok(allowed) = sched_getaffinity(None) else { return false };
    if target >= CpuSet::MAX_CPU || !allowed.is_set(target) || allowed.count() < 2 {
        return false;
    }
    let mut there = CpuSet::new();
    there.set(target);
    if sched_setaffinity(None, &there).is_err() {
        return false;
    }
    if sched_setaffinity(None, &allowed).is_err() {
        // None of them is left to the process. The kernel cuts this down to those that are.
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        let _the_thread_stays_where_it_is = sched_setaffinity(None, &all);
    }
    true
}

/// All threads together move once in so long.
fn may_move(now: u64) -> bool {
    let next = NEXT_MOVE.load(Ordering::Relaxed);
    let after = now + PROCESS_GAP.as_micros() as u64;
    now >= next && NEXT_MOVE.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

pub(crate) fn micros_now() -> u64 {
    // Not a `OnceLock`: a child of fork(2) would wait for ever for a thread of its parent's that is asking.
    static START: AtomicU64 = AtomicU64::new(0);
    let now = cpu::monotonic_micros();
    let start = match START.load(Ordering::Relaxed) {
        0 => START.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(now),
        start => start,
    };
    now.saturating_sub(start)
}

/// What a thread remembers of its last waits. Times in microseconds of [`micros_now`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Trail {
    /// Waits in a row with the other side elsewhere, as far as it takes patience.
    elsewhere: u8,
    not_before: u64,
}

impl Trail {
    const START: Self = Self { elsewhere: 0, not_before: 0 };

    /// The trail after a wait, and whether the thread would move. The clock is asked by who is out of patience.
    fn ask(self, is_elsewhere: bool, patience: u8, now: impl FnOnce() -> u64) -> (Self, bool) {
        let elsewhere = if is_elsewhere { (self.elsewhere + 1).min(patience) } else { 0 };
        (Self { elsewhere, ..self }, elsewhere == patience && now() >= self.not_before)
    }

    fn after(self, has_moved: bool, now: u64) -> Self {
        let gap = if has_moved { THREAD_GAP } else { REFUSED_GAP };
        Self { elsewhere: 0, not_before: now + gap.as_micros() as u64 }
    }
}

thread_local! {
    // Of waits as a writer.
    static TRAIL: Cell<Trail> = const { Cell::new(Trail::START) };
}

thread_local! {
    // Of marks as a poller, and on which CPU the last ones were made.
    static MARKS: (Cell<Trail>, Cell<u32>) = const { (Cell::new(Trail::START), Cell::new(0)) };
}

/// Threads that wait by polling, by CPU. A measure and no protocol.
static POLLING: [CachePadded<AtomicU32>; CPUS_MAX] =
    [const { CachePadded::new(AtomicU32::new(0)) }; CPUS_MAX];

/// In a child of fork(2), of whose parent's threads only one is left.
pub(crate) fn forget_others() {
    POLLING.iter().for_each(|count| count.store(0, Ordering::Relaxed));
}

/// CPUs that are counted apart; of a larger machine two share a count, which makes a hint worse.
const CPUS_MAX: usize = 64;

/// When the next thread may move. A measure and no protocol.
static NEXT_MOVE: AtomicU64 = AtomicU64::new(0);

/// Waits in a row with the reader on another core: fewer may be chance.
const PATIENCE: u8 = 3;
/// Batches of marks in a row that began on the same other core. By chance, on two cores, one in 256.
const MARKS_PATIENCE: u8 = 8;
/// Between two moves of a thread: a move pays for itself within some hundred microseconds.
const THREAD_GAP: Duration = Duration::from_millis(5);
/// Between two moves of any threads: a hundred writers that all want to move spend 1 % of a core on it.
const PROCESS_GAP: Duration = Duration::from_millis(1);
/// After a refusal, which costs a system call.
const REFUSED_GAP: Duration = Duration::from_secs(1);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_moves_after_three_waits_for_a_reader_elsewhere() {
        let ask = |trail: Trail, is_elsewhere| trail.ask(is_elsewhere, PATIENCE, || 10);
        let (first, moves) = ask(Trail::START, true);
        assert!(!moves);
        let (second, moves) = ask(first, true);
        assert!(!moves);
        assert!(ask(second, true).1);
        // One wait beside the reader begins anew.
        assert!(!ask(ask(second, false).0, true).1);
    }

    #[test]
    fn moves_and_refusals_are_spaced() {
        let asks = |trail: Trail, at| {
            let patient = Trail { elsewhere: PATIENCE, ..trail };
            patient.ask(true, PATIENCE, || at).1
        };
        let moved = Trail::START.after(true, 100);
        assert!(!asks(moved, 5_099));
        assert!(asks(moved, 5_100));
        let refused = Trail::START.after(false, 100);
        assert!(!asks(refused, 1_000_099));
        assert!(asks(refused, 1_000_100));
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter has no CPUs")]
    fn a_move_arrives_and_leaves_the_affinity_as_it_was() {
        let allowed = sched_getaffinity(None).expect("every thread has an affinity");
        let cpus: Vec<u32> =
            (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).map(|cpu| cpu as u32).collect();
        if cpus.len() < 2 {
            println!("skipped: this process may use one CPU only");
            assert!(!move_to(cpus[0]));
            return;
        }
        for cpu in cpus.iter().copied().cycle().take(8) {
            // The scheduler may move the thread on before it looks, so a few tries are allowed.
            assert!((0..1_000).any(|_| move_to(cpu) && cpu::current() == cpu), "never arrived on CPU {cpu}");
            assert_eq!(sched_getaffinity(None), Ok(allowed));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter has no CPUs")]
    fn a_pinned_thread_stays() {
        std::thread::spawn(|| {
            let mut one = CpuSet::new();
            one.set(cpu::current() as usize);
            sched_setaffinity(None, &one).expect("a CPU of ours");
            assert!(!move_to(cpu::current()));
            assert!(!move_to(cpu::current() ^ 1));
            assert!(!move_to(u32::MAX));
            assert_eq!(sched_getaffinity(None), Ok(one));
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn pollers_go_from_crowded_cores_to_less_crowded_ones() {
        // Crosswise: another one waits here, one or none there.
        assert!(is_worth(1, 1) && is_worth(1, 0));
        // The odd one of three; the one that is alone stays.
        assert!(is_worth(2, 0) && !is_worth(0, 2));
        assert!(!is_worth(1, 2));
        // A core for each end.
        assert!(!is_worth(0, 0));
    }

    #[test]
    fn who_polls_is_counted_where_he_does() {
        let mut seen = false;
        spin_polling(Spin::OFF, || {
            seen = POLLING.iter().any(|count| count.load(Ordering::Relaxed) > 0);
            true
        });
        assert!(seen);
    }

    #[test]
    fn marks_of_this_core_move_nobody() {
        assert!(!(0..2 * MARKS_PATIENCE).any(|_| follow_marks(cpu::current())));
    }

    #[test]
    fn nobody_moves_while_nobody_yields() {
        // Other tests of this process may yield; then this asks three times less than patience needs.
        assert!(!follow(cpu::current()));
    }
}
