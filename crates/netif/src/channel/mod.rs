//! An interface whose other side is a program: frames in and out by function call.
//!
//! For programs that embed a stack and have their frames from elsewhere: a microVM's virtio queue, a VPN's tunnel, a
//! test. [`channel`] gives the interface, to be attached to a stack, and one [`ChannelPort`] for each of its queues. A
//! port copies sent packets into packet memory of the stack, once; received ones reference the stack's.
//!
//! # When a queue is full
//! *Into the stack* nothing is dropped: a sender gets an error (`try_send`), waits (`send`) or is woken (`poll_send`).
//! *Out of the stack* a connection's protocol code cannot wait, so a frame that finds no room is dropped and counted as
//! `frames_queue_full`, and TCP sends it again, more slowly; a queue as long as the windows of all connections together
//! never fills.
//!
//! # Why no wake-up is lost
//! A lane is a queue under one mutex (`lane.rs`). A thread that waits looks and announces itself in one section; a
//! thread that changes the queue does so in a section, and wakes the announced waiters after a later one at the
//! latest.
//!
//! # Wakers that panic
//! They are caught, and the tasks behind them are woken all the same. The stack that the channel is attached to counts and reports them
//! ([`Netif::wakes_by`]), whichever thread calls the waker. Before it is attached and after its stack has ended, there is no stack to
//! report to: the panic is only caught.
//!
//! It does not depend on IP or TCP. Invariants: a port that was dropped takes no frames and gives none; the lanes are
//! bounded. Tests: `crates/stack/tests/wire/channel.rs`, `crates/stack/examples/channel.rs`.

mod lane;

use std::fmt;
use std::io;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use sockeye_mbuf::{Chain, Exhausted, Mbuf, Pool};
use sockeye_sync::facade::{Arc, OnceLock};
use sockeye_sync::fork::Origin;
use sockeye_sync::{Local, Spin, coop};

use crate::shape::Shape;
use crate::{Checksum, LINK_HEADER_LEN, Medium, Netif, RxFrame, Sent, TxFrame, Waking};
use lane::{Lane, Refused};

/// Settings of a channel. Start from [`ChannelConfig::default`].
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// Bytes of the largest IP packet, 1,280 to 65,536. Default 1500.
    pub mtu: u32,
    /// Link layer of the frames. Default: the IP header.
    pub medium: Medium,
    /// Queues, 1 to 64: so many ports, and input threads. Default 1.
    pub queues: usize,
    /// Frames that a queue holds in each direction, 1 to 1,048,576. Default 1,024.
    pub queue_len: usize,
    /// The other side completes the checksums of frames with [`Checksum::Device`]. Default off: they are complete.
    pub offload: bool,
    /// Bytes of the largest IP packet with segments of TCP that the other side cuts by [`TxFrame::gso_size`], `mtu` to
    /// 65,535. Needs `offload`. Default 0: none.
    pub segment_max: u32,
    /// The same for datagrams of UDP (towards a guest of virtio: `VIRTIO_NET_F_GUEST_USO4` and `6`, from it `HOST_USO`):
    /// a send of a socket with a segment size leaves as one frame of up to so many bytes, as in
    /// [`Netif::udp_segment_max`], and frames of up to so many come in with [`FrameBytes::gso_size`]. `mtu` to 65,535.
    /// Needs `offload`. Default 0: a frame for each datagram.
    pub udp_segment_max: u32,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            mtu: 1500,
            medium: Medium::Ip,
            queues: 1,
            queue_len: 1024,
            offload: false,
            segment_max: 0,
            udp_segment_max: 0,
        }
    }
}

