//! When output has something to do: this saves calls of [`Pcb::transmit_into`].
//!
//! The functions repeat decisions of `output.rs` and change nothing. Invariants: [`Pcb::snd_due_at`] is never too
//! large for bytes that the application will append, or a stream would stall; if [`Pcb::has_sent_all`] is true, a call
//! would neither send nor start a timer. Tests: `tests/output.rs`; `tests/world.rs` checks the second for each segment
//! of each test.

use super::loss::Loss;
use super::pcb::Pcb;
use super::segment::Payload;
use super::state::State;
use super::timers::NEVER;

impl<P: Payload> Pcb<P> {
    /// Whether the congestion window has room for another segment (`tcp_cwnd_test`) and the output that has just ended has looked for text to send. An output
    /// that sends only a window probe does not look.
    pub fn has_looked_with_room(&self) -> bool {
        let mss = u32::from(self.mss);
        let window = self.recovery.window(&self.cc, mss);
        window.saturating_sub(self.snd_nxt.since(self.snd_una)) >= mss
            && self.loss.as_deref().is_none_or(Loss::was_looked_at)
    }

    /// Bytes of `so_snd`, which has `snd_len`, that have not been sent.
    #[inline]
    pub fn unsent(&self, snd_len: u32) -> u32 {
        snd_len.saturating_sub(self.snd_nxt.since(self.snd_una))
    }

    /// Those of them that no end of a record separates from the next write.
    #[inline]
    pub fn unsent_in_record(&self, snd_len: u32) -> u32 {
        let unsent = self.unsent(snd_len);
        let ended = self.rare.records().map_or(0, |ends| ends.last(self.snd_una));
        unsent.min(snd_len.saturating_sub(ended))
    }

    /// After [`transmit_into`](Self::transmit_into) has made a segment: true if it would make no other one and change
    /// nothing, as after most segments of a path that loses nothing. False means nothing.
    #[inline]
    pub fn has_sent_all(&self, snd_len: u32) -> bool {
        let is_plain = self.state == State::Established
            && self.loss.is_none()
            && self.reass.is_none()
            && self.recovery.is_at_rest();
        let is_sent = self.snd_nxt == self.snd_max && self.snd_nxt.since(self.snd_una) == snd_len;
        // The segment has acknowledged everything, and announced the present window.
        let owes =
            self.ack_now || self.dup_acks_owed > 0 || self.keep_probe || self.probe_now || self.fin_queued;
        is_plain && is_sent && snd_len > 0 && !owes && !self.syn_unacked
    }

    /// The length of `so_snd` from which on a writer should call `poll_transmit`, if the pcb does not change.
    ///
    /// Below this length, `poll_transmit` would send no data and start no timer. From it on, it would do one of the
    /// two, with harmless exceptions: more bytes than fit into a window that is too small for a segment, the first byte
    /// that must wait if records are kept, and text written while other text waits and nothing is in flight. Meaningful
    /// after `poll_transmit` has returned `None`. `u32::MAX`: something else must happen first, no matter what is
    /// appended.
    #[inline]
    pub fn snd_due_at(&self) -> u32 {
        if !self.state.can_send() {
            return u32::MAX;
        }
        let next_byte = self.snd_nxt.since(self.snd_una) + 1;
        // Nothing in flight, nothing held back: the first byte is sent, or starts the persist timer.
        let is_at_rest = self.rexmt_at == NEVER && self.loss.is_none();
        if is_at_rest { next_byte } else { self.snd_due_in_flight() }
    }

    /// The same if something may be in flight.
    #[inline(never)]
    fn snd_due_in_flight(&self) -> u32 {
        let offset = self.snd_nxt.since(self.snd_una);
        let next_byte = offset + 1;
        // The fact that there is something to send shows how the window is used, so output learns of the first byte
        // that waits.
        let is_untold = self.loss.as_deref().is_some_and(Loss::is_untold);
        let is_told = || !self.keeps_records() || (self.has_unsent() && !is_untold);
        if self.loss.as_deref().is_some_and(Loss::holds_new_data) {
            return if is_told() { u32::MAX } else { next_byte };
        }
        // Nothing in flight, though records are still kept.
        if self.rexmt_at == NEVER {
            return next_byte;
        }
        let usable = self.usable(offset);
        let has_whole = || usable >= u32::from(self.send_mss());
        if usable == 0 {
            if is_told() { self.held_due_at() } else { next_byte }
        } else if self.snd_nxt.before(self.snd_max) {
            next_byte
        } else if !self.small_may_go_with_more() && !self.ends_with_record() {
            if has_whole() { offset + u32::from(self.send_mss()) } else { self.held_due_at() }
        } else if self.snd_len.saturating_sub(offset) > usable
            && !has_whole()
            && usable < self.max_snd_wnd / 2
        {
            // Too small to be worth a segment alone.
            self.held_due_at()
        } else {
            next_byte
        }
    }

    /// The same if the windows have no room: another write may end a pause if nothing is in flight.
    #[cold]
    fn held_due_at(&self) -> u32 {
        if self.snd_una == self.snd_max { self.snd_len.saturating_add(1) } else { u32::MAX }
    }

    /// Whether what output learns of now was written before the segment that has just arrived, while something was in
    /// flight: such a write ends no pause (`tcp_skb_entail`).
    pub(super) fn learns_late(&self) -> bool {
        self.loss.as_deref().is_some_and(Loss::is_looked_at)
    }
}
