//! `bench --against`: this build and another one, in turns.
//!
//! Purpose: compare this build with another one on the rows of the bench. Both builds are driven alike: each sample is a process
//! of its own, in the order ABBA over at least twenty rounds, so that changes on the machine and the random placement of a
//! process's memory affect both. [`build`] is a build and one sample of it, [`revision`] makes the other build from a revision,
//! [`row`] is a row as both builds understand it, [`rounds`] takes the samples, [`report`] prints the results. ADR 55 has the
//! reasons.
//!
//! Does not depend on the workloads.
//!
//! Tests: in the parts; `tests/bench/against.rs` for the whole, with a script as the other build.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use sockeye_shared::end::{CommandError, UsageError};

use crate::args::{BenchArgs, Target};
use crate::machine::Machine;
use crate::tun::{self, Work};
use crate::workloads::http;
use build::Build;
use report::Report;
use row::Row;

mod build;
mod report;
mod revision;
mod rounds;
mod row;

/// Compares with the build that `other` names. Blocks until everything is done; the exit code shows whether all rows were
/// measured. A row that the other build does not know is no failure.
pub fn bench(args: &BenchArgs, other: &str) -> Result<ExitCode, CommandError> {
    let rows = rows(args).map_err(CommandError::Usage)?;
    let takes_apps = rows.iter().any(Row::takes_apps);
    if takes_apps {
        http::APPS.prepare()?;
    }
    if cfg!(debug_assertions) {
        eprintln!(
            "warning: this build is not optimised, so its ratios mean nothing; use cargo run --release"
        );
    }
    if args.workload == Some(Target::Tun) {
        tun::check_rights().map_err(CommandError::Usage)?;
    }
    let builds = [Build::this(takes_apps)?, Build::other(other, takes_apps)?];
    let count = args.rounds.unwrap_or(ROUNDS_MIN);
    let planned =
        rows.iter().map(|row| row.planned).sum::<Duration>() * 2 * u32::try_from(count).unwrap_or(u32::MAX);
    let mut report = Report::new(args.json, args.out.as_deref(), &builds)?;
    report.begin(&Machine::read()?, rows.len(), count, planned)?;
    let courses = rounds::run(&builds, rows, count);
    report.end(&courses)?;
    Ok(if courses.iter().any(rounds::Course::has_failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The two builds and their rows.
fn rows(args: &BenchArgs) -> Result<Vec<Row>, UsageError> {
    args.experiments()?;
    let samples = args.samples.unwrap_or(1);
    match args.workload {
        Some(Target::Workload(_)) | None => {}
        Some(Target::Tun) => return rows_of_tun(args, samples),
        Some(
            target @ (Target::Experiment(_)
            | Target::All
            | Target::Scale
            | Target::Hostile
            | Target::Udp
            | Target::Patterns
            | Target::Sim),
        ) => {
            let value = target.to_possible_value();
            let name = value.as_ref().map_or("this", PossibleValue::get_name);
            return Err(UsageError(format!(
                "--against compares stream, rr, one-way, crr, mem, idle, http1, http2 and tun, or all but tun if none is named; \
                 {name} compares settings or sides within one process, so run `bench {name} --json --out FILE` with \
                 each of the two programs, more than once and in turns, and compare the samples in the files"
            )));
        }
    }
    let plan = args.plan()?;
    Ok(plan.cases.iter().map(|case| Row::of(case, args.on, samples)).collect())
}

/// The kinds of work through a TUN device.
fn rows_of_tun(args: &BenchArgs, samples: usize) -> Result<Vec<Row>, UsageError> {
    args.check_plain("tun")?;
    if args.peers.is_some() || !args.far.is_empty() {
        let message = "--peers and --far do not belong to --against, which measures the far end sockeye of both builds; leave them out";
        return Err(UsageError(message.to_owned()));
    }
    let seconds = tun::seconds(args);
    Ok(tun::chosen(&args.work, Work::ALL).map(|work| Row::of_tun(args, work, samples, seconds)).collect())
}

/// Reads a number of rounds.
pub fn round_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (ROUNDS_MIN..=ROUNDS_MAX).contains(&n) => Ok(n),
        Ok(_) | Err(_) => Err(format!(
            "write a whole number from {ROUNDS_MIN} to {ROUNDS_MAX}; with fewer rounds an interval says little, and \
             fewer rows or a smaller --seconds take less time"
        )),
    }
}

/// An error about the other build.
fn cannot(kind: io::ErrorKind, message: String) -> io::Error {
    io::Error::new(kind, format!("--against: {message}"))
}

/// Fewer rounds give intervals that cannot tell a loss of a few per cent from noise.
const ROUNDS_MIN: usize = 20;
const ROUNDS_MAX: usize = 1000;
