//! SEGMENT ARRIVES in every synchronised state and SYN-RECEIVED (RFC 9293 section 3.10.7.4).
//!
//! The parent is [`Pcb::arrives`]; its steps have the RFC's numbers and order, so that they can be compared: 1 to 4 and
//! 6 here, 5 in `ack`, 7 and 8 in `text`. The fifth step makes the RFC's idealised segment, which begins at RCV.NXT or
//! later and does not exceed the window, after the ACK field has proven that the segment is the peer's
//! ([`Pcb::take_proven`]). Tests: `tests/attacks.rs`, `tests/blind.rs`, `tests/windows.rs`, `tests/transitions.rs`.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::delack::QUICK_ACKS_MAX;
use super::super::events::{Events, Input};
use super::super::pcb::Pcb;
use super::super::reass::Reass;
use super::super::segment::{Flags, Header, Payload};
use super::super::state::State;
use super::super::timers::NEVER;
use super::super::timestamp;
use super::challenge::PROBE_INTERVAL_MS;
use super::{Segment, Step};

/// Ticks by which a timestamp may be older than the latest, as on Linux (`TCP_PAWS_WINDOW`): segments from two of the peer's cores may overtake each other.
const PAWS_WINDOW: i32 = 1;

impl<P: Payload> Pcb<P> {
    pub(super) fn arrives(&mut self, header: &Header, payload: P, now: Instant) -> Input<P> {
        let mut input = Input::default();
        let mut seg = Segment::new(header, payload);
        // Break only means that nothing is left to do.
        let _ = self.steps(&mut seg, now, &mut input);
        input
    }

    fn steps(&mut self, seg: &mut Segment<P>, now: Instant, input: &mut Input<P>) -> Step {
        // Without ACK, SYN and RST: no peer sends such a segment, so it gets no answer, as on Linux. Only behind a
        // socket that is gone does Linux look at its number first (`tcp_timewait_state_process`).
        let is_gone = self.orphaned && self.state == State::FinWait2;
        if self.answers_syn_again(&seg.header, now, &mut input.events)
            || !(is_gone || seg.flags.any(Flags::ACK.with(Flags::SYN).with(Flags::RST)))
        {
            return Step::Break(());
        }
        self.first_check_sequence(seg, now)?;
        self.second_check_rst(seg, now, input)?;
        // Third, security and compartment, does not exist here.
        self.fourth_check_syn(seg, now)?;
        let brings_nothing = self.brings_nothing(seg);
        self.fifth_check_ack(seg, now, input)?;
        self.sixth_check_urg(&seg.header, input);
        let waits = self.delack_at != NEVER;
        self.seventh_segment_text(seg, now, input)?;
        self.eighth_check_fin(seg, now, input)?;
        if waits && !brings_nothing {
            self.recheck_waiting_ack(now);
        }
        Step::Continue(())
    }

    /// First: checks that the segment is in the window, and that it is not an old duplicate from before the numbers
    /// wrapped (PAWS).
    fn first_check_sequence(&mut self, seg: &mut Segment<P>, now: Instant) -> Step {
        self.strip_syn_of_simultaneous_open(seg);
        self.check_paws(seg, now)?;
        seg.is_acceptable = self.is_acceptable(seg);
        if seg.is_acceptable { Step::Continue(()) } else { self.on_unacceptable(seg, now) }
    }

    /// The segment has passed every check, so it is the peer's. Processes everything that it carries besides text and
    /// acknowledgment, and cuts it to the window.
    pub(super) fn take_proven(&mut self, seg: &mut Segment<P>, now: Instant) {
        self.last_rcv_at = now;
        // The timestamp of a segment that a later acknowledgment has overtaken does not count either, as on Linux,
        // whose fast path ignores it.
        let is_heard = !seg.header.ack.before(self.snd_una) || self.is_on_short_path(seg);
        let ts = seg.header.options.timestamps.filter(|ts| !self.is_older(ts.val, 0, now));
        if seg.is_acceptable && is_heard {
            self.note_timestamp(seg.seq, ts, now);
        }
        self.take_user_timeout(&seg.header);
        if self.ecn.is_accurate() {
            self.count_marks(&seg.header, seg.payload_len());
        }
        self.trim_to_window(seg);
        self.note_marks(seg.flags, (!seg.payload.is_empty()).then_some(seg.seq));
    }

