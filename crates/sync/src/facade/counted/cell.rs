//! Cells whose accesses are reported.
//!
//! The content of a cell counts as one line, the first: which of its lines are touched is not seen from here. Does
//! not depend on which thread may open a cell. Tests: `apps/bench-counted/tests/words.rs`.

use core::cell;
use std::sync;

use crate::count::{self, Site, What};

/// A cell whose contents are reached through closures, so that each access is seen.
#[derive(Debug)]
#[repr(transparent)]
pub struct UnsafeCell<T>(cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell holding `value`.
    pub const fn new(value: T) -> Self {
        Self(cell::UnsafeCell::new(value))
    }

    /// Runs `f` on a pointer that may be read while no thread writes.
    #[inline]
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        count::read(self, What::Guarded, Site::here());
        f(self.0.get())
    }

    /// Runs `f` on a pointer that may be written while no other thread reads or writes.
    #[inline]
    #[track_caller]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        count::wrote(self, What::Guarded, Site::here());
        f(self.0.get())
    }

    /// The value itself.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// As the machine's; see the head of `counted.rs`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct OnceLock<T>(sync::OnceLock<T>);

impl<T> OnceLock<T> {
    /// Empty.
    pub const fn new() -> Self {
        Self(sync::OnceLock::new())
    }

    /// The value, if there is one.
    #[inline]
    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        count::read(self, What::Word, Site::here());
        self.0.get()
    }

    /// Fills it, unless it is full.
    ///
    /// # Errors
    /// `value`, if it was full.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        // A full one is not written, and stays full.
        if self.get().is_some() {
            return Err(value);
        }
        count::wrote(self, What::Word, Site::here());
        self.0.set(value)
    }

    /// Empties it.
    pub fn take(&mut self) -> Option<T> {
        self.0.take()
    }

    /// The value, made by `f` if there is none. May block while another thread makes it.
    #[inline]
    #[track_caller]
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        count::wrote(self, What::Word, Site::here());
        self.0.get_or_init(f)
    }
}
