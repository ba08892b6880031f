//! Fifth step: the ACK field (RFC 9293 section 3.10.7.4), with RFC 5961 section 5 before it.
//!
//! Moves SND.UNA and SND.WND, feeds the round-trip estimator and loss recovery, and changes the state if our FIN is
//! acknowledged. It does not depend on text or the receive window. Tests: `tests/attacks.rs`, `tests/loss.rs`,
//! `tests/transitions.rs`.

use core::hint::cold_path;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::cc::{Ack, CongestionControl};
use super::super::delack::low_micros;
use super::super::events::{Events, Input};
use super::super::pcb::{Pcb, Timing};
use super::super::sack::SackBlocks;
use super::super::segment::{Flags, Header, Options, Payload, Timestamps};
use super::super::settings::micros;
use super::super::state::State;
use super::super::timers::{NEVER, since_us};
use super::super::timestamp;
use super::{Segment, Step};

impl<P: Payload> Pcb<P> {
    pub(super) fn fifth_check_ack(
        &mut self,
        seg: &mut Segment<P>,
        now: Instant,
        input: &mut Input<P>,
    ) -> Step {
        if !seg.flags.has(Flags::ACK) {
            return Step::Break(());
        }
        if self.state == State::SynReceived {
            self.syn_ack_acknowledged(seg, now, input)?;
        }
        if self.syn_unacked && !self.early_syn_acknowledged(seg.header.ack, &seg.header, now, input) {
            input.reply = Some(self.reset_answering(&seg.header));
            return Step::Break(());
        }
        self.check_ack_range(seg.header.ack, now)?;
        if self.ecn.is_accurate() {
            cold_path();
            self.take_accurate_ack(&seg.header, seg.is_bare, now);
        }
        self.take_proven(seg, now);
        let is_told = self.persist && seg.header.ack.at_or_after(self.snd_una);
        let restarts_probes = is_told && !self.is_passed_over(seg);
        if is_told {
            // The peer answers probes, or sends text: it is alive, no matter how long its window stays closed
            // (MUST-37).
            self.rexmt_count = 0;
        }
        let ack = seg.header.ack;
        self.take_echo(seg.flags, ack, now);
        let moved = ack.after(self.snd_una);
        if moved {
            let Options { timestamps, ref sack, .. } = seg.header.options;
            input.acked = self.acknowledge(ack, timestamps, sack, now);
        } else {
            self.check_duplicate(seg, now);
        }
        if ack.at_or_after(self.snd_una) {
            if moved || !self.is_passed_over(seg) {
                self.forget_report();
            }
            let (shut, full) = (self.persist.then_some(self.snd_wnd), self.send_mss());
            self.update_snd_wnd(seg.header.seq, moved || self.is_passed_over(seg), seg.header.window);
            if shut.is_some_and(|before| before != self.snd_wnd) {
                // A changed window ends a pause as a write does (`tcp_ack_update_window`).
                self.restart_after_idle(self.snd_len, now);
            }
            if restarts_probes {
                self.restart_probes(full, now);
            }
        }
        self.move_past_our_fin(now, input)
    }

    /// The peer has just announced its window. If it is still too small, the next probe counts from now
    /// (`tcp_ack_probe`). Else the text is held back for another reason, and no probe is needed. `full`: a full segment
    /// before this window was known.
    #[cold]
    fn restart_probes(&mut self, full: u16, now: Instant) {
        let text = self.within_record(0, self.snd_len);
        let waiting = text + u32::from(self.fin_queued && text == self.snd_len);
        if self.snd_wnd >= waiting.min(u32::from(full)) {
            self.rtt.end_back_off();
        }
        self.arm_rexmt(now);
    }

    /// Whether the segment is text without news about ours, on the short path: the kernel accepts it, and checks
    /// nothing else.
    fn is_passed_over(&self, seg: &Segment<P>) -> bool {
        !seg.payload.is_empty() && self.is_on_short_path(seg)
    }

