//! [`TcpStream`]: a connection, as an application holds it.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::task::Waker;
use std::time::Duration;

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::state::State;
use sockeye_sync::facade::{Arc, Ordering};
use sockeye_sync::{Key, Lent, Mutex, OnceArc};

use super::{TcpSocket, info};
use crate::base::addr::Endpoint;
use crate::inet::netif::scope;
use crate::rt::blocking::{load_timeout, store_timeout};
use crate::rt::fork::Held;
use crate::rt::handle::Stack;
use crate::rt::panics::{self, PanicSource};
use crate::rt::poll::{Pollable, Target, sealed};
use crate::rt::resolve::{self, ToSocketAddrs};
#[cfg(feature = "tokio")]
use crate::rt::tasks::Places;
use crate::rt::tasks::{Listed, Want};
use crate::tcp::Core;
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::ready;
use crate::tcp::conn::{Conn, LINGER_OFF, SocketOptions, close, contain, engine, reason, user};
use crate::tcp::handshake::listen::Child;

/// A TCP connection, in the shape of `std::net::TcpStream`.
///
/// Dropping the last handle closes the connection; written bytes are still delivered. As on Linux, closing with unread
/// bytes resets it.
///
/// Reads and writes block, unless [`set_nonblocking`](Self::set_nonblocking) or a timeout is set. All methods take
/// `&self`: several threads may use one stream.
pub struct TcpStream {
    held: Held<Ends>,
}

/// The target of a handle.
struct Ends {
    conn: Arc<Conn>,
    /// The other end, from the second write on if it is known to be in this process: held here, so that a write counts no
    /// reference to it. It goes with this handle, and keeps no more than memory until then.
    peer: OnceArc<Conn>,
}

