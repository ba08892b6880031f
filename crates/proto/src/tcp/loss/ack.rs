//! What an acknowledgment reports about sent data: scoreboard, RACK, and the phases of recovery.
//!
//! [`Pcb::take_report`] reads it into the records; [`Pcb::after_report`] draws the conclusions, in this order: whether the probe was needed, whether
//! the repair was needed, what is lost now, which phase follows, how much may be sent. The peer's blocks are not trusted: they count only inside the
//! outstanding data, and each takes a bounded number of steps (`records.rs`). It does not depend on text or windows. Tests: `tests/sack.rs`,
//! `tests/rack.rs`, `tests/undo.rs`, `tests/hostile.rs`.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::cc::{Ack, Cause, Congestion, CongestionControl, Phase, RateSample};
use super::super::pcb::Pcb;
use super::super::sack::{SackBlock, SackBlocks};
use super::super::segment::{Payload, SACK_BLOCKS_MAX, Timestamps};
use super::super::settings::PacingMode;
use super::super::timers::{NEVER, after_us, since_us};
use super::super::timestamp;
use super::Loss;
use super::prr::Prr;
use super::rack::Rack;
use super::records::{Detection, Record, Sent};
use super::stats::count;
use super::undo::{Sign, Undo};

/// Everything that one acknowledgment reports.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tcp) struct Report {
    /// Bytes by which SND.UNA moved.
    pub(super) acked: u32,
    /// These bytes include a whole segment, not only a part of one.
    pub(in crate::tcp) has_segment: bool,
    /// Bytes outstanding before.
    flight: u32,
    /// Bytes that were not known to have arrived before.
    delivered: u32,
    /// The segments of these bytes.
    pub(super) count: u32,
    /// Those of them that a block reports.
    pub(super) sacked: u32,
    /// The latest transmission among them, and its snapshot.
    latest: Option<(Sent, u32)>,
    /// Round trip of the last segment that a block reports of those that were sent once, else of the last that the acknowledgment itself covers, if all
    /// that it covers were sent once.
    pub(super) rtt_us: Option<u32>,
    /// Round trip of the first segment that the acknowledgment itself covers, if all that it covers were sent once.
    ack_rtt_us: Option<u32>,
    /// The acknowledgment covers something that was sent more than once.
    pub(super) is_ambiguous: bool,
    /// Round trip of the first segment that a block reports.
    sack_rtt_us: Option<u32>,
    /// They include something that was sent once, before the timeout (F-RTO).
    pub(super) original: bool,
    /// The peer received a repetition, or a probe, for the second time.
    pub dsack: Option<SackBlock>,
    /// What `dsack` reports was in flight and had been sent once, so the network duplicated it.
    pub(super) was_sent_once: bool,
    /// The segment is a duplicate acknowledgment as RFC 5681 section 2 defines it.
    pub is_duplicate: bool,
    /// The acknowledgment is older than SND.UNA: only its blocks count.
    pub is_old: bool,
}

impl Report {
    /// True if SND.UNA moved.
    pub(super) fn moves(&self) -> bool {
        self.acked > 0
    }

    /// True if it is a sign that something was lost or overtaken: a duplicate acknowledgment, or a block that reports newly arrived data or a
    /// duplicate.
    pub(super) fn is_sign(&self) -> bool {
        self.is_duplicate || self.sacked > 0 || self.dsack.is_some()
    }

    fn add(&mut self, record: &Record, recover: Option<SeqNum>) {
        self.delivered += record.len();
        self.count += record.count;
        let sent = record.arrived();
        if self.latest.is_none_or(|(latest, _)| latest.before(sent)) {
            self.latest = Some((sent, record.snapshot));
        }
        self.original |= !record.repeated && recover.is_some_and(|recover| record.end.at_or_before(recover));
    }
}

impl Loss {
    /// Enters the report of a duplicate, if it counts: only then are the records of its range visited.
    fn note_duplicate(&mut self, dsack: Option<SackBlock>, mss: u32, report: &mut Report) {
        report.dsack = dsack.filter(|dsack| self.stats.take_duplicate(*dsack, mss, &mut report.count));
        let is_once = |dsack: SackBlock| self.records.is_sent_once(dsack.start, dsack.end);
        report.was_sent_once = report.dsack.is_some_and(is_once);
    }
}

