//! Interfaces: where frames come from and go to.
//!
//! [`Netif`] is what the stack asks of a driver: frames that carry one IP packet each, in and out, over
//! a number of queues. A driver knows nothing of IP or TCP; the stack knows nothing of devices.
//! [`wire()`] makes two of them that are connected inside this process:
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
//! # Who calls what
//! [`Netif::transmit`] is called by whichever thread runs a connection's protocol code, *inside* its
//! perimeter, so that frames of one flow leave in the order in which they were made. It never blocks and
//! wakes nobody: [`Netif::ring`] does that, after the perimeter is left, once for many frames. Each
//! receive queue has one thread of the stack, its *input thread*, which alone calls
//! [`Netif::receive`] and [`Netif::wait`] for it (`crate::input`); with `workers = 0` the caller of
//! `Stack::poll` takes its place and nobody waits.
//!
//! The loopback is no [`Netif`]: its segments never become frames (`loopback.rs`).
//!
//! Tests: at the ends of the files, `tests/wire.rs`, `tests/wire_faults.rs`.

use std::time::Duration;

use sockeye_mbuf::Chain;

pub(crate) mod loopback;
pub(crate) mod output;
mod prefix;
pub(crate) mod table;
mod wire;

pub use prefix::{NotAPrefix, Prefix};
pub use table::NetifId;
pub use wire::{WireConfig, WireEnd, wire};

/// Bytes of the longest headers that the stack writes: IPv6 and TCP with the options of a SYN.
pub const HEAD_MAX: usize =
    sockeye_proto::ip::V6_HEADER_LEN + sockeye_proto::tcp::wire::HEADER_LEN_EMITTED_MAX;

/// An interface, as the stack sees it. See the module's head for who calls what, and when.
pub trait Netif: Send + Sync + 'static {
    /// Bytes of the largest IP packet that a frame carries, 1,280 to 65,536. Constant.
    fn mtu(&self) -> u32;

    /// Receive queues, each served by one input thread, 1 to 64. Constant.
    fn queue_count(&self) -> usize;

    /// Whether frames may be given to [`transmit`](Self::transmit) without a TCP checksum. Constant.
    fn offloads_checksum(&self) -> bool;

    /// Takes all of `frames`, which belong to one flow and are in its order. `flow` is the flow's hash: frames
    /// of equal hash must arrive in one queue and in order. What there is no room for is dropped, and counted in
    /// the answer: TCP sends it again. Never blocks, wakes nobody.
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent;

    /// Tells the other side of the queue that [`Sent::queue`] named. Called after all locks; may make a
    /// system call.
    fn ring(&self, queue: usize);

    /// Shows up to `max` frames of a receive queue, oldest first, to `sink`, and forgets them. Returns how many
    /// there were. Never blocks.
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize;

    /// **Blocks** until the queue has frames or [`interrupt`](Self::interrupt) was called. May be busy for up to
    /// `spin` first, and may return early.
    fn wait(&self, queue: usize, spin: Duration);

    /// Ends the wait at this queue, and every later one at once: the stack is going away.
    fn interrupt(&self, queue: usize);
}

/// What became of frames given to [`Netif::transmit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The queue that they went to, for [`Netif::ring`].
    pub queue: usize,
    /// Frames for which the queue had no room.
    pub dropped_count: usize,
}

/// Who has filled in, or looked at, a frame's TCP checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// On the way out: it is complete. On the way in: it must be checked.
    Software,
    /// On the way out: the field holds the sum over the pseudo header, and the device does the rest. On the way
    /// in: the device has checked it.
    Device,
}

/// A frame on its way out: headers by value, payload by reference.
///
/// The references are to the sender's own mbufs, as a device with scatter-gather DMA would read them: whoever
/// receives copies.
#[derive(Debug)]
pub struct TxFrame {
    head: [u8; HEAD_MAX],
    head_len: u8,
    /// Who completes the TCP checksum.
    pub checksum: Checksum,
    /// What comes behind the headers.
    pub payload: Chain,
}

impl TxFrame {
    /// A frame that begins with `head`; `None` if that is longer than [`HEAD_MAX`].
    pub fn new(head: &[u8], payload: Chain, checksum: Checksum) -> Option<Self> {
        let mut bytes = [0; HEAD_MAX];
        bytes.get_mut(..head.len())?.copy_from_slice(head);
        Some(Self { head: bytes, head_len: u8::try_from(head.len()).ok()?, checksum, payload })
    }

    /// The headers, from the IP header on.
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len)]
    }

    /// The headers, to be changed.
    pub fn head_mut(&mut self) -> &mut [u8] {
        &mut self.head[..usize::from(self.head_len)]
    }

    /// Keeps the first `len` bytes of the headers, and no payload if that cuts anything.
    pub fn truncate_head(&mut self, len: usize) {
        if len < usize::from(self.head_len) {
            self.head_len = u8::try_from(len).unwrap_or(self.head_len);
            self.payload = Chain::new();
        }
    }

    /// Bytes of the packet.
    pub fn len(&self) -> usize {
        usize::from(self.head_len) + self.payload.len()
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same frame as its receiver sees it.
    pub fn received(&self) -> RxFrame<'_> {
        RxFrame { head: self.head(), rest: &self.payload, checksum: self.checksum }
    }
}

/// A frame that has arrived. The bytes may be anything.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// The packet from its first byte on. All headers must be in here for the packet to be understood; so much of
    /// the payload as the device likes may be.
    pub head: &'a [u8],
    /// The rest of the packet.
    pub rest: &'a Chain,
    /// Who has looked at the TCP checksum.
    pub checksum: Checksum,
}