    /// Whether Linux's header prediction would take a segment for one of an ordinary transfer in one direction.
    pub(super) fn is_on_short_path(&self, seg: &Segment<P>) -> bool {
        let is_plain = !seg.flags.any(Flags::SYN.with(Flags::FIN).with(Flags::URG));
        let is_next = seg.header.seq == self.rcv_nxt && self.reass.is_none();
        let is_same = self.is_told_again(seg.header.window) && seg.header.options.sack.is_empty();
        self.state == State::Established && is_plain && is_next && is_same
    }

    /// Whether the segment has no text, and is on the short path: an acknowledgment that waits goes on waiting
    /// (`tcp_rcv_established`). After a connect with window scaling, the kernel has no short path until text or a
    /// window arrives.
    pub(super) fn brings_nothing(&self, seg: &Segment<P>) -> bool {
        let is_opened = self.scale.snd == 0 || self.rcv_nxt != self.irs + 1;
        let is_timed = seg.header.options.timestamps.is_some() == self.ts_on;
        seg.is_bare && is_opened && is_timed && self.is_on_short_path(seg)
    }

    /// Text arrived as expected, without news about ours: if its window is unchanged, the kernel does not look for
    /// something to send.
    #[inline]
    pub(super) fn look_at_usage_after_text(&mut self, field: u16) {
        self.look_at_usage_after(!self.is_told_again(field));
    }

    /// Whether this is the peer's window already.
    #[inline]
    pub(super) fn is_told_again(&self, field: u16) -> bool {
        self.scaled(field) == self.snd_wnd
    }

    /// SYN-RECEIVED: the acknowledgment of our SYN opens the connection; any other is answered with a reset.
    fn syn_ack_acknowledged(&mut self, seg: &Segment<P>, now: Instant, input: &mut Input<P>) -> Step {
        let ack = seg.header.ack;
        if !(ack.after(self.snd_una) && ack.at_or_before(self.snd_max)) {
            input.reply = Some(self.reset_answering(&seg.header));
            return Step::Break(());
        }
        self.established(ack, seg.header.options.timestamps, now, input);
        self.snd_wl1 = seg.seq - 1;
        if seg.header.flags.has(Flags::SYN) {
            // Two SYNs have crossed, and the peer's arrives a second time: it is answered like duplicate text, as on
            // Linux.
            self.answer_repeated_syn();
        }
        Step::Continue(())
    }

    /// The handshake of an active or simultaneous open has ended; `ack` acknowledges our SYN.
    pub(super) fn established(
        &mut self,
        ack: SeqNum,
        ts: Option<Timestamps>,
        now: Instant,
        input: &mut Input<P>,
    ) {
        let (syn_losses, syn_at, syn_end) = (self.rexmt_count, self.rtt_sent_at(now), self.snd_max);
        self.measure(ack, ts, now);
        // Text on the SYN that is not acknowledged was refused. If records are kept, it is retransmitted; else it
        // counts as not sent.
        let text = ack.since(self.iss + 1).min(self.snd_len);
        self.snd_len -= text;
        input.acked = text;
        let unanswered = self.fast_open_unanswered(text).min(self.snd_len);
        if self.snd_len > unanswered {
            self.note_waiting_writer(now);
        }
        self.fast_open_answered(text);
        (self.snd_una, self.snd_nxt, self.snd_max, self.snd_sml) = (ack, ack, ack, ack);
        (self.rexmt_at, self.rexmt_count, self.timing) = (NEVER, 0, Timing::Idle);
        if syn_losses > 0 && !self.sack_ok && self.keeps_records() {
            cold_path();
            // The repair of the SYN lasts until text after its own is acknowledged.
            self.recovery.on_timeout(syn_end);
        }
        self.syn_is_timed = syn_losses == 0;
        self.start_sending(syn_losses);
        self.state = if self.fin_queued { State::FinWait1 } else { State::Established };
        if unanswered > 0 && self.keeps_records() {
            self.repeat_syn_text(unanswered, syn_at, now);
        } else if text > 0 && syn_losses > 0 && self.keeps_records() {
            self.time_syn_text(syn_at, now);
        }
        // A pause begins here at the earliest (`lsndtime`). The records of the SYN's text have begun with the time of the SYN.
        self.last_snd_at = now;
        self.start_keepalive(now);
        input.events.insert(Events::CONNECTED);
    }

