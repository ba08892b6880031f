//! The waiters for a change of one socket buffer: threads, tasks and pollers.
//!
//! A [`WaitList`] is a plain value that stands under the mutex of the condition, beside the buffer. There is one for each
//! buffer that can be waited for, whatever the kind of socket, and one way to notify all on it:
//!
//! ```text
//!   waiter:  lock; condition false; register / prepare / add_poller; unlock; wait
//!   waker:   lock; make it true; notify(what, &mut owed); unlock; ...; fire each of `owed`
//! ```
//!
//! # What is on it, and until when
//!
//! | waiter | comes by | leaves by |
//! |---|---|---|
//! | blocked threads, any number | [`WaitQueue::prepare`], in a [`WaitQueue`] beside the list | the `notify` of its queue |
//! | a task in a poll function: for each handle and direction the last that polled | [`register`](WaitList::register) with the handle's key of [`issue`](WaitList::issue) | a `notify` of its bits, the next task that polls, or [`remove`](WaitList::remove) when the handle is dropped |
//! | a task in a future, any number | [`register`](WaitList::register) with the future's key of [`issue`](WaitList::issue) | a `notify` of its bits, or [`remove`](WaitList::remove) when the future is dropped |
//! | pollers | [`add_poller`](WaitList::add_poller) | [`remove_poller`](WaitList::remove_poller); a `notify` leaves them |
//! | all of them | | [`clear`](WaitList::clear), when the socket closes |
//!
//! # Why no wake-up is lost
//!
//! A waiter looks at the condition and comes onto the list in one section of the mutex, and the change and its `notify` are one section too.
//! So either the waiter sees the change, or the `notify` sees the waiter. A `notify` reaches *every* waiter that wants the changed bits. A
//! task that gives up therefore takes nothing from another one: if its wake-up was under way already, those of the others are too. The
//! [`Key`] of a future or a handle is never given to another one on the same list, so the removal by one that was woken before does not hit a
//! later waiter.
//!
//! `wanted` is never less than the bits that tasks and pollers want: both add to it when they come, and only a `notify` that has
//! looked at each of them lowers it. Without waiters a `notify` reads that byte and the word of the threads, and writes nothing.
//!
//! # Foreign code
//!
//! Cloning, waking and dropping a [`Waker`] may run anything, including calls for the same socket. So nothing here does any of the three: wakers come
//! in cloned, and each one that is not kept is given back, to be woken or dropped after the mutex is unlocked. (`Waker::will_wake` compares two
//! pointers.) A panic in any of them finds the list whole.
//!
//! Bound: the tasks of the application that wait, each once in a future that it is in, and one more for each handle and direction; how many
//! pollers there may be is the caller's to say. Memory: nothing beside the value itself while at most one task and one
//! poller wait.
//!
//! Does not depend on sockets. Tests: below, `tests/loom/wait_list.rs`.

use core::fmt;
use std::task::Waker;

use smallvec::SmallVec;

use crate::facade::Arc;
use crate::wait::{Awaited, Notified, Ticket, WaitQueue};

/// A poller's registration, which stays on the list when it is notified.
pub trait Poller {
    /// A wake that is owed after unlocking. Callers may collect it in a list of their own type.
    type Owed: From<Waker>;

    /// The bits that it wants to know of.
    fn interest(&self) -> u8;

    /// Notes that the socket has become ready for these bits. Under the mutex of the list.
    fn mark<O: From<Self::Owed>>(this: &Arc<Self>, ready: u8, owed: &mut Vec<O>);
}

/// For lists on which only threads and tasks wait.
#[derive(Debug)]
pub enum NoPollers {}

impl Poller for NoPollers {
    type Owed = Waker;

    fn interest(&self) -> u8 {
        match *self {}
    }

    fn mark<O: From<Waker>>(this: &Arc<Self>, _ready: u8, _owed: &mut Vec<O>) {
        match **this {}
    }
}

