//! `sockeye gateway`: the network of rootless namespaces and containers.
//!
//! A command runs in user and network namespaces of its own, whose packets all go into a TUN device. The device's descriptor is handed to this
//! process, which stays outside and has no rights: a Sockeye stack takes in packets to every host, and each connection and each flow of
//! datagrams goes onward through an ordinary socket.
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
//! | `args.rs`, `frames.rs`, `open.rs`, `run.rs` | the command line, and what it opens, starts and ends |
//! | `lan/` | the gateway as the router of an Ethernet segment: DHCP, router advertisements |
//! | `sockets.rs`, `readiness.rs` | UNIX sockets by a path; descriptors that a loop waits at |
//! | `plan.rs` | the addresses inside |
//! | `inside/` | what happens in the namespace: it is entered or made, the device, `/etc/resolv.conf`, the command |
//! | `engine/` | loops: a stack, a queue of the device and all flows of that queue on one thread |
//! | `policy/` | where a destination leads, and whether it may be |
//! | `upstream/`, `host.rs` | connecting onward: ordinary sockets, SOCKS5, HTTP CONNECT; the host's side of a connection |
//! | `flows.rs`, `rates.rs` | what flows there are, their bounds, and their log |
//! | `control/` | changes and questions while it runs |
//! | `compat/`, `behind.rs` | the command lines of slirp4netns, pasta and passt; going on behind the caller |
//!
//! Invariant: no flow blocks a loop; each has at most `engine::CHUNK` bytes outside of sockets in each direction.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod args;
mod behind;
mod compat;
mod control;
mod engine;
mod flows;
mod frames;
mod host;
mod inside;
mod lan;
mod open;
mod plan;
mod policy;
mod rates;
mod readiness;
mod run;
mod sandbox;
mod sockets;
mod upstream;

pub use args::{EXAMPLES, GatewayArgs};
pub use run::{main_of, run};
