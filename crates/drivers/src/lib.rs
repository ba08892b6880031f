//! Drivers: devices that carry a stack's frames.
//!
//! * [`Tun`]: a TUN or TAP device of the kernel, with several queues and with checksums and segmentation left to the
//!   kernel in both directions.
//! * [`FrameStream`]: Ethernet frames over a stream socket, as QEMU sends them.
//! * `VhostUser`, with the feature `vhost-user`: a virtual machine's network card, whose frames go through the guest's memory.
//! * [`link`](mod@link): the kernel's side of such a device: up or down, MTU, addresses, routes.
//! * [`Namespace`]: a network namespace, in which such a device may be made; [`unshare_user`]: one of a user's own, without rights.
//! * [`sockatmark`]: where a kernel's socket has urgent data, for programs that pass it on; [`network_of`]: the namespace of one.
//! * [`recv_at`], [`send_from`]: datagrams of a kernel's socket with the host's own address.
//! * [`testing`]: further devices for tests and measurements.
//!
//! A driver moves frames and does not depend on their content, but for the few bytes that a device wants to be told
//! (where a checksum is, how long a header). `unsafe` stands here where the system is called with addresses of memory:
//! in `sys.rs`, `pktinfo.rs`, `tun/mod.rs`, `tun/read.rs`, `namespace.rs` and `testing`.
//!
//! Tests: beside the code where they need no device; `tests/` with devices, where the test may make them, and
//! else not at all, which they say.
#![warn(missing_docs)]
#![deny(clippy::multiple_unsafe_ops_per_block)]

pub mod link;
mod namespace;
mod netlink;
mod pktinfo;
mod stream;
mod sys;
pub mod testing;

mod tun;
#[cfg(feature = "vhost-user")]
mod virtio;

/// The page for embedders, whose code is tested here, where stack and devices are both to be had.
#[cfg(doctest)]
#[doc = include_str!("../docs/embedding.md")]
mod embedding {}

/// The registry's page of this crate, whose program is tested here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use namespace::{Namespace, unshare_mounts, unshare_user};
pub use pktinfo::{recv_at, send_from, set_recv_pktinfo};
pub use stream::{FrameStream, StreamCounts};
pub use sys::{SIOCATMARK, network_of, sockatmark};
pub use tun::{Adopted, Layer, QueueCounts, Tun, TunConfig};
#[cfg(feature = "vhost-user")]
pub use virtio::{VhostCounts, VhostUser};