    /// In a simultaneous open, the peer's SYN-ACK repeats the SYN that was already processed. It is cut off, as
    /// everything left of the window, and the acknowledgment that opens the connection remains.
    fn strip_syn_of_simultaneous_open(&self, seg: &mut Segment<P>) {
        let repeated = self.state == State::SynReceived
            && seg.flags.has(Flags::SYN)
            && seg.flags.has(Flags::ACK)
            && seg.seq + 1 == self.rcv_nxt;
        if repeated {
            seg.flags = seg.flags.without(Flags::SYN);
            seg.seq += 1;
        }
    }

    /// RFC 7323 section 5.3 step R1. Resets pass. A segment without the option passes, too: section 3.2 would drop it,
    /// but peers and middleboxes sometimes omit the option, and the connection would hang. Linux also accepts it.
    fn check_paws(&mut self, seg: &Segment<P>, now: Instant) -> Step {
        if !self.ts_on || seg.flags.has(Flags::RST) {
            return Step::Continue(());
        }
        match seg.header.options.timestamps {
            Some(ts) if self.is_older(ts.val, PAWS_WINDOW, now) => {
                if self.is_overtaken_duplicate(seg, ts.val) {
                    return Step::Continue(());
                }
                // The latest text has overtaken this older acknowledgment, which needs no answer (Linux's
                // `tcp_disordered_ack_check`).
                let is_overtaken = seg.seq_len() == 0 && seg.seq.before(self.rcv_nxt);
                if seg.flags.has(Flags::SYN) || !is_overtaken && !self.acknowledges_plausibly(seg) {
                    self.challenge(now);
                } else if !is_overtaken {
                    self.answer_repeated_text(seg);
                    self.acknowledge_unacceptable(seg, now);
                }
                Step::Break(())
            }
            None | Some(_) => Step::Continue(()),
        }
    }

    /// Whether a timestamp is older than TS.Recent by more than this many ticks, provided that TS.Recent is neither too
    /// old to compare nor zero ([`timestamp::is_stale`]). A timestamp half of the number circle away is not older.
    fn is_older(&self, val: u32, ticks: i32, now: Instant) -> bool {
        self.ts_recent != 0
            && self.ts_recent.wrapping_sub(val) as i32 > ticks
            && now.since(self.ts_recent_at) <= timestamp::RECENT_MAX_AGE
    }

    /// Whether a segment with an old timestamp is a duplicate acknowledgment that was overtaken a moment ago, and shows
    /// a hole as any other (`tcp_disordered_ack_check`).
    fn is_overtaken_duplicate(&self, seg: &Segment<P>, val: u32) -> bool {
        let age_us = u64::from(self.ts_recent.wrapping_sub(val)) * 1_000;
        seg.is_bare
            && seg.flags.has(Flags::ACK)
            && seg.seq == self.rcv_nxt
            && seg.header.ack == self.snd_una
            && !self.brings_window(seg.seq, false, seg.header.window)
            && age_us <= self.rtt.rto_us(self.tuning.rto_max_us) * 6 / 5
    }

    /// The test of RFC 9293 section 3.4 (table 6), with two exceptions: a segment without length may also have the
    /// number of the window's right edge, because a peer that has filled the window can send its acknowledgments with
    /// no other number; and the peer may retransmit its latest text.
    fn is_acceptable(&self, seg: &Segment<P>) -> bool {
        let wnd = self.rcv_wnd();
        let past = |seq: SeqNum| seq.raw().wrapping_sub(self.rcv_nxt.raw());
        let touches = match seg.seq_len() {
            0 => past(seg.seq) <= wnd,
            len => past(seg.seq) < wnd || past(seg.seq + (len - 1)) < wnd,
        };
        touches || self.is_latest_again(seg)
    }

