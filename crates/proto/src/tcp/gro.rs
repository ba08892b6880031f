//! Segments that follow one another, taken in as one (generic receive offload, in software).
//!
//! The packets of a batch for one connection are mostly a row of segments that differ in nothing but their place in the
//! stream. A [`Joined`] begins with one that header prediction knows ([`Pcb::join_from`]), takes those that continue it
//! ([`Joined::add`]), and is then one step of the state machine ([`Pcb::on_joined`]) instead of many. Bytes stay the caller's.
//!
//! # What is joined
//! The rules are those of Linux's `tcp_gro_receive`, but a receiver still sees each segment:
//!
//! | field | rule |
//! |---|---|
//! | sequence number | continues the one before |
//! | text | some; all together fit the window, and are at most [`LEN_MAX`] |
//! | ACK, window | the same |
//! | flags, the mark of a router (CE) among them | the same but for PSH: which segments have it is kept |
//! | timestamps | TSecr the same, TSval as late as the first's or later |
//! | other options | none that a segment of an open connection is read for |
//!
//! So SYN, FIN, RST, URG, ECE, CWR and CE never come here: prediction refuses them in the first, and the others equal it.
//!
//! # Invariant
//! After [`Pcb::on_joined`] and output, the pcb is in the state that [`Pcb::on_segment`] for each and output would have led
//! to. Two things need care: acknowledgments count segments by the longest of them (RFC 5681 section 4.2), not by joined runs;
//! and TS.Recent is the first's, which begins at Last.ACK.sent (RFC 7323 section 4.3). Tests: below, against the same segments
//! one by one.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::delack::{Piece, Text};
use super::pcb::Pcb;
use super::segment::{Flags, Header, Payload, PlainHeader, Timestamps};
use super::timestamp;

/// Most bytes of text that are joined.
pub const LEN_MAX: u32 = 64 << 10;

/// Some segments in a row. Valid until the pcb that it is of takes in anything else.
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
    /// Adds a segment with `len` bytes of text, if it may be joined. `false`, and nothing has changed, if not.
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
    /// Begins with a segment of `len` bytes of text. `None`, and nothing has changed, if it has none or is not the one that is
    /// expected next; then it is [`Pcb::on_segment`]'s.
    #[inline]
    pub fn join_from(&self, header: &Header, len: u32) -> Option<Joined> {
        if len == 0 || len > LEN_MAX || !self.is_predicted(header, len) {
            return None;
        }
        let room = self.rcv_wnd().min(LEN_MAX) - len;
        let text = self.text_of(Piece::of(header, len));
        Some(Joined { first: header.plain(), last: header.seq, text, count: 1, room })
    }

    /// Takes in the run that [`Pcb::join_from`] has begun: all of its text is in order, and to be delivered. Returns how many
    /// bytes to drop from the front of `so_snd`. `poll_transmit` has to follow, once per batch.
    #[inline]
    pub fn on_joined(&mut self, joined: &Joined, now: Instant) -> u32 {
        let now = self.clock(now);
        self.take_predicted(&joined.first, joined.last, joined.text, now)
    }
}
