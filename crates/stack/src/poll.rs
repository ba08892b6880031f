//! Readiness, in the manner of `mio`: many sockets, one thread, level- or edge-triggered.
//!
//! A [`Poll`] has a queue of registrations that *may* be ready. A socket's protocol code marks a
//! registration (from inside the perimeter, but only its bits and the queue) and the thread in
//! [`Poll::wait`] finds it there; nothing is scanned.
//!
//! # Why no readiness is lost
//! * *Registering*: the registration is published in the socket's [`Watchers`] first and the socket's
//!   buffers are looked at afterwards, under their mutexes. A deliverer changes the buffer under the same
//!   mutex first and looks at the watchers afterwards. One of the two sees the other.
//! * *Queued once*: the bit `QUEUED` is set by whoever puts a registration into a queue and cleared by
//!   the waiter that takes it out, with a read-modify-write each. A mark that finds it set leaves its
//!   bits behind, and the waiter reads the bits with the very swap that clears `QUEUED`.
//! * *Level*: a registration that was reported stays with the waiter, `QUEUED` still set, and is looked
//!   at again by the next wait. If the socket is no longer ready, `QUEUED` is cleared and the
//!   socket looked at once more, so that a mark in between is not missed.
//! * *Sleeping*: the queue's mutex guards the wait queue, as everywhere.
//!
//! A waiter may find a registration that is not ready after all; it is then not reported.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use sockeye_sync::{Mutex, Spin, WaitQueue, Woken};

use crate::conn::Conn;
use crate::conn::outbox::Wake;
use crate::listen::Listener;
use crate::workers::deadline_after;

/// The number by which an application knows one of its registrations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub usize);

/// What to be told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest(u8);

impl Interest {
    /// Reads, and accepts of a listener.
    pub const READABLE: Self = Self(Ready::READABLE.0);
    /// Writes, and the end of a connect.
    pub const WRITABLE: Self = Self(Ready::WRITABLE.0);

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
    /// At every wait for as long as the socket is ready.
    Level,
    /// Once for every change.
    Edge,
}

/// One socket that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    token: Token,
    ready: Ready,
}

impl Event {
    /// The token given when the socket was registered.
    pub fn token(&self) -> Token {
        self.token
    }
    /// A read or accept would not block.
    pub fn is_readable(&self) -> bool {
        self.ready.any(Ready::READABLE)
    }
    /// A write would not block, or a connect is over.
    pub fn is_writable(&self) -> bool {
        self.ready.any(Ready::WRITABLE)
    }
    /// The peer will send no more.
    pub fn is_read_closed(&self) -> bool {
        self.ready.any(Ready::READ_CLOSED)
    }
    /// The peer will take no more.
    pub fn is_write_closed(&self) -> bool {
        self.ready.any(Ready::WRITE_CLOSED)
    }
    /// An error is pending; `take_error` has it.
    pub fn is_error(&self) -> bool {
        self.ready.any(Ready::ERROR)
    }
}

/// The result of a wait.
#[derive(Debug)]
pub struct Events {
    list: Vec<Event>,
    capacity: usize,
}

impl Events {
    /// Room for `capacity` events a wait, at least 1.
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { list: Vec::with_capacity(capacity), capacity }
    }
    /// The events.
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.list.iter()
    }
    /// True if the wait ended without any.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A set of sockets to wait for. See the module's documentation.
pub struct Poll {
    queue: Arc<Queue>,
    /// What the waiter holds: taken from the queue and not yet looked at, or reported and level-triggered.
    held: Mutex<VecDeque<Arc<Registration>>>,
    spin: Spin,
}

/// Something that can be registered: a stream or a listener of this crate.
pub trait Pollable: sealed::Source {}

impl Pollable for crate::TcpStream {}
impl Pollable for crate::TcpListener {}

impl Poll {
    /// An empty set. `spin_max` as in [`Config`](crate::Config): how long a wait is busy before it parks.
    pub fn new(spin_max: Duration) -> Self {
        Self {
            queue: Arc::new(Queue::default()),
            held: Mutex::new(VecDeque::new()),
            spin: Spin::up_to(spin_max),
        }
    }

