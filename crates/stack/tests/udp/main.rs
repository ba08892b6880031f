//! UDP compared with the kernel's: the same cases run on Linux's sockets and on Sockeye's, and must make the same
//! observations, down to addresses, errnos, truncation and readiness.
//!
//! A case is a function over [`provider::Net`] that records its observations in a [`story::Story`]; Linux's is the
//! expectation. [`story::DIFFERENCES`] lists the intended differences with their reasons. Features that have no safe call
//! on the kernel's side (UDP_SEGMENT, the error queue) are in `alone.rs`.
//!
//! `any`, `flows`, `joined`, `stress`, `tokio` and `wire` test Sockeye's sockets alone: all ports of a network, listeners of flows, joined
//! datagrams, many threads, tasks, and interfaces.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/lab.rs"]
mod lab;

mod alone;
mod any;
mod bind;
mod cases;
mod flows;
mod joined;
mod multicast;
mod provider;
mod stamps;
mod story;
mod stress;
mod tokio;
mod wire;
