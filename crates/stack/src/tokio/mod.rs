//! The same sockets in `tokio`'s shape (feature `tokio`): a program that says `sockeye::tokio` in place of `tokio::net` has the same types at
//! the same paths, with the same methods. `docs/reference/differences.md` lists the differences.
//!
//! There is no reactor in between: the protocol code that delivers bytes takes the task's waker out of
//! the socket buffer and wakes it. The types work on any executor; `tokio` lends its I/O traits, and on its runtime they keep
//! to its cooperative budget (`sockeye_sync::coop`).
//!
//! Any number of tasks may wait for one socket in futures, such as `readable`, `accept` or `recv`: all of them are woken, and one that is dropped
//! takes nothing from the others. Poll functions, as of `AsyncRead` and `AsyncWrite`, share one place for each direction of their handle: of the tasks
//! that call them on one handle, the last is woken. Handles that `try_clone` of the types inside has made wait each for itself.
//!
//! Wakers are called, cloned and dropped with no lock held, so they may use any socket. A panic in one is caught and counted
//! (`panics_foreign`), and all others are woken; where a waker panics while it is cloned, the call fails with `Other`.

mod addr;
#[cfg(unix)]
mod driver;
mod glue;
mod halves;
mod icmp;
mod listener;
mod methods;
mod ready;
pub mod signal;
mod socket;
mod split;
mod stream;
mod tcp_options;
mod udp;
mod udp_flow;
mod udp_options;
#[cfg(unix)]
pub mod unix;
mod wait;

/// TCP's halves, where `tokio::net::tcp` has them.
pub mod tcp {
    pub use super::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
}

#[cfg(feature = "axum")]
pub use glue::axum;
#[cfg(feature = "hickory")]
pub use glue::hickory;
#[cfg(feature = "hyper-util")]
pub use glue::hyper_util;
#[cfg(feature = "tonic")]
pub use glue::tonic;

pub use addr::{ToSocketAddrs, lookup_host, lookup_host_on};
#[cfg(unix)]
pub use driver::Driver;
pub use icmp::IcmpSocket;
pub use listener::TcpListener;
pub use socket::TcpSocket;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::TcpStream;
pub use udp::UdpSocket;
pub use udp_flow::{UdpFlow, UdpFlowListener};
#[cfg(unix)]
#[doc(inline)]
pub use unix::{UnixDatagram, UnixListener, UnixSocket, UnixStream};
