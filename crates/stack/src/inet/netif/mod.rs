//! Interfaces: where frames come from and go to.
//!
//! [`Netif`] is the interface between the stack and a driver: frames that carry one IP packet each, in and out, over a
//! number of queues. A driver knows nothing of IP or TCP; the stack knows nothing of devices. The [`Medium`] says
//! whether a frame has a link-layer header; one that carries several packets' worth, to be cut by the device, says so
//! by its `gso_size`. [`channel()`] makes one whose other side is the program itself. [`wire()`] makes two that are
//! connected inside this process:
//!
//! ```
//! use std::io::{Read, Write};
//! use sockeye::netif::{WireConfig, wire};
//! use sockeye::{Config, Stack, TcpListener, TcpStream};
//!
//! let (here, there) = wire(&WireConfig { mtu: 1500, queues: 2, ..WireConfig::default() })?;
//! let (left, right) = (Stack::new(Config::default())?, Stack::new(Config::default())?);
//! left.attach(here, &["10.0.0.1/24".parse()?, "fd00::1/64".parse()?])?;
//! right.attach(there, &["10.0.0.2/24".parse()?, "fd00::2/64".parse()?])?;
//!
//! let listener = TcpListener::bind_on(&right, "10.0.0.2:80")?;
//! let mut client = TcpStream::connect_on(&left, "10.0.0.2:80")?;
//! client.write_all(b"hello")?;
//! let mut hello = [0; 5];
//! listener.accept()?.0.read_exact(&mut hello)?;
//! assert_eq!(&hello, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//!
//! The trait and the interfaces that need no device are the crate `sockeye-netif`; here is a stack's use of them: addresses, routes, admission
//! of packets (`admit.rs`), frames out (`output.rs`, `departures.rs`).
//!
//! The loopback is no [`Netif`]: its segments never become frames (`loopback.rs`).
//!
//! Tests: `tests/wire/transfers.rs`, `tests/wire/faults.rs`, `tests/ip`.

pub(crate) mod admit;
mod configure;
pub(crate) mod departures;
mod detached;
pub(crate) mod device;
pub(crate) mod down;
pub(crate) mod loopback;
pub(crate) mod output;
mod route;
pub(crate) mod scope;
pub(crate) mod table;
pub(crate) mod tables;

pub use crate::inet::link::{Addressing, LinkOptions, Neighbor, NeighborState};
pub use admit::RpFilter;
pub use route::{Address, AddressState, Route, RouteKind};
pub use sockeye_mbuf::{Chain, Mbuf, Pool};
pub use sockeye_netif::{
    CaptureConfig, CaptureCounts, CaptureHandle, Captured, Channel, ChannelConfig, ChannelPort, Checksum,
    FrameBytes, HEAD_MAX, LINK_HEADER_LEN, MacAddr, Medium, Netif, NotAPrefix, Prefix, RxFrame, SendError,
    Sent, TxFrame, Waited, Waking, WireConfig, WireEnd, capture, capture_into, channel, pcapng, wire,
};
pub use table::NetifId;
