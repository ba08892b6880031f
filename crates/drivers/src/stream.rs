//! Ethernet frames over a stream socket: QEMU's `-netdev stream`, and what passt and others speak.
//!
//! Each frame has its length before it, four bytes with the highest first. A frame of no or too many bytes ends the connection: the two sides are not
//! at the same place any more. What the socket does not take waits, up to [`UNSENT_MAX`] bytes; frames beyond are dropped and counted.
//!
//! # Connections
//! A [`FrameStream`] outlives its connections: [`FrameStream::connect`] gives it one, also in place of another. Without one it is silent. It is down
//! when [`FrameStream::end`] says that there will be none any more.
//!
//! # Why no wake-up is lost
//! A wait is a `poll` of the socket and of an eventfd, which is written for each thing that a waiter has to know beside frames: another connection, bytes
//! that wait for room, an interruption. The waiter reads the eventfd first and then looks at all three. `has_unsent` is written under the sender's mutex only.
//!
//! A driver that waits elsewhere has an epoll file of the same two ([`Netif::descriptor`]), each as an edge. It takes the edges away and sends what waits *before* it
//! receives, so whatever comes meanwhile is an edge again.
//!
//! # Locks
//! The receiver's mutex, and the sender's. `connect` takes the sender's under the receiver's: both halves get a connection at one time, and `is_connected` with them.
//! Whoever finds the end of a connection holds the mutex of its half, so it takes back no later one. One who answers a frame while it is shown has both in the same order.
//!
//! Does not depend on the content of frames. Tests: `stream/tests.rs`;
//! `apps/gateway/tests` with QEMU.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};
use sockeye_mbuf::{Chain, Pool};
use sockeye_netif::{MTU_MAX, MTU_MIN, MacAddr, Medium, Netif, RxFrame, Sent, TxFrame};
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU64, Ordering};

/// Bytes before each frame.
const LEN: usize = 4;
/// The longest frame, bytes: an Ethernet header with two VLAN tags, and the longest IP packet.
const FRAME_MAX: usize = 22 + 65_535;
/// Bytes that are read at once, at most: room for a frame and the next one's beginning at least.
const BUFFER: usize = 256 << 10;
const _: () = assert!(BUFFER > 2 * (LEN + FRAME_MAX));
/// Bytes that wait for the socket to take them, at most.
const UNSENT_MAX: usize = 1 << 20;
/// Pieces of a frame that are written without being joined first.
const PIECES_MAX: usize = 16;
/// Edges that are taken away at once, at least those of the bell, of the socket, and of an earlier one.
const EVENTS_MAX: usize = 4;
/// A wait that does not wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Ethernet frames over a stream socket. A handle: clones are the same interface.
#[derive(Clone, Debug)]
pub struct FrameStream {
    inner: Arc<Inner>,
}

/// Traffic since the beginning, over all connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts {
    /// Frames from the other side.
    pub frames_in: u64,
    /// Frames that were sent, or wait for it.
    pub frames_out: u64,
    /// Frames for which there was no room, or no connection.
    pub dropped: u64,
    /// Connections that ended since the other side sent no frame.
    pub broken: u64,
}

#[derive(Debug)]
struct Inner {
    mac: MacAddr,
    mtu: u32,
    receiver: Mutex<Receiver>,
    sender: Mutex<Sender>,
    /// (a) Bytes wait for room in the socket. Written under `sender`.
    has_unsent: AtomicBool,
    /// (a) There is a connection. Written by `connect` under both mutexes, and under one by whoever finds its end.
    is_connected: AtomicBool,
    /// (a) There will be no connection any more.
    is_down: AtomicBool,
    /// (a) The stack goes away.
    is_interrupted: AtomicBool,
    /// Wakes the thread that waits.
    bell: OwnedFd,
    /// The epoll file of the bell and the socket.
    events: OwnedFd,
    /// (a) Counters, in the order of [`StreamCounts`].
    counts: [AtomicU64; 4],
}

