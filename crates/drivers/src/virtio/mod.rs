//! The back end of a virtual machine's network card: virtio-net by vhost-user, as QEMU and other monitors speak it.
//!
//! The front end (the monitor) hands over the guest's memory and the places of pairs of rings in it, over a UNIX socket; frames then go through that memory, and nobody
//! but guest and this process touches them. The guest's checksums and segments of TCP are taken as they are (`VIRTIO_NET_F_CSUM`, `HOST_TSO4`, `HOST_TSO6`); frames to it
//! are whole packets with their checksums, which it need not check (`GUEST_CSUM`), in as many of its buffers as they take (`MRG_RXBUF`).
//!
//! # Connections
//! A [`VhostUser`] outlives its front ends: [`VhostUser::connect`] gives it one. Each has a thread, which only does what the front end says and sleeps in between.
//! Without one the interface is silent. It is down when [`VhostUser::end`] says that there will be none any more.
//!
//! # Why no wake-up is lost
//! One epoll file knows the guest's kicks and a bell, each as an edge. A reader that has taken all asks for kicks ([`Ring::listen`]) and looks once more; so does a writer
//! whose frames wait for room. Whoever waits at the epoll file takes its edges away *before* it looks at the rings. The bell is rung for all else that is to be looked at:
//! a ring that was started, the end of a connection, an interruption.
//!
//! # Which file
//! | file | holds |
//! |---|---|
//! | this one | the [`Netif`], connections, waits |
//! | `front.rs` | what the front end says |
//! | `pair.rs` | a pair of rings, the frames that wait |
//! | `ring.rs` | one ring, and all that the guest may do wrong |
//!
//! All pairs are one queue of the interface, which one thread serves. A flow's frames go to the pair that its hash gives among those that are served.
//!
//! Locks: those of a ring (`pair.rs`); the front's thread takes one at a time. Tests: `ring/tests.rs`, and
//! `apps/gateway/tests/machines` with a front end, a guest of QEMU and hostile rings.

mod front;
mod pair;
mod ring;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use sockeye_mbuf::Pool;
use sockeye_netif::{MTU_MAX, MTU_MIN, MacAddr, Medium, Netif, RxFrame, Sent, TxFrame};
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use vhost::vhost_user::{BackendReqHandler, Error};

use front::Front;
use pair::{PAIRS_MAX, Pair};
use ring::Ring;

/// The longest frame, bytes: an Ethernet header with two VLAN tags, and the longest IP packet.
const FRAME_MAX: usize = 22 + 65_535;
/// Rings of a pair, of which the first is what the guest receives, and the second what it sends.
const RINGS: usize = 2;
const TO_GUEST: usize = 0;
/// What is waited at: the guest's kicks by the rings' numbers, and the bell.
const BELL: u64 = u64::MAX;
const EVENTS_MAX: usize = RINGS * PAIRS_MAX + 1;

/// Bits of virtio 1.2 (sections 5.1.3 and 6) and of vhost-user.
mod feature {
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const HOST_ECN: u64 = 1 << 13;
    pub const MERGED_BUFFERS: u64 = 1 << 15;
    /// Several pairs of rings. The monitor has the control queue by which the guest says how many it uses.
    pub const PAIRS: u64 = 1 << 22;
    pub const INDIRECT: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    /// What a guest may use.
    pub const OFFERED: u64 = CSUM
        | GUEST_CSUM
        | HOST_TSO4
        | HOST_TSO6
        | HOST_ECN
        | MERGED_BUFFERS
        | PAIRS
        | INDIRECT
        | EVENT_IDX
        | PROTOCOL_FEATURES
        | VERSION_1;
}

/// A virtual machine's network card. A handle: clones are the same interface. The connection ends with the last one.
#[derive(Clone, Debug)]
pub struct VhostUser {
    handle: Arc<Handle>,
}

/// What handles share. The thread of a connection has only what is in it.
#[derive(Debug)]
struct Handle {
    inner: Arc<Inner>,
}

