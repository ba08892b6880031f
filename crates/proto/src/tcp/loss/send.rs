//! Sending with records: repetitions, tail loss probes, pacing.
//!
//! Lost data is sent first, from SND.UNA upwards, within the limit of recovery and the peer's window; then new data.
//! SND.NXT does not move for a repetition, so the window is reduced by it. It does not depend on why something is lost.
//! Tests: `send/tests.rs`, `tests/rack.rs`, `tests/sack.rs`.

#[cfg(test)]
mod tests;

use core::num::NonZeroU64;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::cc::{CongestionControl, Phase};
use super::super::events::Transmit;
use super::super::pcb::Pcb;
use super::super::sack::SackBlocks;
use super::super::segment::Payload;
use super::super::settings::PacingMode;
use super::super::timers::{NEVER, after_us, since_us};
use super::super::timestamp;
use super::stats::{Why, count};
use super::{Loss, Probe, TRIM_AFTER, pacing};

impl<P: Payload> Pcb<P> {
    /// Bytes from `start` to `end` are sent now: records them if records are kept.
    #[inline]
    pub(in crate::tcp) fn record_sent(&mut self, start: SeqNum, end: SeqNum, now: Instant) {
        if self.keeps_records() {
            self.record(start, end, now);
        }
    }

    #[inline(never)]
    fn record(&mut self, start: SeqNum, end: SeqNum, now: Instant) {
        let mss = self.send_mss();
        let mut loss = self.loss.take().unwrap_or_else(|| self.begin_loss(now));
        let sampled = self.cc.wants_rate_samples();
        let idle = loss.records.is_empty();
        if idle {
            self.cc.on_restart(self.last_snd_at, now);
        }
        let snapshot = if sampled { loss.rate.on_sent(now, idle) } else { 0 };
        loss.trim_at = NEVER;
        loss.records.set_segment(mss);
        let is_new = loss.records.last().is_none_or(|last| end.after(last.end));
        let begins = is_new && !loss.has_sent && self.nagle.is_write();
        loss.has_sent |= is_new;
        loss.records.set_write(self.nagle.is_write());
        loss.records.sent(start, end, now, snapshot);
        if is_new && self.fin_sent && end == self.snd_max {
            loss.records.seat_fin(end.since(start) - 1);
        }
        if sampled {
            loss.rate.on_in_flight(loss.pipe(self.flight()));
        }
        let bytes = end.since(start);
        if self.recovery.phase() == Phase::Recovery {
            // A FIN is sent with the last segment, if there is text.
            let text = bytes - u32::from(self.fin_sent && end == self.snd_max && bytes > 1);
            loss.prr.on_sent(text.div_ceil(u32::from(mss).max(1)).saturating_mul(self.mss.into()));
        }
        if let Some(rate) = self.pacing_rate() {
            loss.pacing.on_sent(bytes, u32::from(self.mss), rate, now);
        }
        // Until our SYN-ACK is acknowledged the timer is that of the SYN-ACK alone.
        if self.recovery.phase() == Phase::Open && !self.syn_unacked {
            let due = self.first_is_due(&loss);
            self.arm_probe(&mut loss, due, now);
        }
        self.allow(&loss);
        let may_be_unused = begins && loss.usage.age_us(now) >= u64::from(self.tuning.rto_min_us);
        self.loss = Some(loss);
        if may_be_unused {
            // The segments of a write are sent one by one, and after a pause the first shows that the window was not
            // used.
            self.validate_window(true, now);
        }
    }

    /// The first transmission makes the box.
    #[cold]
    fn begin_loss(&self, now: Instant) -> Box<Loss> {
        let mut loss = Loss::new(self.snd_una, self.known_round_trip(), now);
        loss.rack.minimum_is_of(self.last_snd_at);
        loss.note_look(true);
        let rto_us = self.rtt.rto_us(self.tuning.rto_max_us);
        // A window that was not used before the box was freed was not used since, unless a write has just reduced it
        // for the pause.
        if !self.nagle.is_write() || since_us(now, self.last_snd_at) <= rto_us {
            loss.usage.touch(self.last_snd_at);
        }
        if self.snd_una != self.iss + 1 {
            // What a probe of a small window sends says nothing about its use, and a window of one segment may grow by
            // it.
            loss.usage.assume_used(self.mss.into());
        }
        loss
    }

