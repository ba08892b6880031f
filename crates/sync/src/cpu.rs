//! Where the thread runs, and on how many CPUs it may.
//!
//! Both are hints: a thread can be moved right after the question. Tests: below.

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

/// How many CPUs the process may use; at least one. Asked once, by affinity and cgroup quota.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn there_is_a_cpu_and_we_run_on_it() {
        assert!(super::count() >= 1);
        // SAFETY: the call has no precondition.
        let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        assert!(i64::from(super::current()) < configured);
    }
}
