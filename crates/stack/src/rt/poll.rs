//! Readiness, in the manner of `mio`: many sockets, one thread, level- or edge-triggered.
//!
//! A [`Poll`] has a queue of registrations that *may* be ready. A socket's protocol code marks a
//! registration (from under the socket lock, but only its word and the queue) and the thread in
//! [`Poll::wait`] finds it there; nothing is scanned.
//!
//! # Why no readiness is lost
//! * *Registering*: the registration is added under the socket's mutex first, and the socket's buffers are
//!   looked at afterwards, under it again. A deliverer changes the buffers and looks at the registrations
//!   under the same mutex, in one go. One of the two sees the other.
//! * *Queued once*: the thread that makes a registration's word queued puts an entry into the inbox; it stays queued for as long as
//!   that entry is in the inbox or with the poller (`sockeye_sync`'s `readiness.rs` and `poll_queue.rs`).
//! * *Level*: a registration that was reported stays with the poller, still queued, and is looked
//!   at again by the next wait. It leaves when it is not ready, and the next mark queues it again.
//! * *Ending*: dropping the set closes the inbox and takes each registration off its socket's list. No event is reported to a set that is gone.
//! * *Sleeping*: the inbox's mutex guards the wait queue, as everywhere (`poll_queue.rs`).
//!
//! A waiter may find a registration that is not ready after all; it is then not reported.
//!
//! Inside: `poll/descriptor.rs` lets a set be waited for by its descriptor, `poll/events.rs` has the result of a wait, `poll/table.rs` a poller's
//! queue, `poll/registration.rs` a socket's, `poll/target.rs` a socket's readiness. Tests: `tests/suite/{poll,poll_stress}.rs`.

#[cfg(unix)]
mod descriptor;
mod events;
mod ready;
pub(crate) mod registration;
#[cfg_attr(
    all(any(target_os = "linux", target_os = "android"), not(sockeye_portable)),
    path = "poll/signal/eventfd.rs"
)]
#[cfg_attr(
    all(unix, not(all(any(target_os = "linux", target_os = "android"), not(sockeye_portable)))),
    path = "poll/signal/pair.rs"
)]
#[cfg_attr(not(unix), path = "poll/signal/none.rs")]
mod signal;
mod table;
mod target;

use std::io;
use std::time::Duration;

use sockeye_sync::facade::{Arc, OnceLock};
use sockeye_sync::poll_queue::Idle;
use sockeye_sync::polled::Held;
use sockeye_sync::{Local, Spin, Woken};

use crate::rt::blocking::Timeout;
use crate::rt::env::Env;
use crate::rt::failpoints::{self, Point};
use crate::rt::handle::WeakStack;
use crate::rt::panics::{self, Caught, PanicSource};

#[cfg(unix)]
pub use descriptor::PollFd;
pub use events::{Event, Events, Iter};
pub(crate) use ready::Ready;
pub(crate) use registration::{Registration, Waiters};
pub(crate) use table::Queue;
pub(crate) use target::{Target, mark, sealed};

/// The number by which an application identifies one of its registrations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub usize);

/// Events to report. Errors and hang-ups are reported in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest(u8);

impl Interest {
    /// A read, or a listener's accept, is possible; or the peer will send no more.
    pub const READABLE: Self = Self(Ready::READABLE.0);
    /// A write is possible, or a connect has ended; or the peer will accept no more.
    pub const WRITABLE: Self = Self(Ready::WRITABLE.0);
    /// Urgent data of a TCP connection (EPOLLPRI): its last byte has arrived and is not read yet; or the peer will send no
    /// more.
    pub const PRIORITY: Self = Self(Ready::PRIORITY.0);

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitOr for Interest {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// When to be told again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// At every wait while the socket is ready.
    Level,
    /// Once for every change.
    Edge,
}

/// A set of sockets to wait for. See the module's documentation.
pub struct Poll {
    /// Shared with the threads of its sockets' stacks.
    queue: Local<Arc<Queue>>,
    spin: Spin,
    /// The stack of the first socket, which reports panics over sockets of the set.
    first: OnceLock<WeakStack>,
}

/// Something that can be registered: a stream or a listener of this crate.
pub trait Pollable: sealed::Source {}

impl Poll {
    /// An empty set. `spin_max` as in [`Config`](crate::Config): how long a wait spins before it parks.
    pub fn new(spin_max: Duration) -> Self {
        Self {
            queue: Local::unshared(Arc::new(Queue::default())),
            spin: Spin::up_to(spin_max),
            first: OnceLock::new(),
        }
    }

    /// Adds a socket. If it is ready now, the next wait reports it.
    ///
    /// # Errors
    /// `AlreadyExists` if the socket is in this set; `Other` if the stack's own code panics; then the socket is not in
    /// the set.
    pub fn register(
        &self,
        source: &impl Pollable,
        token: Token,
        interest: Interest,
        trigger: Trigger,
    ) -> io::Result<()> {
        let queue = self.queue()?;
        let target = source.target()?;
        if source.owner().config().workers > 0 {
            self.queue.share();
        }
        self.first.get_or_init(|| source.owner().downgrade());
        let registration = queue.admit(|numbered| {
            let wanted = (Ready(interest.0), trigger);
            Registration::new(queue, numbered, token, wanted, target)
        })?;
        let mut wakes = Vec::new();
        let added = panics::catch(PanicSource::Protocol, "register", || {
            registration.target().add(&registration, &mut wakes)
        });
        let added = added.unwrap_or_else(|caught| {
            if let Some(gone) = registration.target().remove(queue) {
                queue.list.forget(&gone);
            }
            Err(self.report(caught))
        });
        if added.is_err() {
            queue.list.forget(&registration);
        }
        queue.wake_all(wakes);
        added
    }