    /// The range to be sent before new data. `Break` if new data must wait, else the largest number of its bytes that
    /// may be sent at once: whole segments. Nothing is retransmitted before our SYN is acknowledged: the peer may not know
    /// the connection. Its timer is no occasion to look for new text either (`tcp_fastopen_synack_timer`).
    #[inline(never)]
    pub(in crate::tcp) fn transmit_recorded(
        &mut self,
        rcv_space: u32,
        now: Instant,
    ) -> core::ops::ControlFlow<Option<Transmit>, u32> {
        use core::ops::ControlFlow::{Break, Continue};
        let Some(loss) = self.loss.as_deref_mut() else { return Continue(u32::MAX) };
        if self.syn_unacked {
            return if loss.ends_repair_only() { Break(None) } else { Continue(u32::MAX) };
        }
        if core::mem::take(&mut loss.probe_now) {
            return match self.transmit_tail_probe(rcv_space, now) {
                Some(probe) => Break(Some(probe)),
                None => {
                    self.wait_for_first(now);
                    Continue(u32::MAX)
                }
            };
        }
        let (lost, is_repair_only) = (loss.has_repairs(), loss.sends_only_repairs());
        if !lost && is_repair_only {
            loss.end_repair_only();
            self.look_at_usage(now);
            return Break(None);
        }
        let has_data = lost || self.has_unsent();
        let rate = self.pacing_rate();
        let mss = u32::from(self.mss);
        let Some(loss) = self.loss.as_deref_mut() else { return Continue(u32::MAX) };
        if !has_data {
            loss.pacing.stop_waiting();
            self.note_app_limited();
            return Continue(u32::MAX);
        }
        let most = match rate {
            Some(rate) if loss.pacing.may_send(now) => pacing::quantum(rate, mss),
            Some(_) => {
                loss.is_only_repair = false;
                self.look_at_usage(now);
                return Break(None);
            }
            None => {
                loss.pacing.stop_waiting();
                u32::MAX
            }
        };
        if !lost {
            return if loss.path_mtu.is_some() {
                self.transmit_mtu_probe(rcv_space, now).map_continue(|()| most)
            } else {
                Continue(most)
            };
        }
        if !is_repair_only && self.keeps_trying_new_data() {
            return Continue(most);
        }
        let again = self.transmit_lost(rcv_space, most, now);
        if let Some(loss) = self.loss.as_deref_mut() {
            if again.is_some() {
                loss.holds_repairs |= core::mem::take(&mut loss.repeats_one);
            } else {
                loss.end_repair_only();
            }
        }
        if again.is_none() {
            self.look_at_usage(now);
        }
        Break(again)
    }

    /// The sending rate in bytes per second; `None`: as fast as the windows allow. Congestion control or the settings
    /// may ask for one. For the settings it is as on Linux: twice a window per round trip in slow start and 1.2 times
    /// later, so that the window is still the limit.
    fn pacing_rate(&self) -> Option<NonZeroU64> {
        let bound = self.rare.max_pacing().copied();
        let paces = match self.tuning.pacing {
            PacingMode::Off if bound.is_none() => return None,
            PacingMode::Off | PacingMode::Auto => bound.is_some(),
            PacingMode::On => true,
        };
        let rate = match self.cc.pacing_rate() {
            None if paces => self.window_rate(),
            own => own,
        };
        match (rate, bound) {
            (Some(rate), Some(bound)) => Some(rate.min(bound)),
            (None, Some(bound)) => Some(bound),
            (rate, None) => rate,
        }
    }

