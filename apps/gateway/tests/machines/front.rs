//! A machine with a card of virtio, by hand: the front end of vhost-user, the guest's memory in a file, and the driver of pairs of rings, as an interface of a stack.
//!
//! The memory is read and written as a file, which the gateway has mapped, so nothing here is `unsafe`.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sockeye::netif::{Checksum, MacAddr, Medium, Netif, RxFrame, Sent, TxFrame};
use sockeye_mbuf::Chain;

/// Where the guest's memory is: by the guest's addresses, by the front end's, in the file.
const GUEST: u64 = 0x4000_0000;
const FRONT: u64 = 0x7f00_0000_0000;
const FILE: u64 = 0x1000;
const MEMORY: u64 = 64 << 20;
/// Descriptors of a ring.
pub const SIZE: u16 = 256;
/// Parts of a ring, from its beginning on.
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x8000;
const RING: u64 = 0x1_0000;
/// Buffers: what is received, what is sent; those of each pair behind those of the last.
const RECEIVED: u64 = 0x10_0000;
const RECEIVED_LEN: u64 = 4096;
const SENT: u64 = 0x80_0000;
const SENT_LEN: u64 = 0x1_8000;
/// Pairs of rings for which there is room.
const PAIRS_MAX: u32 = 2;
const WRITE: u16 = 2;
/// Bytes of the header before a frame.
const HEADER: usize = 12;
const PATIENCE: Duration = Duration::from_secs(30);

/// Bits of features.
pub const CSUM: u64 = 1;
pub const GUEST_CSUM: u64 = 1 << 1;
pub const HOST_TSO4: u64 = 1 << 11;
pub const MERGED: u64 = 1 << 15;
pub const PAIRS: u64 = 1 << 22;
pub const EVENT_IDX: u64 = 1 << 29;
pub const PROTOCOL: u64 = 1 << 30;
pub const VERSION_1: u64 = 1 << 32;

/// Numbers of messages (the protocol's "Front-end message types").
mod say {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
}

/// A front end, with the guest's memory.
pub struct Front {
    socket: UnixStream,
    memory: OwnedFd,
    /// What the guest rings, and what rings the guest: of what it receives, and of what it sends, for each pair.
    pub kicks: Vec<OwnedFd>,
    calls: Vec<OwnedFd>,
    pub features: u64,
}

