//! [`UdpSocket`] of the asynchronous kind.
//!
//! The thread that appends a datagram takes the tasks' wakers out of the queue and wakes them. Any number of tasks may wait in futures; of those that
//! call a poll function of one handle, the last is woken, as in `tokio`. Sends never wait but at the cap of packet memory. Does not depend on how datagrams move.
//! Tests: `tests/udp/tokio.rs`.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use ::tokio::io::ReadBuf;

use super::addr::{ToSocketAddrs, each, resolve};
use super::methods::{datagram_methods, ready_methods, try_from_std};
use super::ready::Assumed;
use super::wait::{append, op, poll_op, try_later};
use sockeye_sync::coop;
use sockeye_sync::facade::Arc;

use crate::base::names;
use crate::rt::fork::Held;
use crate::rt::handle::Stack;
use crate::rt::tasks::Want;
use crate::udp::Outgoing;
use crate::udp::RecvMeta;
use crate::udp::SendMeta;
use crate::udp::naming::Handle;
use crate::udp::recv;

/// A UDP socket in the shape of `tokio::net::UdpSocket`. See the module's documentation.
#[derive(Debug)]
pub struct UdpSocket {
    pub(super) inner: crate::udp::UdpSocket,
    assumed: Assumed,
}

impl UdpSocket {
    /// A socket of the current stack ([`Stack::current`]), bound to `addr`. A name is resolved as
    /// [`lookup_host`](super::lookup_host) does.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::bind`].
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::bind_on(&Stack::current(), addr).await
    }

    /// [`bind`](Self::bind) on a stack of your own.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::bind`].
    pub async fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<Self> {
        Self::from_std(each(stack, addr, |addr| crate::udp::UdpSocket::bind_on(stack, addr)).await?)
    }

    /// Wraps a blocking socket, which becomes non-blocking.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn from_std(inner: crate::udp::UdpSocket) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self { inner, assumed: Assumed::default() })
    }

    /// The blocking socket type inside. It stays non-blocking until that is changed.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn into_std(self) -> io::Result<crate::udp::UdpSocket> {
        Ok(self.inner)
    }

    /// The blocking socket type, for its queries and options.
    pub fn get_ref(&self) -> &crate::udp::UdpSocket {
        &self.inner
    }

    /// From now on, sends to `addr` and receives from it only.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::connect`].
    pub async fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        each(self.inner.stack(), addr, |addr| self.inner.connect(addr)).await
    }

    /// Sends to the peer.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::send`].
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send(cx, buf)).await
    }

    /// [`send`](Self::send) as a poll function.
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.sending(cx, || self.inner.send(buf))
    }

    /// Sends to `addr`.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::send_to`].
    pub async fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let addr = *resolve(self.inner.stack(), addr).await?.first().ok_or_else(names::no_address)?;
        poll_fn(|cx| self.poll_send_to(cx, buf, addr)).await
    }

    /// [`send_to`](Self::send_to) as a poll function.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        addr: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.sending(cx, || self.inner.send_to(buf, addr))
    }

    /// Sends with ancillary data; see [`crate::UdpSocket::send_msg`].
    ///
    /// # Errors
    /// As there.
    pub async fn send_msg(&self, bufs: &[IoSlice<'_>], meta: &SendMeta) -> io::Result<usize> {
        poll_fn(|cx| self.sending(cx, || self.inner.send_msg(bufs, meta))).await
    }

    /// Sends several datagrams; see [`crate::UdpSocket::send_batch`].
    ///
    /// # Errors
    /// As there.
    pub async fn send_batch(&self, datagrams: &[Outgoing<'_>]) -> io::Result<usize> {
        poll_fn(|cx| self.sending(cx, || self.inner.send_batch(datagrams))).await
    }

    /// Waits for a datagram and receives it.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::recv`].
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        op(self.handle(), Want::Read, || self.inner.recv(buf)).await
    }

    /// [`recv`](Self::recv) as a poll function.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, buf).map_ok(|_from| ())
    }

    /// Waits for a datagram and receives it; also returns its sender.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::recv_from`].
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        op(self.handle(), Want::Read, || self.inner.recv_from(buf)).await
    }

    /// [`recv_from`](Self::recv_from) as a poll function.
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let received = append(buf, |buf| {
            let room = buf.remaining();
            poll_op(self.handle(), Want::Read, cx, || self.recv_pieces(room, |piece| buf.put_slice(piece)))
        });
        received.map_ok(|(_len, from)| from)
    }

    /// Receives with ancillary data; see [`crate::UdpSocket::recv_msg`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv_msg(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<RecvMeta> {
        op(self.handle(), Want::Read, || self.inner.recv_msg(bufs)).await
    }

    /// Receives several datagrams; see [`crate::UdpSocket::recv_batch`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv_batch(&self, bufs: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]) -> io::Result<usize> {
        op(self.handle(), Want::Read, || self.inner.recv_batch(bufs, metas)).await
    }

    /// Sends to the peer, if there is memory.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::send`].
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.assumed.sent(self.inner.send(buf))
    }

    /// Sends to `addr`, if there is memory.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::send_to`].
    pub fn try_send_to(&self, buf: &[u8], addr: SocketAddr) -> io::Result<usize> {
        self.assumed.sent(self.inner.send_to(buf, addr))
    }

    /// Receives a datagram if there is one.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.recv(buf)
    }

    /// Receives a datagram if there is one; also returns its sender.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.inner.recv_from(buf)
    }

    /// [`try_recv_from`](Self::try_recv_from) of at most `room` bytes, which `put` gets piece by piece.
    fn recv_pieces(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<(usize, SocketAddr)> {
        let meta = recv::recv_pieces(self.handle().open()?, room, put)?;
        Ok((meta.len, meta.from))
    }

    /// [`recv_pieces`](Self::recv_pieces) where `put` is foreign code: see `TcpStream::recv_apart`.
    pub(in crate::tokio) fn recv_apart(
        &self,
        room: usize,
        put: impl FnMut(&[u8]),
    ) -> io::Result<(usize, SocketAddr)> {
        let (payload, meta) = recv::recv_chain(self.handle().open()?, room)?;
        (&payload).into_iter().for_each(put);
        Ok((meta.len, meta.from))
    }

    pub(super) fn handle(&self) -> &Held<Arc<Handle>> {
        &self.inner.handle
    }

    /// Polls a send. At the memory cap the task is woken after a while to try again.
    fn sending<R>(&self, cx: &mut Context<'_>, f: impl FnOnce() -> io::Result<R>) -> Poll<io::Result<R>> {
        coop::poll(cx, |cx| match f() {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                try_later(self.inner.stack().core()?, cx)
            }
            done => Poll::Ready(done),
        })
    }
}

ready_methods!(UdpSocket, |socket| socket.handle());
datagram_methods!(UdpSocket, SocketAddr, recv_apart, |socket| socket.handle());
try_from_std!(UdpSocket, crate::udp::UdpSocket);