    /// Bytes per second if a window is sent over a round trip, with room to grow (`tcp_update_pacing_rate`).
    pub(in crate::tcp) fn window_rate(&self) -> Option<NonZeroU64> {
        let srtt_us = NonZeroU64::new(u64::from(self.rtt.srtt_us()))?;
        let cwnd = self.cc.cwnd();
        let gain = if cwnd < self.cc.ssthresh() / 2 { SLOW_START_PERCENT } else { AVOIDANCE_PERCENT };
        NonZeroU64::new(u64::from(cwnd) * 10_000 * gain / srtt_us)
    }

    /// True while F-RTO waits for the acknowledgment of new data. If none was sent and none can be sent now, F-RTO ends
    /// (RFC 5682 section 2.1 step 2b).
    fn keeps_trying_new_data(&mut self) -> bool {
        let offset = self.snd_nxt.since(self.snd_una);
        let is_fin = self.has_unsent() && self.snd_len == offset;
        let can_go = match is_fin {
            true => self.usable(offset) > 0,
            false => self.sendable(offset, self.snd_len.saturating_sub(offset)) > 0,
        };
        let snd_max = self.snd_max;
        let Some(loss) = self.loss.as_deref_mut() else { return false };
        let Some(frto) = loss.frto.filter(|frto| frto.tries_new_data) else { return false };
        let waits = can_go || snd_max.after(frto.recover);
        if !waits {
            loss.frto = None;
        }
        waits
    }

    /// True if there are bytes, or a FIN, that were never sent.
    pub(in crate::tcp) fn has_unsent(&self) -> bool {
        let offset = self.snd_nxt.since(self.snd_una);
        self.snd_len > offset || (self.fin_queued && self.snd_len >= offset && !self.fin_acked())
    }

    fn note_app_limited(&mut self) {
        if !self.cc.wants_rate_samples() {
            return;
        }
        let (flight, cwnd) = (self.flight(), self.cc.cwnd());
        let Some(loss) = self.loss.as_deref_mut() else { return };
        let pipe = loss.pipe(flight);
        if pipe < cwnd {
            loss.rate.on_app_limited(pipe);
        }
    }

    /// Repeats the first lost range, if it may be sent, or `most` bytes of it.
    fn transmit_lost(&mut self, rcv_space: u32, most: u32, now: Instant) -> Option<Transmit> {
        let mss = u32::from(self.send_mss());
        let fin = self.fin_sent.then(|| self.snd_max - 1);
        let edge = self.repeat_edge();
        let loss = self.loss.as_deref_mut()?;
        let (start, end) = loss.records.next_lost()?;
        // It is sent with the text before it.
        let with_fin = fin.filter(|fin| loss.records.is_inside(*fin));
        let within = |end: SeqNum| {
            let len = end.since(start) - u32::from(with_fin.is_some_and(|fin| end.after(fin)));
            let most = self.rare.records().map(|records| records.limit(start, len).0);
            most.filter(|most| *most < len).map_or(end, |most| start + most)
        };
        let short_end = loss.records.short_segment(start, (mss, edge), fin).map(within);
        let lost = short_end.unwrap_or_else(|| within(end)).since(start);
        let want = if short_end.is_some() { lost } else { lost.min(self.tuning.tso_max.max(mss)).min(most) };
        let allowed = self.recovery.window(&self.cc, self.mss.into()).saturating_sub(self.flight());
        // A short segment takes the room of a full one.
        let allowed = allowed / u32::from(self.mss).max(1) * mss;
        let room = self.room_to_repeat(start, mss);
        let mut len = want.min(allowed).min(room);
        if len < want && len > mss {
            // No part of a segment is sent alone: the rest would cost another header. Only if the peer has no room for
            // more is a part sent, or it would never be.
            len -= len % mss;
        }
        if len == 0 {
            return None;
        }
        if len < lost && fin == Some(start + len) {
            // Both windows limit text only: a FIN that was sent with text is retransmitted with it
            // (`tcp_retransmit_skb`).
            len += 1;
        }
        let why = match self.recovery.phase() {
            Phase::Loss if self.is_text_of_syn(start + len) => Why::Fast,
            Phase::Loss if self.loss.as_deref().is_some_and(|loss| loss.for_mtu) => Why::PathMtu,
            Phase::Loss => Why::Timeout,
            Phase::Recovery | Phase::Open => Why::Fast,
        };
        let at_una = start == self.snd_una;
        let at = start + len;
        let is_part = self.loss.as_deref().is_some_and(|loss| loss.records.is_inside(at));
        let again = self.repeat(start, at, why, rcv_space, now)?;
        if short_end == Some(at)
            && let Some(loss) = self.loss.as_deref_mut()
        {
            loss.make_one(start, at);
            if is_part {
                loss.records.count_rest(at, mss, fin);
            }
        }
        if let Some(loss) = self.loss.take() {
            self.allow(&loss);
            self.loss = Some(loss);
        }
        if at_una && let Some(loss) = self.loss.as_deref_mut().filter(|loss| loss.reorder_at == NEVER) {
            // There is only one timer (`tcp_xmit_retransmit_queue`).
            loss.probe_at = NEVER;
            if loss.repeats_one {
                self.arm_rexmt(now);
            } else {
                self.arm_rexmt_alone(now);
            }
        }
        Some(again)
    }

