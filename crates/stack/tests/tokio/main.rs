//! Sockets in tokio's shape: methods, readiness, options, the cooperative budget, names, signals, and the driver of a stack without threads. Streams of UDP and UNIX-domain sockets are
//! tested in `tests/udp/tokio.rs` and `tests/unix/tokio.rs`.

#[path = "../common/mod.rs"]
mod common;

mod coop;
#[cfg(unix)]
mod driver;
mod names;
mod options;
mod ready;
mod shape;
#[cfg(unix)]
mod signals;
