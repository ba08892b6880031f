//! The back end of a virtual machine's network card: virtio-net by vhost-user, as QEMU and other monitors speak it.
//!
//! The front end (the monitor) hands over the guest's memory and the places of two rings in it, over a UNIX socket; frames then go through that memory, and nobody
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
//! | this one | the [`Netif`], connections, the frames that wait |
//! | `front.rs` | what the front end says |
//! | `ring.rs` | one ring, and all that the guest may do wrong |
//!
//! Locks: the receiver's and the sender's mutex, which are the two rings'; the front's thread takes one at a time, and neither is taken under the other but
//! the sender's under the receiver's. Bounds: [`UNSENT_MAX`] bytes wait for room in the guest, frames beyond are dropped and counted. Tests: `ring/tests.rs`, and
//! `apps/gateway/tests/machines` with a front end, a guest of QEMU and hostile rings.

mod front;
mod ring;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::net::{RecvFlags, recv};
use sockeye_mbuf::Chain;
use sockeye_netif::{MTU_MAX, MTU_MIN, MacAddr, Medium, Netif, RxFrame, Sent, TxFrame};
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU64, Ordering};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::tun::vnet;
use front::Front;
use ring::{HEADER_LONG, Put, Ring, Taken};

/// The longest frame, bytes: an Ethernet header with two VLAN tags, and the longest IP packet.
const FRAME_MAX: usize = 22 + 65_535;
/// Bytes of frames that wait for the guest's buffers, at most.
const UNSENT_MAX: usize = 1 << 20;
/// Rings, by their numbers: what the guest receives, what it sends.
const TO_GUEST: u32 = 0;
const FROM_GUEST: u32 = 1;
/// How often a ring that had nothing is looked at once more since the guest has made something available meanwhile.
const LOOKS_MAX: usize = 64;
/// What is waited at: the guest's kicks by the rings' numbers, and the bell.
const BELL: u64 = 2;

/// Bits of virtio 1.2 (sections 5.1.3 and 6) and of vhost-user.
mod feature {
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const HOST_ECN: u64 = 1 << 13;
    pub const MERGED_BUFFERS: u64 = 1 << 15;
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
    receiver: Mutex<Receiver>,
    sender: Mutex<Sender>,
    /// (a) Frames wait for the guest's buffers. Written under `sender`.
    has_unsent: AtomicBool,
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

#[derive(Debug)]
struct Receiver {
    ring: Ring,
    /// Where a frame stands while it is shown.
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Sender {
    ring: Ring,
    unsent: VecDeque<TxFrame>,
    /// Bytes of these.
    unsent_len: usize,
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
            receiver: Mutex::new(Receiver { ring: Ring::new(), buffer: vec![0; HEADER_LONG + FRAME_MAX] }),
            sender: Mutex::new(Sender { ring: Ring::new(), unsent: VecDeque::new(), unsent_len: 0 }),
            has_unsent: AtomicBool::new(false),
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
        let (_, len) = recv(socket, &mut head, RecvFlags::PEEK)?;
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
        match index {
            TO_GUEST => Some(act(&mut self.sender.lock().ring)),
            FROM_GUEST => Some(act(&mut self.receiver.lock().ring)),
            _ => None,
        }
    }

    /// **Blocks** until there are events, for so long at most, and takes them away.
    fn take_events(&self, timeout: Option<&Timespec>) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 3];
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
        let mut sender = self.sender.lock();
        let count = sender.unsent.len();
        (sender.unsent, sender.unsent_len) = (VecDeque::new(), 0);
        self.has_unsent.store(false, Ordering::Release);
        drop(sender);
        self.count(DROPPED, count);
        self.is_connected.store(false, Ordering::Release);
        self.ring_bell();
    }

    /// Gives the guest the frames that wait, as far as it has room.
    fn flush(&self) {
        let mut sender = self.sender.lock();
        self.flush_locked(&mut sender);
        sender.ring.tell();
    }

    fn flush_locked(&self, sender: &mut Sender) {
        let mut looks = 0;
        while let Some(frame) = sender.unsent.front() {
            match sender.ring.put(header(sender.ring.features()), frame) {
                Put::Done => {}
                Put::TooLong => self.count(DROPPED, 1),
                // It is asked to say when there is more, which it may have made available meanwhile.
                Put::NoRoom if sender.ring.listen() && looks < LOOKS_MAX => {
                    looks += 1;
                    continue;
                }
                Put::NoRoom => {
                    if looks == LOOKS_MAX {
                        self.ring_bell();
                    }
                    break;
                }
            }
            let len = sender.unsent.pop_front().map_or(0, |frame| frame.len());
            sender.unsent_len = sender.unsent_len.saturating_sub(len);
        }
        if sender.unsent.is_empty() {
            sender.ring.quiet();
        }
        self.has_unsent.store(!sender.unsent.is_empty(), Ordering::Release);
    }

    /// Takes a frame for the guest. False if it was dropped.
    fn transmit(&self, sender: &mut Sender, frame: TxFrame) -> bool {
        if !sender.ring.is_served() {
            return false;
        }
        if sender.unsent.is_empty() {
            match sender.ring.put(header(sender.ring.features()), &frame) {
                Put::Done => return true,
                Put::TooLong => return false,
                Put::NoRoom => {}
            }
        }
        if sender.unsent_len + frame.len() > UNSENT_MAX {
            return false;
        }
        sender.unsent_len += frame.len();
        sender.unsent.push_back(frame);
        true
    }
}