impl<P: Payload> Pcb<P> {
    /// True if sent data is recorded, because there may be losses.
    pub(in crate::tcp) fn keeps_records(&self) -> bool {
        !self.tuning.lossless
    }

    /// Output has ended: checks whether the window is used (`tcp_cwnd_validate`). A window that was not used for the length of a timeout is reduced,
    /// half way to what was used of it (`tcp_cwnd_application_limited`, RFC 2861 section 3.1).
    #[inline]
    pub(in crate::tcp) fn look_at_usage(&mut self, now: Instant) {
        self.nagle.set_write(false);
        if let Some(loss) = self.loss.as_deref_mut() {
            let has_sent = core::mem::take(&mut loss.has_sent);
            let looks = loss.is_looked_at;
            loss.frto = loss.frto.and_then(|frto| frto.after_output(self.snd_max));
            if has_sent || (looks && self.has_unsent()) {
                self.validate_window(has_sent, now);
            }
        }
    }

    /// A segment has arrived, or a call was made. `looks`: it is one for which the kernel looks for something to send (`tcp_rcv_established`,
    /// `__tcp_push_pending_frames`), and so checks the use of the window. That also ends what `MSG_MORE` holds back.
    #[inline]
    pub(in crate::tcp) fn look_at_usage_after(&mut self, looks: bool) {
        if let Some(loss) = self.loss.as_deref_mut() {
            loss.note_look(looks);
        }
        if looks && self.nagle.is_held() {
            self.end_hold();
        }
    }

    /// Output begins, for a write if `so_snd` has grown to `snd_len` bytes. Notes whether all earlier text was sent.
    #[inline]
    pub(in crate::tcp) fn note_write(&mut self, snd_len: u32) {
        if snd_len <= self.snd_len {
            return;
        }
        let added = snd_len - self.snd_len;
        // A short segment that waits is filled up, and sent by itself as any other (`tcp_push_one`). Of several records, the first has waited.
        let waits = self.unsent(self.snd_len);
        // What a segment releases that has just arrived is sent at one time.
        let is_first = !self.learns_late()
            && (waits == 0
                || waits < u32::from(self.send_mss()) && self.unsent_in_record(self.snd_len) == waits)
            && self.within_record(self.snd_len, added) == added;
        if is_first && !self.is_urgent_up_to(snd_len) {
            self.nagle.set_write(true);
        }
        if let Some(loss) = self.loss.as_deref_mut() {
            // A write that was not told before a timer expired was checked before that.
            loss.note_look(!loss.is_only_repair);
        }
    }

    #[inline(never)]
    pub(super) fn validate_window(&mut self, has_sent: bool, now: Instant) {
        if !self.keeps_records() {
            return;
        }
        let is_reduced = self.recovery.phase() == Phase::Recovery && !self.cc.governs_recovery();
        let (mss, cwnd) = (u32::from(self.mss), self.cc.cwnd());
        let (una, max) = (self.snd_una, self.snd_max);
        let rto_us = self.rtt.rto_us(self.tuning.rto_max_us);
        let is_open = self.recovery.phase() == Phase::Open && self.tuning.slow_start_after_idle;
        let is_slow_start = cwnd < self.cc.ssthresh();
        let Some(loss) = self.loss.as_deref_mut() else { return };
        loss.usage.is_untold = false;
        let window = if is_reduced { loss.prr.cwnd() } else { cwnd };
        let is_full = window < loss.window_pipe(mss).saturating_add(mss);
        if !has_sent && !is_full {
            return;
        }
        let outstanding = loss.records.counts().all().saturating_mul(mss);
        loss.usage.note((una, max), outstanding, is_full);
        let unused = loss.usage.unused_for(outstanding, cwnd, is_slow_start, rto_us, now);
        if let Some(used) = unused.filter(|_| is_open && !loss.is_disordered) {
            self.cc.on_unused(used, mss);
        }
    }

