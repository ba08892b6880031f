//! Being inside: running queued items, and the ways out.
//!
//! Invariants: `taken` of the squeue and the list of waiters here belong to the holder of the
//! `Inside`. There are three ways out and no other: [`Inside::leave`], [`Inside::hand_off`], and
//! `Drop`, which poisons. A waiter that was taken from the queue stays in the `Inside` until it is
//! granted the squeue; it never runs as an item, is never seen by [`Inside::peek`], and so is
//! never popped by a thread that only wants the next item of its own connection.
//!
//! The essay stands at the head of `squeue.rs`.

use core::mem::ManuallyDrop;
use core::ptr;

use super::grant::{Verdict, notify};
use super::word::Word;
use super::{Load, Squeue, SqueueId};
use crate::facade::Ordering;
use crate::node::{Batch, Node, reverse};

/// The proof of being inside a squeue. Given back by [`Inside::leave`] or [`Inside::hand_off`];
/// dropping it poisons the squeue.
#[must_use = "dropping the proof poisons the squeue: leave or hand off"]
pub struct Inside<'p, T> {
    squeue: &'p Squeue<T>,
    /// Threads that sleep until they get the squeue, oldest first.
    waiters: *mut Node<Load<T>>,
}

/// The ownership was scheduled: *now* tell a worker to [`Squeue::resume`] it.
///
/// Telling before would be a lost wake-up: the worker could look, find the caller still inside, and
/// go back to sleep.
#[must_use = "a scheduled squeue waits for its worker: tell it"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandedOff;

impl<'p, T> Inside<'p, T> {
    /// # Safety
    /// The caller has just become the one owner of `squeue`.
    pub(super) unsafe fn new(squeue: &'p Squeue<T>) -> Self {
        Self { squeue, waiters: ptr::null_mut() }
    }

    /// # Safety
    /// As for [`Inside::new`], and the list `waiters` is the caller's.
    pub(super) unsafe fn granted(squeue: &'p Squeue<T>, waiters: *mut Node<Load<T>>) -> Self {
        Self { squeue, waiters }
    }

