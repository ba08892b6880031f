//! Reference counts whose changes are reported.
//!
//! The counts stand in front of the value, both on one line: the layout of `std`'s `Arc` today (two words, then the
//! value at its alignment). Nothing but the place that is reported rests on that. A count that goes down is reported in the
//! name of the value's type, since the place where a value is dropped is not known to its `drop`.
//!
//! Does not depend on the counted types. Invariant: the effect of the machine's, and a report. Unlike the
//! machine's it is no receiver of methods (`self: &Arc<Self>`). Tests: `apps/bench-counted/tests/words.rs`.

use core::mem::MaybeUninit;
use core::ops::Deref;
use std::sync;

use crate::count::{self, Site, What};

/// As the machine's; see the head of the file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Arc<T: ?Sized>(sync::Arc<T>);

/// As the machine's; see the head of the file.
#[derive(Debug)]
#[repr(transparent)]
pub struct Weak<T>(sync::Weak<T>);

/// Bytes of the two counts in front of the value, if its alignment wants no more.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// Where the counts of the value at `value` stand.
fn counts_of<T: ?Sized>(value: *const T, align: usize) -> *const u8 {
    value.cast::<u8>().wrapping_sub(COUNTS_BYTES.next_multiple_of(align))
}

impl<T> Arc<T> {
    /// `value` on the heap, with one reference to it.
    pub fn new(value: T) -> Self {
        Self(sync::Arc::new(value))
    }

    /// Memory for a value.
    pub fn new_uninit() -> Arc<MaybeUninit<T>> {
        Arc(sync::Arc::new_uninit())
    }

    /// The value, if this is the only reference.
    ///
    /// # Errors
    /// `this`, if there are others.
    #[track_caller]
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        this.report(Site::here());
        sync::Arc::try_unwrap(this.into_machine()).map_err(Self)
    }

    /// The pointer behind, with the count that it stands for.
    #[must_use = "the count is lost unless the pointer comes back"]
    pub fn into_raw(this: Self) -> *const T {
        sync::Arc::into_raw(this.into_machine())
    }

    /// The reference that `into_raw` took apart.
    ///
    /// # Safety
    /// As for the machine's.
    pub unsafe fn from_raw(value: *const T) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { sync::Arc::from_raw(value) })
    }

    /// One reference more.
    ///
    /// # Safety
    /// As for the machine's.
    #[track_caller]
    pub unsafe fn increment_strong_count(value: *const T) {
        count::wrote(counts_of(value, align_of::<T>()), What::References, Site::here());
        // SAFETY: the caller's promise.
        unsafe { sync::Arc::increment_strong_count(value) };
    }

    /// A reference that does not keep the value.
    #[track_caller]
    pub fn downgrade(this: &Self) -> Weak<T> {
        this.report(Site::here());
        Weak(sync::Arc::downgrade(&this.0))
    }

    /// The machine's reference, without a change of its count.
    fn into_machine(self) -> sync::Arc<T> {
        let value = sync::Arc::as_ptr(&self.0);
        core::mem::forget(self);
        // SAFETY: the count of the reference that was forgotten is the one that is taken over.
        unsafe { sync::Arc::from_raw(value) }
    }
}

/// The reference as one to a type without a size, a trait object: `unsize(arc, |arc| arc)`.
pub fn unsize<T, U: ?Sized>(arc: Arc<T>, coerce: impl FnOnce(sync::Arc<T>) -> sync::Arc<U>) -> Arc<U> {
    Arc(coerce(arc.into_machine()))
}

impl<T> Arc<MaybeUninit<T>> {
    /// The reference to the value that has been written.
    ///
    /// # Safety
    /// As for the machine's.
    pub unsafe fn assume_init(self) -> Arc<T> {
        // SAFETY: the caller's promise.
        Arc(unsafe { self.into_machine().assume_init() })
    }
}

impl<T: ?Sized> Arc<T> {
    /// Where the value is.
    pub fn as_ptr(this: &Self) -> *const T {
        sync::Arc::as_ptr(&this.0)
    }

    /// Whether both are references to one value.
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        sync::Arc::ptr_eq(&this.0, &other.0)
    }

    /// The value, if this is the only reference.
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        sync::Arc::get_mut(&mut this.0)
    }

    /// How many references keep the value now.
    pub fn strong_count(this: &Self) -> usize {
        sync::Arc::strong_count(&this.0)
    }

    fn report(&self, site: Site) {
        let counts = counts_of(sync::Arc::as_ptr(&self.0), align_of_val(&*self.0));
        count::wrote(counts, What::References, site);
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    #[inline]
    #[track_caller]
    fn clone(&self) -> Self {
        self.report(Site::here());
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Drop for Arc<T> {
    #[inline]
    fn drop(&mut self) {
        self.report(Site::drop_to::<T>());
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Weak<T> {
    /// Where the value is or was.
    pub fn as_ptr(&self) -> *const T {
        self.0.as_ptr()
    }

    /// The value, kept from now on, if it is still there.
    #[track_caller]
    pub fn upgrade(&self) -> Option<Arc<T>> {
        self.report(Site::here());
        self.0.upgrade().map(Arc)
    }

    fn report(&self, site: Site) {
        count::wrote(counts_of(self.0.as_ptr(), align_of::<T>()), What::References, site);
    }
}

impl<T> Clone for Weak<T> {
    #[inline]
    #[track_caller]
    fn clone(&self) -> Self {
        self.report(Site::here());
        Self(self.0.clone())
    }
}

impl<T> Drop for Weak<T> {
    #[inline]
    fn drop(&mut self) {
        self.report(Site::drop_to::<T>());
    }
}
