//! The rounds.
//!
//! Purpose: in each round every row is measured once by each build, one right after the other. The build that begins changes with each
//! round, so the order is ABBA: a steady drift favours neither. A round goes through all
//! rows before the next begins, so that a disturbance of some seconds meets a round of many rows and not all rounds of one row.
//!
//! Does not depend on the meaning of the values.
//!
//! Invariants: `values[0][i]` and `values[1][i]` are of the same round. A row of which one build has no value is out; the
//! others go on.
//!
//! Tests: below; `tests/bench/against.rs`.

use std::time::{Duration, Instant};

use sockeye_shared::progress::Progress;

use super::build::Build;
use super::row::{Fault, Reading, Row};
use crate::stats::{Ratio, SplitMix64};

/// A row, and the results of its rounds.
#[derive(Debug)]
pub struct Course {
    /// The requested row.
    pub row: Row,
    /// The answer of this build in the first round.
    pub first: Option<Reading>,
    /// This build's values and the other's.
    pub values: [Vec<f64>; 2],
    /// Which build ended it, and why.
    pub end: Option<(usize, Fault)>,
}

impl Course {
    fn new(row: Row) -> Self {
        Self { row, first: None, values: [Vec::new(), Vec::new()], end: None }
    }

    /// Whether it ended by a failure, not because the other build does not know the row.
    pub fn has_failed(&self) -> bool {
        matches!(self.end, Some((THIS, _) | (OTHER, Fault::Failed(_))))
    }

    /// How much better this build did in each round; above 1 is better whatever the value counts. `None` if the row is out or a
    /// ratio would say nothing. A build that did nothing in a round, as can happen in a short window on a busy machine, makes
    /// the ratio zero or infinite, which a median copes with; if neither did anything they count as equal.
    pub fn ratios(&self) -> Option<Vec<f64>> {
        let first = self.first.as_ref().filter(|_| self.end.is_none() && self.row.has_ratio)?;
        let [this, other] = &self.values;
        let ratio = |(this, other): (&f64, &f64)| {
            let (better, base) = if first.higher_is_better { (this, other) } else { (other, this) };
            if better == base { 1.0 } else { better / base }
        };
        Some(this.iter().zip(other).map(ratio).collect())
    }

    /// The median of the ratios.
    pub fn ratio(&self) -> Option<Ratio> {
        Ratio::of_pairs(&self.ratios()?)
    }

    /// A round of both builds, or the end of the row.
    fn take(&mut self, readings: [Result<Reading, Fault>; 2]) {
        let [this, other] = match readings {
            [Err(fault), _] => return self.end = Some((THIS, fault)),
            [_, Err(fault)] => return self.end = Some((OTHER, fault)),
            [Ok(this), Ok(other)] => [this, other],
        };
        if let Some(difference) = this.differs_from(&other) {
            return self.end = Some((OTHER, Fault::Unknown(difference)));
        }
        self.values[THIS].push(this.value);
        self.values[OTHER].push(other.value);
        self.first.get_or_insert(this);
    }
}

/// The geometric mean of all rows that have a ratio, and how many these are.
pub fn geometric_mean(courses: &[Course]) -> (Option<Ratio>, usize) {
    let ratios: Vec<Vec<f64>> = courses.iter().filter_map(Course::ratios).collect();
    (Ratio::geometric_mean(&ratios), ratios.len())
}

/// Takes all samples. Blocks until they are done.
pub fn run(builds: &[Build; 2], rows: Vec<Row>, count: usize) -> Vec<Course> {
    let mut courses: Vec<Course> = rows.into_iter().map(Course::new).collect();
    let progress = Progress::of(count * courses.len() * 2, count);
    let (begin, mut random) = (Instant::now(), SplitMix64::new(PADDING_SEED));
    for round in 0..count {
        progress.step(round, "round", &remaining(begin.elapsed(), round, count));
        for course in &mut courses {
            if course.end.is_none() {
                let turn = |index: usize, row: &Row| builds[index].turn(row, random.below(PADDING_MAX));
                let readings = one_round(round, &course.row, turn);
                course.take(readings);
                if let Some((index, Fault::Unknown(why) | Fault::Failed(why))) = &course.end {
                    let (row, build) = (&course.row, &builds[*index].name);
                    progress.suspend(|| eprintln!("{} ({}): out: {build}: {why}", row.workload, row.label));
                }
            }
            progress.sample();
            progress.sample();
        }
    }
    progress.end();
    courses
}

/// A turn of each build, in the order of this round: AB, then BA.
fn one_round<T>(round: usize, row: &Row, mut turn: impl FnMut(usize, &Row) -> T) -> [T; 2] {
    if round.is_multiple_of(2) {
        let this = turn(THIS, row);
        [this, turn(OTHER, row)]
    } else {
        let other = turn(OTHER, row);
        [turn(THIS, row), other]
    }
}

/// How long the rounds that are left will take, going by those that are over.
fn remaining(elapsed: Duration, over: usize, count: usize) -> String {
    match u32::try_from(over) {
        Ok(done @ 1..) => {
            let left = (elapsed / done).saturating_mul(u32::try_from(count - over).unwrap_or(u32::MAX));
            format!("about {} left", spelled(left))
        }
        Ok(0) | Err(_) => "the first tells how long it takes".to_owned(),
    }
}

