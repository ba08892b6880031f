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
    /// The worst and the best reading of the measurements: the first and the last throughput at the ends of their 95 % intervals, and
    /// all of the loss serial or nothing of it, where no counter gives its share. `None` if nothing can be told: all cores together did
    /// more than as many times one core, which no curve of this kind does (the figure of one core is that of another situation), an
    /// interval reaches zero, or there is none.
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
    /// The least and the most that is predicted for so many cores, or `None` if this run cannot tell.
    pub fn range(&self, cores: usize) -> Option<(f64, f64)> {
        let at = |usl: &Usl| usl.throughput(cores as f64);
        let (low, high) = self.band.map(|(worst, best)| (at(&worst), at(&best)))?;
        (high <= TOLD_MAX * low).then_some((low, high))
    }

    /// What is drawn around the prediction: the band, or the prediction alone.
    pub fn drawn_band(&self) -> (Usl, Usl) {
        self.band.unwrap_or((self.usl, self.usl))
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
        let (&(_, one), &(last, all)) = (results.first()?, results.last()?);
        let operation = one.cpu? * one.seconds / one.operations;
        // The time of other programs is subtracted; idle time is kept, as threads may have waited for one another.
        let had = |cores: usize, lane: &LaneResult| {
            let all = cores as f64;
            lane.cores_had.map_or(1.0, |had| (had / all).clamp(SHARE_MIN, 1.0))
        };
        let points: Vec<(usize, f64)> =
            results.iter().map(|&(cores, lane)| (cores, lane.moments.average / had(cores, lane))).collect();
        let through = |points: &[(usize, f64)], serial: f64| match points {
            [(_, one), (cores, all)] => Usl::through(*one, *all, *cores, serial),
            many => Usl::fit(&many.iter().map(|(cores, x)| (*cores as f64, *x)).collect::<Vec<_>>()),
        };
        let serial = costs.serial(operation);
        let usl = through(&points, serial.expected)?;
        let early = (points.len() > 2).then(|| through(&points[..2], serial.expected)).flatten();
        let errors = one.moments.error_95().zip(all.moments.error_95());
        let end = points.len() - 1;
        let moved = |first: f64, last: f64| {
            let mut points = points.clone();
            points[0].1 += first;
            points[end].1 += last;
            points
        };
        let band = errors.and_then(|(one, all)| {
            let (worst, best) = (moved(one, -all), moved(-one, all));
            let is_superlinear = worst[end].1 > last as f64 * worst[0].1;
            (!is_superlinear).then_some(())?;
            through(&worst, serial.most).zip(through(&best, serial.least))
        });
        let (lane, handoffs) = (one.lane.clone(), costs.handoffs);
        Some(Self { lane, points, operation, handoffs, usl, early, band })
    }
}

/// The cost of hand-offs.
#[derive(Clone, Copy)]
struct Costs {
    handoffs: Option<Handoffs>,
    seconds: Option<f64>,
}

/// The share of an operation that only one core at a time can do.
#[derive(Clone, Copy)]
struct Serial {
    least: f64,
    expected: f64,
    most: f64,
}

impl Costs {
    /// For operations of so many seconds. While a word that all connections use moves between cores, it serves none of them.
    /// Its holders may keep it for longer: then all that is lost may be serial. Where none is shared, nothing is. Where
    /// nothing was counted, it may be anything.
    fn serial(self, operation: f64) -> Serial {
        match (self.handoffs, self.seconds) {
            (Some(Handoffs { shared, .. }), Some(seconds)) if operation > 0.0 => {
                let counted = shared * seconds / operation;
                let most = if counted > 0.0 { f64::INFINITY } else { 0.0 };
                Serial { least: counted, expected: counted, most }
            }
            (Some(_) | None, Some(_) | None) => {
                Serial { least: 0.0, expected: f64::INFINITY, most: f64::INFINITY }
            }
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

/// A range that ends at more than this times its beginning says nothing.
const TOLD_MAX: f64 = 2.0;

/// For how many cores a prediction is drawn.
pub const CORES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The last of them.
pub const CORES_MAX: usize = 128;

/// Shown with every prediction.
pub const ASSUMPTIONS: &[&str] = &[
    "A prediction, not a measurement: this machine has only the cores named in its header.",
    "There is enough independent work for every core, and no limit of memory bandwidth, sockets (NUMA) or hyper-threads.",
    "One core and all cores here are measured; what other programs took of them meanwhile is taken out. A second core brings less than \
     the first. How much of this loss is serial, so that it grows with every further core, is counted: moves of words that all connections \
     write, times what a move costs here. The rest of the loss is paid once, by operations whose two ends run on different cores.",
    "The range has the measurements at the ends of their 95 % intervals. If connections share a lock, its lower end takes the whole loss for \
     serial, since holders keep a lock for longer than it takes to move.",
    "The kernel's shared words are not counted. Its range goes from none of the loss serial to all of it.",
    "On more than two cores the loss is fitted to the measurements on powers of two of them.",
    "Where the upper end is more than twice the lower one, or all cores did more than as many times one core, nothing can be told from this \
     run.",
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
    fn what_is_serial_is_counted() {
        let (one, all) = (lane("sync", &[100.0; 3], &[]), lane("sync", &[160.0; 3], &[]));
        let of = |shared: f64| {
            let costs = Costs { handoffs: Some(Handoffs { paired: 2.0, shared }), seconds: Some(0.015) };
            Curve::of(&[(1, &one), (2, &all)], costs).unwrap()
        };
        // An operation takes 0.3 s.
        let curve = of(2.0);
        assert!((curve.usl.sigma - 0.1).abs() < 1e-9 && (curve.usl.rho - 0.3).abs() < 1e-9, "{curve:?}");
        assert!((curve.serial() - 0.03).abs() < 1e-9);
        // The loss is a quarter of an operation; all of it is serial at worst.
        let (worst, best) = curve.band.unwrap();
        assert!((worst.sigma - 0.25).abs() < 1e-9 && (best.sigma - 0.1).abs() < 1e-9);
        assert!(curve.range(4).is_some() && curve.range(128).is_none(), "{curve:?}");
        let free = of(0.0);
        assert_eq!((free.usl.sigma, free.band.unwrap().0.sigma), (0.0, 0.0));
        let (low, high) = free.range(128).unwrap();
        assert!(low <= free.usl.throughput(128.0) && free.usl.throughput(128.0) <= high);
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        let costs = Costs { handoffs: None, seconds: Some(1e-7) };
        let curve = |one: &[f64], all: &[f64]| {
            Curve::of(&[(1, &lane("sync", one, &[])), (2, &lane("sync", all, &[]))], costs)
        };
        let uncounted = curve(&[99.0, 100.0, 101.0], &[159.0, 160.0, 161.0]).unwrap();
        assert!(uncounted.range(2).is_some() && uncounted.range(128).is_none());
        let superlinear = curve(&[99.0, 100.0, 101.0], &[259.0, 260.0, 261.0]).unwrap();
        assert!(superlinear.band.is_none() && superlinear.range(2).is_none());
        let too_wide = curve(&[1.0, 200.0], &[1.0, 300.0]).unwrap();
        assert!(too_wide.band.is_none() && too_wide.range(2).is_none(), "an interval that reaches zero");
        assert!(curve(&[100.0], &[160.0]).unwrap().band.is_none(), "one sample has no interval");
        assert!(curve(&[0.0, 0.0], &[0.0, 0.0]).is_none(), "nothing was done");
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
