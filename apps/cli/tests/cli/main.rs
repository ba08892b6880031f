//! The `sockeye` command as a program: exit codes, streams, JSON, helper processes.
//!
//! Samples are short and few: these tests are about what comes out, not about how much.

mod bench_tun;
mod device;
mod experiments;
mod helpers;
mod http;
mod iperf3;
mod matrix;
mod programs;
mod records;
mod results;
mod sim;
mod sim_kernel;
mod tun;
mod usage;

use std::process::{Command, Output, Stdio};

use sockeye_shared::testing::{run, stderr, stdout};

/// The command with `line`'s words as arguments.
fn sockeye(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockeye"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

/// The command in a process that may have `descriptors` and no more.
fn sockeye_limited(descriptors: usize, line: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors} && exec \"$0\" {line}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_sockeye")]).stdin(Stdio::null());
    command
}
