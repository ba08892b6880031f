//! [`UnixSeqpacket`] of the asynchronous kind.
//!
//! Does not depend on how packets move. Tests: `tests/unix/tokio.rs`.

use std::io;
use std::path::Path;

use super::{address, connected, data_wrapper_methods, op, wrapper_methods};
use crate::rt::handle::Stack;
use crate::rt::tasks::Want;
use crate::tokio::ready::Assumed;
use crate::unix::{SocketAddr, UnixSocket};

/// A sequenced-packet socket, with the methods of `tokio`'s datagram socket.
#[derive(Debug)]
pub struct UnixSeqpacket {
    inner: crate::unix::UnixSeqpacket,
    pub(super) assumed: Assumed,
}

wrapper_methods!(UnixSeqpacket, assumed);
data_wrapper_methods!(UnixSeqpacket);

impl UnixSeqpacket {
    /// Connects to the listener of this pathname, on the current stack ([`Stack::current`]); waits while its
    /// backlog is full.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixSeqpacket::connect`].
    pub async fn connect<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::connect_addr_on(&Stack::current(), &address(path)?).await
    }

    /// Connects to an address, on a stack of your own.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixSeqpacket::connect`].
    pub async fn connect_addr_on(stack: &Stack, addr: &SocketAddr) -> io::Result<Self> {
        let socket = UnixSocket::new_seqpacket(stack);
        socket.set_nonblocking(true)?;
        Self::from_std(crate::unix::UnixSeqpacket { sock: connected(&socket, addr).await? })
    }

    /// Sends a packet, once there is room.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixSeqpacket::send`].
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        op(&self.inner.sock, Want::Write, || self.inner.send(buf)).await
    }

    /// Receives a packet, once there is one. 0 at the end.
    ///
    /// # Errors
    /// As for [`crate::unix::UnixSeqpacket::recv`].
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        op(&self.inner.sock, Want::Read, || self.inner.recv(buf)).await
    }

    /// Closes one direction or both.
    ///
    /// # Errors
    /// None today.
    pub fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        self.inner.shutdown(how)
    }
}
