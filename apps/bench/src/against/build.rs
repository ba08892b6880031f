//! A build of the bench, and one sample of it.
//!
//! Purpose: how a row is requested from a program. `sockeye-bench` takes the row's arguments, `sockeye` takes them after `bench`;
//! `--version` shows which of the two a program is. Rows of applications are requested from each build's `sockeye-bench-apps`
//! itself, so that a build whose bench does not know them is compared too.
//!
//! Does not depend on the rows.
//!
//! Tests: below; `tests/bench/against.rs`.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::row::{Asked, Fault, Reading, Row};
use super::{cannot, revision};
use crate::process;
use crate::stats::Summary;
use crate::workloads::http;

/// One of the two that are compared.
#[derive(Debug)]
pub struct Build {
    /// As the output calls it.
    pub name: String,
    program: PathBuf,
    /// The arguments before a row's own.
    first: &'static [&'static str],
    /// The program of its applications, or why there is none. Looked for if rows take it.
    apps: Option<Result<PathBuf, String>>,
}

impl Build {
    /// The one that is running.
    pub fn this(takes_apps: bool) -> io::Result<Self> {
        let program = env::current_exe()?;
        let apps = takes_apps.then(|| apps_of(&program));
        Ok(Self { name: "this build".to_owned(), program, first: &[], apps })
    }

    /// The one that `named` names: a program if there is such a file, else a revision, which is built. Blocks for as long as
    /// that takes.
    pub fn other(named: &str, takes_apps: bool) -> io::Result<Self> {
        if Path::new(named).is_file() {
            let program = Path::new(named).canonicalize()?;
            let apps = takes_apps.then(|| apps_of(&program));
            return Self::of_program(named.to_owned(), program, apps);
        }
        let built = revision::build(named, takes_apps)?;
        Self::of_program(built.name, built.program, built.apps)
    }

    fn of_program(name: String, program: PathBuf, apps: Option<Result<PathBuf, String>>) -> io::Result<Self> {
        let answer = process::run(Command::new(&program).arg("--version"), VERSION_MAX)
            .map_err(|error| cannot(error.kind(), format!("{}: {error}; {REMEDY}", program.display())))?;
        let first: &[&str] = match answer.stdout.split_whitespace().next() {
            Some("sockeye-bench") => &[],
            Some("sockeye") => &["bench"],
            Some(_) | None => {
                let message =
                    format!("{} does not call itself sockeye or sockeye-bench; {REMEDY}", program.display());
                return Err(cannot(io::ErrorKind::InvalidInput, message));
            }
        };
        Ok(Self { name, program, first, apps })
    }

    /// One sample of a row, in a process of its own whose environment is larger by `padding` bytes. Blocks until it is there.
    pub fn turn(&self, row: &Row, padding: usize) -> Result<Reading, Fault> {
        match &row.asked {
            Asked::Bench | Asked::Tun => self.one(row, &self.program, self.first, padding),
            Asked::Apps { samples, .. } => {
                let program = match &self.apps {
                    Some(Ok(program)) => program,
                    Some(Err(why)) => return Err(Fault::Unknown(why.clone())),
                    None => return Err(Fault::Unknown("its applications were not looked for".to_owned())),
                };
                let readings: Vec<Reading> =
                    (0..*samples).map(|_| self.one(row, program, &[], padding)).collect::<Result<_, _>>()?;
                let values: Vec<f64> = readings.iter().map(|reading| reading.value).collect();
                let (first, summary) = (readings.into_iter().next(), Summary::of(&values));
                let (Some(mut reading), Some(summary)) = (first, summary) else {
                    return Err(Fault::Failed("no sample was asked for".to_owned()));
                };
                reading.value = summary.median;
                Ok(reading)
            }
        }
    }

    /// One process.
    fn one(&self, row: &Row, program: &Path, first: &[&str], padding: usize) -> Result<Reading, Fault> {
        let mut command = Command::new(program);
        command.args(first).args(&row.words).env(PADDING, "x".repeat(padding));
        // Everything measured has been built: cargo is not called meanwhile.
        command.env_remove("CARGO");
        let ended =
            process::run(&mut command, row.limit).map_err(|error| Fault::Failed(error.to_string()))?;
        match ended.status.code() {
            Some(0) => row.reading(&ended.stdout),
            Some(WRONG_COMMAND_LINE) => Err(Fault::Unknown(ended.complaint())),
            Some(_) | None => Err(Fault::Failed(ended.complaint())),
        }
    }
}

/// The program of the applications that belongs to a bench.
fn apps_of(bench: &Path) -> Result<PathBuf, String> {
    http::APPS.find(bench).map_err(|error| error.to_string())
}

/// The remedy.
const REMEDY: &str = "give the path of a sockeye or sockeye-bench, or a revision";
/// The variable that moves the stack of a process.
const PADDING: &str = "SOCKEYE_BENCH_PADDING";
/// How long a program may take to say its version.
const VERSION_MAX: Duration = Duration::from_secs(30);
/// The exit code of a program that does not understand its arguments.
const WRONG_COMMAND_LINE: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_kind_is_refused_with_a_remedy() {
        for (program, part) in [("/bin/true", "does not call itself"), ("/nonexistent/build", "No such file")]
        {
            let error =
                Build::of_program("x".to_owned(), PathBuf::from(program), None).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(program) && error.contains(REMEDY), "{error}");
        }
    }
}
