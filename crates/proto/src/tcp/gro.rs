//! Consecutive segments, processed as one (generic receive offload, in software).
//!
//! The packets of a batch for one connection are mostly a run of segments that differ only in their place in the
//! stream. A [`Joined`] begins with a segment that header prediction accepts ([`Pcb::join_from`]), adds those that
//! continue it ([`Joined::add`]), and is then one step of the state machine ([`Pcb::on_joined`]) instead of many. The
//! caller keeps the bytes.
//!
//! # What is joined
//! The rules are those of Linux's `tcp_gro_receive`, but a receiver still sees each segment:
//!
//! | field | rule |
//! |---|---|
//! | sequence number | continues the one before |
//! | text | at least one byte; all together fit the window, and are at most [`LEN_MAX`] |
//! | ACK, window | the same |
//! | flags, including a router's mark (CE) | the same except PSH: it is stored which segments have it |
//! | timestamps | TSecr the same, TSval not earlier than the first's |
//! | other options | none that input reads on a segment of an open connection |
//!
//! So segments with SYN, FIN, RST, URG, ECE, CWR or CE are never joined: prediction refuses them in the first, and the
//! others have the same flags.
//!
//! # Invariant
//! After [`Pcb::on_joined`] and output, the pcb is in the state that [`Pcb::on_segment`] for each and output would have
//! led to. Two things need care: acknowledgments count segments by the longest of them (RFC 5681 section 4.2), not
//! joined runs; and TS.Recent is that of the first, which begins at Last.ACK.sent (RFC 7323 section 4.3). Tests: below,
//! against the same segments one by one.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::delack::{Piece, Text};
use super::pcb::Pcb;
use super::segment::{Flags, Header, Payload, PlainHeader, Timestamps};
use super::timestamp;

/// Largest number of bytes of text that are joined.
pub const LEN_MAX: u32 = 64 << 10;

/// Some consecutive segments. Valid until its pcb processes anything else.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    first: PlainHeader,
    /// SEG.SEQ of the last.
    last: SeqNum,
    text: Text,
    count: u32,
    /// Text that may follow.
    room: u32,
}

impl Joined {
    /// Adds a segment with `len` bytes of text, if it may be joined. If not, returns `false` and changes nothing.
    #[inline]
    pub fn add(&mut self, header: &Header, len: u32) -> bool {
        let first = &self.first;
        let continues = header.seq == first.seq + self.text.len
            && header.ack == first.ack
            && header.window == first.window
            && header.flags.without(Flags::PSH) == first.flags.without(Flags::PSH)
            && follows(first.timestamps, header.options.timestamps)
            && header.options.sack.is_empty()
            && header.options.user_timeout.is_none();
        if !continues || len == 0 || len > self.room {
            return false;
        }
        self.last = header.seq;
        self.text.add(Piece::of(header, len));
        (self.room, self.count) = (self.room - len, self.count + 1);
        true
    }

    /// Bytes of text.
    pub fn text_len(&self) -> u32 {
        self.text.len
    }

    /// Segments.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// Whether a segment with the timestamps `next` may be joined to one with `first`.
fn follows(first: Option<Timestamps>, next: Option<Timestamps>) -> bool {
    match (first, next) {
        (Some(first), Some(next)) => next.ecr == first.ecr && !timestamp::older(next.val, first.val),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl<P: Payload> Pcb<P> {
    /// Begins with a segment of `len` bytes of text. If the segment has no text or is not the expected one, returns
    /// `None` and changes nothing; then use [`Pcb::on_segment`].
    #[inline]
    pub fn join_from(&self, header: &Header, len: u32) -> Option<Joined> {
        if len == 0 || len > LEN_MAX || !self.is_predicted(header, len) {
            return None;
        }
        let room = self.rcv_wnd().min(LEN_MAX) - len;
        let text = self.text_of(Piece::of(header, len));
        Some(Joined { first: header.plain(), last: header.seq, text, count: 1, room })
    }

    /// Processes the run that [`Pcb::join_from`] has begun: all of its text is in order, and must be delivered. Returns
    /// how many bytes to drop from the front of `so_snd`. The caller must call `poll_transmit` afterwards, once per
    /// batch.
    #[inline]
    pub fn on_joined(&mut self, joined: &Joined, now: Instant) -> u32 {
        let now = self.clock(now);
        self.take_predicted(&joined.first, joined.last, joined.text, now)
    }
}
