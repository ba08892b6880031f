//! Keeps the processors of this machine awake while scenarios run.
//!
//! A virtual machine returns an idle processor to its host, and a busy host gives it back late: whatever waits for a timer or a packet is then
//! milliseconds late, and the run is disturbed. So each processor has a thread that runs whenever no other wants to.
//!
//! It does not depend on what runs meanwhile. The threads end with the guard, so a scope that panics does not wait for them for ever. Tests: every
//! scenario runs with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::sys;

/// The processors are kept awake until it is dropped.
pub(super) struct Awake<'scope> {
    is_over: &'scope AtomicBool,
}

impl<'scope> Awake<'scope> {
    /// Starts the threads, which look at `is_over`.
    pub(super) fn new<'env>(scope: &'scope Scope<'scope, 'env>, is_over: &'scope AtomicBool) -> Self {
        // Before the threads: if one cannot be started, the others end.
        let awake = Self { is_over };
        let allowed = sched_getaffinity(None).unwrap_or_default();
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
            scope.spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu);
                // A thread that would compete with others ends instead.
                if sched_setaffinity(None, &only).is_ok() && sys::run_last().is_ok() {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        awake
    }
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
