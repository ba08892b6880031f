//! [`UdpSocket`]: the public face, in the shape of `std::net::UdpSocket`, with additions.
//!
//! Does not depend on how datagrams move (`send.rs`, `recv.rs`). Options are in `settings.rs`. Tests:
//! `tests/udp/`.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;

use rustix::io::Errno;
use sockeye_sync::facade::{Arc, Ordering};

use super::builder::UdpBuilder;
use super::errors::RecvError;
use super::message::{Outgoing, RecvMeta, SendMeta};
use super::methods::handle_methods;
use super::naming::Handle;
use super::recv;
use super::send::Sending;
use crate::base::names;
use crate::inet::Core;
use crate::inet::netif::scope;
use crate::rt::fork::Held;
use crate::rt::handle::Stack;
use crate::rt::resolve::{self, ToSocketAddrs};

/// A UDP socket, in the shape of `std::net::UdpSocket`.
///
/// ```
/// use sockeye::UdpSocket;
///
/// let server = UdpSocket::bind("127.0.0.1:0")?;
/// let client = UdpSocket::bind("127.0.0.1:0")?;
/// client.send_to(b"hello", server.local_addr()?)?;
/// let mut bytes = [0; 16];
/// let (len, from) = server.recv_from(&mut bytes)?;
/// assert_eq!((&bytes[..len], from), (&b"hello"[..], client.local_addr()?));
/// # std::io::Result::Ok(())
/// ```
///
/// A send does not wait for its receiver: a datagram for which there is no room is dropped and counted
/// (`udp_rcvbuf_errors`, [`RecvMeta::drops`]). Several threads may make any calls at once.
pub struct UdpSocket {
    pub(crate) handle: Held<Arc<Handle>>,
}

