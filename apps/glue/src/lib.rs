//! The common parts of the examples and tests: a stack whose names are those of a table, a small name server, and simulations in two processes.

#![forbid(unsafe_code)]

mod dns;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{env, fs, io};

use sockeye::{Config, Resolve, Resolving, Stack};

pub use dns::{Answer, DnsServer};

/// The result of an example.
pub type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Knows these names, all of which are this host.
pub struct Names(pub &'static [&'static str]);

impl Resolve for Names {
    fn resolve<'a>(&'a self, _: &'a Stack, host: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move {
            if self.0.contains(&host) {
                return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
            }
            let known = self.0.join(", ");
            Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{host} is not known, but these are: {known}"),
            ))
        })
    }
}

/// A stack of its own on which these names are this host.
pub fn stack(names: &'static [&'static str]) -> io::Result<Stack> {
    let stack = Stack::new(Config { workers: 1, ..Config::default() })?;
    stack.set_resolver(Some(Box::new(Names(names))));
    Ok(stack)
}

/// Runs a test of the program that is running, one of many seeds in the simulator, in two new processes, and compares what each writes of each seed: how long it took, how many
/// events it had, and the digest of them, which covers each byte of each packet.
///
/// # Panics
/// If they differ, or if the test fails or does not write anything.
pub fn same_in_two_processes(test: &str) {
    let [first, second] = [(); 2].map(|()| results(&["--exact", test], &[]));
    assert!(!first.is_empty(), "{test} has no result");
    assert_eq!(first, second);
}

/// The seed that [`is_twice`] runs alone.
const ALONE: u64 = 700;

/// Whether the program was started with the argument `seeds`: it is to run its seeds and nothing else.
pub fn is_only_seeds() -> bool {
    env::args().nth(1).is_some_and(|word| word == "seeds")
}

/// If the program was started with the argument `twice`: runs it with the argument `seeds` in two processes, with two threads in each, and one seed alone in a third, and compares what each writes of each
/// seed, as [`same_in_two_processes`].
///
/// # Panics
/// If they differ, or a seed fails.
pub fn is_twice() -> bool {
    if env::args().nth(1).is_none_or(|word| word != "twice") {
        return false;
    }
    let begin = Instant::now();
    let pass = || results(&["seeds"], &[("SOCKEYE_SIM_THREADS", "2")]);
    let first = pass();
    println!("{} seeds in {:.0?}", first.len(), begin.elapsed());
    let second = pass();
    println!("and again: {:.0?} together", begin.elapsed());
    assert_eq!(first.len() as u64, seeds().end - seeds().start);
    let differ = first.iter().zip(&second).find(|(first, second)| first != second);
    assert!(differ.is_none() && first.len() == second.len(), "two processes differ: {differ:?}");
    let alone =
        seeds().contains(&ALONE).then(|| results(&["seeds"], &[("SOCKEYE_SIM_SEED", &ALONE.to_string())]));
    for line in alone.iter().flatten() {
        assert!(first.contains(line), "alone, it is another run: {line}");
    }
    println!("two processes are the same, and seed {ALONE} alone is, if it was there: {alone:?}");
    true
}

/// The lines that this program writes of its seeds, in order, if it is started with these arguments and variables.
fn results(arguments: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let program = env::current_exe().expect("it runs");
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("sockeye-glue-{}-{number}", std::process::id()));
    let mut command = Command::new(&program);
    command.args(arguments).envs(variables.iter().copied()).env("SOCKEYE_SIM_RESULTS", &path);
    let output = command.output().expect("this program can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&path).expect("it has written its results");
    fs::remove_file(&path).expect("it is ours");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The seeds that an example runs: those from `GLUE_FIRST` on, below `GLUE_SEEDS`; 0 to 999 unless these variables say otherwise.
///
/// # Panics
/// If one of them is no number.
pub fn seeds() -> std::ops::Range<u64> {
    let number =
        |name: &str, default| env::var(name).map_or(default, |text| text.parse().expect("it is a number"));
    number("GLUE_FIRST", 0)..number("GLUE_SEEDS", 1000)
}
