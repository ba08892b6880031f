//! Queue nodes, and the batch that a consumer takes: the links under the backlog of a socket lock,
//! the run queue and the squeue.
//!
//! A queue of this crate is one word with a list, newest first. Producers push; the one consumer
//! takes the whole list at once and turns it round. Nothing is ever unlinked from the middle, and
//! a push never looks inside the node it pushes onto, so a recycled address (ABA) does no harm: the
//! compare-exchange that succeeds has proved that the address *is* the head of the list now.
//!
//! Owner of a node, and thereby the only thread that touches its fields:
//! * the producer, from [`Node::boxed`] until the push publishes it (release);
//! * the consumer, from taking the list (acquire) until [`Node::unbox`].
//!
//! This file does not depend on the word that the list hangs on. Its memory comes from `block.rs`. Tests:
//! those of the queues, `tests/loom`.

use core::ptr;

use crate::block;
use crate::facade::UnsafeCell;

/// One link of a queue. Aligned so that a word pointing to it has three low bits to spare.
#[repr(C, align(8))]
pub(crate) struct Node<T> {
    next: UnsafeCell<*mut Node<T>>,
    load: UnsafeCell<T>,
}

impl<T> Node<T> {
    /// A node of its own memory, linked to nothing.
    pub(crate) fn boxed(load: T) -> *mut Self {
        block::put(Self { next: UnsafeCell::new(ptr::null_mut()), load: UnsafeCell::new(load) })
    }

    /// Takes the load out and gives the memory back.
    ///
    /// # Safety
    /// `node` came from [`Node::boxed`], the caller owns it, and never uses it again.
    pub(crate) unsafe fn unbox(node: *mut Self) -> T {
        // SAFETY: the caller owns the node, which came from `block::put`, and gives it up.
        let node = unsafe { block::take(node) };
        node.load.into_inner()
    }

    /// The node after this one.
    ///
    /// # Safety
    /// The caller owns `node`.
    pub(crate) unsafe fn next(node: *mut Self) -> *mut Self {
        // SAFETY: owned by the caller, hence alive.
        let node = unsafe { &*node };
        // SAFETY: owned by the caller, hence no other thread writes the link now.
        node.next.with(|next| unsafe { *next })
    }

    /// Links `node` to `next`.
    ///
    /// # Safety
    /// The caller owns `node`.
    pub(crate) unsafe fn link(node: *mut Self, next: *mut Self) {
        // SAFETY: owned by the caller, hence alive.
        let node = unsafe { &*node };
        // SAFETY: owned by the caller, hence no other thread looks at the link now.
        node.next.with_mut(|link| unsafe { *link = next });
    }

    /// The item of `node`.
    ///
    /// # Safety
    /// The caller owns `node` and keeps it for `'a`.
    #[cfg(feature = "experiments")]
    pub(crate) unsafe fn load<'a>(node: *mut Self) -> &'a T {
        // SAFETY: owned by the caller for 'a, hence alive.
        let node = unsafe { &*node };
        let load = node.load.with(|load| load);
        // SAFETY: owned by the caller for 'a, hence no other thread writes the load in that time.
        unsafe { &*load }
    }
}

/// Turns a list, newest first, into one with the oldest first. Returns how many nodes it has, too.
///
/// # Safety
/// The caller owns every node of the list.
pub(crate) unsafe fn reverse<T>(mut newest: *mut Node<T>) -> (*mut Node<T>, usize) {
    let (mut oldest, mut count) = (ptr::null_mut(), 0);
    while !newest.is_null() {
        // SAFETY: part of the list, which the caller owns.
        let older = unsafe { Node::next(newest) };
        // SAFETY: as above.
        unsafe { Node::link(newest, oldest) };
        oldest = newest;
        newest = older;
        count += 1;
    }
    (oldest, count)
}

/// Items taken from a queue, oldest first: an owning iterator.
///
/// Dropping it drops the items that were not iterated.
pub struct Batch<T> {
    head: *mut Node<T>,
}

// SAFETY: a batch owns its nodes and the items in them, so it may go wherever the items may.
unsafe impl<T: Send> Send for Batch<T> {}

impl<T> Batch<T> {
    /// A batch of this list.
    ///
    /// # Safety
    /// The caller gives up the list, oldest first.
    pub(crate) unsafe fn from_list(head: *mut Node<T>) -> Self {
        Self { head }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
    }
}

impl<T> Iterator for Batch<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let node = self.head;
        if node.is_null() {
            return None;
        }
        // SAFETY: the batch owns its nodes.
        self.head = unsafe { Node::next(node) };
        // SAFETY: as above, and the batch has just forgotten this one.
        Some(unsafe { Node::unbox(node) })
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        for item in self {
            drop(item);
        }
    }
}

impl<T> core::fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Batch").field("is_empty", &self.is_empty()).finish()
    }
}