    /// Whether lost text begins `offset` past SND.UNA (where SND.NXT is without records), and a segment of it may be
    /// retransmitted now.
    pub fn repeats_at(&self, offset: u32) -> bool {
        if !self.keeps_records() {
            return self.sends_more();
        }
        let at = self.snd_una + offset;
        let is_lost = self.loss.as_deref().is_some_and(|loss| loss.records.is_lost_at(at));
        let allowed = self.recovery.window(&self.cc, self.mss.into()).saturating_sub(self.flight());
        is_lost && allowed >= u32::from(self.mss) && self.repeat_edge().after(at)
    }

    /// The timer of the tail loss probe has expired (RFC 8985 section 7.3): sends new data if the peer has room for a
    /// segment of it, else the last segment again, or its first `mss` bytes.
    fn transmit_tail_probe(&mut self, rcv_space: u32, now: Instant) -> Option<Transmit> {
        let (flight, mss) = (self.flight(), u32::from(self.send_mss()));
        let unsent = self.snd_len.saturating_sub(flight);
        let len = self.within_record(flight, unsent).min(mss);
        let fin = self.fin_queued && !self.fin_sent && len == unsent && self.snd_wnd > flight + len;
        let fresh = (len > 0 || fin) && self.snd_wnd >= flight + len && self.snd_nxt == self.snd_max;
        let mut repeated = 0;
        let segment = if fresh {
            Some(self.transmit_at_nxt(flight, len, fin, rcv_space, now))
        } else {
            let last = *self.loss.as_deref()?.records.last()?;
            let start = last.last_segment().max(self.snd_una);
            let room = self.room_to_repeat(start, mss).min(mss);
            if room == 0 {
                return None;
            }
            // A FIN is sent with all of its text.
            let text_end = last.end - u32::from(self.fin_sent);
            let end = if text_end.after(start + room) { start + room } else { last.end };
            repeated = end.since(start);
            self.repeat(start, end, Why::Probe, rcv_space, now)
        };
        if let (Some(_), Some(loss)) = (&segment, self.loss.as_deref_mut()) {
            let len = u16::try_from(repeated).unwrap_or(u16::MAX);
            loss.probe = Some(Probe { end: self.snd_max, repeats: !fresh, len });
            loss.probe_unmeasured = true;
            loss.probe_at = NEVER;
            count(&mut loss.stats.probe_count);
            self.arm_rexmt(now);
        }
        segment
    }

    /// How many bytes of a repetition from `start` on the peer accepts. If the window was closed over the text, one
    /// segment of it is the window probe.
    fn room_to_repeat(&self, start: SeqNum, mss: u32) -> u32 {
        match self.repeat_edge() {
            edge if edge.after(start) => edge.since(start),
            _ if start == self.snd_una => mss,
            _ => 0,
        }
    }

