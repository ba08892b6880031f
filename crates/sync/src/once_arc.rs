//! A reference that is set once and then lent without counting: eight bytes, where a `OnceLock` of an `Arc` takes
//! sixteen.
//!
//! # States, in one pointer
//! Null: not set. Anything else: one strong reference, which the cell owns until it is dropped. Only
//! [`OnceArc::get_or_set`] leaves null, by one compare-exchange, and nothing but the drop (which has the cell for
//! itself) ever leaves the other state. So the value that [`OnceArc::get`] has seen stays for as long as the cell is
//! borrowed, and a [`Lent`] borrows it. A thread that loses the race to set it drops its own and takes the one
//! there.
//!
//! Tests: below, `tests/loom/once_arc.rs`.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;

use crate::facade::{Arc, AtomicPtr, Ordering};

/// A place for one `Arc`, set at most once.
pub struct OnceArc<T> {
    /// (a) Null, or of `Arc::into_raw`.
    place: AtomicPtr<T>,
    /// Owns an `Arc`, as far as `Send` and `Sync` go.
    owned: PhantomData<Arc<T>>,
}

/// The `Arc` of a [`OnceArc`], not counted.
pub struct Lent<'a, T> {
    arc: ManuallyDrop<Arc<T>>,
    cell: PhantomData<&'a OnceArc<T>>,
}

impl<T> OnceArc<T> {
    /// Not set.
    pub fn new() -> Self {
        Self { place: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
    }

    /// The value that it was set to.
    #[inline]
    pub fn get(&self) -> Option<Lent<'_, T>> {
        // Acquire, with the exchange of `get_or_set`: its target was made before.
        let raw = self.place.load(Ordering::Acquire);
        // SAFETY: by the head of the file, the cell owns the reference at least as long as it is borrowed.
        (!raw.is_null()).then(|| unsafe { lend(raw) })
    }

    /// Sets it to `arc`, unless it is set already. Returns the value that is set now.
    pub fn get_or_set(&self, arc: Arc<T>) -> Lent<'_, T> {
        let ours = Arc::into_raw(arc).cast_mut();
        // Release, for the acquire of `get`; acquire, for the value that a faster thread has set.
        match self.place.compare_exchange(ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the cell has the reference from here on.
            Ok(_) => unsafe { lend(ours) },
            Err(theirs) => {
                // SAFETY: `ours` came from `into_raw` above and went nowhere.
                drop(unsafe { Arc::from_raw(ours) });
                // SAFETY: the cell has had this one since it was set.
                unsafe { lend(theirs) }
            }
        }
    }
}

/// # Safety
/// `raw` is of `Arc::into_raw`, and its reference is not given up during `'a`.
unsafe fn lend<'a, T>(raw: *const T) -> Lent<'a, T> {
    // SAFETY: the caller's promise; `ManuallyDrop` gives up no reference.
    Lent { arc: ManuallyDrop::new(unsafe { Arc::from_raw(raw) }), cell: PhantomData }
}

impl<T> Default for OnceArc<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for OnceArc<T> {
    fn drop(&mut self) {
        // Relaxed: the thread that drops the cell has it for itself.
        let raw = self.place.load(Ordering::Relaxed);
        if !raw.is_null() {
            // SAFETY: the cell owns this reference, and ends here.
            drop(unsafe { Arc::from_raw(raw) });
        }
    }
}

impl<T> Deref for Lent<'_, T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.arc
    }
}

impl<T> fmt::Debug for OnceArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceArc").field("is_set", &self.get().is_some()).finish()
    }
}

impl<T> fmt::Debug for Lent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_set_once_lends_uncounted_references_and_drops_its_value() {
        let (first, second) = (Arc::new(1), Arc::new(2));
        let cell = OnceArc::new();
        assert!(cell.get().is_none());
        assert!(Arc::ptr_eq(&cell.get_or_set(Arc::clone(&first)), &first));
        assert!(Arc::ptr_eq(&cell.get_or_set(Arc::clone(&second)), &first), "it stays");
        let lent = cell.get().unwrap();
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 1));
        assert_eq!((**lent, *Arc::clone(&lent)), (1, 1));
        drop(cell);
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    fn a_once_arc_is_one_word() {
        assert_eq!(size_of::<OnceArc<u64>>(), size_of::<usize>());
    }
}