/// A new interface, and its ports, one for each queue. Frames of one flow must be sent by one port, and those of equal
/// flow hash come out of one.
///
/// # Errors
/// `InvalidInput` if a field is out of its bounds.
pub fn channel(config: &ChannelConfig) -> io::Result<(Channel, Vec<ChannelPort>)> {
    let &ChannelConfig { mtu, queues, queue_len, offload, segment_max, udp_segment_max, .. } = config;
    Shape { config: "ChannelConfig", mtu, queues, queue_len, offload, segment_max, udp_segment_max }
        .check()?;
    let pair = |_| Pair { inward: Lane::new(config.queue_len), outward: Lane::new(config.queue_len) };
    let shared = Arc::new(Shared {
        config: config.clone(),
        pairs: (0..config.queues).map(pair).collect(),
        pool: OnceLock::new(),
        told: OnceLock::new(),
    });
    let port = |queue| ChannelPort { shared: Local::new(Arc::clone(&shared)), queue };
    let ports = (0..config.queues).map(port).collect();
    Ok((Channel { shared, origin: Origin::here() }, ports))
}

/// A frame for the stack.
#[derive(Clone, Copy, Debug)]
pub struct FrameBytes<'a> {
    /// All of it, from the first byte on.
    pub bytes: &'a [u8],
    /// Whether its TCP or UDP checksum is known to be right. From bytes alone: it is not.
    pub checksum: Checksum,
    /// Bytes of payload of each packet but the last that were joined to this one, at most the MTU; 0 if it is one packet.
    /// With UDP it stands for at most 128 datagrams, the UDP header's length being that of all, and its receivers get them
    /// one by one, or joined with UDP_GRO; one that says otherwise is dropped and counted as `udp_in_bad_length`.
    pub gso_size: u16,
}

impl<'a> From<&'a [u8]> for FrameBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, checksum: Checksum::Software, gso_size: 0 }
    }
}

/// Why a frame was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The queue is full, or the stack has no packet memory left; not for ever.
    Full,
    /// The time is over.
    TimedOut,
    /// The frame has no bytes, or more than the interface carries, or is joined from packets longer than the MTU.
    Length,
    /// The interface is attached to no stack yet, its stack is gone, or this process is a child of the one that made the
    /// channel.
    Detached,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue into the stack is full",
            Self::TimedOut => "the queue into the stack stayed full",
            Self::Length => {
                "a frame without bytes, or longer, or of longer packets, than the interface carries"
            }
            Self::Detached => "the interface has no stack",
        })
    }
}

impl std::error::Error for SendError {}

struct Shared {
    config: ChannelConfig,
    pairs: Box<[Pair]>,
    /// The stack's memory, once it is attached.
    pool: OnceLock<Pool>,
    /// By it the stack is told of frames, if it has no threads.
    told: OnceLock<Waking>,
}

struct Pair {
    inward: Lane<Arrived>,
    outward: Lane<TxFrame>,
}

/// A frame in the stack's memory.
struct Arrived {
    first: Mbuf,
    rest: Chain,
    checksum: Checksum,
    gso_size: u16,
}

/// The stack's side: give it to `Stack::attach`.
pub struct Channel {
    shared: Arc<Shared>,
    origin: Origin,
}

/// The program's side of one queue. May be used by several threads; frames that one of them waits for
/// may be another's.
pub struct ChannelPort {
    shared: Local<Arc<Shared>>,
    queue: usize,
}

