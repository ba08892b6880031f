//! `conform`: runs scenarios on the kernel and on Sockeye, and shows where they differ.
//!
//! Purpose: to run the written scenarios and any number of random ones. Exit codes: 0 no unknown difference, 1 an unknown difference, 2 wrong command
//! line or no right to make namespaces and devices. Does not depend on what a scenario is about. Tests: `tests/command.rs`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use sockeye_conform::campaign::{self, Outcome};
use sockeye_conform::compare::report;
use sockeye_conform::generate::generate;
use sockeye_conform::scenario::Scenario;
use sockeye_conform::trace::Record;
use sockeye_conform::{driven, kernel};

const USAGE: &str = "\
usage: conform [FILE...]
       conform --random COUNT [--first SEED] [--keep-going] [--no-shrink] [--save-same FOLDER]
       conform --trace FILE
       conform --alone FILE...
       conform --print SEED

Runs scenarios, lists of calls and segments with times, on the Linux kernel and on Sockeye, and compares what both send and return.

  conform FILE...        runs the scenarios of these files; a folder stands for all files in it
  --random COUNT         runs COUNT random scenarios, of the seeds from SEED (default 0) on. The first that differs
                         is made small, printed, and ends the run
  --keep-going           counts the differences of each kind instead of ending, and prints one of each
  --no-shrink            prints scenarios as they are
  --save-same FOLDER     writes those that do not differ into a folder, each into a file
  --trace FILE           prints both traces of a scenario
  --alone FILE...        prints Sockeye's trace of each, without the kernel
  --print SEED           prints the scenario of a seed

A scenario that is printed can be written to a file and run again. The kernel's side needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, and
/dev/net/tun; it makes network namespaces of its own and touches nothing else. docs/reference/conformance.md explains
the files, the tolerances and how to read a difference.";

/// Scenarios of one round of a random run.
const BATCH: u64 = 2000;

enum Command {
    Files(Vec<String>),
    Random(Campaign),
    Trace(String),
    Alone(Vec<String>),
    Print(u64),
}

/// A random run.
struct Campaign {
    count: u64,
    first: u64,
    keep_going: bool,
    shrink: bool,
    save_same: Option<String>,
}