/// The header before a frame to the guest: one packet, whose checksum is good.
fn header(features: u64) -> [u8; HEADER_LONG] {
    let mut header = [0; HEADER_LONG];
    header[0] = if features & feature::GUEST_CSUM != 0 { vnet::DATA_VALID } else { 0 };
    header
}

impl Receiver {
    /// Shows the guest's next frame. True if there was one, or something else.
    fn next(&mut self, inner: &Inner, sink: &mut dyn FnMut(RxFrame<'_>)) -> Taken {
        let taken = self.ring.take(&mut self.buffer);
        let Taken::Frame(len) = taken else { return taken };
        let (header_len, bytes) = (self.ring.header_len(), &self.buffer[..len]);
        let offers = vnet::Offers {
            checksum: self.ring.features() & feature::CSUM != 0,
            segments_v4: self.ring.features() & feature::HOST_TSO4 != 0,
            segments_v6: self.ring.features() & feature::HOST_TSO6 != 0,
        };
        let (Some(header), Some(frame)) = (bytes.first_chunk(), bytes.get(header_len..)) else {
            return Taken::Nonsense;
        };
        let Some((checksum, gso_size)) = vnet::of_guest(*header, offers) else { return Taken::Nonsense };
        if frame.is_empty() || frame.len() > FRAME_MAX {
            return Taken::Nonsense;
        }
        let nothing = Chain::new();
        sink(RxFrame { checksum, gso_size, ..RxFrame::new(frame, &nothing) });
        inner.count(FRAMES_IN, 1);
        taken
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

    fn is_down(&self) -> bool {
        self.handle.inner.is_down.load(Ordering::Acquire)
    }

    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let inner = &*self.handle.inner;
        let mut sender = inner.sender.lock();
        let offered = frames.len();
        let sent = frames.drain(..).map(|frame| usize::from(inner.transmit(&mut sender, frame))).sum();
        if !sender.unsent.is_empty() {
            inner.flush_locked(&mut sender);
        }
        drop(sender);
        inner.count(FRAMES_OUT, sent);
        inner.count(DROPPED, offered - sent);
        Sent { queue: 0, dropped_count: offered - sent }
    }

    fn ring(&self, _queue: usize) {
        self.handle.inner.sender.lock().ring.tell();
    }

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let inner = &*self.handle.inner;
        if inner.has_unsent.load(Ordering::Acquire) {
            inner.flush();
        }
        let mut receiver = inner.receiver.lock();
        let (mut frames, mut nonsense, mut looks) = (0, 0, 0);
        receiver.ring.quiet();
        while frames < max {
            match receiver.next(inner, sink) {
                Taken::Frame(_) => frames += 1,
                Taken::Nonsense if nonsense < max => nonsense += 1,
                Taken::Nothing if !receiver.ring.listen() => break,
                Taken::Nothing if looks < LOOKS_MAX => looks += 1,
                // The guest shall not keep this thread here, so it comes again for the rest.
                Taken::Nonsense | Taken::Nothing => {
                    inner.ring_bell();
                    break;
                }
            }
        }
        receiver.ring.tell();
        drop(receiver);
        inner.count(NONSENSE, nonsense);
        frames
    }

    fn wait(&self, _queue: usize, _spin: Duration) {
        let inner = &*self.handle.inner;
        if !inner.is_interrupted.load(Ordering::Acquire) {
            inner.take_events(None);
        }
        if inner.has_unsent.load(Ordering::Acquire) {
            inner.flush();
        }
    }

    fn interrupt(&self, _queue: usize) {
        self.handle.inner.is_interrupted.store(true, Ordering::Release);
        self.handle.inner.ring_bell();
    }
}
