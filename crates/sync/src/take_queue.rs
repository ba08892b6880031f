//! A queue whose takers wait in a list: an item wakes one of them, where one wait queue for all would wake all of them.
//!
//! Everything here is called under one mutex, the owner's; the type has none of its own.
//!
//! # States
//!
//! A taker that finds nothing is *waiting* (on the list). A taker that is notified becomes *coming* (off the list) until it looks again.
//!
//! | from | to | by, under the mutex |
//! |---|---|---|
//! | - | waiting | the taker: nothing is queued |
//! | waiting | coming | the thread that pushes an item, or announces that there will be none |
//! | coming | - | the taker, when it looks or leaves |
//!
//! # Why no item is left behind
//!
//! While a taker is on the list, at least as many takers are coming as items are queued:
//!
//! * A taker joins the list only when nothing is queued.
//! * A push with a taker on the list adds one item and one that is coming.
//! * A coming taker that looks takes an item. If there is none, a running thread was faster and the queue is empty.
//! * A coming taker that leaves without a look notifies another, if anything is queued.
//!
//! The last taker to wait is notified first: its cache is warmest, and it may still be spinning.
//!
//! Items are taken in the order in which they came. Bound: none of its own; the owner bounds the queue. Does
//! not depend on the queued items. Tests: below, `tests/loom/take_queue.rs`.

use std::collections::VecDeque;

use crate::facade::Arc;
use crate::wait::{Ticket, WaitQueue};

/// See the module's head.
#[derive(Debug)]
pub struct TakeQueue<T> {
    items: VecDeque<T>,
    /// Takers that wait, each on a queue of its own.
    takers: Vec<Arc<WaitQueue>>,
}

impl<T> TakeQueue<T> {
    /// Nothing is queued and no thread waits.
    pub const fn new() -> Self {
        Self { items: VecDeque::new(), takers: Vec::new() }
    }

    /// How many items are queued.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All that is queued, oldest first. Takers that wait go on waiting.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.items.drain(..)
    }

    /// All that is queued, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// Queues an item. The taker that comes back is owed a [`WaitQueue::wake`].
    pub fn push(&mut self, item: T) -> Option<Arc<WaitQueue>> {
        self.items.push_back(item);
        self.tell_last()
    }

    /// The oldest item, or `None`.
    pub fn take(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// The oldest item, or a ticket to wait with on `taker`, the caller's own queue, before it looks again.
    ///
    /// # Errors
    /// The ticket: nothing is queued.
    pub fn take_or_wait(&mut self, taker: &Arc<WaitQueue>) -> Result<T, Ticket> {
        // It may have been woken by something else, and be on the list still.
        self.forget(taker);
        self.items.pop_front().ok_or_else(|| {
            self.takers.push(Arc::clone(taker));
            taker.prepare()
        })
    }

    /// A taker that has waited will not look again. The taker that comes back is owed a [`WaitQueue::wake`].
    pub fn leave(&mut self, taker: &Arc<WaitQueue>) -> Option<Arc<WaitQueue>> {
        self.forget(taker);
        if self.items.is_empty() { None } else { self.tell_last() }
    }

    /// Tells all takers to look again: nothing more will come. Each that comes back is owed a [`WaitQueue::wake`].
    pub fn tell_all(&mut self) -> Vec<Arc<WaitQueue>> {
        self.takers.drain(..).filter(|taker| taker.notify().is_wake_owed()).collect()
    }

    fn forget(&mut self, taker: &Arc<WaitQueue>) {
        self.takers.retain(|waiting| !Arc::ptr_eq(waiting, taker));
    }

    fn tell_last(&mut self) -> Option<Arc<WaitQueue>> {
        self.takers.pop().filter(|taker| taker.notify().is_wake_owed())
    }
}

impl<T> Default for TakeQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn taker() -> Arc<WaitQueue> {
        Arc::new(WaitQueue::new())
    }

    /// A taker of an empty queue, which counts as asleep from now on.
    fn waiting(queue: &mut TakeQueue<u32>) -> Arc<WaitQueue> {
        let taker = taker();
        let ticket = queue.take_or_wait(&taker).expect_err("nothing is queued");
        assert!(taker.announce(ticket));
        taker
    }

    #[test]
    fn items_are_taken_in_order() {
        let mut queue = TakeQueue::new();
        (0..3).for_each(|item| assert!(queue.push(item).is_none()));
        assert_eq!((queue.take(), queue.take_or_wait(&taker()), queue.len()), (Some(0), Ok(1), 1));
        assert!(queue.drain().eq([2]));
        assert!(queue.is_empty() && queue.take().is_none());
    }

    #[test]
    fn each_item_wakes_one_taker_the_last_first() {
        let mut queue = TakeQueue::new();
        let [first, last] = [waiting(&mut queue), waiting(&mut queue)];
        assert!(Arc::ptr_eq(&queue.push(1).expect("a wake"), &last));
        assert!(Arc::ptr_eq(&queue.push(2).expect("a wake"), &first));
        assert!(queue.push(3).is_none());
    }

    #[test]
    fn a_notified_taker_that_leaves_notifies_another() {
        let mut queue = TakeQueue::new();
        let [first, last] = [waiting(&mut queue), waiting(&mut queue)];
        assert!(queue.push(1).is_some());
        assert!(Arc::ptr_eq(&queue.leave(&last).expect("a wake"), &first));
        assert!(queue.leave(&first).is_none(), "no other taker waits");
    }

    #[test]
    fn a_taker_that_leaves_unnotified_gets_no_notification() {
        let mut queue = TakeQueue::new();
        let taker = waiting(&mut queue);
        assert!(queue.leave(&taker).is_none());
        assert!(queue.push(1).is_none());
    }

    #[test]
    fn all_takers_are_notified_of_the_end() {
        let mut queue = TakeQueue::<u32>::new();
        let _takers = [waiting(&mut queue), waiting(&mut queue)];
        assert_eq!(queue.tell_all().len(), 2);
        assert!(queue.tell_all().is_empty());
    }
}