    /// Whether a segment lies before RCV.NXT, and ends at our latest acknowledgment or later. Its sender may not have
    /// seen that acknowledgment, and may bring more news than in the first transmission: acknowledgment, window and
    /// timestamp count, as on Linux (`tcp_sequence`).
    fn is_latest_again(&self, seg: &Segment<P>) -> bool {
        let end = seg.seq + seg.seq_len();
        self.is_open()
            && seg.seq.before(self.rcv_nxt)
            && end.at_or_after(self.last_ack_sent)
            && end.at_or_before(self.rcv_nxt)
    }

    /// Answers an unacceptable segment with an acknowledgment and drops it, unless it is a reset.
    fn on_unacceptable(&mut self, seg: &Segment<P>, now: Instant) -> Step {
        let closed_window = self.rcv_wnd() == 0 && seg.seq == self.rcv_nxt;
        if seg.flags.has(Flags::RST) {
            // A reset with text, at a closed window: its sequence number decides (MUST-66).
            return if closed_window { Step::Continue(()) } else { Step::Break(()) };
        }
        if seg.flags.has(Flags::SYN) || !self.acknowledges_plausibly(seg) {
            self.challenge(now);
            return Step::Break(());
        }
        self.answer_repeated_text(seg);
        self.acknowledge_unacceptable(seg, now);
        if self.state == State::TimeWait
            && seg.flags.has(Flags::FIN)
            && seg.seq + seg.seq_len() == self.rcv_nxt
        {
            // The peer has not seen the acknowledgment of its FIN: TIME-WAIT restarts.
            self.two_msl_at = now + self.tuning.time_wait();
        }
        if closed_window {
            // A window probe: its text is refused, but its acknowledgment counts (RFC 9293 section 3.10.7.4).
            return Step::Continue(());
        }
        Step::Break(())
    }

    /// Reports the text of a dropped segment as a duplicate if it had arrived before.
    fn answer_repeated_text(&mut self, seg: &Segment<P>) {
        self.forget_waiting_duplicate(seg);
        self.note_duplicate(seg.seq, seg.payload_len());
        if seg.seq_len() > 0 && seg.seq.before(self.rcv_nxt) {
            // The acknowledgment was lost or is late.
            self.enter_quick_acks(QUICK_ACKS_MAX);
        }
    }

    /// Whether an unacceptable segment may be a retransmission of the peer: it passes the fifth step's check. A sender
    /// that does not see our segments would have to guess to pass it.
    fn acknowledges_plausibly(&self, seg: &Segment<P>) -> bool {
        seg.flags.has(Flags::ACK) && self.is_in_ack_range(seg.header.ack)
    }

    /// Retransmitted text must be acknowledged each time, because the earlier acknowledgment may be lost. A segment
    /// without length needs no answer unless it is a probe; otherwise two ends could answer each other for ever.
    fn acknowledge_unacceptable(&mut self, seg: &Segment<P>, now: Instant) {
        if seg.seq_len() > 0 {
            self.ack_now = true;
        } else if seg.seq + 1 == self.rcv_nxt {
            self.answer_after(PROBE_INTERVAL_MS, now);
        } else {
            self.challenge(now);
        }
    }

