//! Readiness, in the manner of `mio`: many sockets, one thread, level- or edge-triggered.
//!
//! A [`Poll`] has a queue of registrations that *may* be ready. A socket's protocol code marks a
//! registration (from inside the perimeter, but only its bits and the queue) and the thread in
//! [`Poll::wait`] finds it there; nothing is scanned.
//!
//! # Why no readiness is lost
//! * *Registering*: the registration is added under the socket's mutex first, and the socket's buffers are
//!   looked at afterwards, under it again. A deliverer changes the buffers and looks at the registrations
//!   under the same mutex, in one go. One of the two sees the other.
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
use std::time::Duration;

use smallvec::SmallVec;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU8, Ordering};
use sockeye_sync::{BriefMutex, Spin, WaitQueue, Woken};

use crate::conn::Conn;
use crate::conn::outbox::Wake;
use crate::listen::Listener;
use crate::udp::pcb::Pcb;
use crate::unix::ready::End;
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
    /// Urgent data of a TCP connection (EPOLLPRI): its last byte has come and is not read yet.
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
    /// The last byte of urgent data has come and is not read yet.
    pub fn is_priority(&self) -> bool {
        self.ready.any(Ready::PRIORITY)
    }
    /// The peer will send no more.
    pub fn is_read_closed(&self) -> bool {
        self.ready.any(Ready::READ_CLOSED)
    }
    /// The peer will take no more.
    pub fn is_write_closed(&self) -> bool {
        self.ready.any(Ready::WRITE_CLOSED)
    }
    /// Neither direction goes any more (EPOLLHUP). Told for UNIX-domain sockets.
    pub fn is_hung_up(&self) -> bool {
        self.ready.any(Ready::HUNG_UP)
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

    fn is_full(&self) -> bool {
        self.list.len() == self.capacity
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
    /// One round: what is reported goes to the end, so that nobody is looked at twice before everybody was once.
    held: BriefMutex<VecDeque<Held>>,
    spin: Spin,
}

/// A registration that the waiter holds; `QUEUED` is set in it.
struct Held {
    registration: Arc<Registration>,
    /// It is level-triggered and was reported before; else it has come from the inbox and was not looked at
    /// yet.
    is_reported: bool,
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
            held: BriefMutex::new(VecDeque::new()),
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
        target.add(&registration)?;
        let mut wakes = Vec::new();
        Registration::mark(&registration, target.ready(), &mut wakes);
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
        // The registration is dropped outside the socket's mutex.
        if source.target().remove(&self.queue).is_some() {
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

    /// Looks at what is held and what has come, each once, until the events are full.
    fn collect(&self, events: &mut Events) {
        let mut held = self.held.lock();
        let fresh = |registration| Held { registration, is_reported: false };
        held.extend(self.queue.inbox.lock().list.drain(..).map(fresh));
        for _ in 0..held.len() {
            if events.is_full() {
                break;
            }
            let Some(Held { registration, is_reported }) = held.pop_front() else { break };
            let found = if is_reported { registration.look_again() } else { registration.look() };
            let Some(ready) = found.ready else { continue };
            events.list.push(Event { token: registration.token, ready });
            if found.stays {
                held.push_back(Held { registration, is_reported: true });
            }
        }
    }
}

impl Drop for Poll {
    /// A registration in the inbox holds the inbox: it has to be taken out, and none may follow.
    fn drop(&mut self) {
        let mut inbox = self.queue.inbox.lock();
        inbox.is_closed = true;
        let left = std::mem::take(&mut inbox.list);
        drop(inbox);
        drop(left);
    }
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poll").finish_non_exhaustive()
    }
}

/// A poller's inbox. On cache lines of its own: pollers are made one after the other, for threads on different
/// cores.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Queue {
    inbox: BriefMutex<Inbox>,
    wait: WaitQueue,
}

#[derive(Default)]
struct Inbox {
    list: Vec<Arc<Registration>>,
    /// The CPU of the last mark, as a hint whether spinning can help.
    cpu: u32,
    woken: bool,
    /// The poller is gone: what is marked from now on has nobody to find it.
    is_closed: bool,
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

/// A socket in a set. On cache lines of its own: neighbours in memory are often other threads'.
#[repr(align(64))]
pub(crate) struct Registration {
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
    fn mark(this: &Arc<Self>, ready: Ready, wakes: &mut Vec<Wake>) {
        let ready = ready.of(this.interest);
        if ready == Ready::NONE {
            return;
        }
        // AcqRel, with the swap in `take`: the waiter that takes our bits sees the buffer they speak of.
        let before = this.state.fetch_or(ready.0 | QUEUED, Ordering::AcqRel);
        if before & QUEUED != 0 {
            return;
        }
        let mut inbox = this.queue.inbox.lock();
        if inbox.is_closed {
            return;
        }
        inbox.list.push(Arc::clone(this));
        inbox.cpu = sockeye_sync::cpu::current();
        let owed = this.queue.wait.notify().is_wake_owed();
        drop(inbox);
        if owed {
            wakes.push(Wake::Poller(Arc::clone(&this.queue)));
        }
    }

