//! Running the rows of an experiment.
//!
//! Purpose: interleave the lanes. A round takes one sample of each, in an order in which over the rounds each lane follows
//! each other one equally often: changes on the machine affect all of them alike, and so do the after-effects of a sample
//! on the next (threads moved between cores, memory). A lane that fails is excluded from its row; the others continue.
//!
//! Does not depend on how results are printed.
//!
//! Invariants: the objects that a lane opened live for one row, so no row inherits them from another; each sample is
//! under the watchdog.
//!
//! Tests: below; `tests/bench` through the command.

use std::io;
use std::time::Duration;

use crate::experiment::counting::{Counted, Counting};
use crate::experiment::model::{Experiment, Lane, On, Row, Taken, Testbed};
use crate::experiment::plan::Plan;
use crate::meter::Timing;
use crate::provider::Counters;
use crate::stats::ministat::Moments;
use crate::{record, watchdog};

/// The results of one lane in one row.
#[derive(Clone, Debug)]
pub struct LaneResult {
    /// Which.
    pub lane: Lane,
    /// In the row's unit, in the order they were taken; never empty.
    pub samples: Vec<f64>,
    /// Of the samples.
    pub moments: Moments,
    /// Cores used, the median.
    pub cpu: Option<f64>,
    /// Cores that other programs left, used or idle, on average.
    pub cores_had: Option<f64>,
    /// Operations in all windows.
    pub operations: f64,
    /// Length of all windows, seconds.
    pub seconds: f64,
    /// Added up over the windows.
    pub counters: Counters,
    /// The hand-offs, from a separate pass in the build that counts them.
    pub counted: Option<Counted>,
}

/// A lane that could not be measured.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub lane: Lane,
    /// Why.
    pub error: io::Error,
}

/// The result of a row.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The lanes that were measured: settings in their order, then the kernel.
    pub lanes: Vec<LaneResult>,
    /// Those that were not.
    pub failures: Vec<Failure>,
}

impl Outcome {
    /// The lane of this name.
    pub fn of(&self, name: &str) -> Option<&LaneResult> {
        self.lanes.iter().find(|lane| lane.lane.name() == name)
    }

    /// The setting that others are compared with: the first one measured.
    pub fn base(&self) -> Option<&LaneResult> {
        self.lanes.first().filter(|lane| lane.lane != Lane::Kernel)
    }
}

/// Takes all samples of a row, and counts hand-offs afterwards, if there is something to count with. `advanced` is called after each sample. Blocks
/// for as long as that takes.
pub fn run_row(
    plan: &Plan,
    experiment: &Experiment,
    row: &Row,
    lanes: &[Lane],
    counting: Option<&Counting>,
    mut advanced: impl FnMut(),
) -> Outcome {
    let key = experiment.key;
    let what = |lane: &Lane| format!("a sample of {key} ({}) with {}", row.label, lane.name());
    let mut running: Vec<Running> = lanes.iter().map(|lane| Running::open(plan, key, row, lane)).collect();
    for round in 0..plan.samples {
        for index in order(round, running.len()) {
            let one = &mut running[index];
            let _armed = watchdog::arm(limit(plan, row), what(&one.lane));
            one.take_sample(plan.timing);
            advanced();
        }
    }
    let mut outcome = Outcome::default();
    for lane in running {
        match lane.finish() {
            Ok(result) => outcome.lanes.push(result),
            Err(failure) => outcome.failures.push(failure),
        }
    }
    for lane in &mut outcome.lanes {
        let (Some(counting), Lane::Setting(setting)) = (counting, &lane.lane) else { continue };
        let _armed = watchdog::arm(limit(plan, row), format!("counting: {}", what(&lane.lane)));
        // Before the watchdog, which ends everything.
        match counting.count(experiment, row, setting, limit(plan, row) - watchdog::GRACE / 2) {
            Ok(counted) => lane.counted = Some(counted),
            Err(error) => outcome.failures.push(Failure { lane: lane.lane.clone(), error }),
        }
    }
    outcome
}

fn limit(plan: &Plan, row: &Row) -> Duration {
    plan.timing.warm_up + plan.timing.timed + row.setup + watchdog::GRACE
}

