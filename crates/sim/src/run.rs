//! Running a simulation, and the report when it fails.
//!
//! A failure is a panic of the program or a run that is stuck. It is reported with the seed, the command that plays it
//! again and a pcap-ng file, and then goes on as the panic that it was, so that a test fails as any other.
//!
//! | variable | effect |
//! |---|---|
//! | `SOCKEYE_SIM_SEED` | this seed instead of the program's |
//! | `SOCKEYE_SIM_CASE` | with that seed, a smaller case of it, as a failure's report has it |
//! | `SOCKEYE_SIM_PCAP` | writes everything that crosses the links into this file, failure or not |
//!
//! Tests: `tests/failures.rs`.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

use crate::capture::Capture;
use crate::case::{CASE_VARIABLE, Case, Drawn};
use crate::difference::{self, Difference, Found};
use crate::drive::Driver;
use crate::event::Nanos;
use crate::executor::{Ambient, Tasks};
use crate::machine::Machine;
use crate::network::Net;
use crate::runtime::Runtimes;
use crate::seeds::message_of;
use crate::timeline;
use crate::trace::{Keep, Record};
use crate::world::World;

/// Names the seed to run instead of the program's.
pub const SEED_VARIABLE: &str = "SOCKEYE_SIM_SEED";
/// Names the file into which all packets go.
pub const PCAP_VARIABLE: &str = "SOCKEYE_SIM_PCAP";
/// Simulated time after which a run fails, unless told otherwise: a day.
const TIME_MAX: Duration = Duration::from_secs(86_400);

/// A simulation to be run, with settings that [`run`] has defaults for.
#[derive(Clone, Debug)]
pub struct Sim {
    seed: u64,
    time_max: Duration,
    capture: Capture,
    replay: Option<String>,
    pcap: Option<PathBuf>,
    /// What is smaller than the seed has it.
    case: Case,
    /// Failures are not reported.
    is_quiet: bool,
    /// The digest covers payload too, which costs a copy of it.
    is_whole: bool,
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "it cannot be set"))]
    has_tokio: bool,
}

/// A run that is over.
pub(crate) struct Done<T> {
    pub outcome: thread::Result<T>,
    pub record: Record,
    /// Simulated time at its end.
    pub now: Nanos,
    pub drawn: Drawn,
}

/// Events that the report of a failure shows.
const LAST_EVENTS: usize = 6;
/// Pairs of runs until the first difference is found, or given up.
const PAIRS_MAX: usize = 3;

impl Sim {
    /// A simulation that `seed` decides, or `SOCKEYE_SIM_SEED` if that is set.
    ///
    /// # Panics
    /// If the variable is no number.
    pub fn new(seed: u64) -> Self {
        match seed_of_environment() {
            Some(seed) => Self { case: case_of_environment(), ..Self::exactly(seed) },
            None => Self::exactly(seed),
        }
    }

    /// A simulation that `seed` decides, whatever the environment says.
    pub fn exactly(seed: u64) -> Self {
        let pcap = std::env::var_os(PCAP_VARIABLE).map(PathBuf::from);
        let capture = if pcap.is_some() { Capture::All } else { Capture::default() };
        Self {
            seed,
            time_max: TIME_MAX,
            capture,
            replay: None,
            pcap,
            case: Case::default(),
            is_quiet: false,
            is_whole: false,
            has_tokio: false,
        }
    }

    /// The run fails if the program is not over after so much simulated time. Default: a day.
    #[must_use]
    pub fn time_max(mut self, time: Duration) -> Self {
        self.time_max = time;
        self
    }

    /// How much of the links' packets is kept. Default: the last 32 MiB.
    #[must_use]
    pub fn capture(mut self, capture: Capture) -> Self {
        if self.pcap.is_none() {
            self.capture = capture;
        }
        self
    }

    /// The command to print on failure, instead of the one for a test of this name.
    #[must_use]
    pub fn replay(mut self, command: impl Into<String>) -> Self {
        self.replay = Some(command.into());
        self
    }

