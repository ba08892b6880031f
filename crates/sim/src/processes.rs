//! A process for each seed: what a library counts or draws once for a whole process is then the same in each run of a seed.
//!
//! The process is this program once more: for a test with libtest's `--exact`, for another program with its own arguments. A variable tells it which call of `Seeds::run` is meant, by test and number, and which seed
//! and case; calls before that one do nothing there. It runs the seed, writes into a file what came of it, and exits. The parent then has what a run on one of its threads
//! would have given. A process that ends in another way, by a signal or by `exit`, is a failure of its seed.
//!
//! Bound: as many processes at a time as there would be runs (`SOCKEYE_SIM_THREADS`). Tests: below, `tests/seeds.rs`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::case::{CASE_VARIABLE, Case, Pick};
use crate::run::{PCAP_VARIABLE, SEED_VARIABLE};
use crate::seeds::Ran;

/// `1`: each seed has a process of its own; `0`: none has, whatever the test says.
pub const PROCESSES_VARIABLE: &str = "SOCKEYE_SIM_PROCESSES";
/// What a process was started for. Set by this module only.
const CHILD_VARIABLE: &str = "SOCKEYE_SIM_CHILD";
/// Lines of a process's standard error output that a failure shows, if it ended without a word of ours.
const LAST_LINES: usize = 20;

/// Whether the environment asks for processes.
///
/// # Panics
/// If the variable has another value than 0 or 1.
pub(crate) fn of_environment() -> Option<bool> {
    match env::var(PROCESSES_VARIABLE).ok()?.trim() {
        "0" => Some(false),
        "1" => Some(true),
        other => panic!("{PROCESSES_VARIABLE} is {other:?}: it must be 0 or 1"),
    }
}

/// A call of `Seeds::run` in this program: the test, and how many calls of the same test were before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub test: String,
    /// From 0.
    pub number: usize,
}

impl Call {
    /// The present one, which is counted.
    pub fn next(test: String) -> Self {
        static CALLS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
        let mut calls = CALLS.lock();
        let count = calls.entry(test.clone()).or_default();
        let number = *count;
        *count += 1;
        drop(calls);
        Self { test, number }
    }

    /// Runs a seed in a new process. What the process says of a failure goes to the standard error output, unless it is to be `quiet`. A file of packets that the environment names has
    /// one run in it, so only a run that is the only one may write it.
    pub fn run(&self, seed: u64, case: &Case, is_quiet: bool, is_only: bool) -> Ran {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: it hands out numbers, nothing else.
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let file = env::temp_dir().join(format!("sockeye-sim-{}-{number}.outcome", process::id()));
        let order = Order { call: self.clone(), seed, case: case.clone(), is_quiet, file };
        let ran = order.give(is_only);
        // There is none if the process has not written it.
        let _gone = fs::remove_file(&order.file);
        ran
    }
}

/// What a process is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub call: Call,
    pub seed: u64,
    pub case: Case,
    pub is_quiet: bool,
    file: PathBuf,
}

impl Order {
    /// That of this process, if it was started for one.
    ///
    /// # Panics
    /// If it cannot be read: only this module sets the variable.
    pub fn of_environment() -> Option<Self> {
        let text = env::var(CHILD_VARIABLE).ok()?;
        Some(text.parse().unwrap_or_else(|error| panic!("{CHILD_VARIABLE}: {error}")))
    }

    /// Says what came of it, and ends this process.
    pub fn done(&self, ran: &Ran) -> ! {
        if let Err(error) = fs::write(&self.file, text_of(ran)) {
            eprintln!("sockeye-sim: no outcome in {}: {error}", self.file.display());
        }
        process::exit(i32::from(ran.failure.is_some()));
    }

