//! [`UnixDatagram`] of the asynchronous kind.
//!
//! Must not know how datagrams move. Tests: `tests/unix_tokio.rs`.

use std::io;
use std::path::Path;
use std::task::{Context, Poll};

use super::{data_wrapper_methods, op, op_listed, or_end, poll_op, wrapper_methods};
use crate::rt::handle::Stack;
use crate::rt::tasks::Want;
use crate::unix::SocketAddr;

/// A datagram socket in the shape of `tokio::net::UnixDatagram`.
#[derive(Debug)]
pub struct UnixDatagram {
    inner: crate::unix::UnixDatagram,
}

wrapper_methods!(UnixDatagram);
data_wrapper_methods!(UnixDatagram);

impl UnixDatagram {
    /// A socket of the current stack ([`Stack::current`]), bound to this pathname.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::bind`].
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::bind_addr_on(&Stack::current(), &SocketAddr::from_pathname(path)?)
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
        self.inner.connect(path)
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
        self.send_to_addr(buf, &SocketAddr::from_pathname(path)?).await
    }

    /// The same for an address.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::send_to`].
    pub async fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        // A flow that is full tells its sender.
        op_listed(&self.inner.sock, Want::Write, || self.inner.send_to_addr(buf, addr)).await
    }

    /// Receives a datagram, once there is one.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::recv`].
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        op(&self.inner.sock, Want::Read, || or_end(&self.inner.sock, self.inner.recv(buf), || 0)).await
    }

    /// [`recv`](Self::recv) as a poll function.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        poll_op(&self.inner.sock, Want::Read, cx, || or_end(&self.inner.sock, self.inner.recv(buf), || 0))
    }

    /// Receives a datagram, once there is one, and says whose.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixDatagram::recv_from`].
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let sock = &self.inner.sock;
        let end = || (0, SocketAddr(None));
        op(sock, Want::Read, || or_end(sock, self.inner.recv_from(buf), end)).await
    }

    /// Sends to the peer if there is room.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.inner.send(buf)
    }

    /// Receives a datagram if there is one.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.recv(buf)
    }

    /// Closes one direction or both.
    ///
    /// # Errors
    /// None today.
    pub fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        self.inner.shutdown(how)
    }
}