    /// Cuts off text outside the receive window.
    pub(super) fn trim_to_window(&mut self, seg: &mut Segment<P>) {
        self.forget_waiting_duplicate(seg);
        let (stale, len) = (self.rcv_nxt.since(seg.seq), seg.seq_len());
        if stale > 0 {
            self.note_duplicate(seg.seq, stale.min(seg.payload_len()));
            if len > 0 && stale >= len {
                // Nothing of it is new: the acknowledgment was lost or is late. The next one counts as an immediate
                // acknowledgment.
                self.enter_quick_acks(QUICK_ACKS_MAX);
                self.acks.scheduled = true;
                seg.flags = seg.flags.without(Flags::FIN);
            }
            // The rest of the text has its own acknowledgment, which may wait, as on Linux.
            self.ack_now |= len > 0 && (stale >= len || !self.state.receives());
            seg.payload.trim_front(stale as usize);
            seg.seq = self.rcv_nxt;
        }
        let room = self.rcv_adv.since(seg.seq);
        if seg.seq_len() > room {
            self.ack_now = true;
            seg.payload.truncate(room as usize);
            seg.flags = seg.flags.without(Flags::FIN);
        }
    }

    /// Partly old text whose acknowledgment waits is no longer reported as a duplicate if other text arrives before the
    /// acknowledgment: a report is about the latest segment (RFC 2883 section 4).
    fn forget_waiting_duplicate(&mut self, seg: &Segment<P>) {
        let waits = !self.ack_now && self.dup_acks_owed == 0 && seg.seq_len() > 0;
        if let Some(reass) = self.reass.as_deref_mut().filter(|_| waits) {
            reass.forget_duplicates();
            if reass.is_empty() {
                self.reass = None;
            }
        }
    }

    /// `len` bytes from `seq` on had arrived before: the next acknowledgment reports this (RFC 2883). Only text less
    /// than a window before RCV.NXT is reported.
    fn note_duplicate(&mut self, seq: SeqNum, len: u32) {
        let end = (seq + len).min(self.rcv_nxt);
        let near = seq.before(end) && self.rcv_nxt.since(seq) <= self.rcv_wnd_max();
        // After 2 GiB, the SYN's number counts as one to come.
        let is_text = seq.after(self.irs) || self.irs.after(self.rcv_nxt);
        if self.sack_ok && near && is_text {
            self.reass
                .get_or_insert_with(|| Box::new(Reass::new(self.rcv_nxt, true)))
                .note_duplicate(seq, end);
        }
    }

    /// The peer's SYN has arrived a second time, on its SYN-ACK: it is acknowledged, and reported as a duplicate (RFC
    /// 2883).
    pub(super) fn answer_repeated_syn(&mut self) {
        if self.sack_ok {
            let (irs, nxt) = (self.irs, self.rcv_nxt);
            self.reass.get_or_insert_with(|| Box::new(Reass::new(nxt, true))).note_duplicate(irs, irs + 1);
        }
        self.enter_quick_acks(QUICK_ACKS_MAX);
        self.ack_now = true;
    }

    /// Second: the RST bit (RFC 9293, which contains RFC 5961 section 3).
    fn second_check_rst(&mut self, seg: &Segment<P>, now: Instant, input: &mut Input<P>) -> Step {
        if !seg.flags.has(Flags::RST) {
            return Step::Continue(());
        }
        if seg.seq != self.rcv_nxt {
            self.challenge(now);
            return Step::Break(());
        }
        let events = match self.state {
            // An old duplicate must not cut TIME-WAIT short (RFC 1337).
            State::TimeWait => return Step::Break(()),
            State::SynReceived => Events::REFUSED,
            // Also in CLOSING and LAST-ACK, since text sent before our FIN may be lost (as on Linux; the RFC signals
            // nothing in these states).
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => Events::RESET,
            State::SynSent | State::Closed => Events::NONE,
        };
        self.enter_closed();
        input.events.insert(events.with(Events::CLOSED));
        Step::Break(())
    }

    /// Fourth: the SYN bit. Whatever its number, the peer gets a challenge acknowledgment (RFC 5961 section 4). So it
    /// does in TIME-WAIT: the TIME-WAIT record handles reopening.
    fn fourth_check_syn(&mut self, seg: &Segment<P>, now: Instant) -> Step {
        if !seg.flags.has(Flags::SYN) {
            return Step::Continue(());
        }
        self.challenge(now);
        Step::Break(())
    }
}
