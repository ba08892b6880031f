//! HyStart++ (RFC 9406): slow start ends before it has filled the queue. In addition, the ACK train of its predecessor
//! (Ha and Rhee, "Taming the elephants: new TCP slow start", 2011), which the RFC leaves out.
//!
//! | state | ends when |
//! |---|---|
//! | standard slow start | the minimum round trip time of a round exceeds that of the round before by an eighth: to CSS |
//! | conservative slow start (CSS) | the round trip time falls below that at its beginning: back; or [`CSS_ROUNDS`] rounds have passed: slow start ends |
//! | either | acknowledgments of one round have arrived without a pause for half of the minimum round trip time: slow start ends |
//!
//! The reason for the train: the first segments of a round find the queue empty until the window is larger than the
//! path, and the round that shows this has then doubled the window once more. The train shows it a round earlier: the
//! acknowledgments of a burst return at the rate of the bottleneck, so half a round trip of them stands for half of the
//! bytes that the path holds.
//!
//! It depends only on whether a round has ended and on the round trips of that round, not on windows. Tests stand at
//! the end.

use crate::time::Instant;

use super::super::timers::since_us;

/// The search for the end of slow start.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// lastRoundMinRTT and currentRoundMinRTT, microseconds; [`UNKNOWN`] if there was no sample.
    last_min_us: u32,
    current_min_us: u32,
    /// rttSampleCount, up to [`SAMPLES_MIN`].
    sample_count: u8,
    css: Option<Css>,
    train: Train,
}

/// Acknowledgments that follow each other closely, from the first of a round on.
#[derive(Clone, Copy, Debug)]
struct Train {
    /// The least round trip so far, microseconds; [`UNKNOWN`] if there was no sample.
    least_us: u32,
    began_at: Instant,
    /// When its latest acknowledgment arrived; `None` after a pause.
    last_at: Option<Instant>,
}

impl Train {
    /// True if the train has become as long as the path. In slow start, paced data is sent over half a round trip, so a
    /// train must be that much longer.
    fn on_ack(&mut self, rtt_us: Option<u32>, round_ended: bool, paced: bool, now: Instant) -> bool {
        self.least_us = self.least_us.min(rtt_us.unwrap_or(UNKNOWN));
        if round_ended {
            (self.began_at, self.last_at) = (now, Some(now));
            return false;
        }
        let least_us = u64::from(self.least_us);
        self.last_at = self.last_at.filter(|last| since_us(now, *last) <= TRAIN_PAUSE_US).map(|_| now);
        let long_us = if paced { least_us } else { least_us / 2 };
        self.least_us != UNKNOWN
            && least_us / 2 >= u64::from(RTT_THRESHOLD_MIN_US)
            && self.last_at.is_some()
            && since_us(now, self.began_at) > long_us
    }
}

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Css {
    /// cssBaselineMinRtt.
    baseline_us: u32,
    /// Rounds begun in it.
    round_count: u8,
}

/// How the window grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// By acknowledged bytes.
    Full,
    /// By a quarter of the acknowledged bytes (CSS_GROWTH_DIVISOR).
    Quarter,
    /// Slow start is over.
    Over,
}

impl HyStart {
    pub fn new() -> Self {
        let train = Train { least_us: UNKNOWN, began_at: Instant::ZERO, last_at: None };
        Self { last_min_us: UNKNOWN, current_min_us: UNKNOWN, sample_count: 0, css: None, train }
    }

    /// The window has been reduced for want of use: rounds before the pause say nothing about those behind it.
    pub fn begin_anew(&mut self) {
        *self = Self { train: self.train, ..Self::new() };
    }

    /// An acknowledgment in slow start: `round_ended` if it is the first of a new round, `paced` if data is sent at a
    /// rate and not all at once.
    pub fn on_ack(&mut self, rtt_us: Option<u32>, round_ended: bool, paced: bool, now: Instant) -> Growth {
        let is_long = self.train.on_ack(rtt_us, round_ended, paced, now);
        if (round_ended && self.end_round()) || is_long {
            return Growth::Over;
        }
        if let Some(rtt_us) = rtt_us {
            self.current_min_us = self.current_min_us.min(rtt_us);
            self.sample_count = (self.sample_count + 1).min(SAMPLES_MIN);
            self.judge();
        }
        if self.css.is_some() { Growth::Quarter } else { Growth::Full }
    }

    /// True if it was the last round of conservative slow start.
    fn end_round(&mut self) -> bool {
        self.last_min_us = self.current_min_us;
        (self.current_min_us, self.sample_count) = (UNKNOWN, 0);
        let Some(css) = self.css.as_mut() else { return false };
        css.round_count = css.round_count.saturating_add(1);
        css.round_count >= CSS_ROUNDS
    }

    fn judge(&mut self) {
        if self.sample_count < SAMPLES_MIN {
            return;
        }
        match self.css {
            Some(css) if self.current_min_us < css.baseline_us => self.css = None,
            Some(_) => {}
            None if self.last_min_us != UNKNOWN => {
                let threshold = (self.last_min_us / 8).clamp(RTT_THRESHOLD_MIN_US, RTT_THRESHOLD_MAX_US);
                if self.current_min_us >= self.last_min_us.saturating_add(threshold) {
                    self.css = Some(Css { baseline_us: self.current_min_us, round_count: 0 });
                }
            }
            None => {}
        }
    }
}

