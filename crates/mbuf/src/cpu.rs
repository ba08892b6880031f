//! Which core a thread runs on, as a hint: by the time it is used the thread may run on another.
//!
//! Under the model checker there is one place for the cores' own parts, so that models stay small, and a thread is on the core that it has
//! named. Tests: with the depot.

#[cfg(loom)]
crate::facade::thread_local! {
    static CORE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// The thread of a model runs on this core from now on.
#[cfg(all(test, loom, feature = "experiments"))]
pub(crate) fn run_on(core: u32) {
    CORE.with(|own| own.set(core));
}

/// How many cores there are.
pub(crate) fn count() -> usize {
    if cfg!(any(loom, miri)) { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) }
}

/// The number of the core that this thread runs on; 0 if the system does not say.
#[inline]
pub(crate) fn current() -> u32 {
    #[cfg(loom)]
    // Without its locals a thread is at its end.
    return CORE.try_with(std::cell::Cell::get).unwrap_or(0);
    #[cfg(not(loom))]
    sockeye_sync::cpu::current()
}
