//! The lists of a poller: its registrations by number, the inbox of those that have become ready, and the round of those that it looks at.
//!
//! ```text
//!   socket's side:  lock the socket; raise the word; idle before? push(entry); unlock; ...; wake() if it was owed
//!   poller:         collect(look); nothing? idle(): Wait(ticket)? spin or park; again
//! ```
//!
//! # States
//!
//! | object | states | guarded by |
//! |---|---|---|
//! | a registration's number | free, taken: see `slots.rs` | `table` |
//! | an entry | in the inbox; in the round, not looked at; in the round, reported | `inbox`; `table` |
//! | the round, to threads that go to sleep | looked at; *left*: a `collect` ended before it came to some entry for the first time | `inbox` |
//! | the queue | open, interrupted (one wait is to end), closed (its poller is gone) | `inbox` |
//! | its descriptor | none; quiet; shown: some thread writes to it, or has since it was emptied last | `inbox` |
//!
//! The thread that makes a registration's word queued pushes an entry. [`collect`](PollQueue::collect) takes the inbox over into the round
//! and looks at each entry of the round once. It drops an entry whose registration has gone or whose look says so, and keeps the others for
//! the next round.
//!
//! Rank: `table`, then the sockets that a look locks, then `inbox`. Nothing is dropped under `table` that could be the last reference of
//! a registration.
//!
//! # Why no wake-up is lost
//!
//! *An entry is pushed*: `push` appends and notifies in one section of `inbox`. *The poller goes to sleep*: it finds the inbox
//! empty and prepares in one section too. So either the poller finds the entry, or the push finds the ticket.
//!
//! *Several threads wait*: an entry that one of them takes over is in the inbox no more, and that thread may end its `collect` before it has looked at it:
//! its events are full, or a look panics. It then makes the round left and notifies, in one section of `inbox`. A thread that goes to sleep later finds the
//! round left and collects; one that has prepared before, or meanwhile, is notified and collects. The next `collect` makes the round looked at when it begins, as
//! it comes to those entries itself or leaves some once more. Entries that were reported and stay are no reason to collect: their event has gone to a thread.
//!
//! *The poller looks while a thread marks*: an entry stays in the round until it was looked at, and it leaves if it is void, or if the look has made
//! the word idle; the next mark then pushes another one (`polled.rs`, `readiness.rs`). *The registration goes*: its number is given out again in a
//! later generation, so entries that are left of it are void (`slots.rs`).
//!
//! *A look panics*: the entry that it was about stays in the round, as the last one, so that the next `collect` comes to the others first.
//! `table` and `inbox` are whole, and unlocked. The poller then calls [`give_up`](PollQueue::give_up).
//!
//! *The poller goes*: [`close`](PollQueue::close) closes the inbox before it takes the registrations out. A push that comes later is dropped: no
//! thread would find it.
//!
//! # A descriptor
//!
//! A poller may have a descriptor that shows whether a [`collect`](PollQueue::collect) may find something, so that it can be waited for with other
//! descriptors. The thread that makes it *shown* writes to it, outside all locks. The poller empties it first, and makes it *quiet* in the section of `inbox` in which it
//! takes the list over. A push before that section is collected. One after it finds the descriptor quiet, and its thread writes. If a write comes between
//! emptying and that section, or after it for an entry that was collected, the next `collect` finds nothing; it empties the descriptor again. Entries that are kept
//! in the round, or a panic of a look, make it shown by the poller itself.
//!
//! Does not depend on sockets. Tests: `tests/loom/poll_queue.rs`, `stack/tests/suite/{poll,poll_stress}.rs`.

use std::collections::VecDeque;
use std::time::Instant;

use crate::brief::BriefMutex;
use crate::cpu;
use crate::facade::Arc;
use crate::polled::Held;
use crate::slots::{Entry, Numbered, Registered, Slots};
use crate::spin::Spin;
use crate::wait::{Ticket, WaitQueue, Woken};

/// See the head of the file. On cache lines of its own: pollers are made one after the other, for threads on different cores.
#[repr(C, align(64))]
pub struct PollQueue<T> {
    inbox: BriefMutex<Inbox>,
    wait: WaitQueue,
    table: BriefMutex<Table<T>>,
}

struct Inbox {
    list: Vec<Entry>,
    /// The round is left: see the head of the file.
    is_left: bool,
    /// The CPU of the first mark in the list, as a hint whether spinning can help.
    cpu: u32,
    is_interrupted: bool,
    is_closed: bool,
    descriptor: Descriptor,
}

/// See the head of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Descriptor {
    None,
    Quiet,
    Shown,
}

impl Inbox {
    /// Whether the caller is to write to the descriptor.
    fn shows(&mut self) -> bool {
        let is_quiet = self.descriptor == Descriptor::Quiet;
        if is_quiet {
            self.descriptor = Descriptor::Shown;
        }
        is_quiet
    }
}