impl ChannelPort {
    /// Gives a frame to the stack. Does not block.
    ///
    /// # Errors
    /// See [`SendError`]; `Full` if it has to be tried again.
    pub fn try_send<'a>(&self, frame: impl Into<FrameBytes<'a>>) -> Result<(), SendError> {
        let shared = self.shared()?;
        let arrived = shared.in_memory(frame.into())?;
        shared.pairs[self.queue].inward.push(arrived).map_err(|refused| match refused {
            Refused::Full(_) => SendError::Full,
            Refused::Closed(_) => SendError::Detached,
        })?;
        shared.announce();
        Ok(())
    }

    /// Gives frames to the stack, in order, with one wake for all of them. Returns how many were taken: fewer than all
    /// if the queue is full. Does not block.
    ///
    /// # Errors
    /// That of the first frame, if it was not taken.
    pub fn try_send_batch(&self, frames: &[FrameBytes<'_>]) -> Result<usize, SendError> {
        let shared = self.shared()?;
        let mut arrived = Vec::with_capacity(frames.len());
        for frame in frames {
            match shared.in_memory(*frame) {
                Ok(frame) => arrived.push(frame),
                Err(error) if arrived.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        match shared.pairs[self.queue].inward.push_all(&mut arrived) {
            Ok(0) if !frames.is_empty() => Err(SendError::Full),
            Ok(taken) => {
                shared.announce();
                Ok(taken)
            }
            Err(()) => Err(SendError::Detached),
        }
    }

    /// Gives a frame to the stack. **Blocks** while the queue is full, for at most `timeout`.
    ///
    /// # Errors
    /// See [`SendError`]; never `Full`.
    pub fn send<'a>(
        &self,
        frame: impl Into<FrameBytes<'a>>,
        timeout: Option<Duration>,
    ) -> Result<(), SendError> {
        let frame = frame.into();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let inward = &self.shared()?.pairs[self.queue].inward;
        loop {
            match self.try_send(frame) {
                Err(SendError::Full) if !inward.wait_room(deadline) => {
                    return Err(SendError::TimedOut);
                }
                Err(SendError::Full) => self.wait_memory(deadline),
                done => return done,
            }
        }
    }

    /// Gives a frame to the stack. If the queue is full, `cx` is woken when it is worth trying again.
    pub fn poll_send<'a>(
        &self,
        cx: &mut task::Context<'_>,
        frame: impl Into<FrameBytes<'a>>,
    ) -> Poll<Result<(), SendError>> {
        let frame = frame.into();
        let inward = &self.shared()?.pairs[self.queue].inward;
        coop::poll(cx, |cx| {
            match self.try_send(frame) {
                Err(SendError::Full) => {}
                done => return Poll::Ready(done),
            }
            if inward.room_or_wake(cx.waker()) {
                // There was room after all; if only memory is short, the task tries again by itself.
                match self.try_send(frame) {
                    Err(SendError::Full) => cx.waker().wake_by_ref(),
                    done => return Poll::Ready(done),
                }
            }
            Poll::Pending
        })
    }

    /// The next frame of the stack, if there is one. Does not block.
    pub fn try_recv(&self) -> Option<TxFrame> {
        self.outward()?.pop()
    }

    /// Up to `max` frames of the stack, appended to `into`. Returns how many. Does not block.
    pub fn try_recv_batch(&self, max: usize, into: &mut Vec<TxFrame>) -> usize {
        self.outward().map_or(0, |outward| outward.pop_all(max, |frame| into.push(frame)))
    }

    /// The next frame of the stack. **Blocks** until there is one, for at most `timeout`; `None` when that is over, or
    /// the stack is gone and nothing is left.
    pub fn recv(&self, timeout: Option<Duration>) -> Option<TxFrame> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let outward = self.outward()?;
        loop {
            if let Some(frame) = outward.pop() {
                return Some(frame);
            }
            if !outward.wait_item(deadline, Spin::default()) {
                return outward.pop();
            }
        }
    }

    /// The next frame of the stack; `None` if the stack is gone and nothing is left. If there is none, `cx` is woken when
    /// one comes.
    pub fn poll_recv(&self, cx: &mut task::Context<'_>) -> Poll<Option<TxFrame>> {
        match self.outward() {
            Some(outward) => coop::poll(cx, |cx| outward.pop_or_wake(cx.waker())),
            None => Poll::Ready(None),
        }
    }

    /// Both sides, but in a child of fork(2), whose parent's they are.
    fn shared(&self) -> Result<&Arc<Shared>, SendError> {
        self.shared.get().ok_or(SendError::Detached)
    }

    fn outward(&self) -> Option<&Lane<TxFrame>> {
        self.shared.get().map(|shared| &shared.pairs[self.queue].outward)
    }

    /// Returns at once unless this thread was refused memory: then waits for some, for a moment.
    fn wait_memory(&self, deadline: Option<Instant>) {
        let slice = Instant::now() + MEMORY_WAIT;
        if let Some(pool) = self.shared.get().and_then(|shared| shared.pool.get()) {
            pool.wait_freed(Some(deadline.map_or(slice, |deadline| deadline.min(slice))));
        }
    }
}

/// How long a blocking sender waits for memory before it tries again.
const MEMORY_WAIT: Duration = Duration::from_millis(50);