    /// Adds a socket. If it is ready now, the next wait says so.
    ///
    /// # Errors
    /// `AlreadyExists` if the socket is in this set.
    pub fn register(
        &self,
        source: &impl Pollable,
        token: Token,
        interest: Interest,
        trigger: Trigger,
    ) -> io::Result<()> {
        let target = source.target();
        let registration = Arc::new(Registration {
            queue: Arc::clone(&self.queue),
            token,
            interest: Ready(interest.0).with(Ready::ALWAYS),
            trigger,
            state: AtomicU8::new(0),
            cancelled: AtomicBool::new(false),
            target: target.clone(),
        });
        target.watchers().add(&registration)?;
        let mut wakes = Vec::new();
        registration.mark(target.ready(), &mut wakes);
        self.queue.wake_all(wakes);
        Ok(())
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

    /// Takes a socket out of the set. Dropping the last handle of a socket does the same.
    ///
    /// # Errors
    /// `NotFound` if the socket is not in this set.
    pub fn deregister(&self, source: &impl Pollable) -> io::Result<()> {
        if source.target().watchers().remove(&self.queue) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "the socket is not registered with this Poll"))
    }

    /// Waits until a socket is ready, `timeout` is over (`None`: no limit) or [`Poll::wake`] is called.
    /// Returns the number of events, 0 at the end of the time or after a wake. May block. Several threads
    /// may wait; each event goes to one of them.
    ///
    /// # Errors
    /// None today; the signature is `mio`'s.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        let deadline = deadline_after(timeout);
        events.list.clear();
        loop {
            self.collect(events);
            if !events.is_empty() || timeout == Some(Duration::ZERO) {
                return Ok(events.len());
            }
            let (ticket, cpu) = {
                let mut inbox = self.queue.inbox.lock();
                if std::mem::take(&mut inbox.woken) {
                    return Ok(0);
                }
                if !inbox.list.is_empty() {
                    continue;
                }
                (self.queue.wait.prepare(), inbox.cpu)
            };
            let spin = self.spin.woken_from(Some(cpu));
            if self.queue.wait.wait(ticket, deadline, spin) == Woken::TimedOut {
                self.collect(events);
                return Ok(events.len());
            }
        }
    }

    /// Ends one wait of another thread, or the next one.
    pub fn wake(&self) {
        let mut inbox = self.queue.inbox.lock();
        inbox.woken = true;
        let owed = self.queue.wait.notify().is_wake_owed();
        drop(inbox);
        if owed {
            self.queue.wait.wake();
        }
    }

    /// Looks at what is held, then at what has come, until the events are full.
    fn collect(&self, events: &mut Events) {
        let mut held = self.held.lock();
        {
            let mut inbox = self.queue.inbox.lock();
            held.extend(inbox.list.drain(..));
        }
        for _ in 0..held.len() {
            if events.list.len() == events.capacity {
                break;
            }
            let Some(registration) = held.pop_front() else { break };
            let ready = registration.take();
            if ready != Ready::NONE {
                events.list.push(Event { token: registration.token, ready });
                if registration.trigger == Trigger::Level {
                    held.push_back(registration);
                }
            }
        }
    }
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poll").field("held", &self.held.lock().len()).finish_non_exhaustive()
    }
}

/// A poller's inbox.
#[derive(Default)]
pub(crate) struct Queue {
    inbox: Mutex<Inbox>,
    wait: WaitQueue,
}

#[derive(Default)]
struct Inbox {
    list: Vec<Arc<Registration>>,
    /// The CPU of the last mark, as a hint whether spinning can help.
    cpu: u32,
    woken: bool,
}

impl Queue {
    /// Wakes the thread that waits; outside all locks.
    pub fn wake(&self) {
        self.wait.wake();
    }

    fn wake_all(&self, wakes: Vec<Wake>) {
        if !wakes.is_empty() {
            self.wait.wake();
        }
    }
}

/// A socket in a set.
struct Registration {
    queue: Arc<Queue>,
    token: Token,
    interest: Ready,
    trigger: Trigger,
    /// (a) Ready bits that were marked, and [`QUEUED`].
    state: AtomicU8,
    /// (a) Taken out of the set.
    cancelled: AtomicBool,
    target: Target,
}

/// The registration is in the inbox or with the waiter.
const QUEUED: u8 = 0x80;

impl Registration {
    /// Notes readiness, and queues the registration if it is not queued.
    fn mark(self: &Arc<Self>, ready: Ready, wakes: &mut Vec<Wake>) {
        let ready = ready.of(self.interest);
        if ready == Ready::NONE {
            return;
        }
        // AcqRel, with the swap in `take`: the waiter that takes our bits sees the buffer they speak of.
        let before = self.state.fetch_or(ready.0 | QUEUED, Ordering::AcqRel);
        if before & QUEUED != 0 {
            return;
        }
        let mut inbox = self.queue.inbox.lock();
        inbox.list.push(Arc::clone(self));
        inbox.cpu = sockeye_sync::cpu::current();
        let owed = self.queue.wait.notify().is_wake_owed();
        drop(inbox);
        if owed {
            wakes.push(Wake::Poller(Arc::clone(&self.queue)));
        }
    }

