//! The timers of loss recovery: reordering, tail loss probe, pacing, freeing memory, and the effect of a retransmission
//! timeout on records.
//!
//! The caller sees one deadline (`Loss::deadline`), as with all timers of a pcb. No wake-up is lost: a probe or a pause
//! of pacing that is due sets a flag that the next `poll_transmit` finds, and the retransmission timer also runs. It
//! does not depend on the caller's wheel. Tests: `tests/rack.rs`, `tests/undo.rs`.

use crate::time::Instant;

use super::super::cc::{CongestionControl, Phase};
use super::super::pcb::Pcb;
use super::super::segment::Payload;
use super::super::timers::{NEVER, after_us};
use super::ack::Report;
use super::stats::count;
use super::undo::{Frto, Undo};
use super::{Loss, TRIM_AFTER};

impl<P: Payload> Pcb<P> {
    /// Runs the timers that are due. True if a probe is sent instead of a retransmission.
    #[inline(never)]
    pub(in crate::tcp) fn on_loss_timer(&mut self, now: Instant) -> bool {
        let Some(mut loss) = self.loss.take() else { return false };
        if loss.trim_at <= now {
            // The pace outlasts what was paced: what is sent next waits for it.
            loss.trim_at = if loss.pacing.free_at() > now { loss.pacing.free_at() } else { NEVER };
            // Models of the path count rounds by what was delivered in all.
            if loss.trim_at == NEVER && !loss.is_worth_keeping() && !self.cc.wants_rate_samples() {
                self.rtt.keep(loss.rack.round_trips());
                return false;
            }
            loss.records.shrink();
            loss.rate.shrink();
        }
        if loss.reorder_at <= now {
            (loss.is_only_repair, loss.usage.is_untold) = (true, true);
            let found = self.find_losses(&mut loss, now);
            let begins = self.begins_recovery(&loss, found.lost > 0);
            self.rexmt_at = self.first_is_due(&loss).max(after_us(now, 1));
            if loss.reorder_at > self.rexmt_at {
                // The timeout of the first segment is not delayed again.
                loss.reorder_at = NEVER;
            }
            self.give_way(loss.reorder_at);
            if begins {
                self.enter_recovery(&mut loss, now);
            }
            if begins && self.recovery.phase() == Phase::Recovery {
                // This counts as if a segment had arrived, whose acknowledgment would have been the sign
                // (`tcp_rack_reo_timeout`).
                let mss = u32::from(self.mss);
                self.reduce_window(&mut loss, mss, false);
            }
            self.allow(&loss);
        }
        let is_due = loss.probe_at <= now;
        // Pacing holds back what the probe would send, and the timeout waits for that, too (`tcp_pacing_check`,
        // `tcp_pacing_delay`).
        let held = loss.pacing.deadline();
        let is_held = held != NEVER && held > now;
        let probe = is_due && loss.probe.is_none() && !is_held;
        if is_due {
            loss.probe_at = NEVER;
            loss.probe_now = probe;
            // The retransmission timer restarts when the probe is sent; until then it must not be due. If a probe is in
            // flight, it is the timer of the first segment.
            self.arm_rexmt(now);
            if !probe {
                self.rexmt_at = self.first_is_due(&loss).max(after_us(now, 1));
            }
            if is_held {
                self.rexmt_at = self.rexmt_at.max(after_us(held, BEHIND_THE_PACE_US));
            }
        }
        self.loss = Some(loss);
        probe
    }

    /// The retransmission timer has expired over data in flight: the first segment is lost, and everything that has
    /// been in flight for longer than a round trip (RFC 8985 section 6.3). Everything is lost if the peer has discarded
    /// out-of-order data. False if there are no records. The caller reports it to congestion control, which `reduces`
    /// the threshold. `is_first`: nothing has expired since the last acknowledgment.
    pub(in crate::tcp) fn lose_overdue(&mut self, is_first: bool, reduces: bool, now: Instant) -> bool {
        let (phase, mss) = (self.recovery.phase(), u32::from(self.mss));
        let Some(loss) = self.loss.as_deref_mut() else { return false };
        if loss.records.is_empty() {
            return false;
        }
        let reneged = loss.records.starts_sacked();
        if reneged {
            // The peer reports data that it does not acknowledge: it has discarded that data.
            loss.records.forget_sacks();
            loss.rack.on_renege(self.snd_una);
            count(&mut loss.stats.renege_count);
        }
        (loss.frto, loss.for_mtu, loss.is_only_repair) = (None, false, true);
        (loss.holds_repairs, loss.repeats_one, loss.usage.is_untold) = (false, true, true);
        if let Some(path) = loss.path_mtu.as_deref_mut() {
            path.on_timeout();
        }
        count(&mut loss.stats.rto_count);
        // Step 1 of RFC 5682 section 3: not in a recovery, nor after progress in a repair, because F-RTO would take an
        // arrival of the repair for one of the data sent before.
        if phase == Phase::Open || !is_first {
            loss.frto = Some(Frto { recover: self.snd_max, tries_new_data: false, pushes: false });
        }
        if reneged {
            loss.records.lose_all();
        } else {
            // RACK does not use the acknowledgments of a peer without SACK, so the round trip is unknown.
            let wait_us = if self.sack_ok { loss.rack.patience_of_timeout() } else { 0 };
            loss.records.lose_overdue(mss, wait_us, now);
        }
        if reduces {
            // Nothing waits for repetitions that are marked lost.
            loss.begin_undo(Undo::new(self.cc.clone(), self.snd_una, self.snd_max));
        }
        (loss.reorder_at, loss.probe_at, loss.probe_now, loss.probe) = (NEVER, NEVER, false, None);
        (loss.twice_count, loss.stood_for) = (0, 0);
        true
    }

