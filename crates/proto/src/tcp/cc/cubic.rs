//! CUBIC (RFC 9438), counting bytes, with HyStart++ for its first slow start and a milder answer to marks.
//!
//! Phases, all of them read off the variables: slow start while `cwnd < ssthresh`; congestion avoidance else, in
//! periods that begin with the first acknowledgment after a reduction (`period`). Time during which the
//! window was not used does not count into a period, and such a window does not grow (section 5.8).
//!
//! It does not depend on sequence numbers: a round is over when as much is acknowledged as was out at its
//! beginning. Invariants: `mss <= cwnd <= CWND_MAX`; it never shrinks but in `on_congestion`,
//! `on_recovery_end`, `on_rto` and `on_idle`. Tests: `cubic/tests.rs`, `cc/tests.rs`, `tests/congestion.rs`.

mod curve;
#[cfg(test)]
mod tests;

use core::num::NonZeroU64;

use crate::time::Instant;

use super::super::timers::since_us;
use super::hystart::{Growth, HyStart};
use super::{
    Ack, CWND_MAX, Cause, Congestion, CongestionControl, Phase, idle_window, initial_window, percent,
    ssthresh_after_pause, unused_window, whole_segments,
};
use curve::{Curve, RenoLine, ticks};

/// CUBIC's state, in a box of its own.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Cubic {
    cwnd: u32,
    ssthresh: u32,
    /// A recovery has ended with less in flight than `ssthresh` allows, and `cwnd` is on its way back there.
    is_deflated: bool,
    /// A recovery has ended with less in flight than the window, which is filled at a rate: bytes until it counts as full.
    refill_left: u32,
    /// W_max, bytes; 0 if the next period begins without one, as after a timeout (section 4.8).
    w_max: u32,
    /// The window before the latest reduction.
    cwnd_prior: u32,
    period: Option<Period>,
    /// Growth that is less than a byte, in 1/`cwnd` byte.
    credit: u64,
    /// The latest acknowledgment.
    acked_at: Instant,
    /// Smoothed round trip, microseconds, in eighths; 0 if unknown.
    srtt_8: u32,
    /// Bytes to be acknowledged until the round trip is over.
    round_left: u32,
    hystart: HyStart,
}

