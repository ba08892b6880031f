//! [`UnixStream`]: a byte stream between two sockets.
//!
//! Does not depend on how bytes move (`send.rs`, `recv.rs`). Tests: `tests/unix/`.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use rustix::io::Errno;

use super::addr::SocketAddr;
use super::ancillary::{MsgFlags, RecvAncillary, RecvMsg, SendAncillary};
#[cfg(feature = "tokio")]
use super::bytes::{Pieces, Taken};
use super::bytes::{Scatter, Sink as _};
use super::common::{connect_methods, data_methods, socket_methods};
use super::pcb::Kind;
use super::sock::Sock;
use super::{listen, recv, send};
use crate::rt::fork::Held;

/// A stream socket, in the shape of `std::os::unix::net::UnixStream`.
///
/// Dropping the last handle closes it; the peer can read the bytes written before, and then gets ECONNRESET if the
/// closed end had not read everything. All methods take `&self`: several threads may use one stream.
pub struct UnixStream {
    pub(crate) sock: Held<Sock>,
}

socket_methods!(UnixStream);
data_methods!(UnixStream, Kind::Stream);
connect_methods!(UnixStream, Kind::Stream);

impl UnixStream {
    /// Copies bytes that can be read without taking them. Blocks like a read.
    ///
    /// # Errors
    /// As for a read.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let bufs = &mut [IoSliceMut::new(buf)];
        Ok(recv::recv(self.sock.open()?, Scatter::new(bufs), None, MsgFlags::PEEK)?.bytes)
    }

    /// A read of at most `room` bytes, which `put` gets piece by piece.
    #[cfg(feature = "tokio")]
    pub(crate) fn recv_pieces(&self, room: usize, put: impl FnMut(&[u8])) -> io::Result<usize> {
        if room == 0 {
            return Ok(0);
        }
        Ok(recv::recv(self.sock.open()?, Pieces { room, put }, None, MsgFlags::NONE)?.bytes)
    }

    /// A read of at most as many bytes as `taken` has room for.
    #[cfg(feature = "tokio")]
    pub(crate) fn recv_taken(&self, taken: &mut Taken) -> io::Result<usize> {
        if taken.capacity() == 0 {
            return Ok(0);
        }
        Ok(recv::recv(self.sock.open()?, taken, None, MsgFlags::NONE)?.bytes)
    }

    /// sendmsg(2): bytes, and rights or credentials with the first of them. `to` must be `None`. Returns how many bytes
    /// were taken; `ancillary` is then empty, and unchanged after an error (except that `EIO`, a panic of the stack's
    /// own code, closes its rights). Without bytes, nothing is sent, and rights are closed.
    ///
    /// # Errors
    /// `BrokenPipe`, `WouldBlock`; EINVAL (too many rights), ETOOMANYREFS, EPERM (others' credentials), EISCONN
    /// (an address), ENOMEM (packet memory at its cap).
    pub fn send_msg(
        &self,
        bufs: &[IoSlice<'_>],
        to: Option<&SocketAddr>,
        ancillary: &mut SendAncillary,
        flags: MsgFlags,
    ) -> io::Result<usize> {
        if to.is_some() {
            return Err(Errno::ISCONN.into());
        }
        Ok(send::send(self.sock.open()?, bufs, Some(ancillary), flags)?)
    }

    /// recvmsg(2): bytes, and their ancillary data. It stops after bytes that came with rights.
    ///
    /// # Errors
    /// `WouldBlock`, `ConnectionReset`.
    pub fn recv_msg(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        ancillary: &mut RecvAncillary,
        flags: MsgFlags,
    ) -> io::Result<RecvMsg> {
        let received = recv::recv(self.sock.open()?, Scatter::new(bufs), Some(ancillary), flags)?;
        Ok(RecvMsg { bytes: received.bytes, flags: received.flags, addr: SocketAddr(received.sender) })
    }
}

impl Read for &UnixStream {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(recv::read(self.sock.open()?, buf)?)
    }
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let sink = Scatter::new(bufs);
        if sink.capacity() == 0 {
            return Ok(0);
        }
        Ok(recv::recv(self.sock.open()?, sink, None, MsgFlags::NONE)?.bytes)
    }
}

impl Write for &UnixStream {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(send::write(self.sock.open()?, buf)?)
    }
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(send::send(self.sock.open()?, bufs, None, MsgFlags::NONE)?)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.sock.open().map(drop)
    }
}

impl Read for UnixStream {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for UnixStream {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }
    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}
