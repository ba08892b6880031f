//! Shared by the tests of packet memory: threads on cores of the test's choice.
#![allow(dead_code)] // Each test binary uses its own part of this.

use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two cores that the calling thread may use: the same twice if there is one. (A thread that was put on a core
/// starts others there.)
pub fn cores() -> (usize, usize) {
    let allowed = sched_getaffinity(None).expect("a thread may ask where it may run");
    let mut usable = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let first = usable.next().expect("a thread runs somewhere");
    (first, usable.next().unwrap_or(first))
}

/// Keeps the calling thread on `core` from now on.
pub fn run_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("a core from `cores`");
}

/// Calls `f` in a thread of its own that stays on `core`, and waits for the end of that thread, thread-locals included. A thread
/// that may run anywhere can be moved between an allocation and the free, and then the free is one on another core. The
/// calling thread may go on to other tests, so it is left where it is.
pub fn on<T: Send>(core: usize, f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            run_on(core);
            f()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
