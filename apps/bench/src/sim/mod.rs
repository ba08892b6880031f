//! `sockeye bench sim`: Sockeye's simulator beside turmoil.
//!
//! Purpose: the work that each simulator does in a second of CPU time and of real time, for programs that each have one source. [`rows`] lists the worlds. The
//! program that runs one is `sockeye-bench-sim`, of the workspace `apps/glue`, so that nothing else is built with turmoil: a process for each sample. A round takes
//! one sample of each lane of a row, in the order of the experiments' rounds, so both sides of a ratio are of the same minute.
//!
//! Does not depend on the inside of a simulator. Invariant: a row is written as soon as it is there; a lane that fails fails the run and not the other rows.
//!
//! Tests: `tests/bench/sim.rs`, with a script in the program's place; `apps/bench-sim/tests`; ADR 95.

pub mod args;
mod report;
mod rows;

use std::env;
use std::io;
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde::Deserialize;
use sockeye_shared::end::CommandError;
use sockeye_shared::progress::Progress;

use crate::args::BenchArgs;
use crate::built::Built;
use crate::experiment::run::order;
use crate::machine::Machine;
use crate::process;
use report::Report;
use rows::{Effort, Lane, Row};

/// The program.
pub const SIM: Built = Built { program: "sockeye-bench-sim", folder: "bench-sim", target: "sim" };
/// Samples of each lane.
const SAMPLES: usize = 5;
const SAMPLES_QUICK: usize = 3;
/// A sample that takes longer has failed.
const SAMPLE_MAX: Duration = Duration::from_secs(900);
/// How many worlds at a time the simulator's runner of seeds has.
const THREADS_VARIABLE: &str = "SOCKEYE_SIM_THREADS";

/// One sample: the program's answer.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Sample {
    /// Calls, simulated seconds or seeds.
    work: f64,
    /// Seconds.
    wall: f64,
    /// Seconds of all threads.
    cpu: f64,
    /// Simulated seconds.
    simulated: f64,
}

/// A lane's samples, in the order of the rounds.
struct Measured<'a> {
    lane: &'a Lane,
    samples: Vec<Sample>,
    failure: Option<String>,
}

/// Measures and writes a table, or JSON lines. Blocks until everything is done.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, CommandError> {
    args.check_plain("sim").map_err(CommandError::Usage)?;
    if args.seconds.is_some() {
        let message = "--seconds does not belong to sim, whose samples are of so much work; write --calls";
        return Err(CommandError::Usage(sockeye_shared::end::UsageError(message.to_owned())));
    }
    SIM.prepare()?;
    let rounds = args.samples.unwrap_or(if args.quick { SAMPLES_QUICK } else { SAMPLES });
    let rows = rows::rows(&args.sim.rows, Effort { is_quick: args.quick, calls: args.sim.calls });
    let mut report = Report::new(args, Machine::read()?)?;
    report.begin(rounds)?;
    let samples = rows.iter().map(|row| row.lanes.len() * rounds).sum();
    let progress = Progress::of(samples, rows.len());
    let mut failed = false;
    for (index, row) in rows.iter().enumerate() {
        progress.step(index, "sim", &row.label);
        let measured = measure(row, rounds, || progress.sample());
        for one in &measured {
            if let Some(failure) = &one.failure {
                failed = true;
                progress.suspend(|| eprintln!("error: {} in {}: {failure}", row.label, one.lane.name));
            }
        }
        progress.suspend(|| report.row(row, &measured))?;
    }
    progress.end();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Takes a row's samples. Blocks until they are done.
fn measure(row: &Row, rounds: usize, mut taken: impl FnMut()) -> Vec<Measured<'_>> {
    let begin = |lane| Measured { lane, samples: Vec::new(), failure: None };
    let mut measured: Vec<Measured<'_>> = row.lanes.iter().map(begin).collect();
    let count = measured.len();
    for round in 0..rounds {
        for index in order(round, count) {
            let one = &mut measured[index];
            if one.failure.is_none() {
                match sample(one.lane) {
                    Ok(sample) => one.samples.push(sample),
                    Err(error) => one.failure = Some(error.to_string()),
                }
            }
            taken();
        }
    }
    measured
}

fn sample(lane: &Lane) -> io::Result<Sample> {
    let mut command = Command::new(SIM.find(&env::current_exe()?)?);
    command.args(&lane.words);
    if let Some(threads) = lane.threads {
        command.env(THREADS_VARIABLE, threads.to_string());
    }
    let ended = process::run(&mut command, SAMPLE_MAX)?;
    if !ended.status.success() {
        return Err(io::Error::other(ended.complaint()));
    }
    let sample: Sample = serde_json::from_str(&ended.stdout)?;
    if [sample.work, sample.wall, sample.cpu].iter().all(|value| *value > 0.0) {
        return Ok(sample);
    }
    Err(io::Error::other("a sample did nothing, or took no time"))
}
