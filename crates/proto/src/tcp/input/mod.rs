//! TCP input: what a segment does to the connection (RFC 9293 section 3.10.7).
//!
//! [`Pcb::on_segment`] is the only way in. Nearly every segment of a busy connection is either the next
//! data or an acknowledgment of new data with nothing else about it; those are recognised first and
//! take a short path (Jacobson's header prediction) through the same functions that the full
//! procedure uses. All others go through `syn_sent` (section 3.10.7.3) or `arrives` (3.10.7.4).
//!
//! Nothing is kept of a segment that may be forged: what each variable needs before it changes stands in `docs/blind.md`.
//!
//! It does not depend on buffers: bytes and counts go back in [`Input`]. Acknowledgments are only noted, they
//! are sent by `poll_transmit`. No content of a segment may make it panic. Tests: `input/tests.rs`, `tests/`.

mod ack;
mod arrives;
mod challenge;
mod syn_sent;
mod text;

#[cfg(test)]
mod tests;

pub(super) use challenge::interval_ms;
#[cfg(test)]
pub(super) use challenge::{CHALLENGE_INTERVAL_MS, CHALLENGE_SPREAD_MS};

use crate::seq::SeqNum;
use crate::time::Instant;

use super::delack::{Piece, Text};
use super::events::Input;
use super::pcb::Pcb;
use super::sack::SackBlocks;
use super::segment::{Flags, Header, Payload, PlainHeader, Timestamps};
use super::state::State;
use super::timestamp;

/// A segment on its way through the steps. Once it is proven it is cut to the receive window.
struct Segment<P> {
    /// As it came.
    header: Header,
    /// SEG.SEQ of the rest of it.
    seq: SeqNum,
    /// Its control bits, less those that were cut off.
    flags: Flags,
    payload: P,
    /// It came without text, SYN and FIN.
    is_bare: bool,
    /// It has passed the sequence check itself, and not as an answer to a probe.
    is_acceptable: bool,
}

impl<P: Payload> Segment<P> {
    fn new(header: &Header, payload: P) -> Self {
        let is_bare = header.seq_len(payload.len()) == 0;
        Self { header: *header, seq: header.seq, flags: header.flags, payload, is_bare, is_acceptable: false }
    }

    /// SEG.LEN of the rest.
    fn seq_len(&self) -> u32 {
        Header { flags: self.flags, ..self.header }.seq_len(self.payload.len())
    }

    fn payload_len(&self) -> u32 {
        payload_len(&self.payload)
    }
}

/// Whether the remaining steps are to be done.
type Step = core::ops::ControlFlow<()>;

impl<P: Payload> Pcb<P> {
    /// Takes in a segment. `poll_transmit` has to follow, once per batch.
    ///
    /// The caller has matched the addresses and verified the checksum. A closed pcb drops everything.
    pub fn on_segment(&mut self, header: &Header, payload: P, now: Instant) -> Input<P> {
        let now = self.clock(now);
        let len = payload_len(&payload);
        if self.is_predicted(header, len) {
            let acked = self.on_predicted(&header.plain(), Piece::of(header, len), now);
            return Input { deliver: payload, acked, ..Input::default() };
        }
        match self.state {
            State::Closed => Input::default(),
            State::SynSent => self.arrives_in_syn_sent(header, payload, now),
            State::SynReceived
            | State::Established
            | State::CloseWait
            | State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.arrives(header, payload, now),
        }
    }

    /// Takes in a segment whose text, `len` bytes, the caller keeps, if it is the one that is expected next: in order, with
    /// nothing about it that needs the full procedure. Returns how many bytes to drop from the front of `so_snd`; all of the text
    /// is in order then. `None`, and nothing has changed, if it is any other, which is [`on_segment`](Self::on_segment)'s. The header
    /// is in its short form, and read where it stands.
    #[inline]
    pub fn on_expected_plain(&mut self, header: &PlainHeader, len: u32, now: Instant) -> Option<u32> {
        let now = self.clock(now);
        self.is_plain_predicted(header, len)
            .then(|| self.on_predicted(header, Piece::of_plain(header, len), now))
    }

    /// True if the segment is in order, inside the window, carries nothing but text or news about our own,
    /// and there is no probe or hole to think of. A loss of ours is no obstacle: `acknowledge` knows it,
    /// and a duplicate acknowledgment is no news.
    pub(super) fn is_predicted(&self, header: &Header, len: u32) -> bool {
        header.options.sack.is_empty()
            && header.options.user_timeout.is_none()
            && self.is_plain_predicted(&header.plain(), len)
    }

    #[inline(always)]
    fn is_plain_predicted(&self, header: &PlainHeader, len: u32) -> bool {
        const CONTROLS: Flags = Flags::SYN.with(Flags::FIN).with(Flags::RST).with(Flags::URG);
        const ODD: Flags = CONTROLS.with(Flags::ECE).with(Flags::CWR).with(Flags::CE);
        let timestamps_fit = match header.timestamps {
            Some(ts) => self.ts_on && !timestamp::older(ts.val, self.ts_recent),
            None => !self.ts_on,
        };
        let news = header.ack.raw().wrapping_sub(self.snd_una.raw());
        self.state == State::Established
            && !self.takes_all_steps
            && header.flags.has(Flags::ACK)
            && !header.flags.any(ODD)
            && header.seq == self.rcv_nxt
            && timestamps_fit
            && news <= self.snd_max.since(self.snd_una)
            && (news != 0 || len != 0)
            && len <= self.rcv_wnd()
            && !self.persist
            && self.reass.is_none()
    }

    #[inline]
    fn on_predicted(&mut self, header: &PlainHeader, piece: Piece, now: Instant) -> u32 {
        let text = if piece.len > 0 { self.text_of(piece) } else { self.no_text() };
        self.take_predicted(header, header.seq, text, now)
    }

    /// Changes by a predicted segment, or by several of which `header` is the first's and `last` the sequence number of
    /// the last, with all of their text. Returns how many bytes of ours it acknowledges.
    #[inline]
    pub(super) fn take_predicted(
        &mut self,
        header: &PlainHeader,
        last: SeqNum,
        text: Text,
        now: Instant,
    ) -> u32 {
        self.last_rcv_at = now;
        let ts = header.timestamps;
        self.note_timestamp(header.seq, ts, now);
        let moved = header.ack.after(self.snd_una);
        let acked = if moved {
            self.acknowledge(header.ack, ts, &SackBlocks::NONE, now)
        } else {
            self.look_at_usage_after_text(header.window);
            0
        };
        self.update_snd_wnd(last, moved, header.window);
        if text.len > 0 {
            self.advance_rcv_nxt(text, now);
        }
        acked
    }

    /// Keeps TS.Recent (RFC 7323 section 4.3): from the earliest segment that the next acknowledgment
    /// will cover.
    fn note_timestamp(&mut self, seq: SeqNum, timestamps: Option<Timestamps>, now: Instant) {
        if let Some(ts) = timestamps
            && self.ts_on
            && seq.at_or_before(self.last_ack_sent)
        {
            self.ts_recent = ts.val;
            self.ts_recent_at = now;
        }
    }
}

/// A payload's length. No memory can hold more than 32 bits count, but if one did, the window test fails.
fn payload_len<P: Payload>(payload: &P) -> u32 {
    u32::try_from(payload.len()).unwrap_or(u32::MAX)
}
