//! Many seeds of a test, on all cores.
//!
//! Each run has a thread of its own; a number of workers start them, one after the other. A run depends on its seed only, so which worker gets which does not matter. Of
//! several seeds that fail, the first in the order of the seeds is the one that the test fails with. Tests: `tests/seeds.rs`.

use std::any::Any;
use std::env;
use std::fmt;
use std::future::Future;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::case::{self, Case, Drawn};
use crate::network::Net;
use crate::run::{Done, Sim, case_of_environment, seed_of_environment};
use crate::shard::{self, RESULTS_VARIABLE, SeedResult, Shard};
use crate::trace::Keep;

/// How many runs at a time, instead of one for each core.
pub const THREADS_VARIABLE: &str = "SOCKEYE_SIM_THREADS";
/// Runs all seeds, whichever fail.
pub const KEEP_GOING_VARIABLE: &str = "SOCKEYE_SIM_KEEP_GOING";
/// `0`: a failure is not made smaller.
pub const SHRINK_VARIABLE: &str = "SOCKEYE_SIM_SHRINK";
/// Runs to make a failure smaller, at most.
const SHRINK_RUNS_MAX: usize = 300;
/// Real time to make a failure smaller, at most; the run that is running is finished.
const SHRINK_MAX: Duration = Duration::from_secs(60);
/// Failed seeds that are reported with their files; of more only the number.
const REPORTS_MAX: usize = 5;
/// Failed seeds that are listed.
const LISTED_MAX: usize = 20;

/// The seeds of a test: what `#[sockeye_sim::test]` makes. The test's name is that of its thread.
///
/// ```
/// use sockeye_sim::{Seeds, time};
/// use std::time::Duration;
///
/// Seeds::new(0..20).run(|net| async move {
///     time::sleep(Duration::from_secs(3600)).await;
///     assert_eq!(net.now(), Duration::from_secs(3600));
/// });
/// ```
///
/// | variable | effect |
/// |---|---|
/// | `SOCKEYE_SIM_SEED=7` | runs this seed only |
/// | `SOCKEYE_SIM_SHARD=0/4` | runs every fourth seed, from the first on; also from the variables of a Kubernetes indexed Job (with `SOCKEYE_SIM_SHARDS=4`) or a Slurm array |
/// | `SOCKEYE_SIM_RESULTS=path` | appends a line of JSON for each seed to the file, or to a file of its own in the folder, and keeps going |
/// | `SOCKEYE_SIM_KEEP_GOING=1` | runs all seeds, whichever fail |
/// | `SOCKEYE_SIM_SHRINK=0` | a failure is not made [smaller](Net::pick) |
/// | `SOCKEYE_SIM_THREADS=1` | so many runs at a time; default: the number of cores |
#[derive(Clone, Debug)]
pub struct Seeds {
    seeds: Vec<u64>,
    sim: Sim,
}

/// What a test's program returns: nothing, or a result that must be `Ok`.
pub trait Outcome {
    /// Panics if it is a failure.
    fn check(self);
}

impl Outcome for () {
    fn check(self) {}
}

impl<E: fmt::Debug> Outcome for Result<(), E> {
    fn check(self) {
        if let Err(error) = self {
            panic!("the program failed: {error:?}");
        }
    }
}

/// A seed that failed.
struct Failed {
    place: usize,
    seed: u64,
    panic: Box<dyn Any + Send>,
    drawn: Drawn,
}

impl Seeds {
    /// These seeds.
    pub fn new(seeds: impl IntoIterator<Item = u64>) -> Self {
        Self { seeds: seeds.into_iter().collect(), sim: Sim::exactly(0) }
    }

    /// Changes the settings of all runs.
    #[must_use]
    pub fn sim(mut self, change: impl FnOnce(Sim) -> Sim) -> Self {
        self.sim = change(self.sim);
        self
    }

    /// Runs the program once for each seed.
    ///
    /// # Panics
    /// As [`Sim::run`] with the first seed that fails, in the order of the seeds; if an environment variable has no meaning.
    pub fn run<F, Fut>(self, main: F)
    where
        F: Fn(Net) -> Fut + Sync,
        Fut: Future + 'static,
        Fut::Output: Outcome,
    {
        if let Some(seed) = seed_of_environment() {
            self.sim.with_seed(seed).with_case(case_of_environment()).run(|net| checked(main(net)));
            return;
        }
        let shard =
            Shard::of_environment(|name| env::var(name).ok()).unwrap_or_else(|error| panic!("{error}"));
        let seeds: Vec<u64> =
            (0..).zip(&self.seeds).filter(|(place, _)| shard.has(*place)).map(|(_, seed)| *seed).collect();
        let test = thread::current().name().unwrap_or("main").to_owned();
        if shard != Shard::WHOLE {
            eprintln!(
                "sockeye-sim: {test}: part {} of {} (from 0): {} of {} seeds",
                shard.index,
                shard.count,
                seeds.len(),
                self.seeds.len()
            );
        }
        let given = env::var_os(RESULTS_VARIABLE).map(PathBuf::from);
        let results = given.map(|given| shard::results_file(&given, &test, shard));
        let keep_going = results.is_some() || env::var_os(KEEP_GOING_VARIABLE).is_some();
        // A file of packets has one run in it.
        let sim = if seeds.len() > 1 { self.sim.without_pcap() } else { self.sim };
        let crew = Crew {
            sim,
            test,
            seeds,
            results,
            keep_going,
            next: AtomicUsize::new(0),
            failed: Mutex::default(),
        };
        crew.run(&main);
    }
}