    /// What to report. For a level-triggered one that is ready, `QUEUED` stays set: it stays held.
    fn take(&self) -> Ready {
        if self.cancelled.load(Ordering::Acquire) {
            return Ready::NONE;
        }
        match self.trigger {
            Trigger::Edge => Ready(self.state.swap(0, Ordering::AcqRel) & !QUEUED),
            Trigger::Level => {
                let ready = self.target.ready().of(self.interest);
                if ready != Ready::NONE {
                    return ready;
                }
                self.state.swap(0, Ordering::AcqRel);
                let ready = self.target.ready().of(self.interest);
                if ready == Ready::NONE {
                    return ready;
                }
                // A mark that came after the swap has queued it itself.
                let before = self.state.fetch_or(QUEUED, Ordering::AcqRel);
                if before & QUEUED == 0 { ready } else { Ready::NONE }
            }
        }
    }
}

/// The registrations of one socket.
pub(crate) struct Watchers {
    /// (a) What any of them wants to know of.
    mask: AtomicU8,
    /// Allocated only for sockets that are polled.
    list: Mutex<Option<Box<Vec<Arc<Registration>>>>>,
}

/// Most sets that one socket may be in.
const SETS_MAX: usize = 64;

impl Watchers {
    pub fn new() -> Self {
        Self { mask: AtomicU8::new(0), list: Mutex::new(None) }
    }

    /// Tells everybody who wants to know of `ready`. Wakes are left to the caller.
    #[inline]
    pub fn mark(&self, ready: Ready, wakes: &mut Vec<Wake>) {
        // Acquire, with the Release of `add`; see the module's head for why a stale 0 is harmless.
        if self.mask.load(Ordering::Acquire) & ready.0 == 0 {
            return;
        }
        let list = self.list.lock();
        for registration in list.iter().flat_map(|l| l.iter()) {
            registration.mark(ready, wakes);
        }
    }

    fn add(&self, registration: &Arc<Registration>) -> io::Result<()> {
        let mut list = self.list.lock();
        let list = list.get_or_insert_default();
        if list.iter().any(|r| Arc::ptr_eq(&r.queue, &registration.queue)) {
            let message = "the socket is registered with this Poll already: use reregister";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        if list.len() >= SETS_MAX {
            let message = format!("a socket can be in {SETS_MAX} Polls at once: deregister it somewhere");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        list.push(Arc::clone(registration));
        self.mask.fetch_or(registration.interest.0, Ordering::AcqRel);
        Ok(())
    }

    fn remove(&self, queue: &Arc<Queue>) -> bool {
        let mut list = self.list.lock();
        let Some(all) = list.as_mut() else { return false };
        let Some(place) = all.iter().position(|r| Arc::ptr_eq(&r.queue, queue)) else { return false };
        all.swap_remove(place).cancelled.store(true, Ordering::Release);
        let mask = all.iter().fold(0, |mask, r| mask | r.interest.0);
        if all.is_empty() {
            *list = None;
        }
        self.mask.store(mask, Ordering::Release);
        true
    }

    /// The socket is gone: nobody is told any more. Breaks the cycle of socket and registration.
    pub fn clear(&self) {
        self.mask.store(0, Ordering::Release);
        let gone = self.list.lock().take();
        for registration in gone.iter().flat_map(|l| l.iter()) {
            registration.cancelled.store(true, Ordering::Release);
        }
    }
}

/// A set of readiness bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready(u8);

impl Ready {
    pub const NONE: Self = Self(0);
    pub const READABLE: Self = Self(1);
    pub const WRITABLE: Self = Self(2);
    pub const READ_CLOSED: Self = Self(4);
    pub const WRITE_CLOSED: Self = Self(8);
    pub const ERROR: Self = Self(16);
    /// What one is told of without having asked, as of EPOLLERR and EPOLLHUP.
    const ALWAYS: Self = Self(4 | 8 | 16);

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    pub const fn of(self, mask: Self) -> Self {
        Self(self.0 & mask.0)
    }
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    pub fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}

/// The socket behind a registration.
#[derive(Clone)]
pub(crate) enum Target {
    Conn(Arc<Conn>),
    Listener(Arc<Listener>),
}

impl Target {
    fn watchers(&self) -> &Watchers {
        match self {
            Self::Conn(conn) => &conn.watch,
            Self::Listener(listener) => &listener.watch,
        }
    }

    /// Readiness now, from the buffers themselves.
    fn ready(&self) -> Ready {
        match self {
            Self::Conn(conn) => {
                let rcv = conn.rcv.lock();
                let read = Ready::READABLE
                    .when(rcv.is_readable())
                    .with(Ready::READ_CLOSED.when(rcv.eof || rcv.shut));
                drop(rcv);
                let snd = conn.snd.lock();
                let write = Ready::WRITABLE
                    .when(snd.is_writable())
                    .with(Ready::WRITE_CLOSED.when(snd.shut));
                drop(snd);
                read.with(write).with(Ready::ERROR.when(conn.has_error()))
            }
            Self::Listener(listener) => Ready::READABLE.when(listener.is_readable()),
        }
    }
}

pub(crate) mod sealed {
    use super::Target;

    /// What a socket tells a set about itself.
    pub trait Source {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn target(&self) -> Target;
    }
}