#[derive(Debug, Default)]
struct Receiver {
    socket: Option<Arc<OwnedFd>>,
    buffer: Vec<u8>,
    /// Bytes `from..to` of the buffer are not shown yet.
    from: usize,
    to: usize,
}

#[derive(Debug, Default)]
struct Sender {
    socket: Option<Arc<OwnedFd>>,
    /// Bytes that the socket has not taken yet.
    unsent: VecDeque<u8>,
}

/// Result of an attempt to fill a buffer.
enum Filled {
    Some,
    Nothing,
    End,
}

impl FrameStream {
    /// An interface of this Ethernet address, without a connection. `mtu`: bytes of the largest IP packet, 1,280 to 65,535.
    ///
    /// # Errors
    /// `InvalidInput` for an MTU out of bounds; the system's.
    pub fn new(mac: MacAddr, mtu: u32) -> io::Result<Self> {
        if !(MTU_MIN..MTU_MAX).contains(&mtu) {
            let message = format!("an MTU of {mtu}: it must be {MTU_MIN} to {}", MTU_MAX - 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&events, &bell, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
        let inner = Inner {
            mac,
            mtu,
            receiver: Mutex::new(Receiver::default()),
            sender: Mutex::new(Sender::default()),
            has_unsent: AtomicBool::new(false),
            is_connected: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            is_interrupted: AtomicBool::new(false),
            bell,
            events,
            counts: Default::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Goes on with this stream socket, which becomes non-blocking, in place of an earlier one, whose unsent bytes are dropped.
    ///
    /// # Errors
    /// The system's, if the descriptor cannot be made non-blocking; the earlier one then stays.
    pub fn connect(&self, socket: OwnedFd) -> io::Result<()> {
        fcntl_setfl(&socket, fcntl_getfl(&socket)? | OFlags::NONBLOCK)?;
        let inner = &*self.inner;
        // An earlier one leaves the file when its last descriptor is closed.
        epoll::add(
            &inner.events,
            &socket,
            EventData::new_u64(0),
            EventFlags::IN | EventFlags::OUT | EventFlags::ET,
        )?;
        let socket = Arc::new(socket);
        let receiver =
            Receiver { socket: Some(Arc::clone(&socket)), buffer: vec![0; BUFFER], from: 0, to: 0 };
        let sender = Sender { socket: Some(socket), ..Sender::default() };
        let (mut to_receiver, mut to_sender) = (inner.receiver.lock(), inner.sender.lock());
        let earlier =
            (std::mem::replace(&mut *to_receiver, receiver), std::mem::replace(&mut *to_sender, sender));
        inner.has_unsent.store(false, Ordering::Release);
        // Release, with the acquire of `is_connected`: a fact of its own. Under both locks: the end of an earlier connection is found before, that of this one after.
        inner.is_connected.store(true, Ordering::Release);
        drop((to_receiver, to_sender));
        drop(earlier);
        inner.ring();
        Ok(())
    }

    /// Whether there is a connection. It ends when the other side closes it or breaks the protocol.
    pub fn is_connected(&self) -> bool {
        self.inner.is_connected.load(Ordering::Acquire)
    }

    /// A descriptor of the socket, to wait at. `None` without a connection.
    ///
    /// # Errors
    /// The system's.
    pub fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let receiver = self.inner.receiver.lock();
        let socket = receiver.socket.as_ref().filter(|_| self.is_connected());
        socket.map(|socket| socket.try_clone()).transpose()
    }

    /// Whether bytes wait for room in the socket: [`flush`](Self::flush) is to be called when it is writable.
    pub fn has_unsent(&self) -> bool {
        self.inner.has_unsent.load(Ordering::Acquire)
    }

    /// Sends what waits, as far as there is room. Does not block.
    pub fn flush(&self) {
        let mut sender = self.inner.sender.lock();
        self.inner.flush(&mut sender);
    }

    /// There will be no connection any more: [`Netif::is_down`].
    pub fn end(&self) {
        self.inner.is_down.store(true, Ordering::Release);
        self.inner.ring();
    }

    /// Traffic so far.
    pub fn counts(&self) -> StreamCounts {
        let [frames_in, frames_out, dropped, broken] =
            [0, 1, 2, 3].map(|index: usize| self.inner.counts[index].load(Ordering::Relaxed));
        StreamCounts { frames_in, frames_out, dropped, broken }
    }
}

const FRAMES_IN: usize = 0;
const FRAMES_OUT: usize = 1;
const DROPPED: usize = 2;
const BROKEN: usize = 3;

impl Inner {
    fn count(&self, index: usize, amount: usize) {
        self.counts[index].fetch_add(amount as u64, Ordering::Relaxed);
    }

    fn ring(&self) {
        // Refused only if the count is at its end, and then the level is there.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// The connection is no more. The other half of this interface still holds the descriptor and finds the end by itself, and so does the other side, which may connect again.
    fn lost(&self, socket: Option<Arc<OwnedFd>>) {
        // Refused only if the other side has gone.
        let _ = socket.map(|socket| shutdown(&*socket, Shutdown::Both));
        self.is_connected.store(false, Ordering::Release);
    }

    fn flush(&self, sender: &mut Sender) {
        let Some(socket) = &sender.socket else { return };
        while !sender.unsent.is_empty() {
            let (first, rest) = sender.unsent.as_slices();
            match send(socket, &[IoSlice::new(first), IoSlice::new(rest)]) {
                Ok(len) => drop(sender.unsent.drain(..len)),
                Err(Errno::AGAIN) => return,
                Err(_) => return self.drop_sender(sender),
            }
        }
        self.has_unsent.store(false, Ordering::Release);
    }

    fn drop_sender(&self, sender: &mut Sender) {
        let ended = std::mem::take(sender);
        self.has_unsent.store(false, Ordering::Release);
        self.lost(ended.socket);
    }

    /// Sends a frame, or keeps it. False if there is no room.
    fn transmit(&self, sender: &mut Sender, frame: &TxFrame) -> bool {
        self.flush(sender);
        let Some(socket) = &sender.socket else { return false };
        let Ok(len) = u32::try_from(frame.len()) else { return false };
        let len = len.to_be_bytes();
        let mut sent = 0;
        if !sender.unsent.is_empty() {
            if sender.unsent.len() + LEN + frame.len() > UNSENT_MAX {
                return false;
            }
        } else if frame.payload.mbuf_count() <= PIECES_MAX - 2 {
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let (fixed, rest) = pieces.split_at_mut(2);
            (fixed[0], fixed[1]) = (IoSlice::new(&len), IoSlice::new(frame.head()));
            let filled = frame.payload.fill_io_slices(rest);
            match send(socket, &pieces[..2 + filled]) {
                Ok(len) => sent = len,
                Err(Errno::AGAIN) => {}
                Err(_) => {
                    self.drop_sender(sender);
                    return false;
                }
            }
        }
        if sent < LEN + frame.len() {
            for piece in [&len, frame.head()].into_iter().chain(frame.payload.iter()) {
                let taken = sent.min(piece.len());
                sender.unsent.extend(&piece[taken..]);
                sent -= taken;
            }
            self.has_unsent.store(true, Ordering::Release);
        }
        true
    }
}

fn send(socket: &OwnedFd, pieces: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), flags))
}

impl Receiver {
    /// The next frame that is there whole.
    ///
    /// # Errors
    /// It is none.
    fn next(&mut self) -> Result<Option<&[u8]>, ()> {
        let bytes = &self.buffer[self.from..self.to];
        let Some((len, rest)) = bytes.split_first_chunk::<LEN>() else { return Ok(None) };
        let len = usize::try_from(u32::from_be_bytes(*len)).unwrap_or(usize::MAX);
        if len == 0 || len > FRAME_MAX {
            return Err(());
        }
        let Some(frame) = rest.get(..len) else { return Ok(None) };
        self.from += LEN + len;
        Ok(Some(frame))
    }

