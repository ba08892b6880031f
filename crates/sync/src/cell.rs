//! The cell that opens only with the proof of being inside.
//!
//! For state that only those inside touch: `&mut` to it cannot be had without the `Inside` of its own perimeter, so what works
//! on it is ordinary single-threaded Rust. (A pcb is also reached from outside, by who holds a mutex: it stands under that.)
//!
//! # Why a reference is unique
//!
//! A cell names its home perimeter for life. Names are never used twice, and there is one `Inside`
//! per perimeter at a time (head of `perimeter.rs`). The reference borrows that `Inside` mutably,
//! so while it lives the same thread opens no other cell of the same perimeter, and no other
//! thread has the proof. Entering a perimeter acquires what the last owner released, so the
//! contents are seen as they were left.
//!
//! This file must not know what is in the cell. Tests: below, and `tests/loom`.

use core::ptr;

use crate::facade::UnsafeCell;
use crate::perimeter::{Inside, PerimeterId};

/// A value that belongs to a perimeter.
#[derive(Debug)]
pub struct PerimeterCell<V> {
    /// (c)
    home: PerimeterId,
    /// (p)
    value: UnsafeCell<V>,
}

// SAFETY: a shared cell hands out its value only to the thread inside the home perimeter, one at a
// time, which amounts to sending the value from thread to thread.
unsafe impl<V: Send> Sync for PerimeterCell<V> {}

impl<V> PerimeterCell<V> {
    /// A cell of the perimeter named `home`.
    pub fn new(home: PerimeterId, value: V) -> Self {
        Self { home, value: UnsafeCell::new(value) }
    }

    /// The perimeter that the cell belongs to.
    pub fn home(&self) -> PerimeterId {
        self.home
    }

    /// Opens the cell.
    ///
    /// # Panics
    /// If `inside` is the proof of another perimeter, which is a bug of the caller.
    #[inline]
    #[track_caller]
    #[allow(clippy::mut_from_ref, reason = "the proof is what is borrowed mutably")]
    pub fn get<'a, T>(&'a self, inside: &'a mut Inside<'_, T>) -> &'a mut V {
        self.assert_home(inside.id());
        // SAFETY: by the head of the file the proof makes this the one reference, for as long as
        // the proof is borrowed.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Opens two cells of one perimeter: a listener's and its child's.
    ///
    /// # Panics
    /// If one of them belongs to another perimeter, or both are the same cell.
    #[track_caller]
    #[allow(clippy::mut_from_ref, reason = "the proof is what is borrowed mutably")]
    pub fn get_pair<'a, W, T>(
        &'a self,
        other: &'a PerimeterCell<W>,
        inside: &'a mut Inside<'_, T>,
    ) -> (&'a mut V, &'a mut W) {
        self.assert_home(inside.id());
        other.assert_home(inside.id());
        assert!(!ptr::addr_eq(ptr::from_ref(self), ptr::from_ref(other)), "a cell cannot be opened twice");
        // SAFETY: as in `get`; the assertion above keeps the two references apart.
        let value = self.value.with_mut(|value| unsafe { &mut *value });
        // SAFETY: as above.
        let other = other.value.with_mut(|value| unsafe { &mut *value });
        (value, other)
    }

    /// Opens a cell that nobody else can see.
    pub fn get_mut(&mut self) -> &mut V {
        // SAFETY: `&mut self` is unique.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// The value itself.
    pub fn into_inner(self) -> V {
        self.value.into_inner()
    }

    #[inline]
    #[track_caller]
    fn assert_home(&self, id: PerimeterId) {
        assert!(self.home == id, "the cell belongs to another perimeter");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::perimeter::Perimeter;

    #[test]
    fn opens_with_the_proof_of_its_perimeter() {
        let perimeter = Perimeter::<()>::new();
        let cell = PerimeterCell::new(perimeter.id(), 1);
        let mut inside = perimeter.try_enter().expect("free");
        *cell.get(&mut inside) += 1;
        assert_eq!(*cell.get(&mut inside), 2);
        assert!(inside.leave().is_ok());
        assert_eq!(cell.into_inner(), 2);
    }

    #[test]
    #[should_panic(expected = "another perimeter")]
    fn stays_shut_with_the_proof_of_another() {
        let (home, other) = (Perimeter::<()>::new(), Perimeter::<()>::new());
        let cell = PerimeterCell::new(home.id(), 1);
        let mut inside = other.try_enter().expect("free");
        let _value = cell.get(&mut inside);
    }

    #[test]
    fn a_pair_opens_together() {
        let perimeter = Perimeter::<()>::new();
        let listener = PerimeterCell::new(perimeter.id(), vec![0]);
        let child = PerimeterCell::new(perimeter.id(), 7);
        let mut inside = perimeter.try_enter().expect("free");
        let (list, number) = listener.get_pair(&child, &mut inside);
        list.push(*number);
        *number = 8;
        assert_eq!((listener.get(&mut inside).len(), *child.get(&mut inside)), (2, 8));
        assert!(inside.leave().is_ok());
    }

    #[test]
    #[should_panic(expected = "opened twice")]
    fn a_pair_is_two_cells() {
        let perimeter = Perimeter::<()>::new();
        let cell = PerimeterCell::new(perimeter.id(), 1);
        let mut inside = perimeter.try_enter().expect("free");
        let _values = cell.get_pair(&cell, &mut inside);
    }
}
