//! Shared by the examples: a sandbox, and the forwarding of its traffic through ordinary sockets.
//!
//! Tests: `tests/examples.rs`.
#![allow(dead_code, reason = "not every program uses all of it")]

pub mod sandbox;
pub mod tcp;
pub mod udp;

use std::net::SocketAddr;

/// The traffic to be forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// A connection.
    Tcp,
    /// The datagrams between two addresses.
    Udp,
}

/// Whether something may go where it wants to. Called for each connection and each flow of datagrams; must not block.
pub type Policy = dyn Fn(Protocol, SocketAddr) -> bool + Send + Sync;
