//! TCP sockets in the shape of `std::net`.
//!
//! [`TcpStream`] and [`TcpListener`] are what most programs need; [`TcpSocket`] sets options that must
//! be set before binding.

mod fastopen;
mod info;
pub(crate) mod keepalive;
mod listener;
pub(crate) mod marks;
mod mbufs;
mod notsent;
mod socket;
pub(crate) mod stream;
mod urgent;

pub use info::{Limiting, TcpInfo};
pub use keepalive::TcpKeepalive;
pub use listener::{Incoming, TcpListener};
pub use mbufs::MbufChain;
pub(crate) use socket::SocketSettings;
pub use socket::TcpSocket;
pub use stream::TcpStream;
