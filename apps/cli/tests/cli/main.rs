//! The `sockeye` command as a program: exit codes, streams, JSON.
//!
//! Samples are short and few: these tests check the output, not the measured values.

mod bench;
mod device;
mod http;
mod iperf3;
mod manual;
mod matrix;
mod merge;
mod programs;
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