/// No sample; RFC 9406's infinity.
const UNKNOWN: u32 = u32::MAX;
/// N_RTT_SAMPLE.
const SAMPLES_MIN: u8 = 8;
/// CSS_ROUNDS.
const CSS_ROUNDS: u8 = 5;
/// MIN_RTT_THRESH and MAX_RTT_THRESH.
const RTT_THRESHOLD_MIN_US: u32 = 4_000;
const RTT_THRESHOLD_MAX_US: u32 = 16_000;
/// A longer pause between two acknowledgments ends a train, microseconds (Linux's `hystart_ack_delta_us`).
const TRAIN_PAUSE_US: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::super::super::timers::after_us;
    use super::*;

    /// A round of ten acknowledgments that arrive together; returns the growth of the last.
    fn round(hystart: &mut HyStart, rtt_us: u32) -> Growth {
        train(hystart, rtt_us, 10, 0, false)
    }

    /// A round of `count` acknowledgments, `gap_us` apart; returns the growth of the last, or of the one that ends slow
    /// start.
    fn train(hystart: &mut HyStart, rtt_us: u32, count: u32, gap_us: u64, paced: bool) -> Growth {
        let start = after_us(hystart.train.began_at, 10_000_000);
        let mut growth = Growth::Full;
        for i in 0..count {
            let now = after_us(start, u64::from(i) * gap_us);
            growth = hystart.on_ack(Some(rtt_us), i == 0, paced, now);
            if growth == Growth::Over {
                break;
            }
        }
        growth
    }

    #[test]
    fn a_train_of_half_the_least_round_trip_ends_slow_start_and_one_with_a_pause_does_not() {
        for (rtt_us, count, gap_us, growth) in [
            (200_000, 50, 2_000, Growth::Full),
            (200_000, 52, 2_000, Growth::Over),
            (200_000, 200, 2_001, Growth::Full),
            (8_000, 10, 500, Growth::Over),
            (7_999, 100, 400, Growth::Full),
        ] {
            let mut hystart = HyStart::new();
            assert_eq!(
                train(&mut hystart, rtt_us, count, gap_us, false),
                growth,
                "{rtt_us} {count} {gap_us}"
            );
        }
    }

    #[test]
    fn a_pause_ends_the_train_of_its_round_only() {
        let mut hystart = HyStart::new();
        assert_eq!(train(&mut hystart, 200_000, 20, 2_000, false), Growth::Full);
        let late = after_us(hystart.train.began_at, 60_000);
        for i in 0..100 {
            assert_eq!(hystart.on_ack(Some(200_000), false, false, after_us(late, 1_000 * i)), Growth::Full);
        }
        assert_eq!(train(&mut hystart, 200_000, 100, 2_000, false), Growth::Over);
    }

    #[test]
    fn a_train_of_paced_segments_has_to_be_a_round_trip_long() {
        let mut hystart = HyStart::new();
        assert_eq!(train(&mut hystart, 200_000, 101, 2_000, true), Growth::Full);
        assert_eq!(train(&mut hystart, 200_000, 102, 2_000, true), Growth::Over);
    }

    #[test]
    fn a_steady_round_trip_never_ends_slow_start() {
        let mut hystart = HyStart::new();
        for _ in 0..100 {
            assert_eq!(round(&mut hystart, 50_000), Growth::Full);
        }
    }

    #[test]
    fn a_round_trip_that_grows_by_an_eighth_ends_slow_start_after_five_conservative_rounds() {
        let mut hystart = HyStart::new();
        assert_eq!(round(&mut hystart, 80_000), Growth::Full);
        assert_eq!(round(&mut hystart, 89_999), Growth::Full, "just under an eighth");
        assert_eq!(round(&mut hystart, 101_250), Growth::Quarter);
        for _ in 0..4 {
            assert_eq!(round(&mut hystart, 110_000), Growth::Quarter);
        }
        assert_eq!(round(&mut hystart, 110_000), Growth::Over);
    }

    #[test]
    fn a_round_trip_that_falls_back_shows_that_it_was_jitter() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 80_000);
        assert_eq!(round(&mut hystart, 95_000), Growth::Quarter);
        assert_eq!(round(&mut hystart, 95_000), Growth::Quarter, "no shorter than when it began");
        assert_eq!(round(&mut hystart, 94_999), Growth::Full);
    }

    #[test]
    fn fewer_than_eight_samples_are_ignored() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 80_000);
        assert_eq!(hystart.on_ack(Some(200_000), true, false, Instant::ZERO), Growth::Full);
        for _ in 0..6 {
            assert_eq!(hystart.on_ack(Some(200_000), false, false, Instant::ZERO), Growth::Full);
        }
        assert_eq!(hystart.on_ack(Some(200_000), false, false, Instant::ZERO), Growth::Quarter);
    }

    #[test]
    fn the_threshold_lies_between_four_and_sixteen_milliseconds() {
        for (base, over) in [(1_000, 5_000), (400_000, 416_000)] {
            let mut hystart = HyStart::new();
            round(&mut hystart, base);
            assert_eq!(round(&mut hystart, over - 1), Growth::Full);
            let mut hystart = HyStart::new();
            round(&mut hystart, base);
            assert_eq!(round(&mut hystart, over), Growth::Quarter);
        }
    }
}
