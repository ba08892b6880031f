//! The experiments: each switch's settings against each other, and the kernel beside them.
//!
//! Purpose: the command from its plan to its exit code. [`table`] lists the experiments, [`plan`] selects them from a
//! command line, [`run`] takes the samples, [`text`], [`report`] and [`html`] write the results, [`scale`] predicts the
//! results on more cores.
//!
//! Does not depend on the inside of the stack.
//!
//! Tests: in the modules; `tests/bench` for the whole. `docs/experiments.md` describes each experiment.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;
use sockeye_shared::end::{CommandError, UsageError};
use sockeye_shared::file;
use sockeye_shared::progress::Progress;

use crate::args::{BenchArgs, Target};
use crate::machine::Machine;
use crate::report;
use crate::workloads::Params;

mod counters;
pub mod counting;
mod device;
mod figures;
mod goals;
mod gro;
mod html;
mod input;
pub mod model;
pub mod plan;
mod rcvd;
pub mod run;
mod rxfree;
mod scale;
pub mod table;
mod testbeds;
pub mod text;
mod unix;
mod wake;

use counting::Counting;
use model::{Goal, KERNEL, Lane};
use plan::Plan;
use run::{LaneResult, Outcome};
use scale::Prediction;

/// The result of one row.
pub struct Measured<'a> {
    /// The experiment and its lanes.
    pub part: &'a plan::Part,
    /// The row.
    pub row: &'a model::Row,
    /// Its lanes' samples.
    pub outcome: Outcome,
}

impl Measured<'_> {
    /// The goals that are shown.
    pub fn goals(&self) -> &[Goal] {
        if self.part.shows_goals { &self.row.goals } else { &[] }
    }

    /// The pairs that are compared: each other setting with the first, and each setting with the kernel.
    pub fn compared(&self) -> Vec<(&LaneResult, &LaneResult)> {
        let settings = || self.outcome.lanes.iter().filter(|lane| lane.lane != Lane::Kernel);
        let mut pairs = Vec::new();
        if let Some(base) = self.outcome.base() {
            pairs.extend(settings().skip(1).map(|other| (other, base)));
        }
        if let Some(kernel) = self.outcome.of(KERNEL) {
            pairs.extend(settings().map(|setting| (setting, kernel)));
        }
        pairs
    }
}

/// Runs the experiments that `target` names. Blocks until everything is done; the exit code shows whether all succeeded.
pub fn bench(args: &BenchArgs, target: Target) -> Result<ExitCode, CommandError> {
    let plan = Plan::of(args, target).map_err(CommandError::Usage)?;
    let machine = Machine::read()?;
    let stored = stored(args, target, &machine);
    // After the measurements it would be too late to learn that this cannot be done. A run that is ended leaves an older page.
    args.report.as_deref().map(file::check).transpose()?;
    let mut out = Output { json: args.json, file: stored.as_deref().map(file::create).transpose()? };
    out.say(&text::header(&machine, &plan))?;
    let counting = counting()?;
    let mut measured = Vec::new();
    if plan.measures {
        measured = measure(&plan, counting.as_ref(), &machine, &mut out)?;
    }
    out.say(&text::footer(&measured))?;
    let predictions =
        if plan.predicts { predict(&plan, counting.as_ref(), &machine, &mut out)? } else { Vec::new() };
    if let Some(path) = stored.filter(|_| args.out.is_none()) {
        out.say(&format!("\nstored in {}\n", path.display()))?;
    }
    if let Some(path) = &args.report {
        let page = html::page(&machine, &plan, &measured, &predictions, &report::command_line());
        file::write(path, page)?;
    }
    let failed = measured.iter().any(|one| !one.outcome.failures.is_empty())
        || predictions.iter().any(|one| !one.failures.is_empty());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The program that counts hand-offs. A bench without it still measures, and prints which counters are
/// missing.
fn counting() -> io::Result<Option<Counting>> {
    match Counting::prepare() {
        Ok(counting) => Ok(Some(counting)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("warning: hand-offs between cores are not counted: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The file that JSON lines go to: the one that is named, and for the prediction alone one that bears the number of cores.
fn stored(args: &BenchArgs, target: Target, machine: &Machine) -> Option<PathBuf> {
    let unnamed = || {
        (target == Target::Scale).then(|| format!("sockeye-scale-{}-cores.json", machine.cores.len()).into())
    };
    args.out.clone().or_else(unnamed)
}

fn measure<'a>(
    plan: &'a Plan,
    counting: Option<&Counting>,
    machine: &Machine,
    out: &mut Output,
) -> Result<Vec<Measured<'a>>, CommandError> {
    let rows: Vec<(&plan::Part, &model::Row)> =
        plan.parts.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row))).collect();
    let progress = Progress::of(plan.samples_all(), rows.len());
    let mut measured = Vec::new();
    for (index, (part, row)) in rows.into_iter().enumerate() {
        let name = part.experiment.name;
        progress.step(index, name, &row.label);
        let lanes = part.lanes_of(row);
        let outcome = run::run_row(plan, part.experiment, row, &lanes, counting, || progress.sample());
        for failure in &outcome.failures {
            let (lane, error) = (failure.lane.name(), &failure.error);
            progress.suspend(|| eprintln!("error: {name} ({}) with {lane}: {error}", row.label));
        }
        let one = Measured { part, row, outcome };
        progress.suspend(|| out.row(plan, machine, &one))?;
        measured.push(one);
    }
    progress.end();
    Ok(measured)
}

