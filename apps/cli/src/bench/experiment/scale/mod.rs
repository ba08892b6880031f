//! `bench scale`: what more cores would do.
//!
//! Purpose: for the row of each experiment that stands for it, every setting on one core and on all cores here, the time
//! of an operation, the hand-offs it makes, and from these a curve for 1 to [`CORES_MAX`] cores. How: at the head of
//! `usl.rs` and in `docs/experiments.md`; [`ASSUMPTIONS`] goes with every prediction.
//!
//! Must not know: how it is drawn.
//!
//! Invariants: a prediction is never shown without its assumptions and its check against what was measured here.
//!
//! Tests: below, and in `usl.rs`.

use std::io;
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::bench::experiment::model::{Experiment, Lane, Row};
use crate::bench::experiment::plan::{Part, Plan};
use crate::bench::experiment::run::{Failure, LaneResult, Outcome, run_row};
use crate::bench::pin::usable_cores;

mod line;
pub mod usl;

pub use line::handoff_seconds;
use usl::Usl;

/// One experiment's prediction.
pub struct Prediction<'a> {
    /// Which.
    pub experiment: &'static Experiment,
    /// The row it is made from.
    pub row: &'a Row,
    /// Each setting's curve, and the kernel's.
    pub curves: Vec<Curve>,
    /// How many cores "all here" are.
    pub cores: usize,
    /// Seconds of one hand-off on this machine.
    pub handoff: Option<f64>,
    /// Lanes that could not be measured.
    pub failures: Vec<Failure>,
}

/// One lane's.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Which.
    pub lane: Lane,
    /// Throughput on one core, in the row's unit.
    pub one: f64,
    /// On all cores here.
    pub all: f64,
    /// CPU seconds of an operation on one core.
    pub operation: f64,
    /// Hand-offs of an operation: of words that only its own ends use, and of words that everybody does.
    pub handoffs: Option<Handoffs>,
    /// The prediction.
    pub usl: Usl,
    /// The same with both throughputs at the ends of their 95 % intervals: the worst and the best of it.
    pub band: Option<(Usl, Usl)>,
}

/// Hand-offs per operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Handoffs {
    /// Of lines that belong to one connection or one core's pool: as many per operation on any number of cores.
    pub paired: f64,
    /// Of the words of a lock that the whole stack shares.
    pub shared: f64,
}

impl Curve {
    /// Seconds of an operation that only one core at a time can do.
    pub fn serial(&self) -> f64 {
        self.usl.sigma * self.operation
    }

    /// Predicted over measured throughput on all cores here.
    pub fn check(&self, cores: usize) -> f64 {
        self.usl.throughput(cores as f64) / self.all
    }

    /// From a lane's results on one core and on all; `None` if they give no curve.
    fn of(one: &LaneResult, all: &LaneResult, cores: usize, costs: Costs) -> Option<Self> {
        let operation = one.cpu? * one.seconds / one.operations;
        let (rho, kappa) = costs.of(operation);
        let usl = Usl::through(one.moments.average, all.moments.average, cores, rho, kappa)?;
        let at = |first: f64, second: f64| {
            let (e1, e2) = (one.moments.error_95()?, all.moments.error_95()?);
            Usl::through(
                one.moments.average + first * e1,
                all.moments.average + second * e2,
                cores,
                rho,
                kappa,
            )
        };
        let band = at(1.0, -1.0).zip(at(-1.0, 1.0));
        Some(Self {
            lane: one.lane.clone(),
            one: one.moments.average,
            all: all.moments.average,
            operation,
            handoffs: costs.handoffs,
            usl,
            band,
        })
    }
}

/// What hand-offs cost.
#[derive(Clone, Copy)]
struct Costs {
    handoffs: Option<Handoffs>,
    seconds: Option<f64>,
}

impl Costs {
    /// ρ and κ of operations that take this many seconds; 0 where hand-offs were not counted.
    fn of(self, operation: f64) -> (f64, f64) {
        match (self.handoffs, self.seconds) {
            (Some(Handoffs { paired, shared }), Some(seconds)) if operation > 0.0 => {
                // On two cores there is one pair, and N(N-1) counts it twice.
                (paired * seconds / operation, shared * seconds / operation / 2.0)
            }
            (Some(_) | None, Some(_) | None) => (0.0, 0.0),
        }
    }
}

/// How many samples [`predict`] takes of a part.
pub fn samples(plan: &Plan, part: &Part) -> usize {
    let lanes = |row: &Row| part.lanes_of(row).len() * 2 * plan.samples;
    part.rows.iter().find(|row| row.scales).map_or(0, lanes)
}