    /// Acknowledgments of data that was never sent, or was acknowledged long ago, are not the peer's (RFC
    /// 5961 section 5.2).
    fn check_ack_range(&mut self, ack: SeqNum, now: Instant) -> Step {
        if !self.is_in_ack_range(ack) {
            self.challenge(now);
            return Step::Break(());
        }
        Step::Continue(())
    }

    pub(super) fn is_in_ack_range(&self, ack: SeqNum) -> bool {
        let oldest = self.snd_una - self.max_snd_wnd.min(MAX_SND_WND_COUNTED);
        ack.at_or_before(self.snd_max) && ack.at_or_after(oldest)
    }

    /// `ack` is new. Returns the bytes to drop from `so_snd`.
    pub(super) fn acknowledge(
        &mut self,
        ack: SeqNum,
        ts: Option<Timestamps>,
        sack: &SackBlocks,
        now: Instant,
    ) -> u32 {
        let acked = ack.since(self.snd_una);
        let flight = self.snd_max.since(self.snd_una);
        // Our FIN is not a byte of the buffer.
        let bytes = acked.min(self.snd_len);
        self.snd_una = ack;
        self.snd_nxt = self.snd_nxt.max(ack);
        // Every number that is kept moves along: more than 2 GiB behind SND.UNA it would count as after it.
        self.snd_sml = self.snd_sml.max(ack);
        self.ecn.pass(ack);
        if let Some(records) = self.rare.records_mut() {
            records.pass(ack);
        }
        self.snd_len -= bytes;
        self.rexmt_count = 0;
        self.probe_now = false;
        if self.loss.is_some()
            && let Some(report) = self.take_report(acked, flight, (ts, sack), now)
        {
            self.measure_report(&report, ts, now);
            if report.has_segment && ack != self.snd_max {
                self.arm_rexmt(now);
            }
            self.after_report(&report, ts, now);
        } else if self.tuning.lossless && flight <= self.cc.cwnd() / 2 && self.recovery.is_at_rest() {
            // The window was not used, so congestion control learns nothing: `Ack::growth` is 0.
            self.measure(ack, ts, now);
            if ack != self.snd_max {
                self.arm_rexmt(now);
            }
        } else {
            let measured_us = self.measure(ack, ts, now);
            let news = self.plain_news(acked, flight, measured_us, ts, now);
            if self.recovery.on_new_ack(&mut self.cc, ack, &news) && ack != self.snd_max {
                self.arm_rexmt(now);
            }
        }
        if ack == self.snd_max {
            self.rexmt_at = NEVER;
            self.persist = false;
        }
        bytes
    }

    /// Reports to congestion control if no records are kept.
    fn plain_news(
        &mut self,
        acked: u32,
        flight: u32,
        measured_us: Option<u64>,
        ts: Option<Timestamps>,
        now: Instant,
    ) -> Ack {
        // If nothing is lost, slow start has nothing to find out. Otherwise it needs more round trips than are
        // measured, and the echo's unit of a millisecond is coarser than the delay that it looks for.
        let rtt_us =
            if self.tuning.lossless { None } else { measured_us.or_else(|| self.echoed_us(ts, now)) };
        let phase = self.growth_phase(self.recovery.phase());
        let mss = u32::from(self.mss);
        // Each duplicate is known to have stood for a segment (`tcp_remove_reno_sacks`).
        let told = self.recovery.told_by_duplicates(mss);
        Ack {
            now,
            acked,
            delivered: acked.saturating_sub(told).max(acked.min(mss)),
            lost: 0,
            flight,
            pipe: flight - acked,
            // Without records, a full window cannot be distinguished from a nearly full one.
            used: (flight > self.cc.cwnd() / 2, flight),
            mss,
            phase,
            rtt_us: rtt_us.map(|us| u32::try_from(us).unwrap_or(u32::MAX)),
            paced: false,
            reorders: false,
            rate: None,
            loss: None,
        }
    }

