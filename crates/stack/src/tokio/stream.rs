//! [`TcpStream`] of the asynchronous kind.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use ::tokio::io::ReadBuf;

use super::addr::{ToSocketAddrs, resolve};
use super::halves::{async_read, async_write};
use super::methods::{passed_methods, ready_methods, stream_methods, try_from_std};
use super::ready::Assumed;
use super::wait::{append, op, poll_op, until};
use crate::base::names;
use crate::rt::counter;
use crate::rt::handle::Stack;
use crate::rt::tasks::Want;
use crate::tcp::conn::{connect, user};
use crate::tcp::socket::{MbufChain, SendFlags, TcpSocket};

/// A TCP connection in the shape of `tokio::net::TcpStream`. See the module's documentation.
#[derive(Debug)]
pub struct TcpStream {
    pub(super) inner: crate::tcp::socket::TcpStream,
    assumed: Assumed,
}

impl TcpStream {
    /// Connects on the current stack ([`Stack::current`]), trying each address in turn. A name is resolved as
    /// [`lookup_host`](super::lookup_host) does. May be cancelled: the connection is closed then.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::connect`], and [`lookup_host`](super::lookup_host).
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::connect_on(&Stack::current(), addr).await
    }

    /// [`connect`](Self::connect) on a stack of your own.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::connect`].
    pub async fn connect_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<Self> {
        let mut last = names::no_address();
        for addr in resolve(stack, addr).await? {
            match Self::connect_with(TcpSocket::for_addr(stack, addr), addr).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(in crate::tokio) async fn connect_with(mut socket: TcpSocket, addr: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true);
        let inner = socket.start(addr)?;
        if !inner.defers_connect()? {
            until(&inner, Want::Connect).await?;
            connect::connected(inner.conn()?)?;
        }
        Ok(Self { inner, assumed: Assumed::default() })
    }

    /// [`TcpSocket::connect_with`](super::TcpSocket::connect_with).
    pub(in crate::tokio) async fn connect_with_text(
        mut socket: TcpSocket,
        addr: SocketAddr,
        data: &[u8],
    ) -> io::Result<(Self, usize)> {
        socket.set_nonblocking(true);
        let (inner, taken) = socket.connect_with(addr, data)?;
        until(&inner, Want::Connect).await?;
        connect::connected(inner.conn()?)?;
        Ok((Self { inner, assumed: Assumed::default() }, taken))
    }

    /// Wraps a stream of the blocking kind, which from now on does not block.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn from_std(inner: crate::tcp::socket::TcpStream) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self { inner, assumed: Assumed::default() })
    }

    pub(super) fn accepted(inner: crate::tcp::socket::TcpStream) -> io::Result<Self> {
        Ok(Self { assumed: Assumed::of_accepted(), ..Self::from_std(inner)? })
    }

    /// The stream of the blocking kind inside. It stays non-blocking until told otherwise.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn into_std(self) -> io::Result<crate::tcp::socket::TcpStream> {
        Ok(self.inner)
    }

    /// The stream of the blocking kind, for its queries and options.
    pub fn get_ref(&self) -> &crate::tcp::socket::TcpStream {
        &self.inner
    }

    /// Takes the value that the listener's hook attached when it accepted the SYN: see
    /// [`crate::TcpStream::take_accept_value`].
    pub fn take_accept_value<T: std::any::Any + Send>(&self) -> Option<T> {
        self.inner.take_accept_value()
    }

    /// [`crate::TcpStream::send_mbufs`]: the bytes taken, at least one unless `chain` is empty, are removed from its
    /// front. May be cancelled: bytes taken are then still sent.
    ///
    /// # Errors
    /// As for a write.
    pub async fn send_mbufs(&self, chain: &mut MbufChain) -> io::Result<usize> {
        op(&self.inner, Want::Write, || self.inner.send_mbufs(chain)).await
    }

    /// [`crate::TcpStream::send_with`]: a write with flags of send(2). May be cancelled: bytes taken are then still sent.
    ///
    /// # Errors
    /// As for a write.
    pub async fn send_with(&self, bufs: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
        op(&self.inner, Want::Write, || self.send_for_task(bufs, flags)).await
    }

    /// [`crate::TcpStream::send_mbufs_with`]: [`send_mbufs`](Self::send_mbufs) with flags of send(2). May be cancelled likewise.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::send_with`].
    pub async fn send_mbufs_with(&self, chain: &mut MbufChain, flags: SendFlags) -> io::Result<usize> {
        op(&self.inner, Want::Write, || self.inner.send_mbufs_with(chain, flags)).await
    }

    /// [`crate::TcpStream::recv_mbufs`], once there are bytes. May be cancelled: nothing is taken then.
    ///
    /// # Errors
    /// As for a read.
    pub async fn recv_mbufs(&self, max: usize) -> io::Result<MbufChain> {
        op(&self.inner, Want::Read, || self.inner.recv_mbufs(max)).await
    }

    /// SO_LINGER of zero: dropping the stream resets the connection, and unsent data is dropped.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.inner.set_linger(Some(Duration::ZERO))
    }

    /// Receives at most `room` bytes, which `put` gets piece by piece. A buffer that is appended to so need not be initialized before:
    /// zeroing 8 KiB takes longer than a small read.
    pub(super) fn recv_pieces(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<usize> {
        let (core, ends) = self.inner.receiving()?;
        user::recv_pieces(core, &ends, room, put)
    }

    /// [`recv_pieces`](Self::recv_pieces) where `put` is foreign code (`BufMut`), which may use the socket, or panic: it is
    /// called when the receive is over. Such a panic goes to the caller, and the bytes are lost, as in tokio. Nothing is copied before.
    pub(super) fn recv_apart(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<usize> {
        let received = self.inner.recv_mbufs(room)?;
        received.pieces().for_each(put);
        Ok(received.len())
    }

    pub(super) fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let received = append(buf, |buf| {
            let room = buf.remaining();
            self.assumed.polled(poll_op(&self.inner, Want::Read, cx, || {
                self.recv_pieces(room, |piece| buf.put_slice(piece))
            }))
        });
        received.map_ok(|_bytes| ())
    }

    pub(super) fn poll_write_shared(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_op(&self.inner, Want::Write, cx, || self.send_for_task(bufs, SendFlags::NONE))
    }

    /// One attempt to send. `OutOfMemory`, also where bytes wait to be sent: the stream stays writable, so that only another attempt in a while
    /// finds out whether there is memory again.
    fn send_for_task(&self, bufs: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
        let (core, ends) = self.inner.sending()?;
        user::send_slices(core, &ends, bufs, flags, |_| {
            core.count(counter::MEMORY_WAITS);
            Err(io::ErrorKind::OutOfMemory.into())
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

ready_methods!(TcpStream, |stream| &stream.inner);
stream_methods!(TcpStream, |stream| &stream.inner);
try_from_std!(TcpStream, crate::tcp::socket::TcpStream);
passed_methods!(TcpStream {
    /// The address of the other end.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::peer_addr`].
    peer_addr() -> SocketAddr;

    /// The address of this end.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    local_addr() -> SocketAddr;

    /// Takes the pending error, if there is one.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    take_error() -> Option<io::Error>;

    /// Whether TCP_NODELAY is set.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    nodelay() -> bool;

    /// TCP_NODELAY: small writes are sent at once.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    set_nodelay(nodelay: bool) -> ();

    /// Whether received bytes are acknowledged without waiting for an answer: see [`crate::TcpStream::quickack`].
    ///
    /// # Errors
    /// As there.
    quickack() -> bool;

    /// TCP_QUICKACK: see [`crate::TcpStream::set_quickack`].
    ///
    /// # Errors
    /// As there.
    set_quickack(quickack: bool) -> ();

    /// The SO_LINGER setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    linger() -> Option<Duration>;

    /// SO_LINGER. As the stream does not block, dropping it never waits; zero resets.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::set_linger`].
    set_linger(linger: Option<Duration>) -> ();

    /// The IP_TTL setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    ttl() -> u32;

    /// IP_TTL, or IPV6_UNICAST_HOPS, 1 to 255.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    set_ttl(ttl: u32) -> ();

    /// TCP_NOTSENT_LOWAT, bytes: the stream is [writable](Self::writable) only while little written data is unsent, and a write
    /// of a task waits likewise. See [`crate::TcpStream::set_notsent_lowat`].
    ///
    /// # Errors
    /// `InvalidInput` for `Some(0)`.
    set_notsent_lowat(bytes: Option<u32>) -> ();

    /// The TCP_NOTSENT_LOWAT setting, bytes; `None` if there is no bound.
    ///
    /// # Errors
    /// None; the signature is that of [`crate::TcpStream::notsent_lowat`].
    notsent_lowat() -> Option<u32>;

    /// SO_RCVLOWAT, bytes: the stream is [readable](Self::readable) only from so many waiting bytes on. A read takes what there is. See
    /// [`crate::TcpStream::set_rcvlowat`].
    ///
    /// # Errors
    /// None today.
    set_rcvlowat(bytes: u32) -> ();

    /// The SO_RCVLOWAT setting, bytes.
    ///
    /// # Errors
    /// None today.
    rcvlowat() -> u32;

    /// TCP_WINDOW_CLAMP: see [`crate::TcpStream::set_window_clamp`].
    ///
    /// # Errors
    /// EINVAL for 0.
    set_window_clamp(bytes: u32) -> ();

    /// The largest window that the connection can offer, bytes.
    ///
    /// # Errors
    /// None today.
    window_clamp() -> u32;

    /// TCP_INQ: bytes that are left to read; 1 if nothing but the end of the stream is.
    ///
    /// # Errors
    /// None today.
    inq() -> usize;

    /// SO_INCOMING_CPU: the CPU on which data last came in.
    ///
    /// # Errors
    /// None today.
    incoming_cpu() -> Option<u32>;
});

impl AsRef<Self> for TcpStream {
    fn as_ref(&self) -> &Self {
        self
    }
}

async_read!(TcpStream, |stream| stream);
async_write!(TcpStream, |stream| stream);
