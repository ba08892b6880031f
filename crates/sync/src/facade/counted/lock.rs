//! Locks whose words and contents are reported.
//!
//! A lock's word is written on the way in and on the way out, and once more by a thread that had to wait. The
//! guarded value counts as one line, the first. Does not depend on its type. Tests: `apps/bench-counted/tests/words.rs`.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use std::time::Instant;

use crate::count::{self, Site, What};
use crate::facade::lock as plain;

/// As that of `lock.rs`; see the head of `counted.rs`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(plain::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(plain::Mutex::new(value))
    }

    /// The value itself.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks it. Blocks.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let (word, site) = (self.word(), Site::here());
        count::wrote(word, What::Lock, site);
        let guard = self.0.try_lock().unwrap_or_else(|| {
            let guard = self.0.lock();
            count::wrote(word, What::Lock, site);
            guard
        });
        MutexGuard { word, site, guard }
    }

    /// Locks it if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let (word, site) = (self.word(), Site::here());
        count::wrote(word, What::Lock, site);
        self.0.try_lock().map(|guard| MutexGuard { word, site, guard })
    }

    /// The value, by the only thread that can see the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    fn word(&self) -> *const u8 {
        // The word is the first of the lock.
        core::ptr::from_ref(&self.0).cast()
    }
}

/// The right to use the value in a [`Mutex`].
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    word: *const u8,
    site: Site,
    // Last: dropped after the report of our `drop`.
    guard: plain::MutexGuard<'a, T>,
}

/// As that of `lock.rs`; see the head of `counted.rs`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Condvar(plain::Condvar);

impl Condvar {
    /// With no thread waiting.
    pub const fn new() -> Self {
        Self(plain::Condvar::new())
    }

    /// Wakes every waiter.
    #[track_caller]
    pub fn notify_all(&self) {
        count::wrote(self, What::Word, Site::here());
        self.0.notify_all();
    }

    /// Unlocks, waits, and locks again. Blocks.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_by(guard, |condvar, guard| condvar.wait(guard))
    }

    /// The same, until `deadline` at most. Blocks.
    #[track_caller]
    pub fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Instant) -> MutexGuard<'a, T> {
        self.wait_by(guard, |condvar, guard| condvar.wait_until(guard, deadline))
    }

    #[track_caller]
    fn wait_by<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        wait: impl FnOnce(&plain::Condvar, plain::MutexGuard<'a, T>) -> plain::MutexGuard<'a, T>,
    ) -> MutexGuard<'a, T> {
        count::wrote(self, What::Word, Site::here());
        guard.report();
        let guard = ManuallyDrop::new(guard);
        let (word, site) = (guard.word, guard.site);
        // SAFETY: the original is never dropped, nor used again.
        let plain = unsafe { core::ptr::read(&guard.guard) };
        let guard = MutexGuard { word, site, guard: wait(&self.0, plain) };
        guard.report();
        guard
    }
}

/// As that of `lock.rs`; see the head of `counted.rs`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RwLock<T: ?Sized>(plain::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(plain::RwLock::new(value))
    }

    /// The value itself.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Shared access, which writes the lock's word like the other. Blocks.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let (word, site) = (self.word(), Site::here());
        count::wrote(word, What::Lock, site);
        RwLockReadGuard { word, site, guard: self.0.read() }
    }

    /// Exclusive access. Blocks.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let (word, site) = (self.word(), Site::here());
        count::wrote(word, What::Lock, site);
        RwLockWriteGuard { word, site, guard: self.0.write() }
    }

    /// The value, by the only thread that can see the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    fn word(&self) -> *const u8 {
        // The word is the first of the lock.
        core::ptr::from_ref(&self.0).cast()
    }
}

/// The right to read the value in a [`RwLock`].
#[must_use]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    word: *const u8,
    site: Site,
    guard: plain::RwLockReadGuard<'a, T>,
}

/// The right to use the value in a [`RwLock`].
#[must_use]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    word: *const u8,
    site: Site,
    guard: plain::RwLockWriteGuard<'a, T>,
}

/// Common parts of the three guards.
macro_rules! guard {
    ($name:ident) => {
        impl<T: ?Sized> $name<'_, T> {
            /// Reports a write of the lock's word, in the name of the thread that locked it.
            fn report(&self) {
                count::wrote(self.word, What::Lock, self.site);
            }
        }

        impl<T: ?Sized> Drop for $name<'_, T> {
            fn drop(&mut self) {
                self.report();
            }
        }

        impl<T: ?Sized> Deref for $name<'_, T> {
            type Target = T;

            #[inline]
            #[track_caller]
            fn deref(&self) -> &T {
                count::read(&raw const *self.guard, What::Guarded, Site::here());
                &self.guard
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.guard.fmt(f)
            }
        }
    };
}

/// Common parts of the two guards that permit writes.
macro_rules! mutable_guard {
    ($name:ident) => {
        impl<T: ?Sized> DerefMut for $name<'_, T> {
            #[inline]
            #[track_caller]
            fn deref_mut(&mut self) -> &mut T {
                count::wrote(&raw const *self.guard, What::Guarded, Site::here());
                &mut self.guard
            }
        }
    };
}

guard!(MutexGuard);
guard!(RwLockReadGuard);
guard!(RwLockWriteGuard);
mutable_guard!(MutexGuard);
mutable_guard!(RwLockWriteGuard);