/// The poller's own side. On other cache lines than the inbox.
#[repr(align(64))]
struct Table<T> {
    slots: Slots<T>,
    /// A reported registration goes to the end, so that no registration is looked at twice before each was
    /// once.
    round: VecDeque<Held>,
    /// Entries of the round that were not looked at.
    new_count: usize,
    /// The inbox's list while it is taken over; empty else.
    arrived: Vec<Entry>,
}

/// Duties of a thread that has collected, outside all locks.
#[must_use = "a thread may sleep"]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Owed {
    /// A write to the descriptor.
    pub write: bool,
    /// [`PollQueue::wake`].
    pub wake: bool,
}

/// Next step of a poller that has found nothing.
#[derive(Clone, Copy, Debug)]
pub enum Idle {
    /// A caller has [interrupted](PollQueue::interrupt) this wait, or the one before.
    Interrupted,
    /// Entries have come, or another thread has left some.
    Arrived,
    /// It waits with the ticket. The number is of the CPU where the latest entry came from.
    Wait(Ticket, u32),
}

impl<T: Registered> PollQueue<T> {
    /// Without registrations.
    #[must_use]
    pub fn new() -> Self {
        let inbox = Inbox {
            list: Vec::new(),
            is_left: false,
            cpu: 0,
            is_interrupted: false,
            is_closed: false,
            descriptor: Descriptor::None,
        };
        let (slots, round, arrived) = (Slots::default(), VecDeque::new(), Vec::new());
        let table = Table { slots, round, new_count: 0, arrived };
        Self { inbox: BriefMutex::new(inbox), wait: WaitQueue::new(), table: BriefMutex::new(table) }
    }

    /// Makes a registration and gives it a number. `None` if there are no numbers left. `make` runs under `table`.
    pub fn admit(&self, make: impl FnOnce(Numbered) -> T) -> Option<Arc<T>> {
        self.table.lock().slots.insert(make)
    }

    /// The registration is on no list any more. Once more does nothing. Outside all locks.
    pub fn forget(&self, gone: &Arc<T>) {
        self.table.lock().slots.remove(gone);
    }

    /// The poller has a descriptor from now on. Whether the caller is to write to it at once.
    #[must_use = "a write may be owed"]
    pub fn describe(&self) -> bool {
        let table = self.table.lock();
        let mut inbox = self.inbox.lock();
        inbox.descriptor = Descriptor::Quiet;
        let has_something = !table.round.is_empty() || !inbox.list.is_empty() || inbox.is_interrupted;
        has_something && inbox.shows()
    }

    /// Queues an entry. Under the mutex of its socket, or without one if its word is a shared one. Whether [`wake`](Self::wake) is owed,
    /// and a write to the descriptor if there is one, outside of all locks.
    #[must_use = "a wake may be owed"]
    pub fn push(&self, entry: Entry) -> bool {
        let mut inbox = self.inbox.lock();
        if inbox.is_closed {
            return false;
        }
        if inbox.list.is_empty() {
            inbox.cpu = cpu::current();
        }
        inbox.list.push(entry);
        let shows = inbox.shows();
        self.wait.notify().is_wake_owed() || shows
    }

    /// Looks at each entry of the round once, those included that have come, until `found` is full. `look` says whether the entry stays;
    /// it runs under `table`. The caller has emptied the descriptor before.
    #[inline]
    pub fn collect<C>(
        &self,
        found: &mut C,
        is_full: impl Fn(&C) -> bool,
        look: impl Fn(&mut C, &Arc<T>, Held) -> bool,
    ) -> Owed {
        let Table { slots, round, new_count, arrived } = &mut *self.table.lock();
        let has_descriptor = {
            let mut inbox = self.inbox.lock();
            std::mem::swap(&mut inbox.list, arrived);
            inbox.is_left = false;
            let has_one = inbox.descriptor != Descriptor::None;
            if has_one {
                inbox.descriptor = Descriptor::Quiet;
            }
            has_one
        };
        *new_count += arrived.len();
        round.extend(arrived.drain(..).map(|entry| Held { entry, is_reported: false }));
        for _ in 0..round.len() {
            if is_full(found) {
                break;
            }
            let Some(held) = round.front().copied() else { break };
            let first = First(round);
            let stays = slots.get(held.entry).is_some_and(|registration| look(found, registration, held));
            first.done(stays.then_some(Held { is_reported: true, ..held }));
            *new_count -= usize::from(!held.is_reported);
        }
        let is_left = *new_count > 0;
        if is_left || (has_descriptor && !round.is_empty()) {
            self.show_rest(is_left)
        } else {
            Owed::default()
        }
    }

    /// A look of a [`collect`](Self::collect) has panicked: entries that it has not come to are for other threads, too.
    #[cold]
    pub fn give_up(&self) -> Owed {
        let table = self.table.lock();
        self.show_rest(table.new_count > 0)
    }

    /// There is something in the round. Under `table`.
    fn show_rest(&self, is_left: bool) -> Owed {
        let mut inbox = self.inbox.lock();
        inbox.is_left |= is_left;
        Owed { write: inbox.shows(), wake: is_left && self.wait.notify().is_wake_owed() }
    }

