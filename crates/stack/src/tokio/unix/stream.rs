//! [`UnixStream`] of the asynchronous kind.
//!
//! Does not depend on how bytes move. Tests: `tests/unix/tokio.rs`.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::path::Path;
use std::task::{Context, Poll};

use ::tokio::io::ReadBuf;

use super::{address, connected, data_wrapper_methods, poll_op, wrapper_methods};
use crate::rt::handle::Stack;
use crate::rt::tasks::Want;
use crate::tokio::halves::{async_read, async_write};
use crate::tokio::methods::stream_methods;
use crate::tokio::ready::Assumed;
use crate::tokio::wait::append;
use crate::unix::bytes::Taken;
use crate::unix::{SocketAddr, UnixSocket};

/// A stream socket in the shape of `tokio::net::UnixStream`.
#[derive(Debug)]
pub struct UnixStream {
    inner: crate::unix::UnixStream,
    pub(super) assumed: Assumed,
}

wrapper_methods!(UnixStream, assumed);
data_wrapper_methods!(UnixStream);
stream_methods!(UnixStream, |stream| &stream.inner.sock);

impl UnixStream {
    /// Connects to the listener of this pathname, on the current stack ([`Stack::current`]); waits while its
    /// backlog is full.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixStream::connect`].
    pub async fn connect<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::connect_addr(&address(path)?).await
    }

    /// Connects to an address, on the current stack; otherwise as [`connect`](Self::connect).
    ///
    /// # Errors
    /// As for [`crate::unix::UnixStream::connect`].
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::connect_addr_on(&Stack::current(), addr).await
    }

    /// Connects to an address, on a stack of your own.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixStream::connect`].
    pub async fn connect_addr_on(stack: &Stack, addr: &SocketAddr) -> io::Result<Self> {
        let socket = UnixSocket::new_stream(stack);
        socket.set_nonblocking(true)?;
        Self::from_std(crate::unix::UnixStream { sock: connected(&socket, addr).await? })
    }

    fn recv_pieces(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<usize> {
        self.inner.recv_pieces(room, put)
    }

    /// A receive where `put` is foreign code: see `TcpStream::recv_apart`.
    pub(in crate::tokio) fn recv_apart(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut taken = Taken::new(room);
        let received = self.inner.recv_taken(&mut taken)?;
        taken.pieces().for_each(put);
        Ok(received)
    }

    pub(super) fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let received = append(buf, |buf| {
            let room = buf.remaining();
            self.assumed.polled(poll_op(&self.inner.sock, Want::Read, cx, || {
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
        poll_op(&self.inner.sock, Want::Write, cx, || io::Write::write_vectored(&mut &self.inner, bufs))
    }

    pub(super) fn shutdown_write(&self) -> io::Result<()> {
        self.inner.shutdown(Shutdown::Write)
    }
}

impl AsRef<Self> for UnixStream {
    fn as_ref(&self) -> &Self {
        self
    }
}

async_read!(UnixStream, |stream| stream);
async_write!(UnixStream, |stream| stream);
