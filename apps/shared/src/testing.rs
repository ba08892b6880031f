//! For tests of the programs: a process that is run to its end, its output, and programs made for a test.
//!
//! A file that is open for writing cannot be executed, and a process that another thread starts meanwhile has it open for a moment. So
//! processes write the programs, whose descriptors no other process inherits.

use std::path::Path;
use std::process::{Command, Output};

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started.
pub fn run(mut command: Command) -> Output {
    command.output().expect("the program starts")
}

/// The standard output of a process.
///
/// # Panics
/// If that is no UTF-8.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is text")
}

/// The standard error of a process.
///
/// # Panics
/// If that is no UTF-8.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("messages are text")
}

/// Makes a script for `sh`.
///
/// # Panics
/// If it cannot be made.
pub fn script(path: &Path, text: &str) {
    let text = format!("#!/bin/sh\n{text}\n");
    make(Command::new("sh").args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""]).arg(path).arg(text));
}

/// Copies a program.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    make(Command::new("cp").arg(from).arg(to));
}

fn make(command: &mut Command) {
    let output = command.output().expect("sh and cp are there");
    assert!(output.status.success(), "{}", stderr(&output));
}
