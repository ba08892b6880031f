//! How Sockeye's times of a pattern compare with the kernel's.
//!
//! Does not depend on how times are measured. Invariant: ratios are the kernel's time over Sockeye's, so more is better. Tests: below.

use std::time::Duration;

use super::LEAST;
use super::draw::Pattern;
use super::places::Measured;
use crate::provider::Counters;
use crate::stats::Summary;

/// A pattern with its runs.
pub struct Ranked {
    /// What was run.
    pub pattern: Pattern,
    /// Of Sockeye and of the kernel, taken one after the other.
    pub rounds: Vec<[Measured; 2]>,
}

/// One figure of both sides, in milliseconds, and their ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Of Sockeye.
    pub ours: Summary,
    /// Of the kernel.
    pub theirs: Summary,
    /// The kernel's median over Sockeye's.
    pub ratio: f64,
    /// Smallest and largest ratio of two runs of the same round.
    pub spread: (f64, f64),
}

impl Ranked {
    /// Of these runs.
    pub fn new(pattern: Pattern, rounds: Vec<[Measured; 2]>) -> Self {
        Self { pattern, rounds }
    }

    /// Times to the end.
    pub fn time(&self) -> Option<Compared> {
        self.compared(|measured| Some(measured.time))
    }

    /// 99th percentiles, if they say anything.
    pub fn p99(&self) -> Option<Compared> {
        self.compared(|measured| measured.p99)
    }

    fn figures(&self) -> impl Iterator<Item = Compared> {
        [self.time(), self.p99()].into_iter().flatten()
    }

    /// The smaller one of the ratios.
    pub fn worst(&self) -> f64 {
        self.figures().map(|compared| compared.ratio).fold(f64::INFINITY, f64::min)
    }

    /// Whether one of the ratios of medians is too small.
    pub fn looks_slow(&self) -> bool {
        self.worst() < LEAST
    }

    /// Whether this is so in each run: a figure of few messages is often small in the median of five runs, and not in the next five.
    pub fn is_slow(&self) -> bool {
        self.figures().any(|compared| compared.ratio < LEAST && compared.spread.1 < LEAST)
    }

    /// What Sockeye's stacks counted in the last run.
    pub fn counters(&self) -> Counters {
        self.rounds.last().map_or_else(Counters::new, |[ours, _]| ours.counters.clone())
    }

    fn compared(&self, figure: impl Fn(&Measured) -> Option<Duration>) -> Option<Compared> {
        let millis = |side: usize| -> Option<Vec<f64>> {
            self.rounds
                .iter()
                .map(|round| figure(&round[side]).map(|time| time.as_secs_f64() * 1e3))
                .collect()
        };
        let (ours, theirs) = (millis(0)?, millis(1)?);
        let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect::<Vec<_>>();
        let spread = Summary::of(&ratios)?;
        let (ours, theirs) = (Summary::of(&ours)?, Summary::of(&theirs)?);
        Some(Compared { ours, theirs, ratio: theirs.median / ours.median, spread: (spread.min, spread.max) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(rounds: &[[(u64, Option<u64>); 2]]) -> Ranked {
        let measured = |(time, p99): (u64, Option<u64>)| Measured {
            time: Duration::from_millis(time),
            p99: p99.map(Duration::from_millis),
            counters: Counters::new(),
        };
        Ranked::new(Pattern::draw(1, 0, false), rounds.iter().map(|round| round.map(measured)).collect())
    }

    #[test]
    fn medians_count_and_the_spread_is_shown() {
        let ranked = ranked(&[[(10, None), (10, None)], [(20, None), (10, None)], [(100, None), (40, None)]]);
        let time = ranked.time().unwrap();
        assert_eq!((time.ratio, time.spread), (0.5, (0.4, 1.0)));
        assert!(ranked.looks_slow() && ranked.p99().is_none());
    }

    #[test]
    fn a_pattern_is_slow_if_one_figure_is_too_small_in_each_run() {
        let once = ranked(&[[(10, None), (5, None)], [(10, None), (5, None)], [(10, None), (8, None)]]);
        assert!(once.looks_slow() && !once.is_slow());
        let each = ranked(&[[(10, Some(9)), (5, Some(9))], [(10, Some(9)), (7, Some(9))]]);
        assert!(each.looks_slow() && each.is_slow());
        let by_turns = ranked(&[[(10, Some(10)), (5, Some(10))], [(10, Some(10)), (10, Some(5))]]);
        assert!(!by_turns.is_slow());
    }

    #[test]
    fn either_ratio_makes_a_pattern_slow() {
        assert!(!ranked(&[[(10, Some(10)), (9, Some(9))]]).is_slow());
        assert!(ranked(&[[(10, Some(10)), (30, Some(7))]]).is_slow());
        assert_eq!(ranked(&[[(10, Some(10)), (30, Some(7))]]).worst(), 0.7);
    }
}
