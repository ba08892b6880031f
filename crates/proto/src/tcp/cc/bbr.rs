//! BBR, version 3 (draft-ietf-ccwg-bbr): sends at the rate at which the path delivers, instead of increasing until it
//! loses.
//!
//! A model of the path (the largest bandwidth and the smallest round trip time seen lately) determines how fast to send
//! and how much may be in flight. Probing tests the model:
//!
//! | state | gain of pacing, of the window | ends when |
//! |---|---|---|
//! | Startup | 2.77, 2 | the bandwidth no longer grows by a quarter for three rounds, or too much is lost |
//! | Drain | 0.5, 2 | no more is in flight than the path holds |
//! | Down | 0.9, 2 | as Drain, and the headroom for others is free: to Cruise |
//! | Cruise | 1, 2 | 2 to 3 s have passed since the last probe, or as many rounds as Reno would need: to Refill |
//! | Refill | 1, 2 | a round trip has passed: the pipe is full |
//! | Up | 1.25, 2.25 | the bandwidth no longer grows, or too much is lost: to Down |
//! | ProbeRtt | 1, 0.5 | the pipe was nearly empty for 200 ms; entered every 5 s, unless the minimum round trip time was seen anyway |
//!
//! Only acknowledgments change the state, in `cycle.rs`; `path.rs` has the filters, `bounds.rs` the bounds by losses
//! and marks. BBR needs samples of the delivery rate. A peer without SACK does not report what has arrived, so such a
//! connection uses another algorithm (`Pcb::start_sending`). BBR answers losses with the bounds, not with a reduction,
//! so there is no `ssthresh`. An ECN mark counts as a loss with the weight of RFC 8511. It does not depend on sequence
//! numbers.
//!
//! Invariants: the window is at least four segments, except after a timeout; only the time between probes is random,
//! and a seed determines it. Tests: `bbr/tests.rs`, `cc/tests.rs`, `sim/tests/net/congestion.rs`.

mod bounds;
mod cycle;
mod path;
#[cfg(test)]
mod tests;

use core::num::NonZeroU64;

use crate::time::Instant;

use super::{Ack, CWND_MAX, Cause, Congestion, CongestionControl, Phase, RateSample, initial_window};
use bounds::{Bounds, Sample, UNBOUND};
use cycle::{Cycle, State};
use path::{Aggregation, MaxBw, MinRtt, bytes_in, rate_of};

/// BBR's state, in a box of its own.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Bbr {
    cwnd: u32,
    /// The window before a timeout or ProbeRtt, which is restored later.
    prior_cwnd: u32,
    /// Bytes per second; 0 before the first round trip is measured.
    pacing_rate: u64,
    max_bw: MaxBw,
    min_rtt: MinRtt,
    aggregation: Aggregation,
    bounds: Bounds,
    cycle: Cycle,
    /// A timeout is being repaired: the window grows by the bytes that arrive, and falls no further.
    repairing: bool,
    /// Sending began again after a pause, and nothing of it has arrived yet.
    idle_restart: bool,
}

impl Bbr {
    /// `seed` spreads the probes of connections that begin together.
    pub fn new(cwnd: u32, seed: u32) -> Self {
        Self {
            cwnd,
            prior_cwnd: 0,
            pacing_rate: 0,
            max_bw: MaxBw::default(),
            min_rtt: MinRtt::new(),
            aggregation: Aggregation::new(),
            bounds: Bounds::new(),
            cycle: Cycle::new(seed),
            repairing: false,
            idle_restart: false,
        }
    }

    /// BBR.bw, bytes per second.
    fn bw(&self) -> u64 {
        self.max_bw.get().min(self.bounds.bw_shortterm)
    }

    /// The bytes that the path holds in a round trip at `bw`, times `gain_percent`; the initial window before a round
    /// trip was measured.
    fn bdp(&self, bw: u64, gain_percent: u32, mss: u32) -> u32 {
        if self.min_rtt.us() == 0 {
            return initial_window(mss);
        }
        let bytes = bytes_in(bw, u64::from(self.min_rtt.us())).saturating_mul(u64::from(gain_percent)) / 100;
        u32::try_from(bytes).unwrap_or(CWND_MAX).min(CWND_MAX)
    }

