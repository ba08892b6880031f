//! Sockeye's UNIX-domain sockets.
//!
//! Purpose: Sockeye as a program would use it, a stack with the configuration that is measured, through the public
//! types. A provider for each kind, because each kind has a type of its own.
//!
//! Does not depend on the workloads. Tests: `experiment/unix.rs`.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;

use crate::provider::Counters;
use crate::providers::handoffs;
use crate::workloads::unix::provider::{FanIn, UnixEnd, UnixProvider};
use ::sockeye::unix::{
    MsgFlags, RecvAncillary, Right, SendAncillary, SocketAddr, UnixDatagram, UnixSeqpacket, UnixStream,
};
use ::sockeye::{Config, Stack};

/// Stream sockets of a stack.
pub struct Streams(Stack);
/// Sequenced-packet sockets of a stack.
pub struct Seqpackets(Stack);
/// Datagram sockets of a stack.
pub struct Datagrams(Stack);

macro_rules! provider {
    ($name:ident of $end:ident) => {
        impl $name {
            /// On a stack of its own with this configuration.
            pub fn over(config: Config) -> io::Result<Self> {
                Stack::new(config).map(Self)
            }
        }

        impl UnixProvider for $name {
            type End = $end;

            fn pair(&self) -> io::Result<($end, $end)> {
                $end::pair_on(&self.0)
            }

            fn counters(&self) -> Counters {
                let named = |(name, value): (&str, u64)| (name.to_owned(), value);
                self.0.counters().into_iter().chain(handoffs::so_far()).map(named).collect()
            }
        }
    };
}

provider!(Streams of UnixStream);
provider!(Seqpackets of UnixSeqpacket);
provider!(Datagrams of UnixDatagram);

impl FanIn for Datagrams {
    fn fan_in(&self, senders: usize) -> io::Result<(UnixDatagram, Vec<UnixDatagram>)> {
        // Unnamed: a name is chosen.
        let receiver = UnixDatagram::bind_addr_on(&self.0, &SocketAddr::from_pathname("")?)?;
        let name = receiver.local_addr()?;
        let connected = || {
            let sender = UnixDatagram::unbound_on(&self.0)?;
            sender.connect_addr(&name)?;
            Ok(sender)
        };
        let senders = (0..senders).map(|_| connected()).collect::<io::Result<_>>()?;
        Ok((receiver, senders))
    }
}

/// The common operations of all three types.
macro_rules! end {
    ($end:ident, $send:expr, $receive:expr) => {
        impl UnixEnd for $end {
            #[inline]
            fn send(&self, data: &[u8]) -> io::Result<usize> {
                $send(self, data)
            }

            #[inline]
            fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
                $receive(self, buf)
            }

            fn pass(&self, carried: &Self) -> io::Result<()> {
                let mut ancillary = SendAncillary::new();
                ancillary.add_right(carried.try_clone()?);
                self.send_msg(&[IoSlice::new(b"r")], None, &mut ancillary, MsgFlags::NONE).map(drop)
            }

            fn take(&self) -> io::Result<Self> {
                let mut ancillary = RecvAncillary::with_capacity(1);
                let mut byte = [0];
                self.recv_msg(&mut [IoSliceMut::new(&mut byte)], &mut ancillary, MsgFlags::NONE)?;
                match Self::out_of(ancillary.take_rights().pop()) {
                    Some(end) => Ok(end),
                    None => Err(io::Error::other("a byte came without the socket it carried")),
                }
            }

            fn set_buffers(&self, bytes: usize) -> io::Result<()> {
                self.set_send_buffer_size(bytes)?;
                self.set_recv_buffer_size(bytes)
            }

            fn shutdown(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Both)
            }
        }
    };
}

end!(
    UnixStream,
    |mut end: &UnixStream, data: &[u8]| Write::write(&mut end, data),
    |mut end: &UnixStream, buf: &mut [u8]| Read::read(&mut end, buf)
);
end!(UnixSeqpacket, UnixSeqpacket::send, UnixSeqpacket::recv);
end!(UnixDatagram, UnixDatagram::send, UnixDatagram::recv);

/// A socket from the rights of a message.
trait OutOf: Sized {
    fn out_of(right: Option<Right>) -> Option<Self>;
}

impl OutOf for UnixStream {
    fn out_of(right: Option<Right>) -> Option<Self> {
        if let Some(Right::Stream(end)) = right { Some(end) } else { None }
    }
}

impl OutOf for UnixSeqpacket {
    fn out_of(right: Option<Right>) -> Option<Self> {
        if let Some(Right::Seqpacket(end)) = right { Some(end) } else { None }
    }
}

impl OutOf for UnixDatagram {
    fn out_of(right: Option<Right>) -> Option<Self> {
        if let Some(Right::Datagram(end)) = right { Some(end) } else { None }
    }
}
