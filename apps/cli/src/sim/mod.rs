//! `sockeye sim`: transfers over a simulated path.
//!
//! Purpose: see how TCP copes with a delay, a rate and some loss, in the time that it takes to compute it. `args` has
//! the options, `transfer` runs it, `report` and `chart` show it. Equal arguments give equal results.
//!
//! Tests: `apps/cli/tests/cli/sim.rs`, and at the ends of the files.

mod args;
mod chart;
mod kernel;
mod matrix;
mod merge;
mod report;
mod transfer;

use std::io;
use std::process::ExitCode;

use args::{On, SimArgs};
use clap::{Args, Subcommand};
use sockeye_shared::file;

/// Arguments of `sockeye sim`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SimCommand {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    args: SimArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Measure the goodput of one stream over many paths, beside theory and the kernel
    Matrix(matrix::MatrixArgs),
    /// Join the results of seeds that several machines ran (SOCKEYE_SIM_RESULTS)
    Merge(merge::MergeArgs),
}

/// Runs the transfers, or a matrix of them, and prints the results.
///
/// # Errors
/// If a setting is refused, a file cannot be written, or the kernel does not let us.
pub fn sim(command: &SimCommand) -> io::Result<ExitCode> {
    match (&command.what, command.args.on) {
        (Some(What::Matrix(args)), _) => matrix::matrix(args),
        (Some(What::Merge(args)), _) => merge::merge(args),
        (None, On::Sockeye) => simulated(&command.args),
        (None, On::Kernel) => in_real_time(&command.args),
    }
}

fn in_real_time(args: &SimArgs) -> io::Result<ExitCode> {
    let measured = kernel::run(args)?;
    let mut out = io::stdout().lock();
    let show = if args.json { kernel::json } else { kernel::text };
    show(args, &measured, &mut out)?;
    Ok(ExitCode::SUCCESS)
}

fn simulated(args: &SimArgs) -> io::Result<ExitCode> {
    let (outcome, recorded) = transfer::run(args)?;
    let mut out = io::stdout().lock();
    if args.json {
        report::json(args, &outcome, &mut out)?;
    } else {
        report::text(args, &outcome, &mut out)?;
    }
    // The figures are out before anything can fail for a file.
    recorded?;
    if let Some(path) = &args.chart {
        file::write(path, chart::page(args, &outcome))?;
    }
    Ok(ExitCode::SUCCESS)
}
