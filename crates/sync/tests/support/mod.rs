//! Helpers shared by several tests of squeues.

use sockeye_sync::Inside;
use sockeye_sync::facade::UnsafeCell;

/// A value that only the thread inside one squeue touches. Loom and Miri report an access by two threads at a time, and one
/// that does not see the last owner's changes.
pub struct Guarded<V>(UnsafeCell<V>);

// SAFETY: the value is reached with the proof of being inside alone, which one thread has at a time.
unsafe impl<V: Send> Sync for Guarded<V> {}

impl<V> Guarded<V> {
    pub fn new(value: V) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Calls `f` with the value. The caller is inside the squeue that the value belongs to.
    pub fn with<T, R>(&self, _inside: &mut Inside<'_, T>, f: impl FnOnce(&mut V) -> R) -> R {
        // SAFETY: each test has one squeue for each value, and there is one `Inside` of it at a time.
        self.0.with_mut(|value| f(unsafe { &mut *value }))
    }
}
