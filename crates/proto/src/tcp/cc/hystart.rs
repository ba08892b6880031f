//! HyStart++ (RFC 9406): slow start ends before it has filled the queue.
//!
//! | state | who moves it |
//! |---|---|
//! | standard slow start | the least round trip of a round exceeds that of the round before by an eighth: to CSS |
//! | conservative slow start (CSS) | the round trip falls below that at its beginning: back; after [`CSS_ROUNDS`] rounds: slow start is over |
//!
//! It must not know windows, only whether a round has ended and what round trips it saw. Tests stand at the end.

/// The search for the end of slow start.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// lastRoundMinRTT and currentRoundMinRTT, microseconds; [`UNKNOWN`] if there was no sample.
    last_min_us: u32,
    current_min_us: u32,
    /// rttSampleCount, up to [`SAMPLES_MIN`].
    sample_count: u8,
    css: Option<Css>,
}

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Css {
    /// cssBaselineMinRtt.
    baseline_us: u32,
    /// Rounds begun in it.
    round_count: u8,
}

/// How the window is to grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// By what is acknowledged.
    Full,
    /// By a quarter of it (CSS_GROWTH_DIVISOR).
    Quarter,
    /// Slow start is over.
    Over,
}

impl HyStart {
    pub fn new() -> Self {
        Self { last_min_us: UNKNOWN, current_min_us: UNKNOWN, sample_count: 0, css: None }
    }

    /// An acknowledgment in slow start: `round_ended` if it is the first of a new round.
    pub fn on_ack(&mut self, rtt_us: Option<u32>, round_ended: bool) -> Growth {
        if round_ended && self.end_round() {
            return Growth::Over;
        }
        if let Some(rtt_us) = rtt_us {
            self.current_min_us = self.current_min_us.min(rtt_us);
            self.sample_count = (self.sample_count + 1).min(SAMPLES_MIN);
            self.judge();
        }
        if self.css.is_some() { Growth::Quarter } else { Growth::Full }
    }

    /// True if it was the last of conservative slow start.
    fn end_round(&mut self) -> bool {
        self.last_min_us = self.current_min_us;
        (self.current_min_us, self.sample_count) = (UNKNOWN, 0);
        let Some(css) = self.css.as_mut() else { return false };
        css.round_count += 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of ten acknowledgments; the growth of the last.
    fn round(hystart: &mut HyStart, rtt_us: u32) -> Growth {
        let mut growth = hystart.on_ack(Some(rtt_us), true);
        for _ in 0..9 {
            if growth == Growth::Over {
                return growth;
            }
            growth = hystart.on_ack(Some(rtt_us), false);
        }
        growth
    }

    #[test]
    fn a_steady_round_trip_never_ends_slow_start() {
        let mut hystart = HyStart::new();
        for _ in 0..100 {
            assert_eq!(round(&mut hystart, 50_000), Growth::Full);
        }
    }

    #[test]
    fn a_round_trip_that_grows_by_an_eighth_ends_it_after_five_conservative_rounds() {
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
        assert_eq!(round(&mut hystart, 94_999), Growth::Full);
    }

    #[test]
    fn fewer_than_eight_samples_say_nothing() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 80_000);
        assert_eq!(hystart.on_ack(Some(200_000), true), Growth::Full);
        for _ in 0..6 {
            assert_eq!(hystart.on_ack(Some(200_000), false), Growth::Full);
        }
        assert_eq!(hystart.on_ack(Some(200_000), false), Growth::Quarter);
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
