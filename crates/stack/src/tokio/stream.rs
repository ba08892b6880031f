//! [`TcpStream`] of the asynchronous kind.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::tokio::io::ReadBuf;

use super::halves::{async_read, async_write};
use super::wait::{op, poll_op, until};
use crate::rt::handle::Stack;
use crate::rt::tasks::Want;
use crate::tcp::conn::user;
use crate::tcp::socket::{MbufChain, TcpSocket};

/// A TCP connection in the shape of `tokio::net::TcpStream`. See the module's documentation.
#[derive(Debug)]
pub struct TcpStream {
    inner: crate::tcp::socket::TcpStream,
}

impl TcpStream {
    /// Connects on the current stack ([`Stack::current`]), trying each address in turn. Name resolution, if there is
    /// a name, blocks: prefer addresses.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::connect`].
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::connect_on(&Stack::current(), addr).await
    }

    /// [`connect`](Self::connect) on a stack of your own.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::connect`].
    pub async fn connect_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        for addr in addr.to_socket_addrs()? {
            match Self::connect_one(stack, addr).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_one(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        let mut socket = TcpSocket::for_addr(stack, addr);
        socket.set_nonblocking(true);
        let inner = socket.start(addr)?;
        until(&inner, Want::Connect).await?;
        user::connected(inner.conn()?)?;
        Ok(Self { inner })
    }

    /// Wraps a stream of the blocking kind, which from now on does not block.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn from_std(inner: crate::tcp::socket::TcpStream) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self { inner })
    }

    /// The stream of the blocking kind inside. It stays non-blocking until told otherwise.
    pub fn into_std(self) -> crate::tcp::socket::TcpStream {
        self.inner
    }

    /// The stream of the blocking kind, for its queries and options.
    pub fn get_ref(&self) -> &crate::tcp::socket::TcpStream {
        &self.inner
    }

    /// Waits until a read would not block. Any number of tasks may wait. May be cancelled.
    ///
    /// # Errors
    /// `Other` if the task's waker panics while it is cloned. A pending error makes the stream readable.
    pub async fn readable(&self) -> io::Result<()> {
        until(&self.inner, Want::Read).await
    }

    /// Waits until a write would not block. Any number of tasks may wait. May be cancelled.
    ///
    /// # Errors
    /// `Other` if the task's waker panics while it is cloned. A pending error makes the stream writable.
    pub async fn writable(&self) -> io::Result<()> {
        until(&self.inner, Want::Write).await
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut &self.inner, buf)
    }

    /// Writes what fits.
    ///
    /// # Errors
    /// `WouldBlock` if nothing does.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        io::Write::write(&mut &self.inner, buf)
    }

    /// [`crate::TcpStream::send_mbufs`]: what is taken, at least a byte unless `chain` is empty, is gone from the front of it. May be
    /// cancelled: what was taken is then still sent.
    ///
    /// # Errors
    /// As for a write.
    pub async fn send_mbufs(&self, chain: &mut MbufChain) -> io::Result<usize> {
        op(&self.inner, Want::Write, || self.inner.send_mbufs(chain)).await
    }

    /// [`crate::TcpStream::recv_mbufs`], once there are bytes. May be cancelled: nothing is taken then.
    ///
    /// # Errors
    /// As for a read.
    pub async fn recv_mbufs(&self, max: usize) -> io::Result<MbufChain> {
        op(&self.inner, Want::Read, || self.inner.recv_mbufs(max)).await
    }

    /// Copies received bytes without taking them, once there are any.
    ///
    /// # Errors
    /// As for a read.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        op(&self.inner, Want::Read, || self.inner.peek(buf)).await
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::peer_addr`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// The address of this end.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// TCP_NODELAY.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.inner.set_nodelay(nodelay)
    }

    /// Whether TCP_NODELAY is set.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.inner.nodelay()
    }

    /// TCP_NOTSENT_LOWAT, bytes: the stream is [writable](Self::writable) only while little of what was written is unsent, and a
    /// write of a task waits likewise. See [`crate::TcpStream::set_notsent_lowat`].
    ///
    /// # Errors
    /// `InvalidInput` for `Some(0)`.
    pub fn set_notsent_lowat(&self, bytes: Option<u32>) -> io::Result<()> {
        self.inner.set_notsent_lowat(bytes)
    }

    /// The TCP_NOTSENT_LOWAT setting, bytes; `None` if there is no bound.
    ///
    /// # Errors
    /// None; the signature is that of [`crate::TcpStream::notsent_lowat`].
    pub fn notsent_lowat(&self) -> io::Result<Option<u32>> {
        self.inner.notsent_lowat()
    }

    /// SO_LINGER. As the stream does not block, dropping it never waits; zero resets.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::set_linger`].
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.inner.set_linger(linger)
    }

    /// Takes the pending error, if there is one.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }

    pub(super) fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (filled, room) = (buf.filled().len(), buf.remaining());
        let receive = || {
            let (core, ends) = self.inner.receiving()?;
            // Appended: a buffer need not be initialized for that, and zeroing 8 KiB takes longer than a small read.
            user::recv_pieces(core, &ends, room, |piece| buf.put_slice(piece))
        };
        let received = ready!(poll_op(&self.inner, Want::Read, cx, receive));
        if received.is_err() {
            buf.set_filled(filled);
        }
        Poll::Ready(received.map(|_| ()))
    }

    pub(super) fn poll_write_shared(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_op(&self.inner, Want::Write, cx, || {
            let (core, ends) = self.inner.sending()?;
            user::send_for_task(core, &ends, bufs)
        })
    }

    pub(super) fn shutdown_write(&self) -> io::Result<()> {
        match self.inner.shutdown(Shutdown::Write) {
            // The peer was faster; there is nothing left to shut down.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            done => done,
        }
    }
}

async_read!(TcpStream, |stream| stream);
async_write!(TcpStream, |stream| stream);