    /// Enters an acknowledgment into the records. SND.UNA has moved by `acked` bytes, of `flight`. `None` if no records are kept.
    #[inline(never)]
    pub(in crate::tcp) fn take_report(
        &mut self,
        acked: u32,
        flight: u32,
        (ts, sack): (Option<Timestamps>, &SackBlocks),
        now: Instant,
    ) -> Option<Report> {
        if !self.keeps_records() {
            return None;
        }
        let (una, mss, echo, offset) = (self.snd_una, u32::from(self.mss), self.echo(ts), self.ts_offset);
        let loss = self.loss.as_deref_mut()?;
        let has_blocks = self.sack_ok && !sack.is_empty();
        let told = has_blocks.then(|| sorted(sack.as_slice(), una, self.snd_max, self.max_snd_wnd));
        let (dsack, blocks) = told.unwrap_or_default();
        let mut report = Report { acked, flight, ..Report::default() };
        loss.note_duplicate(dsack, mss, &mut report);
        let (mut twice_count, undone_at) = (loss.twice_count, loss.undone_at(now));
        let (repeated_until, recover) = (loss.repeated_until, loss.frto.map(|frto| frto.recover));
        let mut note = |rack: &mut Rack, report: &mut Report, record: &Record| {
            // This count does not include what only a probe has retransmitted.
            if record.repeated && record.sent_at < undone_at && record.end.at_or_before(repeated_until) {
                twice_count = twice_count.saturating_sub(record.count);
            }
            let sent = timestamp::value(record.sent_at, offset);
            let ours = echo.is_none_or(|ecr| !timestamp::older(ecr, sent));
            report.add(record, recover);
            rack.on_delivered(record, now, ours)
        };
        let (mut sent, mut acked_round_trip) = (None, None);
        (report.has_segment, report.is_ambiguous) = loss.records.ack(una, |record: &Record| {
            if record.count == 0 {
                // A part of a segment does not show when it was sent (`tcp_clean_rtx_queue`).
                report.delivered += record.len();
                return;
            }
            acked_round_trip = note(&mut loss.rack, &mut report, record).or(acked_round_trip);
            sent = Some(record.span_with(sent));
        });
        if self.sack_ok {
            loss.rack.measure_reordering(una, mss);
        } else {
            loss.fill_hole(&mut report);
        }
        let round_trip = |at| Some(u32::try_from(since_us(now, at)).unwrap_or(u32::MAX).max(1));
        if let Some((first, last)) = sent.filter(|_| !report.is_ambiguous) {
            (report.ack_rtt_us, report.rtt_us) = (round_trip(first), round_trip(last));
        }
        if has_blocks {
            let (before, mut sent) = (loss.records.sacked(), None);
            loss.records.set_segments(flight / mss);
            for block in blocks.into_iter().flatten() {
                loss.records.sack(block.start, block.end, |record: &Record| {
                    let _ = note(&mut loss.rack, &mut report, record);
                    sent = if record.repeated { sent } else { Some(record.span_with(sent)) };
                });
            }
            if let Some((first, last)) = sent {
                (report.sack_rtt_us, report.rtt_us) = (round_trip(first), round_trip(last));
            }
            loss.rack.measure_reordering(una, mss);
            loss.rack.keep_round_trip(acked_round_trip);
            report.sacked = loss.records.sacked() - before;
        }
        loss.twice_count = twice_count;
        loss.rack.on_ack(una, loss.records.counts().sacked);
        loss.rate.on_delivered(report.delivered, now);
        Some(report)
    }

    /// Measures the round trip of a report (`tcp_ack_update_rtt`). It is that of the first segment acknowledged, unless one of them was
    /// retransmitted, because the acknowledgment may then have waited for that. Else it is that of the first segment that a block reports, else that
    /// of the peer's echo. A part of a segment measures nothing (`tcp_clean_rtx_queue`).
    pub(in crate::tcp) fn measure_report(&mut self, report: &Report, ts: Option<Timestamps>, now: Instant) {
        let by_time = report.ack_rtt_us.or(report.sack_rtt_us).map(u64::from);
        let sample = by_time.or_else(|| if report.has_segment { self.echoed_us(ts, now) } else { None });
        let Some(rtt_us) = sample else { return };
        self.take_sample(rtt_us);
        if let Some(loss) = self.loss.as_deref_mut() {
            loss.note_round_trip();
            let last_us = report.rtt_us.unwrap_or_else(|| u32::try_from(rtt_us).unwrap_or(u32::MAX));
            loss.rack.on_round_trip(last_us, now);
        }
    }

