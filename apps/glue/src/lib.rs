//! The common parts of the examples and tests: a stack whose names are those of a table, a small name server, and simulations in two processes.

#![forbid(unsafe_code)]

mod dns;

use std::net::SocketAddr;
use std::process::Command;
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
/// events it had, and the digest of them.
///
/// # Panics
/// If they differ, or if the test fails or does not write anything.
pub fn same_in_two_processes(test: &str) {
    let program = env::current_exe().expect("it runs");
    let [first, second] = [1, 2].map(|process| {
        let path = env::temp_dir().join(format!("sockeye-glue-{}-{test}-{process}", std::process::id()));
        let mut command = Command::new(&program);
        command.args(["--exact", test]).env("SOCKEYE_SIM_RESULTS", &path);
        let output = command.output().expect("this program can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(&path).expect("it has written its results");
        fs::remove_file(&path).expect("it is ours");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    });
    assert!(!first.is_empty(), "{test} has no result");
    assert_eq!(first, second);
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