/// Traffic since the beginning, over all connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VhostCounts {
    /// Frames from the guest.
    pub frames_in: u64,
    /// Frames that the guest has, or that wait for its buffers.
    pub frames_out: u64,
    /// Frames for which there was no room, or no guest.
    pub dropped: u64,
    /// What the guest sent that was no frame.
    pub nonsense: u64,
}

#[derive(Debug)]
struct Inner {
    mac: MacAddr,
    mtu: u32,
    pairs: [Pair; PAIRS_MAX],
    /// (a) Pairs up to the last that has had a ring started. Written by the connection's thread.
    started: AtomicUsize,
    /// (a) Turns of the receiver, each of which begins at another pair.
    turns: AtomicUsize,
    /// (a) There is a connection. Written by `connect`, and by its thread at its end.
    is_connected: AtomicBool,
    /// (a) There will be no connection any more.
    is_down: AtomicBool,
    /// (a) The stack goes away.
    is_interrupted: AtomicBool,
    /// The epoll file of all that is waited at.
    events: OwnedFd,
    bell: OwnedFd,
    /// The connection, to end it.
    socket: Mutex<Option<UnixStream>>,
    /// Why it was ended here, if it was.
    refused: Mutex<Option<String>>,
    /// (a) Counters, in the order of [`VhostCounts`].
    counts: [AtomicU64; 4],
}

const FRAMES_IN: usize = 0;
const FRAMES_OUT: usize = 1;
const DROPPED: usize = 2;
const NONSENSE: usize = 3;

impl VhostUser {
    /// A card whose other end has this Ethernet address, without a connection. `mtu`: bytes of the largest IP packet, 1,280 to 65,535.
    ///
    /// # Errors
    /// `InvalidInput` for an MTU out of bounds; the system's.
    pub fn new(mac: MacAddr, mtu: u32) -> io::Result<Self> {
        if !(MTU_MIN..MTU_MAX).contains(&mtu) {
            let message = format!("an MTU of {mtu}: it must be {MTU_MIN} to {}", MTU_MAX - 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&events, &bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        let inner = Inner {
            mac,
            mtu,
            pairs: std::array::from_fn(|_| Pair::new()),
            started: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            is_connected: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            is_interrupted: AtomicBool::new(false),
            events,
            bell,
            socket: Mutex::new(None),
            refused: Mutex::new(None),
            counts: Default::default(),
        };
        Ok(Self { handle: Arc::new(Handle { inner: Arc::new(inner) }) })
    }

    /// Serves this front end, on a thread that ends with its connection.
    ///
    /// # Errors
    /// `ResourceBusy` while there is another one; the system's.
    pub fn connect(&self, socket: UnixStream) -> io::Result<()> {
        let inner = &self.handle.inner;
        let own = socket.try_clone()?;
        socket.set_nonblocking(false)?;
        let mut place = inner.socket.lock();
        if self.is_connected() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        *place = Some(own);
        // Release, with the acquire of `is_connected`: a fact of its own.
        inner.is_connected.store(true, Ordering::Release);
        drop(place);
        let front = Front::new(Arc::clone(inner));
        // Why an earlier one was ended is no news of this one, whose thread does not run yet.
        *inner.refused.lock() = None;
        let front =
            Connection { inner: Arc::clone(inner), front: std::sync::Arc::new(std::sync::Mutex::new(front)) };
        // If there is no thread, what it was to have ends the connection.
        thread::Builder::new().name("vhost-user".to_owned()).spawn(move || front.serve(socket))?;
        Ok(())
    }

    /// Whether there is a front end.
    pub fn is_connected(&self) -> bool {
        self.handle.inner.is_connected.load(Ordering::Acquire)
    }

    /// A descriptor that is readable when the interface is to be looked at, the same for all connections. Call [`take_events`](Self::take_events) first then.
    ///
    /// # Errors
    /// The system's.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.handle.inner.events.try_clone()
    }

    /// Takes away what the descriptor was readable for. Does not block.
    pub fn take_events(&self) {
        self.handle.inner.take_events(Some(&NOW));
    }

    /// Why the last connection was ended here: what was wrong with the front end's message. `None` if it ended by itself, or if this was asked before.
    pub fn take_refusal(&self) -> Option<String> {
        self.handle.inner.refused.lock().take()
    }

    /// There will be no connection any more: [`Netif::is_down`].
    pub fn end(&self) {
        self.handle.inner.is_down.store(true, Ordering::Release);
        self.handle.inner.ring_bell();
    }

    /// Traffic so far.
    pub fn counts(&self) -> VhostCounts {
        let counts = &self.handle.inner.counts;
        let [frames_in, frames_out, dropped, nonsense] =
            [FRAMES_IN, FRAMES_OUT, DROPPED, NONSENSE].map(|index| counts[index].load(Ordering::Relaxed));
        VhostCounts { frames_in, frames_out, dropped, nonsense }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Its thread finds that out.
        self.inner.hang_up();
    }
}

/// A front end that is served. Dropping it ends what it has started.
struct Connection {
    inner: Arc<Inner>,
    /// As the crate that reads messages takes it.
    front: std::sync::Arc<std::sync::Mutex<Front>>,
}

impl Connection {
    fn serve(self, socket: UnixStream) {
        let Ok(near) = socket.try_clone() else { return };
        let mut handler = BackendReqHandler::from_stream(socket, std::sync::Arc::clone(&self.front));
        // The first message that makes no sense ends it: the two sides are not at the same place any more.
        let error = loop {
            let handled = match self.enables(&near) {
                Ok(true) => continue,
                Ok(false) => handler.handle_request(),
                Err(error) => Err(Error::SocketBroken(error)),
            };
            if let Err(error) = handled {
                break error;
            }
        };
        if !matches!(error, Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_)) {
            *self.inner.refused.lock() = Some(error.to_string());
        }
    }

