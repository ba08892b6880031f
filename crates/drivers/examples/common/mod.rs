//! What the examples have in common: a sandbox, and what leads its traffic onward through ordinary sockets.
//!
//! Tests: `tests/examples.rs`.
#![allow(dead_code, reason = "not every program uses all of it")]

pub mod sandbox;
pub mod tcp;
pub mod udp;

use std::net::SocketAddr;

/// What is to be carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// A connection.
    Tcp,
    /// A datagram.
    Udp,
}

/// Whether something may go where it wants to. Called for each connection and each datagram; must not block.
pub type Policy = dyn Fn(Protocol, SocketAddr) -> bool + Send + Sync;

/// An address that may be IPv4 in IPv6's clothes, as what it is.
pub fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