impl UdpSocket {
    /// A socket of the current stack ([`Stack::current`]), bound to `addr`: to the first address that works, if it
    /// names several. **Blocks** while a name is resolved.
    ///
    /// # Errors
    /// As for [`UdpBuilder::bind`], and [`ToSocketAddrs`].
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::bind_on(&Stack::current(), addr)
    }

    /// [`bind`](Self::bind) on a stack of your own.
    ///
    /// # Errors
    /// As for [`UdpBuilder::bind`].
    pub fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<Self> {
        resolve::each(stack, &addr, |addr| UdpBuilder::for_addr(stack, addr).bind(addr))
    }

    /// From now on, sends to `addr` and receives from it only; to the first address that works, if it names several.
    /// Blocks only while a name is resolved. Connecting again changes the peer, and keeps the local address.
    ///
    /// # Errors
    /// `NetworkUnreachable`; `PermissionDenied` (a broadcast address without [`set_broadcast`](Self::set_broadcast));
    /// `AddrNotAvailable` (no port is free).
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        resolve::each(self.handle.stack(), &addr, |addr| self.handle.open()?.connect(addr))
    }

    /// connect(2) with AF_UNSPEC: receives from any sender again. A port that the stack has chosen is released, and the
    /// next send gets another, as on Linux.
    pub fn disconnect(&self) {
        if let Ok(handle) = self.handle.open() {
            handle.disconnect();
        }
    }

    /// Sends to the peer. Blocks only while packet memory is short.
    ///
    /// # Errors
    /// `NotConnected` or EDESTADDRREQ without a peer, EMSGSIZE for more than a datagram holds, and a pending error:
    /// `ConnectionRefused` if no socket was bound at the destination of an earlier datagram.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.send_msg(&[IoSlice::new(buf)], &SendMeta::default())
    }

    /// Sends to `addr`, to the first one if it names several. A name is resolved for each datagram, which blocks.
    ///
    /// # Errors
    /// As for [`send`](Self::send); `NetworkUnreachable`, `InvalidInput` (port 0), `PermissionDenied` (broadcast).
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let addr = *resolve::resolve(self.handle.stack(), &addr)?.first().ok_or_else(names::no_address)?;
        self.send_msg(&[IoSlice::new(buf)], &SendMeta::to(addr))
    }

    /// sendmsg(2): gathers one datagram, or several with [`SendMeta::segment_size`].
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to); `InvalidInput` for a source that is not the stack's, for more than 128 datagrams, and for
    /// a TTL of 0; ENODEV for an interface that does not exist.
    pub fn send_msg(&self, bufs: &[IoSlice<'_>], meta: &SendMeta) -> io::Result<usize> {
        let mut sending = Sending::new(self.handle.open()?)?;
        let len = sending.push(bufs, meta)?;
        sending.finish()?;
        Ok(len)
    }

    /// sendmmsg(2): sends all of `datagrams`, or those before an error and none after it. Returns how many. Consecutive
    /// datagrams with the same receiver are appended to its queue together, and wake it once.
    ///
    /// # Errors
    /// That of the first, if it could not be sent; as for [`send_msg`](Self::send_msg).
    pub fn send_batch(&self, datagrams: &[Outgoing<'_>]) -> io::Result<usize> {
        let mut sending = Sending::new(self.handle.open()?)?;
        let pushed = datagrams
            .iter()
            .try_for_each(|datagram| sending.push(&[IoSlice::new(datagram.bytes)], &datagram.meta).map(drop));
        Ok(sending.finish_batch(pushed)?)
    }

    /// Receives a datagram; a longer one than `buf` is cut off. Blocks until there is one.
    ///
    /// # Errors
    /// `WouldBlock` if there is none (at the end of the timeout); a pending error, as for [`send`](Self::send).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(recv::recv(self.handle.open()?, &mut [IoSliceMut::new(buf)])?.len)
    }

    /// Receives a datagram, and returns its sender.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let meta = recv::recv(self.handle.open()?, &mut [IoSliceMut::new(buf)])?;
        Ok((meta.len, meta.from))
    }

    /// Copies the oldest datagram, which stays in the queue.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(recv::peek(self.handle.open()?, &mut [IoSliceMut::new(buf)])?.len)
    }

    /// Copies the oldest datagram, which stays in the queue, and returns its sender.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let meta = recv::peek(self.handle.open()?, &mut [IoSliceMut::new(buf)])?;
        Ok((meta.len, meta.from))
    }

    /// recvmsg(2): scatters a datagram, and returns its ancillary data.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_msg(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<RecvMeta> {
        Ok(recv::recv(self.handle.open()?, bufs)?)
    }

    /// [`recv_msg`](Self::recv_msg) of the oldest datagram, which stays in the queue (MSG_PEEK).
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn peek_msg(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<RecvMeta> {
        Ok(recv::peek(self.handle.open()?, bufs)?)
    }

    /// recvmmsg(2) with MSG_WAITFORONE: one datagram into each of `bufs`, as many as have arrived; blocks only for the
    /// first. Returns how many.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_batch(&self, bufs: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]) -> io::Result<usize> {
        Ok(recv::recv_batch(self.handle.open()?, bufs, metas)?)
    }

    /// recvmsg(2) with MSG_ERRQUEUE: takes the oldest error, for a socket with [`set_recv_err`](Self::set_recv_err),
    /// and copies the sent data into `buf`. `None` if there is none; never blocks.
    pub fn recv_err(&self, buf: &mut [u8]) -> Option<RecvError> {
        recv::recv_err(self.handle.open().ok()?, buf)
    }

    /// The address to which the socket is bound; the wildcard and port 0 before it is bound.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let (core, handle) = self.handle.enter::<Core>()?;
        let local = handle.pcb.name.load().local;
        Ok(scope::shown(&core.netifs, local, handle.pcb.is_mapped, local.addr))
    }

    /// The peer.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let (core, handle) = self.handle.enter::<Core>()?;
        let pcb = &handle.pcb;
        // As on Linux, a peer at port 0 is none.
        let name = pcb.name.load();
        let peer = name.remote.filter(|remote| remote.port != 0).ok_or(Errno::NOTCONN)?;
        Ok(scope::shown(&core.netifs, peer, pcb.is_mapped, name.local.addr))
    }
}

handle_methods!(UdpSocket);

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ok(handle) = self.handle.open() else { return f.write_str("UdpSocket { .. }") };
        let (pcb, name) = (&handle.pcb, handle.pcb.name.load());
        let shown = |end: crate::base::addr::Endpoint| end.to_socket_addr(pcb.is_mapped);
        let is_nonblocking = pcb.options.nonblocking.load(Ordering::Relaxed);
        f.debug_struct("UdpSocket")
            .field("local", &shown(name.local))
            .field("peer", &name.remote.map(shown))
            .field("nonblocking", &is_nonblocking)
            .finish_non_exhaustive()
    }
}