/// Congestion avoidance between two reductions.
#[derive(Clone, Copy, Debug)]
struct Period {
    /// Microseconds for which it has lasted, the time left out in which the window was not used.
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
            cwnd_prior: 0,
            period: None,
            credit: 0,
            acked_at: Instant::ZERO,
            srtt_8: 0,
            round_left: 0,
            hystart: HyStart::new(),
        }
    }

    /// Goes on where another algorithm has stopped.
    pub fn take_over(&mut self, ssthresh: u32) {
        self.ssthresh = ssthresh;
    }

    fn smooth(&mut self, rtt_us: Option<u32>) {
        let Some(rtt_us) = rtt_us.map(|us| us.min(RTT_MAX_US)) else { return };
        self.srtt_8 = if self.srtt_8 == 0 { rtt_us * 8 } else { self.srtt_8 - self.srtt_8 / 8 + rtt_us };
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

    /// Returns what is left of `acked` bytes once the threshold is reached. No limit for an acknowledgment, which RFC 9406
    /// section 4.2 has for data that is not paced (L): Linux has none, and behind receivers that join segments it would cost
    /// round trips.
    fn grow_in_slow_start(&mut self, ack: &Ack, acked: u32, round_ended: bool) -> u32 {
        let mut growth = acked;
        // HyStart++ is for the first slow start: later ones know where to end (RFC 9406 section 4.3).
        if self.ssthresh == CWND_MAX {
            match self.hystart.on_ack(ack.rtt_us, round_ended, ack.paced, ack.now) {
                Growth::Full => {}
                Growth::Quarter => growth /= 4,
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

    /// Sections 4.2 to 4.5.
    fn grow_in_avoidance(&mut self, acked: u32, mss: u32, elapsed_us: u64) {
        let cwnd = self.cwnd;
        let rtt_us = u64::from(self.srtt_8 / 8);
        let w_max = self.w_max;
        let period = self.period.get_or_insert_with(|| Period {
            age_us: 0,
            curve: Curve::new(w_max, cwnd, mss),
            line: RenoLine::new(cwnd),
        });
        // The time before the first acknowledgment belongs to the period before.
        period.age_us = period.age_us.saturating_add(elapsed_us);
        period.line.on_ack(acked, cwnd, self.cwnd_prior, mss);
        let reno = period.line.window();
        // Nothing was ever lost, so slow start was ended by a guess: the curve says nothing of where the path is full.
        let floor = if self.cwnd_prior == 0 { cwnd / UNKNOWN_GROWTH_DIVISOR } else { 0 };
        if floor == 0 && period.curve.window(ticks(period.age_us), mss) < reno {
            let reno = u32::try_from(reno).unwrap_or(CWND_MAX);
            self.cwnd = cwnd.max(reno).min(CWND_MAX);
            return;
        }
        let target = period.curve.window(ticks(period.age_us.saturating_add(rtt_us)), mss);
        let (cwnd, acked) = (u64::from(cwnd), u64::from(acked));
        // At most half a window a round trip, below 2^29, times at most 2^30 acknowledged.
        let target = target.clamp(cwnd + u64::from(floor), cwnd + cwnd / 2);
        self.credit += (target - cwnd) * acked.min(cwnd);
        let growth = u32::try_from(self.credit / cwnd).unwrap_or(CWND_MAX);
        self.credit %= cwnd;
        self.cwnd = self.cwnd.saturating_add(growth).min(CWND_MAX);
    }

    /// Sections 4.6 and 4.7, with `keep` of the window kept. Fast convergence leaves room to a newcomer: a window that shrinks
    /// from loss to loss shows that there is one. It is the window that counts and not the data in flight, as on Linux, which
    /// section 4.6 allows where an unused window does not grow.
    fn reduce(&mut self, mss: u32, keep: u64) {
        // A window that was cut to avoid a burst says nothing about the path. A queue that overflowed has often lost more
        // than one recovery repairs; to count from the data still in flight would answer the same overflow by a tenth.
        let window = if self.is_deflated { self.cwnd.max(self.ssthresh) } else { self.cwnd };
        self.cwnd_prior = window;
        self.w_max = if window < self.w_max { percent(window, FAST_CONVERGENCE_PERCENT) } else { window };
        self.ssthresh = whole_segments(u64::from(window) * keep / BETA_SCALE, mss);
        (self.period, self.credit, self.is_deflated, self.refill_left) = (None, 0, false, 0);
    }
}

impl CongestionControl for Cubic {
    fn cwnd(&self) -> u32 {
        self.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    fn on_ack(&mut self, ack: &Ack) {
        let elapsed_us = since_us(ack.now, self.acked_at);
        self.acked_at = self.acked_at.max(ack.now);
        self.smooth(ack.rtt_us);
        let round_ended = ack.acked > 0 && self.pass_round(ack);
        match ack.phase {
            Phase::Open | Phase::Loss => {}
            Phase::Recovery => return,
        }
        self.is_deflated &= self.cwnd < self.ssthresh;
        self.refill_left = self.refill_left.saturating_sub(ack.acked);
        let is_slow_start = self.cwnd < self.ssthresh;
        let mut acked = ack.growth(self.cwnd, is_slow_start);
        if acked > 0 && is_slow_start {
            acked = self.grow_in_slow_start(ack, acked, round_ended);
        }
        if acked > 0 && self.cwnd >= self.ssthresh {
            let elapsed_us = if self.period.is_some() { elapsed_us } else { 0 };
            self.grow_in_avoidance(acked, ack.mss, elapsed_us);
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
        // No burst beyond the initial window when little is left in flight: the peer's window, or the buffer, was full
        // until the hole was. Where that is half or more, slow start is there in a round trip. Else paced data needs no
        // slow start, but one round trip too.
        let calm = self.ssthresh.min((flight.max(mss) + mss).max(initial_window(mss)));
        if paces && calm < self.ssthresh / 2 && self.srtt_8 != 0 {
            (self.cwnd, self.refill_left, self.is_deflated) = (self.ssthresh, self.ssthresh, false);
        } else {
            (self.cwnd, self.is_deflated) = (calm, calm < self.ssthresh);
        }
    }

    fn on_rto(&mut self, pipe: u32, mss: u32, reduces: bool) {
        if reduces {
            // Of whole segments.
            self.cwnd -= self.cwnd % mss.max(1);
            self.reduce(mss, BETA);
        }
        // The next period begins level, where slow start will have led (section 4.8).
        self.w_max = 0;
        (self.cwnd, self.refill_left) = (pipe.saturating_add(mss).min(CWND_MAX), 0);
    }

    fn on_undo(&mut self, before: &Self) {
        // Section 4.9.2: a window that has outgrown the mistake goes on as it is, with the threshold from before (`tcp_undo_cwnd_reduction`).
        if self.cwnd > before.cwnd {
            self.ssthresh = self.ssthresh.max(before.ssthresh);
            return;
        }
        // Everything is as it was; later measurements are kept.
        let Self { acked_at, srtt_8, round_left, .. } = *self;
        *self = Self { acked_at, srtt_8, round_left, ..before.clone() };
    }

    fn on_unused(&mut self, used: u32, mss: u32) {
        let cwnd = unused_window(self.cwnd, used, mss);
        if cwnd < self.cwnd {
            self.ssthresh = ssthresh_after_pause(self.ssthresh, self.cwnd);
            self.cwnd = cwnd;
        }
    }

    fn on_idle(&mut self, rtos: u32, mss: u32) {
        // Slow start leads back to most of the window.
        self.ssthresh = ssthresh_after_pause(self.ssthresh, self.cwnd);
        self.cwnd = idle_window(self.cwnd, rtos, mss);
        (self.period, self.credit, self.round_left) = (None, 0, 0);
        (self.is_deflated, self.refill_left) = (false, 0);
    }

    fn pacing_rate(&self) -> Option<NonZeroU64> {
        if self.refill_left == 0 {
            return None;
        }
        NonZeroU64::new(u64::from(self.cwnd) * 8_000_000 / u64::from(self.srtt_8.max(1)))
    }
}

/// beta_cubic, 0.7, as Linux has it: 717 of 1,024.
const BETA: u64 = 717;
const BETA_SCALE: u64 = 1024;
/// beta_ecn of RFC 8511 for CUBIC, 0.85: marks come before a queue is full.
const BETA_ECN: u64 = 871;
/// (1 + beta_cubic) / 2.
const FAST_CONVERGENCE_PERCENT: u32 = 85;
/// Share of the window by which it grows in a round trip of congestion avoidance, at least, before the first loss.
const UNKNOWN_GROWTH_DIVISOR: u32 = 20;
/// A longer round trip counts as this, so that its eighths fit.
const RTT_MAX_US: u32 = 1 << 28;
