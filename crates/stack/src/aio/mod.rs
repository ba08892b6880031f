//! The same sockets in `tokio`'s shape (feature `tokio`).
//!
//! There is no reactor in between: the protocol code that delivers bytes takes the task's waker out of
//! the socket buffer and wakes it. The types work on any executor; `tokio` lends its I/O traits, and on its runtime they keep
//! to its cooperative budget ([`coop`]).
//!
//! Each direction of a stream keeps the waker of one task, the last that polled, as `AsyncRead` and
//! `AsyncWrite` ask for.

mod icmp;
mod listener;
mod split;
mod stream;
mod udp;
pub mod unix;

use crate::coop;

pub use icmp::IcmpSocket;
pub use listener::TcpListener;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub use stream::TcpStream;
pub use udp::UdpSocket;
