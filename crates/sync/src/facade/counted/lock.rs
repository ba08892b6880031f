//! Locks whose words and contents are reported.
//!
//! A lock's word is written on the way in and on the way out, and once more by who had to wait. What it guards counts
//! as one line, the first. Must not know what is guarded. Tests: `tests/count.rs`.

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::time::Instant;

use parking_lot::WaitTimeoutResult;

use crate::count::{self, Site, What};

/// As `parking_lot`'s; see the head of `counted.rs`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
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

    /// The value, by the only one who can see the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    fn word(&self) -> *const u8 {
        // SAFETY: the lock is not operated on; only its address is used.
        let raw = unsafe { self.0.raw() };
        core::ptr::from_ref(raw).cast()
    }
}

/// The right to use what a [`Mutex`] guards.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    word: *const u8,
    site: Site,
    // Last: dropped after the report of our `drop`.
    guard: parking_lot::MutexGuard<'a, T>,
}

/// As `parking_lot`'s; see the head of `counted.rs`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// With nobody waiting.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Wakes one waiter.
    #[track_caller]
    pub fn notify_one(&self) -> bool {
        count::wrote(self, What::Word, Site::here());
        self.0.notify_one()
    }

    /// Wakes every waiter, and says how many there were.
    #[track_caller]
    pub fn notify_all(&self) -> usize {
        count::wrote(self, What::Word, Site::here());
        self.0.notify_all()
    }

    /// Unlocks, waits, and locks again. Blocks.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        count::wrote(self, What::Word, Site::here());
        guard.report();
        self.0.wait(&mut guard.guard);
        guard.report();
    }

    /// The same, until `deadline` at most. Blocks.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        count::wrote(self, What::Word, Site::here());
        guard.report();
        let result = self.0.wait_until(&mut guard.guard, deadline);
        guard.report();
        result
    }
}

/// As `parking_lot`'s; see the head of `counted.rs`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
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

    /// The value, by the only one who can see the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    fn word(&self) -> *const u8 {
        // SAFETY: the lock is not operated on; only its address is used.
        let raw = unsafe { self.0.raw() };
        core::ptr::from_ref(raw).cast()
    }
}

/// The right to look at what a [`RwLock`] guards.
#[must_use]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    word: *const u8,
    site: Site,
    guard: parking_lot::RwLockReadGuard<'a, T>,
}

/// The right to use what a [`RwLock`] guards.
#[must_use]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    word: *const u8,
    site: Site,
    guard: parking_lot::RwLockWriteGuard<'a, T>,
}

/// What the three guards have in common.
macro_rules! guard {
    ($name:ident) => {
        impl<T: ?Sized> $name<'_, T> {
            /// Reports a write of the lock's word, in the name of whoever locked it.
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

/// What the two guards have in common through which one may write.
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