    /// Measures the round trip of a SYN-ACK that `ack` ends; nothing is timed afterwards.
    pub(in crate::tcp) fn measure_handshake(&mut self, ack: SeqNum, ts: Option<Timestamps>, now: Instant) {
        let sample = self.measure(ack, ts, now);
        self.timing = Timing::Idle;
        if let (Some(loss), Some(rtt_us)) = (self.loss.as_deref_mut(), sample) {
            loss.note_handshake(rtt_us, now);
        }
    }

    /// Measures the round trip that `ack` ends, if it ends one.
    #[inline]
    fn measure(&mut self, ack: SeqNum, ts: Option<Timestamps>, now: Instant) -> Option<u64> {
        let sample = match self.timing {
            Timing::Idle => None,
            Timing::Running => ack.at_or_after(self.rtt_seq).then(|| since_us(now, self.rtt_sent_at(now))),
            // The echo says which transmission is meant (RFC 7323 section 4.1).
            Timing::Spoilt => self.echoed_us(ts, now),
        };
        if ack.at_or_after(self.rtt_seq) {
            self.timing = Timing::Idle;
        }
        if let Some(rtt_us) = sample {
            self.take_sample(rtt_us);
        }
        sample
    }

    /// When the segment being timed was sent, which is less than 71 minutes ago.
    pub(super) fn rtt_sent_at(&self, now: Instant) -> Instant {
        let ago_us = low_micros(now).wrapping_sub(self.rtt_sent_us);
        Instant::from_micros(now.as_micros().saturating_sub(u64::from(ago_us)))
    }

    /// A round trip was measured. Without records only one is timed at once, so each is of a different round.
    pub(in crate::tcp) fn take_sample(&mut self, rtt_us: u64) {
        let ends_round = !self.keeps_records() || self.snd_una.after(self.rtt_seq);
        if self.keeps_records() && (ends_round || self.rtt.srtt_us() == 0) {
            self.rtt_seq = self.snd_max;
        }
        self.rtt.sample(rtt_us, ends_round, self.tuning.rto_min_us, self.tuning.rto_max_us);
    }

    /// The peer's echo of our clock, if timestamps were negotiated.
    pub(in crate::tcp) fn echo(&self, ts: Option<Timestamps>) -> Option<u32> {
        ts.filter(|_| self.ts_on).and_then(Timestamps::echo)
    }

    /// The round trip by the peer's echo of our clock, microseconds, to a tick. One that is shorter than a tick counts as a tick
    /// (`tcp_rtt_tsopt_us`); 0 as the least round trip would close RACK's reordering window (RFC 8985 section 6.2, step 4).
    pub(in crate::tcp) fn echoed_us(&self, ts: Option<Timestamps>, now: Instant) -> Option<u64> {
        self.echo(ts)
            .and_then(|echo| timestamp::since(echo, now, self.ts_offset))
            .map(|elapsed| u64::from(micros(elapsed).max(timestamp::TICK_US)))
    }

