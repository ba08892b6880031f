//! Which core a thread runs on, as a hint: by the time it is used the thread may run on another.
//!
//! Under the model checker there is one core, so that models stay small. Tests: with the depot.

/// How many cores there are.
pub(crate) fn count() -> usize {
    if cfg!(any(loom, miri)) { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) }
}

/// The number of the core that this thread runs on; 0 if the system does not say.
#[inline]
pub(crate) fn current() -> u32 {
    if cfg!(any(loom, miri)) {
        return 0;
    }
    // SAFETY: the call takes nothing and only reads the thread's own registration with the kernel.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or(0)
}