    /// Announces a poller that has found nothing.
    pub fn idle(&self) -> Idle {
        let mut inbox = self.inbox.lock();
        if std::mem::take(&mut inbox.is_interrupted) {
            Idle::Interrupted
        } else if inbox.list.is_empty() && !inbox.is_left {
            Idle::Wait(self.wait.prepare(), inbox.cpu)
        } else {
            Idle::Arrived
        }
    }

    /// Waits for entries, or until the deadline. Outside all locks.
    pub fn wait(&self, ticket: Ticket, deadline: Option<Instant>, spin: Spin) -> Woken {
        self.wait.wait(ticket, deadline, spin)
    }

    /// Ends one wait of a poller, or the next one. The caller's duty is as for [`push`](Self::push).
    #[must_use = "a wake may be owed"]
    pub fn interrupt(&self) -> bool {
        let mut inbox = self.inbox.lock();
        inbox.is_interrupted = true;
        let shows = inbox.shows();
        self.wait.notify().is_wake_owed() || shows
    }

    /// Wakes the pollers that sleep. Outside all locks.
    pub fn wake(&self) {
        self.wait.wake();
    }

    /// The poller is gone. Returns its registrations, which are to leave their sockets' lists. A thread that marks one of them meanwhile
    /// finds the inbox closed; a socket that closes meanwhile takes it off its list itself, and finds the table empty. Outside all locks.
    pub fn close(&self) -> impl Iterator<Item = Arc<T>> + use<T> {
        self.inbox.lock().is_closed = true;
        // Unlocked at the end of the statement: a registration may be the last to hold its socket.
        self.table.lock().slots.take_all()
    }
}

impl<T: Registered> Default for PollQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The first entry of the round during its look. If that panics, the others come before it.
struct First<'a>(&'a mut VecDeque<Held>);

impl First<'_> {
    #[inline]
    fn done(self, kept: Option<Held>) {
        self.0.pop_front();
        self.0.extend(kept);
        std::mem::forget(self);
    }
}

impl Drop for First<'_> {
    #[cold]
    fn drop(&mut self) {
        let first = self.0.pop_front();
        self.0.extend(first);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_queue_takes_no_entry_and_has_no_registration() {
        let queue = PollQueue::new();
        let [early, late] = [(); 2].map(|()| queue.admit(|numbered| numbered).expect("a number"));
        assert!(!queue.push(early.raise(1).expect("it was idle")), "no thread sleeps");
        assert!(matches!(queue.idle(), Idle::Arrived));
        let owed = queue.collect(&mut (), |()| false, |(), _, _| false);
        assert_eq!(owed, Owed::default(), "there is no descriptor");
        assert_eq!(queue.close().count(), 2);
        queue.forget(&early);
        assert!(!queue.push(late.raise(1).expect("it was idle")));
        assert!(matches!(queue.idle(), Idle::Wait(..)));
    }

    #[test]
    fn entries_that_a_full_collect_has_not_looked_at_are_there_for_other_threads() {
        let queue = PollQueue::new();
        let registrations = [(); 3].map(|()| queue.admit(|numbered| numbered).expect("a number"));
        let collects = |most: usize| {
            let look = |found: &mut usize, _: &Arc<Numbered>, _| {
                *found += 1;
                true
            };
            queue.collect(&mut 0, |found| *found == most, look)
        };
        assert_eq!(collects(usize::MAX), Owed::default());
        for registration in &registrations {
            assert!(!queue.push(registration.raise(1).expect("it was idle")), "no thread sleeps");
        }
        assert_eq!(collects(1), Owed::default(), "no thread sleeps");
        assert!(matches!(queue.idle(), Idle::Arrived), "two were not looked at");
        assert_eq!(collects(1), Owed::default());
        assert!(matches!(queue.idle(), Idle::Arrived), "one was not looked at");
        assert_eq!(collects(1), Owed::default());
        // All stay, and each was reported once.
        let Idle::Wait(ticket, _) = queue.idle() else { panic!("nothing is new") };
        assert_eq!(queue.wait(ticket, Some(Instant::now()), Spin::OFF), Woken::TimedOut);
        assert_eq!(collects(1), Owed::default(), "it left nothing new");
        assert!(matches!(queue.idle(), Idle::Wait(..)));
    }

    #[test]
    fn a_descriptor_is_written_to_once_until_the_entries_are_collected_and_again_if_some_stay() {
        let queue = PollQueue::new();
        let [one, two] = [(); 2].map(|()| queue.admit(|numbered| numbered).expect("a number"));
        assert!(!queue.push(one.raise(1).expect("it was idle")));
        assert!(queue.describe(), "an entry has come before");
        assert!(!queue.push(two.raise(1).expect("it was idle")), "it is shown already");
        assert!(queue.collect(&mut (), |()| false, |(), _, _| true).write, "entries stay");
        assert!(!queue.interrupt(), "it is shown already");
        assert!(!queue.collect(&mut (), |()| false, |(), _, _| false).write, "none stays");
        assert!(queue.interrupt());
    }
}