fn predict<'a>(
    plan: &'a Plan,
    counting: Option<&Counting>,
    machine: &Machine,
    out: &mut Output,
) -> Result<Vec<Prediction<'a>>, CommandError> {
    let samples = plan.parts.iter().map(|part| scale::samples(plan, part)).sum();
    let progress = Progress::of(samples, plan.parts.len());
    let handoff = scale::handoff_seconds()?;
    let mut predictions = Vec::new();
    for (index, part) in plan.parts.iter().enumerate() {
        progress.step(index, part.experiment.name, "on one core and on all");
        let Some(found) = scale::predict(plan, part, (handoff, counting), || progress.sample())? else {
            continue;
        };
        for failure in &found.failures {
            let (name, lane, error) = (part.experiment.name, failure.lane.name(), &failure.error);
            progress.suspend(|| eprintln!("error: {name} for a prediction with {lane}: {error}"));
        }
        progress.suspend(|| out.prediction(machine, &found))?;
        predictions.push(found);
    }
    progress.end();
    out.say(&text::assumptions())?;
    Ok(predictions)
}

/// Where results go: standard output, and a file of JSON lines if one was asked for.
struct Output {
    json: bool,
    file: Option<File>,
}

impl Output {
    /// Messages that are no result: on standard error if standard output has lines for programs.
    fn say(&self, text: &str) -> io::Result<()> {
        if self.json {
            eprint!("{text}");
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    fn row(&mut self, plan: &Plan, machine: &Machine, one: &Measured<'_>) -> io::Result<()> {
        self.result(&report::experiment_lines(plan, machine, one)?, &text::row(one))
    }

    fn prediction(&mut self, machine: &Machine, found: &Prediction<'_>) -> io::Result<()> {
        self.result(&format!("{}\n", scale::json::object(found, machine)), &text::prediction(found))
    }

    /// A result in both forms.
    fn result(&mut self, lines: &str, text: &str) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(lines.as_bytes())?;
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(if self.json { lines } else { text }.as_bytes())?;
        stdout.flush()
    }
}

/// The parameters in `value`, which is an object.
fn params(value: &Value) -> Params {
    value.as_object().cloned().unwrap_or_default()
}

fn at_most(flag: &str, value: usize, most: usize) -> Result<(), UsageError> {
    if value > most {
        return Err(UsageError(format!("{flag} {value} is too many; use at most {most}")));
    }
    Ok(())
}
