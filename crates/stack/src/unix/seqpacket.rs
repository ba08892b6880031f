//! [`UnixSeqpacket`]: packets between two connected sockets, each whole and in order.
//!
//! Does not depend on how packets move (`send.rs`, `recv.rs`). Tests: `tests/unix/`.

use std::io::{self, IoSlice, IoSliceMut};

use super::addr::SocketAddr;
use super::ancillary::{MsgFlags, RecvAncillary, RecvMsg, SendAncillary};
use super::bytes::Scatter;
use super::common::{connect_methods, data_methods, socket_methods};
use super::pcb::Kind;
use super::sock::Sock;
use super::{listen, recv, send};
use crate::rt::fork::Held;

/// A sequenced-packet socket. `std` has none; the methods are those of its stream and datagram sockets.
///
/// A packet is sent whole or not at all, and received by one call; bytes that do not fit are cut off. A result of 0
/// bytes is an empty packet, or the end.
pub struct UnixSeqpacket {
    pub(crate) sock: Held<Sock>,
}

socket_methods!(UnixSeqpacket);
data_methods!(UnixSeqpacket, Kind::Seqpacket);
connect_methods!(UnixSeqpacket, Kind::Seqpacket);

impl UnixSeqpacket {
    /// Sends a packet. Blocks while there is no room.
    ///
    /// # Errors
    /// `BrokenPipe`, `WouldBlock`, `ConnectionReset`; EMSGSIZE (longer than SO_SNDBUF minus 32), ENOMEM (packet memory
    /// at its cap).
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        Ok(send::send_bytes(self.sock.open()?, buf)?)
    }

    /// [`send`](Self::send) of one packet from several buffers.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(send::send_packet(self.sock.open()?, bufs, None, MsgFlags::NONE)?)
    }

    /// Receives a packet; bytes that do not fit into `buf` are cut off. 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock`, `ConnectionReset`.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(recv::recv_bytes(self.sock.open()?, buf)?)
    }

    /// [`recv`](Self::recv) of one packet into several buffers.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(recv::recv_record(self.sock.open()?, Scatter::new(bufs), None, MsgFlags::NONE)?.bytes)
    }

    /// Copies the next packet without taking it.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let bufs = &mut [IoSliceMut::new(buf)];
        Ok(recv::recv_record(self.sock.open()?, Scatter::new(bufs), None, MsgFlags::PEEK)?.bytes)
    }

    /// sendmsg(2): a packet, with rights or credentials. `to` is ignored, as on Linux. `ancillary` is empty afterwards,
    /// and unchanged after an error, with one exception: a panic of the stack's own code (`EIO`) closes its rights.
    ///
    /// # Errors
    /// As for [`send`](Self::send); EINVAL (too many rights), ETOOMANYREFS, EPERM (others' credentials).
    pub fn send_msg(
        &self,
        bufs: &[IoSlice<'_>],
        to: Option<&SocketAddr>,
        ancillary: &mut SendAncillary,
        flags: MsgFlags,
    ) -> io::Result<usize> {
        let _not_looked_at = to;
        Ok(send::send_packet(self.sock.open()?, bufs, Some(ancillary), flags)?)
    }

    /// recvmsg(2): a packet, and its ancillary data.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_msg(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        ancillary: &mut RecvAncillary,
        flags: MsgFlags,
    ) -> io::Result<RecvMsg> {
        let received = recv::recv_record(self.sock.open()?, Scatter::new(bufs), Some(ancillary), flags)?;
        Ok(RecvMsg { bytes: received.bytes, flags: received.flags, addr: SocketAddr(received.sender) })
    }
}
