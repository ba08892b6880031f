//! Interfaces of a stack, and those that need no device.
//!
//! [`Netif`] is the interface between a stack and a driver: frames that carry one IP packet each, in and out, over a number of
//! queues. A driver knows nothing of IP or TCP; the stack knows nothing of devices. The [`Medium`] says whether a frame has a
//! link-layer header; one that carries several packets' worth, to be cut by the device, says so by its `gso_size`. [`channel()`]
//! makes an interface whose other side is the program itself, [`wire()`] two that are connected inside this process,
//! [`capture()`] one that records the frames of another.
//!
//! The stack (`sockeye::netif`) exports all of this; only drivers need this crate itself.
//!
//! # Which thread calls what
//! All methods are called with no lock of the stack held. [`Netif::transmit`] is called by whichever thread has run a connection's
//! protocol code, after it has left that connection, or by another one that was handing over frames just then: for the flows of one
//! queue by one thread at a time, so that frames of a flow leave in the order in which they were made (`departures.rs` of the stack).
//! It should not block: if it does, the frames of other threads are queued for that thread up to a bound, and then dropped. It wakes
//! no thread: [`Netif::ring`] does that, once for many frames. Each receive queue has one thread of the stack, its *input thread*,
//! which alone calls [`Netif::wait`] for it. [`Netif::receive`] is called by it, or by a thread that waits for a connection of this
//! queue, by one at a time (`inet/input` of the stack); with `workers = 0` the caller of `Stack::poll` takes its place and no thread
//! waits.
//!
//! # Panics
//! A `Netif` is foreign code to the stack. Constants are asked for once, when the interface is attached. A panic in any method is
//! caught and reported (`Stack::set_panic_hook`): [`Netif::transmit`] loses the frames that it was given
//! (`frames_netif_panicked`), [`Netif::receive`] those that it has not shown, and an interface that panics while it is attached is
//! refused. After a panic in [`Netif::receive`] or [`Netif::wait`] the input thread pauses, and after ten in a row, for a third of
//! a second or so, the interface counts as gone. Methods may call the stack, and drop its last handle.
//!
//!
//! Does not depend on addresses, routes or protocols. Tests: at the ends of the files; with a stack behind
//! them `crates/stack/tests/wire/{transfers,faults,channel,capture}.rs`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod capture;
mod channel;
mod frame;
pub mod pcapng;
mod prefix;
mod shape;
mod waking;
mod wire;

#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use sockeye_mbuf::Pool;

pub use capture::{CaptureConfig, CaptureCounts, CaptureHandle, Captured, capture, capture_into};
pub use channel::{Channel, ChannelConfig, ChannelPort, FrameBytes, SendError, channel};
pub use frame::{Checksum, HEAD_MAX, LINK_HEADER_LEN, MacAddr, Medium, RxFrame, TxFrame};
pub use prefix::{NotAPrefix, Prefix};
pub use waking::Waking;
pub use wire::{WireConfig, WireEnd, wire};

/// Queues of an interface, at most.
pub const QUEUES_MAX: usize = 64;
/// Bytes of the shortest MTU, which every link has that carries IPv6 (RFC 8200 section 5).
pub const MTU_MIN: u32 = 1280;
/// Bytes of the longest MTU.
pub const MTU_MAX: u32 = 65536;

