//! `sockeye gateway`: the network of rootless namespaces and containers.
//!
//! A command runs in its own user and network namespaces, and all packets of that network go into a TUN device. The gateway process outside receives the device's descriptor and
//! gives up its rights. Its Sockeye stack accepts packets to every host, and each connection and each UDP flow continues through an ordinary socket of the host.
//!
//! ```text
//! inside                        │ this process, outside                                  │ the host's kernel
//! command ─ kernel's TCP ─ TUN ─┼─ queue ─ stack ─ Syn ─ policy ─ upstream ──────────────┼─ connect
//!                               │                  └ accept ─ relay (both ways) ─────────┼─ the connection
//!                               │          └ flow of datagrams ─ policy ─────────────────┼─ a datagram socket
//!                               │          └ names ─ the host's resolvers ───────────────┼─ a datagram socket
//! ```
//!
//! # Which folder
//! | folder or file | holds |
//! |---|---|
//! | `args.rs`, `frames.rs`, `open.rs`, `gone.rs`, `run.rs`, `signals.rs`, `drain.rs` | the command line; opening devices; start and end |
//! | `lan/` | the gateway as the router of an Ethernet segment: DHCP, router advertisements |
//! | `sockets.rs`, `readiness.rs`, `resolvers.rs` | UNIX sockets in the file system; descriptors in the runtime; the host's resolv.conf |
//! | `plan.rs` | the addresses inside |
//! | `inside/` | the process in the namespace: it creates or enters the namespace, makes the device and `/etc/resolv.conf`, and runs the command |
//! | `engine/` | loops: a stack and the flows that it began, on one thread; the device's queues, which loops share |
//! | `policy/` | where a destination leads, and whether it is permitted |
//! | `upstream/`, `host.rs` | outbound connects: ordinary sockets, SOCKS5, HTTP CONNECT; the host's side of a connection |
//! | `flows.rs`, `rates.rs` | open flows, their limits, and their log |
//! | `control/` | requests to a running gateway |
//! | `compat/`, `behind.rs` | the command lines of slirp4netns, pasta and passt; running in the background |
//!
//! Invariant: no flow blocks a loop. A flow buffers at most `engine::CHUNK` bytes in each direction, besides its sockets.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod args;
mod behind;
mod compat;
mod control;
mod drain;
mod engine;
mod flows;
mod frames;
mod gone;
mod host;
mod inside;
mod lan;
mod open;
mod plan;
mod policy;
mod rates;
mod readiness;
mod resolvers;
mod run;
mod sandbox;
mod signals;
mod sockets;
mod upstream;

pub use args::{EXAMPLES, GatewayArgs};
pub use run::{main_of, run};
