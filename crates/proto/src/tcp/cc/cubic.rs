//! CUBIC (RFC 9438), growing by whole segments as on Linux, with HyStart++ for its first slow start and a milder answer to marks.
//!
//! The variables determine the phase: slow start while `cwnd < ssthresh`; otherwise congestion avoidance, in periods
//! that begin with the first acknowledgment after a reduction (`period`). Time in which the window was not used does
//! not count in a period, and such a window does not grow (section 5.8).
//!
//! It does not depend on sequence numbers: a round ends when as much is acknowledged as was in flight at its beginning.
//! Invariants: `mss <= cwnd <= CWND_MAX`; it shrinks only in `on_congestion`, `on_recovery_end`, `adopt_recovery_window`,
//! `on_rto`, `on_unused` and `on_idle`. Tests: `cubic/tests.rs`, `cc/tests.rs`, `tests/congestion.rs`.

mod curve;
#[cfg(test)]
mod tests;

use core::num::NonZeroU64;

use crate::time::Instant;

use super::super::timers::since_us;
use super::hystart::{Growth, HyStart};
use super::{
    Ack, CWND_MAX, Cause, Congestion, CongestionControl, Phase, as_many_of, idle_window, initial_window,
    ssthresh_after_pause, unused_window, whole_segments,
};
use curve::{Curve, RenoLine, ticks};

/// CUBIC's state, in a box of its own.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Cubic {
    cwnd: u32,
    ssthresh: u32,
    /// A recovery has ended with less in flight than `ssthresh` allows, and `cwnd` is growing back to it.
    is_deflated: bool,
    /// A recovery has ended with less in flight than the window, which is filled at a paced rate: bytes until it counts
    /// as full.
    refill_left: u32,
    /// W_max, bytes; 0 if the next period begins without one, as after a timeout (section 4.8).
    w_max: u32,
    period: Option<Period>,
    /// Bytes acknowledged in avoidance for which the window has not grown yet (`snd_cwnd_cnt`).
    credit: u64,
    /// Number of acknowledged segments for which the window grows by one, and the window and time for which this was
    /// computed (`cnt`, `last_cwnd`, `last_time`).
    pace: u32,
    paced_cwnd: u32,
    paced_at: Instant,
    /// When an acknowledgment last let the window grow or found it unused, or when sending began after that with nothing in flight.
    acked_at: Instant,
    /// Smoothed round trip, microseconds, in eighths; 0 if unknown.
    srtt_8: u32,
    /// The minimum round trip time, microseconds; 0 if unknown.
    delay_min_us: u32,
    /// Bytes that must be acknowledged until the round ends.
    round_left: u32,
    hystart: HyStart,
}

/// Congestion avoidance between two reductions.
#[derive(Clone, Copy, Debug)]
struct Period {
    /// Microseconds for which it has lasted, without the time in which the window was not used.
    age_us: u64,
    curve: Curve,
    line: RenoLine,
}

impl Cubic {
    pub fn new(cwnd: u32) -> Self {
        Self {
            cwnd,
            ssthresh: CWND_MAX,
            is_deflated: false,
            refill_left: 0,
            w_max: 0,
            period: None,
            credit: 0,
            pace: 0,
            paced_cwnd: 0,
            paced_at: Instant::ZERO,
            acked_at: Instant::ZERO,
            srtt_8: 0,
            delay_min_us: 0,
            round_left: 0,
            hystart: HyStart::new(),
        }
    }

    /// Continues from the state of another algorithm.
    pub fn take_over(&mut self, ssthresh: u32) {
        self.ssthresh = ssthresh;
    }

    /// True if the acknowledgment is the first of a new round.
    fn pass_round(&mut self, ack: &Ack) -> bool {
        let ended = self.round_left == 0;
        self.round_left = match ended {
            true => ack.flight.saturating_sub(ack.acked),
            false => self.round_left.saturating_sub(ack.acked),
        };
        ended
    }