    /// The squeue one is inside of.
    pub fn squeue(&self) -> &'p Squeue<T> {
        self.squeue
    }

    /// Its name.
    #[inline]
    pub fn id(&self) -> SqueueId {
        self.squeue.id
    }

    /// The oldest item that was queued, if any.
    pub fn pop(&mut self) -> Option<T> {
        let node = self.first()?;
        // SAFETY: in the taken list, which is ours.
        self.set_taken(unsafe { Node::next(node) });
        // SAFETY: as above, and now it is out of the list.
        match unsafe { Node::unbox(node) } {
            Load::Item(item) => Some(item),
            Load::Waiter(_) => unreachable!("the taken list is made of items"),
        }
    }

    /// A look at the item that [`Inside::pop`] would give.
    pub fn peek(&mut self) -> Option<&T> {
        let node = self.first()?;
        // SAFETY: in the taken list, which is ours and does not change while `self` is borrowed.
        match unsafe { Node::load(node) } {
            Load::Item(item) => Some(item),
            Load::Waiter(_) => unreachable!("the taken list is made of items"),
        }
    }

    /// [`Inside::pop`], if `is_wanted` says so of the item.
    pub fn pop_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        if self.peek().is_some_and(is_wanted) { self.pop() } else { None }
    }

    /// How many items are queued so far, counted up to `max`.
    pub fn depth(&mut self, max: usize) -> usize {
        self.collect();
        let mut depth = 0;
        let mut node = self.taken();
        while depth < max && !node.is_null() {
            depth += 1;
            // SAFETY: in the taken list, which is ours.
            node = unsafe { Node::next(node) };
        }
        depth
    }

    /// Everything queued so far, oldest first. A batch that is dropped drops its items. To run only a bounded
    /// number, use [`Inside::pop`].
    pub fn take(&mut self) -> Items<T> {
        self.collect();
        let list = self.taken();
        self.set_taken(ptr::null_mut());
        // SAFETY: the list was ours, and no thread's word refers to it now.
        Items(unsafe { Batch::from_list(list) })
    }

    /// The way out. `Ok` if nothing was queued; else the caller is still inside, and runs the arrived items
    /// or hands off. Uncontended: one compare-exchange. Never blocks.
    ///
    /// A thread asleep in [`Squeue::enter_blocking`] is given the squeue on the way.
    #[inline]
    pub fn leave(self) -> Result<(), Self> {
        if !self.taken().is_null() {
            return Err(self);
        }
        if !self.waiters.is_null() {
            return self.leave_to_waiter();
        }
        // Release: the writes inside, with the acquire of the next entry.
        match self.squeue.exchange(Word::INSIDE, Word::FREE, Ordering::Release) {
            Ok(()) => {
                let _left = ManuallyDrop::new(self);
                Ok(())
            }
            Err(_arrived) => Err(self),
        }
    }

    /// Goes out but keeps the squeue owned and scheduled, with all that is queued, until a thread
    /// [`Squeue::resume`]s it. The caller tells a worker afterwards. Never blocks.
    ///
    /// If a thread in [`Squeue::enter_blocking`] came before the items not yet looked at, it gets the squeue instead,
    /// and the worker's `resume` finds nothing: the thread that was granted the squeue runs or hands off the queue. So
    /// a thread waits for one bounded round after its turn came, not for the queue to run dry.
    pub fn hand_off(self) -> HandedOff {
        if !self.waiters.is_null() {
            self.grant_first();
            return HandedOff;
        }
        let this = ManuallyDrop::new(self);
        let mut seen = this.squeue.load(Ordering::Relaxed);
        // Release: the writes inside, with the acquire of `resume`.
        while let Err(now) = this.squeue.exchange(seen, seen.scheduled(), Ordering::Release) {
            seen = now;
        }
        HandedOff
    }

    /// [`Inside::leave`] while threads wait for the squeue: items go first.
    #[cold]
    fn leave_to_waiter(self) -> Result<(), Self> {
        // Relaxed: the thread that gets the squeue runs later arrivals.
        if !self.squeue.load(Ordering::Relaxed).list().is_null() {
            return Err(self);
        }
        self.grant_first();
        Ok(())
    }

    /// Gives the squeue, the other waiters and all that is queued to the oldest waiter.
    fn grant_first(self) {
        let this = ManuallyDrop::new(self);
        let first = this.waiters;
        // SAFETY: the waiters are ours.
        let others = unsafe { Node::next(first) };
        // SAFETY: as above; the notified one takes over `others`.
        unsafe { notify(first, Verdict::Granted, others) };
    }

    /// The first node of the taken list, after a look at the queue if that is empty.
    fn first(&mut self) -> Option<*mut Node<Load<T>>> {
        if self.taken().is_null() {
            self.collect();
        }
        let node = self.taken();
        (!node.is_null()).then_some(node)
    }

    /// Moves arrived items behind those taken before; waiters go to their own list. Costs a walk over both,
    /// so the common callers come when none of those taken before is left.
    fn collect(&mut self) {
        // Relaxed: only whether the exchange is worth it; a push that is missed here makes
        // `leave` fail.
        if self.squeue.load(Ordering::Relaxed).list().is_null() {
            return;
        }
        // Acquire: the nodes' contents, with the release of every push.
        let arrived = self.squeue.word.swap(Word::INSIDE.raw(), Ordering::Acquire);
        // SAFETY: the exchange made the list ours.
        let (mut node, _) = unsafe { reverse(Word::from_raw(arrived).list()) };
        let mut items = Chain::after(self.taken());
        let mut waiters = Chain::after(self.waiters);
        while !node.is_null() {
            // SAFETY: of the list that is ours.
            let next = unsafe { Node::next(node) };
            // SAFETY: as above.
            let chain = if matches!(unsafe { Node::load(node) }, Load::Waiter(_)) {
                &mut waiters
            } else {
                &mut items
            };
            chain.append(node);
            node = next;
        }
        self.set_taken(items.head);
        self.waiters = waiters.head;
    }

    /// How many threads wait for the squeue.
    #[cfg(all(test, not(loom)))]
    pub(super) fn waiters_count(&mut self) -> usize {
        self.collect();
        let mut count = 0;
        let mut node = self.waiters;
        while !node.is_null() {
            count += 1;
            // SAFETY: the waiters are ours.
            node = unsafe { Node::next(node) };
        }
        count
    }

    fn taken(&self) -> *mut Node<Load<T>> {
        // SAFETY: the field belongs to the thread inside, which we are.
        self.squeue.taken.with(|taken| unsafe { *taken })
    }

    fn set_taken(&mut self, head: *mut Node<Load<T>>) {
        // SAFETY: the field belongs to the thread inside, which we are.
        self.squeue.taken.with_mut(|taken| unsafe { *taken = head });
    }
}

