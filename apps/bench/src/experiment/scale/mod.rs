//! `bench scale`: predictions for more cores.
//!
//! Purpose: for the row of each experiment that stands for it, every setting on one core and on more up to all that are here, the time
//! of an operation, the hand-offs it makes, and from these a curve for 1 to [`CORES_MAX`] cores. Where there are more than two
//! cores, the prediction from one and two of them is compared with the others. The method is described at the
//! head of `usl.rs` and in `docs/experiments.md`; [`ASSUMPTIONS`] are shown with every prediction.
//!
//! Does not depend on how it is drawn.
//!
//! Invariants: a prediction is never shown without its assumptions and its check against this machine's
//! measurements.
//!
//! Tests: below, and in `usl.rs`.

use std::io;
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::experiment::counters::{HANDOFFS_ALL, HANDOFFS_LOCK, lines, value};
use crate::experiment::counting::Counting;
use crate::experiment::model::{Experiment, Lane, Row};
use crate::experiment::plan::{Part, Plan};
use crate::experiment::run::{Failure, LaneResult, Outcome, run_row};
use crate::pin::usable_cores;

pub mod json;
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
    /// Cores and throughput on them, in the row's unit, as measured here: one core first, all of them last.
    pub points: Vec<(usize, f64)>,
    /// CPU seconds of an operation on one core.
    pub operation: f64,
    /// Hand-offs of an operation: of words that only its own ends use, and of words that all connections use.
    pub handoffs: Option<Handoffs>,
    /// The prediction.
    pub usl: Usl,
    /// The prediction that the first two figures alone give, where there are more of them.
    pub early: Option<Usl>,
    /// The same with the first and the last throughput at the ends of their 95 % intervals: the worst and the best of it.
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

impl Handoffs {
    /// Of a lane that was counted.
    fn of(experiment: &Experiment, lane: &LaneResult) -> Option<Self> {
        let line = |name: &str| value(lines(experiment).find(|line| line.name == name)?, lane);
        let (all, locks) = (line(HANDOFFS_ALL)?, line(HANDOFFS_LOCK)?);
        let shared = if experiment.one_lock.contains(&lane.lane.name()) { locks } else { 0.0 };
        Some(Self { paired: all - shared, shared })
    }
}

impl Curve {
    /// The share of a hand-off's time that operations pay here, if known; `None` if none was counted.
    pub fn paid(&self, handoff: Option<f64>) -> Option<f64> {
        let (rho, kappa) =
            Costs { handoffs: Some(self.handoffs?), seconds: Some(handoff?) }.of(self.operation);
        let (known, found) = (rho + kappa, self.usl.rho + self.usl.kappa);
        (known > 0.0).then(|| found / known)
    }

    /// Seconds of an operation that only one core at a time can do.
    pub fn serial(&self) -> f64 {
        self.usl.sigma * self.operation
    }

    /// Predicted over measured throughput, for each number of cores here.
    pub fn checks(&self) -> impl Iterator<Item = (usize, f64)> {
        self.points.iter().map(|&(cores, measured)| (cores, self.usl.throughput(cores as f64) / measured))
    }

    /// The prediction of the first two figures divided by the measurement, for each larger number of cores: the one check that the
    /// prediction could fail. Empty if only two numbers of cores were measured.
    pub fn held(&self) -> impl Iterator<Item = (usize, f64)> {
        let larger =
            self.early.iter().flat_map(|usl| self.points.iter().skip(2).map(move |point| (usl, point)));
        larger.map(|(usl, &(cores, measured))| (cores, usl.throughput(cores as f64) / measured))
    }

    /// From a lane's results on one core and on more; `None` if they give no curve.
    fn of(results: &[(usize, &LaneResult)], costs: Costs) -> Option<Self> {
        let (&(_, one), &(_, all)) = (results.first()?, results.last()?);
        let operation = one.cpu? * one.seconds / one.operations;
        let (rho, kappa) = costs.of(operation);
        // The time of other programs is subtracted; idle time is kept, as threads may have waited for one another.
        let had = |cores: usize, lane: &LaneResult| {
            let all = cores as f64;
            lane.cores_had.map_or(1.0, |had| (had / all).clamp(SHARE_MIN, 1.0))
        };
        let points: Vec<(usize, f64)> =
            results.iter().map(|&(cores, lane)| (cores, lane.moments.average / had(cores, lane))).collect();
        let through = |points: &[(usize, f64)]| match points {
            [(_, one), (cores, all)] => Usl::through(*one, *all, *cores, rho, kappa),
            many => Usl::fit(&many.iter().map(|(cores, x)| (*cores as f64, *x)).collect::<Vec<_>>()),
        };
        let usl = through(&points)?;
        let early = (points.len() > 2).then(|| through(&points[..2])).flatten();
        let at = |first: f64, last: f64| {
            let mut points = points.clone();
            let end = points.len() - 1;
            points[0].1 += first * one.moments.error_95()?;
            points[end].1 += last * all.moments.error_95()?;
            through(&points)
        };
        let band = at(1.0, -1.0).zip(at(-1.0, 1.0));
        Some(Self { lane: one.lane.clone(), points, operation, handoffs: costs.handoffs, usl, early, band })
    }
}