    /// Gives each host a runtime of tokio, in simulated time, so that `tokio::{spawn, time, task}` work in programs and in libraries that they use: feature `tokio`, on
    /// Linux on x86-64 and 64-bit ARM. A task belongs to the host on which it was spawned, and ends when that crashes. `docs/sim.md` says what is different.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn tokio(mut self) -> Self {
        self.has_tokio = true;
        self
    }

    pub(crate) fn with_seed(&self, seed: u64) -> Self {
        Self { seed, ..self.clone() }
    }

    pub(crate) fn with_case(self, case: Case) -> Self {
        Self { case, ..self }
    }

    pub(crate) fn case(&self) -> &Case {
        &self.case
    }

    pub(crate) fn quiet(self) -> Self {
        Self { is_quiet: true, ..self }
    }

    pub(crate) fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    pub(crate) fn without_pcap(self) -> Self {
        let capture = if self.pcap.is_some() { Capture::default() } else { self.capture };
        Self { pcap: None, capture, ..self }
    }

    /// Runs the program that `main` begins; programs that it starts on hosts go on until it ends, and not
    /// longer.
    ///
    /// The run has a thread of its own, for which the caller waits: what the caller's thread has and did before, such as a runtime of tokio or
    /// the keys of its hash maps, is nothing of the run's.
    ///
    /// # Panics
    /// With the program, and if it never ends: nothing will happen any more, the time is over, or tasks keep each
    /// other awake.
    pub fn run<F, Fut>(self, main: F) -> Fut::Output
    where
        F: FnOnce(Net) -> Fut + Send,
        Fut: Future + 'static,
        Fut::Output: Send,
    {
        self.go(Keep::Recent, main).outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs the program twice, and returns the first event in which the two runs differ: a step of a task or of a stack, a packet, a draw of random numbers. `None` if they are the same, as they
    /// have to be if the program takes time and chance from the simulation only. A run that differs only behind some million events is made up to six times.
    ///
    /// Runs may fail; two that fail alike are the same.
    pub fn first_difference<F, Fut>(&self, mut main: F) -> Option<Difference>
    where
        F: FnMut(Net) -> Fut + Send,
        Fut: Future + 'static,
        Fut::Output: Send,
    {
        let sim = Self { is_quiet: true, ..self.clone() };
        let mut from = 0;
        let mut found = Found::Same;
        for _ in 0..PAIRS_MAX {
            let [first, second] = [(); 2].map(|()| sim.clone().go(Keep::From(from), &mut main).record);
            match (difference::compare(self.seed, &first, &second), &found) {
                (Found::Same, Found::Between(from, to)) => {
                    return Some(Difference::between(self.seed, *from, *to));
                }
                (Found::Same, _) => return None,
                (Found::Differ(difference), _) => return Some(difference),
                (Found::Between(low, to), _) => (from, found) = (low, Found::Between(low, to)),
            }
        }
        match found {
            Found::Between(from, to) => Some(Difference::between(self.seed, from, to)),
            Found::Same | Found::Differ(_) => None,
        }
    }

    /// Runs the program twice, and checks that the two runs are the same, event by event.
    ///
    /// # Panics
    /// With the [`Difference`] if they are not; and as [`run`](Self::run), if they fail alike.
    pub fn check_determinism<F, Fut>(self, mut main: F) -> Fut::Output
    where
        F: FnMut(Net) -> Fut + Send,
        Fut: Future + 'static,
        Fut::Output: Send,
    {
        if let Some(difference) = self.first_difference(&mut main) {
            panic!("{difference}");
        }
        self.run(main)
    }

    /// Runs on a thread of its own. Reports a failure, but does not go on with it.
    pub(crate) fn go<F, Fut>(self, keep: Keep, main: F) -> Done<Fut::Output>
    where
        F: FnOnce(Net) -> Fut + Send,
        Fut: Future + 'static,
        Fut::Output: Send,
    {
        on_its_own_thread(|| self.run_here(keep, main))
    }

    fn run_here<F, Fut>(self, keep: Keep, main: F) -> Done<Fut::Output>
    where
        F: FnOnce(Net) -> Fut,
        Fut: Future + 'static,
    {
        let machine = Machine::new(self.seed);
        // The thread's first hash map draws the keys of all: from the seed, if it is now. What stacks draw once for the whole process is not to be
        // drawn from it, or the first run of a process would differ from the second.
        machine.draw_keys();
        let world = World::new(self.seed, self.capture, keep, machine);
        let mut state = world.lock();
        state.case = self.case.clone();
        state.trace.cover_payload(self.is_whole);
        drop(state);
        watch_panics(self.is_quiet);
        let runtimes = self.runtimes(&world);
        let tasks = Tasks::new(world.clone(), runtimes);
        let driver = Driver { world: world.clone(), tasks: tasks.clone(), time_max: self.time_max };
        let net = Net { world: world.clone(), tasks: tasks.clone() };
        let _machine = world.machine.enter();
        if let Some(runtimes) = &tasks.runtimes {
            runtimes.start(None, 0, 0, 0);
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let ambient = Ambient { world: world.clone(), host: None, life: 0, tasks: Some(tasks.clone()) };
            let program = ambient.scope(|| main(net.clone()));
            let mut main = tasks.spawn(None, program);
            if let Err(stuck) = driver.run(|| main.is_finished()) {
                panic!("{stuck}");
            }
            main.take().expect("only its own end ends the main program")
        }));
        if let Some(path) = &self.pcap
            && let Err(error) = net.save_pcap(path)
        {
            eprintln!("sockeye-sim: no packets in {}: {error}", path.display());
        }
        if let Err(panic) = &outcome
            && !self.is_quiet
        {
            self.report(&net, &message_of(panic.as_ref()));
        }
        // What is dropped after the end of the program is not a part of the run: nothing says in which order.
        let mut state = world.lock();
        let names = state.names();
        let (record, now) = (state.trace.finish(names), state.now);
        drop(state);
        // A program that failed may fail again when it is dropped; the first failure is the one to show.
        let ended = catch_unwind(AssertUnwindSafe(|| driver.end()));
        let mut state = world.lock();
        let outcome = match (outcome, ended) {
            (Ok(value), Ok(())) => Ok(value),
            (Err(panic), _) | (Ok(_), Err(panic)) => Err(panic),
        };
        Done { outcome, record, now, drawn: std::mem::take(&mut state.drawn) }
    }

    #[cfg(not(feature = "tokio"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    fn runtimes(&self, _: &Arc<World>) -> Option<Rc<Runtimes>> {
        None
    }

    #[cfg(feature = "tokio")]
    fn runtimes(&self, world: &Arc<World>) -> Option<Rc<Runtimes>> {
        assert!(
            !self.has_tokio || sockeye_entropy::IS_SUPPORTED,
            "Sim::tokio works on Linux on x86-64 and 64-bit ARM only: elsewhere std's clock cannot be the simulation's"
        );
        self.has_tokio.then(|| Runtimes::new(Arc::clone(world)))
    }

    fn report(&self, net: &Net, message: &str) {
        let stats = net.stats();
        // Written at once: other seeds may fail meanwhile.
        let mut lines = vec![
            format!("sockeye-sim: seed {} failed at {:?} of simulated time", self.seed, net.now()),
            format!(
                "  packets: {} offered, {} delivered, {} dropped",
                stats.offered,
                stats.delivered,
                stats.dropped()
            ),
        ];
        if let Some(hint) = hint(message) {
            lines.push(format!("  hint: {hint}"));
        }
        let state = net.world.lock();
        let names = state.names();
        let skip = state.trace.entries().len().saturating_sub(LAST_EVENTS);
        lines.push(format!("  the last of {} events:", state.trace.count()));
        lines.extend(state.trace.entries().skip(skip).map(|entry| format!("    {}", names.show(entry))));
        drop(state);
        let command = self.replay.clone().unwrap_or_else(|| replay_command(self.seed, &self.case));
        lines.push(format!("  replay:  {command}"));
        let mut packets = self.pcap.clone();
        if self.capture != Capture::Off && self.pcap.is_none() {
            let path = self.file("pcapng");
            match net.save_pcap(&path) {
                Ok(()) => {
                    let forgotten = net.world.lock().tape.forgotten;
                    lines.push(format!(
                        "  packets: {} ({forgotten} earlier ones were not kept)",
                        path.display()
                    ));
                    packets = Some(path);
                }
                Err(error) => lines.push(format!("  packets: not in {}: {error}", path.display())),
            }
        }
        let packets = packets.map(|path| path.display().to_string());
        let head = timeline::Head { seed: self.seed, message, replay: &command, packets: packets.as_deref() };
        let state = net.world.lock();
        let page = timeline::page(&head, &state.names(), state.trace.entries());
        drop(state);
        let path = self.file("html");
        lines.push(match std::fs::write(&path, page) {
            Ok(()) => format!("  timeline: {}", path.display()),
            Err(error) => format!("  timeline: not in {}: {error}", path.display()),
        });
        eprintln!("{}", lines.join("\n"));
    }

    /// A file for the report.
    fn file(&self, ending: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sockeye-sim-{}-{}.{ending}", std::process::id(), self.seed))
    }
}