impl<T> Drop for Inside<'_, T> {
    /// Poisons the squeue; see the head of `squeue.rs`.
    #[cold]
    fn drop(&mut self) {
        self.collect();
        let taken = self.taken();
        self.set_taken(ptr::null_mut());
        // Acquire: nodes that arrived since, with the release of their push. Release: pairs with
        // nothing that matters; no thread enters any more.
        let late = self.squeue.word.swap(Word::DEAD.raw(), Ordering::AcqRel);
        // SAFETY: the exchange made the list ours.
        let (late, _) = unsafe { reverse(Word::from_raw(late).list()) };
        for list in [self.waiters, taken, late] {
            // SAFETY: all three lists are ours, and the squeue has forgotten them.
            unsafe { refuse(list) };
        }
    }
}

impl<T> core::fmt::Debug for Inside<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Inside").field(&self.id()).finish()
    }
}

/// Drops the items of a list and wakes its waiters with the news that the squeue is poisoned.
///
/// # Safety
/// The caller owns the list and gives it up.
unsafe fn refuse<T>(mut node: *mut Node<Load<T>>) {
    while !node.is_null() {
        // SAFETY: the caller owns the list.
        let next = unsafe { Node::next(node) };
        // SAFETY: as above.
        if matches!(unsafe { Node::load(node) }, Load::Waiter(_)) {
            // SAFETY: as above.
            unsafe { notify(node, Verdict::Poisoned, ptr::null_mut()) };
        } else {
            // SAFETY: as above, and the node is out of the list.
            drop(unsafe { Node::unbox(node) });
        }
        node = next;
    }
}

/// Items taken from a squeue, oldest first. Dropping it drops those that were not iterated.
#[derive(Debug)]
pub struct Items<T>(Batch<Load<T>>);

impl<T> Items<T> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Iterator for Items<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match self.0.next()? {
            Load::Item(item) => Some(item),
            Load::Waiter(_) => unreachable!("the taken list is made of items"),
        }
    }
}

/// A list that grows at its end. Its nodes belong to the thread that holds it.
struct Chain<T> {
    head: *mut Node<Load<T>>,
    last: *mut Node<Load<T>>,
}

impl<T> Chain<T> {
    /// The list that begins with `head`, which the caller owns.
    fn after(head: *mut Node<Load<T>>) -> Self {
        let mut last = ptr::null_mut();
        let mut node = head;
        while !node.is_null() {
            last = node;
            // SAFETY: of the list, which the caller owns.
            node = unsafe { Node::next(node) };
        }
        Self { head, last }
    }

    fn append(&mut self, node: *mut Node<Load<T>>) {
        // SAFETY: the node is the caller's.
        unsafe { Node::link(node, ptr::null_mut()) };
        if self.last.is_null() {
            self.head = node;
        } else {
            // SAFETY: of our own list.
            unsafe { Node::link(self.last, node) };
        }
        self.last = node;
    }
}