/// The cost of hand-offs.
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
                // On two cores a thread's neighbour is on the other one half of the time, and N(N-1) is 2.
                (paired * seconds / operation, shared * seconds / operation / 4.0)
            }
            (Some(_) | None, Some(_) | None) => (0.0, 0.0),
        }
    }
}

/// How many samples [`predict`] takes of a part.
pub fn samples(plan: &Plan, part: &Part) -> usize {
    let steps = usable_cores().map_or(1, |cores| steps(cores.len()).len());
    let lanes = |row: &Row| part.lanes_of(row).len() * steps * plan.samples;
    part.rows.iter().find(|row| row.scales).map_or(0, lanes)
}

/// The numbers of cores that are measured of so many: powers of two, and all of them.
fn steps(cores: usize) -> Vec<usize> {
    let mut steps: Vec<usize> =
        (0..usize::BITS).map(|power| 1 << power).take_while(|step| *step < cores).collect();
    steps.push(cores);
    steps
}

/// Measures a part's row on one core, on more and on all, and makes its curves. `None` if no row stands for the experiment.
/// Blocks.
pub fn predict<'a>(
    plan: &Plan,
    part: &'a Part,
    (handoff, counting): (Option<f64>, Option<&Counting>),
    advanced: impl Fn() + Sync,
) -> io::Result<Option<Prediction<'a>>> {
    let Some(row) = part.rows.iter().find(|row| row.scales) else { return Ok(None) };
    let (cores, lanes) = (usable_cores()?, part.lanes_of(row));
    let mut outcomes = Vec::new();
    for step in steps(cores.len()) {
        let counting = counting.filter(|_| step == cores.len());
        let work = || run_row(plan, part.experiment, row, &lanes, counting, &advanced);
        outcomes.push((step, on_cores(&cores[..step], work)?));
    }
    let curves = lanes.iter().filter_map(|lane| {
        let of = |(step, outcome)| Some((step, Outcome::of(outcome, lane.name())?));
        let results: Vec<(usize, &LaneResult)> =
            outcomes.iter().map(|(step, outcome)| (*step, outcome)).filter_map(of).collect();
        let (_, last) = results.last()?;
        let costs = Costs { handoffs: Handoffs::of(part.experiment, last), seconds: handoff };
        Curve::of(&results, costs).filter(|_| results.len() == outcomes.len())
    });
    let curves = curves.collect();
    let failures = outcomes.into_iter().flat_map(|(_, outcome)| outcome.failures).collect();
    Ok(Some(Prediction { experiment: part.experiment, row, curves, handoff, failures }))
}

/// Runs `work` and all threads it starts on these cores.
fn on_cores(cores: &[usize], work: impl FnOnce() -> Outcome + Send) -> io::Result<Outcome> {
    thread::scope(|scope| {
        let pinned = scope.spawn(move || {
            let mut set = CpuSet::new();
            cores.iter().for_each(|core| set.set(*core));
            sched_setaffinity(None, &set)?;
            Ok(work())
        });
        pinned.join().unwrap_or_else(|_| Err(io::Error::other("the thread that measures some cores failed")))
    })
}

/// Less of the cores than this, and it was not the work that was measured.
const SHARE_MIN: f64 = 0.1;

/// For how many cores a prediction is drawn.
pub const CORES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The last of them.
pub const CORES_MAX: usize = 128;