    /// Returns what is left of `acked` bytes when the threshold is reached. There is no limit for each acknowledgment,
    /// which RFC 9406 section 4.2 has for data that is not paced (L): Linux has none, and with receivers that join
    /// segments it would cost round trips.
    fn grow_in_slow_start(&mut self, ack: &Ack, acked: u32, round_ended: bool) -> u32 {
        let mut growth = acked;
        // HyStart++ is for the first slow start: later ones have a threshold (RFC 9406 section 4.3).
        if self.ssthresh == CWND_MAX {
            match self.hystart.on_ack(ack.rtt_us, round_ended, ack.paced, ack.now) {
                Growth::Full => {}
                Growth::Quarter => growth /= 4,
                // So few segments tell nothing (`hystart_low_window`).
                Growth::Over if self.cwnd / ack.mss.max(1) < HYSTART_WINDOW_MIN => {}
                Growth::Over => {
                    self.ssthresh = self.cwnd;
                    return 0;
                }
            }
        }
        let cwnd = self.cwnd.saturating_add(growth).min(self.ssthresh);
        let used = cwnd - self.cwnd;
        self.cwnd = cwnd;
        growth - used
    }

    /// Sections 4.2 to 4.5: `acked` bytes were acknowledged of a window that is used.
    fn grow_in_avoidance(&mut self, acked: u32, mss: u32, elapsed_us: u64, now: Instant) {
        let mss = mss.max(1);
        self.set_pace(acked, mss, elapsed_us, now);
        // A credit from a time of slower growth is not used at once (`tcp_cong_avoid_ai`).
        let step = u64::from(self.pace) * u64::from(mss);
        let mut growth = 0;
        if self.credit >= step {
            (self.credit, growth) = (0, 1);
        }
        self.credit += u64::from(acked);
        growth += self.credit / step;
        self.credit %= step;
        let growth = u32::try_from(growth).unwrap_or(CWND_MAX).saturating_mul(mss);
        self.cwnd = self.cwnd.saturating_add(growth).min(CWND_MAX);
    }

    /// Computes for how many segments the window grows by one (`bictcp_update`): only sometimes if the window does not
    /// change.
    fn set_pace(&mut self, acked: u32, mss: u32, elapsed_us: u64, now: Instant) {
        let (bytes, cwnd) = (self.cwnd, self.cwnd / mss);
        let w_max = self.w_max / mss;
        let since_us = since_us(now, self.paced_at);
        let (had_period, is_same) = (self.period.is_some(), self.paced_cwnd == bytes && self.pace != 0);
        if let Some(period) = self.period.as_mut() {
            // The time before the first acknowledgment belongs to the period before.
            period.age_us = period.age_us.saturating_add(elapsed_us);
            period.line.on_ack(acked);
        }
        if is_same && since_us <= PACE_US {
            return;
        }
        let period = self.period.get_or_insert_with(|| {
            let mut line = RenoLine::new(cwnd);
            line.on_ack(acked);
            Period { age_us: 0, curve: Curve::new(w_max, cwnd), line }
        });
        if !had_period || self.pace == 0 || since_us >= TICK_US {
            (self.paced_cwnd, self.paced_at) = (bytes, now);
            // A part of a tick of the kernel's clock counts as a whole one (`usecs_to_jiffies`).
            let ahead_us = u64::from(self.delay_min_us).next_multiple_of(TICK_US);
            let ahead_us = period.age_us.saturating_add(ahead_us);
            let target = u32::try_from(period.curve.window(ticks(ahead_us))).unwrap_or(CWND_MAX);
            self.pace = match target.checked_sub(cwnd) {
                Some(0) | None => cwnd.saturating_mul(LEVEL_PACE),
                Some(more) => cwnd / more,
            };
            if self.w_max == 0 {
                // Nothing was ever lost: the curve does not show where the path is full.
                self.pace = self.pace.min(UNKNOWN_PACE);
            }
        }
        period.line.settle(cwnd, mss);
        if let Some(behind @ 1..) = period.line.window().checked_sub(cwnd) {
            self.pace = self.pace.min(cwnd / behind);
        }
        // At most half a window per round trip.
        self.pace = self.pace.max(2);
    }