/// Measures a part's row on one core and on all, and makes its curves. `None` if no row stands for the experiment. Blocks.
pub fn predict<'a>(
    plan: &Plan,
    part: &'a Part,
    handoff: Option<f64>,
    advanced: impl Fn() + Sync,
) -> io::Result<Option<Prediction<'a>>> {
    let Some(row) = part.rows.iter().find(|row| row.scales) else { return Ok(None) };
    let cores = usable_cores()?;
    let lanes = part.lanes_of(row);
    let key = part.experiment.key;
    let run = || run_row(plan, key, row, &lanes, &advanced);
    let one = on_core(cores[0], run)?;
    let all = run();
    let mut failures = one.failures;
    failures.extend(all.failures);
    let curve = |first: &LaneResult| {
        let second = all.lanes.iter().find(|lane| lane.lane == first.lane)?;
        let costs = Costs { handoffs: None, seconds: handoff };
        Curve::of(first, second, cores.len(), costs)
    };
    let curves = one.lanes.iter().filter_map(curve).collect();
    Ok(Some(Prediction { experiment: part.experiment, row, curves, cores: cores.len(), handoff, failures }))
}

/// Runs `work` and all threads it starts on one core.
fn on_core(core: usize, work: impl FnOnce() -> Outcome + Send) -> io::Result<Outcome> {
    thread::scope(|scope| {
        let pinned = scope.spawn(move || {
            let mut set = CpuSet::new();
            set.set(core);
            sched_setaffinity(None, &set)?;
            Ok(work())
        });
        pinned.join().unwrap_or_else(|_| Err(io::Error::other("the thread that measures one core failed")))
    })
}

/// For how many cores a prediction is drawn.
pub const CORES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The last of them.
pub const CORES_MAX: usize = 128;

/// Goes with every prediction.
pub const ASSUMPTIONS: &[&str] = &[
    "A prediction, not a measurement: this machine has only the cores named in its header.",
    "There is enough independent work for every core, and no limit of memory bandwidth, sockets (NUMA) or hyper-threads.",
    "Whatever two cores lose against twice one core, and hand-offs do not explain, is serial (sigma) and stays that share of \
     an operation; as part of it is memory bandwidth and the scheduler's doing here, this is the pessimistic reading.",
    "A hand-off costs what two threads measured here that write one word in turn. Those of a connection's own lines are paid once, \
     on any number of cores (rho); those of a lock that the whole stack shares cost more with each core that wants it (kappa).",
    "Where hand-offs were not counted rho and kappa are 0: the curve is Amdahl's.",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::experiment::run::tests::lane;

    #[test]
    fn a_curve_goes_through_what_was_measured_and_says_what_is_serial() {
        let (one, all) =
            (lane("sync", &[99.0, 100.0, 101.0], &[]), lane("sync", &[159.0, 160.0, 161.0], &[]));
        let costs = Costs { handoffs: None, seconds: Some(1e-7) };
        let curve = Curve::of(&one, &all, 2, costs).unwrap();
        assert!((curve.check(2) - 1.0).abs() < 1e-9);
        // 1.5 cores for 2 s and 10 operations.
        assert!((curve.operation - 0.3).abs() < 1e-12 && (curve.serial() - 0.25 * 0.3).abs() < 1e-9);
        let (worst, best) = curve.band.unwrap();
        assert!(worst.throughput(64.0) < curve.usl.throughput(64.0));
        assert!(best.throughput(64.0) > curve.usl.throughput(64.0));
    }

    #[test]
    fn hand_offs_take_their_part_of_the_loss() {
        let (one, all) = (lane("sync", &[100.0; 3], &[]), lane("sync", &[160.0; 3], &[]));
        let handoffs = Some(Handoffs { paired: 2.0, shared: 1.0 });
        let curve = Curve::of(&one, &all, 2, Costs { handoffs, seconds: Some(0.015) }).unwrap();
        assert!((curve.usl.rho - 0.1).abs() < 1e-9 && (curve.usl.kappa - 0.025).abs() < 1e-9, "{curve:?}");
        assert!((curve.usl.sigma - 0.1).abs() < 1e-9 && (curve.check(2) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn one_core_is_one_core_for_all_threads_of_the_work() {
        let core = usable_cores().unwrap()[0];
        let outcome = on_core(core, || {
            let inside = thread::spawn(usable_cores).join().unwrap().unwrap();
            assert_eq!(inside, [core]);
            Outcome::default()
        });
        assert!(outcome.unwrap().lanes.is_empty());
    }
}