    /// A pause of `rtos` timeouts reduces the window, also that of a recovery which is held although nothing is in
    /// flight.
    pub(in crate::tcp) fn restart_window(&mut self, rtos: u32, now: Instant) {
        let mss = u32::from(self.mss);
        self.cc.on_idle(rtos, mss);
        let Some(mut loss) = self.loss.take() else { return };
        loss.restart_usage(now);
        if self.recovery.phase() == Phase::Recovery && self.keeps_records() {
            loss.prr.on_idle(rtos, mss);
            self.allow(&loss);
        }
        self.loss = Some(loss);
    }

    /// Starts the only timer that runs after a report (`tcp_set_xmit_timer`): that of reordering, of the tail loss probe, or of retransmission, which
    /// counts from the first segment if one of the others `was_waiting`.
    pub(super) fn arm_after_report(
        &mut self,
        loss: &mut Loss,
        report: &Report,
        was_waiting: bool,
        now: Instant,
    ) {
        if loss.records.is_empty() {
            (loss.probe_at, loss.probe_now) = (NEVER, false);
            loss.reorder_at = NEVER;
            loss.trim_at = now + TRIM_AFTER;
            if !self.has_unsent() {
                // What waited for its pace has arrived after all.
                loss.pacing.stop_waiting();
            }
            return;
        }
        if report.acked > 0 {
            loss.records.set_round_trip(self.rtt.srtt_us());
        }
        if loss.reorder_at != NEVER {
            loss.probe_at = NEVER;
            return self.give_way(loss.reorder_at);
        }
        let renews = self.renews_timer(loss, report, now);
        if loss.is_disordered || self.recovery.phase() != Phase::Open {
            // Otherwise the timer goes on, also that of a probe while what was too long is repaired
            // (`FLAG_SET_XMIT_TIMER`).
            if renews {
                loss.probe_at = NEVER;
                self.arm_rexmt_alone(now);
                if was_waiting {
                    self.rexmt_at = self.first_is_due(loss).max(after_us(now, 1));
                }
            }
        } else if renews {
            let due = after_us(now, self.rtt.rto_us(self.tuning.rto_max_us));
            self.arm_probe(loss, due, now);
        }
    }

    /// Another timer of loss recovery, which expires at `at`, replaces the retransmission timer (on Linux they are
    /// one).
    pub(super) fn give_way(&mut self, at: Instant) {
        if at != NEVER && self.rexmt_at <= at {
            self.rexmt_at = after_us(at, AFTER_ANOTHER_US);
        }
    }

    /// The duration of the retransmission timer has changed: it counts from the latest transmission of the first
    /// segment. A user timeout does not shorten it (`tcp_ld_RTO_revert`).
    pub(in crate::tcp) fn rearm_for_first(&mut self, now: Instant) {
        let mut sent_at = self.last_snd_at;
        if let Some(loss) = self.loss.as_deref_mut() {
            // Linux has only one timer.
            loss.reorder_at = NEVER;
            sent_at = loss.records.first().map_or(sent_at, |first| first.sent_since());
        }
        self.arm_rexmt_alone(sent_at);
        self.rexmt_at = self.rexmt_at.max(now);
    }

    /// One segment may be sent regardless of what is in flight: the first one after an expiry of the retransmission
    /// timer.
    pub(in crate::tcp) fn allow_a_segment(&mut self) {
        let (flight, mss) = (self.flight(), u32::from(self.mss));
        let beyond = i64::from(flight) + i64::from(mss) - i64::from(self.cc.cwnd());
        self.recovery.inflate(i32::try_from(beyond).unwrap_or(i32::MAX));
    }
}

