//! Two stacks and a wire between them.
//!
//! Purpose: for work that only happens on the way in from an interface: frames, input threads, buffers that the input
//! side allocates. Connections are made from one stack to the other; [`Provider::counters`] are the receiving one's,
//! which is the one under test.
//!
//! Does not depend on the workloads.
//!
//! Invariants: both stacks have the same settings. The wire trusts checksums, as with devices that compute them, and
//! loses only frames that a full queue drops, which are counted.
//!
//! Tests: below.

use std::io;
use std::net::SocketAddr;

use super::stack::{Readiness, readiness};
use crate::provider::{BACKLOG_MAX, Counters, Provider};
use crate::providers::handoffs;
use crate::record;
use ::sockeye::netif::{CaptureConfig, Prefix, WireConfig, capture, wire};
use ::sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream};

/// A sender's and a receiver's stack.
pub struct Wire {
    listener: TcpListener,
    sender: Stack,
    receiver: Stack,
}

impl Wire {
    /// With this configuration at both ends, packets of at most `mtu` bytes, and so many input threads at each end.
    pub fn over(config: &Config, mtu: u32, queues: usize) -> io::Result<Self> {
        let (here, there) = wire(&WireConfig { mtu, queues, offload: true, ..WireConfig::default() })?;
        let (sender, receiver) = (Stack::new(config.clone())?, Stack::new(config.clone())?);
        sender.attach(here, &[prefix("10.0.0.1/24")?])?;
        let addr = [prefix("10.0.0.2/24")?];
        match record::next() {
            Some((path, snaplen, file_max)) => {
                let config = CaptureConfig { snaplen, file_max, ..CaptureConfig::to(path) };
                receiver.attach(capture(there, &config)?.0, &addr)?
            }
            None => receiver.attach(there, &addr)?,
        };
        Ok(Self { listener: listen_on(&receiver)?, sender, receiver })
    }
}

fn prefix(text: &str) -> io::Result<Prefix> {
    text.parse().map_err(|_| io::Error::other("an address of the wire is none"))
}

fn listen_on(stack: &Stack) -> io::Result<TcpListener> {
    let mut socket = TcpSocket::new_v4(stack);
    socket.bind(SocketAddr::from(([10, 0, 0, 2], 0)))?;
    socket.listen(BACKLOG_MAX as usize)
}

impl Provider for Wire {
    type Listener = TcpListener;
    type Stream = TcpStream;
    type Poller = Readiness;

    fn listen(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    fn listen_anew(&self) -> io::Result<TcpListener> {
        listen_on(&self.receiver)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_on(&self.sender, to)
    }

    fn poller(&self) -> io::Result<Readiness> {
        Ok(readiness(&self.receiver))
    }

    fn counters(&self) -> Counters {
        let named = |(name, value): (&str, u64)| (name.to_owned(), value);
        self.receiver.counters().into_iter().chain(handoffs::so_far()).map(named).collect()
    }

    fn pairs_max(&self) -> usize {
        self.receiver.config().connections_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::checks;

    #[test]
    fn bytes_arrive_over_the_wire_and_frames_are_counted() {
        let wire = Wire::over(&Config::default(), 1500, 2).unwrap();
        checks::readiness_is_level_triggered(&wire);
        checks::a_closed_peer_ends_the_stream(&wire);
        assert!(wire.counters()["frames_in"] > 0);
    }
}
