//! The kernel's UNIX-domain sockets.
//!
//! Purpose: the kernel as a program would use it that wants to be fast: plain read(2) and write(2), which take a
//! shorter way through it than sendmsg(2), without the C library in between.
//!
//! Does not depend on the workloads. Tests: `workloads/unix`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::provider::Counters;
use crate::workloads::unix::provider::{FanIn, Kind, UnixEnd, UnixProvider};

/// The kernel's sockets of one kind.
pub struct UnixKernel {
    kind: SocketType,
}

impl UnixKernel {
    /// Of this kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind: match kind {
                Kind::Stream => SocketType::STREAM,
                Kind::Datagram => SocketType::DGRAM,
                Kind::Seqpacket => SocketType::SEQPACKET,
            },
        }
    }

    fn socket(&self) -> io::Result<OwnedFd> {
        Ok(rustix::net::socket_with(AddressFamily::UNIX, self.kind, SocketFlags::CLOEXEC, None)?)
    }
}

impl UnixProvider for UnixKernel {
    type End = OwnedFd;

    fn pair(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        Ok(rustix::net::socketpair(AddressFamily::UNIX, self.kind, SocketFlags::CLOEXEC, None)?)
    }

    fn counters(&self) -> Counters {
        Counters::new()
    }
}

impl FanIn for UnixKernel {
    fn fan_in(&self, senders: usize) -> io::Result<(OwnedFd, Vec<OwnedFd>)> {
        let receiver = self.socket()?;
        rustix::net::bind(&receiver, &SocketAddrUnix::new_unnamed())?;
        let name = SocketAddrUnix::try_from(rustix::net::getsockname(&receiver)?)?;
        let connected = || {
            let sender = self.socket()?;
            rustix::net::connect(&sender, &name)?;
            Ok(sender)
        };
        let senders = (0..senders).map(|_| connected()).collect::<io::Result<_>>()?;
        Ok((receiver, senders))
    }
}

impl UnixEnd for OwnedFd {
    fn send(&self, data: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self, data)?)
    }

    fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self, buf)?)
    }

    fn pass(&self, carried: &OwnedFd) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let carried = [carried.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&carried)) {
            return Err(io::Error::other("no room for one descriptor"));
        }
        rustix::net::sendmsg(self, &[IoSlice::new(b"r")], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn take(&self) -> io::Result<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(self, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
        let arrived = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        arrived.ok_or_else(|| io::Error::other("a byte came without the socket it carried"))
    }

    fn set_buffers(&self, bytes: usize) -> io::Result<()> {
        set_socket_send_buffer_size(self, bytes)?;
        Ok(set_socket_recv_buffer_size(self, bytes)?)
    }

    fn shutdown(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self, Shutdown::Both)?)
    }
}