    /// BBRInflight: the same, plus the needs of sending in quanta and of probing.
    fn inflight(&self, bw: u64, gain_percent: u32, mss: u32) -> u32 {
        self.quantized(self.bdp(bw, gain_percent, mss), mss)
    }

    fn quantized(&self, inflight: u32, mss: u32) -> u32 {
        // This is more than enough to keep acknowledgments coming.
        let inflight = inflight.max(3 * self.quantum(mss));
        if self.cycle.state == State::Up { inflight + 2 * mss } else { inflight }
    }

    /// Bytes that are sent at once (`loss/pacing.rs`).
    fn quantum(&self, mss: u32) -> u32 {
        let ms = u32::try_from(self.pacing_rate / 1000).unwrap_or(u32::MAX);
        ms.clamp(2 * mss, QUANTUM_MAX.max(2 * mss))
    }

    /// The window in ProbeRtt.
    fn probe_rtt_cwnd(&self, mss: u32) -> u32 {
        self.bdp(self.bw(), State::ProbeRtt.cwnd_gain(), mss).max(PIPE_SEGMENTS_MIN * mss)
    }

    fn take_sample(&mut self, ack: &Ack, rate: &RateSample) {
        let sample = Sample {
            rate: rate_of(rate),
            delivered: rate.delivered,
            prior_delivered: rate.prior_delivered,
            total_delivered: rate.total_delivered,
        };
        self.cycle.update_round(rate);
        if sample.rate >= self.max_bw.get() || !rate.app_limited {
            self.max_bw.update(sample.rate);
        }
        if ack.lost > 0 {
            self.bounds.note(BETA_PERCENT);
        }
        self.bounds.on_sample(&sample, self.max_bw.get(), self.cwnd, self.cycle.state.is_probing());
    }

    fn set_pacing_rate(&mut self, gain_percent: u32) {
        let rate = self.bw() / 100 * u64::from(gain_percent) / 100 * u64::from(100 - PACING_MARGIN_PERCENT);
        if self.cycle.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate.max(PACING_RATE_MIN);
        }
    }

    /// The first round trip is known: the rate is the initial window divided by it, because nothing better is known.
    fn begin_pacing(&mut self, rtt_us: u32) {
        let bw = u64::from(self.cwnd) * 1_000_000 / u64::from(rtt_us.max(1));
        self.pacing_rate = (bw * u64::from(State::Startup.pacing_gain()) / 100).max(PACING_RATE_MIN);
    }

    fn set_cwnd(&mut self, ack: &Ack) {
        let mss = ack.mss;
        let aggregated = self.aggregation.extra();
        let gain = self.cycle.state.cwnd_gain();
        let most = self.quantized(self.bdp(self.bw(), gain, mss).saturating_add(aggregated), mss);
        let grown = self.cwnd.saturating_add(ack.delivered).min(CWND_MAX);
        if self.cycle.full_bw_reached {
            self.cwnd = grown.min(most);
        } else if self.cwnd < most || self.cycle.delivered < u64::from(initial_window(mss)) {
            self.cwnd = grown;
        }
        if !self.repairing {
            self.cwnd = self.cwnd.max(PIPE_SEGMENTS_MIN * mss);
        }
        if self.cycle.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd(mss));
        }
        let longterm = match self.cycle.state {
            State::Startup | State::Drain => UNBOUND,
            State::Down | State::Refill | State::Up => self.bounds.longterm,
            State::Cruise | State::ProbeRtt => self.bounds.with_headroom(mss),
        };
        let bound = longterm.min(self.bounds.shortterm).max(PIPE_SEGMENTS_MIN * mss);
        self.cwnd = self.cwnd.min(bound);
    }

    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.repairing = false;
    }

    fn save_cwnd(&mut self) {
        let kept = if self.repairing || self.cycle.state == State::ProbeRtt { self.prior_cwnd } else { 0 };
        self.prior_cwnd = self.cwnd.max(kept);
    }
}

