//! `so_snd` and `so_rcv`: a socket's two buffers, under one socket lock.
//!
//! A reader or writer takes it for a short section; protocol code is its runner (`sync/src/socket_lock.rs`), and
//! takes it once for all it does in one go. (One lock and not two: a segment nearly always concerns both
//! directions, and no payload of more than a few kilobytes is copied while it is held.) Some values are
//! *agreements* between the two sides, and are read and written only under it, so that no thread can act on a
//! stale one:
//!
//! * [`SendBuf::due_at`]: the length from which a writer must have output run. The owner computes it
//!   from the very length it saw; a writer that appends afterwards sees it; so data is never left
//!   behind without a thread responsible for it.
//! * [`RecvBuf::adv`]: the window edge that the peer knows. The owner computes and stores it in one section,
//!   a reader unlinks data and asks [`RecvBuf::update_due`] in one section: either the owner saw the reader's
//!   space, or the reader sees the owner's edge. No window update is lost.
//! * [`RecvBuf::acks_at_read`]: whether the peer is to hear at once that the reader has taken bytes. The owner stores
//!   it in the section that delivered the bytes, a reader looks in the section that unlinks them.
//! * the wait queues' tickets, taken and notified under the same lock.
//!
//! Whether a socket is writable may change by an acknowledgment, by a larger buffer and, with TCP_NOTSENT_LOWAT, by output; the code
//! that makes such a change wakes in the section that makes it ([`notsent`]).
//!
//! Rank: after a squeue, if there is one, before a poller's inbox. A writer that holds it may go on as its runner: the pcb stands under
//! it too.

use std::ops::{Deref, DerefMut};

use sockeye_mbuf::Chain;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::delack::AckAtRead;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::push::{Pushes, Then};
use sockeye_proto::tcp::segment::Payload;
use sockeye_proto::tcp::window::window_update_due;
use sockeye_sync::reserved::Reserved;

use super::notsent::{self, Mark};
use super::reports::Reports;
use crate::base::payload::Data;
use crate::rt::poll::Waiters;
use crate::tcp::handshake::fastopen::Place;

/// The state under the socket lock of a connection: the buffers, and the state machine between them. `repr(C)`: in the order of use.
#[repr(C)]
pub(crate) struct Socket {
    buffers: Buffers,
    pub pcb: Pcb<Data>,
}

impl Socket {
    pub fn new(buffers: Buffers, pcb: Pcb<Data>) -> Self {
        Self { buffers, pcb }
    }

    /// Both apart, for protocol code.
    #[inline]
    pub fn parts(&mut self) -> (&mut Pcb<Data>, &mut Buffers) {
        (&mut self.pcb, &mut self.buffers)
    }
}

impl Deref for Socket {
    type Target = Buffers;
    #[inline]
    fn deref(&self) -> &Buffers {
        &self.buffers
    }
}

impl DerefMut for Socket {
    #[inline]
    fn deref_mut(&mut self) -> &mut Buffers {
        &mut self.buffers
    }
}

/// Both buffers, and their waiters. In the order of use: see [`Conn`](super::Conn).
#[repr(C)]
pub(crate) struct Buffers {
    pub snd: SendBuf,
    pub rcv: RecvBuf,
    /// Threads of `Conn::rcv_wait` and `Conn::snd_wait` apart, which announce themselves there.
    pub waiters: Waiters,
    /// Made at its SYN by Fast Open, and its handshake is not done: its place among those of its listener.
    pub fast_open: Option<Place>,
}

/// Bytes on their way out, from SND.UNA: unacknowledged ones first, then unsent ones.
pub(crate) struct SendBuf {
    pub chain: Chain,
    /// Bytes that may be buffered.
    pub hiwat: u32,
    /// Bytes that a writer is copying right now, already counted against `hiwat`.
    pub reserved: Reserved,
    /// Output is due once the chain is this long. `u32::MAX`: only an event can make it due.
    pub due_at: u32,
    /// Bytes of the longest run of whole segments that leaves by an interface at once, as of the last output. On loopback 0, as a segment is as
    /// long as the written data.
    pub unit: u32,
    /// The CPU on which space was last made: where the thread that wakes a blocked writer runs.
    pub cpu: u32,
    /// The application closed this direction, or the connection is gone: writes fail.
    pub shut: bool,
    /// The handshake is done.
    pub connected: bool,
    /// `hiwat` grows with the path's throughput.
    pub auto: bool,
    /// The SYN waits for the first write, to take it along (TCP_FASTOPEN_CONNECT).
    pub defers_syn: bool,
    /// State that hardly any connection on loopback has: apart, so that a connection's lines hold the common state.
    pub rare: Option<Box<Rare>>,
}

