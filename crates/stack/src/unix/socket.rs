//! [`UnixSocket`]: a socket before it is connected or listens.
//!
//! Does not depend on how connections are made (`listen.rs`). Tests: `tests/unix/`.

use std::io;

use super::addr::SocketAddr;
use super::common::socket_methods;
use super::pcb::Kind;
use super::sock::Sock;
use super::{UnixDatagram, UnixListener, UnixSeqListener, UnixSeqpacket, UnixStream, contain, listen};
use crate::rt::fork::Held;
use crate::rt::handle::Stack;

/// A socket of one type, to be bound, and then to connect or listen.
///
/// It remains a handle of the listener or stream that it becomes: [`connect`](Self::connect) can be repeated after an
/// error, fails with EISCONN after a success, and the connection ends when all handles, including this one, are
/// dropped.
pub struct UnixSocket {
    pub(crate) sock: Held<Sock>,
}

socket_methods!(UnixSocket);

impl UnixSocket {
    /// A stream socket.
    pub fn new_stream(stack: &Stack) -> Self {
        Self { sock: Sock::held(stack, Kind::Stream) }
    }

    /// A datagram socket.
    pub fn new_datagram(stack: &Stack) -> Self {
        Self { sock: Sock::held(stack, Kind::Datagram) }
    }

    /// A sequenced-packet socket.
    pub fn new_seqpacket(stack: &Stack) -> Self {
        Self { sock: Sock::held(stack, Kind::Seqpacket) }
    }

    /// Binds it. With the unnamed address, it is bound to a free abstract name of five hexadecimal digits.
    ///
    /// # Errors
    /// `AddrInUse`; EINVAL (bound already), ENOTDIR.
    pub fn bind(&self, addr: &SocketAddr) -> io::Result<()> {
        let (core, sock) = self.sock.enter()?;
        Ok(contain::call(sock, "bind", || super::shared(core).names.bind(&sock.pcb, addr))?)
    }

    /// Connects a stream socket. Blocks while the backlog is full.
    ///
    /// # Errors
    /// As for [`UnixStream::connect`]; EISCONN, EINVAL (it listens), EOPNOTSUPP (not a stream socket),
    /// `WouldBlock` (backlog full).
    pub fn connect(&self, addr: &SocketAddr) -> io::Result<UnixStream> {
        let sock = self.sock.open()?;
        listen::require(sock, Kind::Stream)?;
        Ok(UnixStream { sock: Held::of(listen::connect(sock, addr)?) })
    }

    /// Connects a sequenced-packet socket. Blocks while the backlog is full.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_seqpacket(&self, addr: &SocketAddr) -> io::Result<UnixSeqpacket> {
        let sock = self.sock.open()?;
        listen::require(sock, Kind::Seqpacket)?;
        Ok(UnixSeqpacket { sock: Held::of(listen::connect(sock, addr)?) })
    }

    /// Listens on a bound stream socket, with room for one connection more than `backlog` (at most 4096). A further
    /// call changes the backlog.
    ///
    /// # Errors
    /// EINVAL (unbound, connected), EOPNOTSUPP (not a stream socket).
    pub fn listen(&self, backlog: usize) -> io::Result<UnixListener> {
        let sock = self.sock.open()?;
        listen::require(sock, Kind::Stream)?;
        listen::listen(sock, backlog)?;
        Ok(UnixListener { sock: Held::of(sock.clone()) })
    }

    /// The same for a sequenced-packet socket.
    ///
    /// # Errors
    /// As for [`listen`](Self::listen).
    pub fn listen_seqpacket(&self, backlog: usize) -> io::Result<UnixSeqListener> {
        let sock = self.sock.open()?;
        listen::require(sock, Kind::Seqpacket)?;
        listen::listen(sock, backlog)?;
        Ok(UnixSeqListener { sock: Held::of(sock.clone()) })
    }

    /// The datagram socket that it is.
    ///
    /// # Errors
    /// EOPNOTSUPP (not a datagram socket).
    pub fn datagram(&self) -> io::Result<UnixDatagram> {
        let sock = self.sock.open()?;
        listen::require(sock, Kind::Datagram)?;
        Ok(UnixDatagram { sock: Held::of(sock.clone()) })
    }
}