    /// **Blocks** until there is a message, and does what it says if it enables a ring or disables it. QEMU says so before it has said what was agreed, which `vhost`
    /// takes for an error.
    fn enables(&self, mut socket: &UnixStream) -> io::Result<bool> {
        let mut head = [0; 12];
        let (_, len) = retry_on_intr(|| recv(socket, &mut head, RecvFlags::PEEK))?;
        let [code, flags, size] = [0, 4, 8].map(|at| {
            let bytes = head.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
            u32::from_ne_bytes(bytes.unwrap_or_default())
        });
        if len < head.len() || code != message::SET_VRING_ENABLE || size != message::STATE_LEN {
            return Ok(false);
        }
        let mut message = [0; message::LEN];
        socket.read_exact(&mut message)?;
        let [.., a, b, c, d, e, f, g, h] = message;
        let (index, on) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
        let done = self.inner.with_ring(index, |ring| ring.enable(on != 0));
        self.inner.ring_bell();
        if flags & message::WANTS_ANSWER != 0 {
            let answer = [code, message::ANSWER, size, u32::from(done.is_none()), 0].map(u32::to_ne_bytes);
            socket.write_all(&answer.concat())?;
        }
        Ok(true)
    }
}

/// The message that enables a ring, and its answer: a header of three numbers, and two numbers.
mod message {
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const STATE_LEN: u32 = 8;
    pub const LEN: usize = 20;
    pub const WANTS_ANSWER: u32 = 8;
    /// The version, and that it is one.
    pub const ANSWER: u32 = 1 | 4;
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.front.lock().unwrap_or_else(std::sync::PoisonError::into_inner).end();
    }
}