    /// Up to where the peer accepts repetitions. If the edge is less than a unit of the window field before the end of
    /// all sent text, it may only seem to have moved left, because the window was rounded down (RFC 7323 section 2.4).
    /// This does not apply to a closed window: the peer has refused that data.
    fn repeat_edge(&self) -> SeqNum {
        let edge = self.snd_una + self.snd_wnd;
        let is_rounded =
            self.snd_wnd > 0 && self.snd_max.after(edge) && self.snd_max.since(edge) < 1 << self.scale.snd;
        if is_rounded { self.snd_max } else { edge }
    }

    /// Retransmits `start` to `end`.
    fn repeat(
        &mut self,
        start: SeqNum,
        end: SeqNum,
        why: Why,
        rcv_space: u32,
        now: Instant,
    ) -> Option<Transmit> {
        let offset = start.since(self.snd_una);
        let fin = self.fin_sent && end == self.snd_max;
        // The buffer ends before a FIN.
        let len = end.since(start).min(self.snd_len.saturating_sub(offset));
        if len == 0 && !fin {
            return None;
        }
        self.record(start, end, now);
        self.count_rexmt(why, end.since(start), now);
        if self.rare.user_timeout().is_some() && why != Why::Probe {
            self.note_stall(start, now);
        }
        let ts = timestamp::value(now, self.ts_offset);
        if let Some(loss) = self.loss.as_deref_mut()
            && why != Why::Probe
        {
            if let Some(undo) = loss.undo.as_mut() {
                undo.on_rexmt(end.since(start));
            }
            loss.repeated_ts.get_or_insert(ts);
            loss.repeated_until = loss.repeated_until.max(end);
        }
        self.spoil_timing();
        Some(self.data_segment(start, offset, len, fin, rcv_space, now))
    }

    /// The peer has acknowledged our SYN, sent at `syn_at`, but not the `len` bytes of text that are now at SND.UNA:
    /// they are retransmitted at once, and the window stays (`tcp_rcv_fastopen_synack`).
    pub(in crate::tcp) fn repeat_syn_text(&mut self, len: u32, syn_at: Instant, now: Instant) {
        let (start, end) = (self.snd_una, self.snd_una + len);
        (self.snd_nxt, self.snd_max) = (end, end);
        self.record_sent(start, end, syn_at);
        let Some(mut loss) = self.loss.take() else { return };
        // The kernel does not check the use of the window when a SYN carries text (`tcp_send_syn_data`): the use is
        // unknown.
        loss.has_sent = false;
        loss.usage.assume_used(0);
        loss.records.lose_from(start);
        self.repair_for_mtu(&mut loss);
        self.loss = Some(loss);
        self.arm_rexmt(now);
    }

    /// The peer has acknowledged all text of our SYN. The text was sent once, at `syn_at`, although the SYN had to be
    /// repeated: that is the latest round trip (`tcp_rack_advance`).
    #[cold]
    pub(in crate::tcp) fn time_syn_text(&mut self, syn_at: Instant, now: Instant) {
        let rtt_us = u32::try_from(since_us(now, syn_at)).unwrap_or(u32::MAX);
        let mut loss = Loss::new(self.snd_una, (self.rtt.srtt_us(), rtt_us), now);
        loss.trim_at = now + TRIM_AFTER;
        self.loss = Some(loss);
    }

    /// Counts a repetition. Makes the box if there is none.
    #[inline(never)]
    pub(in crate::tcp) fn count_rexmt(&mut self, why: Why, bytes: u32, now: Instant) {
        let (una, known_us, mss) = (self.snd_una, self.known_round_trip(), u32::from(self.mss));
        self.loss.get_or_insert_with(|| Loss::new(una, known_us, now)).stats.on_rexmt(why, bytes, mss);
    }

    /// Makes the box if it was freed and the first block reports a duplicate, which is counted.
    #[cold]
    pub(in crate::tcp) fn expect_report_of_a_duplicate(&mut self, sack: &SackBlocks, now: Instant) {
        let is_duplicate = sack.as_slice().first().is_some_and(|first| first.start.before(self.snd_una));
        if is_duplicate && self.sack_ok && self.keeps_records() {
            let mut loss = Loss::new(self.snd_una, self.known_round_trip(), now);
            // Its records are gone.
            loss.usage.assume_used(self.mss.into());
            self.loss = Some(loss);
        }
    }

