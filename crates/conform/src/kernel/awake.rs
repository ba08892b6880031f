//! Keeps the processors of this machine awake while scenarios run.
//!
//! A virtual machine returns a processor that has nothing to do to its host, which gives it back late when it is busy itself: whatever waits for a
//! timer or a packet is then milliseconds late, and the run is disturbed. So each processor has a thread that runs whenever no other wants to.
//!
//! It does not depend on what runs meanwhile. The threads end with the guard, which ends with the scope's function, also if that panics. Tests: every
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
        Self { is_over }
    }
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