impl Front {
    /// Sets all up for a guest that takes these features, of those that are offered.
    pub fn new(socket: UnixStream, features: u64) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let memory = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, FILE + MEMORY).unwrap();
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let pairs = if features & PAIRS != 0 { PAIRS_MAX } else { 1 };
        let bells = || (0..2 * pairs).map(|_| bell()).collect();
        let mut front = Self { socket, memory, kicks: bells(), calls: bells(), features };
        let offered = front.ask(say::GET_FEATURES, &[]);
        assert_eq!(offered & features, features, "offered: {offered:x}");
        if features & PROTOCOL != 0 {
            let protocol = front.ask(say::GET_PROTOCOL_FEATURES, &[]);
            front.say(say::SET_PROTOCOL_FEATURES, &protocol.to_le_bytes(), &[]);
            if pairs > 1 {
                assert!(front.ask(say::GET_QUEUE_NUM, &[]) >= pairs.into());
            }
            // As QEMU does, before all else.
            (0..2 * pairs).for_each(|ring| front.enable(ring, true));
        }
        front.say(say::SET_OWNER, &[], &[]);
        front.say(say::SET_FEATURES, &features.to_le_bytes(), &[]);
        let table = [1u64, GUEST, MEMORY, FRONT, FILE].map(u64::to_le_bytes).concat();
        let memory = front.memory.try_clone().unwrap();
        front.say(say::SET_MEM_TABLE, &table, &[&memory]);
        (0..2 * pairs).for_each(|ring| front.start(ring));
        front
    }

    /// Disables a ring, and returns when that is done: messages are served in turn.
    pub fn disable(&mut self, ring: u32) {
        self.enable(ring, false);
        self.ask(say::GET_FEATURES, &[]);
    }

    fn enable(&mut self, ring: u32, on: bool) {
        self.say(say::SET_VRING_ENABLE, &[ring, on.into()].map(u32::to_le_bytes).concat(), &[]);
    }

    /// Starts a ring.
    fn start(&mut self, ring: u32) {
        let two = |a: u32, b: u32| [a, b].map(u32::to_le_bytes).concat();
        let at = FRONT + u64::from(ring) * RING;
        let parts = [at + DESCRIPTORS, at + USED, at + AVAILABLE, 0].map(u64::to_le_bytes).concat();
        self.say(say::SET_VRING_NUM, &two(ring, SIZE.into()), &[]);
        self.say(say::SET_VRING_BASE, &two(ring, 0), &[]);
        self.say(say::SET_VRING_ADDR, &[two(ring, 0), parts].concat(), &[]);
        let (kick, call) =
            (self.kicks[ring as usize].try_clone().unwrap(), self.calls[ring as usize].try_clone().unwrap());
        self.say(say::SET_VRING_CALL, &u64::from(ring).to_le_bytes(), &[&call]);
        self.say(say::SET_VRING_KICK, &u64::from(ring).to_le_bytes(), &[&kick]);
    }

    /// Stops a ring. Returns where it stood.
    pub fn stop(&mut self, ring: u32) -> u32 {
        (self.ask(say::GET_VRING_BASE, &[ring, 0].map(u32::to_le_bytes).concat()) >> 32) as u32
    }

    /// Sends a message with descriptors.
    pub fn say(&mut self, what: u32, body: &[u8], fds: &[&OwnedFd]) {
        let head = [what, 1, body.len() as u32].map(u32::to_le_bytes).concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let pieces = [IoSlice::new(&head), IoSlice::new(body)];
        // One that has hung up hears no more.
        let _ = sendmsg(&self.socket, &pieces, &mut ancillary, SendFlags::NOSIGNAL);
    }

    /// Sends a message, and returns the number that answers it.
    fn ask(&mut self, what: u32, body: &[u8]) -> u64 {
        self.say(what, body, &[]);
        let mut answer = [0; 20];
        self.socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..4], what.to_le_bytes());
        u64::from_le_bytes(answer[12..].try_into().unwrap())
    }

    /// Whether the gateway has hung up.
    pub fn hung_up(&mut self) -> bool {
        matches!(self.socket.read(&mut [0; 64]), Ok(0) | Err(_))
    }

    /// Bytes that are no message.
    pub fn babble(&mut self) {
        self.socket.write_all(&[0xff; 64]).unwrap();
    }

    fn load<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        assert_eq!(pread(&self.memory, &mut bytes, FILE + at).unwrap(), N);
        bytes
    }

    fn load_u16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.load(at))
    }

    pub fn store(&self, at: u64, bytes: &[u8]) {
        assert_eq!(pwrite(&self.memory, bytes, FILE + at).unwrap(), bytes.len());
    }

    /// Describes a place of the guest's memory.
    pub fn describe(&self, ring: u32, index: u16, (addr, len): (u64, u32), flags: u16, next: u16) {
        let bytes =
            [&addr.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()].concat();
        self.store(u64::from(ring) * RING + DESCRIPTORS + u64::from(index) * 16, &bytes);
    }

    /// Makes a chain available, as the `count`th.
    pub fn offer(&self, ring: u32, count: u16, head: u16) {
        let at = u64::from(ring) * RING + AVAILABLE;
        self.store(at + 4 + u64::from(count % SIZE) * 2, &head.to_le_bytes());
        self.store(at + 2, &count.wrapping_add(1).to_le_bytes());
    }

    /// The index of available chains.
    pub fn set_available(&self, ring: u32, index: u16) {
        self.store(u64::from(ring) * RING + AVAILABLE + 2, &index.to_le_bytes());
    }

    /// How many chains were used.
    pub fn used(&self, ring: u32) -> u16 {
        self.load_u16(u64::from(ring) * RING + USED + 2)
    }

    /// A chain that was used: its first descriptor, and bytes in it.
    fn used_element(&self, ring: u32, count: u16) -> (u16, usize) {
        let at = u64::from(ring) * RING + USED + 4 + u64::from(count % SIZE) * 8;
        let [head, len] = [0, 4].map(|offset| u32::from_le_bytes(self.load(at + offset)));
        (head as u16, len as usize)
    }

    pub fn kick(&self, ring: usize) {
        rustix::io::write(&self.kicks[ring], &1u64.to_ne_bytes()).unwrap();
    }
}

