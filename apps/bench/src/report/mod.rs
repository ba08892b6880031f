//! Results as people and programs read them.
//!
//! Purpose: one destination for outcomes: a table or JSON lines on standard output, and JSON lines in a
//! file besides if asked for.
//!
//! Does not depend on how anything was measured.
//!
//! Invariants: each case is written when it is done, so a run that is interrupted leaves its earlier results.
//! Standard output holds results and nothing else; a reader that closes it ends the run.
//!
//! Tests: in the parts.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::machine::Machine;
use crate::plan::{Case, Plan};
use crate::run::Outcome;

mod json;
mod table;

pub use json::experiment_lines;
pub use table::thousands;

/// Where results go.
pub struct Report {
    machine: Machine,
    json: bool,
    table: table::Table,
    file: Option<File>,
}

impl Report {
    /// To standard output, and to `file` if given.
    pub fn new(machine: Machine, json: bool, file: Option<&Path>) -> io::Result<Self> {
        let file = file.map(File::create).transpose()?;
        let table = table::Table::under(machine.load);
        Ok(Self { machine, json, table, file })
    }

    /// Prints the cases to be measured, and the machine.
    pub fn begin(&mut self, plan: &Plan) -> io::Result<()> {
        let header = table::header(&self.machine, plan);
        if self.json {
            eprint!("{header}");
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        write!(stdout, "{header}\n{}", table::heading())?;
        stdout.flush()
    }

    /// A case's outcome.
    pub fn add(&mut self, case: &Case, outcome: &Outcome) -> io::Result<()> {
        let lines = json::lines(case, outcome, &self.machine)?;
        if let Some(file) = &mut self.file {
            file.write_all(lines.as_bytes())?;
        }
        let mut stdout = io::stdout().lock();
        if self.json {
            stdout.write_all(lines.as_bytes())?;
        } else {
            stdout.write_all(self.table.row(case, outcome).as_bytes())?;
        }
        stdout.flush()
    }

    /// The notes for the table as a whole.
    pub fn end(&mut self) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(self.table.footer().as_bytes())?;
        stdout.flush()
    }
}
