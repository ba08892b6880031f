//! Upper bounds of BBR on data in flight, learned from losses and marks.
//!
//! Two bounds on data in flight. The long-term one is the most that the path was seen to bear: probing raises it, too
//! much loss while probing sets it. The short-term one, with its bandwidth, follows losses down between probes, and is
//! forgotten when the next begins. It does not depend on states, but only on whether a probe is going on. Tests:
//! `tests.rs`.

use super::super::{CWND_MAX, LossSample, percent};

/// A bound that does not bind.
pub(super) const UNBOUND: u32 = CWND_MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// BBR.inflight_longterm, bytes.
    pub longterm: u32,
    /// BBR.inflight_shortterm, bytes.
    pub shortterm: u32,
    /// BBR.bw_shortterm, bytes per second; `u64::MAX` if it does not bind.
    pub bw_shortterm: u64,
    /// BBR.bw_latest and BBR.inflight_latest: the most of this round trip.
    bw_latest: u64,
    inflight_latest: u32,
    /// The part of the short-term bounds that is kept at the end of this round trip, percent; 100 if nothing
    /// was lost.
    keep_percent: u32,
    /// A round of loss ends when this much was delivered.
    round_ends: u64,
}

impl Bounds {
    pub fn new() -> Self {
        Self {
            longterm: UNBOUND,
            shortterm: UNBOUND,
            bw_shortterm: u64::MAX,
            bw_latest: 0,
            inflight_latest: 0,
            keep_percent: 100,
            round_ends: 0,
        }
    }

    /// Something was lost or marked in this round trip.
    pub fn note(&mut self, keep_percent: u32) {
        self.keep_percent = self.keep_percent.min(keep_percent);
    }

    /// BBR.inflight_latest.
    pub fn inflight_latest(&self) -> u32 {
        self.inflight_latest
    }

    /// A sample: `rate` over a flight of `delivered` bytes. At the end of a round with losses the short-term bounds fall,
    /// from the current values (`bw`, `cwnd`) if they did not bind, unless more is being asked for (`probing`).
    pub fn on_sample(&mut self, sample: &Sample, bw: u64, cwnd: u32, probing: bool) {
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        if sample.prior_delivered < self.round_ends {
            return;
        }
        self.round_ends = sample.total_delivered;
        if self.keep_percent < 100 && !probing {
            let from = |bound, now| if bound == UNBOUND { now } else { bound };
            let bw_from = if self.bw_shortterm == u64::MAX { bw } else { self.bw_shortterm };
            self.bw_shortterm = self.bw_latest.max(bw_from / 100 * u64::from(self.keep_percent));
            self.shortterm = self.inflight_latest.max(percent(from(self.shortterm, cwnd), self.keep_percent));
        }
        self.keep_percent = 100;
        (self.bw_latest, self.inflight_latest) = (sample.rate, sample.delivered);
    }

    /// A probe is over: signals from before it do not count any more.
    pub fn reset_signals(&mut self) {
        (self.bw_latest, self.inflight_latest, self.keep_percent) = (0, 0, 100);
    }

    /// Forgets the bounds learned from losses since the last probe.
    pub fn reset_shortterm(&mut self) {
        (self.shortterm, self.bw_shortterm) = (UNBOUND, u64::MAX);
    }

    /// The long-term bound less the room that is left to others, bytes.
    pub fn with_headroom(&self, mss: u32) -> u32 {
        if self.longterm == UNBOUND {
            return UNBOUND;
        }
        let headroom = percent(self.longterm, HEADROOM_PERCENT).max(mss);
        self.longterm.saturating_sub(headroom)
    }
}

/// One delivery-rate sample, as the bounds see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Bytes per second.
    pub rate: u64,
    pub delivered: u32,
    pub prior_delivered: u64,
    pub total_delivered: u64,
}

/// True if more than BBR.LossThresh of a flight was lost.
pub(super) fn is_too_much(lost: u32, in_flight: u32) -> bool {
    lost > percent(in_flight, LOSS_THRESH_PERCENT)
}

/// Bytes in flight when the share of losses passed BBR.LossThresh; `bytes` were just found lost.
pub(super) fn inflight_at_loss(sample: &LossSample, bytes: u32) -> u32 {
    let (before, lost) = (sample.tx_in_flight.saturating_sub(bytes), sample.lost.saturating_sub(bytes));
    let allowed = percent(before, LOSS_THRESH_PERCENT).saturating_sub(lost);
    // Solved for the part p of `bytes` at which lost + p is the threshold of before + p.
    before + allowed / (100 - LOSS_THRESH_PERCENT) * 100
}

/// BBR.LossThresh.
const LOSS_THRESH_PERCENT: u32 = 2;
/// BBR.Headroom.
const HEADROOM_PERCENT: u32 = 15;