/// A wait that does not wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Inner {
    fn count(&self, index: usize, amount: usize) {
        self.counts[index].fetch_add(amount as u64, Ordering::Relaxed);
    }

    fn ring_bell(&self) {
        // Refused only if the count is at its end, and then the level is there.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Acts on a ring. `None` if there is none of this number.
    fn with_ring<T>(&self, index: u32, act: impl FnOnce(&mut Ring) -> T) -> Option<T> {
        let pair = self.pairs.get(index as usize / RINGS)?;
        Some(match index as usize % RINGS {
            TO_GUEST => act(&mut pair.sender.lock().ring),
            _ => act(&mut pair.receiver.lock().ring),
        })
    }

    /// A ring of this number has been started.
    fn has_started(&self, index: u32) {
        // Release, with the acquire of `pairs`: a fact of its own, since each ring has its lock.
        self.started.fetch_max(index as usize / RINGS + 1, Ordering::Release);
    }

    /// **Blocks** until there are events, for so long at most, and takes them away.
    fn take_events(&self, timeout: Option<&Timespec>) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS_MAX];
        // A signal ends it early, which the caller may stand.
        let _ = epoll::wait(&self.events, &mut events, timeout);
    }

    /// Closes the connection, if there is one.
    fn hang_up(&self) {
        // Refused only if the other side has hung up.
        let _ = self.socket.lock().take().map(|socket| socket.shutdown(Shutdown::Both));
    }

    /// The connection has ended, and its rings are reset.
    fn lost(&self) {
        self.hang_up();
        // No ring is served any more: what waits for one is dropped.
        self.flush();
        self.started.store(0, Ordering::Release);
        self.is_connected.store(false, Ordering::Release);
        self.ring_bell();
    }

    /// The pairs that the front end has started rings of, and those between them.
    fn pairs(&self) -> &[Pair] {
        &self.pairs[..self.started.load(Ordering::Acquire).min(PAIRS_MAX)]
    }

    /// Gives the guest the frames that wait, as far as it has room.
    fn flush(&self) {
        for pair in self.pairs() {
            let flushed = pair.flush();
            self.count(DROPPED, flushed.lost);
            if flushed.again {
                self.ring_bell();
            }
        }
    }
}

impl Netif for VhostUser {
    fn mtu(&self) -> u32 {
        self.handle.inner.mtu
    }

    fn queue_count(&self) -> usize {
        1
    }

    fn medium(&self) -> Medium {
        Medium::Ethernet(self.handle.inner.mac)
    }

    fn offloads_checksum(&self) -> bool {
        false
    }

    fn attached(&self, _pool: &Pool) {
        // Perhaps to another stack than the one that has interrupted it.
        self.handle.inner.is_interrupted.store(false, Ordering::Release);
    }

    fn is_down(&self) -> bool {
        self.handle.inner.is_down.load(Ordering::Acquire)
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let (inner, offered) = (&*self.handle.inner, frames.len());
        let pairs = inner.pairs();
        // A remainder is less than the number of pairs.
        let first = flow.checked_rem(pairs.len() as u64).unwrap_or_default() as usize;
        for queue in (first..pairs.len()).chain(0..first) {
            let Some(turn) = pairs[queue].transmit(frames) else { continue };
            if turn.again {
                inner.ring_bell();
            }
            inner.count(FRAMES_OUT, turn.frames);
            inner.count(DROPPED, turn.lost);
            return Sent { queue, dropped_count: offered - turn.frames };
        }
        frames.clear();
        inner.count(DROPPED, offered);
        Sent { queue: 0, dropped_count: offered }
    }

    fn ring(&self, queue: usize) {
        self.handle.inner.pairs[queue.min(PAIRS_MAX - 1)].tell();
    }

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let inner = &*self.handle.inner;
        inner.flush();
        let pairs = inner.pairs();
        // One with many frames shall not keep the others out. Relaxed: any order will do.
        let turns = inner.turns.fetch_add(1, Ordering::Relaxed);
        let first = turns.checked_rem(pairs.len()).unwrap_or_default();
        let mut frames = 0;
        for pair in pairs[first..].iter().chain(&pairs[..first]) {
            if frames == max {
                break;
            }
            let turn = pair.receive(max - frames, sink);
            frames += turn.frames;
            inner.count(NONSENSE, turn.lost);
            if turn.again {
                inner.ring_bell();
            }
        }
        inner.count(FRAMES_IN, frames);
        frames
    }

    fn wait(&self, _queue: usize, _spin: Duration) {
        let inner = &*self.handle.inner;
        if !inner.is_interrupted.load(Ordering::Acquire) {
            inner.take_events(None);
        }
        inner.flush();
    }

    fn interrupt(&self, _queue: usize) {
        self.handle.inner.is_interrupted.store(true, Ordering::Release);
        self.handle.inner.ring_bell();
    }

    fn descriptor(&self, _queue: usize) -> Option<BorrowedFd<'_>> {
        Some(self.handle.inner.events.as_fd())
    }

    fn announced(&self, _queue: usize) {
        self.take_events();
    }
}
