//! How a program ends: why it did nothing or no more, and the exit code for it.
//!
//! 0: everything was done; 1: something was not; 2: the command line is wrong.
//!
//! Tests: those of the programs, on their exit codes.

use std::fmt;
use std::io;
use std::process::ExitCode;

use clap::ArgMatches;
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

/// The exit code of the result of `command`, whose command line reads as `matches`. Prints an error on standard error; does not
/// return if the command line was wrong.
pub fn exit_code(
    command: clap::Command,
    matches: &ArgMatches,
    done: Result<ExitCode, CommandError>,
) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(CommandError::Usage(error)) => {
            named(command, matches).error(ErrorKind::ValueValidation, error).exit()
        }
        // The reader of the results has seen enough.
        Err(CommandError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(CommandError::Io(error)) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The sub-command that a command line names, whose usage a message about it shows.
fn named(mut command: clap::Command, matches: &ArgMatches) -> clap::Command {
    command.build();
    let (mut command, mut matches) = (command, matches);
    while let Some((name, inner)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name).cloned() else { break };
        (command, matches) = (found, inner);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_is_that_of_the_innermost_command_that_was_named() {
        let command = || {
            let matrix = clap::Command::new("matrix").arg(clap::Arg::new("out").long("out"));
            clap::Command::new("tool").subcommand(clap::Command::new("sim").subcommand(matrix))
        };
        let usage = |line: &str| {
            let matches = command().get_matches_from(line.split(' '));
            named(command(), &matches).error(ErrorKind::ValueValidation, "no").to_string()
        };
        for (line, told) in [
            ("tool", "Usage: tool"),
            ("tool sim", "Usage: tool sim"),
            ("tool sim matrix", "Usage: tool sim matrix"),
        ] {
            let text = usage(line);
            assert!(text.lines().any(|found| found.starts_with(told)), "{line}: {text}");
        }
        assert!(usage("tool sim matrix").contains("[OPTIONS]"));
    }
}