    /// Counts an expiry of the retransmission timer if no records are kept.
    pub(in crate::tcp) fn count_timeout(&mut self, now: Instant) {
        let (una, known_us) = (self.snd_una, self.known_round_trip());
        count(&mut self.loss.get_or_insert_with(|| Loss::new(una, known_us, now)).stats.rto_count);
    }

    /// The round trips with which recovery begins, microseconds: the least one, and that of the latest segment. Before the
    /// first data they are those of the handshake: the SYN of a connect counts as a segment, unless it had to be repeated,
    /// because then it is unknown which has arrived. The SYN-ACK of a listener does not count (`tcp_rack_advance`).
    pub(super) fn known_round_trip(&self) -> (u32, u32) {
        if let Some(kept) = self.rtt.kept() {
            return kept;
        }
        let srtt_us = self.rtt.srtt_us();
        (srtt_us, if self.syn_is_timed || self.snd_una != self.iss + 1 { srtt_us } else { 0 })
    }

    /// When the retransmission timer is due by the first segment.
    pub(super) fn first_is_due(&self, loss: &Loss) -> Instant {
        loss.records
            .first()
            .map_or(NEVER, |first| after_us(first.sent_since(), self.rtt.rto_us(self.tuning.rto_max_us)))
    }

    /// No probe can be sent: the retransmission timer is that of the first segment (`tcp_rearm_rto`).
    fn wait_for_first(&mut self, now: Instant) {
        if let Some(loss) = self.loss.as_deref() {
            self.rexmt_at = self.first_is_due(loss).max(after_us(now, 1));
        }
    }

    /// How long after the last transmission a tail loss probe is due, microseconds (RFC 8985 section 7.2).
    fn probe_wait_us(&self, loss: &Loss) -> u64 {
        match self.rtt.srtt_us() {
            0 => PTO_UNMEASURED_US,
            // The peer may delay the acknowledgment of a single segment, by up to the lower bound of the timeout
            // (`tcp_rto_min_us`).
            srtt_us if loss.records.is_single() => 2 * u64::from(srtt_us) + u64::from(self.tuning.rto_min_us),
            srtt_us => 2 * u64::from(srtt_us) + PTO_SLACK_US,
        }
    }

    /// Starts the timer of tail loss probes (RFC 8985 section 7.2). It replaces the retransmission timer, which is due
    /// at `due`, and the reordering timer. It does not start before a round trip was measured since the last probe.
    /// While a probe is in flight, its expiry sends none, but restarts the retransmission timer.
    pub(super) fn arm_probe(&mut self, loss: &mut Loss, due: Instant, now: Instant) {
        if !self.sack_ok {
            return;
        }
        if loss.is_disordered || (loss.probe_unmeasured && loss.probe.is_none()) {
            if loss.probe_at != NEVER {
                // The timer was set for text sent before the probe, or before the duplicate.
                loss.probe_at = NEVER;
                self.rexmt_at = self.first_is_due(loss).max(after_us(now, 1));
            }
            return;
        }
        let at = after_us(now, self.probe_wait_us(loss).min(u64::from(self.tuning.rto_max_us)));
        loss.probe_at = if due > now { at.min(due) } else { at };
        loss.reorder_at = NEVER;
        self.give_way(loss.probe_at);
    }
}

/// Percentage of a window that is sent in a round trip if the window determines the pace (`tcp_pacing_ss_ratio`,
/// `tcp_pacing_ca_ratio`).
const SLOW_START_PERCENT: u64 = 200;
const AVOIDANCE_PERCENT: u64 = 120;
/// The probe's time while no round trip was measured (RFC 8985 section 7.2).
const PTO_UNMEASURED_US: u64 = 1_000_000;
/// How much longer than two round trips a tail loss probe waits, so that the receiver has had time to run
/// (`TCP_TIMEOUT_MIN_US`).
const PTO_SLACK_US: u64 = 2_000;
