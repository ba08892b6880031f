//! The bench as a program: exit codes, streams, JSON, helper processes.
//!
//! Samples are short and few: these tests check the output, not the measured values.

mod against;
mod apps;
mod counting;
mod experiments;
mod gateway;
mod helpers;
mod manual;
mod patterns;
mod records;
mod results;
mod sim;
mod tun;
mod usage;

use std::process::{Command, Output, Stdio};

use sockeye_shared::testing::{run, stderr, stdout};

/// The program with `line`'s words as arguments; not under cargo, where it would build its other programs.
fn bench(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockeye-bench"));
    command.args(line.split_whitespace()).stdin(Stdio::null()).env_remove("CARGO");
    command
}

/// The program in a process that may have `descriptors` and no more.
fn bench_limited(descriptors: usize, line: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors} && exec \"$0\" {line}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_sockeye-bench")]).stdin(Stdio::null());
    command
}
