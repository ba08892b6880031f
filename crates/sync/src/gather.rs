//! Bringing a writer to the core where its reader runs.
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
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cpu;
use crate::facade::thread_local;
use crate::facade::unmodelled::{AtomicU64, OnceLock, Ordering};
use crate::spin;

/// A writer is about to wait for a reader that ran last on CPU `reader` (as of [`cpu::current`]). True if the
/// thread has moved there. Costs a load where no other thread yields; a move is two system calls and a migration.
/// Does not block.
pub fn follow(reader: u32) -> bool {
    if spin::yielding_count() == 0 {
        return false;
    }
    TRAIL.with(|trail| {
        let (next, wants) = trail.get().ask(reader != cpu::current(), micros_now());
        trail.set(next);
        if !wants || !may_move(next.asked_at) {
            return false;
        }
        let has_moved = move_to(reader);
        trail.set(next.after(has_moved));
        has_moved
    })
}

/// Moves the calling thread to this CPU and leaves what it is allowed as it was. False if it may not run there.
fn move_to(cpu: u32) -> bool {
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

fn micros_now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_micros() as u64
}

/// What a thread remembers of its last waits. Times in microseconds of [`micros_now`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Trail {
    /// Waits in a row with the reader elsewhere, up to [`PATIENCE`].
    elsewhere: u8,
    asked_at: u64,
    not_before: u64,
}

impl Trail {
    const START: Self = Self { elsewhere: 0, asked_at: 0, not_before: 0 };

    /// The trail after a wait, and whether the thread would move.
    fn ask(self, is_elsewhere: bool, now: u64) -> (Self, bool) {
        let elsewhere = if is_elsewhere { (self.elsewhere + 1).min(PATIENCE) } else { 0 };
        (Self { elsewhere, asked_at: now, ..self }, elsewhere == PATIENCE && now >= self.not_before)
    }

    fn after(self, has_moved: bool) -> Self {
        let gap = if has_moved { THREAD_GAP } else { REFUSED_GAP };
        Self { elsewhere: 0, not_before: self.asked_at + gap.as_micros() as u64, ..self }
    }
}

thread_local! {
    static TRAIL: Cell<Trail> = const { Cell::new(Trail::START) };
}

/// When the next thread may move. A measure and no protocol.
static NEXT_MOVE: AtomicU64 = AtomicU64::new(0);

/// Waits in a row with the reader on another core: fewer may be chance.
const PATIENCE: u8 = 3;
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
        let (first, moves) = Trail::START.ask(true, 10);
        assert!(!moves);
        let (second, moves) = first.ask(true, 20);
        assert!(!moves);
        assert!(second.ask(true, 30).1);
        // One wait beside the reader begins anew.
        assert!(!second.ask(false, 30).0.ask(true, 40).1);
    }

    #[test]
    fn moves_and_refusals_are_spaced() {
        let patient = Trail { elsewhere: PATIENCE, asked_at: 100, not_before: 0 };
        let moved = Trail { elsewhere: PATIENCE, ..patient.after(true) };
        assert!(!moved.ask(true, 5_099).1);
        assert!(moved.ask(true, 5_100).1);
        let refused = Trail { elsewhere: PATIENCE, ..patient.after(false) };
        assert!(!refused.ask(true, 1_000_099).1);
        assert!(refused.ask(true, 1_000_100).1);
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
    fn nobody_moves_while_nobody_yields() {
        // Other tests of this process may yield; then this asks three times less than patience needs.
        assert!(!follow(cpu::current()));
    }
}