impl CongestionControl for Bbr {
    fn cwnd(&self) -> u32 {
        self.cwnd
    }

    fn ssthresh(&self) -> u32 {
        CWND_MAX
    }

    fn on_ack(&mut self, ack: &Ack) {
        if self.pacing_rate == 0
            && let Some(rtt_us) = ack.rtt_us
        {
            self.begin_pacing(rtt_us);
        }
        if self.repairing && ack.phase == Phase::Open {
            self.restore_cwnd();
        }
        self.cycle.round_start = false;
        if let Some(rate) = &ack.rate {
            self.take_sample(ack, rate);
        } else if ack.lost > 0 {
            self.bounds.note(BETA_PERCENT);
        }
        let (bw, round) = (self.bw(), self.cycle.round_start);
        let startup = !self.cycle.full_bw_reached;
        self.aggregation.on_ack(ack.delivered, bw, self.cwnd, ack.now, round, startup);
        self.on_ack_in_state(ack);
        let expired = self.min_rtt.update(ack.rtt_us, ack.now);
        self.check_probe_rtt(ack, expired);
        if ack.delivered > 0 {
            self.idle_restart = false;
        }
        if self.pacing_rate != 0 && bw != 0 {
            self.set_pacing_rate(self.cycle.state.pacing_gain());
        }
        self.set_cwnd(ack);
    }

    fn on_congestion(&mut self, congestion: &Congestion) {
        match congestion.cause {
            Cause::Loss => self.bounds.note(BETA_PERCENT),
            Cause::Mark => {
                self.bounds.note(BETA_ECN_PERCENT);
                self.on_mark(congestion);
            }
        }
    }

    fn on_rto(&mut self, pipe: u32, mss: u32, reduces: bool) {
        if reduces {
            self.save_cwnd();
            self.bounds.note(BETA_PERCENT);
        }
        self.repairing = true;
        self.cwnd = pipe.saturating_add(mss).min(CWND_MAX);
    }

    fn on_undo(&mut self, before: &Self, _mss: u32) {
        self.cwnd = self.cwnd.max(before.cwnd);
        self.repairing = false;
        let (now, then) = (&mut self.bounds, &before.bounds);
        now.bw_shortterm = now.bw_shortterm.max(then.bw_shortterm);
        now.shortterm = now.shortterm.max(then.shortterm);
        now.longterm = now.longterm.max(then.longterm);
        self.cycle.undo(&before.cycle);
    }

    fn on_idle(&mut self, _rtos: u32, _mss: u32) {
        // The rate is known: pacing prevents a burst when the window was not used.
    }

    fn on_restart(&mut self, _last_at: Instant, now: Instant) {
        self.idle_restart = true;
        self.aggregation.restart(now);
        if self.cycle.state.is_probe_bw() && self.pacing_rate != 0 {
            self.set_pacing_rate(100);
        }
    }

    fn pacing_rate(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.pacing_rate)
    }

    fn wants_rate_samples(&self) -> bool {
        true
    }

    fn governs_recovery(&self) -> bool {
        true
    }
}

/// BBR.Beta: the percentage kept at a loss.
const BETA_PERCENT: u32 = 70;
/// The percentage kept at a mark, as for CUBIC (RFC 8511).
const BETA_ECN_PERCENT: u32 = 85;
/// BBR.PacingMarginPercent: a little less than the bandwidth keeps the queue from growing.
const PACING_MARGIN_PERCENT: u32 = 1;
/// BBR.MinPipeCwnd: enough for acknowledgments to keep coming.
const PIPE_SEGMENTS_MIN: u32 = 4;
/// Largest number of bytes sent at once.
const QUANTUM_MAX: u32 = 64 << 10;
/// Lowest rate: even a path that seems to carry nothing is probed.
const PACING_RATE_MIN: u64 = 1_000;