    /// Reads more behind what is there.
    fn fill(&mut self) -> Filled {
        let Some(socket) = &self.socket else { return Filled::Nothing };
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        match retry_on_intr(|| rustix::io::read(&**socket, &mut self.buffer[self.to..])) {
            Ok(0) => Filled::End,
            Ok(len) => {
                self.to += len;
                Filled::Some
            }
            Err(Errno::AGAIN) => Filled::Nothing,
            Err(_) => Filled::End,
        }
    }
}

impl Netif for FrameStream {
    fn mtu(&self) -> u32 {
        self.inner.mtu
    }

    fn queue_count(&self) -> usize {
        1
    }

    fn medium(&self) -> Medium {
        Medium::Ethernet(self.inner.mac)
    }

    fn offloads_checksum(&self) -> bool {
        false
    }

    fn attached(&self, _pool: &Pool) {
        // Perhaps to another stack than the one that has interrupted it.
        self.inner.is_interrupted.store(false, Ordering::Release);
    }

    fn is_down(&self) -> bool {
        self.inner.is_down.load(Ordering::Acquire)
    }

    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let mut sender = self.inner.sender.lock();
        let offered = frames.len();
        let sent = frames.drain(..).filter(|frame| self.inner.transmit(&mut sender, frame)).count();
        drop(sender);
        self.inner.count(FRAMES_OUT, sent);
        self.inner.count(DROPPED, offered - sent);
        Sent { queue: 0, dropped_count: offered - sent }
    }