/// The guest's address of a place in its memory.
pub fn guest_addr(at: u64) -> u64 {
    GUEST + at
}

/// The guest's driver.
pub struct Driver {
    front: Arc<Mutex<Front>>,
    calls: Vec<OwnedFd>,
    features: u64,
    end: OwnedFd,
    is_ended: AtomicBool,
    /// Chains of each ring, so far.
    counts: Mutex<Vec<u16>>,
    seen: Arc<Seen>,
}

/// What a driver has seen.
#[derive(Default)]
pub struct Seen {
    /// Frames that came in more than one buffer.
    pub merged: AtomicUsize,
    /// Waits that ended without an interrupt although there was a frame.
    pub missed: AtomicUsize,
    /// Frames that came in each pair.
    pub received: [AtomicUsize; PAIRS_MAX as usize],
}

impl Driver {
    /// The driver of a card that is set up.
    pub fn new(front: Front, seen: &Arc<Seen>) -> Self {
        let rings = front.kicks.len();
        for ring in (0..rings as u32).step_by(2) {
            for index in 0..SIZE {
                let place = (guest_addr(received_at(ring, index)), RECEIVED_LEN as u32);
                front.describe(ring, index, place, WRITE, 0);
                front.offer(ring, index, index);
            }
            front.kick(ring as usize);
        }
        let calls = front.calls.iter().map(|call| call.try_clone().unwrap()).collect();
        let features = front.features;
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let (is_ended, counts) = (AtomicBool::new(false), Mutex::new(vec![0; rings]));
        let (front, seen) = (Arc::new(Mutex::new(front)), Arc::clone(seen));
        Self { front, calls, features, end, is_ended, counts, seen }
    }

    /// The front end, to be changed while the machine runs.
    pub fn front(&self) -> Arc<Mutex<Front>> {
        Arc::clone(&self.front)
    }

