//! Direct data placement (RFC 5040): frames whose payload is read to where a waiting reader wants it.
//!
//! A thread that waits in a blocking read takes frames from its connection's queue (`busy.rs`). If the driver can
//! ([`Netif::receive_into`](crate::netif::Netif::receive_into)), the payload is then read into the reader's own buffer: it
//! is copied once, and no packet memory is used. That needs a guess before the frame is read: it will be for this
//! connection, and its headers are as long as those of the last one. What the last frame of the queue was stands in the [`Batch`],
//! so one wrong guess is followed by frames that are taken as always.
//!
//! A large frame is placed directly for the copy that it saves. Small ones are placed for what a batch saves, and only if the
//! buffer has room for as many as came last time: with less, each hold of the socket lock would serve fewer of them.
//!
//! # How
//! 1. Frames are *gathered*: read one behind the other into the buffer, while each is for the connection and its headers
//!    end where they should. Nothing is locked but the queue.
//! 2. The connection's socket lock is tried once for all of them (`tcp/conn/direct_placement.rs`), and those that are
//!    expected next are *accepted*: they count as received and read, in one section of the socket lock that finds
//!    `so_rcv` empty. So no byte that came earlier is still unread, and none of a later one is returned before it.
//! 3. Whatever was not accepted, and the frame that ended the gathering because the guess was wrong, is copied out of the
//!    buffer and goes the way of all others. The thread owns the queue throughout, so the order of a flow is kept.
//!
//! What lies in the buffer behind the bytes that the read returns has no meaning, as with any read.
//!
//! It must not know socket locks. The bytes may be anything: what is not plainly the segment that was guessed is
//! parsed again by `parse.rs`, which is the only one to drop and to count. The interface is foreign code: a frame that it did not put
//! where it was told to, or shows beside another, is dropped here ([`is_in_place`]). Tests: below, `tests/direct_placement.rs`,
//! `tests/panics/direct_placement.rs`, `drivers/tests/transfers.rs`.

use std::ops::Range;

use sockeye_mbuf::Chain;
use sockeye_proto::ip;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire;
use sockeye_sync::facade::Arc;

use super::busy::Place;
use super::ethernet::LinkHeader;
use super::parse::Origin;
use super::{BATCH_MAX, Batch, Lent, Packet, Transport, count, sort};
use crate::base::addr::{Endpoint, FourTuple};
use crate::base::payload::Data;
use crate::inet::Core;
use crate::inet::ip::Cast;
use crate::inet::netif::{Checksum, Medium, RxDirect, RxFrame};
use crate::rt::memory;

/// Most frames that are gathered: a batch.
const GATHERED_MAX: usize = BATCH_MAX;
/// Bytes after which no further frame is gathered: they are acknowledged together, and should be a part of a window only.
const GATHERED_BYTES_MAX: usize = 256 << 10;
/// Turns in a row that fill the reader's buffer before it is looked whether more frames come than it has room for.
const FULL_MAX: u8 = 16;
/// Text from which on a frame is placed though the buffer may hold fewer than come: its copy costs more than a hold of
/// the socket lock.
const LARGE_MIN: usize = 8 << 10;

/// A reader that waits, with its buffer, for data to be placed there.
pub(crate) struct DirectPlacement<'a, T: Transport> {
    conn: &'a Arc<T::Conn>,
    buf: &'a mut [u8],
    /// Bytes that were received into the buffer.
    taken: usize,
}

/// A segment whose text lies in the reader's buffer.
pub(crate) struct DirectSegment {
    pub header: Header,
    /// Where in the buffer.
    pub at: Range<usize>,
    /// Text that there was no room for.
    pub rest: Chain,
}

impl DirectSegment {
    /// Bytes of text, in the buffer and out of it.
    pub fn text_len(&self) -> u32 {
        u32::try_from(self.at.len() + self.rest.len()).unwrap_or(u32::MAX)
    }
}

/// What frames of a queue looked like last: the guess at the next.
#[derive(Clone, Copy, Default)]
pub(super) struct Guess {
    /// The connection that the last segment was for.
    to: Option<FourTuple>,
    head_len: usize,
    text_len: usize,
    /// Frames that were taken together; one more, if it is time to see whether there are more.
    together: usize,
    /// Turns in a row that ended because the reader's buffer was full: they cannot tell what else was there.
    full: u8,
}

impl Guess {
    /// Whether the last segment was for that connection.
    pub fn is_to(&self, conn: &FourTuple) -> bool {
        self.to.as_ref() == Some(conn)
    }

    /// Bytes that a reader's buffer has to have room for.
    fn room(&self) -> usize {
        let frames = if self.text_len >= LARGE_MIN { 1 } else { self.together.clamp(1, GATHERED_MAX) };
        self.text_len * frames
    }

