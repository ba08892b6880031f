//! TCP sockets in the shape of `std::net`.
//!
//! Most programs need only [`TcpStream`] and [`TcpListener`]; [`TcpSocket`] sets options that must be set
//! before binding.

mod builder;
mod fastopen;
mod getters;
mod info;
pub(crate) mod keepalive;
mod listener;
mod mbufs;
mod notsent;
pub(crate) mod stream;
pub(crate) mod tos_ttl;
mod urgent;

pub(crate) use builder::SocketSettings;
pub use builder::TcpSocket;
pub use info::{Limiting, TcpInfo};
pub use keepalive::TcpKeepalive;
pub use listener::{Incoming, TcpListener};
pub use mbufs::MbufChain;
pub use stream::TcpStream;