    /// Draws the conclusions from a report.
    #[inline(never)]
    pub(in crate::tcp) fn after_report(&mut self, report: &Report, ts: Option<Timestamps>, now: Instant) {
        let Some(mut loss) = self.loss.take() else { return };
        let phase = self.recovery.phase();
        let is_plain = phase == Phase::Open && !loss.is_disordered && !report.is_sign();
        let was_waiting = loss.probe_at != NEVER || loss.reorder_at != NEVER;
        if report.moves() {
            loss.note_look(true);
        }
        let rtt_us = match report.rtt_us {
            None if report.has_segment => self.rtt_by_echo(ts, now),
            rtt_us => rtt_us,
        };
        if let Some(rtt_us) = rtt_us.filter(|_| !report.is_old) {
            self.cc.on_round_trip(rtt_us, now);
        }
        self.judge_probe(&mut loss, report, now);
        if loss.path_mtu.is_some() {
            self.judge_mtu_probe(&mut loss, now);
        }
        self.take_dsack(&mut loss, report);
        if !is_plain && report.moves() && loss.records.starts_sacked() {
            self.expect_renege(&mut loss, report, now);
            self.loss = Some(loss);
            return;
        }
        let sign = self.undo_if_spurious(&mut loss, report, (ts, now));
        let ends_recovery = self.pass_recovery_point(&mut loss) && phase == Phase::Recovery;
        let looks = self.sack_ok && !is_plain && !loss.holds_repairs && loss.rack.take_news();
        let found = if looks { self.find_losses(&mut loss, now) } else { Detection::NOTHING };
        let (lost, told) =
            if self.sack_ok { (found.lost, 0) } else { self.judge_duplicates(&mut loss, report, phase) };
        let begins = self.begins_repair(&mut loss, &found, (phase, sign), now);
        if ends_recovery && !begins {
            let paces = self.tuning.pacing != PacingMode::Off;
            self.cc.on_recovery_end(self.flight(), u32::from(self.mss), paces);
        }
        let mut news = self.news(&mut loss, report, (lost, begins), (rtt_us, now));
        if self.cc.wants_rate_samples() {
            news.loss = found.snapshot.and_then(|snapshot| loss.rate.loss_sample(snapshot));
        }
        if (report.delivered > 0 || report.acked > 0 || lost > 0) && !report.is_old {
            self.cc.on_ack(&news);
        }
        if report.has_segment {
            loss.usage.touch(now);
        }
        if begins {
            self.enter_recovery(&mut loss, now);
        }
        if !report.is_old {
            let delivered = (report.count + told).saturating_mul(self.mss.into());
            self.reduce_window(&mut loss, delivered, report.acked > 0 && lost == 0);
        }
        self.allow(&loss);
        // `tcp_try_keep_open`, for acknowledgments that are not plain progress.
        loss.is_disordered = (report.is_sign() || loss.is_disordered || phase != Phase::Open)
            && self.recovery.phase() == Phase::Open
            && (loss.records.sacked() > 0 || loss.stood_for > 0 || loss.has_repeats(self.snd_una));
        // Moves along, or it would count as ahead of SND.UNA again after 2 GiB.
        loss.repeated_until = loss.repeated_until.max(self.snd_una);
        self.forget_repeats(&mut loss);
        if !looks && self.renews_timer(&loss, report, now) {
            // The only timer was the reordering timer, and becomes another one (`tcp_set_xmit_timer`).
            loss.reorder_at = NEVER;
        }
        self.arm_after_report(&mut loss, report, was_waiting, now);
        self.loss = Some(loss);
    }