    /// Sections 4.6 and 4.7, with `keep` of the window kept. Fast convergence leaves room for a new flow: a window that
    /// shrinks from loss to loss shows that there is one. The reduction uses the window, not the data in flight, as on
    /// Linux; section 4.6 allows this if an unused window does not grow.
    fn reduce(&mut self, mss: u32, keep: u64) {
        // A window that was reduced to avoid a burst says nothing about the path. A queue overflow has often lost more
        // than one recovery repairs. If the reduction used the data still in flight, the same overflow could reduce the
        // window to a tenth.
        let window = if self.is_deflated { self.cwnd.max(self.ssthresh) } else { self.cwnd };
        self.w_max = if window < self.w_max {
            whole_segments(u64::from(window) * (BETA_SCALE + BETA) / (2 * BETA_SCALE), mss)
        } else {
            window
        };
        self.ssthresh = whole_segments(u64::from(window) * keep / BETA_SCALE, mss);
        (self.period, self.credit, self.is_deflated, self.refill_left) = (None, 0, false, 0);
    }

    /// The next period begins flat, at the window to which slow start leads (section 4.8), and measurements are
    /// forgotten.
    fn forget(&mut self) {
        (self.w_max, self.period, self.credit, self.pace, self.delay_min_us) = (0, None, 0, 0, 0);
    }
}

