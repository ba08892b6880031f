//! A multi-core TCP stack in user space, in the shape of `std::net`.
//!
//! ```
//! use std::io::{Read, Write};
//! use sockeye::{TcpListener, TcpStream};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let mut client = TcpStream::connect(listener.local_addr()?)?;
//! client.write_all(b"hello")?;
//! let mut hello = [0; 5];
//! listener.accept()?.0.read_exact(&mut hello)?;
//! assert_eq!(&hello, b"hello");
//! # std::io::Result::Ok(())
//! ```
//!
//! No byte of this goes through the kernel: both ends are sockets of the process's default [`Stack`].
//! A program can make stacks of its own with a [`Config`]; sockets of different stacks do not meet.
//!
//! * [`TcpStream`], [`TcpListener`], [`TcpSocket`]: sockets in the shape of `std::net`.
//! * [`UdpSocket`], [`UdpBuilder`]: datagrams, with batches, segmentation offload and what comes along.
//! * [`IcmpSocket`]: echo requests, without privilege, with their answers and errors.
//! * [`unix`]: UNIX-domain sockets in the shape of `std::os::unix::net`.
//! * [`poll`]: readiness in the manner of `mio`, level- and edge-triggered.
//! * `tokio` (with the feature of that name): the same sockets as `AsyncRead` and `AsyncWrite`.
//! * [`netif`]: interfaces, and a wire between two stacks.
//! * [`Stack::poll`]: a stack without any thread, driven by its embedder.
//!
//! In a child of fork(2), calls on stacks that have threads, and on their sockets, fail with an error of the kind
//! `StaleNetworkFileHandle`, also where their own documentation says that they cannot fail; see [`fork`].
//!
//! `ARCHITECTURE.md` describes how it works inside. A good order to read the code in is that of the data:
//! `tcp/conn/user.rs` (send and receive), `tcp/conn/engine.rs` (the perimeter), `tcp/conn/outbox.rs`, `tcp/route.rs`.
#![forbid(unsafe_code)]
// A stack leads to its connections and they to their pollers and back: with the counted locks, whether that is Send takes the
// documentation's compiler more than its 128 steps.
#![recursion_limit = "256"]
#![warn(missing_docs)]

mod base;
mod config;
mod inet;
mod rt;
mod snapshot;
mod stack;
mod switches;
mod tcp;
#[cfg(feature = "tokio")]
pub mod tokio;
mod udp;
pub mod unix;

#[cfg(feature = "count")]
pub use sockeye_sync::count;

pub use inet::netif;
#[cfg(feature = "failpoints")]
pub use rt::failpoints;
pub use rt::{fork, poll};
pub use tcp::handshake::fastopen;

pub use config::{Config, Grain, SetError, SynCookies};
pub use inet::icmp::{EchoError, EchoReply, IcmpSocket};
pub use inet::ip::output::MtuDiscover;
pub use rt::panics::{PanicReport, PanicSource};
pub use snapshot::{SocketInfo, SocketKind};
pub use sockeye_proto::tcp::cc::Algorithm as CongestionControl;
pub use sockeye_proto::tcp::ecn::EcnMode;
pub use sockeye_proto::tcp::info::{CaState, Carried, Info};
pub use sockeye_proto::tcp::meter::Limit;
pub use sockeye_proto::tcp::settings::MtuProbing;
pub use sockeye_proto::tcp::settings::PacingMode;
pub use stack::Stack;
pub use switches::{Entry, Input, Rcvd, RxFree, UnixLocking, UnknownSetting, Wake};
pub use tcp::handshake::admission::Syn;
pub use tcp::socket::{
    Incoming, Limiting, MbufChain, TcpInfo, TcpKeepalive, TcpListener, TcpSocket, TcpStream,
};
pub use udp::{Outgoing, RecvError, RecvMeta, SendMeta, UdpBuilder, UdpSocket, Unsent};