    /// If a repair has ended, or is only held because there is no SACK, and no repetition is in flight, the next repetition is the first.
    fn forget_repeats(&self, loss: &mut Loss) {
        let is_over = self.recovery.phase() == Phase::Open || !self.snd_una.before(self.recovery.recover());
        if is_over && !loss.has_repeats(self.snd_una) {
            loss.repeated_ts = None;
        }
    }

    /// Whether the timer restarts: a segment is acknowledged, or a later segment has just measured a round trip longer than the first segment has
    /// been in flight.
    pub(super) fn renews_timer(&self, loss: &Loss, report: &Report, now: Instant) -> bool {
        let is_longer = |rtt_us| {
            loss.records.first().is_some_and(|first| since_us(now, first.sent_since()) < u64::from(rtt_us))
        };
        report.has_segment || report.sack_rtt_us.is_some_and(is_longer)
    }

    /// Looks for losses, and sets the timer that looks again. It replaces the retransmission timer, so it runs no longer than a retransmission timeout.
    pub(super) fn find_losses(&mut self, loss: &mut Loss, now: Instant) -> Detection {
        let repairing = self.recovery.phase() != Phase::Open;
        loss.reorder_at = NEVER;
        let Some((latest, patience)) = loss.rack.patience(repairing, self.rtt.srtt_us()) else {
            return Detection::NOTHING;
        };
        let undone = (loss.repeated_until, loss.undone_at(now));
        let found = loss.records.detect(latest, patience, undone, now);
        if found.due != NEVER {
            let due = after_us(found.due, REORDERING_SLACK_US);
            loss.reorder_at = due.min(after_us(now, self.rtt.rto_us(self.tuning.rto_max_us)));
        }
        loss.twice_count = loss.twice_count.saturating_sub(found.lost_twice);
        loss.rate.on_lost(found.lost);
        found
    }

    /// Whether fast recovery begins. It does if something is lost and no repair is under way, or if, after a timeout, something retransmitted is lost
    /// (`loses_repeats`), which is another sign of congestion (RFC 5681 section 4.3).
    pub(super) fn begins_recovery(&self, loss: &Loss, loses_repeats: bool) -> bool {
        let may_begin = match self.recovery.phase() {
            Phase::Open => true,
            Phase::Loss => loses_repeats,
            Phase::Recovery => false,
        };
        may_begin && loss.records.lost() > 0
    }

    /// Whether fast recovery begins, or another one: after a report in phase `was` that has `found` losses, or shown by `sign` that there were none.
    fn begins_repair(
        &self,
        loss: &mut Loss,
        found: &Detection,
        (was, sign): (Phase, Option<Sign>),
        now: Instant,
    ) -> bool {
        // A lost probe does not count as a repetition that is lost again.
        let loses_repeats = found.lost_again.is_some_and(|end| end.at_or_before(loss.repeated_until));
        self.begins_recovery(loss, loses_repeats) || self.begins_anew(loss, was, sign, now)
    }

    /// Whether another recovery begins: the recovery of phase `was` has ended and was not undone, and something that it has retransmitted is still in
    /// flight.
    fn begins_anew(&self, loss: &mut Loss, was: Phase, sign: Option<Sign>, now: Instant) -> bool {
        let has_ended = was != Phase::Open && self.recovery.phase() == Phase::Open;
        has_ended && sign.is_none() && loss.has_repairs_out(now)
    }

    /// Fast recovery begins.
    pub(super) fn enter_recovery(&mut self, loss: &mut Loss, now: Instant) {
        if loss.path_mtu.is_some() && self.lost_only_mtu_probe(loss, now) {
            return;
        }
        let (flight, mss) = (self.flight(), u32::from(self.mss));
        let prior_cwnd = self.cc.cwnd();
        if !loss.has_repeats(self.snd_una) {
            // Also if another has just ended (`tcp_retrans_stamp_cleanup`).
            loss.repeated_ts = None;
        }
        loss.begin_undo(Undo::new(self.cc.clone(), self.snd_una, self.snd_max));
        // A loss in the same round trip as a mark reports the same congestion again.
        if !self.ecn.covers(self.snd_una) {
            self.cc.on_congestion(&Congestion { now, cause: Cause::Loss, flight, mss });
            self.ecn.on_reduced(self.snd_max);
        }
        self.recovery.begin(self.snd_max);
        (loss.frto, loss.for_mtu) = (None, false);
        loss.prr = Prr::new(prior_cwnd);
        count(&mut loss.stats.recovery_count);
        (loss.probe_at, loss.probe_now, loss.probe) = (NEVER, false, None);
    }

