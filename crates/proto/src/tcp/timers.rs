//! The timers: retransmission, persist, delayed acknowledgment, keepalive, FIN-WAIT-2 and 2MSL.
//!
//! A timer is a deadline in the pcb, [`NEVER`] while it does not run; arming and disarming one is a store. The caller
//! keeps one timer per connection at [`Pcb::next_deadline`] and may be late or early: a deadline that has not passed
//! has no effect. It does not depend on the caller's wheel. Retransmission and persist share a slot, because data is
//! either in flight or held back by the window. FIN-WAIT-2 and TIME-WAIT share one, because they are states. No wake-up
//! is lost: whenever data is unacknowledged or held back by the window, that slot runs (`output.rs` arms it, asserted
//! in `tests/properties.rs`). Tests: `timers/tests.rs`, `tests/timers.rs`.

use core::time::Duration;

use crate::time::Instant;

use super::cc::{CongestionControl, Phase};
use super::eor::RecordEnds;
use super::events::{Events, TimerOutcome};
use super::pcb::{Pcb, Timing};
use super::segment::Payload;
use super::settings::KeepaliveSettings;
use super::state::State;

/// The deadline of a timer that does not run.
pub(super) const NEVER: Instant = Instant::from_micros(u64::MAX);

/// Keepalive of a connection that uses it, or used it before.
#[derive(Debug)]
pub(super) struct Keepalive {
    settings: KeepaliveSettings,
    /// Probes sent since the peer was last heard.
    probe_count: u8,
    /// When the last of them was sent.
    probed_at: Instant,
    /// When the peer's silence is looked at next; `NEVER` if the timer does not run.
    at: Instant,
}

impl Keepalive {
    pub fn new(settings: KeepaliveSettings) -> Option<Box<Self>> {
        settings
            .enabled
            .then(|| Box::new(Self { settings, probe_count: 0, probed_at: Instant::ZERO, at: NEVER }))
    }

    pub fn settings(&self) -> KeepaliveSettings {
        self.settings
    }

    pub fn is_on(&self) -> bool {
        self.settings.enabled
    }

    /// Probes sent since the peer was last heard, at `heard_at`.
    pub fn probe_count(&self, heard_at: Instant) -> u8 {
        // The count itself is reset when the next probe may be due.
        if heard_at >= self.probed_at { 0 } else { self.probe_count }
    }
}

impl<P: Payload> Pcb<P> {
    /// When [`Pcb::on_timer`] must next be called; `None` if no timer runs.
    pub fn next_deadline(&self) -> Option<Instant> {
        let mut earliest = self.rexmt_at.min(self.delack_at).min(self.two_msl_at.min(self.keep_at()));
        if let Some(loss) = self.loss.as_deref() {
            earliest = earliest.min(loss.deadline());
        }
        (earliest != NEVER).then_some(earliest)
    }

    /// Runs every timer that is due. The caller must call `poll_transmit` afterwards.
    pub fn on_timer(&mut self, now: Instant) -> TimerOutcome {
        let now = self.clock(now);
        if self.delack_at <= now {
            self.on_delack();
        }
        if self.two_msl_at <= now {
            self.enter_closed();
            return TimerOutcome { events: Events::CLOSED, reply: None };
        }
        let probes = self.loss.is_some() && self.on_loss_timer(now);
        let mut events = Events::NONE;
        if !probes && self.rexmt_at <= now {
            let Verdict::Continue(signs) = self.on_rexmt(now) else {
                // Nothing arrives from the peer, so nothing is sent to it either, as on Linux and in RFC 9293 section
                // 3.10.8: its next segment is answered with a reset. Within one process, a reader's window update may
                // not be a segment, and the reader would wait for ever.
                let reset = self.abort();
                return TimerOutcome { events: GIVEN_UP, reply: reset.filter(|_| self.tuning.lossless) };
            };
            events = signs;
            if self.rexmt_count >= SILENT_TIMEOUTS {
                events.insert(Events::SILENT);
            }
        }
        if self.keep_at() <= now && self.on_keep(now).is_break() {
            return TimerOutcome { events: GIVEN_UP, reply: self.abort() };
        }
        TimerOutcome { events, reply: None }
    }

