//! The run queue: how squeues that were scheduled reach their worker.
//!
//! Any thread pushes, one takes everything at once. One word with a list, newest first; the
//! argument against recycled addresses stands at the head of `node.rs`.
//!
//! The queue wakes no thread. A producer pushes, then calls `Sleeper::wake_if_sleeping`; the
//! worker calls `prepare_sleep`, then looks here once more. Why that loses nothing stands at the
//! head of `sleeper.rs`.
//!
//! Bound: that of the queue. A squeue is scheduled by one thread and queued once for it.
//!
//! Tests: below, `tests/loom`, `tests/stress.rs`.

use core::fmt;
use core::ptr;

use crate::facade::{AtomicPtr, Ordering};
use crate::node::{Batch, Node, reverse};

/// A queue with many producers and one consumer.
pub struct RunQueue<T> {
    /// (a) Newest first.
    word: AtomicPtr<Node<T>>,
}

// SAFETY: the queue owns its items, which travel to the taking thread. No thread gets a reference.
unsafe impl<T: Send> Send for RunQueue<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for RunQueue<T> {}

impl<T> RunQueue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self { word: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Appends `item`. True if the queue was empty. Never blocks.
    pub fn push(&self, item: T) -> bool {
        let node = Node::boxed(item);
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is ours until the exchange below publishes it.
            unsafe { Node::link(node, seen) };
            // Release: the node's contents, with the acquire of `take_all`.
            match self.word.compare_exchange_weak(seen, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_seen) => return seen.is_null(),
                Err(now) => seen = now,
            }
        }
    }

    /// Everything pushed so far, oldest first. Writes nothing if that is nothing. Never blocks.
    pub fn take_all(&self) -> Batch<T> {
        let newest = if self.is_empty() {
            ptr::null_mut()
        } else {
            // Acquire: the nodes' contents, with the release of every push.
            self.word.swap(ptr::null_mut(), Ordering::Acquire)
        };
        // SAFETY: the exchange made the list ours.
        let (oldest, _) = unsafe { reverse(newest) };
        // SAFETY: as above; items are all that is ever pushed here.
        unsafe { Batch::from_list(oldest) }
    }

    /// Whether nothing was pushed since the last `take_all`, the moment it was looked at.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: the last look before sleeping is ordered by the fence in `prepare_sleep`.
        self.word.load(Ordering::Relaxed).is_null()
    }
}

impl<T> Default for RunQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for RunQueue<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

impl<T> fmt::Debug for RunQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunQueue").field("is_empty", &self.is_empty()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_queue_returns_every_item_once_and_in_order() {
        let queue = RunQueue::new();
        assert!(queue.is_empty());
        assert!(queue.push(1));
        assert!(!queue.push(2));
        assert!(!queue.is_empty());
        assert_eq!(queue.take_all().collect::<Vec<_>>(), [1, 2]);
        assert!(queue.is_empty());
        assert_eq!(queue.take_all().count(), 0);
        assert!(queue.push(3));
    }

    #[test]
    fn the_queue_drops_items_that_were_not_taken() {
        let item = Arc::new(());
        let queue = RunQueue::new();
        queue.push(item.clone());
        queue.push(item.clone());
        let mut batch = queue.take_all();
        assert!(batch.next().is_some());
        queue.push(item.clone());
        drop((queue, batch));
        assert_eq!(Arc::strong_count(&item), 1);
    }
}