/// Runs the program that `main` begins in a network of its own, which `seed` decides: see the crate's documentation.
///
/// # Panics
/// As [`Sim::run`].
pub fn run<F, Fut>(seed: u64, main: F) -> Fut::Output
where
    F: FnOnce(Net) -> Fut + Send,
    Fut: Future + 'static,
    Fut::Output: Send,
{
    Sim::new(seed).run(main)
}

/// Runs a program once for each seed; with `SOCKEYE_SIM_SEED` set, for that one only.
///
/// # Panics
/// As [`Sim::run`], at the first seed that fails.
pub fn run_seeds<F, Fut>(seeds: impl IntoIterator<Item = u64>, mut main: F)
where
    F: FnMut(Net) -> Fut + Send,
    Fut: Future<Output = ()> + 'static,
{
    if let Some(seed) = seed_of_environment() {
        return Sim::exactly(seed).run(main);
    }
    for seed in seeds {
        Sim::exactly(seed).run(&mut main);
    }
}

/// Memory for the run's stack: programs may be built without optimisation and nest deeply. Only what is used takes memory.
const STACK_BYTES: usize = 16 << 20;

/// Calls `f` on a new thread of the caller's name, by which tests are told from each other, and waits for it.
fn on_its_own_thread<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let mut thread = thread::Builder::new().stack_size(STACK_BYTES);
    if let Some(name) = thread::current().name() {
        thread = thread.name(name.to_owned());
    }
    #[cfg(feature = "tracing")]
    let f = {
        let subscriber = ::tracing::dispatcher::get_default(Clone::clone);
        move || ::tracing::dispatcher::with_default(&subscriber, f)
    };
    thread::scope(|scope| {
        let run = thread.spawn_scoped(scope, f).expect("a thread for the simulation");
        run.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The seed that the environment asks for.
///
/// # Panics
/// If it is no number: to run something else would be worse.
pub(crate) fn seed_of_environment() -> Option<u64> {
    let text = std::env::var(SEED_VARIABLE).ok()?;
    match text.trim().parse() {
        Ok(seed) => Some(seed),
        Err(_) => panic!("{SEED_VARIABLE} is {text:?}: it must be a number from 0 to 2^64 - 1"),
    }
}

/// The smaller case that the environment asks for.
///
/// # Panics
/// If it cannot be read.
pub(crate) fn case_of_environment() -> Case {
    let text = std::env::var(CASE_VARIABLE).unwrap_or_default();
    text.parse().unwrap_or_else(|error| panic!("{CASE_VARIABLE}: {error}"))
}

thread_local! {
    /// Panics of this thread are not printed.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    /// Panics of this thread, caught ones included.
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Panics of this thread, which is a run's own, are counted from now on, and not printed if `is_quiet`; those of others are as before.
fn watch_panics(is_quiet: bool) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // A thread that ends may have no such words any more.
            let _ = PANICS.try_with(|panics| panics.set(panics.get() + 1));
            if !IS_QUIET.try_with(Cell::get).unwrap_or(false) {
                before(info);
            }
        }));
    });
    IS_QUIET.set(is_quiet);
}