    /// After a segment that came in a frame of so many bytes.
    pub fn note(&mut self, packet: &Packet, frame_len: usize) {
        self.text_len = packet.payload.0.len();
        (self.to, self.head_len) = (Some(packet.to), frame_len.saturating_sub(self.text_len));
    }

    /// After so many frames that were taken together, and no more were there.
    pub fn note_together(&mut self, frames: usize) {
        (self.together, self.full) = (frames, 0);
    }

    /// After so many for which there was room. A program that reads just what comes, as an answer of a known length, fills its buffer each
    /// time; so it is only now and then looked whether there was more.
    fn note_full(&mut self, frames: usize) {
        if self.full < FULL_MAX {
            (self.together, self.full) = (frames, self.full + 1);
        } else {
            (self.together, self.full) = (frames + 1, 0);
        }
    }
}

impl<'a, T: Transport> DirectPlacement<'a, T> {
    /// A read into `buf`.
    pub fn new(conn: &'a Arc<T::Conn>, buf: &'a mut [u8]) -> Self {
        Self { conn, buf, taken: 0 }
    }

    /// Bytes that were received into the buffer.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether the next frame is likely one that fits.
    pub(super) fn fits(&self, batch: &Batch) -> bool {
        let guess = &batch.guess;
        self.taken == 0 && self.buf.len() >= guess.room() && guess.is_to(T::tuple(self.conn))
    }

    /// Takes frames from the queue and handles them. Returns how many there were; `None` if the driver cannot do this.
    pub(super) fn turn(&mut self, core: &T, at: Place, batch: &mut Batch) -> Option<usize> {
        // The list keeps its memory between turns.
        let mut gathered = std::mem::take(&mut batch.gathered);
        let taken = self.gather(core, at, batch, &mut gathered);
        if let Some(frames @ 1..) = taken {
            core.input.count(count::FRAMES_IN, frames as u64);
            self.accept(core, at, batch, &mut gathered);
        }
        batch.gathered = gathered;
        taken
    }

    /// Handles what was gathered, and the frame that ended it.
    fn accept(&mut self, core: &T, at: Place, batch: &mut Batch, gathered: &mut Vec<DirectSegment>) {
        core.input.count(count::BATCHES, 1);
        core.input.count(count::PACKETS, (gathered.len() + batch.packets.len()) as u64);
        let (to, buf) = (*T::tuple(self.conn), &*self.buf);
        let lent = Lent { segments: gathered, taken: &mut self.taken };
        core.input_direct(self.conn, at, batch, lent, |segment| copied(core, to, buf, segment));
    }

    /// Reads frames to the buffer until there is no more, one is not as guessed, or a bound is reached. Returns how many there
    /// were.
    fn gather(
        &mut self,
        core: &T,
        at: Place,
        batch: &mut Batch,
        gathered: &mut Vec<DirectSegment>,
    ) -> Option<usize> {
        let Some(netif) = core.netifs.netif(at.netif) else { return Some(0) };
        let (medium, conn) = (netif.medium(), T::tuple(self.conn));
        let (mut frames, mut begin, mut is_full) = (0, 0, false);
        while !is_full {
            let (head_len, mut is_guessed, mut shown) = (batch.guess.head_len, false, 0);
            let place = &mut self.buf[begin..];
            let (place_at, room) = (place.as_ptr(), place.len());
            let got = netif.receive_into(core, at.queue, head_len, place, |frame| {
                shown += 1;
                if shown > 1 || !is_in_place(&frame, place_at, room) {
                    core.input.count(count::MISPLACED, 1);
                } else if let Some(segment) = guessed(core, medium, conn, &frame, (head_len, begin)) {
                    is_guessed = true;
                    batch.sole.note(true);
                    gathered.push(segment);
                } else {
                    let (whole, none) = ([frame.head, frame.placed, frame.rest].concat(), Chain::new());
                    let (checksum, gso_size) = (frame.checksum, frame.gso_size);
                    let frame = RxFrame { checksum, gso_size, ..RxFrame::new(&whole, &none) };
                    let tables = core.netifs.tables();
                    sort(core, Origin { netif: at.netif, medium, tables: &tables }, batch, frame);
                }
            })?;
            frames += got;
            let Some(last) = gathered.last().filter(|_| got > 0 && is_guessed) else { break };
            let len = last.at.len();
            begin = last.at.end;
            let has_no_room = !last.rest.is_empty() || self.buf.len() - begin < len.max(1);
            is_full = has_no_room || begin >= GATHERED_BYTES_MAX || gathered.len() >= GATHERED_MAX;
            batch.guess.text_len = len;
        }
        match (frames, is_full) {
            (0, _) => {}
            (_, true) => batch.guess.note_full(frames),
            (_, false) => batch.guess.note_together(frames),
        }
        Some(frames)
    }
}

