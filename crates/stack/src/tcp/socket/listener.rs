//! [`TcpListener`]: waits for connections.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use sockeye_sync::facade::{Arc, Ordering};
use sockeye_sync::{Spin, WaitQueue};

use super::{TcpSocket, TcpStream};
use crate::base::addr::FourTuple;
use crate::inet::input::busy;
use crate::inet::netif::scope;
use crate::rt::failpoints::{self, Point};
use crate::rt::fork::Held;
use crate::rt::handle::Stack;
use crate::rt::panics;
use crate::rt::poll::{Pollable, Target, sealed};
use crate::rt::resolve::{self, ToSocketAddrs};
#[cfg(feature = "tokio")]
use crate::rt::tasks::Places;
use crate::tcp::Core;
use crate::tcp::conn::outbox::{Context, Wake};
use crate::tcp::conn::ready;
use crate::tcp::conn::{engine, reason};
use crate::tcp::handshake::admission::SynHook;
use crate::tcp::handshake::listen::{Child, Listener};
use crate::tcp::handshake::values;

/// A TCP socket that accepts connections, in the shape of `std::net::TcpListener`.
///
/// Dropping the last handle resets connections that were not accepted.
pub struct TcpListener {
    held: Held<Arc<Listener>>,
}

thread_local! {
    /// The queue that a thread in `accept` waits on: a listener's own queue would wake all that wait there.
    static THREAD: Arc<WaitQueue> = Arc::new(WaitQueue::new());
}

/// The backlog of [`TcpListener::bind`], as in `std`.
const BACKLOG: usize = 128;

impl TcpListener {
    /// Listens on the current stack ([`Stack::current`]), with SO_REUSEADDR and a backlog of 128 as in `std`. Port 0
    /// chooses a free port. **Blocks** while a name is resolved.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable` (not an address of the stack); those of [`ToSocketAddrs`].
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::bind_on(&Stack::current(), addr)
    }

    /// [`bind`](Self::bind) on a stack of your own.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<Self> {
        resolve::each(stack, &addr, |addr| {
            let mut socket = TcpSocket::for_addr(stack, addr);
            socket.set_reuse_address(true);
            socket.bind(addr)?;
            socket.listen(BACKLOG)
        })
    }

    pub(crate) fn new(listener: Arc<Listener>, stack: Stack) -> Self {
        Self { held: Held::new(stack, listener) }
    }

    /// The next connection, and its peer's address. Blocks unless [`set_nonblocking`](Self::set_nonblocking) is set.
    ///
    /// # Errors
    /// `WouldBlock` if the listener is non-blocking and no connection waits.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (core, listener) = self.enter()?;
        panics::call(core, "accept", || self.accept_on(core, listener))
    }

    fn accept_on(&self, core: &Core, listener: &Listener) -> io::Result<(TcpStream, SocketAddr)> {
        // A thread that is ending may have lost its queue.
        let thread = THREAD.try_with(Arc::clone).unwrap_or_else(|_ending| Arc::new(WaitQueue::new()));
        let mut has_waited = false;
        loop {
            if listener.nonblocking.load(Ordering::Relaxed) {
                if has_waited {
                    listener.leave(&thread);
                }
                let child = listener.pop().ok_or(rustix::io::Errno::AGAIN)?;
                return Ok(self.adopt(core, listener, child));
            }
            match listener.pop_or_wait(&thread)? {
                Ok(child) => return Ok(self.adopt(core, listener, child)),
                Err(ticket) => {
                    has_waited = true;
                    busy::leave_all(core);
                    thread.wait(ticket, None, Spin::up_to(core.config.spin_max));
                }
            }
        }
    }

    /// A child of the queue as the application's. It is the handle's from the beginning, whose drop closes it after a panic.
    pub(crate) fn adopt(&self, core: &Core, listener: &Listener, child: Child) -> (TcpStream, SocketAddr) {
        let FourTuple { local, remote } = child.conn.tuple;
        let stream = TcpStream::accepted(child, self.stack().clone());
        failpoints::hit(Point::Accept, u64::from(local.port));
        (stream, scope::shown(&core.netifs, remote, listener.is_mapped, local.addr))
    }

    /// Connections as they arrive, without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// The address on which the socket listens.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let (core, listener) = self.enter()?;
        let local = listener.local;
        Ok(scope::shown(&core.netifs, local, listener.is_mapped, local.addr))
    }

    /// Another handle of the same listener.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        let (_core, listener) = self.enter()?;
        listener.users.fetch_add(1, Ordering::Relaxed);
        Ok(Self::new(Arc::clone(listener), self.stack().clone()))
    }

    /// Makes [`accept`](Self::accept) return `WouldBlock` instead of blocking.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.enter()?.1.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Sets `hook`, which the stack calls with each new SYN before it is answered; `None` removes it. The hook decides
    /// about the [`Syn`](crate::Syn), or keeps it to decide later. At most 4,096 SYNs may be undecided at a time, and
    /// 1,024 from one source; SYNs beyond that are dropped and counted as `listen_overflows`. The hook runs on the
    /// thread that received the SYN, without locks. It may use sockets, and should not block, because that thread also
    /// processes segments of other connections. A panic in it is caught and reported
    /// ([`Stack::set_panic_hook`](crate::Stack::set_panic_hook)), and its SYN is ignored.
    ///
    /// Handles of the listener share the hook.
    pub fn set_syn_hook(&self, hook: Option<Box<SynHook>>) {
        let hook = hook.map(|hook| (self.stack().downgrade(), Arc::new(hook)));
        if let Ok((core, listener)) = self.enter() {
            listener.admission.set(core, hook);
        }
    }

    /// SO_ERROR: a listener has none.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.enter().map(|_| None)
    }

    /// The listener's stack.
    pub fn stack(&self) -> &Stack {
        self.held.stack()
    }

    /// The stack and the listener.
    #[inline]
    pub(crate) fn enter(&self) -> io::Result<(&Core, &Arc<Listener>)> {
        self.held.enter()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn places(&self) -> &Places {
        self.held.places()
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        // In a child of fork(2) the listener is its parent's.
        let Ok((core, listener)) = self.enter() else { return };
        if listener.users.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        core.ports.unbind(listener.bind_id, listener.local.port);
        // Outside the listener's mutex: a registration may be the last to hold another socket.
        let _registrations = Context::run(core, |cx| {
            let (orphans, registrations) = listener.close(cx);
            for Child { conn, value } in orphans {
                engine::notify(cx, &conn, reason::ABORT);
                cx.outbox.wakes.extend(value.map(Wake::Release));
            }
            registrations
        });
        core.demux
            .each_shard(|shard| shard.half_open.retain(|_, replica| replica.bind_id != listener.bind_id));
        Context::run(core, values::bury);
        // Last: dropping the hook's captures may run any code. They may have SYNs, which keep this listener.
        listener.admission.end(core);
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpListener");
        if let Ok((_core, listener)) = self.enter() {
            debug.field("local", &listener.local.to_socket_addr(listener.is_mapped));
        }
        debug.finish()
    }
}

/// The iterator of [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl Pollable for TcpListener {}

impl sealed::Source for TcpListener {
    fn owner(&self) -> &Stack {
        self.stack()
    }

    #[allow(private_interfaces)]
    fn target(&self) -> io::Result<Box<dyn Target>> {
        Ok(Box::new(ready::Line(Arc::clone(self.enter()?.1))))
    }
}