impl Net {
    /// How many panics the run's programs have had so far, those included that were caught. A task of tokio's that panics ends, and only who joins it learns of it; with
    /// `net.always("no task has panicked", ...)` over this it fails the run. Not those on threads of [`blocking`](crate::blocking) and `spawn_blocking`, and none once the program
    /// has set a panic hook of its own.
    pub fn panics(&self) -> u64 {
        PANICS.get()
    }
}

/// What to do about the messages of tokio that a program gets which has not taken all from here.
fn hint(message: &str) -> Option<&'static str> {
    let hints = [
        (
            "IO is disabled",
            "tokio's own sockets and signals do not work in a simulation: take sockeye_sim::net (or sockeye::tokio) in place of \
             tokio::net, and sockeye::tokio::signal in place of tokio::signal",
        ),
        (
            "there is no reactor running",
            "tokio::spawn and tokio::time need Sim::tokio, with the feature tokio",
        ),
    ];
    hints.iter().find(|(part, _)| message.contains(part)).map(|(_, hint)| *hint)
}

/// The command that plays a seed again, as far as the process knows it.
fn replay_command(seed: u64, case: &Case) -> String {
    let case = if *case == Case::default() { String::new() } else { format!("{CASE_VARIABLE}={case} ") };
    let thread = thread::current();
    let package = std::env::var("CARGO_PKG_NAME");
    match (thread.name(), package) {
        (Some(test), Ok(package)) if test != "main" => {
            format!("{SEED_VARIABLE}={seed} {case}cargo test -p {package} -- --exact {test}")
        }
        _ => {
            let command: Vec<String> = std::env::args().collect();
            format!("{SEED_VARIABLE}={seed} {case}{}", command.join(" "))
        }
    }
}
