//! For tests of the programs: a process that is run to its end, and what it wrote.

use std::process::{Command, Output};

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started.
pub fn run(mut command: Command) -> Output {
    command.output().expect("the program starts")
}

/// What a process wrote to its standard output.
///
/// # Panics
/// If that is no UTF-8.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is text")
}

/// What a process wrote to its standard error.
///
/// # Panics
/// If that is no UTF-8.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("messages are text")
}