/// A segment that was not accepted, and whose text lies in `buf`, in packet memory.
fn copied(core: &Core, to: FourTuple, buf: &[u8], segment: DirectSegment) -> Option<Packet> {
    let Some(mut payload) = copy_in(core, &buf[segment.at]) else {
        core.input.count(count::NO_MEMORY, 1);
        return None;
    };
    payload.append(segment.rest);
    Some(Packet { to, header: segment.header, payload: Data(payload) })
}

/// Whether an interface has put a frame where it was told to. Where the text of an accepted segment lies is computed from that.
fn is_in_place(frame: &RxDirect<'_>, place_at: *const u8, room: usize) -> bool {
    frame.placed.is_empty() || (frame.placed.as_ptr() == place_at && frame.placed.len() <= room)
}

/// The segment of a frame, if it is plainly one of `conn` and its text begins behind `head_len` bytes.
fn guessed(
    core: &Core,
    medium: Medium,
    conn: &FourTuple,
    frame: &RxDirect<'_>,
    (head_len, begin): (usize, usize),
) -> Option<DirectSegment> {
    let link = LinkHeader::read(medium, frame.head).ok()?;
    let packet = frame.head.get(link.len..).filter(|_| !link.is_arp && link.cast == Cast::Unicast)?;
    let (ip_header, inside) =
        ip::parse_head(packet, frame.len() - link.len, ip::HeaderChecksum::Verify).ok()?;
    let is_plain = ip_header.protocol == ip::PROTOCOL_TCP
        && !ip::ecn::is_marked(ip_header.traffic_class)
        && inside.end + link.len == frame.len();
    let segment = packet.get(inside.start..).filter(|_| is_plain)?;
    let (ports, header, text) = wire::parse(segment, wire::ChecksumIn::Trusted).ok()?;
    let addresses = ip_header.addresses;
    let local = Endpoint::new(addresses.dst(), ports.dst);
    let remote = Endpoint::new(addresses.src(), ports.src);
    let is_ours = (FourTuple { local, remote }) == *conn && !header.flags.has(Flags::BAD_OPTION);
    if !is_ours || !text.is_empty() || frame.head.len() != head_len {
        return None;
    }
    let is_good = match frame.checksum {
        Checksum::Device => true,
        Checksum::Software => sums_up(&ip_header, [segment, frame.placed, frame.rest]),
    };
    if !is_good {
        return None;
    }
    let rest = copy_in(core, frame.rest)?;
    Some(DirectSegment { header, at: begin..begin + frame.placed.len(), rest })
}

/// Whether the checksum of a segment in pieces is right.
fn sums_up(header: &ip::Header, pieces: [&[u8]; 3]) -> bool {
    let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
    // No packet is longer than its 16 bits of length say.
    let pseudo = header.addresses.pseudo_header(header.protocol, u32::try_from(len).unwrap_or(u32::MAX));
    pieces.iter().fold(pseudo, |sum, piece| sum.add_bytes(piece)).is_valid()
}

/// A copy in packet memory; `None` without any.
fn copy_in(core: &Core, bytes: &[u8]) -> Option<Chain> {
    memory::obtain(core, || core.pool.copy_in(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_of_just_what_comes_is_asked_for_more_room_only_now_and_then() {
        let mut guess = Guess { text_len: 1, together: 1, ..Guess::default() };
        let mut taken_as_always = 0;
        for _ in 0..10 * (usize::from(FULL_MAX) + 2) {
            if guess.room() <= 1 {
                guess.note_full(1);
            } else {
                taken_as_always += 1;
                guess.note_together(1);
            }
        }
        assert_eq!(taken_as_always, 10);
    }

    #[test]
    fn where_more_comes_than_there_was_room_for_it_is_found_out_and_remembered() {
        let mut guess = Guess { text_len: 1448, together: 1, ..Guess::default() };
        let mut turns = 0;
        while guess.room() <= 3 * 1448 && turns < 100 {
            guess.note_full(3);
            turns += 1;
        }
        assert_eq!(turns, usize::from(FULL_MAX) + 1);
        guess.note_together(32);
        assert_eq!(guess.room(), 32 * 1448);
        // A few come at the end, for which there is room.
        guess.note_together(2);
        assert_eq!(guess.room(), 2 * 1448);
        guess.text_len = LARGE_MIN;
        assert_eq!(guess.room(), LARGE_MIN);
    }
}
