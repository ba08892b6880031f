//! Documents of a program's own command line: completions for shells, and man pages.
//!
//! Purpose: the sub-commands `completions` and `man`, made from the definitions that also parse the command line, so that they
//! cannot say anything else.
//!
//! Does not depend on the program.
//!
//! Tests: below for the pages' form; on the programs themselves in `tests/cli/manual.rs` and `tests/bench/manual.rs`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::file;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell that will read them
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write a page for each command to this directory, which is made if necessary [default: the main page, to standard output]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Writes the completions of `command` to standard output. May block there.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    io::stdout().write_all(&script)
}

/// Writes the man page of `command` to standard output, or those of `command` and its sub-commands to a directory, as
/// `NAME.1` and `NAME-SUBCOMMAND.1`. May block there.
///
/// # Errors
/// Standard output, the directory or a file in it cannot be written.
pub fn man(args: &ManArgs, command: Command) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    match &args.dir {
        Some(dir) => {
            fs::create_dir_all(dir).map_err(|error| file::at(dir, error))?;
            write_pages(dir, &command)
        }
        None => io::stdout().write_all(&page(&Man::new(command))?),
    }
}

/// The page of a command and those of its visible sub-commands. The nesting is that of the definitions.
fn write_pages(dir: &Path, command: &Command) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(dir, inner)?;
    }
    let man = Man::new(command.clone());
    let path = dir.join(man.get_filename());
    file::write(&path, page(&man)?)
}

/// A page in roff. The text behind the options begins with the examples, so it is a section of that name.
fn page(man: &Man) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    man.render(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    Ok(text.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn a_page_has_its_sections_and_the_examples_have_one_of_their_own() {
        let command = Command::new("tool")
            .about("Does a thing")
            .arg(Arg::new("rate").long("rate").help("How fast"))
            .after_help("Examples:\n  tool --rate 1\n      does it slowly\n\nExit codes: 0 done.");
        let text = String::from_utf8(page(&Man::new(command)).unwrap()).unwrap();
        for part in ["tool \\- Does a thing", "\\-\\-rate", "How fast", ".SH EXAMPLES\n  tool", "Exit codes"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        assert_eq!(sections, ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES"]);
    }
}