    /// The retransmission or persist timer has expired. Returns whether its connection continues, and then the events
    /// except [`Events::SILENT`].
    fn on_rexmt(&mut self, now: Instant) -> Verdict<Events> {
        let handshake = self.is_in_handshake();
        let is_shut = self.is_shut_over_text();
        let most = match () {
            () if handshake => self.tuning.syn_retries,
            () if is_shut => u8::MAX,
            () if self.orphaned => self.orphan_retries(),
            () => self.tuning.retries,
        };
        if self.is_to_be_given_up(most, handshake, now)
            || self.is_held_shut()
            || (is_shut && self.is_dead(now))
        {
            return Verdict::Break(());
        }
        self.spoil_timing();
        if self.persist {
            self.rexmt_count = self.rexmt_count.saturating_add(1);
            // Not longer than until a connection would be given up (`tcp_send_probe0`).
            if self.rtt.backoff() < self.tuning.retries {
                self.rtt.back_off_probe();
            }
            self.probe_now = true;
            self.arm_rexmt(now);
            return Verdict::Continue(Events::NONE);
        }
        let is_first = self.rexmt_count == 0;
        let is_silent = !is_first && !is_shut && self.is_repeated_for_long(now);
        if !is_shut {
            // A user timeout allows for more expiries than the counter holds.
            self.rexmt_count = self.rexmt_count.saturating_add(1);
        }
        self.rtt.back_off();
        if handshake {
            self.fast_open_lost();
            if !self.syn_unacked {
                self.snd_nxt = self.iss;
            } else if self.rexmt_count == 2 {
                // One repetition may have been needless, because the first timeout is short
                // (`tcp_fastopen_synack_timer`).
                self.time_out_text(true, now);
            }
        } else {
            if is_silent {
                self.suspect_black_hole(now);
            }
            self.time_out_text(is_first, now);
        }
        self.arm_rexmt(now);
        Verdict::Continue(if is_shut { Events::NONE } else { Events::REHASH })
    }

    /// Everything in flight must be retransmitted, with a window of one segment. `is_first`: as in
    /// [`is_new_congestion`](Self::is_new_congestion).
    fn time_out_text(&mut self, is_first: bool, now: Instant) {
        let reduces = self.is_new_congestion(is_first);
        if reduces && self.recovery.phase() == Phase::Recovery {
            self.cc.adopt_recovery_window(self.cwnd_now());
        }
        self.go_back(is_first, reduces, now);
        // Without records, everything is retransmitted.
        let records = self.loss.as_deref().filter(|loss| !loss.records.is_empty());
        let pipe = records.map_or(0, |loss| loss.window_pipe(self.mss.into()));
        let has_records = records.is_some();
        self.cc.on_rto(pipe, u32::from(self.mss), reduces);
        self.ecn.on_reduced(self.snd_max);
        if has_records {
            self.allow_a_segment();
        }
    }