/// Reads the command line. `None` if it is wrong.
fn command(mut args: impl Iterator<Item = String>) -> Option<Command> {
    let (mut files, mut random, mut first, mut keep_going, mut shrink) = (Vec::new(), None, 0, false, true);
    let mut save_same = None;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--random" => random = Some(args.next()?.parse().ok()?),
            "--first" => first = args.next()?.parse().ok()?,
            "--keep-going" => keep_going = true,
            "--no-shrink" => shrink = false,
            "--save-same" => save_same = Some(args.next()?),
            "--trace" => return args.next().map(Command::Trace),
            "--alone" => return Some(Command::Alone(args.collect())).filter(|_| files.is_empty()),
            "--print" => return Some(Command::Print(args.next()?.parse().ok()?)),
            _ if arg.starts_with("--") => return None,
            _ => files.push(arg),
        }
    }
    match random {
        Some(count) if files.is_empty() => {
            Some(Command::Random(Campaign { count, first, keep_going, shrink, save_same }))
        }
        None if !files.is_empty() => Some(Command::Files(files)),
        _ => None,
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        // A reader that stops early is no error.
        let _ = writeln!(io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some(command) = command(args.into_iter()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(command, &mut io::stdout()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        // A reader that stops early is no error.
        Err(error) if error.downcast_ref().is_some_and(is_broken_pipe) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conform: {error}");
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

fn run(command: Command, out: &mut impl Write) -> Result<bool> {
    match command {
        Command::Print(seed) => {
            writeln!(out, "{}", generate(seed))?;
            Ok(true)
        }
        Command::Trace(file) => trace(&file, out),
        Command::Alone(files) => alone(&files, out),
        Command::Files(files) => run_files(&files, out),
        Command::Random(wanted) => run_random(&wanted, out),
    }
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn read(path: &Path) -> Result<Scenario> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.parse().map_err(|error| format!("{}: {error}", path.display()))?)
}

fn trace(file: &str, out: &mut impl Write) -> Result<bool> {
    let scenario = read(Path::new(file))?;
    let stack = driven::run(&scenario);
    let kernel = kernel::run(&[&scenario])?.remove(0);
    for (side, trace) in [("kernel", kernel), ("sockeye", stack)] {
        writeln!(out, "{side}{}", if trace.is_disturbed { ", disturbed" } else { "" })?;
        trace.lines(&scenario).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(true)
}

fn alone(files: &[String], out: &mut impl Write) -> Result<bool> {
    for path in paths(files)? {
        let scenario = read(&path)?;
        writeln!(out, "{}:", path.display())?;
        driven::run(&scenario).lines(&scenario).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(true)
}

/// The files, and those in the folders among them.
fn paths(files: &[String]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for file in files {
        let path = Path::new(file);
        if path.is_dir() {
            let entries = std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
            let entries = entries.collect::<std::io::Result<Vec<_>>>()?;
            paths.extend(entries.into_iter().filter(|path| path.is_file()));
        } else {
            paths.push(path.to_owned());
        }
    }
    paths.sort();
    Ok(paths)
}

fn run_files(files: &[String], out: &mut impl Write) -> Result<bool> {
    let paths = paths(files)?;
    let scenarios: Vec<Scenario> = paths.iter().map(|path| read(path)).collect::<Result<_>>()?;
    let mut is_same = true;
    for ((path, scenario), outcome) in paths.iter().zip(&scenarios).zip(campaign::run(&scenarios)?) {
        match &outcome {
            Outcome::Same(known) if known.is_empty() => writeln!(out, "{}: same", path.display())?,
            Outcome::Same(known) => writeln!(out, "{}: same but for {}", path.display(), known.join(", "))?,
            Outcome::Disturbed => writeln!(out, "{}: the machine is too busy", path.display())?,
            Outcome::Differs(_) => {
                is_same = false;
                writeln!(out, "{}: differs\n{}", path.display(), text_of(scenario, &outcome))?;
            }
        }
    }
    Ok(is_same)
}

fn text_of(scenario: &Scenario, outcome: &Outcome) -> String {
    let Outcome::Differs(found) = outcome else { return String::new() };
    let difference = found.1.difference.as_ref().expect("a differing outcome has one");
    report(scenario, &found.0, &driven::run(scenario), difference)
}

/// A difference in one line.
fn line_of(scenario: &Scenario, outcome: &Outcome) -> String {
    let Outcome::Differs(found) = outcome else { return String::new() };
    let difference = found.1.difference.as_ref().expect("a differing outcome has one");
    let side = |record: &Option<Record>| {
        record.as_ref().map_or_else(|| "the end".to_owned(), |record| record.line(scenario).trim().to_owned())
    };
    format!("{} | kernel {} | sockeye {}", difference.why, side(&difference.kernel), side(&difference.stack))
}

fn run_random(wanted: &Campaign, out: &mut impl Write) -> Result<bool> {
    let Campaign { count, first, keep_going, shrink, ref save_same } = *wanted;
    if let Some(folder) = save_same {
        std::fs::create_dir_all(folder)?;
    }
    let started = Instant::now();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let (mut known, mut disturbed) = (BTreeMap::new(), 0);
    for batch in (first..first + count).step_by(BATCH as usize) {
        let scenarios: Vec<Scenario> = (batch..(batch + BATCH).min(first + count)).map(generate).collect();
        let outcomes = campaign::run(&scenarios)?;
        for (name, met) in campaign::count_known(&outcomes) {
            *known.entry(name).or_insert(0) += met;
        }
        for (scenario, outcome) in scenarios.iter().zip(&outcomes) {
            disturbed += u64::from(matches!(outcome, Outcome::Disturbed));
            if let (Outcome::Same(_), Some(folder)) = (outcome, save_same) {
                let name = scenario.about.replace(' ', "-");
                std::fs::write(Path::new(folder).join(name).with_extension("txt"), scenario.to_string())?;
            }
            let Outcome::Differs(found) = outcome else { continue };
            let kind = found.1.difference.as_ref().map_or("", |difference| difference.kind()).to_owned();
            let met = kinds.entry(kind.clone()).or_default();
            *met += 1;
            if keep_going {
                writeln!(out, "{}: {}", scenario.about, line_of(scenario, outcome))?;
            }
            if *met == 1 || !keep_going {
                writeln!(out, "{} differs:\n{}", scenario.about, text_of(scenario, outcome))?;
                if shrink {
                    let smaller = campaign::shrunk(scenario, &kind)?;
                    let outcome = campaign::run(std::slice::from_ref(&smaller))?.remove(0);
                    writeln!(out, "made small:\n{}", text_of(&smaller, &outcome))?;
                }
            }
            if !keep_going {
                return Ok(false);
            }
        }
        eprintln!("{} scenarios in {:.1?}", (batch + BATCH).min(first + count) - first, started.elapsed());
    }
    writeln!(
        out,
        "{count} random scenarios in {:.1?}; {disturbed} of them on a machine too busy",
        started.elapsed()
    )?;
    known.iter().try_for_each(|(name, met)| writeln!(out, "{met:>7} known: {name}"))?;
    kinds.iter().try_for_each(|(kind, met)| writeln!(out, "{met:>7} differ: {kind}"))?;
    Ok(kinds.is_empty())
}