/// An interface, as the stack sees it. The module's head says which thread calls which method, and when.
pub trait Netif: Send + Sync + 'static {
    /// Bytes of the largest IP packet that a frame carries, 1,280 to 65,536. Constant.
    fn mtu(&self) -> u32;

    /// Receive queues, each served by one input thread, 1 to 64. Constant.
    fn queue_count(&self) -> usize;

    /// The link layer of its frames, in both directions. Constant. Default: the IP header.
    fn medium(&self) -> Medium {
        Medium::Ip
    }

    /// Whether frames may be given to [`transmit`](Self::transmit) without a TCP or UDP checksum. Constant.
    fn offloads_checksum(&self) -> bool;

    /// Bytes of the largest IP packet that [`transmit`](Self::transmit) takes with [`TxFrame::gso_size`] set; 0 if it takes none,
    /// which is the default. Constant. Connections then hand over so much at once, and the device cuts it. Such a frame has
    /// [`Checksum::Device`].
    ///
    /// More than 65,535, at most 524,280, is for devices that take IPv4 packets longer than the header can say: they have a total
    /// length of 0 and are as long as the frame (Linux's BIG TCP). Only connections to neighbors make such ones.
    fn segment_max(&self) -> u32 {
        0
    }

    /// The same for datagrams of UDP: [`TxFrame::gso_size`] is then the payload of each datagram but the last, and the UDP
    /// header's length that of all. At most 65,535; 0 if it takes none, which is the default. Constant. Needs
    /// [`offloads_checksum`](Self::offloads_checksum).
    fn udp_segment_max(&self) -> u32 {
        0
    }

    /// Told once, before anything else, from which pool the stack takes its packet memory. A driver that reads
    /// frames straight into mbufs of it spares the stack a copy (see [`RxFrame::own`]); if it has to drop a frame because the
    /// pool has refused it one, it says so by [`Pool::report_refused`]. Default: nothing.
    fn attached(&self, pool: &Pool) {
        let _ = pool;
    }

    /// Called once, after [`attached`](Self::attached), with the object by which the interface is to wake tasks, if it does: the stack then
    /// counts and reports wakers that panic as it does with its own (`panics_foreign`). By it an interface without a [`descriptor`](Self::descriptor)
    /// [announces](Waking::announce) frames to a stack without threads, too. An interface around another one hands it on. Default: nothing.
    fn wakes_by(&self, waking: &Waking) {
        let _ = waking;
    }

    /// Whether the device is gone for good: nothing arrives any more, and transmitted frames are dropped. Waits then
    /// end by [`interrupt`](Self::interrupt) only. Default: never.
    fn is_down(&self) -> bool {
        false
    }

    /// Takes all of `frames`, which belong to one flow and are in its order. `flow` is the flow's hash: frames of
    /// equal hash must arrive in one queue and in order. Frames without room are dropped, and counted in the
    /// answer: TCP sends it again. Should not block: the module's head describes the consequences. Wakes no
    /// thread.
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent;

    /// Tells the other side of the queue that [`Sent::queue`] named. May make a system call.
    fn ring(&self, queue: usize);

    /// Shows up to `max` frames of a receive queue, oldest first, to `sink`, and forgets them. Returns how many
    /// there were, counting those that an interface around another one has kept from `sink`. Never blocks.
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize;

    /// Whether a [`receive`](Self::receive) that returns less than `max` has found the queue empty. A stack without threads then does not ask
    /// once more to learn that, which is a system call less for each wake. Default: it may not have.
    fn receives_all(&self) -> bool {
        false
    }

    /// **Blocks** until the queue has frames or [`interrupt`](Self::interrupt) was called. May be busy for up to
    /// `spin` first, and may return early.
    fn wait(&self, queue: usize, spin: Duration);

    /// Ends the wait at this queue, and every later one at once: the stack is going away.
    fn interrupt(&self, queue: usize);

    /// **Blocks** a caller that waits for the queue's frames until there are some, it is [kicked](Self::kick), or `deadline`
    /// has passed. May return early. At most one caller waits at a queue, and the input thread may wait there too. An
    /// interface that has no place for callers answers [`Waited::Unable`], which is the default: they are then woken by the
    /// input thread. So does one that was interrupted or is gone.
    fn wait_until(&self, queue: usize, deadline: Option<Instant>) -> Waited {
        let _ = (queue, deadline);
        Waited::Unable
    }

    /// Ends the wait of a caller, or the next one if there is none now. Default: nothing.
    fn kick(&self, queue: usize) {
        let _ = queue;
    }

    /// A descriptor that becomes readable when frames have come to the queue, and that reports an error or a hang-up when the device goes: the driver of
    /// a stack without threads (`sockeye::tokio::Driver`) waits at a duplicate of it, for edges. Constant. Default: there is none.
    #[cfg(unix)]
    fn descriptor(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        let _ = queue;
        None
    }

    /// Told by such a driver when its wait at the [`descriptor`](Self::descriptor) has ended, before it receives. Never blocks. Default: nothing.
    #[cfg(unix)]
    fn announced(&self, queue: usize) {
        let _ = queue;
    }

    /// Told when such a driver ends: frames are to be looked for from now on without being [announced](Self::announced). Never blocks. Default: nothing.
    #[cfg(unix)]
    fn unannounced(&self, queue: usize) {
        let _ = queue;
    }
}

/// How the wait of a caller at an interface ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// There are frames, or the caller was kicked, or neither.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// Callers cannot wait here, or not any more.
    Unable,
}

/// Result of [`Netif::transmit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The queue that they went to, for [`Netif::ring`].
    pub queue: usize,
    /// Frames for which the queue had no room.
    pub dropped_count: usize,
}