/// The order of the lanes in a round: the rows of a balanced square (E. J. Williams, 1949), alternately from the left and
/// from the right, so that an odd number of lanes is balanced too.
pub fn order(round: usize, lanes: usize) -> Vec<usize> {
    let zigzag = |turn: usize| if turn.is_multiple_of(2) { turn / 2 } else { lanes - turn.div_ceil(2) };
    let mut order: Vec<usize> = (0..lanes).map(|turn| (zigzag(turn) + round) % lanes).collect();
    if round / lanes.max(1) % 2 == 1 {
        order.reverse();
    }
    order
}

struct Running {
    lane: Lane,
    testbed: io::Result<Box<dyn Testbed>>,
    taken: Vec<Taken>,
    timed: Duration,
}

impl Running {
    fn open(plan: &Plan, key: &str, row: &Row, lane: &Lane) -> Self {
        let testbed = match lane {
            Lane::Kernel => row.work.open(&On::Kernel),
            Lane::Setting(setting) => match row.config(&plan.given, key, setting) {
                Ok(config) => {
                    let label = || format!("{key} ({}) with {}", row.label, lane.name());
                    record::labelled(label, || row.work.open(&On::Sockeye(&config)))
                }
                Err(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error.0)),
            },
        };
        Self { lane: lane.clone(), testbed, taken: Vec::new(), timed: Duration::ZERO }
    }

    fn take_sample(&mut self, timing: Timing) {
        let Ok(testbed) = &self.testbed else { return };
        match testbed.sample(timing) {
            Ok(taken) => {
                self.taken.push(taken);
                self.timed += timing.timed;
            }
            Err(error) => self.testbed = Err(error),
        }
    }

    fn finish(self) -> Result<LaneResult, Failure> {
        let lane = self.lane;
        if let Err(error) = self.testbed {
            return Err(Failure { lane, error });
        }
        let samples: Vec<f64> = self.taken.iter().map(|taken| taken.value).collect();
        let Some(moments) = Moments::of(&samples) else {
            return Err(Failure { lane, error: io::Error::other("no sample was taken") });
        };
        let cpu: Vec<f64> = self.taken.iter().filter_map(|taken| taken.cpu).collect();
        let had: Vec<f64> = self.taken.iter().filter_map(|taken| taken.cores_had).collect();
        let mut counters = Counters::new();
        for (name, value) in self.taken.iter().flat_map(|taken| &taken.counters) {
            let sum = counters.entry(name.clone()).or_insert(0_u64);
            *sum = sum.saturating_add(*value);
        }
        Ok(LaneResult {
            lane,
            samples,
            moments,
            cpu: Moments::of(&cpu).map(|cpu| cpu.median),
            cores_had: Moments::of(&had).map(|had| had.average),
            operations: self.taken.iter().map(|taken| taken.operations).sum(),
            seconds: self.timed.as_secs_f64(),
            counters,
            counted: None,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A lane with these samples and counters; ten operations in two seconds.
    pub fn lane(name: &'static str, samples: &[f64], counters: &[(&str, u64)]) -> LaneResult {
        let lane = if name == Lane::Kernel.name() { Lane::Kernel } else { Lane::Setting(name) };
        LaneResult {
            lane,
            samples: samples.to_vec(),
            moments: Moments::of(samples).unwrap(),
            cpu: Some(1.5),
            cores_had: None,
            operations: 10.0,
            seconds: 2.0,
            counters: counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            counted: None,
        }
    }

    #[test]
    fn each_lane_follows_each_other_one_equally_often() {
        for lanes in 1..=6 {
            let mut after = vec![vec![0; lanes]; lanes];
            for round in 0..2 * lanes {
                let order = order(round, lanes);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..lanes).collect::<Vec<_>>());
                for pair in order.windows(2) {
                    after[pair[0]][pair[1]] += 1;
                }
            }
            for (first, row) in after.iter().enumerate() {
                for (second, &times) in row.iter().enumerate() {
                    assert_eq!(times, if first == second { 0 } else { 2 }, "{lanes} lanes: {after:?}");
                }
            }
        }
    }

    #[test]
    fn the_base_is_the_first_setting_and_never_the_kernel() {
        let mut outcome = Outcome::default();
        assert!(outcome.base().is_none());
        outcome.lanes.push(lane("kernel", &[1.0], &[]));
        assert!(outcome.base().is_none());
        outcome.lanes.insert(0, lane("async", &[1.0], &[]));
        assert_eq!(outcome.base().unwrap().lane, Lane::Setting("async"));
        assert!(outcome.of("kernel").is_some() && outcome.of("sync").is_none());
    }
}