/// See [`SendBuf::rare`].
pub(crate) struct Rare {
    /// Bytes up to which the buffer is urgent and the pcb does not know it yet; 0 for none.
    pub urgent: u32,
    /// TCP_NOTSENT_LOWAT.
    pub mark: Mark,
    /// Where PSH stands, over an interface. On loopback it stands where a segment empties the buffer.
    pub pushes: Option<Pushes>,
    /// The latest writer has said that more will come (MSG_MORE), and the pcb does not know it yet.
    pub more: bool,
    /// MSG_ZEROCOPY's completions and time stamps, once any were asked for.
    pub reports: Option<Box<Reports>>,
}

impl Rare {
    fn new(lowat: u32, pushes: Option<Pushes>) -> Self {
        Self { urgent: 0, mark: Mark::new(lowat), pushes, more: false, reports: None }
    }

    fn is_idle(&self) -> bool {
        let has_mark = self.mark.lowat() != notsent::NONE;
        self.urgent == 0 && !has_mark && self.pushes.is_none() && !self.more && self.reports.is_none()
    }
}

impl SendBuf {
    /// `lowat` is TCP_NOTSENT_LOWAT, or [`notsent::NONE`]; `pushes` is there if segments leave the stack.
    pub fn new(hiwat: u32, auto: bool, connected: bool, lowat: u32, pushes: Option<Pushes>) -> Self {
        let rare = Rare::new(lowat, pushes);
        let rare = (!rare.is_idle()).then(|| Box::new(rare));
        Self {
            chain: Chain::new(),
            hiwat,
            reserved: Reserved::new(),
            due_at: if connected { 1 } else { u32::MAX },
            unit: 0,
            cpu: u32::MAX,
            shut: false,
            connected,
            auto,
            defers_syn: false,
            rare,
        }
    }