/// See the head of the file.
pub struct WaitList<P> {
    /// The bits that any task or poller wants. Never less.
    wanted: u8,
    /// Of the threads in the queue that is used with [`prepare`](Self::prepare).
    awaited: Awaited,
    /// The number of the key that was issued last.
    issued: u64,
    /// Most lists have one task at a time, which needs no memory of its own.
    first: Option<Task>,
    /// The other tasks; none is never a list without any.
    rest: Option<Box<Rest>>,
    pollers: Pollers<P>,
}

/// The pollers of a list: usually one.
pub type Pollers<P> = SmallVec<[Arc<P>; 1]>;

/// A task on a [`WaitList`]: the bits that it wants, in the low eight bits, and a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(u64);

impl Key {
    const fn interest(self) -> u8 {
        (self.0 & 0xff) as u8
    }
}

#[derive(Debug)]
struct Task {
    key: Key,
    waker: Waker,
}

impl Task {
    fn owed<P: Poller, O: From<P::Owed>>(self) -> O {
        P::Owed::from(self.waker).into()
    }
}

#[derive(Debug, Default)]
struct Rest(Vec<Task>);

impl<P: Poller> WaitList<P> {
    /// A list without waiters.
    #[must_use]
    pub fn new() -> Self {
        Self {
            wanted: 0,
            awaited: Awaited::default(),
            issued: 0,
            first: None,
            rest: None,
            pollers: SmallVec::new(),
        }
    }

    /// A key for one future, or for one handle's poll functions, that wait for any of these bits.
    pub fn issue(&mut self, interest: u8) -> Key {
        // 2^56 of them are not issued in the life of a socket.
        self.issued += 1;
        Key((self.issued << 8) | u64::from(interest))
    }

    /// Puts a task onto the list, or another waker in the place that it has there. The waker that is not kept, the earlier one or the
    /// given one, comes back to be dropped after unlocking.
    #[must_use = "to be dropped after unlocking"]
    pub fn register(&mut self, key: Key, waker: Waker) -> Option<Waker> {
        if let Some(task) = self.tasks_mut().find(|task| task.key == key) {
            if task.waker.will_wake(&waker) {
                return Some(waker);
            }
            return Some(core::mem::replace(&mut task.waker, waker));
        }
        self.push(Task { key, waker });
        None
    }

    /// Puts a task onto the list that has no place of its own there, once. For lists whose waiters are all notified soon. The waker comes back
    /// if its task is there already, to be dropped after unlocking.
    #[must_use = "to be dropped after unlocking"]
    pub fn register_once(&mut self, interest: u8, waker: Waker) -> Option<Waker> {
        if self.tasks_mut().any(|task| task.waker.will_wake(&waker)) {
            return Some(waker);
        }
        let key = self.issue(interest);
        self.push(Task { key, waker });
        None
    }

    /// Takes a task off the list, if it was not told before. Its waker is to be dropped after unlocking.
    #[must_use = "to be dropped after unlocking"]
    pub fn remove(&mut self, key: Key) -> Option<Waker> {
        if self.first.as_ref().is_some_and(|task| task.key == key) {
            return self.first.take().map(|task| task.waker);
        }
        let rest = &mut self.rest.as_mut()?.0;
        let at = rest.iter().position(|task| task.key == key)?;
        let removed = rest.swap_remove(at);
        if rest.is_empty() {
            self.rest = None;
        }
        Some(removed.waker)
    }

    /// Adds a poller.
    pub fn add_poller(&mut self, poller: Arc<P>) {
        self.wanted |= poller.interest();
        self.pollers.push(poller);
    }

    /// Takes out the poller that `is_it`. To be dropped after unlocking.
    #[must_use = "to be dropped after unlocking"]
    pub fn remove_poller(&mut self, is_it: impl Fn(&P) -> bool) -> Option<Arc<P>> {
        let at = self.pollers.iter().position(|poller| is_it(poller))?;
        let gone = self.pollers.swap_remove(at);
        self.forget_wants();
        Some(gone)
    }

    /// The pollers on the list.
    #[inline]
    pub fn pollers(&self) -> &[Arc<P>] {
        &self.pollers
    }

    /// Announces a thread in `threads`, which is then used with this list alone, through this and
    /// [`notify_awaited`](Self::notify_awaited): see [`Awaited`].
    pub fn prepare(&mut self, threads: &WaitQueue) -> Ticket {
        threads.prepare_in(&mut self.awaited)
    }