    /// SND.UNA does not move. With records, the blocks name the data that has arrived. Without records, duplicate
    /// acknowledgments as defined in RFC 5681 section 2 are counted.
    fn check_duplicate(&mut self, seg: &Segment<P>, now: Instant) {
        let options = &seg.header.options;
        let flight = self.snd_max.since(self.snd_una);
        // Its own number counts, also if it is before RCV.NXT.
        let bare = seg.header.ack == self.snd_una
            && seg.is_bare
            && !self.brings_window(seg.header.seq, false, seg.header.window);
        self.look_at_usage_after(!self.is_passed_over(seg));
        if self.loss.is_none() && !options.sack.is_empty() {
            self.expect_report_of_a_duplicate(&options.sack, now);
        }
        let looks_back = self.loss.as_deref().is_some_and(|loss| loss.looks_back(!options.sack.is_empty()));
        // Of an acknowledgment older than SND.UNA, only the blocks count (`tcp_ack`).
        let is_old = seg.header.ack.before(self.snd_una);
        if (flight != 0 || looks_back)
            && !(is_old && options.sack.is_empty())
            && self.loss.is_some()
            && let Some(mut report) = self.take_report(0, flight, (options.timestamps, &options.sack), now)
        {
            report.is_duplicate = bare;
            report.is_old = is_old;
            if flight == 0 && report.dsack.is_some() {
                self.take_echo_of_a_duplicate(seg.flags, seg.header.ack, now);
            }
            // Data reported by a block has made its round trip as any other.
            self.measure_report(&report, options.timestamps, now);
            self.after_report(&report, options.timestamps, now);
            return;
        }
        if !bare || flight == 0 {
            return;
        }
        if self.recovery.on_dup_ack(&mut self.cc, self.snd_una, self.snd_max, u32::from(self.mss), now) {
            self.ecn.on_reduced(self.snd_max);
            self.spoil_timing();
            self.arm_rexmt(now);
        }
    }

    /// Accepts the window of a segment unless a newer one was seen. `is_latest`: the segment has moved SND.UNA, or is the
    /// expected text and its window is unchanged, so later numbers count again (`tcp_update_wl`).
    pub(super) fn update_snd_wnd(&mut self, seq: SeqNum, is_latest: bool, field: u16) {
        if self.brings_window(seq, is_latest, field) {
            self.snd_wnd = self.scaled(field);
            self.max_snd_wnd = self.max_snd_wnd.max(self.snd_wnd);
            self.snd_wl1 = seq;
        }
    }

    /// Whether the window of a segment counts (`tcp_may_update_window`). If segments have the same numbers, it is
    /// unknown which is newer. Since a window does not shrink, the larger one counts, or a closed one. (RFC 9293
    /// section 3.10.7.4 uses the last to arrive.)
    #[inline]
    pub(super) fn brings_window(&self, seq: SeqNum, is_latest: bool, field: u16) -> bool {
        let is_same = || self.snd_wl1 == seq && (field == 0 || self.scaled(field) > self.snd_wnd);
        is_latest || self.snd_wl1.before(seq) || is_same()
    }

    fn scaled(&self, field: u16) -> u32 {
        u32::from(field) << self.scale.snd
    }

    /// Changes the state when our FIN is acknowledged.
    fn move_past_our_fin(&mut self, now: Instant, input: &mut Input<P>) -> Step {
        if !self.fin_acked() {
            return Step::Continue(());
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.orphaned && self.tuning.fin_wait_2_ms == 0 {
                    // As on Linux: nobody waits for the peer's FIN any more.
                    input.reply =
                        Some(self.reset_answering(&Header { ack: self.snd_una, ..Header::default() }));
                    self.enter_closed();
                    input.events.insert(Events::CLOSED);
                    return Step::Break(());
                }
                if self.orphaned {
                    self.start_fin_wait_2(now);
                }
                Step::Continue(())
            }
            State::Closing => {
                self.enter_time_wait(now, input);
                Step::Continue(())
            }
            State::LastAck => {
                self.enter_closed();
                input.events.insert(Events::CLOSED);
                Step::Break(())
            }
            State::SynSent
            | State::SynReceived
            | State::Established
            | State::CloseWait
            | State::FinWait2
            | State::TimeWait
            | State::Closed => Step::Continue(()),
        }
    }

    pub(super) fn enter_time_wait(&mut self, now: Instant, input: &mut Input<P>) {
        self.state = State::TimeWait;
        self.stop_timers();
        self.reass = None;
        self.loss = None;
        self.two_msl_at = now + self.tuning.time_wait();
        input.events.insert(Events::ENTER_TIME_WAIT);
    }
}

/// How far below SND.UNA an acknowledgment may be: no peer has a larger window.
const MAX_SND_WND_COUNTED: u32 = 1 << 30;
