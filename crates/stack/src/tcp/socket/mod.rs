//! TCP sockets in the shape of `std::net`.
//!
//! Most programs need only [`TcpStream`] and [`TcpListener`]; [`TcpSocket`] sets options that must be set
//! before binding.

// The documentation shows methods in the order of modules: connecting, binding and accepting come first.
mod listener;
pub(crate) mod stream;

mod builder;
mod fastopen;
mod getters;
mod handshake;
pub(crate) mod info;
pub(crate) mod keepalive;
mod mbufs;
mod notsent;
mod receiving;
mod reports;
mod send;
pub(crate) mod tos_ttl;
mod urgent;

pub(crate) use builder::SocketSettings;
pub use builder::TcpSocket;
pub use info::Bottleneck;
pub use keepalive::TcpKeepalive;
pub use listener::{Incoming, TcpListener};
pub use mbufs::MbufChain;
pub use send::SendFlags;
pub use stream::TcpStream;
