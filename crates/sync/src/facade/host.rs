//! The machine itself: the atomics and locks of `std`.
//!
//! This file must not depend on any protocol. Its invariants: the same names with the same meaning as
//! `model.rs` and `counted.rs`; a word or lock *is* the machine's own type, not one around it, so that a normal
//! build pays nothing for the other two. Tests: at the end of `facade.rs`, and through the users of the facade.

pub use super::lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
// A type of its own for the model's sake: see there.
pub use super::lock::{Mutex as TryMutex, MutexGuard as TryMutexGuard};
pub use std::hint::spin_loop;
pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
// Types of their own where writes are counted: see there.
pub use std::sync::atomic::{AtomicU16 as ShortLockWord, AtomicU32 as LockWord};
pub use std::sync::{Arc, OnceLock, Weak};
pub use std::thread;
pub use std::thread_local;

use std::sync::atomic;

/// The reference as one to a type without a size, a trait object: `unsize(arc, |arc| arc)`.
#[inline(always)]
pub fn unsize<T, U: ?Sized>(arc: Arc<T>, coerce: impl FnOnce(Arc<T>) -> Arc<U>) -> Arc<U> {
    coerce(arc)
}

/// A cell whose contents are reached through closures, so that a checker can watch each access.
#[derive(Debug)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell holding `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Runs `f` on a pointer that may be read while no thread writes.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Runs `f` on a pointer that may be written while no other thread reads or writes.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    /// The value itself.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// The word under `word`.
#[inline(always)]
pub(super) fn raw(word: &AtomicU32) -> &atomic::AtomicU32 {
    word
}

/// Says that memory that is handed round, of which `_place` is the first byte, is being written. There is no listener
/// here.
#[inline(always)]
pub fn memory_written<T: ?Sized>(_place: *const T) {}

/// Says that memory that is handed round, of which `_place` is the first byte, is being read. There is no listener
/// here.
#[inline(always)]
pub fn memory_read<T: ?Sized>(_place: *const T) {}
