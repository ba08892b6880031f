//! Hand-offs of cache lines between cores in one lane of an experiment's row, for `sockeye bench`.
//!
//! Purpose: the bench's own code over a library with the feature `count`, which reports each access to a shared word. The bench starts this
//! program once for each lane, with its own command line; it prints one line of JSON. The head of `crates/sync/src/count.rs`
//! defines a hand-off.
//!
//! Invariants: the counts are global to the process, which runs one stack.
//!
//! Tests: `tests/lanes.rs`; those of the counts themselves beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use sockeye_bench::experiment::counting::{CountArgs, answer};
use sockeye_shared::end::exit_code;

/// Count hand-offs between cores in one lane of an experiment; `sockeye bench` starts this
#[derive(Parser)]
#[command(name = "sockeye-bench-counted", version)]
struct Cli {
    #[command(flatten)]
    lane: CountArgs,
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut Cli::command()).exit());
    let answered = answer(&cli.lane).map(|line| {
        println!("{line}");
        ExitCode::SUCCESS
    });
    exit_code(Cli::command(), &matches, answered)
}
