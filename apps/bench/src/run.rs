//! Running a plan.
//!
//! Purpose: interleave the sides. A round takes one sample of each, beginning with another side each
//! time, so that changes on the machine affect both. A side that fails is excluded from its
//! case; the other one continues.
//!
//! Does not depend on how results are printed.
//!
//! Invariants: a provider lives for one case, so one case's leftovers are not another's; each sample is
//! under the watchdog.
//!
//! Tests: `tests/bench`.

use std::io;

use crate::pin::Placement;
use crate::plan::Case;
use crate::provider::{Counters, Side};
use crate::providers::kernel::Kernel;
use crate::providers::sockeye::Sockeye;
use crate::stats::{Ratio, Summary};
use crate::watchdog;
use crate::workloads::{Sample, Workload, http, mem};

/// The results of one side in one case.
#[derive(Clone, Debug)]
pub struct SideResult {
    /// Which side.
    pub side: Side,
    /// In the workload's unit, in the order they were taken; never empty.
    pub samples: Vec<f64>,
    /// Of the samples.
    pub summary: Summary,
    /// Cores used, the median; `None` where CPU time is not measured.
    pub cpu: Option<f64>,
    /// Added up over the samples, warm-up included.
    pub counters: Counters,
}

/// A side that could not be measured.
#[derive(Debug)]
pub struct Failure {
    /// Which side.
    pub side: Side,
    /// Why.
    pub error: io::Error,
}

/// The result of a case.
#[derive(Debug)]
pub struct Outcome {
    /// The sides that were measured, Sockeye first.
    pub results: Vec<SideResult>,
    /// Sockeye's median over the kernel's, if there are both and it means something.
    pub ratio: Option<Ratio>,
    /// The sides that were not.
    pub failures: Vec<Failure>,
}

impl Outcome {
    /// The result of `side`.
    pub fn of(&self, side: Side) -> Option<&SideResult> {
        self.results.iter().find(|result| result.side == side)
    }
}

/// Takes all samples of a case. `advanced` is called after each. Blocks for as long as that takes.
pub fn run_case(case: &Case, sides: &[Side], mut advanced: impl FnMut()) -> Outcome {
    let mut lanes: Vec<Lane> = sides.iter().map(|&side| Lane::new(side, case)).collect();
    for round in 0..case.samples {
        for turn in 0..lanes.len() {
            let index = (round + turn) % lanes.len();
            lanes[index].take_sample(case);
            advanced();
        }
    }
    let mut outcome = Outcome { results: Vec::new(), ratio: None, failures: Vec::new() };
    for lane in lanes {
        match lane.finish() {
            Ok(result) => outcome.results.push(result),
            Err(failure) => outcome.failures.push(failure),
        }
    }
    if case.workload.has_ratio()
        && let (Some(ours), Some(theirs)) = (outcome.of(Side::Sockeye), outcome.of(Side::Kernel))
    {
        outcome.ratio = Ratio::of_rounds(&ours.samples, &theirs.samples);
    }
    outcome
}

/// One side of a running case.
struct Lane {
    side: Side,
    contender: Result<Contender, io::Error>,
    samples: Vec<Sample>,
}

enum Contender {
    Kernel(Kernel),
    Sockeye(Sockeye),
    /// Memory and applications are measured in processes of their own.
    Processes(Side),
}

impl Lane {
    fn new(side: Side, case: &Case) -> Self {
        Self { side, contender: Contender::new(side, case), samples: Vec::new() }
    }

    fn take_sample(&mut self, case: &Case) {
        let Ok(contender) = &self.contender else {
            return;
        };
        let (name, label) = (case.workload.name().as_str(), case.label());
        let what = format!("a sample of {name} ({label}) on {}", self.side.name());
        let _armed = watchdog::arm(case.planned_time() + watchdog::GRACE, what);
        match contender.sample(case) {
            Ok(sample) => self.samples.push(sample),
            Err(error) => self.contender = Err(error),
        }
    }

    fn finish(self) -> Result<SideResult, Failure> {
        let side = self.side;
        self.contender.map_err(|error| Failure { side, error })?;
        let values: Vec<f64> = self.samples.iter().map(|sample| sample.value).collect();
        let Some(summary) = Summary::of(&values) else {
            return Err(Failure { side, error: io::Error::other("no sample was taken") });
        };
        let cpu: Vec<f64> = self.samples.iter().filter_map(|sample| sample.cpu).collect();
        let mut counters = Counters::new();
        for (name, value) in self.samples.iter().flat_map(|sample| &sample.counters) {
            let sum = counters.entry(name.clone()).or_insert(0_u64);
            *sum = sum.saturating_add(*value);
        }
        let cpu = Summary::of(&cpu).map(|cpu| cpu.median);
        Ok(SideResult { side, samples: values, summary, cpu, counters })
    }
}

impl Contender {
    fn new(side: Side, case: &Case) -> io::Result<Self> {
        match (&case.workload, side) {
            (Workload::Mem(_) | Workload::Http(_), side) => Ok(Contender::Processes(side)),
            (Workload::Crr(_), Side::Kernel) => Kernel::for_short_connections().map(Contender::Kernel),
            (
                Workload::Stream(_) | Workload::Rr(_) | Workload::OneWay(_) | Workload::Idle(_),
                Side::Kernel,
            ) => Kernel::new().map(Contender::Kernel),
            (
                Workload::Stream(_)
                | Workload::Rr(_)
                | Workload::OneWay(_)
                | Workload::Crr(_)
                | Workload::Idle(_),
                Side::Sockeye,
            ) => Sockeye::new(case.spin).map(Contender::Sockeye),
        }
    }

    fn sample(&self, case: &Case) -> io::Result<Sample> {
        let placement = Placement::new(case.pin)?;
        match self {
            Contender::Kernel(kernel) => case.workload.sample(kernel, &placement, case.timing),
            Contender::Sockeye(sockeye) => case.workload.sample(sockeye, &placement, case.timing),
            Contender::Processes(side) => match &case.workload {
                Workload::Mem(spec) => mem::sample(*side, spec),
                Workload::Http(spec) => http::sample(*side, spec, case.timing),
                Workload::Stream(_)
                | Workload::Rr(_)
                | Workload::OneWay(_)
                | Workload::Crr(_)
                | Workload::Idle(_) => {
                    Err(io::Error::other("only memory and applications are measured in other processes"))
                }
            },
        }
    }
}
