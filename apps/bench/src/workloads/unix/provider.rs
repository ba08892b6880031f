//! UNIX-domain sockets as a workload uses them, as traits.
//!
//! Purpose: every workload is written once and compiled for each kind of socket on either side; no call goes
//! through a table at run time, so neither side pays for the abstraction.
//!
//! Does not depend on which workloads there are, or on how a provider is configured.
//!
//! Invariants: a provider makes sockets of one kind. Dropping an end closes it.
//!
//! Tests: the providers', and each workload's own.

use std::io;

use crate::provider::Counters;

/// SOCK_STREAM, SOCK_DGRAM or SOCK_SEQPACKET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes without boundaries.
    Stream,
    /// Datagrams without a connection.
    Datagram,
    /// Records over a connection.
    Seqpacket,
}

impl Kind {
    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Stream => "stream",
            Kind::Datagram => "datagram",
            Kind::Seqpacket => "seqpacket",
        }
    }
}

/// A source of connected ends.
pub trait UnixProvider: Send + Sync + 'static {
    /// The sockets that it makes.
    type End: UnixEnd;

    /// Two ends that are connected to each other (socketpair).
    fn pair(&self) -> io::Result<(Self::End, Self::End)>;

    /// The provider's counts since it was made; empty if it counts nothing.
    fn counters(&self) -> Counters;
}

/// A provider of datagram sockets, which many senders can connect to one of.
pub trait FanIn: UnixProvider {
    /// A receiver, and `senders` sockets that are connected to it.
    fn fan_in(&self, senders: usize) -> io::Result<(Self::End, Vec<Self::End>)>;
}

/// A connected, blocking socket.
pub trait UnixEnd: Send + Sync + Sized {
    /// Sends some of `data`, or all of it as one record.
    fn send(&self, data: &[u8]) -> io::Result<usize>;

    /// Receives the bytes that are there, or one record; 0 is the end.
    fn receive(&self, buf: &mut [u8]) -> io::Result<usize>;

    /// Sends one byte that carries another handle of `carried` (SCM_RIGHTS).
    fn pass(&self, carried: &Self) -> io::Result<()>;

    /// Receives one byte and its rights.
    fn take(&self) -> io::Result<Self>;

    /// SO_SNDBUF and SO_RCVBUF.
    fn set_buffers(&self, bytes: usize) -> io::Result<()>;

    /// Ends both directions, which wakes the threads that wait at the other end.
    fn shutdown(&self) -> io::Result<()>;

    /// Sends all of `data`.
    fn send_all(&self, data: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < data.len() {
            match self.send(&data[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
