//! Sockets in tokio's shape: methods, readiness, options, the cooperative budget, names and signals. Streams of UDP and UNIX-domain sockets are
//! tested in `tests/udp/tokio.rs` and `tests/unix/tokio.rs`.

#[path = "../common/mod.rs"]
mod common;

mod coop;
mod names;
mod options;
mod ready;
mod shape;
#[cfg(unix)]
mod signals;