impl Shared {
    /// Has a stack without threads look. Behind what it is to see.
    fn announce(&self) {
        if let Some(told) = self.told.get() {
            told.announce();
        }
    }

    fn in_memory(&self, frame: FrameBytes<'_>) -> Result<Arrived, SendError> {
        let pool = self.pool.get().ok_or(SendError::Detached)?;
        let is_joined_of_long = u32::from(frame.gso_size) > self.config.mtu;
        if frame.bytes.is_empty() || frame.bytes.len() > self.frame_max() || is_joined_of_long {
            return Err(SendError::Length);
        }
        let mut rest = pool.copy_in(frame.bytes).map_err(|Exhausted| {
            pool.report_refused();
            SendError::Full
        })?;
        let first = rest.pop_front().ok_or(SendError::Length)?;
        Ok(Arrived { first, rest, checksum: frame.checksum, gso_size: frame.gso_size })
    }

    fn frame_max(&self) -> usize {
        let link = match self.config.medium {
            Medium::Ip => 0,
            Medium::Ethernet(_) => LINK_HEADER_LEN,
        };
        let ChannelConfig { mtu, segment_max, udp_segment_max, .. } = self.config;
        mtu.max(segment_max).max(udp_segment_max) as usize + link
    }
}

impl Drop for ChannelPort {
    fn drop(&mut self) {
        let Ok(shared) = self.shared() else { return };
        let pair = &shared.pairs[self.queue];
        pair.outward.close_and_forget();
        pair.inward.close();
        // Without its ports the interface is down.
        shared.announce();
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // In a child of fork(2): the other side is its parent's.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        for pair in &self.shared.pairs {
            pair.inward.close_and_forget();
            pair.outward.close();
        }
    }
}

impl Netif for Channel {
    fn mtu(&self) -> u32 {
        self.shared.config.mtu
    }

    fn queue_count(&self) -> usize {
        self.shared.pairs.len()
    }

    fn medium(&self) -> Medium {
        self.shared.config.medium
    }

    fn offloads_checksum(&self) -> bool {
        self.shared.config.offload
    }

    fn segment_max(&self) -> u32 {
        self.shared.config.segment_max
    }

    fn udp_segment_max(&self) -> u32 {
        self.shared.config.udp_segment_max
    }

    fn attached(&self, pool: &Pool) {
        // A second stack cannot come: attaching takes the channel.
        let _ = self.shared.pool.set(pool.clone());
    }

    fn wakes_by(&self, waking: &Waking) {
        // It is called once.
        let _ = self.shared.told.set(waking.clone());
        for pair in &self.shared.pairs {
            pair.inward.wake_by(waking);
            pair.outward.wake_by(waking);
        }
    }

    fn is_down(&self) -> bool {
        self.shared.pairs.iter().all(|pair| pair.outward.is_closed())
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        // The upper half of a product spreads 32 bits of the hash evenly over any number of queues.
        let part = (flow & u64::from(u32::MAX)) * self.shared.pairs.len() as u64;
        let queue = (part >> 32) as usize;
        let offered = frames.len();
        let taken = self.shared.pairs[queue].outward.append(frames);
        frames.clear();
        Sent { queue, dropped_count: offered - taken }
    }

    fn ring(&self, queue: usize) {
        if let Some(pair) = self.shared.pairs.get(queue) {
            pair.outward.ring();
        }
    }

    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let Some(pair) = self.shared.pairs.get(queue) else { return 0 };
        pair.inward.pop_all(max, |frame| {
            let Arrived { first, rest, checksum, gso_size } = &frame;
            let (checksum, gso_size) = (*checksum, *gso_size);
            sink(RxFrame { checksum, gso_size, ..RxFrame::in_mbufs(first, rest) });
        })
    }

    fn wait(&self, queue: usize, spin: Duration) {
        if let Some(pair) = self.shared.pairs.get(queue) {
            pair.inward.wait_interruptible(Spin::up_to(spin));
        }
    }

    fn interrupt(&self, queue: usize) {
        if let Some(pair) = self.shared.pairs.get(queue) {
            pair.inward.interrupt();
        }
    }
}