impl TcpStream {
    /// Connects on the current stack ([`Stack::current`]), trying each address in turn. Blocks.
    ///
    /// # Errors
    /// The last address's: `ConnectionRefused` (no listener), `TimedOut` (no answer), `NetworkUnreachable` (no route),
    /// `AddrNotAvailable` (no free port), `OutOfMemory` (too many connections). Those of [`ToSocketAddrs`].
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::connect_on(&Stack::current(), addr)
    }

    /// [`connect`](Self::connect) on a stack of your own.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<Self> {
        resolve::each(stack, &addr, |addr| TcpSocket::for_addr(stack, addr).connect(addr))
    }

    /// Connects to one address, and gives up after `timeout`. Blocks for at most that long.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); `InvalidInput` for a timeout of zero, `TimedOut` at its end.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        TcpSocket::for_addr(&Stack::current(), *addr).connect_timeout(*addr, timeout)
    }

    /// A handle, which is counted in `users` already.
    pub(crate) fn of(conn: Arc<Conn>, stack: Stack) -> Self {
        Self { held: Held::new(stack, Ends { conn, peer: OnceArc::new() }) }
    }

    /// The handle of a connection that was accepted.
    pub(crate) fn accepted(Child { conn, value }: Child, stack: Stack) -> Self {
        if let Some(value) = value {
            conn.accept_value.get_or_set(Arc::new(Mutex::new(Some(value))));
        }
        Self::of(conn, stack)
    }

    /// Takes the value that the listener's hook has attached to the SYN
    /// ([`Syn::accept_with`](crate::Syn::accept_with)). `None` if there is none of this type, or it was already taken;
    /// a value of another type stays. It belongs to the connection: one of its handles can take it, and it is dropped
    /// with the last handle.
    pub fn take_accept_value<T: Any + Send>(&self) -> Option<T> {
        let place = self.conn().ok()?.accept_value.get()?;
        let mut value = place.lock();
        match value.take()?.downcast() {
            Ok(found) => Some(*found),
            Err(other) => {
                *value = Some(other);
                None
            }
        }
    }

    /// The stack, and both ends for a send.
    #[inline]
    pub(crate) fn sending(&self) -> io::Result<(&Core, user::Ends<'_>)> {
        let (core, ends) = self.held.enter()?;
        Ok((core, user::Ends { conn: &ends.conn, peer: ends.peer.get().or_else(|| ends.learn_peer()) }))
    }

    /// The stack, and both ends as far as they are known, for a receive.
    #[inline]
    pub(crate) fn receiving(&self) -> io::Result<(&Core, user::Ends<'_>)> {
        let (core, ends) = self.held.enter()?;
        Ok((core, user::Ends { conn: &ends.conn, peer: ends.peer.get() }))
    }

    /// The stack and the connection.
    #[inline]
    pub(crate) fn enter(&self) -> io::Result<(&Core, &Arc<Conn>)> {
        self.held.enter().map(|(core, ends)| (core, &ends.conn))
    }

    #[inline]
    pub(crate) fn conn(&self) -> io::Result<&Arc<Conn>> {
        self.held.open().map(|ends| &ends.conn)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn places(&self) -> &Places {
        self.held.places()
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// `NotConnected` before the handshake has ended, and after the connection has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let (core, conn) = self.enter()?;
        let ended = matches!(conn.state(), State::Closed | State::TimeWait);
        if ended || !conn.so.lock().snd.connected {
            return Err(rustix::io::Errno::NOTCONN.into());
        }
        Ok(shown(core, conn, conn.tuple.remote))
    }

    /// The address of this end.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let (core, conn) = self.enter()?;
        Ok(shown(core, conn, conn.tuple.local))
    }

    /// Closes one direction or both. Bytes written before are still delivered. During a connect, this gives the connect
    /// up in either direction, with `ConnectionReset` (RFC 9293 section 3.10.4).
    ///
    /// # Errors
    /// `NotConnected` if the connection is closed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let (core, conn) = self.enter()?;
        close::shutdown(core, conn, how)
    }

    /// Another handle of the same connection.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        let conn = self.conn()?;
        // Relaxed: we hold a handle, so the count cannot be at 0.
        conn.users.fetch_add(1, Ordering::Relaxed);
        Ok(Self::of(Arc::clone(conn), self.stack().clone()))
    }

    /// Copies received bytes without removing them. Blocks like a read.
    ///
    /// # Errors
    /// As for a read.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let (core, conn) = self.enter()?;
        user::peek(core, conn, buf)
    }

    /// Makes all calls on this connection return `WouldBlock` instead of blocking.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.conn()?.options.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn options(&self) -> io::Result<&SocketOptions> {
        Ok(&self.conn()?.options)
    }

    /// TCP_NODELAY: small writes are sent at once (Nagle's algorithm off, RFC 9293 section 3.7.4).
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        let conn = self.conn()?;
        if conn.options.nodelay.swap(nodelay, Ordering::Relaxed) != nodelay {
            self.notify(reason::OPTION)?;
        } else if nodelay {
            // Also a call that changes nothing has output look for something to send.
            self.change_sending("set_nodelay", Pcb::push_corked)?;
        }
        Ok(())
    }

    /// Whether TCP_NODELAY is set.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.conn()?.options.nodelay.load(Ordering::Relaxed))
    }

    /// TCP_QUICKACK: received bytes are acknowledged without waiting for an answer that carries the acknowledgment; a
    /// waiting acknowledgment is sent now. `false`: acknowledgments wait. Traffic changes this again, as on Linux.
    ///
    /// # Errors
    /// `ConnectionAborted` if protocol code panicked.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        let conn = self.conn()?;
        if let Some(error) = conn.panicked() {
            return Err(error.into());
        }
        let mut so = conn.so.lock();
        let is_empty = so.rcv.chain.is_empty();
        so.pcb.set_quickack(quickack, is_empty);
        drop(so);
        self.notify(reason::OUTPUT)
    }

    /// Whether received bytes are now acknowledged without waiting for an answer.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(self.conn()?.so.lock().pcb.quickack())
    }

    /// SO_KEEPALIVE: an idle connection is probed after two hours (RFC 9293 section 3.8.4).
    ///
    /// # Errors
    /// None today.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        if self.conn()?.options.keepalive.swap(keepalive, Ordering::Relaxed) != keepalive {
            self.notify(reason::OPTION)?;
        }
        Ok(())
    }

    /// Whether SO_KEEPALIVE is set.
    ///
    /// # Errors
    /// None today.
    pub fn keepalive(&self) -> io::Result<bool> {
        Ok(self.conn()?.options.keepalive.load(Ordering::Relaxed))
    }

    /// SO_LINGER: what happens to unsent bytes when the last handle is dropped. `None`: they are sent in the
    /// background; zero: they are dropped and the connection is reset; otherwise the drop blocks until they are
    /// acknowledged, for at most that long (blocking sockets only).
    ///
    /// # Errors
    /// `InvalidInput` for more than 49 days.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.conn()?.options.linger_ms.store(linger_ms(linger)?, Ordering::Relaxed);
        Ok(())
    }

    /// The SO_LINGER setting.
    ///
    /// # Errors
    /// None today.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(linger_of(self.conn()?.options.linger_ms.load(Ordering::Relaxed)))
    }

    /// SO_RCVTIMEO: how long a read may block; then it fails with `WouldBlock`. `None`: for ever.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        store_timeout(&self.conn()?.options.read_timeout, timeout)
    }

    /// The SO_RCVTIMEO setting.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(load_timeout(&self.conn()?.options.read_timeout))
    }

    /// SO_SNDTIMEO: how long a write may block; then it fails with `WouldBlock`, or reports fewer bytes.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        store_timeout(&self.conn()?.options.write_timeout, timeout)
    }

    /// The SO_SNDTIMEO setting.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(load_timeout(&self.conn()?.options.write_timeout))
    }

    /// SO_SNDBUF: bytes that may wait in the send buffer. Limited to 2 KiB to 64 MiB (and, unlike Linux's,
    /// not doubled: packet memory's overhead is counted elsewhere).
    ///
    /// # Errors
    /// None today.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        let (core, conn) = self.enter()?;
        contain::call(core, conn, "set_send_buffer_size", || {
            Context::run(core, |cx| {
                let mut so = conn.so.lock();
                (so.snd.hiwat, so.snd.auto) = (super::builder::buffer_size(bytes), false);
                engine::wake_writers(cx, conn, &mut so);
            });
            Ok(())
        })
    }

    /// The SO_SNDBUF setting: twice the bytes of payload that it allows, as Linux returns it (socket(7)).
    ///
    /// # Errors
    /// None today.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        Ok(2 * self.conn()?.so.lock().snd.hiwat as usize)
    }

    /// SO_RCVBUF: bytes that may wait in the receive buffer, 2 KiB to 64 MiB. An advertised window is not withdrawn
    /// (RFC 9293 section 3.8.6).
    ///
    /// # Errors
    /// None today.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        {
            let rcv = &mut self.conn()?.so.lock().rcv;
            (rcv.hiwat, rcv.auto) = (super::builder::buffer_size(bytes), false);
        }
        // Not `RCVD`: the pcb itself must learn of the new size. With the old one it would wait for more
        // space than a smaller buffer can ever have, and never open the window again.
        self.notify(reason::OPTION)?;
        Ok(())
    }

    /// The SO_RCVBUF setting: twice the bytes of payload that it allows, as Linux returns it (socket(7)).
    ///
    /// # Errors
    /// None today.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        Ok(2 * self.conn()?.so.lock().rcv.hiwat as usize)
    }

    /// SO_ERROR: takes the pending error, if there is one. If there is none, it returns what the network has last
    /// reported about this connection's packets (ICMP errors, RFC 5461) since the peer was heard, as on Linux: the
    /// connection continues, and other calls do not fail because of it.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let conn = self.conn()?;
        Ok(conn.take_error().or_else(|| conn.take_reported()).map(io::Error::from))
    }

    /// Bytes that a read would get now (FIONREAD).
    ///
    /// # Errors
    /// None today.
    pub fn available(&self) -> io::Result<usize> {
        Ok(self.conn()?.so.lock().rcv.chain.len())
    }

    /// Bytes written and not yet acknowledged by the peer (SIOCOUTQ).
    ///
    /// # Errors
    /// None today.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        Ok(self.conn()?.so.lock().snd.chain.len())
    }

    /// The name of the state in RFC 9293 section 3.3.2. Waits as [`info`](Self::info) does.
    pub fn state_name(&self) -> &'static str {
        self.conn().map_or(State::Closed.name(), |conn| info::state_name(conn))
    }

    /// The connection's stack.
    pub fn stack(&self) -> &Stack {
        self.held.stack()
    }

    pub(super) fn notify(&self, reasons: u32) -> io::Result<()> {
        let (core, conn) = self.enter()?;
        Context::run(core, |cx| engine::notify(cx, conn, reasons));
        Ok(())
    }
}

