//! A listener: the accept queue of finished handshakes, and the settings that its children inherit.
//!
//! Bound: `backlog` connections wait at most. A place is reserved before a child is made, so the
//! queue never overflows; without one the handshake waits in the syncache, and new SYNs are dropped.
//! The queue's mutex ranks after the socket locks, and only a poller's inbox is locked under it.

use std::io;
use std::net::IpAddr;
use std::task::Waker;

use smallvec::SmallVec;
use sockeye_proto::tcp::syncache::{Patience, SYNACK_RETRIES_MAX};
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering};
use sockeye_sync::{Key, Mutex, TakeQueue, Ticket, WaitQueue};

use crate::base::addr::Endpoint;
use crate::config::BACKLOG_MAX;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};
use crate::rt::poll::registration::{self, Gone};
use crate::rt::poll::{Ready, Waiters};
use crate::rt::tasks::{Listed, Want};
use crate::tcp::conn::Conn;
use crate::tcp::conn::outbox::{Context, Wake};
use crate::tcp::handshake::admission::Admission;
use crate::tcp::handshake::fastopen::Queue;
use crate::tcp::handshake::values::Value;
use crate::tcp::socket::SocketSettings;
use crate::tcp::socket::tos_ttl::TosTtl;

/// See the module's head.
pub(crate) struct Listener {
    pub local: Endpoint,
    /// IPv4 addresses are shown as mapped ones.
    pub is_mapped: bool,
    /// Parameters of its children.
    pub settings: SocketSettings,
    /// IP_TTL of its children, which may be set at any time; 0: the interface's.
    pub hop_limit: AtomicU8,
    pub nonblocking: AtomicBool,
    /// TCP_SYNCNT, of SYN-ACKs; 0: the stack's.
    pub syn_retries: AtomicU8,
    /// TCP_MAXSEG of its children; 0: the interface's.
    pub maxseg: AtomicU16,
    /// SO_ZEROCOPY of its children.
    pub zerocopy: AtomicBool,
    /// TCP_DEFER_ACCEPT, in expiries of a SYN-ACK's timer.
    pub defers: AtomicU8,
    /// Those that Fast Open has let in and that have not proved themselves.
    pub fast_open: Queue,
    /// Handles of the application.
    pub users: AtomicU32,
    /// The number under which the bind table knows this socket.
    pub bind_id: u64,
    backlog: usize,
    /// Whether, and by which means, its application is asked before a SYN is answered.
    pub admission: Admission,
    line: Line,
}

impl Listed for Arc<Listener> {
    fn take_off(&self, _want: Want, key: Key) -> Option<Waker> {
        self.line.queue.lock().waiters.remove(key)
    }
}

/// Fields that each connection writes, together: the first lines of the queue travel with the count.
#[repr(C, align(128))]
struct Line {
    /// Places taken: children in the queue and children in the making.
    taken: AtomicUsize,
    queue: Mutex<AcceptQueue>,
}

/// A finished handshake.
pub(crate) struct Child {
    pub conn: Arc<Conn>,
    /// What the SYN hook has sent along.
    pub value: Option<Value>,
}

#[derive(Default)]
struct AcceptQueue {
    /// The finished handshakes, and the threads in `accept`. A connection wakes one of them.
    ready: TakeQueue<Child>,
    /// Tasks, and pollers.
    waiters: Waiters,
    closed: bool,
}

impl AcceptQueue {
    fn check(&self) -> io::Result<()> {
        if self.closed {
            return Err(rustix::io::Errno::INVAL.into());
        }
        Ok(())
    }
}

