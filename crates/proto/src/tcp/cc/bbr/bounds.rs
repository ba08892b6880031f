//! Upper bounds of BBR on data in flight, learned from losses and marks.
//!
//! There are two bounds. The long-term one is the most that the path was seen to carry: probing raises it, and too much
//! loss during a probe sets it. The short-term one, with its bandwidth, follows losses down between probes, and is
//! forgotten when the next begins. They do not depend on states, only on whether a probe is under way. Tests: here, and
//! `tests.rs`.

use super::super::{CWND_MAX, LossSample, percent};

/// A bound that has no effect.
pub(super) const UNBOUND: u32 = CWND_MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// BBR.inflight_longterm, bytes.
    pub longterm: u32,
    /// BBR.inflight_shortterm, bytes.
    pub shortterm: u32,
    /// BBR.bw_shortterm, bytes per second; `u64::MAX` if it has no effect.
    pub bw_shortterm: u64,
    /// BBR.bw_latest and BBR.inflight_latest: the maxima of this round trip.
    bw_latest: u64,
    inflight_latest: u32,
    /// Percentage of the short-term bounds kept at the end of this round trip; 100 if nothing was lost.
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

    /// A sample: `rate` over a flight of `delivered` bytes. At the end of a round with losses, the short-term bounds
    /// fall, from the current values (`bw`, `cwnd`) if they had no effect, unless BBR is `probing`.
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

    /// A probe has ended: earlier signals no longer count.
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

/// Bytes in flight when the share of losses exceeded BBR.LossThresh; `bytes` were just found lost.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: u64, delivered: u32, prior_delivered: u64) -> Sample {
        Sample { rate, delivered, prior_delivered, total_delivered: prior_delivered + 10_000 }
    }

    /// Rounds end at 10,000, 20,000 and so on. After each sample the bounds are these.
    #[test]
    fn a_round_with_losses_lowers_the_bounds_by_its_worst_part_and_no_other_does() {
        let mut bounds = Bounds::new();
        let (bw, cwnd) = (50_000, 40_000);
        bounds.on_sample(&sample(1_000, 500, 0), bw, cwnd, false);
        let told = |bounds: &Bounds| (bounds.bw_shortterm, bounds.shortterm);
        let free = (u64::MAX, UNBOUND);
        assert_eq!(told(&bounds), free);
        [85, 70, 90].iter().for_each(|percent| bounds.note(*percent));
        bounds.on_sample(&sample(1_000, 500, 9_999), bw, cwnd, false);
        assert_eq!(told(&bounds), free, "the round is not over");
        bounds.on_sample(&sample(1_000, 500, 10_000), bw, cwnd, false);
        assert_eq!(told(&bounds), (35_000, 28_000), "70 % of what was in use");
        bounds.on_sample(&sample(1_000, 500, 20_000), bw, cwnd, false);
        assert_eq!(told(&bounds), (35_000, 28_000), "nothing was lost");
        bounds.note(50);
        bounds.on_sample(&sample(1_000, 500, 30_000), bw, cwnd, true);
        bounds.on_sample(&sample(1_000, 500, 40_000), bw, cwnd, false);
        assert_eq!(told(&bounds), (35_000, 28_000), "a probe's losses are expected");
        bounds.note(50);
        bounds.on_sample(&sample(1_000, 500, 50_000), bw, cwnd, false);
        assert_eq!(told(&bounds), (17_500, 14_000), "from the bounds that there are");
        bounds.note(50);
        bounds.reset_signals();
        bounds.on_sample(&sample(1_000, 500, 60_000), bw, cwnd, false);
        assert_eq!(told(&bounds), (17_500, 14_000), "from before the end of a probe");
        bounds.reset_shortterm();
        assert_eq!(told(&bounds), free);
    }

    #[test]
    fn no_bound_falls_below_the_most_that_its_round_has_delivered() {
        let mut bounds = Bounds::new();
        bounds.on_sample(&sample(1_000, 500, 0), 0, 0, false);
        bounds.note(50);
        bounds.on_sample(&sample(45_000, 39_000, 9_000), 50_000, 40_000, false);
        assert_eq!(bounds.inflight_latest(), 39_000);
        bounds.on_sample(&sample(1_000, 500, 10_000), 50_000, 40_000, false);
        assert_eq!((bounds.bw_shortterm, bounds.shortterm), (45_000, 39_000));
        assert_eq!(bounds.inflight_latest(), 500, "of the round that begins");
    }

    #[test]
    fn room_for_others_is_a_share_of_the_bound_and_a_segment_at_least() {
        let with = |longterm| Bounds { longterm, ..Bounds::new() }.with_headroom(1_000);
        assert_eq!([100_000, 2_000, 500, UNBOUND].map(with), [85_000, 1_000, 0, UNBOUND]);
    }

    /// The amount at which a share of 2 % is exceeded, if the last bytes were lost together.
    #[test]
    fn the_bytes_in_flight_where_losses_became_too_many_are_between_those_before_and_after() {
        for (tx_in_flight, lost, bytes) in
            [(100_000, 5_000, 3_000), (50_000, 40_000, 1_000), (1_000, 900, 1_000)]
        {
            let at = inflight_at_loss(&LossSample { tx_in_flight, lost, app_limited: false }, bytes);
            assert!((tx_in_flight - bytes..=tx_in_flight).contains(&at), "{at}");
            let part = at - (tx_in_flight - bytes);
            // The division has a remainder of a hundred bytes.
            assert!(!is_too_much(lost.saturating_sub(bytes) + part, at) || part == 0);
            assert!(is_too_much(lost.saturating_sub(bytes) + part + 200, at + 200) || bytes == lost);
        }
    }

    #[test]
    fn of_bytes_that_were_lost_together_as_many_count_as_make_a_fiftieth_of_all() {
        // Of 90,000 before them 1,800 might have been lost, in steps of 98 that become 100.
        for (lost, at) in
            [(10_000, 91_800), (10_900, 90_900), (11_702, 90_100), (11_703, 90_000), (12_000, 90_000)]
        {
            let sample = LossSample { tx_in_flight: 100_000, lost, app_limited: false };
            assert_eq!(inflight_at_loss(&sample, 10_000), at, "{lost}");
        }
    }
}
