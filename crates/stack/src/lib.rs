//! A multi-core socket stack in user space, with the interfaces of `std::net` and `tokio::net`.
//!
// Without the feature, links to its additions lead to the table of features.
#![cfg_attr(
    not(feature = "tokio"),
    doc = "[`tokio::TcpStream`]: #features
[`tokio::TcpListener`]: #features
[`tokio::UdpSocket`]: #features
[`tokio::IcmpSocket`]: #features
[`tokio::unix`]: #features
[`tokio::Driver`]: #features"
)]
//!
#![doc = include_str!("lib.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// A stack leads to its connections and they to their pollers and back: with the counted locks, whether that is Send takes the
// documentation's compiler more than its 128 steps.
#![recursion_limit = "256"]
#![warn(missing_docs)]
// Without UNIX-domain sockets some of what the families share has no user.
#![cfg_attr(not(unix), allow(dead_code))]

// A good order to read the code in is that of the data: `tcp/conn/user.rs` (send and receive), `tcp/conn/engine.rs`,
// `tcp/conn/outbox.rs`, `tcp/route.rs`.
mod base;
mod config;
#[cfg(feature = "experiments")]
pub mod experiments;
mod icmp;
mod inet;
mod rt;
mod stack;
mod tcp;
#[cfg(feature = "tokio")]
pub mod tokio;
mod udp;
#[cfg(unix)]
pub mod unix;

/// The registry's page of this crate, whose program is tested here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(feature = "count")]
pub use sockeye_sync::count;

pub use inet::netif;
#[cfg(feature = "failpoints")]
pub use rt::failpoints;
pub use rt::{fork, poll};
pub use tcp::handshake::fastopen;

pub use base::report::{Report, Timestamping};
pub use config::{Config, SetError, SynCookies, TcpConfig};
pub use icmp::{EchoError, EchoReply, IcmpSocket};
pub use inet::ip::hook::{IpHook, IpPacket, IpSend};
pub use inet::ip::output::MtuDiscover;
pub use rt::handle::Stack;
pub use rt::panics::{PanicReport, PanicSource};
pub use rt::resolve::{Resolve, Resolving, ToSocketAddrs};
#[cfg(all(feature = "tokio", unix))]
pub use rt::signals::{SignalStream, Signals};
pub use sockeye_proto::tcp::accecn::{
    AccEcnInfo, EcnBytes, Fail as AccEcnFail, OptionSeen as AccEcnOptionSeen,
};
pub use sockeye_proto::tcp::cc::Algorithm as CongestionControl;
pub use sockeye_proto::tcp::ecn::EcnMode;
pub use sockeye_proto::tcp::fast_open::FastOpenFail;
pub use sockeye_proto::tcp::info::{CaState, Carried, RunningTimer, TcpInfo, TimerKind};
pub use sockeye_proto::tcp::meter::Limit;
pub use sockeye_proto::tcp::settings::MtuProbing;
pub use sockeye_proto::tcp::settings::PacingMode;
pub use stack::snapshot::{SocketInfo, SocketKind};
pub use tcp::handshake::admission::{Syn, SynHook};
pub use tcp::socket::{
    Bottleneck, Incoming, MbufChain, SendFlags, TcpKeepalive, TcpListener, TcpSocket, TcpStream,
};
pub use udp::{Outgoing, RecvError, RecvMeta, SendMeta, UdpBuilder, UdpSocket, Unsent};
pub use udp::{UdpFlow, UdpFlowConfig, UdpFlowListener};