    /// Sets the window of a fast recovery after `delivered` bytes have arrived; `is_safe` if SND.UNA has moved and nothing was found lost. What
    /// arrives by an acknowledgment older than SND.UNA, and what is found lost, does not come here: it makes room in the present window.
    pub(super) fn reduce_window(&mut self, loss: &mut Loss, delivered: u32, is_safe: bool) {
        if self.recovery.phase() == Phase::Recovery && delivered > 0 && !self.cc.governs_recovery() {
            let mss = u32::from(self.mss);
            let pipe = loss.window_pipe(mss);
            loss.prr.on_ack(delivered, is_safe, pipe, self.cc.ssthresh(), mss);
        }
    }

    /// Sets how much may be sent. The window counts segments in the network, and output counts outstanding bytes.
    pub(super) fn allow(&mut self, loss: &Loss) {
        let aside = i64::from(self.flight()) - i64::from(loss.window_pipe(self.mss.into()));
        let beyond = match self.recovery.phase() {
            Phase::Recovery if !self.cc.governs_recovery() => {
                aside + i64::from(loss.prr.cwnd()) - i64::from(self.cc.cwnd())
            }
            Phase::Recovery | Phase::Open | Phase::Loss => aside,
        };
        // Flights and windows are below 2^31.
        self.recovery.inflate(i32::try_from(beyond).unwrap_or(i32::MAX));
    }

    /// Bytes outstanding.
    pub(super) fn flight(&self) -> u32 {
        self.snd_max.since(self.snd_una)
    }

    /// Was the tail loss probe needed (RFC 8985 section 7.4.2)?
    fn judge_probe(&mut self, loss: &mut Loss, report: &Report, now: Instant) {
        let Some(probe) = loss.probe.filter(|probe| self.snd_una.at_or_after(probe.end)) else { return };
        // The peer has received it twice: it says so, or answers what is not new (`tcp_process_tlp_ack`).
        let is_told = report.dsack.is_some_and(|dsack| dsack.end == probe.end);
        let is_answered = report.is_duplicate && report.sacked == 0;
        if !probe.repeats || is_told || is_answered {
            loss.probe = None;
        } else if self.snd_una.after(probe.end) {
            // The probe has repaired a loss that nothing else had shown.
            loss.probe = None;
            let (flight, mss) = (report.flight, u32::from(self.mss));
            self.cc.on_congestion(&Congestion { now, cause: Cause::Loss, flight, mss });
            self.ecn.on_reduced(self.snd_max);
            loss.usage.touch(now);
        }
    }

    /// Ends the phase when everything is acknowledged that was outstanding when it began. True if it has ended.
    fn pass_recovery_point(&mut self, loss: &mut Loss) -> bool {
        let phase = self.recovery.phase();
        if phase == Phase::Open || self.snd_una.before(self.recovery.recover()) {
            return false;
        }
        if self.holds_repair() {
            loss.hold(phase);
            return false;
        }
        if phase == Phase::Loss {
            loss.frto = None;
        }
        self.recovery.finish();
        loss.for_mtu = false;
        loss.rack.on_recovery_end();
        if let Some(undo) = loss.undo.as_mut() {
            undo.on_end(self.snd_max);
        }
        true
    }

    /// The peer echoed a mark, and the window was reduced. A mark is not a mistake of ours, so the old window is not restored later.
    pub(in crate::tcp) fn note_mark_answered(&mut self) {
        if let Some(loss) = self.loss.as_deref_mut() {
            count(&mut loss.stats.mark_count);
            loss.undo = None;
        }
    }

