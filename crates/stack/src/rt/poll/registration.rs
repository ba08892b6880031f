//! A socket in a set, and the list of those that a socket is in.
//!
//! A registration stands on the socket's list ([`Waiters`], under the socket's mutex) and in the poller's table. What it
//! is ready for is one word, whose protocol is `sockeye_sync`'s `readiness.rs`. Two ways to use it:
//!
//! * *owned*: level-triggered on a TCP connection. Everything that the word says changes under the connection's mutex of
//!   the buffers: a delivery raises, the read that empties the buffer lowers, and a poll believes the word for as long as it says
//!   *readable* and nothing else. Anything else that was told or asked for (an end, an error, room to write) is looked at under the
//!   mutex at each wait.
//! * *shared*: everything else. Bits are hints, raised by whoever knows; a level is asked of the socket.
//!
//! A registration refers to its socket, and the socket's list to the registration; closing the socket breaks the circle, and so does
//! dropping the poller ([`Registration::leave`]).
//!
//! Must not know waiting. Tests: `tests/suite/{poll,poll_stress}.rs`, `tests/unix/cases/readiness.rs`.

use std::io;

use smallvec::SmallVec;
use sockeye_sync::cpu::Place;
use sockeye_sync::facade::Arc;
use sockeye_sync::{Generation, Look, Poller, Readiness, WaitList};

use super::ready::Ready;
use super::table::{Entry, Held, Queue};
use super::target::Target;
use super::{Token, Trigger};
use crate::rt::failpoints::{self, Point};
use crate::rt::wake::Wake;

/// A socket in a set. On cache lines of its own: neighbours in memory are often other threads'.
#[repr(align(64))]
pub(crate) struct Registration {
    pub(super) queue: Arc<Queue>,
    pub(super) token: Token,
    /// Its number in the queue's table.
    pub(super) index: u32,
    interest: Ready,
    trigger: Trigger,
    /// Whether the word is used in the owned way; see the head of the file.
    is_owned: bool,
    /// (b) or (a), by `is_owned`.
    pub(super) word: Readiness,
    target: Box<dyn Target>,
}

/// What a look at a registration found, if there is something to report.
pub(super) struct Found {
    pub ready: Ready,
    /// The poller goes on holding it.
    pub stays: bool,
}

impl Registration {
    /// Not in any list yet.
    pub fn new(
        queue: &Arc<Queue>,
        (index, first): (u32, Generation),
        token: Token,
        (interest, trigger): (Ready, Trigger),
        target: Box<dyn Target>,
    ) -> Self {
        let is_owned = trigger == Trigger::Level && target.owns_words();
        let word = Readiness::new(first);
        if is_owned && interest != Ready::READABLE {
            // Nobody lowers anything else.
            word.look_closer();
        }
        let interest = interest.with(Ready::ALWAYS);
        Self { queue: Arc::clone(queue), token, index, interest, trigger, is_owned, word, target }
    }

    /// Notes readiness, and queues the registration if it is not queued. Under the mutex of the socket if it is owned.
    pub fn mark<O: From<Wake>>(this: &Arc<Self>, ready: Ready, wakes: &mut Vec<O>) {
        let ready = ready.of(this.interest);
        if ready == Ready::NONE {
            return;
        }
        let queued = if this.is_owned {
            if ready != Ready::READABLE {
                this.word.look_closer();
            }
            this.word.raise(ready.0)
        } else {
            this.word.raise_shared(ready.0)
        };
        if let Some(generation) = queued {
            Queue::push(&this.queue, Entry { index: this.index, generation }, wakes);
        }
    }

    /// The poller's look at an entry of this registration.
    #[inline]
    pub(super) fn look(&self, held: Held) -> Option<Found> {
        let entry = held.entry.generation;
        match (self.word.look(entry), self.trigger) {
            (Look::Void, _) => None,
            (Look::Ready(bits), Trigger::Level) if self.is_owned => {
                self.word.report(entry);
                Some(Found { ready: Ready(bits), stays: true })
            }
            (_, Trigger::Level) if self.is_owned => self.settle(entry),
            (_, Trigger::Level) => self.look_at_socket(held),
            (_, Trigger::Edge) => {
                let ready = Ready(self.word.take_shared(entry)?).some()?;
                Some(Found { ready, stays: false })
            }
        }
    }

    /// A look at the socket itself, under its mutex.
    #[cold]
    fn settle(&self, entry: Generation) -> Option<Found> {
        let mut found = None;
        self.target.settle(&mut |ready| {
            let ready = ready.of(self.interest);
            found = self.word.settle(entry, ready.0).then_some(Found { ready, stays: true });
        });
        found
    }

    /// A look at the socket of a shared word. The first time it is most likely ready; later most likely not, so it is made
    /// idle first, and a mark after the look queues it again.
    fn look_at_socket(&self, held: Held) -> Option<Found> {
        let is_ready = || self.target.ready().of(self.interest).some();
        if !held.is_reported
            && let Some(ready) = is_ready()
        {
            return Some(Found { ready, stays: true });
        }
        self.word.take_shared(held.entry.generation)?;
        let ready = is_ready()?;
        // A mark that came in between has queued it itself; then it is in the inbox and not held.
        Some(Found { ready, stays: self.word.keep_shared() })
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

    /// The set that it belongs to.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

/// Everybody who waits for one buffer of a socket, under that buffer's mutex.
pub(crate) type Waiters = WaitList<Registration>;

impl Poller for Registration {
    type Owed = Wake;

    fn interest(&self) -> u8 {
        self.interest.0
    }

    fn mark<O: From<Wake>>(this: &Arc<Self>, ready: u8, owed: &mut Vec<O>) {
        Self::mark(this, Ready(ready), owed);
    }
}

/// A registration whose socket has gone. Its drop takes it out of its poller's table, under the table's mutex.
pub(crate) struct Gone(Arc<Registration>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.queue.forget(&self.0);
    }
}

/// Takes everybody off the list of a socket that closes: tasks are woken, and nobody is told any more. Breaks the cycle of socket
/// and registration; what comes back is to be dropped outside the socket's mutex.
#[must_use]
pub(crate) fn clear<O: From<Wake>>(list: &mut Waiters, wakes: &mut Vec<O>) -> SmallVec<[Gone; 1]> {
    list.clear(wakes).into_iter().map(Gone).collect()
}

/// The socket is not readable any more: a read has emptied its buffer, in this section of the mutex.
#[inline]
pub(crate) fn lower_readable(list: &Waiters) {
    for registration in list.pollers().iter().filter(|registration| registration.is_owned) {
        registration.word.lower(Ready::READABLE.0);
    }
}

/// What the socket is ready for changes in a way that nobody is told of: levels have to be looked at.
pub(crate) fn look_closer(list: &Waiters) {
    for registration in list.pollers().iter().filter(|registration| registration.is_owned) {
        registration.word.look_closer();
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

/// Takes the socket out of a set. To be taken out of the poller's table afterwards.
#[must_use]
pub(crate) fn remove(list: &mut Waiters, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
    list.remove_poller(|known| Arc::ptr_eq(&known.queue, queue))
}