/// A time in words.
pub fn spelled(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..100 => format!("{} s", seconds.max(1)),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// Indices of the builds.
pub const THIS: usize = 0;
pub const OTHER: usize = 1;
/// Bytes of environment, at most: a page, since a stack that begins elsewhere in a page is all that they change.
const PADDING_MAX: usize = 4096;
const PADDING_SEED: u64 = 0xABBA;

/// Courses for tests, here and of the report.
#[cfg(test)]
pub mod testing {
    use serde_json::json;

    use super::*;
    use crate::args::On;
    use crate::plan::{Effort, default_set};

    /// A value of a row.
    pub fn reading(value: f64, higher_is_better: bool) -> Reading {
        serde_json::from_value(json!({"workload": "rr", "on": "sockeye", "params": {"size": 1}, "unit": "x",
            "higher_is_better": higher_is_better, "median": value}))
        .unwrap()
    }

    /// A row of one connection after these rounds.
    pub fn after(workload: &str, rounds: &[(f64, f64)]) -> Course {
        let row = Row::of(&default_set(None, Effort::QUICK)[0], On::Both, 1);
        let mut course = Course::new(row);
        (course.row.workload, course.row.label) = (workload.to_owned(), "1 conn".to_owned());
        for (this, other) in rounds {
            course.take([Ok(reading(*this, true)), Ok(reading(*other, true))]);
        }
        course
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::testing::{after, reading};
    use super::*;

    /// Of a row where less is better, or more.
    fn rated(rounds: &[(f64, f64)], higher_is_better: bool) -> Course {
        let mut course = after("rr", rounds);
        course.first.as_mut().unwrap().higher_is_better = higher_is_better;
        course
    }

    #[test]
    fn rounds_are_paired_and_more_is_better_or_less() {
        let rounds = [(10.0, 5.0), (9.0, 3.0), (4.0, 4.0)];
        assert_eq!(rated(&rounds, true).ratios().unwrap(), [2.0, 3.0, 1.0]);
        assert_eq!(rated(&rounds, true).ratio().unwrap().ratio, 2.0);
        assert_eq!(rated(&rounds, false).ratios().unwrap(), [0.5, 1.0 / 3.0, 1.0]);
    }

    #[test]
    fn a_round_in_which_a_build_did_nothing_counts_as_zero() {
        let course = after("rr", &[(0.0, 5.0), (5.0, 0.0), (0.0, 0.0)]);
        assert_eq!(course.ratios().unwrap(), [0.0, f64::INFINITY, 1.0]);
        assert_eq!(course.ratio().unwrap().ratio, 1.0);
    }

    #[test]
    fn a_row_without_meaning_has_no_ratio() {
        let mut idle = after("idle", &[(1.0, 1.0)]);
        idle.row.has_ratio = false;
        assert_eq!(idle.ratios(), None);
    }

    #[test]
    fn a_build_without_a_value_ends_the_row_and_is_a_failure_unless_it_does_not_know_the_row() {
        let (ok, unknown) = (|| Ok(reading(1.0, true)), || Err(Fault::Unknown("what".to_owned())));
        let failed = || Err(Fault::Failed("no ports".to_owned()));
        for (readings, has_failed) in [
            ([ok(), unknown()], false),
            ([ok(), failed()], true),
            ([failed(), ok()], true),
            ([unknown(), ok()], true),
        ] {
            let mut course = after("rr", &[(1.0, 1.0)]);
            course.take(readings);
            assert_eq!((course.has_failed(), course.ratios()), (has_failed, None), "{:?}", course.end);
        }
    }

    #[test]
    fn a_build_that_measures_something_else_does_not_know_the_row() {
        let mut other = reading(1.0, true);
        other.params.insert("size".to_owned(), json!(2));
        let mut course = after("rr", &[]);
        course.take([Ok(reading(1.0, true)), Ok(other)]);
        assert!(
            matches!(&course.end, Some((OTHER, Fault::Unknown(why))) if why.contains("size 2 instead of 1"))
        );
    }

    #[test]
    fn the_geometric_mean_is_of_the_rows_that_have_a_ratio() {
        let mut out = after("rr", &[(1.0, 9.0); 3]);
        out.end = Some((OTHER, Fault::Unknown(String::new())));
        let courses = [after("rr", &[(8.0, 1.0); 3]), out, after("rr", &[(2.0, 1.0); 3])];
        let (mean, rows) = geometric_mean(&courses);
        assert!(rows == 2 && (mean.unwrap().ratio - 4.0).abs() < 1e-12, "{mean:?}");
        assert_eq!(geometric_mean(&[]), (None, 0));
    }

    #[test]
    fn the_order_of_turns_is_abba_and_each_build_keeps_its_place() {
        let (row, mut order) = (after("rr", &[]).row, Vec::new());
        for round in 0..4 {
            let places = one_round(round, &row, |index, _| {
                order.push(index);
                index
            });
            assert_eq!(places, [THIS, OTHER]);
        }
        assert_eq!(order, [THIS, OTHER, OTHER, THIS, THIS, OTHER, OTHER, THIS]);
    }

    #[test]
    fn the_estimate_uses_the_finished_rounds() {
        assert_eq!(remaining(Duration::from_secs(30), 2, 6), "about 60 s left");
        assert_eq!(remaining(Duration::from_secs(30), 1, 20), "about 10 min left");
        assert!(remaining(Duration::ZERO, 0, 20).contains("the first"));
    }
}
