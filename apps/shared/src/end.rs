//! How a program ends: why it did nothing or no more, and the exit code for it.
//!
//! 0: everything was done; 1: something was not; 2: the command line is wrong.
//!
//! Tests: those of the programs, on their exit codes.

use std::fmt;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;

/// Something that was asked for cannot be done.
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why nothing, or no more, could be done.
#[derive(Debug)]
pub enum CommandError {
    /// The command line asks for something that cannot be.
    Usage(UsageError),
    /// The system refused something.
    Io(io::Error),
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        CommandError::Io(error)
    }
}

/// The exit code of `command`'s result. Prints an error on standard error; does not return if the command line was
/// wrong.
pub fn exit_code(mut command: clap::Command, done: Result<ExitCode, CommandError>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(CommandError::Usage(error)) => command.error(ErrorKind::ValueValidation, error).exit(),
        // The reader of the results has seen enough.
        Err(CommandError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(CommandError::Io(error)) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