impl Listener {
    pub fn new(
        local: Endpoint,
        options: &SocketSettings,
        is_mapped: bool,
        bind_id: u64,
        backlog: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            local,
            is_mapped,
            // An accepted socket blocks, whatever its listener does (Linux).
            settings: SocketSettings { nonblocking: false, ..*options },
            hop_limit: AtomicU8::new(options.tos_ttl.ttl),
            nonblocking: AtomicBool::new(options.nonblocking),
            syn_retries: AtomicU8::new(options.syn_retries),
            maxseg: AtomicU16::new(options.maxseg),
            zerocopy: AtomicBool::new(options.zerocopy),
            defers: AtomicU8::new(options.defers),
            fast_open: Queue::default(),
            users: AtomicU32::new(1),
            bind_id,
            backlog: backlog.clamp(1, BACKLOG_MAX),
            admission: Admission::default(),
            line: Line { taken: AtomicUsize::new(0), queue: Mutex::new(AcceptQueue::default()) },
        })
    }

    /// Parameters of a child now.
    pub fn child_settings(&self) -> SocketSettings {
        // Relaxed: an option, which orders nothing.
        let (maxseg, zerocopy) = (self.maxseg.load(Ordering::Relaxed), self.zerocopy.load(Ordering::Relaxed));
        SocketSettings { tos_ttl: self.tos_ttl(), maxseg, zerocopy, ..self.settings }
    }

    /// DSCP and hop limit of SYN-ACKs and children now.
    pub fn tos_ttl(&self) -> TosTtl {
        TosTtl { ttl: self.hop_limit.load(Ordering::Relaxed), ..self.settings.tos_ttl }
    }

    /// True while no further child can be taken.
    pub fn is_full(&self) -> bool {
        self.line.taken.load(Ordering::Relaxed) >= self.backlog
    }

    /// Takes a place for a child; `false` if there is none.
    pub fn reserve(&self) -> bool {
        let more = |n| if n < self.backlog { Some(n + 1) } else { None };
        self.line.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives a place back.
    pub fn unreserve(&self) {
        self.line.taken.fetch_sub(1, Ordering::Relaxed);
    }

    /// Queues a child whose place was reserved, and wakes a waiter for it. A child that comes after the
    /// close is reset.
    pub fn push(&self, child: Child, cx: &mut Context<'_>) {
        let mut queue = self.line.queue.lock();
        let (mut child, wakes) = (Some(child), &mut cx.outbox.wakes);
        let pushed = panics::catch(PanicSource::Protocol, "a listener's queue", || {
            failpoints::hit(Point::Queue, u64::from(self.local.port));
            if !queue.closed
                && let Some(child) = child.take()
            {
                wakes.extend(queue.ready.push(child).map(Wake::Threads));
            }
        });
        cx.due.caught.extend(pushed.err());
        if let Some(child) = child {
            // It will not be accepted.
            drop(queue);
            self.unreserve();
            cx.outbox.orphans.push(child.conn);
            cx.outbox.wakes.extend(child.value.map(Wake::Release));
            return;
        }
        queue.waiters.mark(Ready::READABLE.bits(), &mut cx.outbox.wakes);
    }

    /// The oldest child, if there is one.
    pub fn pop(&self) -> Option<Child> {
        let child = self.line.queue.lock().ready.take();
        if child.is_some() {
            self.unreserve();
        }
        child
    }

    /// The oldest child for a thread in `accept`, or a ticket to wait for one on `thread`, the caller's own wait
    /// queue. A thread that was woken looks again; if another was faster, it waits again.
    ///
    /// # Errors
    /// `InvalidInput` (EINVAL) if the listener has closed.
    pub fn pop_or_wait(&self, thread: &Arc<WaitQueue>) -> io::Result<Result<Child, Ticket>> {
        let mut queue = self.line.queue.lock();
        queue.check()?;
        let child = queue.ready.take_or_wait(thread);
        drop(queue);
        if child.is_ok() {
            self.unreserve();
        }
        Ok(child)
    }

    /// For a thread that waited in [`pop_or_wait`](Self::pop_or_wait) and is not to block any more.
    pub fn leave(&self, thread: &Arc<WaitQueue>) {
        let owed = self.line.queue.lock().ready.leave(thread);
        owed.iter().for_each(|thread| thread.wake());
    }

    /// The oldest child, if there is one. For tasks.
    ///
    /// # Errors
    /// As for [`pop_or_wait`](Self::pop_or_wait).
    #[cfg(feature = "tokio")]
    pub fn pop_oldest(&self) -> io::Result<Option<Child>> {
        let mut queue = self.line.queue.lock();
        queue.check()?;
        let child = queue.ready.take();
        drop(queue);
        if child.is_some() {
            self.unreserve();
        }
        Ok(child)
    }

    /// Calls `f` with whether an accept would not block, and with the tasks and pollers that wait.
    #[cfg(feature = "tokio")]
    pub fn with_waiting<R>(&self, f: impl FnOnce(bool, &mut Waiters) -> R) -> R {
        let mut queue = self.line.queue.lock();
        f(queue.closed || !queue.ready.is_empty(), &mut queue.waiters)
    }

    /// Whether `conn` is among those that wait to be accepted.
    pub fn holds(&self, conn: &Arc<Conn>) -> bool {
        self.line.queue.lock().ready.iter().any(|child| Arc::ptr_eq(&child.conn, conn))
    }

    /// How long it waits for its peers.
    pub fn patience(&self, synack_retries: u8) -> Patience {
        // Relaxed: options, which order nothing.
        let set = self.syn_retries.load(Ordering::Relaxed);
        let retries = if set == 0 { synack_retries } else { set };
        Patience { retries: retries.min(SYNACK_RETRIES_MAX), defers: self.defers.load(Ordering::Relaxed) }
    }

    /// Connections that wait to be accepted, and how many may.
    pub fn depth(&self) -> (usize, usize) {
        (self.line.queue.lock().ready.len(), self.backlog)
    }

    pub fn is_readable(&self) -> bool {
        !self.line.queue.lock().ready.is_empty()
    }

    /// The tasks and pollers that want to know of connections.
    pub fn with_waiters<R>(&self, f: impl FnOnce(&mut Waiters) -> R) -> R {
        f(&mut self.line.queue.lock().waiters)
    }

    /// Ends the listener. All waiters are woken, and find it closed. The children that were not accepted are the caller's to
    /// reset.
    pub fn close(&self, cx: &mut Context<'_>) -> (Vec<Child>, SmallVec<[Gone; 1]>) {
        let mut queue = self.line.queue.lock();
        queue.closed = true;
        cx.outbox.wakes.extend(queue.ready.tell_all().into_iter().map(Wake::Threads));
        let registrations = registration::clear(&mut queue.waiters, &mut cx.outbox.wakes);
        let orphans = queue.ready.drain().collect();
        (orphans, registrations)
    }

    /// Whether a SYN to `local` is for this listener, and how specific it is: an address beats the
    /// wildcard of its family, which beats the IPv6 wildcard that also takes IPv4.
    pub fn matches(&self, addr: IpAddr, v6_only: bool) -> Option<u8> {
        if self.local.addr == addr {
            return Some(2);
        }
        if !self.local.addr.is_unspecified() {
            return None;
        }
        match (self.local.addr, addr) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => Some(1),
            (IpAddr::V6(_), IpAddr::V4(_)) if !v6_only => Some(0),
            (IpAddr::V6(_), IpAddr::V4(_)) | (IpAddr::V4(_), IpAddr::V6(_)) => None,
        }
    }
}
