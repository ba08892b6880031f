//! Where the thread runs, on how many CPUs it may, and when the kernel's timer last looked.
//!
//! All are hints: a thread can be moved right after the question. Tests: below.

use crate::facade::unmodelled::OnceLock;

/// The CPU that the calling thread runs on now. Some 2 ns where the C library keeps the number in
/// the thread's restartable-sequences area, 20 where it has to ask the vDSO; no system call.
#[inline]
pub fn current() -> u32 {
    if cfg!(miri) {
        // The interpreter has no CPUs.
        return 0;
    }
    // SAFETY: the call has no precondition.
    let cpu = unsafe { libc::sched_getcpu() };
    // It fails only on a kernel without the call; then there is one CPU as far as we know.
    u32::try_from(cpu).unwrap_or(0)
}

/// The time of the last timer tick, as a number that means nothing but the same or another. A tick is 1 to 10 ms long. No
/// system call, and a few nanoseconds, for no hardware is asked.
#[inline]
pub(crate) fn tick() -> i64 {
    let at = clock(libc::CLOCK_MONOTONIC_COARSE);
    at.tv_sec.wrapping_mul(NANOS_PER_SEC).wrapping_add(at.tv_nsec)
}

/// CPU time that the threads of the process have used, in microseconds. A system call that adds up over all of them.
pub(crate) fn used_by_process() -> u64 {
    let used = clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    u64::try_from(used.tv_sec.wrapping_mul(MICROS_PER_SEC).wrapping_add(used.tv_nsec / 1_000)).unwrap_or(0)
}

/// What a clock of the system shows.
#[inline]
fn clock(id: libc::clockid_t) -> libc::timespec {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // By the C library, whose way into the vDSO works under valgrind too.
    // SAFETY: `at` is a place for the answer, and the call has no other precondition.
    let _always_there = unsafe { libc::clock_gettime(id, &raw mut at) };
    at
}

const MICROS_PER_SEC: i64 = 1_000_000;
const NANOS_PER_SEC: i64 = 1_000_000_000;

/// How many CPUs the process may use; at least one. Asked once, by affinity and cgroup quota.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    #[cfg_attr(miri, ignore = "the interpreter has no such clock")]
    fn ticks_come() {
        let first = super::tick();
        while super::tick() == first {
            std::thread::yield_now();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter has no such clock")]
    fn the_process_uses_cpu_time() {
        let first = super::used_by_process();
        while super::used_by_process() == first {
            core::hint::spin_loop();
        }
    }

    #[test]
    fn there_is_a_cpu_and_we_run_on_it() {
        assert!(super::count() >= 1);
        // SAFETY: the call has no precondition.
        let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        assert!(i64::from(super::current()) < configured);
    }
}
