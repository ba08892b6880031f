//! [`UnixSocket`] of the asynchronous kind: a socket before it is anything else.
//!
//! Tests: `tests/unix/tokio.rs`.

use std::io;
use std::path::Path;

use super::{UnixDatagram, UnixListener, UnixStream, address, connected};
use crate::rt::handle::Stack;
use crate::unix::pcb::Kind;

/// A socket that is not connected and does not listen yet, in the shape of `tokio::net::UnixSocket`.
#[derive(Debug)]
pub struct UnixSocket {
    inner: crate::unix::UnixSocket,
}

impl UnixSocket {
    /// A datagram socket of the current stack ([`Stack::current`]).
    ///
    /// # Errors
    /// None today.
    pub fn new_datagram() -> io::Result<Self> {
        Self::from_std(crate::unix::UnixSocket::new_datagram(&Stack::current()))
    }

    /// A stream socket of the current stack ([`Stack::current`]).
    ///
    /// # Errors
    /// None today.
    pub fn new_stream() -> io::Result<Self> {
        Self::from_std(crate::unix::UnixSocket::new_stream(&Stack::current()))
    }

    /// Wraps a socket of the blocking kind, which from now on does not block: one of a stack of your own, for example.
    ///
    /// # Errors
    /// None today.
    pub fn from_std(inner: crate::unix::UnixSocket) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self { inner })
    }

    /// Binds to a pathname. Never waits.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixSocket::bind`].
    pub fn bind(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.inner.bind(&address(path)?)
    }

    /// Listens, with room for one connection more than `backlog` (at most 4096). Never waits.
    ///
    /// # Errors
    /// `Other` for a datagram socket, as in `tokio`; as for [`crate::unix::UnixSocket::listen`].
    pub fn listen(self, backlog: u32) -> io::Result<UnixListener> {
        self.require(Kind::Stream, "listen")?;
        UnixListener::from_std(self.inner.listen(usize::try_from(backlog).unwrap_or(usize::MAX))?)
    }

    /// Connects to the listener of this pathname; waits while its backlog is full.
    ///
    /// # Errors
    /// `Other` for a datagram socket, as in `tokio`; as for [`crate::unix::UnixSocket::connect`].
    pub async fn connect(self, path: impl AsRef<Path>) -> io::Result<UnixStream> {
        self.require(Kind::Stream, "connect")?;
        let addr = address(path)?;
        UnixStream::from_std(crate::unix::UnixStream { sock: connected(&self.inner, &addr).await? })
    }

    /// The datagram socket that it is.
    ///
    /// # Errors
    /// `Other` for a stream socket, as in `tokio`.
    pub fn datagram(self) -> io::Result<UnixDatagram> {
        self.require(Kind::Datagram, "datagram")?;
        UnixDatagram::from_std(self.inner.datagram()?)
    }

    /// Refuses a call on a socket of another kind than its own.
    fn require(&self, kind: Kind, call: &str) -> io::Result<()> {
        let own = self.inner.sock.open()?.pcb.kind;
        if own == kind {
            return Ok(());
        }
        let own = match own {
            Kind::Stream => "stream",
            Kind::Datagram => "datagram",
            Kind::Seqpacket => "seqpacket",
        };
        Err(io::Error::other(format!("{call} cannot be called on a {own} socket")))
    }
}
