//! Many seeds of a test, on all cores.
//!
//! Each run has a thread of its own; a number of workers start them, one after the other. A run depends on its seed only, so which worker gets which does not matter. Of
//! several seeds that fail, the first in the order of the seeds is the one that the test fails with. If asked for, a worker starts a process for each seed instead (`processes.rs`). Tests: `tests/seeds.rs`.

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

use crate::case::{self, Case, Drawn, Pick};
use crate::network::Net;
use crate::processes::{self, Call, Order};
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
/// | `SOCKEYE_SIM_RESULTS=path` | appends a line of JSON for each seed to the file, or to files of its own in the folder, one for each call of `run` in a test, and keeps going; its digest covers each byte of each packet |
/// | `SOCKEYE_SIM_KEEP_GOING=1` | runs all seeds, whichever fail |
/// | `SOCKEYE_SIM_SHRINK=0` | a failure is not made [smaller](Net::pick) |
/// | `SOCKEYE_SIM_THREADS=1` | so many runs at a time; default: the number of cores |
/// | `SOCKEYE_SIM_PROCESSES=1` | a process for each seed ([`processes`](Self::processes)); `0`: for none |
#[derive(Clone, Debug)]
pub struct Seeds {
    seeds: Vec<u64>,
    sim: Sim,
    has_processes: bool,
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

/// What came of a seed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ran {
    /// What the failure says.
    pub failure: Option<String>,
    /// Simulated time at its end.
    pub now: u64,
    pub events: u64,
    pub digest: u64,
    pub drawn: Drawn,
}

impl Ran {
    /// That of a run in this process, and what it failed with.
    fn of(done: Done<()>) -> (Self, Option<Box<dyn Any + Send>>) {
        let panic = done.outcome.err();
        let failure = panic.as_ref().map(|panic| message_of(panic.as_ref()));
        let Done { record, now, drawn, .. } = done;
        (Self { failure, now, events: record.count, digest: record.digest, drawn }, panic)
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
        Self { seeds: seeds.into_iter().collect(), sim: Sim::exactly(0), has_processes: false }
    }

    /// Changes the settings of all runs.
    #[must_use]
    pub fn sim(mut self, change: impl FnOnce(Sim) -> Sim) -> Self {
        self.sim = change(self.sim);
        self
    }