    fn ring(&self, _queue: usize) {
        if self.has_unsent() {
            self.inner.ring();
        }
    }

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut receiver = self.inner.receiver.lock();
        let (mut frames, nothing) = (0, Chain::new());
        while frames < max {
            match receiver.next() {
                Ok(Some(frame)) => {
                    sink(RxFrame::new(frame, &nothing));
                    frames += 1;
                    continue;
                }
                Ok(None) => {}
                Err(()) => {
                    self.inner.count(BROKEN, 1);
                    self.inner.lost(std::mem::take(&mut *receiver).socket);
                    break;
                }
            }
            match receiver.fill() {
                Filled::Some => {}
                Filled::Nothing => break,
                Filled::End => {
                    self.inner.lost(std::mem::take(&mut *receiver).socket);
                    break;
                }
            }
        }
        drop(receiver);
        self.inner.count(FRAMES_IN, frames);
        frames
    }

    fn wait(&self, _queue: usize, _spin: Duration) {
        let inner = &*self.inner;
        // What was rung for is looked at below.
        let _ = rustix::io::read(&inner.bell, &mut [0; 8]);
        if inner.is_interrupted.load(Ordering::Acquire) {
            return;
        }
        let socket = inner.receiver.lock().socket.clone().filter(|_| self.is_connected());
        let wanted = if self.has_unsent() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let bell = PollFd::new(&inner.bell, PollFlags::IN);
        let Some(socket) = socket else {
            // A signal ends it early, which the caller may stand; so below.
            let _ = poll(&mut [bell], None);
            return;
        };
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), wanted), bell];
        if poll(&mut fds, None).is_ok() && fds[0].revents().intersects(PollFlags::OUT) {
            self.flush();
        }
    }

    fn interrupt(&self, _queue: usize) {
        self.inner.is_interrupted.store(true, Ordering::Release);
        self.inner.ring();
    }

    fn descriptor(&self, _queue: usize) -> Option<BorrowedFd<'_>> {
        Some(self.inner.events.as_fd())
    }

    fn announced(&self, _queue: usize) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS_MAX];
        // It does not wait, so no signal ends it.
        let _ = epoll::wait(&self.inner.events, &mut events, Some(&NOW));
        self.flush();
    }
}

#[cfg(test)]
mod tests;
