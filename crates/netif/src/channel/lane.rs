//! One direction of a channel: a bounded queue with threads and tasks that wait at both ends.
//!
//! # States, all under one mutex
//! Items; whether it is closed (no more come in) and whether the wait of the stack's input thread was ended for good;
//! the tasks that wait. Threads wait with tickets that were taken under the mutex, in the section that found nothing
//! to do; a thread that changes that notifies under the mutex and wakes after it (`sockeye_sync::WaitQueue`).
//! [`Lane::append`] alone leaves the wake to [`Lane::ring`], which comes later: a waiter that looks between the two
//! finds the item.
//!
//! It does not depend on the type of items. Rank: the mutex is a leaf but for that of `spare`; items are dropped and given away, and wakers cloned,
//! called and dropped, with no lock held. Tests: below, `crates/stack/tests/wire/channel.rs`.

use std::collections::VecDeque;
use std::task::{Poll, Waker};
use std::time::Instant;

use sockeye_sync::facade::OnceLock;
use sockeye_sync::{Mutex, MutexGuard, NoPollers, Spin, WaitList, WaitQueue, Woken};

use crate::Waking;

/// See the module's head.
pub(super) struct Lane<T> {
    state: Mutex<State<T>>,
    /// The memory of the last batch, so that no batch allocates: empty, and out of here while a batch is given away. As a rule one
    /// thread takes batches; a second one at the same time allocates.
    spare: Mutex<VecDeque<T>>,
    /// For items, a close, an interruption.
    filled: WaitQueue,
    /// For room, a close.
    drained: WaitQueue,
    bound: usize,
    /// The caller of wakers, once there is a stack.
    waking: OnceLock<Waking>,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    interrupted: bool,
    takers: WaitList<NoPollers>,
    givers: WaitList<NoPollers>,
}

/// An item that was not taken.
pub(super) enum Refused<T> {
    Full(#[allow(dead_code, reason = "dropped by the caller, outside of the mutex")] T),
    Closed(#[allow(dead_code, reason = "dropped by the caller, outside of the mutex")] T),
}

/// Which waiters a change of the lane concerns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Filled,
    Drained,
    /// Both ends.
    Ended,
}

impl<T> Lane<T> {
    pub fn new(bound: usize) -> Self {
        let state = State {
            items: VecDeque::new(),
            closed: false,
            interrupted: false,
            takers: WaitList::new(),
            givers: WaitList::new(),
        };
        Self {
            state: Mutex::new(state),
            spare: Mutex::new(VecDeque::new()),
            filled: WaitQueue::new(),
            drained: WaitQueue::new(),
            bound,
            waking: OnceLock::new(),
        }
    }

    /// Tasks are woken by it from now on. The first call counts.
    pub fn wake_by(&self, waking: &Waking) {
        let _first = self.waking.set(waking.clone());
    }