    /// The rare state, to be changed.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_with(|| Box::new(Rare::new(notsent::NONE, None)))
    }

    /// Gives it back if it says nothing any more.
    pub fn drop_idle_rare(&mut self) {
        if self.rare.as_deref().is_some_and(Rare::is_idle) {
            self.rare = None;
        }
    }

    /// `added` bytes were appended.
    #[inline]
    pub fn note_written(&mut self, added: u32, then: Then) {
        let len = self.len();
        if let Some(pushes) = self.pushes_mut() {
            pushes.written(added, len, then);
        }
    }

    /// An urgent write has appended bytes, which are noted next: the pointer stands behind them if `is_marked`.
    pub fn note_urgent(&mut self, is_marked: bool) {
        let len = self.len();
        let rare = self.rare_mut();
        if is_marked {
            rare.urgent = len;
        }
        if let Some(pushes) = &mut rare.pushes {
            pushes.urgent(len);
        }
    }

    /// Whether packets of a zero-copy send have a bounded number of parts: over an interface, with SO_ZEROCOPY.
    pub fn counts_parts(&self) -> bool {
        self.rare.as_deref().is_some_and(|rare| {
            rare.pushes.is_some() && rare.reports.as_deref().is_some_and(|reports| reports.zerocopy)
        })
    }

    /// A record ends with the buffer (MSG_EOR).
    pub fn note_record_end(&mut self) {
        let len = self.len();
        if let Some(pushes) = self.pushes_mut() {
            pushes.end_run(len);
        }
    }

    /// PSH stands behind the first `end` bytes, and is kept when they are sent again: they leave as a probe of a small window.
    #[cold]
    pub fn note_probe(&mut self, end: u32) {
        let len = self.len();
        if let Some(pushes) = self.pushes_mut() {
            pushes.mark_probe(end, len);
        }
    }

    /// A SYN takes them along.
    #[cold]
    pub fn note_pushed(&mut self, end: u32) {
        if let Some(pushes) = self.pushes_mut().filter(|_| end > 0) {
            pushes.leaves_with_syn(end);
        }
    }

    /// A write that has appended something waits for space, or ends for want of it.
    pub fn note_interrupted(&mut self) {
        let len = self.len();
        if let Some(pushes) = self.pushes_mut() {
            pushes.interrupted(len);
        }
    }

    /// Whether a segment of `len` bytes that leaves and ends `end` bytes from the front has PSH; `mss` as it is cut.
    #[inline]
    pub fn is_pushed<P: Payload>(&mut self, len: u32, end: u32, mss: u16, pcb: &Pcb<P>) -> bool {
        match self.pushes_mut() {
            None => end == self.len(),
            Some(pushes) => pushes.leaves(len, end, u32::from(mss), pcb),
        }
    }

    #[inline]
    fn pushes_mut(&mut self) -> Option<&mut Pushes> {
        self.rare.as_deref_mut()?.pushes.as_mut()
    }

    /// Bytes buffered.
    pub fn len(&self) -> u32 {
        u32::try_from(self.chain.len()).unwrap_or(u32::MAX)
    }

    /// Free bytes.
    pub fn space(&self) -> u32 {
        self.hiwat.saturating_sub(self.len()).saturating_sub(self.reserved.bytes())
    }

    /// Bytes that a writer may add now, of `want`; 0 if it has to wait. A writer that blocks waits for room that is worth it,
    /// instead of filling every gap with a segment; it is woken when the socket `is_writable`, and then has it. Where segments leave the
    /// stack, both fill what they have begun ([`Pushes::room`]), by which the buffer may have up to 64 KiB more than `hiwat`.
    pub fn room(&mut self, want: u32, blocks: bool) -> u32 {
        if !self.takes_bytes() {
            return 0;
        }
        let (space, len) = (self.space(), self.len() + self.reserved.bytes());
        let worth = if blocks { want.min(self.writable_space()) } else { 1 };
        let rare = self.rare.as_deref_mut();
        let mark = rare.as_ref().map_or(u32::MAX, |rare| rare.mark.room(len));
        let Some(pushes) = rare.and_then(|rare| rare.pushes.as_mut()) else {
            return if space < worth { 0 } else { want.min(space).min(mark) };
        };
        if !blocks && pushes.is_over(len) {
            return 0;
        }
        match space.min(mark) {
            most if most < want => want.min(pushes.room(len, most)),
            _ => want,
        }
    }

    /// Bytes that a writer appends at a time: at most `most`, or `most_large` where as much as half of `most` leaves at once.
    pub fn chunk(&self, most: usize, most_large: usize) -> usize {
        if self.unit as usize > most / 2 { most_large } else { most }
    }

    /// How many of these bytes a writer appends together. With the `unsent` bytes before them they make whole segments, so that without Nagle's
    /// algorithm no piece of a write ends with a short one.
    pub fn whole(&self, bytes: usize, unsent: impl FnOnce() -> usize) -> usize {
        let unit = self.unit as usize;
        if unit == 0 || unit > bytes {
            return bytes;
        }
        let rest = (unsent() + bytes) % unit;
        // Less than a unit, and so than the bytes.
        bytes - rest
    }

    /// Whether a writer may add bytes, if there is space.
    pub fn takes_bytes(&self) -> bool {
        self.connected || self.defers_syn
    }

    /// Whether a blocked writer is worth waking: a third of the buffer is free, as on Linux, so that
    /// one wake-up pays for many bytes, and little of it is unsent, if that matters.
    pub fn is_writable(&self) -> bool {
        self.shut || (self.takes_bytes() && self.has_space() && self.is_low())
    }

    /// Whether as much of the buffer is free as a writer waits for.
    pub fn has_space(&self) -> bool {
        self.space() >= self.writable_space()
    }

    #[inline]
    fn is_low(&self) -> bool {
        self.rare.as_deref().is_none_or(|rare| rare.mark.is_low(self.len() + self.reserved.bytes()))
    }

    /// The space from which on the socket counts as writable, bytes.
    fn writable_space(&self) -> u32 {
        self.hiwat / WRITABLE_PART
    }
}

/// Bytes that have arrived in order and wait for a reader.
pub(crate) struct RecvBuf {
    pub chain: Chain,
    /// Bytes that may be buffered.
    pub hiwat: u32,
    /// RCV.NXT without the peer's FIN: one past the last byte in `chain`.
    pub nxt: SeqNum,
    /// The right edge of the window last advertised.
    pub adv: SeqNum,
    /// The largest segment that the peer is expected to send, bytes (`Pcb::window_unit`).
    unit: u16,
    /// The largest window that can be advertised, bytes (`Pcb::rcv_wnd_max`).
    pub wnd_max: u32,
    /// SO_RCVLOWAT: a reader is told of bytes once there are so many.
    pub lowat: u32,
    /// The CPU on which data was last delivered, or `u16::MAX`.
    cpu: u16,
    /// No more bytes will come.
    pub eof: bool,
    /// They ended with the peer's FIN: nothing that it sent is missing, whatever happens afterwards.
    pub fin: bool,
    /// The application shut this direction down.
    pub shut: bool,
    /// The last handle is gone: arriving bytes have no reader.
    pub closed: bool,
    /// `hiwat` grows with the reader's rate.
    pub auto: bool,
    /// Whether an acknowledgment goes out when a reader takes bytes (`Pcb::acks_at_read`).
    pub acks_at_read: AckAtRead,
    /// The last urgent byte, until it is read.
    pub urgent: Option<SeqNum>,
}

