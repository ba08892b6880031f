//! `std`'s locks without poisoning: a panic unlocks, and the next thread to lock sees the value as it was
//! left.
//!
//! Not `parking_lot`'s, which keep waiting threads in a table of the process: a child of fork(2) may inherit a locked bucket of it, and
//! then hangs in a lock of its own. A lock of `std` is one futex word and knows no other lock.
//!
//! Does not depend on the guarded value. Invariant: each type has the size and the layout of `std`'s. Tests: at the end
//! of `facade.rs`, `crates/drivers/tests/fork`.

use std::sync::{self, PoisonError, TryLockError};
use std::time::Instant;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A mutex. Not fair, not recursive.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// The value itself.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks it. **Blocks**.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it if it is free. Never blocks.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, by the only one that can see the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// With no thread waiting.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks, waits, and locks again. **Blocks**; may return early.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, until `deadline` at most. The caller looks at its condition again either way.
    pub fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Instant) -> MutexGuard<'a, T> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.0.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A read-write lock.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// The value itself.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Shared access. **Blocks**.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exclusive access. **Blocks**.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, by the only one that can see the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