impl CongestionControl for Cubic {
    fn cwnd(&self) -> u32 {
        self.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    fn on_round_trip(&mut self, rtt_us: u32, now: Instant) {
        let rtt_us = rtt_us.min(RTT_MAX_US);
        self.srtt_8 = if self.srtt_8 == 0 { rtt_us * 8 } else { self.srtt_8 - self.srtt_8 / 8 + rtt_us };
        // Right after a recovery, round trips say little about the path.
        let elapsed_us = since_us(now, self.acked_at);
        let is_settled =
            self.period.is_none_or(|period| period.age_us.saturating_add(elapsed_us) >= SETTLING_US);
        if is_settled && (self.delay_min_us == 0 || rtt_us < self.delay_min_us) {
            self.delay_min_us = rtt_us;
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        let is_slow_start = self.cwnd < self.ssthresh;
        let mut acked = ack.growth(self.cwnd, is_slow_start);
        let elapsed_us = since_us(ack.now, self.acked_at);
        if acked > 0 || !ack.is_used(self.cwnd, is_slow_start) {
            // Otherwise it covers no whole segment, or only reports blocks: the window is in use, and the time
            // continues to count.
            self.acked_at = ack.now;
        }
        let round_ended = ack.acked > 0 && self.pass_round(ack);
        match ack.phase {
            Phase::Open | Phase::Loss => {}
            Phase::Recovery => return,
        }
        self.is_deflated &= self.cwnd < self.ssthresh;
        self.refill_left = self.refill_left.saturating_sub(ack.delivered);
        if acked > 0 && is_slow_start {
            acked = self.grow_in_slow_start(ack, acked, round_ended);
        }
        if acked > 0 && self.cwnd >= self.ssthresh {
            let elapsed_us = if self.period.is_some() { elapsed_us } else { 0 };
            self.grow_in_avoidance(acked, ack.mss, elapsed_us, ack.now);
        }
    }

    fn on_congestion(&mut self, congestion: &Congestion) {
        let keep = match congestion.cause {
            Cause::Loss => BETA,
            Cause::Mark => BETA_ECN,
        };
        self.reduce(congestion.mss, keep);
        self.cwnd = self.ssthresh;
    }

    fn on_recovery_end(&mut self, flight: u32, mss: u32, paces: bool) {
        // No burst larger than a packet of segmentation offload if little is in flight: until the hole was filled, the
        // peer's window or the buffer was full. If that is half of the threshold or more, slow start reaches it in a
        // round trip. Otherwise, paced data needs no slow start, and also takes one round trip.
        let calm = flight.saturating_add(BURST_CALM.max(initial_window(mss)));
        let calm = self.ssthresh.min(calm - calm % mss.max(1));
        if paces && calm < self.ssthresh / 2 && self.srtt_8 != 0 {
            (self.cwnd, self.refill_left, self.is_deflated) = (self.ssthresh, self.ssthresh, false);
        } else {
            (self.cwnd, self.is_deflated) = (calm, calm < self.ssthresh);
        }
    }

    fn adopt_recovery_window(&mut self, cwnd: u32) {
        self.cwnd = cwnd;
    }

    fn on_rto(&mut self, pipe: u32, mss: u32, reduces: bool) {
        if reduces {
            // Of whole segments.
            self.cwnd -= self.cwnd % mss.max(1);
            self.reduce(mss, BETA);
        }
        self.forget();
        (self.cwnd, self.refill_left) = (pipe.saturating_add(mss).min(CWND_MAX), 0);
    }

    fn on_undo(&mut self, before: &Self, mss: u32) {
        // Window and threshold are restored, unless they have grown beyond the old values since (section 4.9.2), the
        // threshold to at least three quarters of the window; a new period begins (`tcp_undo_cwnd_reduction`).
        self.cwnd = self.cwnd.max(before.cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh_after_pause(before.ssthresh, before.cwnd, mss));
        (self.is_deflated, self.refill_left) = (false, 0);
    }

    fn on_unused(&mut self, used: u32, mss: u32) {
        let cwnd = unused_window(self.cwnd, used, mss);
        if cwnd < self.cwnd {
            self.ssthresh = ssthresh_after_pause(self.ssthresh, self.cwnd, mss);
            self.cwnd = cwnd;
            self.hystart.begin_anew();
        }
    }

    /// The time since something was last sent counts in no period (`CA_EVENT_TX_START`).
    fn on_restart(&mut self, last_at: Instant, now: Instant) {
        if let Some(period) = self.period.as_mut() {
            let age_us = period.age_us.saturating_add(since_us(now, self.acked_at));
            period.age_us = age_us.saturating_sub(since_us(now, last_at));
            self.acked_at = now;
        }
    }

    fn on_smaller_segments(&mut self, from: u32, to: u32) {
        self.cwnd = as_many_of(to, from, self.cwnd).max(to);
        self.ssthresh = as_many_of(to, from, self.ssthresh);
        self.w_max = as_many_of(to, from, self.w_max);
    }

    fn on_resegmented(&mut self, left: Option<u32>, mss: u32) {
        match left {
            Some(left) => self.cwnd = left.max(mss),
            None => self.ssthresh = ssthresh_after_pause(self.ssthresh, self.cwnd, mss),
        }
        self.forget();
    }

    fn on_idle(&mut self, rtos: u32, mss: u32) {
        // Slow start leads back to most of the window.
        self.ssthresh = ssthresh_after_pause(self.ssthresh, self.cwnd, mss);
        self.cwnd = idle_window(self.cwnd, rtos, mss);
        self.hystart.begin_anew();
        self.round_left = 0;
        (self.is_deflated, self.refill_left) = (false, 0);
    }

    fn pacing_rate(&self) -> Option<NonZeroU64> {
        if self.refill_left == 0 {
            return None;
        }
        NonZeroU64::new(u64::from(self.cwnd) * 8_000_000 / u64::from(self.srtt_8.max(1)))
    }
}

/// Smallest window that HyStart++ may end slow start with, segments.
const HYSTART_WINDOW_MIN: u32 = 16;
/// What may be sent at once when a recovery ends, bytes: a packet of segmentation offload.
const BURST_CALM: u32 = 65_536;
/// beta_cubic, 0.7, as on Linux: 717 of 1,024.
const BETA: u64 = 717;
const BETA_SCALE: u64 = 1024;
/// beta_ecn of RFC 8511 for CUBIC, 0.85: marks come before a queue is full.
const BETA_ECN: u64 = 871;
/// A window at its target grows by one segment for this many windows.
const LEVEL_PACE: u32 = 100;
/// Before the first loss, the window grows by at least one for this many segments: a twentieth per round trip.
const UNKNOWN_PACE: u32 = 20;
/// The curve is computed again after this if the window does not change, and after a tick if it does, microseconds.
const PACE_US: u64 = 31_250;
const TICK_US: u64 = 4_000;
/// Round trips count again when a period has lasted this long, microseconds.
const SETTLING_US: u64 = 1_000_000;
/// A longer round trip counts as this, so that its eighths fit.
const RTT_MAX_US: u32 = 1 << 28;
