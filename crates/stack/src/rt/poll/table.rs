//! A poller's lists: its registrations by number, what may be ready, and the inbox of those that have become so.
//!
//! A socket's side puts *entries* into the inbox: the number of a registration and the generation of its word
//! ([`Readiness`](sockeye_sync::Readiness)). No reference is counted for an entry; one that has become void, or whose registration is gone,
//! is dropped when the poller comes to it. A number is given to a later registration, whose word then begins with a later
//! generation.
//!
//! Rank: [`Table`] before the sockets' mutexes, inbox after them (see ARCHITECTURE). Nothing is dropped under the table's
//! mutex that could be the last of a socket.
//!
//! Must not know sockets. Tests: `tests/suite/{poll,poll_stress}.rs`.

use std::collections::VecDeque;
use std::io;

use sockeye_sync::facade::Arc;
use sockeye_sync::{BriefMutex, Generation, WaitQueue};

use super::registration::Registration;
use crate::rt::wake::Wake;

/// What a poller shares with the sockets in it. On cache lines of its own: pollers are made one after the other, for
/// threads on different cores.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Queue {
    pub(super) inbox: BriefMutex<Inbox>,
    pub(super) wait: WaitQueue,
    pub(super) table: BriefMutex<Table>,
}

/// A registration that may be ready, without a reference to it.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub index: u32,
    pub generation: Generation,
}

#[derive(Default)]
pub(super) struct Inbox {
    pub list: Vec<Entry>,
    /// The CPU of the first mark in the list, as a hint whether spinning can help.
    pub cpu: u32,
    pub is_woken: bool,
    /// The poller is gone: what is marked from now on has nobody to find it.
    pub is_closed: bool,
}

/// The poller's own side. On other cache lines than the inbox.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Table {
    pub slots: Vec<Slot>,
    /// Numbers of `slots` without a registration.
    free: Vec<u32>,
    /// One round: what is reported goes to the end, so that nobody is looked at twice before everybody was once.
    pub round: VecDeque<Held>,
    /// The inbox's list while it is taken over; empty else.
    pub arrived: Vec<Entry>,
}

/// The place of a registration.
pub(super) struct Slot {
    pub registration: Option<Arc<Registration>>,
    /// Where the generations of the next one begin.
    next: Generation,
}

/// An entry that the poller has taken out of its inbox.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub entry: Entry,
    /// It is level-triggered and was reported before; else it was not looked at yet.
    pub is_reported: bool,
}

impl Table {
    /// A look at the first of the round has panicked: the others come before it.
    #[cold]
    pub fn put_first_last(&mut self) {
        let first = self.round.pop_front();
        self.round.extend(first);
    }
}

impl Queue {
    /// Wakes the thread that waits; outside all locks.
    pub fn wake(&self) {
        self.wait.wake();
    }

    /// Makes a registration and gives it a number.
    ///
    /// # Errors
    /// `QuotaExceeded` if there are no numbers left, of 2^32.
    pub(super) fn admit(
        &self,
        make: impl FnOnce(u32, Generation) -> Registration,
    ) -> io::Result<Arc<Registration>> {
        let mut table = self.table.lock();
        let index = match table.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(table.slots.len()).map_err(|_| io::ErrorKind::QuotaExceeded)?;
                table.slots.push(Slot { registration: None, next: Generation::FIRST });
                index
            }
        };
        let slot = &mut table.slots[index as usize];
        let registration = Arc::new(make(index, slot.next));
        slot.registration = Some(Arc::clone(&registration));
        Ok(registration)
    }

    /// The registration is in no socket's list any more. Once more does nothing. Outside all locks.
    pub(super) fn forget(&self, gone: &Arc<Registration>) {
        let mut table = self.table.lock();
        // A poller that is gone has no slots.
        let Some(slot) = table.slots.get_mut(gone.index as usize) else { return };
        if slot.registration.as_ref().is_some_and(|known| Arc::ptr_eq(known, gone)) {
            slot.next = gone.word.next();
            // Never the last one: the caller has one.
            slot.registration = None;
            table.free.push(gone.index);
        }
    }

    /// Queues an entry. Under the mutex of its socket, or without one if its word is a shared one.
    pub(super) fn push<O: From<Wake>>(this: &Arc<Self>, entry: Entry, wakes: &mut Vec<O>) {
        let mut inbox = this.inbox.lock();
        if inbox.is_closed {
            return;
        }
        if inbox.list.is_empty() {
            inbox.cpu = sockeye_sync::cpu::current();
        }
        inbox.list.push(entry);
        let is_owed = this.wait.notify().is_wake_owed();
        drop(inbox);
        if is_owed {
            wakes.push(Wake::Poller(Arc::clone(this)).into());
        }
    }

    pub(super) fn wake_all(&self, wakes: Vec<Wake>) {
        if !wakes.is_empty() {
            self.wait.wake();
        }
    }

    /// The poller is gone: its registrations are to leave their sockets' lists. Whoever marks one of them meanwhile finds the inbox closed;
    /// a socket that closes meanwhile takes it off its list itself, and finds the table empty. Outside all locks.
    pub(super) fn close(&self) -> impl Iterator<Item = Arc<Registration>> {
        self.inbox.lock().is_closed = true;
        let table = std::mem::take(&mut *self.table.lock());
        // The table's mutex comes before those of the sockets, and none is held here: a registration may be the last to hold its socket.
        table.slots.into_iter().filter_map(|slot| slot.registration)
    }
}
