//! The only source of atomics, locks, thread locals and the system's memory: those of `sockeye-sync`'s facade and `std`, or loom's models of them under
//! `cfg(loom)`.
//!
//! It does not depend on the code built on it. Invariant: `cluster`, `magazine`, `depot`, `experiments/remote_list`, `quota` and `cache`,
//! whose races are modelled, take their primitives from here only. Statistics, which order nothing, are never modelled, so that models stay
//! small. Tests: the models at the ends of those files, and `experiments/remote_free/models.rs`.

#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(loom)]
pub(crate) use modelled::*;

#[cfg(not(loom))]
mod real {
    pub(crate) use std::alloc::{alloc, dealloc};
    pub(crate) use std::thread_local;

    #[cfg(feature = "experiments")]
    pub(crate) use sockeye_sync::facade::AtomicPtr;
    pub(crate) use sockeye_sync::facade::{AtomicU32, AtomicUsize, Condvar, Mutex, Ordering, fence};
    pub(crate) use sockeye_sync::facade::{memory_read, memory_written};
}

#[cfg(loom)]
mod modelled {
    use std::time::Instant;

    // They report blocks that are leaked, or given back twice.
    pub(crate) use loom::alloc::{alloc, dealloc};
    pub(crate) use loom::sync::MutexGuard;
    #[cfg(feature = "experiments")]
    pub(crate) use loom::sync::atomic::AtomicPtr;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

    /// loom's thread locals, in the one form that this crate uses: loom does not know the `const` block.
    macro_rules! model_thread_local {
        ($(#[$meta:meta])* static $name:ident: $type:ty = const { $init:expr };) => {
            loom::thread_local! { static $name: $type = $init; }
        };
    }
    pub(crate) use model_thread_local as thread_local;

    /// Models do not count.
    pub(crate) fn memory_written<T>(_place: *const T) {}

    /// Models do not count.
    pub(crate) fn memory_read<T>(_place: *const T) {}

    /// loom's mutex without poisoning.
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model thread panicked")
        }
    }

    /// loom's condition variable.
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Default for Condvar {
        fn default() -> Condvar {
            Condvar(loom::sync::Condvar::new())
        }
    }

    impl Condvar {
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).expect("a model thread panicked")
        }

        /// Models have no clock, so a deadline never comes.
        pub(crate) fn wait_until<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            _deadline: Instant,
        ) -> MutexGuard<'a, T> {
            self.wait(guard)
        }
    }
}
