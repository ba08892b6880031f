//! [`UnixDatagram`]: datagrams, from any sender or from one peer.
//!
//! Does not depend on how datagrams move (`datagram_send.rs`, `recv.rs`). Tests: `tests/unix/`.

use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;

use super::addr::SocketAddr;
use super::ancillary::{MsgFlags, RecvAncillary, RecvMsg, SendAncillary};
use super::bytes::Scatter;
#[cfg(feature = "tokio")]
use super::bytes::{Pieces, Taken};
use super::common::{bind_methods, data_methods, socket_methods};
use super::pcb::Kind;
use super::recv::Received;
use super::sock::Sock;
use super::{contain, datagram_link, datagram_send, recv};
use crate::rt::fork::Held;
use crate::rt::handle::Stack;

/// A datagram socket, in the shape of `std::os::unix::net::UnixDatagram`.
///
/// Datagrams are neither lost nor reordered: a sender blocks while its share of the receiver's buffer is full.
pub struct UnixDatagram {
    pub(crate) sock: Held<Sock>,
}

socket_methods!(UnixDatagram);
data_methods!(UnixDatagram, Kind::Datagram);
bind_methods!(UnixDatagram, Self::bound);

impl UnixDatagram {
    fn bound(stack: &Stack, addr: &SocketAddr) -> io::Result<Self> {
        let socket = Self::unbound_on(stack)?;
        let (core, sock) = socket.sock.enter()?;
        contain::call(sock, "bind", || super::shared(core).names.bind(&sock.pcb, addr))?;
        Ok(socket)
    }

    /// A socket of the current stack ([`Stack::current`]), without a name.
    ///
    /// # Errors
    /// None today.
    pub fn unbound() -> io::Result<Self> {
        Self::unbound_on(&Stack::current())
    }

    /// [`unbound`](Self::unbound) on a stack of your own.
    ///
    /// # Errors
    /// None today.
    pub fn unbound_on(stack: &Stack) -> io::Result<Self> {
        Ok(Self { sock: Held::of(Sock::new(stack, Kind::Datagram)?) })
    }

    /// Sends to the socket of this pathname, and receives from it only, from now on.
    ///
    /// # Errors
    /// `NotFound`, `ConnectionRefused`; EPROTOTYPE, EPERM (it is connected to another).
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.connect_addr(&SocketAddr::from_pathname(path)?)
    }

    /// The same for an address.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        let (core, sock) = self.sock.enter()?;
        let pcb = &sock.pcb;
        if addr.is_unnamed() {
            return Err(rustix::io::Errno::INVAL.into());
        }
        let is_named = self.passcred()?;
        contain::call(sock, "connect", || {
            if is_named {
                super::shared(core).names.autobind(pcb)?;
            }
            let to = super::shared(core).names.find(addr, Kind::Datagram)?;
            datagram_link::connect(core, pcb, &to)
        })?;
        Ok(())
    }

    /// connect(2) with AF_UNSPEC: ends the connection to the peer. Datagrams that were not received are dropped, as on
    /// Linux.
    ///
    /// # Errors
    /// None today.
    pub fn disconnect(&self) -> io::Result<()> {
        let (core, sock) = self.sock.enter()?;
        Ok(contain::call(sock, "disconnect", || {
            datagram_link::disconnect(core, &sock.pcb);
            Ok(())
        })?)
    }

    /// Sends to the peer.
    ///
    /// # Errors
    /// `NotConnected`, `ConnectionRefused` (the peer has closed), `WouldBlock`, `BrokenPipe` (one of the two has shut
    /// down the direction), `ConnectionReset`; EPERM (the peer only receives from another socket), EMSGSIZE (longer
    /// than SO_SNDBUF minus 32), ENOMEM (packet memory at its cap).
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        Ok(datagram_send::send_bytes(self.sock.open()?, buf)?)
    }

    /// Sends to the socket of this pathname.
    ///
    /// # Errors
    /// As for [`send`](Self::send) and [`connect`](Self::connect).
    pub fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        self.send_to_addr(buf, &SocketAddr::from_pathname(path)?)
    }

    /// The same for an address.
    ///
    /// # Errors
    /// As for [`send`](Self::send) and [`connect`](Self::connect).
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        Ok(datagram_send::send(self.sock.open()?, &[IoSlice::new(buf)], Some(addr), None, MsgFlags::NONE)?)
    }

    /// [`send`](Self::send) of one datagram from several buffers.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(datagram_send::send(self.sock.open()?, bufs, None, None, MsgFlags::NONE)?)
    }

    /// Receives a datagram; bytes that do not fit into `buf` are cut off.
    ///
    /// # Errors
    /// `WouldBlock`, `ConnectionReset`.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(recv::recv_bytes(self.sock.open()?, buf)?)
    }

    /// [`recv`](Self::recv) of one datagram into several buffers.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(self.receive(bufs, MsgFlags::NONE)?.bytes)
    }

    /// Receives a datagram, and returns its sender.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.receive(&mut [IoSliceMut::new(buf)], MsgFlags::NONE)?;
        Ok((received.bytes, SocketAddr(received.sender)))
    }

    /// Copies the next datagram without taking it.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.receive(&mut [IoSliceMut::new(buf)], MsgFlags::PEEK)?.bytes)
    }

    /// The same, and returns its sender.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.receive(&mut [IoSliceMut::new(buf)], MsgFlags::PEEK)?;
        Ok((received.bytes, SocketAddr(received.sender)))
    }

    /// sendmsg(2): a datagram, with rights or credentials, to `to` or the peer. `ancillary` is empty afterwards, and
    /// unchanged after an error, with one exception: a panic of the stack's own code (`EIO`) closes its rights.
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to); EINVAL (too many rights), ETOOMANYREFS, EPERM (others' credentials).
    pub fn send_msg(
        &self,
        bufs: &[IoSlice<'_>],
        to: Option<&SocketAddr>,
        ancillary: &mut SendAncillary,
        flags: MsgFlags,
    ) -> io::Result<usize> {
        Ok(datagram_send::send(self.sock.open()?, bufs, to, Some(ancillary), flags)?)
    }

    /// recvmsg(2): a datagram, and its ancillary data.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_msg(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        ancillary: &mut RecvAncillary,
        flags: MsgFlags,
    ) -> io::Result<RecvMsg> {
        let received = recv::recv_record(self.sock.open()?, Scatter::new(bufs), Some(ancillary), flags)?;
        Ok(RecvMsg { bytes: received.bytes, flags: received.flags, addr: SocketAddr(received.sender) })
    }

    /// [`recv_from`](Self::recv_from) of at most `room` bytes, which `put` gets piece by piece.
    #[cfg(feature = "tokio")]
    pub(crate) fn recv_pieces(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<(usize, SocketAddr)> {
        let received = recv::recv_record(self.sock.open()?, Pieces { room, put }, None, MsgFlags::NONE)?;
        Ok((received.bytes, SocketAddr(received.sender)))
    }

    /// [`recv_from`](Self::recv_from) of at most as many bytes as `taken` has room for.
    #[cfg(feature = "tokio")]
    pub(crate) fn recv_taken(&self, taken: &mut Taken) -> io::Result<(usize, SocketAddr)> {
        let received = recv::recv_record(self.sock.open()?, taken, None, MsgFlags::NONE)?;
        Ok((received.bytes, SocketAddr(received.sender)))
    }

    fn receive(&self, bufs: &mut [IoSliceMut<'_>], flags: MsgFlags) -> io::Result<Received> {
        Ok(recv::recv_record(self.sock.open()?, Scatter::new(bufs), None, flags)?)
    }
}
