//! TCP in the stack: sockets, connections, handshakes, and the tables that find them.
//!
//! | module | has |
//! |---|---|
//! | [`socket`] | the public types: streams, listeners, options |
//! | [`conn`] | a connection: its state machine and buffers, and everything that runs them |
//! | [`handshake`] | from a SYN to an accepted connection |
//! | [`tables`] | connections by name, ports, listeners |
//! | [`input`] | segments that came in by interfaces, run by run |
//! | [`route`] | a segment whose receiver is not known yet |
//! | [`aside`] | segments that came in fragments, reports about those that were not delivered |
//! | [`handed`] | connections that are left to workers |
//! | [`prune`] | memory: out-of-order data is given up under pressure |
//! | [`discipline`] | the parts that settings measured against each other change here; the older ones are in `experiments/` |
//!
//! The protocol itself is `sockeye_proto::tcp`.

pub(crate) mod aside;
pub(crate) mod conn;
mod core;
pub(crate) mod discipline;
#[cfg(feature = "experiments")]
mod experiments;
pub(crate) mod handed;
pub(crate) mod handshake;
pub(crate) mod input;
pub(crate) mod prune;
pub(crate) mod route;
pub(crate) mod socket;
pub(crate) mod tables;

pub(crate) use self::core::Core;