    /// Reports a panic over a socket of the set. Returns the call's error.
    #[cold]
    fn report(&self, caught: Caught) -> io::Error {
        if let Some(stack) = self.first.get().and_then(WeakStack::upgrade)
            && let Ok(env) = stack.core::<Env>()
        {
            caught.report(env);
        }
        panics::error()
    }

    /// Changes a socket's token, interest or trigger.
    ///
    /// # Errors
    /// `NotFound` if the socket is not in this set.
    pub fn reregister(
        &self,
        source: &impl Pollable,
        token: Token,
        interest: Interest,
        trigger: Trigger,
    ) -> io::Result<()> {
        self.deregister(source)?;
        self.register(source, token, interest, trigger)
    }

    /// Removes a socket from the set. Dropping the last handle of a socket does the same.
    ///
    /// # Errors
    /// `NotFound` if the socket is not in this set.
    pub fn deregister(&self, source: &impl Pollable) -> io::Result<()> {
        // The registration is dropped outside the socket's mutex.
        let queue = self.queue()?;
        let Some(gone) = source.target()?.remove(queue) else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the socket is not registered with this Poll",
            ));
        };
        queue.list.forget(&gone);
        Ok(())
    }

    /// Waits until a socket is ready, `timeout` has passed (`None`: no limit) or [`Poll::wake`] is called. Returns the
    /// number of events, 0 after the timeout or a wake. May block. Several threads may wait; each event goes to one of
    /// them.
    ///
    /// # Errors
    /// `Other` if the stack's own code panics over a socket. The socket stays in the set, and the next wait looks at the others first.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.list.clear();
        let queue = self.queue()?;
        // The clock is asked when there is nothing to report.
        let mut until = Timeout::after(timeout);
        loop {
            self.collect(queue, events)?;
            if !events.is_empty() || timeout == Some(Duration::ZERO) {
                return Ok(events.len());
            }
            let deadline = until.until();
            let (ticket, cpu) = match queue.list.idle() {
                Idle::Interrupted => return Ok(0),
                Idle::Arrived => continue,
                Idle::Wait(ticket, cpu) => (ticket, cpu),
            };
            if queue.list.wait(ticket, deadline, self.spin.woken_from(Some(cpu))) == Woken::TimedOut {
                self.collect(queue, events)?;
                return Ok(events.len());
            }
        }
    }

    /// A set with a file descriptor, with which an event loop of descriptors can wait for its sockets: see [`PollFd`].
    ///
    /// # Errors
    /// The system's for a descriptor, above all `EMFILE` (too many are open).
    #[cfg(unix)]
    pub fn into_fd(self) -> io::Result<PollFd> {
        PollFd::new(self)
    }

    /// Ends one wait of another thread, or the next one.
    pub fn wake(&self) {
        if let Some(queue) = self.queue.get() {
            queue.interrupt();
        }
    }

    /// [`collect`] that contains a panic. This wait reports the sockets found before.
    fn collect(&self, queue: &Queue, events: &mut Events) -> io::Result<()> {
        let found =
            panics::catch(PanicSource::Protocol, "a look at a socket of a Poll", || collect(queue, events));
        found.or_else(|caught| {
            // Registrations not looked at are still there.
            queue.settle(queue.list.give_up());
            let error = self.report(caught);
            if events.is_empty() { Err(error) } else { Ok(()) }
        })
    }

    fn queue(&self) -> io::Result<&Arc<Queue>> {
        self.queue.open("Poll")
    }
}

/// Looks at the held and the new registrations, each once, until the events are full.
fn collect(queue: &Queue, events: &mut Events) {
    queue.hide();
    queue.settle(queue.list.collect(events, Events::is_full, look));
}

/// Looks at one registration, and notes its event, if any. Whether the poller goes on holding it.
#[inline]
fn look(events: &mut Events, registration: &Arc<Registration>, held: Held) -> bool {
    failpoints::hit(Point::PollLook, registration.token.0 as u64);
    let Some(found) = registration.look(held) else { return false };
    events.list.push(Event {
        token: registration.token,
        ready: Ready(found.ready),
        socket: registration.place(),
    });
    found.stays
}

impl Drop for Poll {
    /// Takes its sockets out of the set.
    fn drop(&mut self) {
        let Some(queue) = self.queue.get() else { return };
        for registration in queue.list.close() {
            // One after the other, so that a panic over one keeps no other in the set.
            if let Err(caught) =
                panics::catch(PanicSource::Protocol, "the end of a Poll", || registration.leave())
            {
                let _error = self.report(caught);
            }
        }
    }
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poll").finish_non_exhaustive()
    }
}
