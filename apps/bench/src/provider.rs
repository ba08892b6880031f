//! The sockets a workload runs over, as traits.
//!
//! Purpose: every workload is written once, generic over [`Provider`], and compiled twice: over
//! Sockeye and over the kernel. Both sides make literally the same calls; no call is dispatched
//! through a table at run time, so neither side pays for the abstraction.
//!
//! Does not depend on which workloads there are, or on how a provider is configured.
//!
//! Invariants: a provider stays on loopback. Dropping a stream closes it, with a FIN unless
//! [`Stream::discard_on_close`] was called.
//!
//! Tests: the providers', and each workload's own.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

/// Counters by name: of a stack, or a difference of two readings.
pub type Counters = BTreeMap<String, u64>;

/// The counts between two readings. A gauge that fell counts as nothing.
pub fn difference(before: &Counters, after: &Counters) -> Counters {
    let grown = |(name, value): (&String, &u64)| {
        let earlier = before.get(name).copied().unwrap_or(0);
        (name.clone(), value.saturating_sub(earlier))
    };
    after.iter().map(grown).collect()
}

/// One of the two things that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Sockeye, in this process.
    Sockeye,
    /// The kernel's TCP over its loopback interface.
    Kernel,
}

impl Side {
    /// The name used in output and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Side::Sockeye => "sockeye",
            Side::Kernel => "kernel",
        }
    }
}

/// A source of listeners and connections.
pub trait Provider: Sync {
    /// A passive socket.
    type Listener: Listener<Stream = Self::Stream>;
    /// A connection's end.
    type Stream: Stream;
    /// Readiness of many streams.
    type Poller: Poller<Stream = Self::Stream>;

    /// The provider's listener, on a loopback address; every call returns a handle to the same one.
    /// Does not block.
    fn listen(&self) -> io::Result<Self::Listener>;

    /// A listener on a port of its own, for more connections than one port can have from one address.
    fn listen_anew(&self) -> io::Result<Self::Listener>;

    /// Opens a connection; blocks until it is established.
    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream>;

    /// A new, empty poller.
    fn poller(&self) -> io::Result<Self::Poller>;

    /// The provider's counts since it was created; empty if it counts nothing.
    fn counters(&self) -> Counters;

    /// How many connections may have both their ends in this process.
    fn pairs_max(&self) -> usize;
}

/// A passive socket; see `std::net::TcpListener`.
pub trait Listener: Send + Sync + Sized {
    /// The type of accepted streams.
    type Stream: Stream;

    /// Blocks until there is a connection.
    fn accept(&self) -> io::Result<Self::Stream>;

    /// The address to connect to.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Another handle to the same accept queue.
    fn try_clone(&self) -> io::Result<Self>;
}

/// A connection's end; see `std::net::TcpStream`.
pub trait Stream: Send + Sync + Sized {
    /// Reads the available bytes, at most `buf.len()`; 0 is the peer's FIN.
    fn read(&self, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes some of `buf`.
    fn write(&self, buf: &[u8]) -> io::Result<usize>;

    /// Writes all of `buf`; for blocking streams.
    fn write_all(&self, buf: &[u8]) -> io::Result<()>;

    /// Sends the FIN; reading continues.
    fn shutdown_write(&self) -> io::Result<()>;

    /// TCP_NODELAY.
    fn set_nodelay(&self, on: bool) -> io::Result<()>;

    /// Whether calls return `WouldBlock` instead of blocking.
    fn set_nonblocking(&self, on: bool) -> io::Result<()>;

    /// Makes closing reset the connection, so that no TIME-WAIT is left of it (SO_LINGER 0). For
    /// tearing thousands of connections down between samples.
    fn discard_on_close(&self) -> io::Result<()>;

    /// This end's address.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The other end's address.
    fn peer_addr(&self) -> io::Result<SocketAddr>;

    /// Fills `buf`; an end of the stream before that is `UnexpectedEof`. For blocking streams.
    fn read_exact(&self, buf: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.read(&mut buf[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Level-triggered readiness of many streams.
pub trait Poller: Send + Sized {
    /// The streams that it watches.
    type Stream;

    /// Watches `stream` for something to read, until the stream is dropped.
    fn register(&mut self, stream: &Self::Stream, token: usize) -> io::Result<()>;

    /// Blocks until something is readable or `timeout` is over, then gives every ready token, at
    /// most [`EVENTS_MAX`] of them, to `ready`. The first error of `ready` ends the round.
    fn wait(&mut self, timeout: Duration, ready: impl FnMut(usize) -> io::Result<()>) -> io::Result<()>;
}

/// How many events one [`Poller::wait`] may return, for both sides.
pub const EVENTS_MAX: usize = 1024;

/// How long an accept queue may grow, in connections, for both sides (the kernel's own limit,
/// `net.core.somaxconn`, is 4096 by default).
pub const BACKLOG_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_takes_new_names_and_is_never_negative() {
        let before = Counters::from([("a".to_owned(), 5), ("b".to_owned(), 9)]);
        let after = Counters::from([("a".to_owned(), 8), ("b".to_owned(), 1), ("c".to_owned(), 2)]);
        let want = Counters::from([("a".to_owned(), 3), ("b".to_owned(), 0), ("c".to_owned(), 2)]);
        assert_eq!(difference(&before, &after), want);
    }
}