    fn give(&self, is_only: bool) -> Ran {
        let failed = |what: String| {
            if !self.is_quiet {
                eprintln!("sockeye-sim: {what}");
            }
            Ran { failure: Some(what), ..Ran::default() }
        };
        let Self { call, seed, .. } = self;
        let program = match env::current_exe() {
            Ok(program) => program,
            Err(error) => return failed(format!("a process for seed {seed}: {error}")),
        };
        let mut command = Command::new(program);
        if call.test == "main" {
            command.args(env::args_os().skip(1));
        } else {
            command.args([&call.test, "--exact", "--include-ignored", "--nocapture"]);
        }
        command.env(CHILD_VARIABLE, self.to_string()).env_remove(SEED_VARIABLE).env_remove(CASE_VARIABLE);
        if !is_only {
            command.env_remove(PCAP_VARIABLE);
        }
        let output = match command.stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(error) => return failed(format!("a process for seed {seed}: {error}")),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        match fs::read_to_string(&self.file).ok().and_then(|text| ran_of(&text)) {
            Some(ran) => {
                if ran.failure.is_some() && !self.is_quiet {
                    eprint!("{said}");
                }
                ran
            }
            None => failed(format!(
                "the process of seed {seed} ended with {}{}",
                output.status,
                last_lines(&said)
            )),
        }
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    if last.is_empty() { String::new() } else { format!(":\n{}", last.join("\n")) }
}

/// Fields, one a line: what a test's name and a path may have in them is anything but the end of a line.
impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { call: Call { test, number }, seed, case, is_quiet, file } = self;
        write!(f, "{test}\n{number}\n{seed}\n{case}\n{is_quiet}\n{}", file.display())
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split('\n').collect();
        let [test, number, seed, case, is_quiet, file] = fields[..] else {
            return Err(format!("{text:?} is no order"));
        };
        let wrong = |_| format!("{text:?} is no order");
        Ok(Self {
            call: Call { test: test.to_owned(), number: number.parse().map_err(wrong)? },
            seed: seed.parse().map_err(wrong)?,
            case: case.parse()?,
            is_quiet: is_quiet == "true",
            file: Path::new(file).to_owned(),
        })
    }
}

/// Lines with what was drawn; the message comes last, since it may have any number of lines.
fn text_of(ran: &Ran) -> String {
    let Ran { failure, now, events, digest, drawn } = ran;
    let picks = drawn.picks.iter().map(|(name, Pick { low, value })| format!("pick {name} {low} {value}\n"));
    let faults = drawn.faults.iter().map(|(number, words)| format!("fault {number} {words}\n"));
    let drawn: String = picks.chain(faults).collect();
    let outcome = failure.as_ref().map_or("passed".to_owned(), |message| format!("failed\n{message}"));
    format!("ran {now} {events} {digest}\n{drawn}{outcome}")
}

fn ran_of(text: &str) -> Option<Ran> {
    let mut ran = Ran::default();
    let mut rest = text;
    loop {
        let (line, more) = rest.split_once('\n').unwrap_or((rest, ""));
        let (word, tail) = line.split_once(' ').unwrap_or((line, ""));
        let mut parts = tail.split(' ');
        match word {
            "ran" => {
                let mut number = || parts.next()?.parse().ok();
                (ran.now, ran.events, ran.digest) = (number()?, number()?, number()?);
            }
            "pick" => {
                let name = parts.next()?.to_owned();
                let mut number = || parts.next()?.parse().ok();
                ran.drawn.picks.insert(name, Pick { low: number()?, value: number()? });
            }
            "fault" => {
                let (number, words) = tail.split_once(' ')?;
                ran.drawn.faults.insert(number.parse().ok()?, words.to_owned());
            }
            "passed" => return Some(ran),
            "failed" => return Some(Ran { failure: Some(more.to_owned()), ..ran }),
            _ => return None,
        }
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Drawn;

    #[test]
    fn an_order_and_an_outcome_are_the_same_behind_the_border() {
        let call = Call { test: "a::b".into(), number: 2 };
        let case: Case = "faults=1+4,hosts=3".parse().unwrap();
        let order = Order { call, seed: u64::MAX, case, is_quiet: true, file: "/tmp/x y".into() };
        assert_eq!(order.to_string().parse(), Ok(order));
        let mut drawn = Drawn::default();
        drawn.picks.insert("hosts".into(), Pick { low: 3, value: 6 });
        drawn.faults.insert(4, "1.5s: the power of [a, b] goes for 2ms".into());
        let passed = Ran { failure: None, now: 7, events: 8, digest: u64::MAX, drawn };
        let failed = Ran { failure: Some("two\nlines\n".into()), ..passed.clone() };
        for ran in [passed, failed, Ran::default()] {
            assert_eq!(ran_of(&text_of(&ran)), Some(ran));
        }
    }

    #[test]
    fn what_was_cut_off_is_no_outcome() {
        let text = text_of(&Ran { failure: Some("x".into()), ..Ran::default() });
        assert!((0..text.len() - 2).all(|end| ran_of(&text[..end]).is_none()));
        assert!("a\nb".parse::<Order>().is_err());
    }
}