    /// Whether our SYN has not been acknowledged.
    pub(super) fn is_in_handshake(&self) -> bool {
        self.syn_unacked || matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// Whether the window was closed over data in flight. That data is the window probe, and the peer may keep the
    /// window closed as long as it is alive (RFC 9293 section 3.8.6, MAY-7 and SHLD-17).
    pub(super) fn is_shut_over_text(&self) -> bool {
        !self.is_in_handshake() && !self.persist && self.snd_wnd == 0 && !self.orphaned
    }

    /// Whether the peer keeps its window closed on a connection that the application has closed, until probes reach
    /// their longest interval. The peer answers them, so nothing else would end the connection, and the peer could make
    /// us keep unsent data as long as it likes (as on Linux for orphans; RFC 9293 section 3.8.6.1 lets the application
    /// decide, but it is gone). However small the largest timeout is, the peer gets as many probes as a closed
    /// connection gets timeouts.
    fn is_held_shut(&self) -> bool {
        self.orphaned
            && self.persist
            && self.rtt.backoff() >= self.orphan_retries()
            && self.rexmt_wait_us() >= u64::from(self.tuning.rto_max_us)
    }

    /// How many timeouts or probes a connection gets that the application has closed: nobody waits for it, and it holds
    /// memory (`tcp_orphan_retries`).
    fn orphan_retries(&self) -> u8 {
        self.tuning.retries.min(ORPHAN_RETRIES)
    }

    /// Whether a peer whose window is closed over data in flight has not been heard for two of the longest probe
    /// intervals, and that data has been in flight, or in repair, as long (`tcp_rtx_probe0_timed_out`).
    fn is_dead(&self, now: Instant) -> bool {
        let patience_us = 2 * u64::from(self.tuning.rto_max_us);
        since_us(now, self.last_rcv_at) > patience_us && since_us(now, self.unanswered_since()) > patience_us
    }

    /// Whether an expiry of the retransmission timer is the first sign of congestion in this window: the threshold is
    /// reduced once for it (`tcp_enter_loss`). After a recovery or a mark, only when everything is acknowledged that
    /// was in flight then; in a repair as after a timeout, if something was acknowledged since. `is_first`: nothing has
    /// expired since the last acknowledgment.
    fn is_new_congestion(&self, is_first: bool) -> bool {
        match self.recovery.phase() {
            Phase::Open => !self.ecn.covers(self.snd_una),
            Phase::Recovery => self.snd_una.at_or_after(self.recovery.recover()),
            Phase::Loss => is_first || self.snd_una.at_or_after(self.recovery.recover()),
        }
    }

    /// Everything that is not known to have arrived may be retransmitted: with records the ranges marked lost, without
    /// records from SND.UNA on. `reduces`: the threshold is about to be reduced. `is_first`: as in
    /// [`is_new_congestion`](Self::is_new_congestion).
    fn go_back(&mut self, is_first: bool, reduces: bool, now: Instant) {
        let has_records = self.lose_overdue(is_first, reduces, now);
        self.recovery.on_timeout(self.snd_max);
        if !has_records {
            self.count_timeout(now);
            self.snd_nxt = self.snd_una;
            if self.snd_wnd == 0 {
                self.recovery.repeat_first();
            }
        }
    }

    /// When the keepalive timer expires.
    pub(super) fn keep_at(&self) -> Instant {
        self.keepalive.as_deref().map_or(NEVER, |keep| keep.at)
    }

    /// Stops the keepalive timer.
    pub(super) fn stop_keepalive(&mut self) {
        if let Some(keep) = self.keepalive.as_deref_mut() {
            keep.at = NEVER;
        }
    }

    /// The keepalive timer has expired: the peer may have been silent for too long.
    fn on_keep(&mut self, now: Instant) -> Verdict {
        let Some(keep) = self.keepalive.as_mut() else { return Verdict::Continue(()) };
        let in_flight = self.rexmt_at != NEVER;
        if self.last_rcv_at >= keep.probed_at {
            keep.probe_count = 0;
        }
        let silence_ends = self.last_rcv_at + keep.settings.idle;
        // Data in flight is a probe itself, and the retransmission timer waits for the answer.
        if in_flight || (keep.probe_count == 0 && silence_ends > now) {
            let idle = keep.settings.idle.max(KEEPALIVE_MIN);
            keep.at = if in_flight { now + idle } else { silence_ends };
            return Verdict::Continue(());
        }
        let (probe_count, most) = (keep.probe_count, keep.settings.count);
        let is_over = self.keepalive_verdict(now.since(self.last_rcv_at), probe_count);
        if is_over.unwrap_or(probe_count >= most) {
            return Verdict::Break(());
        }
        let Some(keep) = self.keepalive.as_mut() else { return Verdict::Continue(()) };
        keep.probe_count = keep.probe_count.saturating_add(1);
        keep.probed_at = now;
        keep.at = now + keep.settings.interval.max(KEEPALIVE_MIN);
        self.keep_probe = true;
        Verdict::Continue(())
    }

    /// Restarts the retransmission or persist timer.
    pub(super) fn arm_rexmt(&mut self, now: Instant) {
        self.arm_rexmt_alone(now);
        if self.rare.user_timeout().is_some() {
            self.rexmt_at = self.no_later_than_user_timeout(self.rexmt_at).max(now);
        }
    }

    /// The same where no timeout has just expired: the user timeout shortens only the wait after that
    /// (`tcp_clamp_rto_to_user_timeout`).
    pub(super) fn arm_rexmt_alone(&mut self, now: Instant) {
        self.rexmt_at = after_us(now, self.rexmt_wait_us());
    }

    /// The application writes after a pause, `snd_len` bytes with what waits, or the window changes: RFC 5681 section
    /// 4.1, as on Linux (`tcp_slow_start_after_idle_check`).
    #[inline]
    pub(super) fn restart_after_idle(&mut self, snd_len: u32, now: Instant) {
        let idle_us = since_us(now, self.last_snd_at);
        // No timeout is shorter than its floor.
        if idle_us > u64::from(self.tuning.rto_min_us) {
            self.restart_after(idle_us, snd_len, now);
        }
    }

    #[inline(never)]
    fn restart_after(&mut self, idle_us: u64, snd_len: u32, now: Instant) {
        if self.snd_una != self.snd_max || !self.tuning.slow_start_after_idle {
            return;
        }
        // Window probes back off, but do not prolong the timeout in which idle time is counted (`icsk_rto`).
        let rto_us = self.rtt.rto_us(self.tuning.rto_max_us);
        if idle_us > rto_us {
            let times = self.packets_begun(snd_len);
            if times == 0 {
                return;
            }
            let rtos = u32::try_from((idle_us - 1) / rto_us.max(1)).unwrap_or(u32::MAX);
            self.restart_window(rtos.saturating_mul(times), now);
        }
    }

    /// Number of packets that a write begins, after which `so_snd` has `snd_len` bytes, while nothing is in flight:
    /// each ends the pause, except those after one that is sent (`tcp_skb_entail`). Text that waits although it fits
    /// the window is the beginning of that one, unless a record ends with it. One if nothing was written.
    fn packets_begun(&self, snd_len: u32) -> u32 {
        if snd_len <= self.snd_len {
            return 1;
        }
        if self.snd_wnd >= u32::from(self.mss) && !self.is_urgent_up_to(snd_len) {
            let (end, new_end) = (self.snd_una + self.snd_len, self.snd_una + snd_len);
            let is_parted = self.rare.records().is_some_and(|records| records.parts_at(end, new_end));
            return u32::from(self.snd_len == 0 || is_parted);
        }
        // As they are cut, with room for blocks beside the text.
        let full = self.whole_packet(self.send_mss());
        let none = RecordEnds::default();
        let range = (self.snd_una + self.snd_len, self.snd_una + snd_len);
        self.rare.records().unwrap_or(&none).packets_begun(self.snd_una, range, full)
    }

    /// Bytes of a packet of as many segments of `mss` bytes as are sent together.
    pub(super) fn whole_packet(&self, mss: u16) -> u32 {
        let mss = u32::from(mss).max(1);
        (self.tuning.tso_max / mss).max(1) * mss
    }

    /// Starts the keepalive timer if the application wants keepalive and the state allows it.
    pub(super) fn start_keepalive(&mut self, now: Instant) {
        let is_open = self.is_open();
        if let Some(keep) = self.keepalive.as_mut().filter(|keep| is_open && keep.is_on()) {
            keep.at = now + keep.settings.idle.max(KEEPALIVE_MIN);
            self.last_rcv_at = now;
        }
    }

    /// The idle time was set, perhaps to the same value: silence so far counts, also if keepalive was switched on later
    /// or a probe waits for its answer (`tcp_sock_set_keepidle_locked`).
    pub(super) fn restart_keepalive(&mut self, now: Instant) {
        let heard_at = self.last_rcv_at;
        if let Some(keep) = self.keepalive.as_deref_mut().filter(|keep| keep.at != NEVER) {
            keep.at = (heard_at + keep.settings.idle.max(KEEPALIVE_MIN)).max(now);
        }
    }

    /// The application changes keepalive, except the idle time of active keepalive. If it is switched on, the first
    /// probe is sent after the idle time, as on Linux.
    pub(super) fn change_keepalive(&mut self, settings: KeepaliveSettings, now: Instant) {
        let starts = settings.enabled && self.is_open();
        let was_on = self.keepalive.as_deref().is_some_and(Keepalive::is_on);
        // Probes already sent count until the peer is heard, also while keepalive is off.
        match self.keepalive.as_deref_mut() {
            Some(keep) => keep.settings = settings,
            None => self.keepalive = Keepalive::new(settings),
        }
        if let Some(keep) = self.keepalive.as_deref_mut().filter(|_| !was_on || !settings.enabled) {
            keep.at = if starts { now + settings.idle.max(KEEPALIVE_MIN) } else { NEVER };
        }
    }

    /// Whether the handshake has ended, and the connection has not.
    pub(super) fn is_open(&self) -> bool {
        match self.state {
            State::Established
            | State::CloseWait
            | State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::LastAck => true,
            State::SynSent | State::SynReceived | State::TimeWait | State::Closed => false,
        }
    }

    /// Stops every timer.
    pub(super) fn stop_timers(&mut self) {
        (self.rexmt_at, self.delack_at, self.two_msl_at) = (NEVER, NEVER, NEVER);
        self.stop_keepalive();
        self.persist = false;
    }

    /// Something is retransmitted: its acknowledgment measures no round trip (Karn's rule). This lasts until everything
    /// in flight now is acknowledged.
    pub(super) fn spoil_timing(&mut self) {
        if self.timing != Timing::Idle || !self.keeps_records() {
            self.timing = Timing::Spoilt;
            self.rtt_seq = self.snd_max;
        }
    }
}

/// `us` microseconds after `now`; the sum of `Duration`s would cost more than the rest of a fast path.
pub(super) fn after_us(now: Instant, us: u64) -> Instant {
    Instant::from_micros(now.as_micros().saturating_add(us))
}

/// Microseconds from `earlier` to `now`.
pub(super) fn since_us(now: Instant, earlier: Instant) -> u64 {
    now.as_micros().saturating_sub(earlier.as_micros())
}

/// From this many consecutive timeouts on, the path is in doubt (RFC 1122 section 4.2.3.5's R1, at least 3).
const SILENT_TIMEOUTS: u8 = 3;

/// Number of timeouts that end a closed connection: about 100 s.
const ORPHAN_RETRIES: u8 = 8;

/// The peer does not answer, so the connection has ended.
const GIVEN_UP: Events = Events::TIMED_OUT.with(Events::CLOSED);

/// Whether the connection continues.
type Verdict<T = ()> = core::ops::ControlFlow<(), T>;

/// Shortest keepalive interval, regardless of the setting.
const KEEPALIVE_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