    /// Runs each seed in a process of its own, which is this program started again: against counters and hashers that a library has one of for the whole process. What the test, or
    /// the program, does before it calls [`run`](Self::run) is done again in each. A process that is ended by a signal is a failure of its seed.
    #[must_use]
    pub fn processes(mut self) -> Self {
        self.has_processes = true;
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
        let call = Call::next(thread::current().name().unwrap_or("main").to_owned());
        if let Some(order) = Order::of_environment() {
            if order.call != call {
                // Another one was meant.
                return;
            }
            let sim = self.sim.with_seed(order.seed).with_case(order.case.clone());
            let sim = if order.is_quiet { sim.quiet() } else { sim };
            let sim = if env::var_os(RESULTS_VARIABLE).is_some() { sim.whole() } else { sim };
            let (ran, _) = Ran::of(sim.go(Keep::Recent, |net| checked(main(net))));
            order.done(&ran);
        }
        let has_processes = processes::of_environment().unwrap_or(self.has_processes);
        let crew = |sim: Sim, seeds, results: Option<Results>, keep_going| Crew {
            sim: if results.is_some() { sim.whole() } else { sim },
            call: call.clone(),
            has_processes,
            seeds,
            results,
            keep_going,
            next: AtomicUsize::new(0),
            failed: Mutex::default(),
        };
        let test = &call.test;
        let results = |shard| {
            let given = env::var_os(RESULTS_VARIABLE).map(PathBuf::from);
            given.map(|given| {
                let binary = shard::binary();
                let file = shard::results_file(&given, &binary, &call, shard);
                Results { file: file.unwrap_or_else(|error| panic!("{error}")), binary }
            })
        };
        if let Some(seed) = seed_of_environment() {
            let sim = self.sim.with_case(case_of_environment());
            return crew(sim, vec![seed], results(Shard::WHOLE), false).run(&main, false);
        }
        let shard =
            Shard::of_environment(|name| env::var(name).ok()).unwrap_or_else(|error| panic!("{error}"));
        let seeds: Vec<u64> =
            (0..).zip(&self.seeds).filter(|(place, _)| shard.has(*place)).map(|(_, seed)| *seed).collect();
        if shard != Shard::WHOLE {
            eprintln!(
                "sockeye-sim: {test}: part {} of {} (from 0): {} of {} seeds",
                shard.index,
                shard.count,
                seeds.len(),
                self.seeds.len()
            );
        }
        let results = results(shard);
        let keep_going = results.is_some() || env::var_os(KEEP_GOING_VARIABLE).is_some();
        // A file of packets has one run in it.
        let sim = if seeds.len() > 1 { self.sim.without_pcap() } else { self.sim };
        crew(sim, seeds, results, keep_going).run(&main, env::var(SHRINK_VARIABLE).as_deref() != Ok("0"));
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

/// Where results go, and what their lines call this program.
struct Results {
    file: PathBuf,
    binary: String,
}

/// The workers' common state. No lock is held while a seed runs.
struct Crew {
    sim: Sim,
    call: Call,
    has_processes: bool,
    seeds: Vec<u64>,
    results: Option<Results>,
    keep_going: bool,
    next: AtomicUsize,
    failed: Mutex<Vec<Failed>>,
}

impl Crew {
    fn run<F, Fut>(self, main: &F, shrinks: bool)
    where
        F: Fn(Net) -> Fut + Sync,
        Fut: Future + 'static,
        Fut::Output: Outcome,
    {
        let workers = workers().min(self.seeds.len());
        thread::scope(|scope| {
            for _ in 0..workers {
                // By this name the report names the test.
                let worker = thread::Builder::new().name(self.call.test.clone());
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
        } else if self.seeds.len() > 1 {
            eprintln!("sockeye-sim: the first seed that fails: {}", failed[0].seed);
        }
        let first = failed.swap_remove(0);
        if shrinks {
            self.shrink(&first, main);
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
            let (ran, panic) = self.one(seed, self.sim.case(), failures >= REPORTS_MAX, main);
            self.note(seed, &ran);
            if let Some(panic) = panic {
                self.failed.lock().push(Failed { place, seed, panic, drawn: ran.drawn });
            }
        }
    }

    /// Runs a seed, here or in a process of its own, and what it failed with.
    fn one<F, Fut>(
        &self,
        seed: u64,
        case: &Case,
        is_quiet: bool,
        main: &F,
    ) -> (Ran, Option<Box<dyn Any + Send>>)
    where
        F: Fn(Net) -> Fut + Sync,
        Fut: Future + 'static,
        Fut::Output: Outcome,
    {
        if self.has_processes {
            let ran = self.call.run(seed, case, is_quiet, self.seeds.len() == 1);
            let panic = ran.failure.clone().map(|message| Box::new(message) as Box<dyn Any + Send>);
            return (ran, panic);
        }
        let sim = self.sim.with_seed(seed).with_case(case.clone());
        let sim = if is_quiet { sim.quiet() } else { sim };
        Ran::of(sim.go(Keep::Recent, |net| checked(main(net))))
    }

    /// Makes the failure smaller, if the seed drew anything that can be, and reports the smallest one.
    fn shrink<F, Fut>(&self, failed: &Failed, main: &F)
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
        // What the smallest case so far drew: with fewer hosts, a fault may be another one's.
        let mut smallest = drawn.clone();
        let fails = |case: &Case| {
            if begin.elapsed() > SHRINK_MAX {
                return false;
            }
            let ran = self.one(*seed, case, true, main).0;
            let is_alike = ran.failure.is_some_and(|message| kind_of(&message) == wanted);
            if is_alike {
                smallest = ran.drawn;
            }
            is_alike
        };
        let (case, runs) = case::shrink(drawn, &Case::default(), SHRINK_RUNS_MAX, fails);
        if case == Case::default() {
            eprintln!("sockeye-sim: seed {seed}: nothing smaller fails, in {runs} runs");
            return;
        }
        eprintln!("sockeye-sim: seed {seed} fails alike with less, found in {runs} runs:");
        if !drawn.faults.is_empty() {
            eprintln!("  faults: {} of {}", smallest.faults.len(), drawn.faults.len());
            smallest.faults.values().for_each(|fault| eprintln!("    {fault}"));
        }
        for (name, Pick { value, .. }) in &smallest.picks {
            match drawn.picks.get(name) {
                Some(before) if before.value != *value => {
                    eprintln!("  {name}: {value} instead of {}", before.value);
                }
                _ => eprintln!("  {name}: {value}"),
            }
        }
        // Its files are of more use than those of the larger one.
        drop(self.one(*seed, &case, false, main));
    }

    fn note(&self, seed: u64, ran: &Ran) {
        let Some(Results { file, binary }) = &self.results else { return };
        let result = SeedResult {
            binary,
            call: &self.call,
            seed,
            failure: ran.failure.as_deref(),
            simulated_nanos: ran.now,
            events: ran.events,
            digest: ran.digest,
        };
        if let Err(error) = shard::append(file, &result) {
            panic!("{RESULTS_VARIABLE}: {}: {error}", file.display());
        }
    }
}
