//! [`IcmpSocket`] of the asynchronous kind.
//!
//! Its receive queue is a UDP socket's, and so is how tasks wait for it. Requests never wait. Does not depend on how
//! messages move. Tests: `tests/udp/tokio.rs`.

use std::io;
use std::net::{IpAddr, SocketAddrV6};
use std::task::{Context, Poll};

use super::wait::{op, poll_op, poll_until, until};
use sockeye_sync::coop::cooperative;
use sockeye_sync::facade::Arc;

use crate::icmp::EchoReply;
use crate::rt::fork::Held;
use crate::rt::handle::Stack;
use crate::rt::tasks::Want;
use crate::udp::naming::Handle;

/// Sends ICMP echo requests and receives their answers, in the shape of `tokio`'s sockets. See
/// [`crate::IcmpSocket`], which [`get_ref`](Self::get_ref) gives for options and errors.
#[derive(Debug)]
pub struct IcmpSocket {
    inner: crate::icmp::IcmpSocket,
}

impl IcmpSocket {
    /// A socket of the current stack ([`Stack::current`]), bound to one of the stack's addresses, or with the wildcard
    /// address to all addresses of its family.
    ///
    /// # Errors
    /// As for [`crate::IcmpSocket::bind`].
    pub fn bind(addr: IpAddr) -> io::Result<Self> {
        Self::bind_on(&Stack::current(), addr)
    }

    /// [`bind`](Self::bind) on a stack of your own.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn bind_on(stack: &Stack, addr: IpAddr) -> io::Result<Self> {
        Self::from_std(crate::icmp::IcmpSocket::bind_on(stack, addr)?)
    }

    /// Wraps a socket of the blocking kind, which from now on does not block.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn from_std(inner: crate::icmp::IcmpSocket) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self { inner })
    }

    /// The socket of the blocking kind inside. It stays non-blocking until told otherwise.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn into_std(self) -> io::Result<crate::icmp::IcmpSocket> {
        Ok(self.inner)
    }

    /// The socket of the blocking kind, for its queries, options and errors.
    pub fn get_ref(&self) -> &crate::icmp::IcmpSocket {
        &self.inner
    }

    /// Waits until a receive would not block. Any number of tasks may wait. May be cancelled.
    ///
    /// # Errors
    /// `Other` if the task's waker panics while it is cloned. A pending error makes the socket readable.
    pub async fn readable(&self) -> io::Result<()> {
        until(self.handle(), Want::Read).await
    }

    /// [`readable`](Self::readable) as a poll function.
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_until(self.handle(), Want::Read, cx)
    }

    /// Sends the peer an echo request. Never waits.
    ///
    /// # Errors
    /// As for [`crate::IcmpSocket::send`].
    pub async fn send(&self, seq: u16, data: &[u8]) -> io::Result<()> {
        cooperative(|_| Poll::Ready(self.inner.send(seq, data))).await
    }

    /// Sends an echo request to a host or a group. Never waits.
    ///
    /// # Errors
    /// As for [`crate::IcmpSocket::send_to`].
    pub async fn send_to(&self, seq: u16, data: &[u8], to: IpAddr) -> io::Result<()> {
        cooperative(|_| Poll::Ready(self.inner.send_to(seq, data, to))).await
    }

    /// Sends an echo request to an address on the interface that its scope id names. Never waits.
    ///
    /// # Errors
    /// As for [`crate::IcmpSocket::send_to_scoped`].
    pub async fn send_to_scoped(&self, seq: u16, data: &[u8], to: SocketAddrV6) -> io::Result<()> {
        cooperative(|_| Poll::Ready(self.inner.send_to_scoped(seq, data, to))).await
    }

    /// Receives an answer; data beyond `buf` is cut off. May be cancelled: no answer is lost then.
    ///
    /// # Errors
    /// The pending error.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<EchoReply> {
        op(self.handle(), Want::Read, || self.inner.recv(buf)).await
    }

    /// [`recv`](Self::recv) as a poll function.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<EchoReply>> {
        poll_op(self.handle(), Want::Read, cx, || self.inner.recv(buf))
    }

    fn handle(&self) -> &Held<Arc<Handle>> {
        &self.inner.handle
    }

    /// [`recv`](Self::recv) if there is an answer.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; the pending error.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<EchoReply> {
        self.inner.recv(buf)
    }
}