    fn send(&self, front: &Front, ring: u32, frame: &TxFrame) {
        let mut counts = self.counts.lock().unwrap();
        let (count, until) = (counts[ring as usize], Instant::now() + PATIENCE);
        while count.wrapping_sub(front.used(ring)) >= SIZE {
            assert!(Instant::now() < until, "the gateway takes no frames");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut bytes = vec![0; HEADER + frame.len()];
        if frame.checksum == Checksum::Device {
            bytes[0] = 1;
            let is_cut = frame.gso_size > 0 && frame.payload.len() > frame.gso_size.into();
            bytes[1] = if is_cut { 1 } else { 0 };
            bytes[4..6].copy_from_slice(&if is_cut { frame.gso_size } else { 0 }.to_le_bytes());
        }
        frame.copy_to(&mut bytes[HEADER..]);
        let at = SENT + (u64::from(ring / 2) * u64::from(SIZE) + u64::from(count % SIZE)) * SENT_LEN;
        front.store(at, &bytes);
        front.describe(ring, count % SIZE, (guest_addr(at), bytes.len() as u32), 0, 0);
        front.offer(ring, count, count % SIZE);
        counts[ring as usize] = count.wrapping_add(1);
        front.kick(ring as usize);
    }

    /// Rings in which frames come.
    fn rings(&self) -> impl Iterator<Item = u32> {
        (0..self.calls.len() as u32).step_by(2)
    }

    /// Names the buffers at which it wants to be interrupted. True if one is used already.
    fn asks_for_interrupt(&self) -> bool {
        let (front, counts) = (self.front.lock().unwrap(), self.counts.lock().unwrap());
        self.rings().any(|ring| {
            let (at, count) =
                (u64::from(ring) * RING + AVAILABLE + 4 + 2 * u64::from(SIZE), counts[ring as usize]);
            front.store(at, &count.to_le_bytes());
            front.used(ring) != count
        })
    }

    /// The next frame of a ring, if there is one, with its header.
    fn next(&self, front: &Front, ring: u32) -> Option<Vec<u8>> {
        let mut counts = self.counts.lock().unwrap();
        let count = &mut counts[ring as usize];
        if front.used(ring) == *count {
            return None;
        }
        self.seen.received[ring as usize / 2].fetch_add(1, Ordering::Relaxed);
        let (mut bytes, mut left) = (Vec::new(), 1);
        while left > 0 {
            assert_ne!(front.used(ring), *count, "all buffers of a frame are there at once");
            let (head, len) = front.used_element(ring, *count);
            let mut piece = vec![0; len];
            assert_eq!(pread(&front.memory, &mut piece, FILE + received_at(ring, head)).unwrap(), len);
            bytes.extend(piece);
            if bytes.len() == len {
                left = u16::from_le_bytes(bytes[10..12].try_into().unwrap());
                self.seen.merged.fetch_add(usize::from(left > 1), Ordering::Relaxed);
            }
            left -= 1;
            front.offer(ring, count.wrapping_add(SIZE), head);
            *count = count.wrapping_add(1);
        }
        front.kick(ring as usize);
        Some(bytes)
    }
}

/// Where a buffer for received bytes stands.
fn received_at(ring: u32, index: u16) -> u64 {
    RECEIVED + (u64::from(ring / 2) * u64::from(SIZE) + u64::from(index)) * RECEIVED_LEN
}

impl Netif for Driver {
    fn mtu(&self) -> u32 {
        65_520
    }

    fn queue_count(&self) -> usize {
        1
    }

    fn medium(&self) -> Medium {
        Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, 1]))
    }

    fn offloads_checksum(&self) -> bool {
        self.features & CSUM != 0
    }

    fn segment_max(&self) -> u32 {
        if self.features & HOST_TSO4 != 0 { 65_535 } else { 0 }
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let (front, pairs) = (self.front.lock().unwrap(), self.calls.len() as u64 / 2);
        let ring = 2 * (flow % pairs) as u32 + 1;
        frames.drain(..).for_each(|frame| self.send(&front, ring, &frame));
        Sent { queue: 0, dropped_count: 0 }
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        for count in 0..max {
            let next = self.rings().find_map(|ring| self.next(&self.front.lock().unwrap(), ring));
            let Some(bytes) = next else { return count };
            let is_good = bytes[0] & 2 != 0;
            assert_eq!(is_good, self.features & GUEST_CSUM != 0);
            let checksum = if is_good { Checksum::Device } else { Checksum::Software };
            sink(RxFrame { checksum, ..RxFrame::new(&bytes[HEADER..], &Chain::new()) });
        }
        max
    }

    fn wait(&self, _queue: usize, _spin: Duration) {
        let calls = self.calls.iter().step_by(2);
        let mut fds: Vec<_> = calls.chain([&self.end]).map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        if self.asks_for_interrupt() {
            return;
        }
        if poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) == Ok(0) {
            let (front, counts) = (self.front.lock().unwrap(), self.counts.lock().unwrap());
            let has_frames = self.rings().any(|ring| front.used(ring) != counts[ring as usize]);
            self.seen.missed.fetch_add(has_frames.into(), Ordering::Relaxed);
        }
        if !self.is_ended.load(Ordering::Acquire) {
            for call in &self.calls {
                let _ = rustix::io::read(call, &mut [0; 8]);
            }
        }
    }

    fn interrupt(&self, _queue: usize) {
        self.is_ended.store(true, Ordering::Release);
        rustix::io::write(&self.end, &1u64.to_ne_bytes()).unwrap();
    }
}