impl Ends {
    fn learn_peer(&self) -> Option<Lent<'_, Conn>> {
        // Relaxed: a hint of one thread or another.
        let has_written = &self.conn.options.has_written;
        if !has_written.load(Ordering::Relaxed) {
            has_written.store(true, Ordering::Relaxed);
            return None;
        }
        let peer = self.conn.live_peer()?;
        Some(self.peer.get_or_set(peer))
    }
}

impl Listed for Ends {
    fn take_off(&self, _want: Want, key: Key) -> Option<Waker> {
        self.conn.so.lock().waiters.remove(key)
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        // In a child of fork(2) the connection is its parent's.
        let Ok((core, conn)) = self.enter() else { return };
        // AcqRel: the thread that takes the count to 0 has seen the writes of the other handles.
        if conn.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            close::close(core, conn);
            let value = conn.accept_value.get().and_then(|value| value.lock().take());
            panics::release(core, PanicSource::Hook, "drop of an accept value", value);
        }
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpStream");
        if let Ok(conn) = self.conn() {
            debug
                .field("local", &conn.tuple.local.to_socket_addr(conn.options.is_mapped))
                .field("peer", &conn.tuple.remote.to_socket_addr(conn.options.is_mapped));
        }
        debug.field("state", &self.state_name()).finish()
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (core, ends) = self.receiving()?;
        user::recv(core, &ends, &mut [IoSliceMut::new(buf)])
    }
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let (core, ends) = self.receiving()?;
        user::recv(core, &ends, bufs)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let (core, ends) = self.sending()?;
        user::send(core, &ends, &[IoSlice::new(buf)])
    }
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let (core, ends) = self.sending()?;
        // As by writev(2), nothing in pieces does not get as far as the connection.
        if bufs.iter().all(|buf| buf.is_empty()) { Ok(0) } else { user::send(core, &ends, bufs) }
    }
    fn flush(&mut self) -> io::Result<()> {
        self.conn().map(drop)
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }
    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Pollable for TcpStream {}

impl sealed::Source for TcpStream {
    fn owner(&self) -> &Stack {
        self.stack()
    }

    #[allow(private_interfaces)]
    fn target(&self) -> io::Result<Box<dyn Target>> {
        Ok(Box::new(ready::End(Arc::clone(self.conn()?))))
    }
}

/// An address of an end of a connection, as applications see it.
fn shown(core: &Core, conn: &Conn, end: Endpoint) -> SocketAddr {
    scope::shown(&core.netifs, end, conn.options.is_mapped, conn.tuple.local.addr)
}

/// SO_LINGER in milliseconds, rounded up: only zero itself resets.
pub(super) fn linger_ms(linger: Option<Duration>) -> io::Result<u32> {
    let Some(time) = linger else { return Ok(LINGER_OFF) };
    let ms = u32::try_from(time.as_nanos().div_ceil(1_000_000)).ok().filter(|ms| *ms != LINGER_OFF);
    ms.ok_or_else(|| invalid(format!("a linger time of {time:?} is too long: at most 49 days")))
}

/// SO_LINGER by its milliseconds.
pub(super) fn linger_of(ms: u32) -> Option<Duration> {
    (ms != LINGER_OFF).then(|| Duration::from_millis(u64::from(ms)))
}

pub(super) fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