    /// The first look at a registration that was marked: most likely it is ready.
    fn look(&self) -> Found {
        match self.trigger {
            _ if self.is_cancelled() => Found::NOTHING,
            Trigger::Edge => {
                let ready = Ready(self.state.swap(0, Ordering::AcqRel) & !QUEUED);
                Found { ready: ready.some(), stays: false }
            }
            Trigger::Level => match self.target.ready().of(self.interest).some() {
                ready @ Some(_) => Found { ready, stays: true },
                None => self.look_again(),
            },
        }
    }

    /// A look at a level-triggered registration that most likely is not ready any more: `QUEUED` is cleared
    /// first, so that a mark after the look queues it again.
    fn look_again(&self) -> Found {
        if self.is_cancelled() {
            return Found::NOTHING;
        }
        self.state.swap(0, Ordering::AcqRel);
        let ready = self.target.ready().of(self.interest).some();
        // A mark that came after the swap has queued it itself; then it is in the inbox and not held.
        let stays = ready.is_some() && self.state.fetch_or(QUEUED, Ordering::AcqRel) & QUEUED == 0;
        Found { ready, stays }
    }

    /// The set that it belongs to.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

/// What a look at a registration found.
struct Found {
    ready: Option<Ready>,
    /// The waiter goes on holding it.
    stays: bool,
}

impl Found {
    const NOTHING: Self = Self { ready: None, stays: false };
}

/// The registrations of one socket, under that socket's mutex.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Most sockets are in one set, whose registration then needs no memory of the list's own.
    list: SmallVec<[Arc<Registration>; 1]>,
}

/// Most sets that one socket may be in.
const SETS_MAX: usize = 64;

impl Watchers {
    /// True if nobody wants to know anything.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Tells everybody who wants to know of `ready`. Wakes are left to the caller.
    #[inline]
    pub fn mark(&self, ready: Ready, wakes: &mut Vec<Wake>) {
        for registration in &self.list {
            Registration::mark(registration, ready, wakes);
        }
    }

    pub fn add(&mut self, registration: &Arc<Registration>) -> io::Result<()> {
        let list = &mut self.list;
        if list.iter().any(|r| Arc::ptr_eq(&r.queue, &registration.queue)) {
            let message = "the socket is registered with this Poll already: use reregister";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        if list.len() >= SETS_MAX {
            let message = format!("a socket can be in {SETS_MAX} Polls at once: deregister it somewhere");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        list.push(Arc::clone(registration));
        Ok(())
    }

    pub fn remove(&mut self, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
        let place = self.list.iter().position(|r| Arc::ptr_eq(&r.queue, queue))?;
        let gone = self.list.swap_remove(place);
        gone.cancelled.store(true, Ordering::Release);
        if self.list.is_empty() {
            self.list = SmallVec::new();
        }
        Some(gone)
    }

    /// The socket is gone: nobody is told any more. Breaks the cycle of socket and registration; to be
    /// dropped outside the socket's mutex.
    #[must_use]
    pub fn clear(&mut self) -> SmallVec<[Arc<Registration>; 1]> {
        let gone = std::mem::take(&mut self.list);
        for registration in &gone {
            registration.cancelled.store(true, Ordering::Release);
        }
        gone
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
    pub const HUNG_UP: Self = Self(32);
    pub const PRIORITY: Self = Self(64);
    /// What one is told of without having asked, as of EPOLLERR and EPOLLHUP.
    const ALWAYS: Self = Self(4 | 8 | 16 | 32);

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    pub const fn of(self, mask: Self) -> Self {
        Self(self.0 & mask.0)
    }
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    /// The set, unless it is empty.
    fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
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
    Unix(End),
    Udp(Arc<Pcb>),
}

impl Target {
    fn add(&self, registration: &Arc<Registration>) -> io::Result<()> {
        match self {
            Self::Conn(conn) => conn.so.lock().watch.add(registration),
            Self::Listener(listener) => listener.with_watchers(|watchers| watchers.add(registration)),
            Self::Unix(end) => end.add(registration),
            Self::Udp(pcb) => pcb.receive.so.lock().watch.add(registration),
        }
    }

    fn remove(&self, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
        match self {
            Self::Conn(conn) => conn.so.lock().watch.remove(queue),
            Self::Listener(listener) => listener.with_watchers(|watchers| watchers.remove(queue)),
            Self::Unix(end) => end.remove(queue),
            Self::Udp(pcb) => pcb.receive.so.lock().watch.remove(queue),
        }
    }

    /// Readiness now, from the buffers themselves.
    fn ready(&self) -> Ready {
        match self {
            Self::Conn(conn) => {
                let so = conn.so.lock();
                let read = Ready::READABLE
                    .when(so.rcv.is_readable())
                    .with(Ready::PRIORITY.when(so.rcv.has_urgent()))
                    .with(Ready::READ_CLOSED.when(so.rcv.eof || so.rcv.shut));
                let write =
                    Ready::WRITABLE.when(so.snd.is_writable()).with(Ready::WRITE_CLOSED.when(so.snd.shut));
                drop(so);
                read.with(write).with(Ready::ERROR.when(conn.has_error()))
            }
            Self::Listener(listener) => Ready::READABLE.when(listener.is_readable()),
            Self::Unix(end) => end.ready(),
            Self::Udp(pcb) => pcb.readiness(),
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
