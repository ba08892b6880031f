//! TCP input: what a segment does to the connection (RFC 9293 section 3.10.7).
//!
//! [`Pcb::on_segment`] is the only entry. Nearly every segment of a busy connection is either the next data or an
//! acknowledgment of new data, and nothing more. Input recognises these first, and they take a fast path (Jacobson's
//! header prediction) through the same functions that the full procedure uses. All others go through `syn_sent`
//! (section 3.10.7.3) or `arrives` (3.10.7.4).
//!
//! Nothing of a possibly forged segment changes the state: `docs/blind.md` says which checks each variable needs before
//! it changes.
//!
//! It does not depend on buffers: it returns bytes and counts in [`Input`]. It only notes acknowledgments;
//! `poll_transmit` sends them. No content of a segment may make it panic. Tests: `input/tests.rs`, `tests/`.

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

/// A segment on its way through the steps. Once it is proven to be the peer's, it is cut to the receive window.
struct Segment<P> {
    /// The header as it arrived.
    header: Header,
    /// SEG.SEQ of the rest of it.
    seq: SeqNum,
    /// Its control bits, without those that were cut off.
    flags: Flags,
    payload: P,
    /// It arrived without text, SYN and FIN.
    is_bare: bool,
    /// It has passed the sequence check by itself, not as an answer to a probe.
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

/// Whether the remaining steps follow.
type Step = core::ops::ControlFlow<()>;

impl<P: Payload> Pcb<P> {
    /// Processes a segment. The caller must call `poll_transmit` afterwards, once per batch.
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

    /// Processes the segment that is expected next: in order, with nothing that needs the full procedure. The caller
    /// keeps its text, `len` bytes. Returns how many bytes to drop from the front of `so_snd`; all of the text is then
    /// in order. Any other segment returns `None` and changes nothing; it needs [`on_segment`](Self::on_segment). The
    /// header is in its short form, and is read in place.
    #[inline]
    pub fn on_expected_plain(&mut self, header: &PlainHeader, len: u32, now: Instant) -> Option<u32> {
        let now = self.clock(now);
        self.is_plain_predicted(header, len)
            .then(|| self.on_predicted(header, Piece::of_plain(header, len), now))
    }

    /// True if the segment is in order and inside the window, carries only text or news about our text, and there is no
    /// probe or hole to consider. A loss on our side is no obstacle: `acknowledge` handles it, and a duplicate
    /// acknowledgment brings no news.
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

    #[inline(always)]
    fn on_predicted(&mut self, header: &PlainHeader, piece: Piece, now: Instant) -> u32 {
        let text = if piece.len > 0 { self.text_of(piece) } else { self.no_text() };
        self.take_predicted(header, header.seq, text, now)
    }

    /// Applies a predicted segment, or several: `header` is that of the first, `last` is the sequence number of the
    /// last, and the text is that of all. Returns how many of our bytes are acknowledged.
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
        self.update_snd_wnd(last, moved || self.is_told_again(header.window), header.window);
        if text.len > 0 {
            self.advance_rcv_nxt(text, now);
        }
        acked
    }

    /// Updates TS.Recent (RFC 7323 section 4.3) from the earliest segment that the next acknowledgment will cover.
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

/// A payload's length. No payload is too long for 32 bits; if one were, the window test would fail.
fn payload_len<P: Payload>(payload: &P) -> u32 {
    u32::try_from(payload.len()).unwrap_or(u32::MAX)
}
