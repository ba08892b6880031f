//! The squeue's word taken apart: the head of a list and three flags in one pointer.
//!
//! Only arithmetic; which thread may change the word, and how, is at the head of
//! `squeue.rs`. Node addresses are multiples of eight, so the flags have the low bits.

use core::ptr;

use super::Load;
use crate::node::Node;

/// One value of the word.
pub(super) struct Word<T>(*mut Node<Load<T>>);

impl<T> Clone for Word<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Word<T> {}

impl<T> Word<T> {
    pub(super) const FREE: Self = Self(ptr::null_mut());
    pub(super) const INSIDE: Self = Self(ptr::without_provenance_mut(OWNED));
    pub(super) const DEAD: Self = Self(ptr::without_provenance_mut(OWNED | POISONED));

    pub(super) fn from_raw(raw: *mut Node<Load<T>>) -> Self {
        Self(raw)
    }

    pub(super) fn raw(self) -> *mut Node<Load<T>> {
        self.0
    }

    /// The newest node, or null.
    pub(super) fn list(self) -> *mut Node<Load<T>> {
        self.0.map_addr(|addr| addr & !FLAGS)
    }

    pub(super) fn is_free(self) -> bool {
        self.0.addr() & OWNED == 0
    }

    pub(super) fn is_scheduled(self) -> bool {
        self.0.addr() & (OWNED | SCHEDULED) == OWNED | SCHEDULED
    }

    pub(super) fn is_poisoned(self) -> bool {
        self.0.addr() & POISONED != 0
    }

    /// The same flags over the list that begins with `newest`.
    pub(super) fn with_list(self, newest: *mut Node<Load<T>>) -> Self {
        let flags = self.0.addr() & FLAGS;
        Self(newest.map_addr(|addr| addr | flags))
    }

    pub(super) fn scheduled(self) -> Self {
        Self(self.0.map_addr(|addr| addr | OWNED | SCHEDULED))
    }

    pub(super) fn off_paper(self) -> Self {
        Self(self.0.map_addr(|addr| addr & !SCHEDULED))
    }
}

/// A thread owns the squeue.
const OWNED: usize = 1;
/// The owner is not inside: the ownership waits for `resume`.
const SCHEDULED: usize = 2;
/// The last owner did not leave; there will be no other.
const POISONED: usize = 4;
const FLAGS: usize = OWNED | SCHEDULED | POISONED;