    /// Tells every waiter that wants any of these bits: the threads of `threads`, for which `sleepers` makes the wakes, tasks
    /// and pollers. Returns the threads that there were.
    #[inline]
    pub fn notify<O: From<P::Owed>>(
        &mut self,
        threads: &WaitQueue,
        sleepers: impl FnOnce() -> O,
        ready: u8,
        owed: &mut Vec<O>,
    ) -> Notified {
        let found = threads.notify();
        if found.is_wake_owed() {
            owed.push(sleepers());
        }
        self.mark(ready, owed);
        found
    }

    /// [`notify`](Self::notify) for threads that have announced themselves by [`prepare`](Self::prepare). Touches nothing but the list if none
    /// has.
    #[inline]
    pub fn notify_awaited<O: From<P::Owed>>(
        &mut self,
        threads: &WaitQueue,
        sleepers: impl FnOnce() -> O,
        ready: u8,
        owed: &mut Vec<O>,
    ) -> Notified {
        let found = threads.notify_in(&mut self.awaited);
        if found.is_wake_owed() {
            owed.push(sleepers());
        }
        self.mark(ready, owed);
        found
    }

    /// The part of [`notify`](Self::notify) that concerns tasks and pollers, for changes that no thread of this list waits for.
    #[inline]
    pub fn mark<O: From<P::Owed>>(&mut self, ready: u8, owed: &mut Vec<O>) {
        if self.wanted & ready != 0 {
            self.mark_wanted(ready, owed);
        }
    }

    #[inline(never)]
    fn mark_wanted<O: From<P::Owed>>(&mut self, ready: u8, owed: &mut Vec<O>) {
        let mut wanted = 0;
        let mut is_ready = |task: &mut Task| {
            let is_ready = task.key.interest() & ready != 0;
            wanted |= if is_ready { 0 } else { task.key.interest() };
            is_ready
        };
        let first = self.first.take_if(&mut is_ready);
        owed.extend(first.map(Task::owed::<P, O>));
        if let Some(rest) = &mut self.rest {
            owed.extend(rest.0.extract_if(.., &mut is_ready).map(Task::owed::<P, O>));
            if rest.0.is_empty() {
                self.rest = None;
            }
        }
        for poller in &self.pollers {
            wanted |= poller.interest();
            P::mark(poller, ready, owed);
        }
        self.wanted = wanted;
    }

    /// The socket closes: takes all waiters off the list. Tasks are owed a wake, and find it closed; the pollers are to be dropped
    /// after unlocking.
    #[must_use = "to be dropped after unlocking"]
    pub fn clear<O: From<P::Owed>>(&mut self, owed: &mut Vec<O>) -> Pollers<P> {
        let rest = self.rest.take().map_or(Vec::new(), |rest| rest.0);
        owed.extend(self.first.take().into_iter().chain(rest).map(Task::owed::<P, O>));
        self.wanted = 0;
        core::mem::take(&mut self.pollers)
    }

    /// How many tasks wait.
    pub fn task_count(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.0.len())
    }

    fn tasks_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.first.iter_mut().chain(self.rest.iter_mut().flat_map(|rest| rest.0.iter_mut()))
    }

    fn push(&mut self, task: Task) {
        self.wanted |= task.key.interest();
        if self.first.is_none() {
            self.first = Some(task);
        } else {
            self.rest.get_or_insert_default().0.push(task);
        }
    }

    /// Without waiters nothing is wanted.
    fn forget_wants(&mut self) {
        if self.pollers.is_empty() && self.first.is_none() && self.rest.is_none() {
            self.wanted = 0;
        }
    }
}

