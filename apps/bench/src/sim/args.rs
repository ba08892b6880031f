//! The options that belong to `sockeye bench sim` alone.
//!
//! Does not depend on how anything is measured. Tests: `tests/bench/sim.rs`.

use clap::Args;

use super::rows::Name;
use crate::args::count;

/// What is run, and how long.
#[derive(Args, Debug, Default)]
pub struct SimArgs {
    /// Run only these rows (sim)
    #[arg(long, value_name = "ROW[,ROW...]", value_enum, value_delimiter = ',')]
    pub rows: Vec<Name>,

    /// Calls of each client [default: 1000 with 100 hosts, 10000 with 2; --quick a tenth] (sim)
    #[arg(long, value_name = "N", value_parser = count)]
    pub calls: Option<usize>,
}

impl SimArgs {
    /// The flags, an example, and whether each was given.
    pub fn flags(&self) -> [(&'static str, &'static str, bool); 2] {
        [
            ("--rows", "--rows two,idle", !self.rows.is_empty()),
            ("--calls", "--calls 500", self.calls.is_some()),
        ]
    }
}