impl RecvBuf {
    pub fn new(hiwat: u32, auto: bool) -> Self {
        Self {
            chain: Chain::new(),
            hiwat,
            nxt: SeqNum::default(),
            adv: SeqNum::default(),
            unit: 0,
            wnd_max: u32::MAX,
            lowat: 1,
            cpu: u16::MAX,
            eof: false,
            fin: false,
            shut: false,
            closed: false,
            auto,
            acks_at_read: AckAtRead::No,
            urgent: None,
        }
    }

    /// Takes over the values agreed on in the handshake.
    pub fn on_connected<P: Payload>(&mut self, pcb: &Pcb<P>) {
        self.nxt = pcb.rcv_nxt();
        self.adv = pcb.rcv_adv();
        // An MSS, or the unit of a scaled window, which is smaller than 16 bits can say.
        self.unit = u16::try_from(pcb.window_unit()).unwrap_or(u16::MAX);
        self.wnd_max = pcb.rcv_wnd_max();
    }

    /// After output: the values by which the reader decides.
    #[inline]
    pub fn settle<P: Payload>(&mut self, pcb: &Pcb<P>) {
        self.adv = pcb.rcv_adv();
        self.acks_at_read = pcb.acks_at_read();
    }

    /// Where data was last delivered: there runs the thread that wakes a blocked reader. `None` before.
    pub fn cpu(&self) -> Option<u32> {
        (self.cpu != u16::MAX).then_some(self.cpu.into())
    }

    /// Data is delivered on this CPU.
    #[inline]
    pub fn set_cpu(&mut self, cpu: u32) {
        self.cpu = u16::try_from(cpu).unwrap_or(u16::MAX);
    }

    /// Free bytes.
    pub fn space(&self) -> u32 {
        self.hiwat.saturating_sub(u32::try_from(self.chain.len()).unwrap_or(u32::MAX))
    }

    /// Whether the peer should be told of the space that there is now.
    pub fn update_due(&self) -> bool {
        let (space, hiwat) = (self.space().min(self.wnd_max), self.hiwat.min(self.wnd_max));
        !self.eof && window_update_due(space, self.nxt, self.adv, hiwat, self.unit.into())
    }

    /// Whether the peer should hear that the reader has taken bytes.
    #[inline]
    pub fn ack_due(&self) -> bool {
        self.acks_at_read.is_due(self.chain.is_empty())
    }

    /// The number of the first byte in `chain`.
    pub fn front(&self) -> SeqNum {
        self.nxt - u32::try_from(self.chain.len()).unwrap_or(u32::MAX)
    }

    /// Notes urgent data that ends with `mark`, unless later one is known.
    pub fn set_mark(&mut self, mark: SeqNum) {
        if self.urgent.is_none_or(|known| mark.after(known)) {
            self.urgent = Some(mark);
        }
    }

    /// Whether the next byte to be read is the last urgent one.
    pub fn at_mark(&self) -> bool {
        self.urgent == Some(self.front())
    }

    /// Whether the last urgent byte waits for a reader.
    pub fn has_urgent(&self) -> bool {
        self.urgent.is_some_and(|mark| mark.before(self.nxt))
    }

    /// How many of `wanted` bytes one read gives: it ends before the mark, unless it begins there.
    pub fn readable(&self, wanted: usize) -> usize {
        let most = self.chain.len().min(wanted);
        match self.urgent {
            None => most,
            Some(mark) => match mark.since(self.front()) as usize {
                0 => most,
                before => most.min(before),
            },
        }
    }

    /// After a read: a mark that was read is none any more.
    pub fn pass_mark(&mut self) {
        if self.urgent.is_some_and(|mark| mark.before(self.front())) {
            self.urgent = None;
        }
    }

    /// Whether a read would not block.
    pub fn is_readable(&self) -> bool {
        (!self.chain.is_empty() && (self.lowat <= 1 || self.has(self.lowat))) || self.eof || self.shut
    }

    /// Whether a blocking read of `wanted` bytes should wait although there are some: SO_RCVLOWAT asks for more. Not where nothing more
    /// can be expected, nor with urgent data, at which reads end.
    pub fn waits_for_more(&self, wanted: usize) -> bool {
        let least = self.lowat.min(u32::try_from(wanted).unwrap_or(u32::MAX));
        self.lowat > 1 && !self.eof && !self.shut && self.urgent.is_none() && !self.has(least)
    }

    /// Whether so many bytes wait, or as many as the peer may send for now (`tcp_epollin_ready`).
    fn has(&self, bytes: u32) -> bool {
        self.chain.len() >= bytes as usize || self.adv.since(self.nxt) <= u32::from(self.unit)
    }
}

/// A socket is writable when this part of its buffer is free.
const WRITABLE_PART: u32 = 3;
