//! Results as people and programs read them.
//!
//! Purpose: one destination for outcomes: a table or JSON lines on standard output, and JSON lines in a
//! file and a page besides if asked for.
//!
//! Does not depend on how anything was measured.
//!
//! Invariants: each case is written when it is done, so a run that is interrupted leaves its earlier results.
//! Standard output holds results and nothing else; a reader that closes it ends the run.
//!
//! Tests: in the parts.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use sockeye_shared::file;

use crate::args::BenchArgs;
use crate::machine::Machine;
use crate::page::is_picture;
use crate::plan::{Case, Plan};
use crate::run::{Failure, Outcome};

mod json;
mod page;
mod table;

pub use json::experiment_lines;
pub use table::thousands;

/// Where results go.
pub struct Report {
    machine: Machine,
    json: bool,
    table: table::Table,
    shows_goals: bool,
    file: Option<File>,
    page: Option<Page>,
}

/// A page, or a picture if its name ends with `.svg`, that is written at the end.
struct Page {
    path: PathBuf,
    method: String,
    rows: Vec<page::Row>,
}

impl Report {
    /// To standard output, and to the files that the command line names.
    ///
    /// # Errors
    /// One of them cannot be made.
    pub fn new(machine: Machine, args: &BenchArgs) -> io::Result<Self> {
        let table = table::Table::under(machine.load, args.goals);
        // After the measurements it would be too late to learn that this cannot be done. A run that is ended leaves an older page.
        args.report.as_deref().map(file::check).transpose()?;
        let page = args.report.clone().map(|path| Page { path, method: String::new(), rows: Vec::new() });
        Ok(Self {
            machine,
            json: args.json,
            table,
            shows_goals: args.goals,
            file: args.out.as_deref().map(file::create).transpose()?,
            page,
        })
    }

    /// Prints the cases to be measured, and the machine.
    pub fn begin(&mut self, plan: &Plan) -> io::Result<()> {
        let method = table::method(plan);
        let header = format!("{}\n{method}", self.machine);
        if let Some(page) = &mut self.page {
            page.method = method;
        }
        if self.json {
            eprint!("{header}");
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        write!(stdout, "{header}\n{}", table::heading(self.shows_goals))?;
        stdout.flush()
    }

    /// A case's outcome.
    pub fn add(&mut self, case: &Case, outcome: &Outcome) -> io::Result<()> {
        let lines = json::lines(case, outcome, &self.machine)?;
        if let Some(file) = &mut self.file {
            file.write_all(lines.as_bytes())?;
        }
        let cells = self.table.cells(case, outcome);
        let mut stdout = io::stdout().lock();
        if self.json {
            stdout.write_all(lines.as_bytes())?;
        } else {
            stdout.write_all(table::Table::row(case, outcome, &cells).as_bytes())?;
        }
        stdout.flush()?;
        if let Some(page) = &mut self.page {
            let (workload, label) = (case.workload.name().as_str(), case.label());
            let failed = |failure: &Failure| {
                format!("{workload} ({label}) on {} failed: {}", failure.side.name(), failure.error)
            };
            let failures = outcome.failures.iter().map(failed).collect();
            let ratio = outcome.ratio.filter(|_| case.workload.higher_is_better());
            page.rows.push(page::Row { workload, case: label.clone(), cells, ratio, failures });
        }
        Ok(())
    }

    /// After the last case.
    pub fn end(&mut self) -> io::Result<()> {
        if !self.json {
            let mut stdout = io::stdout().lock();
            stdout.write_all(self.table.footer().as_bytes())?;
            stdout.flush()?;
        }
        let Some(Page { path, method, rows }) = &self.page else { return Ok(()) };
        let text = if is_picture(path) {
            page::picture(rows)
        } else {
            page::page(&self.machine, method, rows, &command_line())
        };
        file::write(path, text)
    }
}

/// How this program was started.
pub fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words = words.collect::<Vec<_>>();
    format!("sockeye bench {}", words.join(" "))
}
