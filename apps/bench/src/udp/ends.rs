//! Both kinds of UDP sockets, as the shapes use them, blocking and connected.
//!
//! Does not depend on the shapes. Invariant: a receive gives up after [`PATIENCE`], so that a thread learns that its
//! sample is over although datagrams may be lost. Tests: `shapes.rs`.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use sockeye::{Config, SendMeta, Stack};

use crate::provider::Counters;

/// Where sockets come from.
pub trait Source: Sync {
    type End: End;
    /// A socket on a loopback address.
    fn bind(&self) -> io::Result<Self::End>;
    fn counters(&self) -> Counters;
}

/// A socket.
pub trait End: Send + Sync {
    fn addr(&self) -> io::Result<SocketAddr>;
    fn connect(&self, to: SocketAddr) -> io::Result<()>;
    fn send(&self, bytes: &[u8]) -> io::Result<()>;
    /// Sends `bytes` as datagrams of `size`.
    fn send_cut(&self, bytes: &[u8], size: u16) -> io::Result<()>;
    /// Bytes of the next datagram, or of several that have come as one buffer; `None` if none has come for a while.
    fn recv(&self, buf: &mut [u8]) -> io::Result<Option<usize>>;
    /// Takes datagrams as one buffer that came so.
    fn take_joined(&self) -> io::Result<()>;
}

/// See the module's head.
const PATIENCE: Duration = Duration::from_millis(20);

fn unless_late(received: io::Result<usize>) -> io::Result<Option<usize>> {
    match received {
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// The kernel's, over its loopback interface.
pub struct Kernel;

impl Source for Kernel {
    type End = UdpSocket;

    fn bind(&self) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    }

    fn counters(&self) -> Counters {
        Counters::new()
    }
}

impl End for UdpSocket {
    fn addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        UdpSocket::connect(self, to)
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        UdpSocket::send(self, bytes).map(drop)
    }

    fn send_cut(&self, bytes: &[u8], size: u16) -> io::Result<()> {
        // UDP_SEGMENT has no safe call: one send for each datagram.
        bytes.chunks(usize::from(size)).try_for_each(|datagram| End::send(self, datagram))
    }

    #[inline]
    fn recv(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        unless_late(UdpSocket::recv(self, buf))
    }

    fn take_joined(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Sockeye's, on a stack of its own with the default configuration.
pub struct Ours(Stack);

impl Ours {
    pub fn new() -> io::Result<Self> {
        Stack::new(Config::default()).map(Self)
    }
}

impl Source for Ours {
    type End = sockeye::UdpSocket;

    fn bind(&self) -> io::Result<sockeye::UdpSocket> {
        let socket = sockeye::UdpSocket::bind_on(&self.0, (Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    }

    fn counters(&self) -> Counters {
        self.0.counters().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl End for sockeye::UdpSocket {
    fn addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        sockeye::UdpSocket::connect(self, to)
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        sockeye::UdpSocket::send(self, bytes).map(drop)
    }

    fn send_cut(&self, bytes: &[u8], size: u16) -> io::Result<()> {
        let meta = SendMeta { segment_size: Some(size), ..SendMeta::default() };
        self.send_msg(&[IoSlice::new(bytes)], &meta).map(drop)
    }

    #[inline]
    fn recv(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        unless_late(sockeye::UdpSocket::recv(self, buf))
    }

    fn take_joined(&self) -> io::Result<()> {
        self.set_gro(true)
    }
}