    /// Appends an item and wakes its waiters.
    pub fn push(&self, item: T) -> Result<(), Refused<T>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Refused::Closed(item));
        }
        if state.items.len() >= self.bound {
            return Err(Refused::Full(item));
        }
        state.items.push_back(item);
        self.notify(state, Change::Filled);
        Ok(())
    }

    /// Appends as many as there is room for, from the front on, and wakes. `Err` if the lane is closed.
    pub fn push_all(&self, items: &mut Vec<T>) -> Result<usize, ()> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(());
        }
        let taken = items.len().min(self.bound - state.items.len());
        state.items.extend(items.drain(..taken));
        self.notify(state, Change::Filled);
        Ok(taken)
    }

    /// Appends as many as there is room for, and wakes no waiter. Returns how many.
    pub fn append(&self, items: &mut Vec<T>) -> usize {
        let mut state = self.state.lock();
        let room = if state.closed { 0 } else { self.bound - state.items.len() };
        let taken = items.len().min(room);
        state.items.extend(items.drain(..taken));
        taken
    }

    /// Wakes the waiters for appended items.
    pub fn ring(&self) {
        self.notify(self.state.lock(), Change::Filled);
    }

    /// The oldest item.
    pub fn pop(&self) -> Option<T> {
        let mut state = self.state.lock();
        let item = state.items.pop_front()?;
        self.notify(state, Change::Drained);
        Some(item)
    }

    /// The oldest item, `None` if the lane is closed and empty; else `waker` is called when that changes.
    pub fn pop_or_wake(&self, waker: &Waker) -> Poll<Option<T>> {
        if let Some(item) = self.pop() {
            return Poll::Ready(Some(item));
        }
        // Before the mutex: a waker is the application's code.
        let own = waker.clone();
        let mut state = self.state.lock();
        if let Some(item) = state.items.pop_front() {
            self.notify(state, Change::Drained);
            return Poll::Ready(Some(item));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        let unused = state.takers.register_once(CHANGED, own);
        drop(state);
        drop(unused);
        Poll::Pending
    }

    /// Up to `max` of the oldest items, given away with no lock held. Returns how many.
    pub fn pop_all(&self, max: usize, give: impl FnMut(T)) -> usize {
        let mut state = self.state.lock();
        let count = state.items.len().min(max);
        if count == 0 {
            return 0;
        }
        let mut taken = std::mem::take(&mut *self.spare.lock());
        taken.extend(state.items.drain(..count));
        self.notify(state, Change::Drained);
        taken.drain(..).for_each(give);
        *self.spare.lock() = taken;
        count
    }

    /// Whether there is room, or never will be; else `waker` is called when that changes.
    pub fn room_or_wake(&self, waker: &Waker) -> bool {
        // Before the mutex: a waker is the application's code.
        let own = waker.clone();
        let mut state = self.state.lock();
        let is_over = state.closed || state.items.len() < self.bound;
        if !is_over {
            let unused = state.givers.register_once(CHANGED, own);
            drop(state);
            drop(unused);
        }
        is_over
    }

    /// **Blocks** until there is room, or never will be. False at the deadline.
    pub fn wait_room(&self, deadline: Option<Instant>) -> bool {
        let state = self.state.lock();
        if state.closed || state.items.len() < self.bound {
            // Memory was short and not the queue, or there is room by now.
            return deadline.is_none_or(|deadline| Instant::now() < deadline);
        }
        let ticket = self.drained.prepare();
        drop(state);
        self.drained.wait(ticket, deadline, Spin::default()) != Woken::TimedOut
    }

    /// **Blocks** until there is an item. False at the deadline, or if the lane is closed and empty.
    pub fn wait_item(&self, deadline: Option<Instant>, spin: Spin) -> bool {
        let state = self.state.lock();
        if !state.items.is_empty() {
            return true;
        }
        if state.closed {
            return false;
        }
        let ticket = self.filled.prepare();
        drop(state);
        self.filled.wait(ticket, deadline, spin) != Woken::TimedOut
    }

    /// **Blocks** until there is an item, or [`Lane::interrupt`] was called.
    pub fn wait_interruptible(&self, spin: Spin) {
        let state = self.state.lock();
        if !state.items.is_empty() || state.interrupted {
            return;
        }
        let ticket = self.filled.prepare();
        drop(state);
        self.filled.wait(ticket, None, spin);
    }

    /// Ends the wait at this lane, and every later one.
    pub fn interrupt(&self) {
        let mut state = self.state.lock();
        state.interrupted = true;
        self.notify(state, Change::Filled);
    }

    /// Takes no more items; those in it may still be taken out.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.notify(state, Change::Ended);
    }

    /// Takes no more items, and drops those in it.
    pub fn close_and_forget(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let late = std::mem::take(&mut state.items);
        self.notify(state, Change::Ended);
        drop(late);
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Ends the section that made a change, and wakes the waiters that it concerns.
    fn notify(&self, mut state: MutexGuard<'_, State<T>>, change: Change) {
        let to_takers = change != Change::Drained;
        let to_givers = change != Change::Filled;
        let mut tasks = Vec::new();
        if to_takers {
            state.takers.mark(CHANGED, &mut tasks);
        }
        if to_givers {
            state.givers.mark(CHANGED, &mut tasks);
        }
        let filled = to_takers && self.filled.notify().is_wake_owed();
        let drained = to_givers && self.drained.notify().is_wake_owed();
        drop(state);
        if filled {
            self.filled.wake();
        }
        if drained {
            self.drained.wake();
        }
        for task in tasks {
            match self.waking.get() {
                Some(waking) => waking.wake(task),
                None => Waking::default().wake(task),
            }
        }
    }
}

/// Events that the tasks of a lane wait for, each with a list of its own.
const CHANGED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_full_lane_refuses_and_a_closed_one_returns_its_remaining_frames() {
        let lane = Lane::new(2);
        assert!(lane.push(1).is_ok() && lane.push(2).is_ok());
        assert!(matches!(lane.push(3), Err(Refused::Full(3))));
        assert_eq!(lane.push_all(&mut vec![3, 4]), Ok(0));
        assert_eq!(lane.append(&mut vec![3]), 0);
        assert_eq!(lane.pop(), Some(1));
        assert_eq!(lane.push_all(&mut vec![3, 4]), Ok(1));
        lane.close();
        assert!(matches!(lane.push(5), Err(Refused::Closed(5))));
        let mut got = Vec::new();
        assert_eq!((lane.pop_all(9, |item| got.push(item)), got), (2, vec![2, 3]));
        assert!(!lane.wait_item(None, Spin::OFF));
        assert_eq!(lane.pop_or_wake(Waker::noop()), Poll::Ready(None));
    }

    #[test]
    fn threads_on_both_sides_wait_for_each_other_and_nothing_is_lost() {
        let lane = Lane::new(3);
        let items = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for item in 0..items {
                    while lane.push(item).is_err() {
                        assert!(lane.wait_room(None));
                    }
                }
                lane.close();
            });
            let mut next = 0;
            while lane.wait_item(None, Spin::up_to(Duration::from_micros(5))) {
                lane.pop_all(2, |item| {
                    assert_eq!(item, next);
                    next += 1;
                });
            }
            assert_eq!(next, items);
        });
    }

    #[test]
    fn an_interruption_ends_the_wait_before_and_after() {
        let lane = Lane::<u8>::new(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lane.wait_interruptible(Spin::OFF));
            lane.interrupt();
            waiting.join().unwrap();
        });
        lane.wait_interruptible(Spin::OFF);
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(!lane.wait_item(Some(soon), Spin::OFF));
    }
}