impl<P: Poller> Default for WaitList<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> fmt::Debug for WaitList<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitList").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const READ: u8 = 1;
    const WRITE: u8 = 2;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn waker() -> (std::sync::Arc<Count>, Waker) {
        let count = std::sync::Arc::new(Count::default());
        (count.clone(), Waker::from(count))
    }

    fn list() -> WaitList<NoPollers> {
        WaitList::new()
    }

    /// How many waiters are notified of these bits.
    fn notified(list: &mut WaitList<NoPollers>, ready: u8) -> usize {
        let mut owed = Vec::new();
        list.mark(ready, &mut owed);
        owed.into_iter().map(Waker::wake).count()
    }

    #[test]
    fn a_change_notifies_every_interested_task_once() {
        let mut list = list();
        let tasks = [READ, WRITE, READ, READ | WRITE].map(|interest| {
            let (count, waker) = waker();
            let key = list.issue(interest);
            assert!(list.register(key, waker).is_none());
            count
        });
        let counts = || tasks.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(notified(&mut list, READ), 3);
        assert_eq!(counts(), [1, 0, 1, 1]);
        assert_eq!(notified(&mut list, READ), 0);
        assert_eq!((notified(&mut list, WRITE), counts()), (1, [1, 1, 1, 1]));
        assert_eq!(list.task_count(), 0);
        assert!(list.rest.is_none(), "a list without waiters has no memory of its own");
    }

    #[test]
    fn poll_functions_of_a_handle_share_one_entry_per_direction_and_futures_have_their_own() {
        let mut list = list();
        let (one, other) = (waker(), waker());
        let [read, write] = [READ, WRITE].map(|interest| list.issue(interest));
        assert!(list.register(read, one.1.clone()).is_none());
        assert!(list.register(read, one.1.clone()).is_some_and(|back| back.will_wake(&one.1)));
        assert!(list.register(read, other.1.clone()).is_some_and(|back| back.will_wake(&one.1)));
        assert!(list.register(write, one.1.clone()).is_none());
        let key = list.issue(READ);
        assert!(list.register(key, one.1.clone()).is_none());
        assert_eq!((list.task_count(), notified(&mut list, READ)), (3, 2));
        assert_eq!(one.0.0.load(Ordering::Relaxed) + other.0.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_cancelled_task_removes_only_itself() {
        let mut list = list();
        let keys = [READ; 3].map(|interest| {
            let key = list.issue(interest);
            assert!(list.register(key, waker().1).is_none());
            key
        });
        assert!(list.remove(keys[0]).is_some());
        assert!(list.remove(keys[0]).is_none());
        let late = list.issue(READ);
        assert!(list.register(late, waker().1).is_none() && !keys.contains(&late));
        assert!(list.remove(keys[2]).is_some());
        assert_eq!(notified(&mut list, READ), 2);
        assert!(list.remove(keys[1]).is_none(), "it was notified");
    }

    #[test]
    fn a_task_without_an_entry_is_listed_once() {
        let (mut list, task) = (list(), waker().1);
        assert!(list.register_once(READ, task.clone()).is_none());
        assert!(list.register_once(READ, task).is_some());
        assert_eq!(notified(&mut list, READ), 1);
    }

    struct Marked(u8, AtomicUsize);

    impl Poller for Marked {
        type Owed = Waker;
        fn interest(&self) -> u8 {
            self.0
        }
        fn mark<O: From<Waker>>(this: &Arc<Self>, ready: u8, _owed: &mut Vec<O>) {
            this.1.fetch_or(ready.into(), Ordering::Relaxed);
        }
    }

    #[test]
    fn pollers_stay_registered_and_closing_ends_every_waiter() {
        let mut list = WaitList::new();
        let poller = Arc::new(Marked(READ, AtomicUsize::new(0)));
        list.add_poller(Arc::clone(&poller));
        let ((count, task), key) = (waker(), list.issue(WRITE));
        assert!(list.register(key, task).is_none());
        let mut owed = Vec::new();
        for _ in 0..2 {
            list.mark(READ, &mut owed);
            assert_eq!(poller.1.swap(0, Ordering::Relaxed), READ.into());
        }
        assert!(owed.is_empty());
        assert!(list.remove_poller(|known| known.0 == WRITE).is_none());
        assert_eq!(list.clear(&mut owed).len(), 1);
        owed.drain(..).for_each(Waker::wake);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!((list.wanted, list.pollers().len()), (0, 0));
    }

    #[test]
    fn the_list_is_as_small_as_two_wakers_and_a_poller() {
        assert!(size_of::<WaitList<Marked>>() <= 80, "{}", size_of::<WaitList<Marked>>());
    }
}