/// The program with its outcome checked within the run.
async fn checked<Fut>(program: Fut)
where
    Fut: Future + 'static,
    Fut::Output: Outcome,
{
    program.await.check();
}

/// Makes the failure smaller, if the seed drew anything that can be, and reports the smallest one.
fn shrink<F, Fut>(sim: &Sim, failed: &Failed, main: &F)
where
    F: Fn(Net) -> Fut + Sync,
    Fut: Future + 'static,
    Fut::Output: Outcome,
{
    let Failed { seed, panic, drawn, .. } = failed;
    if *drawn == Drawn::default() {
        return;
    }
    let wanted = kind_of(&message_of(panic.as_ref()));
    let begin = Instant::now();
    let run = |case: &Case, sim: Sim| sim.with_case(case.clone()).go(Keep::Recent, |net| checked(main(net)));
    let fails = |case: &Case| {
        if begin.elapsed() > SHRINK_MAX {
            return false;
        }
        let outcome = run(case, sim.with_seed(*seed).quiet()).outcome;
        outcome.is_err_and(|panic| kind_of(&message_of(panic.as_ref())) == wanted)
    };
    let (case, runs) = case::shrink(drawn, &Case::default(), SHRINK_RUNS_MAX, fails);
    if case == Case::default() {
        eprintln!("sockeye-sim: seed {seed}: nothing smaller fails, in {runs} runs");
        return;
    }
    let kept = case.faults.clone().unwrap_or_else(|| drawn.faults.keys().copied().collect());
    eprintln!("sockeye-sim: seed {seed} fails alike with less, found in {runs} runs:");
    if !drawn.faults.is_empty() {
        eprintln!("  faults: {} of {}", kept.len(), drawn.faults.len());
        kept.iter().filter_map(|number| drawn.faults.get(number)).for_each(|fault| eprintln!("    {fault}"));
    }
    for (name, pick) in &drawn.picks {
        match case.picks.get(name) {
            Some(value) => eprintln!("  {name}: {value} instead of {}", pick.value),
            None => eprintln!("  {name}: {}", pick.value),
        }
    }
    // Its files are of more use than those of the larger one.
    drop(run(&case, sim.with_seed(*seed)));
}

/// A message without its numbers, which may be others in a smaller case.
fn kind_of(message: &str) -> String {
    message.chars().filter(|char| !char.is_ascii_digit()).collect()
}

/// What a panic says.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

fn workers() -> usize {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    match env::var(THREADS_VARIABLE) {
        Err(_) => cores(),
        Ok(text) => match text.trim().parse() {
            Ok(0) | Err(_) => panic!("{THREADS_VARIABLE} is {text:?}: it must be a number from 1 on"),
            Ok(number) => number,
        },
    }
}

/// The workers' common state. No lock is held while a seed runs.
struct Crew {
    sim: Sim,
    test: String,
    seeds: Vec<u64>,
    results: Option<PathBuf>,
    keep_going: bool,
    next: AtomicUsize,
    failed: Mutex<Vec<Failed>>,
}

impl Crew {
    fn run<F, Fut>(self, main: &F)
    where
        F: Fn(Net) -> Fut + Sync,
        Fut: Future + 'static,
        Fut::Output: Outcome,
    {
        let workers = workers().min(self.seeds.len());
        thread::scope(|scope| {
            for _ in 0..workers {
                // By this name the report names the test.
                let worker = thread::Builder::new().name(self.test.clone());
                worker.spawn_scoped(scope, || self.work(main)).expect("a thread for seeds");
            }
        });
        let mut failed = std::mem::take(&mut *self.failed.lock());
        failed.sort_by_key(|failed| failed.place);
        if failed.is_empty() {
            return;
        }
        if self.keep_going {
            let seeds: Vec<String> =
                failed.iter().take(LISTED_MAX).map(|failed| failed.seed.to_string()).collect();
            let (some, all) = (failed.len(), self.seeds.len());
            eprintln!("sockeye-sim: {some} of {all} seeds failed: {}", seeds.join(", "));
        } else {
            eprintln!("sockeye-sim: the first seed that fails: {}", failed[0].seed);
        }
        let first = failed.swap_remove(0);
        if env::var(SHRINK_VARIABLE).as_deref() != Ok("0") {
            shrink(&self.sim, &first, main);
        }
        resume_unwind(first.panic);
    }

    fn work<F, Fut>(&self, main: &F)
    where
        F: Fn(Net) -> Fut + Sync,
        Fut: Future + 'static,
        Fut::Output: Outcome,
    {
        loop {
            // Relaxed: it hands out numbers, nothing else.
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&seed) = self.seeds.get(place) else { return };
            let failures = self.failed.lock().len();
            if failures > 0 && !self.keep_going {
                // Seeds before it were handed out before it.
                return;
            }
            let sim = self.sim.with_seed(seed);
            let sim = if failures < REPORTS_MAX { sim } else { sim.quiet() };
            let done = sim.go(Keep::Recent, |net| checked(main(net)));
            self.note(seed, &done);
            if let Err(panic) = done.outcome {
                self.failed.lock().push(Failed { place, seed, panic, drawn: done.drawn });
            }
        }
    }

    fn note(&self, seed: u64, done: &Done<()>) {
        let Some(path) = &self.results else { return };
        let message = done.outcome.as_ref().err().map(|panic| message_of(panic.as_ref()));
        let result = SeedResult {
            test: &self.test,
            seed,
            failure: message.as_deref(),
            simulated_nanos: done.now,
            events: done.record.count,
            digest: done.record.digest,
        };
        if let Err(error) = shard::append(path, &result) {
            panic!("{RESULTS_VARIABLE}: {}: {error}", path.display());
        }
    }
}
