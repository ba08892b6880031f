//! [`UnixDatagram`] of the asynchronous kind.
//!
//! Does not depend on how datagrams move. Tests: `tests/unix/tokio.rs`.

use std::io;
use std::path::Path;
use std::task::{Context, Poll};

use ::tokio::io::ReadBuf;

use super::{address, data_wrapper_methods, op, op_listed, or_end, poll_op, poll_op_listed, wrapper_methods};
use crate::rt::handle::Stack;
use crate::rt::tasks::Want;
use crate::tokio::methods::datagram_methods;
use crate::tokio::ready::Assumed;
use crate::tokio::wait::append;
use crate::unix::SocketAddr;
use crate::unix::bytes::Taken;

/// A datagram socket in the shape of `tokio::net::UnixDatagram`.
#[derive(Debug)]
pub struct UnixDatagram {
    inner: crate::unix::UnixDatagram,
    pub(super) assumed: Assumed,
}

wrapper_methods!(UnixDatagram, assumed);
data_wrapper_methods!(UnixDatagram);
datagram_methods!(UnixDatagram, SocketAddr, recv_apart_for_task, |socket| &socket.inner.sock);

impl UnixDatagram {
    /// A socket of the current stack ([`Stack::current`]), bound to this pathname.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::bind`].
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::bind_addr_on(&Stack::current(), &address(path)?)
    }

    /// A socket bound to an address, on a stack of your own.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::bind`].
    pub fn bind_addr_on(stack: &Stack, addr: &SocketAddr) -> io::Result<Self> {
        Self::from_std(crate::unix::UnixDatagram::bind_addr_on(stack, addr)?)
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
        Self::from_std(crate::unix::UnixDatagram::unbound_on(stack)?)
    }

    /// Sends to the socket of this pathname, and receives from it only. Never waits.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::connect`].
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.inner.connect_addr(&address(path)?)
    }

    /// Sends to the peer, once there is room.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::send`].
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        op(&self.inner.sock, Want::Write, || self.inner.send(buf)).await
    }

    /// Sends to the socket of this pathname, once there is room.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::send_to`].
    pub async fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        self.send_to_addr(buf, &address(path)?).await
    }

    /// The same for an address.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::send_to`].
    pub async fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        // A full flow is reported to its sender.
        op_listed(&self.inner.sock, Want::Write, || self.inner.send_to_addr(buf, addr)).await
    }

    /// Receives a datagram, once there is one.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::recv`].
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        op(&self.inner.sock, Want::Read, || or_end(&self.inner.sock, self.inner.recv(buf), || 0)).await
    }

    /// [`recv`](Self::recv) as a poll function. Of several tasks that call it, or another poll function that receives, the last is woken.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, buf).map_ok(|_from| ())
    }

    /// Receives a datagram, once there is one, and returns its sender.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::recv_from`].
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let sock = &self.inner.sock;
        op(sock, Want::Read, || or_end(sock, self.inner.recv_from(buf), end)).await
    }

    /// [`recv_from`](Self::recv_from) as a poll function, as [`poll_recv`](Self::poll_recv).
    ///
    /// # Errors
    /// As for [`recv_from`](Self::recv_from).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let received = append(buf, |buf| {
            let room = buf.remaining();
            poll_op(&self.inner.sock, Want::Read, cx, || {
                self.recv_pieces_for_task(room, |piece| buf.put_slice(piece))
            })
        });
        received.map_ok(|(_len, from)| from)
    }

    /// [`send`](Self::send) as a poll function. Of several tasks that call it, or another poll function that sends, the last is woken.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        poll_op(&self.inner.sock, Want::Write, cx, || self.inner.send(buf))
    }

    /// [`send_to`](Self::send_to) as a poll function, as [`poll_send`](Self::poll_send).
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to).
    pub fn poll_send_to<P: AsRef<Path>>(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        path: P,
    ) -> Poll<io::Result<usize>> {
        let addr = address(path)?;
        poll_op_listed(&self.inner.sock, Want::Write, cx, || self.inner.send_to_addr(buf, &addr))
    }

    /// Sends to the peer if there is room. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; else as for [`send`](Self::send).
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.assumed.sent(self.inner.send(buf))
    }

    /// Sends to the socket of this pathname if there is room. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; else as for [`send_to`](Self::send_to).
    pub fn try_send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        self.assumed.sent(self.inner.send_to_addr(buf, &address(path)?))
    }

    /// Receives a datagram if there is one. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.recv(buf)
    }

    /// Receives a datagram if there is one, and returns its sender. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.inner.recv_from(buf)
    }

    /// [`try_recv_from`](Self::try_recv_from) of at most `room` bytes, which are passed to `put` piece by piece.
    fn recv_pieces(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<(usize, SocketAddr)> {
        self.inner.recv_pieces(room, put)
    }

    /// [`recv_pieces`](Self::recv_pieces) where `put` is foreign code: see `TcpStream::recv_apart`.
    pub(in crate::tokio) fn recv_apart(
        &self,
        room: usize,
        put: impl FnMut(&[u8]),
    ) -> io::Result<(usize, SocketAddr)> {
        let mut taken = Taken::new(room);
        let received = self.inner.recv_taken(&mut taken)?;
        taken.pieces().for_each(put);
        Ok(received)
    }

    fn recv_apart_for_task(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<(usize, SocketAddr)> {
        or_end(&self.inner.sock, self.recv_apart(room, put), end)
    }

    fn recv_pieces_for_task(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<(usize, SocketAddr)> {
        or_end(&self.inner.sock, self.recv_pieces(room, put), end)
    }

    /// Closes one direction or both.
    ///
    /// # Errors
    /// None today.
    pub fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        self.inner.shutdown(how)
    }
}

/// The result of a receive when nothing more comes.
fn end() -> (usize, SocketAddr) {
    (0, SocketAddr(None))
}