/// Shown with every prediction.
pub const ASSUMPTIONS: &[&str] = &[
    "A prediction, not a measurement: this machine has only the cores named in its header.",
    "There is enough independent work for every core, and no limit of memory bandwidth, sockets (NUMA) or hyper-threads.",
    "One core and all cores here are measured; what other programs took of them meanwhile is taken out. On two cores, whatever they lose against twice one core, and hand-offs do not explain, is serial (sigma) and stays that share of \
     an operation; as part of it is memory bandwidth and the scheduler's doing here, this is the pessimistic reading. On more cores all parameters are fitted to powers of two of them.",
    "A hand-off costs at most what two threads measured here that write one word in turn, and all of them together no more than \
     two cores lose. Those of a connection's own lines are paid by operations whose ends run on different cores (rho); those \
     of a lock that the whole stack shares cost more with each core that wants it (kappa).",
    "Where hand-offs were not counted rho and kappa are 0: the curve is Amdahl's.",
];

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::experiment::run::tests::lane;

    #[test]
    fn a_curve_fits_the_measurements_and_gives_the_serial_share() {
        let (one, all) =
            (lane("sync", &[99.0, 100.0, 101.0], &[]), lane("sync", &[159.0, 160.0, 161.0], &[]));
        let costs = Costs { handoffs: None, seconds: Some(1e-7) };
        let curve = Curve::of(&[(1, &one), (2, &all)], costs).unwrap();
        assert!(curve.checks().all(|(_, check)| (check - 1.0).abs() < 1e-9));
        // 1.5 cores for 2 s and 10 operations.
        assert!((curve.operation - 0.3).abs() < 1e-12 && (curve.serial() - 0.25 * 0.3).abs() < 1e-9);
        let (worst, best) = curve.band.unwrap();
        assert!(worst.throughput(64.0) < curve.usl.throughput(64.0));
        assert!(best.throughput(64.0) > curve.usl.throughput(64.0));
        assert!(Curve::of(&[(1, &one)], costs).is_none());
    }

    #[test]
    fn time_of_other_programs_is_subtracted_and_idle_time_is_not() {
        let (mut one, mut all) = (lane("sync", &[50.0; 3], &[]), lane("sync", &[120.0; 3], &[]));
        (one.cores_had, all.cores_had) = (Some(0.5), Some(1.5));
        let curve = Curve::of(&[(1, &one), (2, &all)], Costs { handoffs: None, seconds: None }).unwrap();
        assert!((curve.points[0].1 - 100.0).abs() < 1e-9 && (curve.points[1].1 - 160.0).abs() < 1e-9);
    }

    /// Measured on 1, 2, 4 and 8 cores of a machine with a cost for each pair, which two cores cannot distinguish from serial work.
    pub fn on_eight_cores() -> Curve {
        let want = Usl { lambda: 100.0, rho: 0.0, sigma: 0.05, kappa: 0.01 };
        let at = |cores: usize| (cores, lane("sync", &[want.throughput(cores as f64); 3], &[]));
        let lanes: Vec<_> = steps(8).into_iter().map(at).collect();
        let results: Vec<(usize, &LaneResult)> = lanes.iter().map(|(cores, lane)| (*cores, lane)).collect();
        Curve::of(&results, Costs { handoffs: None, seconds: None }).unwrap()
    }

    #[test]
    fn the_prediction_from_two_cores_is_compared_with_more_cores_only() {
        let held: Vec<(usize, f64)> = on_eight_cores().held().collect();
        assert_eq!(held.iter().map(|(cores, _)| *cores).collect::<Vec<_>>(), [4, 8]);
        // Serial work costs less on eight cores than pairs do.
        assert!(held[0].1 > 1.0 && held[1].1 > held[0].1, "{held:?}");
        let (one, all) = (lane("sync", &[100.0; 3], &[]), lane("sync", &[160.0; 3], &[]));
        let two = Curve::of(&[(1, &one), (2, &all)], Costs { handoffs: None, seconds: None }).unwrap();
        assert_eq!(two.held().count(), 0);
    }

    #[test]
    fn measurements_of_more_cores_are_fitted() {
        let want = Usl { lambda: 100.0, rho: 0.0, sigma: 0.05, kappa: 0.001 };
        let at = |cores: usize| lane("sync", &[want.throughput(cores as f64); 3], &[]);
        let lanes = steps(8).into_iter().map(|cores| (cores, at(cores))).collect::<Vec<_>>();
        let results: Vec<(usize, &LaneResult)> = lanes.iter().map(|(cores, lane)| (*cores, lane)).collect();
        let curve = Curve::of(&results, Costs { handoffs: None, seconds: None }).unwrap();
        assert!((curve.usl.sigma - 0.05).abs() < 1e-6 && (curve.usl.kappa - 0.001).abs() < 1e-6);
        assert_eq!(curve.points.len(), 4);
    }

    #[test]
    fn powers_of_two_and_all_cores_are_measured() {
        assert_eq!([steps(1), steps(2), steps(8)], [vec![1], vec![1, 2], vec![1, 2, 4, 8]]);
        assert_eq!(steps(6), [1, 2, 4, 6]);
    }

    #[test]
    fn hand_offs_account_for_their_part_of_the_loss() {
        let (one, all) = (lane("sync", &[100.0; 3], &[]), lane("sync", &[160.0; 3], &[]));
        let handoffs = Some(Handoffs { paired: 2.0, shared: 2.0 });
        let seconds = Some(0.015);
        let curve = Curve::of(&[(1, &one), (2, &all)], Costs { handoffs, seconds }).unwrap();
        assert!((curve.usl.rho - 0.1).abs() < 1e-9 && (curve.usl.kappa - 0.025).abs() < 1e-9, "{curve:?}");
        assert!((curve.usl.sigma - 0.15).abs() < 1e-9, "{curve:?}");
        assert_eq!(curve.paid(seconds), Some(1.0));
        let dear = Curve::of(&[(1, &one), (2, &all)], Costs { handoffs, seconds: Some(0.15) }).unwrap();
        assert!((dear.paid(Some(0.15)).unwrap() - 0.25).abs() < 1e-9 && dear.usl.sigma == 0.0, "{dear:?}");
    }

    #[test]
    fn all_threads_of_the_work_run_on_the_chosen_core() {
        let core = usable_cores().unwrap()[0];
        let outcome = on_cores(&[core], || {
            let inside = thread::spawn(usable_cores).join().unwrap().unwrap();
            assert_eq!(inside, [core]);
            Outcome::default()
        });
        assert!(outcome.unwrap().lanes.is_empty());
    }
}
