//! SEGMENT ARRIVES in SYN-SENT (RFC 9293 section 3.10.7.3).
//!
//! The steps have the RFC's numbers. A bare SYN is a simultaneous open and leads to SYN-RECEIVED. Text in a SYN without
//! ACK is not kept; the peer retransmits it. Tests: `tests/handshake.rs`.

use crate::time::Instant;

use super::super::closed::reset_at;
use super::super::events::{Events, Input};
use super::super::pcb::Pcb;
use super::super::segment::{Flags, Header, Payload, Timestamps};
use super::super::state::State;
use super::super::timers::NEVER;
use super::super::timestamp;
use super::super::window;
use super::{Segment, Step};

impl<P: Payload> Pcb<P> {
    pub(super) fn arrives_in_syn_sent(&mut self, header: &Header, payload: P, now: Instant) -> Input<P> {
        let mut input = Input::default();
        let mut seg = Segment::new(header, payload);
        // Break only means that nothing is left to do.
        let _ = self.steps_in_syn_sent(&mut seg, now, &mut input);
        input
    }

    fn steps_in_syn_sent(&mut self, seg: &mut Segment<P>, now: Instant, input: &mut Input<P>) -> Step {
        let acked = seg.flags.has(Flags::ACK);
        // First: the ACK bit.
        if acked && !(seg.header.ack.after(self.iss) && seg.header.ack.at_or_before(self.snd_max)) {
            if !seg.flags.has(Flags::RST) {
                input.reply = Some(reset_at(seg.header.ack));
            }
            return Step::Break(());
        }
        if acked && self.echoes_another_syn(&seg.header, now) && !seg.flags.has(Flags::RST) {
            input.reply = Some(reset_at(seg.header.ack));
            return Step::Break(());
        }
        // Second: the RST bit. Without an acknowledgment of our SYN it may be forged.
        if seg.flags.has(Flags::RST) {
            if acked {
                self.enter_closed();
                input.events.insert(Events::REFUSED.with(Events::CLOSED));
            }
            return Step::Break(());
        }
        // Third, security and compartment, does not exist here. Fourth: the SYN bit. Fifth: without it, drop.
        if !seg.flags.has(Flags::SYN) {
            return Step::Break(());
        }
        self.last_rcv_at = now;
        self.take_syn(&seg.header, now);
        if !acked {
            self.state = State::SynReceived;
            self.spoil_timing();
            self.snd_nxt = self.iss;
            self.rexmt_at = NEVER;
            return Step::Break(());
        }
        let ts = seg.header.options.timestamps;
        let may_wait = self.acks.interactive || self.acks.writes_first;
        self.established(seg.header.ack, ts, now, input);
        self.acknowledge_handshake(may_wait, now);
        // "If there are other controls or text in the segment, then continue processing at the sixth step."
        seg.seq += 1;
        seg.flags = seg.flags.without(Flags::SYN);
        self.trim_to_window(seg);
        self.seventh_segment_text(seg, now, input)?;
        self.eighth_check_fin(seg, now, input)
    }

    /// Whether the segment echoes a timestamp that no SYN of this connection has had: then it answers an earlier
    /// connection between the same ends, whose sequence number fits by chance (Linux's `PAWSActiveRejected`).
    fn echoes_another_syn(&self, header: &Header, now: Instant) -> bool {
        let first = timestamp::value(self.rtt_sent_at(now), self.ts_offset);
        let last = timestamp::value(now, self.ts_offset);
        let is_between = |echo: u32| echo.wrapping_sub(first) <= last.wrapping_sub(first);
        let echo = header.options.timestamps.and_then(Timestamps::echo);
        self.ts_on && echo.is_some_and(|echo| !is_between(echo))
    }

    /// Processes the peer's SYN: its sequence number, window and options. Options that it did not offer are off.
    fn take_syn(&mut self, syn: &Header, now: Instant) {
        self.set_irs(syn.seq);
        self.snd_wnd = u32::from(syn.window);
        self.max_snd_wnd = self.snd_wnd;
        match syn.options.window_scale {
            Some(scale) if self.scaling => self.scale.snd = scale.min(window::WINDOW_SCALE_MAX),
            Some(_) | None => (self.scaling, self.scale.snd, self.scale.rcv) = (false, 0, 0),
        }
        match syn.options.timestamps {
            Some(ts) => (self.ts_recent, self.ts_recent_at) = (ts.val, now),
            None => self.ts_on = false,
        }
        self.take_user_timeout(syn);
        self.sack_ok &= syn.options.sack_permitted;
        self.agree_to_ecn(syn);
        self.set_peer_mss(syn.options.mss.unwrap_or(self.mss));
    }
}