/// After another timer of loss recovery has expired, this much time remains for what it sends.
const AFTER_ANOTHER_US: u64 = 1_000;
/// Delay of the timeout after the time at which pacing releases data, so that the data is sent first, even with timers
/// of 4 ms ticks.
const BEHIND_THE_PACE_US: u64 = 5_000;

#[cfg(test)]
mod tests {
    use super::super::super::settings::Settings;
    use super::super::super::tests::script::{MSS, Script, WND, ms, plain};
    use super::super::records::Record;
    use super::*;

    fn in_flight() -> Script {
        let mut t = Script::established(&Settings { sack: true, ..plain() });
        assert_eq!(t.write(5 * MSS).len(), 5);
        t
    }

    #[test]
    fn after_a_timeout_a_segment_may_leave_beside_all_that_is_out() {
        for cwnd in [1, 4, 20] {
            let mut t = in_flight();
            t.pcb.cc =
                super::super::super::cc::Cc::new(super::super::super::cc::Algorithm::NewReno, MSS, false)
                    .with_window(cwnd * MSS, 2 * MSS);
            t.pcb.allow_a_segment();
            assert_eq!(t.pcb.recovery.window(&t.pcb.cc, MSS), 6 * MSS, "{cwnd}");
        }
    }

    /// RFC 5682 section 3, step 1.
    #[test]
    fn new_data_decides_after_a_timeout_but_not_in_a_recovery_or_after_progress_in_a_repair() {
        for (phase, is_first, decides) in [
            (Phase::Open, true, true),
            (Phase::Open, false, true),
            (Phase::Recovery, true, false),
            (Phase::Loss, true, false),
            (Phase::Loss, false, true),
        ] {
            let mut t = in_flight();
            match phase {
                Phase::Open => {}
                Phase::Recovery => t.pcb.recovery.begin(t.pcb.snd_max()),
                Phase::Loss => t.pcb.recovery.on_timeout(t.pcb.snd_max()),
            }
            assert!(t.pcb.lose_overdue(is_first, false, t.now));
            let found = t.pcb.loss.as_deref().is_some_and(|loss| loss.frto.is_some());
            assert_eq!(found, decides, "{phase:?} {is_first}");
        }
    }

    /// `tcp_rto_delta_us`: Linux joins what one block reports, and the first time stays.
    #[test]
    fn what_the_peer_may_have_thrown_away_is_due_by_its_first_segment() {
        let mut t = in_flight();
        let sent = t.now;
        t.now = t.now + ms(50);
        t.write(MSS);
        t.report(0, &[(0, 6)]);
        let rto_us = t.pcb.rtt.rto_us(t.pcb.tuning.rto_max_us);
        let loss = t.pcb.loss.as_deref().unwrap();
        assert_eq!(loss.records.first().map(Record::len), Some(6 * MSS));
        assert_eq!(t.pcb.first_is_due(loss), after_us(sent, rto_us));
        t.pcb.rearm_for_first(t.now);
        assert_eq!(t.pcb.rexmt_at, after_us(sent, rto_us));
    }

    /// `tcp_send_loss_probe`: a probe of new text is not sent ahead of the pace.
    #[test]
    fn the_pace_holds_back_a_probe_and_the_timeout_behind_it() {
        for (rate, probes) in [(None, true), (Some(50_000), false)] {
            let mut t = in_flight();
            t.pcb.set_max_pacing_rate(rate);
            let _ = t.write(50 * MSS);
            let now = t.now;
            let loss = t.pcb.loss.as_deref_mut().unwrap();
            let held = loss.pacing.deadline();
            assert_eq!(held == NEVER, probes);
            loss.probe_at = now;
            assert_eq!(t.pcb.on_loss_timer(now), probes);
            assert_eq!(t.pcb.loss.as_deref().unwrap().probe_now, probes);
            assert!(probes || t.pcb.rexmt_at > held);
        }
    }

    /// `tcp_rcv_established`: text of a transfer in one direction is no occasion to check the use of the window.
    #[test]
    fn text_that_says_nothing_new_of_ours_passes_over_the_use_of_the_window() {
        for timestamps in [false, true] {
            for (text, window, passes) in [
                (&b"text"[..], WND, true),
                (b"", WND, false),
                (b"text", WND + 1, false),
                (b"", WND + 1, false),
            ] {
                let mut t = Script::established(&Settings { sack: true, timestamps, ..plain() });
                t.write(5 * MSS);
                // A segment without the negotiated option goes through all steps.
                let mut header = t.ack_of(0, window);
                header.options.timestamps = None;
                let _ = t.input(header, text);
                let found = t.pcb.loss.as_deref().unwrap().is_looked_at;
                assert_eq!(found, !passes, "{timestamps} {text:?} {window}");
            }
        }
    }
}
