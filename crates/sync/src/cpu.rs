//! Where the thread runs, on how many CPUs it may, the clocks, and prefetching.
//!
//! But for the clocks all are hints: a thread can be moved right after the question. Tests: below.

use crate::facade::system;
use crate::facade::unmodelled::{AtomicUsize, Ordering};

/// The CPU that the calling thread runs on now, on Linux: some 2 ns where the C library keeps the number in
/// the thread's restartable-sequences area, 20 where it has to ask the vDSO; no system call. Elsewhere a number that the
/// thread keeps, below [`count`].
#[inline]
pub fn current() -> u32 {
    // The interpreter has no CPUs.
    if cfg!(miri) { 0 } else { system::current_cpu() }
}

/// The time of the last timer tick, as a number that means nothing but the same or another. A tick is 1 to 10 ms long. No
/// system call, and a few nanoseconds on Linux, for no hardware is asked; elsewhere as much as [`monotonic_micros`].
#[inline]
pub(crate) fn tick() -> u64 {
    clock::tick()
}

/// CPU time that the threads of the process have used, in microseconds. A system call that adds up over all of them. 0 where
/// the system does not tell (Windows): the process then passes for one that does not use its cores.
pub(crate) fn used_by_process() -> u64 {
    clock::used_by_process()
}

/// Microseconds of the system's monotonic clock, whose zero means nothing. No system call. As a difference of two `Instant`s of
/// `std`, without the arithmetic on pairs that this costs.
#[inline]
pub fn monotonic_micros() -> u64 {
    clock::monotonic_micros()
}

/// By the C library, whose way into the vDSO works under valgrind too.
#[cfg(unix)]
mod clock {
    use super::{MICROS_PER_SEC, system};

    #[inline]
    pub fn tick() -> u64 {
        system::TICKS.map_or_else(|| monotonic_micros() / super::MICROS_PER_TICK, micros)
    }

    pub fn used_by_process() -> u64 {
        micros(libc::CLOCK_PROCESS_CPUTIME_ID)
    }

    #[inline]
    pub fn monotonic_micros() -> u64 {
        micros(libc::CLOCK_MONOTONIC)
    }

    /// What a clock of the system shows.
    #[inline]
    fn micros(id: libc::clockid_t) -> u64 {
        let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `at` is a place for the answer, and the call has no other precondition.
        let _always_there = unsafe { libc::clock_gettime(id, &raw mut at) };
        // The fields are of 32 bits on some machines.
        #[allow(clippy::unnecessary_cast, reason = "see above; an expectation would not be met there")]
        let (sec, nsec) = (at.tv_sec as i64, at.tv_nsec as i64);
        u64::try_from(sec.wrapping_mul(MICROS_PER_SEC).wrapping_add(nsec / 1_000)).unwrap_or(0)
    }
}

#[cfg(not(unix))]
mod clock {
    use std::time::Instant;

    use crate::facade::unmodelled::OnceLock;

    pub fn tick() -> u64 {
        monotonic_micros() / super::MICROS_PER_TICK
    }

    pub fn used_by_process() -> u64 {
        0
    }

    pub fn monotonic_micros() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        // Half a million years fit.
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A piece of memory that will be needed soon. It says nothing of whether there still is anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    start: usize,
    len: usize,
}

impl Place {
    /// Nowhere.
    pub const NONE: Self = Self { start: 0, len: 0 };

    /// The first `len` bytes of `value`.
    #[inline]
    pub fn of<T>(value: &T, len: usize) -> Self {
        Self { start: core::ptr::from_ref(value).addr(), len: len.min(size_of::<T>()) }
    }

    /// Asks for it to be brought near. A hint, which reads nothing.
    #[inline]
    pub fn fetch_ahead(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for offset in (0..self.len).step_by(LINE_LEN) {
            let line = core::ptr::without_provenance::<i8>(self.start.wrapping_add(offset));
            // SAFETY: the instruction has no effect that a program could see, wherever the place is.
            unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line) };
        }
    }
}

/// Bytes of a cache line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_LEN: usize = 64;
#[cfg(unix)]
const MICROS_PER_SEC: i64 = 1_000_000;
/// Of a tick where the system has no clock of ticks.
const MICROS_PER_TICK: u64 = 1_000;

/// How many CPUs the process may use; at least one. Asked once, by affinity and cgroup quota.
pub fn count() -> usize {
    // Not a `OnceLock`: a child of fork(2) would wait for ever for a thread of its parent's that is asking.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            COUNT.store(count, Ordering::Relaxed);
            count
        }
        count => count,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    #[cfg_attr(miri, ignore = "the interpreter has no such clock")]
    fn the_tick_counter_advances() {
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
    fn the_clock_in_microseconds_agrees_with_that_of_std() {
        let (start, since) = (std::time::Instant::now(), super::monotonic_micros());
        std::thread::sleep(std::time::Duration::from_millis(2));
        let micros = super::monotonic_micros() - since;
        assert!(u128::from(micros) <= start.elapsed().as_micros() + 1);
        assert!(micros >= 1_999);
    }

    #[test]
    fn there_is_a_cpu_and_we_run_on_it() {
        assert!(super::count() >= 1);
        // SAFETY: the call has no precondition.
        let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        assert!(i64::from(super::current()) < configured);
    }
}
