//! Seventh and eighth step: segment text and the FIN bit (RFC 9293 section 3.10.7.4).
//!
//! Moves RCV.NXT, keeps out-of-order text, decides when an acknowledgment is due, and changes the state at the peer's
//! FIN. It does not depend on SND variables. Invariant: only bytes that continue RCV.NXT are delivered, each once.
//! Tests: `tests/transfer.rs`, `tests/delack.rs`, `tests/close.rs`.

use crate::time::Instant;

use super::super::delack::{Piece, Text};
use super::super::events::{Events, Input};
use super::super::pcb::Pcb;
use super::super::reass::Reass;
use super::super::segment::{Flags, Payload};
use super::super::state::State;
use super::{Segment, Step, payload_len};

impl<P: Payload> Pcb<P> {
    /// Seventh: the segment text. After the peer's FIN there can be no text, so it is ignored.
    pub(super) fn seventh_segment_text(
        &mut self,
        seg: &mut Segment<P>,
        now: Instant,
        input: &mut Input<P>,
    ) -> Step {
        if seg.payload.is_empty() || !self.state.receives() {
            return Step::Continue(());
        }
        if self.closed {
            // Nobody will read it, and the peer must not believe that it was read.
            input.reply = Some(self.reset_answering(&seg.header));
            input.events.insert(Events::DATA_AFTER_CLOSE.with(Events::CLOSED));
            self.enter_closed();
            return Step::Break(());
        }
        let len = seg.payload_len();
        let begin = seg.header.seq + u32::from(seg.header.flags.has(Flags::SYN));
        let piece = Piece::of(&seg.header, len).behind(seg.seq.since(begin));
        let payload = core::mem::take(&mut seg.payload);
        if seg.flags.has(Flags::FIN) && self.state == State::Established {
            // Its acknowledgment waits with that of the FIN.
            self.acks.interactive = true;
        }
        if seg.seq == self.rcv_nxt && self.reass.is_none() {
            let text = self.text_of(piece);
            self.advance_rcv_nxt(text, now);
            input.deliver = payload;
        } else {
            self.reassemble(seg, payload, piece, now, input);
        }
        seg.seq += len;
        Step::Continue(())
    }

    /// Eighth: the FIN bit. A FIN that arrives before the text in front of it waits in the queue.
    pub(super) fn eighth_check_fin(&mut self, seg: &Segment<P>, now: Instant, input: &mut Input<P>) -> Step {
        if !self.state.receives() {
            return Step::Continue(());
        }
        if seg.flags.has(Flags::FIN) && seg.seq.after(self.rcv_nxt) {
            if self.closed {
                // There was text before it, which nobody will read.
                input.reply = Some(self.reset_answering(&seg.header));
                input.events.insert(Events::DATA_AFTER_CLOSE.with(Events::CLOSED));
                self.enter_closed();
                return Step::Break(());
            }
            self.reass
                .get_or_insert_with(|| Box::new(Reass::new(self.rcv_nxt, self.sack_ok)))
                .note_fin(seg.seq);
            // If there was text before the FIN, it has already been answered.
            if seg.seq == seg.header.seq {
                self.owe_duplicate(now);
            }
        }
        let in_order = seg.flags.has(Flags::FIN) && seg.seq == self.rcv_nxt;
        let waiting = self.reass.as_mut().is_some_and(|reass| reass.take_fin(self.rcv_nxt));
        if in_order || waiting {
            self.on_peer_fin(now, input);
        }
        if self.reass.as_ref().is_some_and(|reass| reass.is_empty()) {
            self.reass = None;
        }
        Step::Continue(())
    }

    /// More bytes are in order. Decides on their acknowledgment (RFC 9293 section 3.8.6.3).
    #[inline]
    pub(super) fn advance_rcv_nxt(&mut self, text: Text, now: Instant) {
        self.rcv_nxt += text.len;
        self.owe_ack(text, now);
    }

    /// Processes text with a hole before it, or text that fills one.
    fn reassemble(&mut self, seg: &Segment<P>, payload: P, piece: Piece, now: Instant, input: &mut Input<P>) {
        // A duplicate part at its beginning was cut off.
        let is_rest = seg.seq != seg.header.seq;
        let fills = seg.seq == self.rcv_nxt;
        let (nxt, reports) = (self.rcv_nxt, self.sack_ok);
        let reass = self.reass.get_or_insert_with(|| Box::new(Reass::new(nxt, reports)));
        let had_hole = reass.has_text();
        reass.insert(seg.seq, payload, is_rest);
        if !fills {
            self.owe_duplicate(now);
            return;
        }
        while let Some(run) = reass.take(self.rcv_nxt) {
            self.rcv_nxt += payload_len(&run);
            input.deliver.append(run);
        }
        let text = self.text_of(piece);
        self.owe_ack(text, now);
        if !had_hole {
            // Only a duplicate waits to be reported, and it is not urgent (`tcp_data_queue`).
            return;
        }
        // A hole was filled: the peer must learn this at once (RFC 5681 section 4.2). Duplicate acknowledgments that
        // are still due would now have the new number and be wrong.
        self.dup_acks_owed = 0;
        self.ack_now = true;
    }

    /// True if text has arrived that has a hole before it.
    pub fn has_hole(&self) -> bool {
        self.reass.as_ref().is_some_and(|reass| reass.has_text())
    }

    /// Discards text that has a hole before it, because the caller needs its memory. None of it was acknowledged, and
    /// RFC 2018 section 8 lets a receiver renege on its reports, so the peer retransmits it; with SACK after a timeout.
    /// Returns the discarded text.
    pub fn prune(&mut self) -> P {
        let Some(reass) = self.reass.as_deref_mut() else { return P::default() };
        let dropped = reass.prune();
        if reass.is_empty() {
            self.reass = None;
        }
        dropped
    }

    /// Processes the peer's FIN when everything before it has arrived.
    fn on_peer_fin(&mut self, now: Instant, input: &mut Input<P>) {
        self.rcv_nxt += 1;
        self.dup_acks_owed = 0;
        self.acks.scheduled = true;
        self.reass = None;
        input.events.insert(Events::PEER_FIN);
        match self.state {
            State::Established => {
                self.state = State::CloseWait;
                self.on_fin_to_answer(now);
            }
            State::FinWait1 => {
                self.state = State::Closing;
                self.ack_now = true;
            }
            State::FinWait2 => {
                self.enter_time_wait(now, input);
                self.ack_now = true;
            }
            State::SynSent
            | State::SynReceived
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => {}
        }
    }
}
