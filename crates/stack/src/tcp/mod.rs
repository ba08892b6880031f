//! TCP in the stack: sockets, connections, handshakes, and the tables that find them.
//!
//! | module | has |
//! |---|---|
//! | [`socket`] | the public types: streams, listeners, options |
//! | [`conn`] | a connection: its state machine and buffers, and everything that runs them |
//! | [`handshake`] | from a SYN to an accepted connection |
//! | [`tables`] | connections by name, ports, listeners |
//! | [`route`] | a segment whose receiver is not known yet |
//! | [`prune`], [`recycle`] | memory: what is given up under pressure, and where used buffers go |
//!
//! The protocol itself is `sockeye_proto::tcp`.

pub(crate) mod conn;
pub(crate) mod handshake;
pub(crate) mod prune;
pub(crate) mod recycle;
pub(crate) mod route;
pub(crate) mod socket;
pub(crate) mod tables;
