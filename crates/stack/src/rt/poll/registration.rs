//! A socket in a set, and the list of those that a socket is in.
//!
//! A registration stands on the socket's list ([`Waiters`], under the socket's mutex) and in the poller's table. Its readiness is one word, whose
//! protocol is `sockeye_sync`'s: `polled.rs` for a registration's use of it, `readiness.rs` for the word. Two ways to use it:
//!
//! * *owned*: level-triggered on a TCP connection. Everything that the word says changes under the connection's socket lock of the
//!   buffers: a delivery raises, the read that empties the buffer lowers, and a poll believes the word for as long as it says
//!   *readable* and nothing else. Anything else that was reported or asked for (an end, an error, room to write) is looked at under
//!   the mutex at each wait.
//! * *shared*: everything else. Bits are hints, raised by the threads that know; a level is asked of the socket.
//!
//! A registration refers to its socket, and the socket's list to the registration; closing the socket breaks the circle, and so does
//! dropping the poller ([`Registration::leave`]).
//!
//! Does not depend on waiting. Tests: `tests/suite/{poll,poll_stress}.rs`, `tests/unix/cases/readiness.rs`;
//! models in `crates/sync/tests/loom/poll_queue.rs`.

use std::io;

use smallvec::SmallVec;
use sockeye_sync::cpu::Place;
use sockeye_sync::facade::Arc;
use sockeye_sync::polled::{Found, Held, Polled, Source, Way};
use sockeye_sync::slots::{Numbered, Registered};
use sockeye_sync::{Poller, WaitList};

use super::ready::Ready;
use super::table::Queue;
use super::target::Target;
use super::{Token, Trigger};
use crate::rt::failpoints::{self, Point};
use crate::rt::wake::Wake;

/// A socket in a set. On cache lines of its own: neighbours in memory are often other threads'.
#[repr(align(64))]
pub(crate) struct Registration {
    pub(super) queue: Arc<Queue>,
    pub(super) token: Token,
    /// Its number in the queue's table, and its word: (b) if it is owned, else (a).
    polled: Polled,
    target: Box<dyn Target>,
}

impl Registration {
    /// Not in any list yet.
    pub fn new(
        queue: &Arc<Queue>,
        numbered: Numbered,
        token: Token,
        (interest, trigger): (Ready, Trigger),
        target: Box<dyn Target>,
    ) -> Self {
        let way = match trigger {
            Trigger::Level if target.owns_words() => Way::Owned { believed: Ready::READABLE.0 },
            Trigger::Level => Way::Level,
            Trigger::Edge => Way::Edge,
        };
        let polled = Polled::new(numbered, way, interest.0, interest.told_unasked().0);
        Self { queue: Arc::clone(queue), token, polled, target }
    }

    /// Notes readiness, and queues the registration if it is not queued. Under the mutex of the socket if it is owned.
    pub fn mark<O: From<Wake>>(this: &Arc<Self>, ready: Ready, wakes: &mut Vec<O>) {
        if let Some(entry) = this.polled.mark(ready.0) {
            Queue::push(&this.queue, entry, wakes);
        }
    }

    /// The poller's look at an entry of this registration.
    #[inline]
    pub(super) fn look(&self, held: Held) -> Option<Found> {
        self.polled.look(held, self)
    }

    /// Where its socket begins in memory.
    pub fn place(&self) -> Place {
        self.target.place()
    }

    /// The socket.
    pub(super) fn target(&self) -> &dyn Target {
        &*self.target
    }

    /// Its poller is gone: takes it off its socket's list. Outside all locks, which it takes one at a time.
    pub(super) fn leave(&self) {
        let listed = self.target.remove(&self.queue);
        failpoints::hit(Point::PollLeave, self.token.0 as u64);
        drop(listed);
    }
}

/// The waiters for one buffer of a socket, under that buffer's mutex.
pub(crate) type Waiters = WaitList<Registration>;

impl Poller for Registration {
    type Owed = Wake;

    fn interest(&self) -> u8 {
        self.polled.interest()
    }

    fn mark<O: From<Wake>>(this: &Arc<Self>, ready: u8, owed: &mut Vec<O>) {
        Self::mark(this, Ready(ready), owed);
    }
}

impl Source for Registration {
    fn ready(&self) -> u8 {
        self.target.ready().0
    }

    fn settle(&self, settle: &mut dyn FnMut(u8)) {
        self.target.settle(&mut |ready| settle(ready.0));
    }
}

impl Registered for Registration {
    #[inline]
    fn numbered(&self) -> &Numbered {
        self.polled.numbered()
    }
}

/// A registration whose socket has gone. Its drop takes it out of its poller's table, under the table's mutex.
pub(crate) struct Gone(Arc<Registration>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.queue.list.forget(&self.0);
    }
}

/// Takes all waiters off the list of a socket that closes: tasks are woken, and no poller is notified any more. Breaks the cycle of socket
/// and registration; the returned value is to be dropped outside the socket's mutex.
#[must_use]
pub(crate) fn clear<O: From<Wake>>(list: &mut Waiters, wakes: &mut Vec<O>) -> SmallVec<[Gone; 1]> {
    list.clear(wakes).into_iter().map(Gone).collect()
}

/// The socket is not readable any more: a read has emptied its buffer, in this section of the mutex.
#[inline]
pub(crate) fn lower_readable(list: &Waiters) {
    for registration in list.pollers() {
        registration.polled.lower(Ready::READABLE.0);
    }
}

/// The socket's readiness changes in a way that is not reported: levels have to be looked at.
pub(crate) fn look_closer(list: &Waiters) {
    for registration in list.pollers() {
        registration.polled.look_closer();
    }
}

/// Most sets that one socket may be in at once.
const SETS_MAX: usize = 64;

pub(crate) fn add(list: &mut Waiters, registration: &Arc<Registration>) -> io::Result<()> {
    if list.pollers().iter().any(|known| Arc::ptr_eq(&known.queue, &registration.queue)) {
        let message = "the socket is registered with this Poll already: use reregister";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    if list.pollers().len() >= SETS_MAX {
        let message = format!("a socket can be in {SETS_MAX} Polls at once: deregister it somewhere");
        return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
    }
    list.add_poller(Arc::clone(registration));
    Ok(())
}

/// Adds a registration to a further list of its socket, unless it is there.
pub(crate) fn join(list: &mut Waiters, registration: &Arc<Registration>) {
    if !is_in(list, registration) {
        list.add_poller(Arc::clone(registration));
    }
}

pub(crate) fn is_in(list: &Waiters, registration: &Arc<Registration>) -> bool {
    list.pollers().iter().any(|listed| Arc::ptr_eq(listed, registration))
}

/// Undoes [`join`].
#[must_use]
pub(crate) fn leave(list: &mut Waiters, registration: &Arc<Registration>) -> Option<Arc<Registration>> {
    list.remove_poller(|listed| std::ptr::eq(listed, &raw const **registration))
}

/// Takes the socket out of a set. To be taken out of the poller's table afterwards.
#[must_use]
pub(crate) fn remove(list: &mut Waiters, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
    list.remove_poller(|known| Arc::ptr_eq(&known.queue, queue))
}
