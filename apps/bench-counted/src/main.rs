//! Hand-offs of cache lines between cores in one lane of an experiment's row, for `sockeye bench`.
//!
//! Purpose: the bench's own code over a library with the feature `count`, which reports each access to a shared word. The bench starts this
//! program once for each lane, with its own command line; it prints one line of JSON. What counts as a hand-off stands at the head of
//! `crates/sync/src/count.rs`.
//!
//! Invariants: the counts are the process's, and it runs one stack.
//!
//! Tests: `tests/lanes.rs`; those of the counts themselves beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
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
    let cli = Cli::parse();
    let answered = answer(&cli.lane).map(|line| {
        println!("{line}");
        ExitCode::SUCCESS
    });
    exit_code(Cli::command(), answered)
}