    /// The peer echoed a mark during a repair, or in the round trip behind it: if the reduction for the repair turns out to be needless, the window stays reduced for the mark
    /// (`tcp_fastretrans_alert`, "A").
    pub(in crate::tcp) fn note_mark_in_a_repair(&mut self) {
        if let Some(undo) = self.loss.as_deref_mut().and_then(|loss| loss.undo.as_mut()) {
            undo.before = None;
        }
    }

    /// The report to congestion control.
    pub(super) fn news(
        &mut self,
        loss: &mut Loss,
        report: &Report,
        (lost, begins): (u32, bool),
        (rtt_us, now): (Option<u32>, Instant),
    ) -> Ack {
        let sample = |(_, number): (Sent, u32)| loss.rate.sample(number, now, loss.rack.min_rtt_us());
        let rate: Option<RateSample> =
            if self.cc.wants_rate_samples() { report.latest.and_then(sample) } else { None };
        // The acknowledgment that begins a repair belongs to it, and the one that ends it lets the window grow (`tcp_cong_control`).
        let phase = self.recovery.phase();
        Ack {
            now,
            // A part of a segment lets nothing grow, even if a block reports more (`tcp_may_raise_cwnd`).
            acked: if report.has_segment { report.acked } else { 0 },
            // Windows grow by whole segments.
            delivered: match self.cc.wants_rate_samples() {
                true => report.delivered,
                false => report.count.saturating_mul(self.mss.into()),
            },
            lost,
            flight: report.flight,
            pipe: loss.pipe(self.flight()),
            used: loss.usage.get(),
            mss: u32::from(self.mss),
            phase: if begins { Phase::Recovery } else { self.growth_phase(phase) },
            rtt_us,
            paced: self.tuning.pacing == PacingMode::On,
            reorders: loss.rack.reorders_much(),
            rate,
            loss: None,
        }
    }

    /// The round trip of a retransmission, whose acknowledgment may have waited for it: the echo shows it. Microseconds.
    #[cold]
    fn rtt_by_echo(&self, ts: Option<Timestamps>, now: Instant) -> Option<u32> {
        self.echoed_us(ts, now).map(|us| u32::try_from(us).unwrap_or(u32::MAX))
    }
}

/// The valid blocks, in order of their numbers, and the report of a duplicate if there is one (RFC 2883 section 4: the first block, if it lies below
/// SEG.ACK or inside the second). No block is longer than the largest window, `wnd`; a duplicate may be old (`tcp_dsack_seen`).
fn sorted(
    blocks: &[SackBlock],
    una: SeqNum,
    max: SeqNum,
    wnd: u32,
) -> (Option<SackBlock>, [Option<SackBlock>; SACK_BLOCKS_MAX]) {
    let inside = |a: &SackBlock, b: &SackBlock| a.start.at_or_after(b.start) && a.end.at_or_before(b.end);
    let dsack = blocks.first().copied().filter(|first| {
        first.start.before(first.end)
            && first.start.at_or_after(una - DSACK_BELOW_UNA_MAX)
            && first.end.since(first.start) <= wnd
            && first.end.at_or_before(max)
            && (first.start.before(una) || blocks.get(1).is_some_and(|second| inside(first, second)))
    });
    let mut out = [None; SACK_BLOCKS_MAX];
    for (slot, block) in out.iter_mut().zip(blocks.iter().skip(usize::from(dsack.is_some()))) {
        let valid = block.start.before(block.end) && block.end.at_or_before(max) && block.end.after(una);
        if valid && block.start.at_or_after(una - wnd.min(DSACK_BELOW_UNA_MAX)) {
            *slot = Some(SackBlock { start: block.start.max(una), end: block.end });
        }
    }
    // By distance from SND.UNA: all of them lie ahead of it.
    out.sort_unstable_by_key(|slot| slot.map(|block| block.start.since(una)));
    (dsack, out)
}

/// How much longer than RACK's window the reordering timer waits, so that what is on its way arrives before it (`TCP_TIMEOUT_MIN_US`).
const REORDERING_SLACK_US: u64 = 2_000;
/// How far below SND.UNA the report of a duplicate may lie: no peer has a larger window.
const DSACK_BELOW_UNA_MAX: u32 = 1 << 30;

#[cfg(test)]
mod tests;
