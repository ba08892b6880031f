//! Counting hand-offs of cache lines between cores: one sample of a lane, in a program of another build.
//!
//! Purpose: a build with the library's feature `count` reports every access to a shared word, a cost that no timed build may
//! have. It is `sockeye-bench-counted`, from a workspace of its own, since cargo unites the features of one. [`Counting`] runs
//! that program for a lane of a row; `answer` (with the feature `count`) is its work: the same plan from the same command line, opened and sampled as
//! here.
//!
//! Does not depend on the counters.
//!
//! Invariants: the counts are a process's, and a process counts one lane.
//!
//! Tests: `tests/bench/counting.rs`, with a script in the program's place; `apps/bench-counted/tests`.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::built::Built;
use crate::experiment::model::{Experiment, Row};
use crate::process;
use crate::provider::Counters;

/// The program that counts.
pub const COUNTED: Built =
    Built { program: "sockeye-bench-counted", folder: "bench-counted", target: "counted" };

/// A counting pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// Operations in its window.
    pub operations: f64,
    /// Counters, with those of hand-offs.
    pub counters: Counters,
    /// The places with the most hand-offs, setting up included, and their share of all that were counted.
    pub top: Vec<(String, f64)>,
}

/// The program that counts hand-offs.
pub struct Counting {
    program: PathBuf,
    /// Of this program's command line.
    words: Vec<OsString>,
}

impl Counting {
    /// Prepares the program. Under cargo this builds it, which blocks for minutes the first time.
    ///
    /// # Errors
    /// There is no program, with the command that builds it.
    pub fn prepare() -> io::Result<Self> {
        COUNTED.prepare()?;
        let program = COUNTED.find(&env::current_exe()?)?;
        Ok(Self { program, words: env::args_os().skip(1).collect() })
    }

    /// Counts one sample of a row with a setting. Blocks, for `limit` at most.
    pub fn count(
        &self,
        experiment: &Experiment,
        row: &Row,
        setting: &str,
        limit: Duration,
    ) -> io::Result<Counted> {
        let mut command = Command::new(&self.program);
        command.args([experiment.name, &row.label, setting, "--"]).args(&self.words);
        let ended = process::run(&mut command, limit)?;
        if !ended.status.success() {
            return Err(io::Error::other(ended.complaint()));
        }
        Ok(serde_json::from_str(&ended.stdout)?)
    }
}

/// Which lane is to be counted.
#[derive(Args, Debug)]
pub struct CountArgs {
    /// The experiment
    pub experiment: String,
    /// The row, by its label
    pub row: String,
    /// The setting
    pub setting: String,
    /// The bench's own command line, which shapes the row
    #[arg(last = true)]
    pub line: Vec<OsString>,
}

#[cfg(feature = "count")]
pub use answers::answer;

#[cfg(feature = "count")]
mod answers {
    use std::ffi::OsString;
    use std::io;

    use clap::Parser;
    use sockeye_shared::end::{CommandError, UsageError};
    use sockeye_shared::limit;

    use super::{CountArgs, Counted};
    use crate::args::BenchArgs;
    use crate::experiment::model::{On, Row};
    use crate::experiment::plan::Plan;
    use crate::providers::handoffs;

    /// The bench's command line.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    /// Counts one lane, and returns a line of JSON: [`Counted`]. Blocks for a sample.
    pub fn answer(args: &CountArgs) -> Result<String, CommandError> {
        let words = [OsString::from("sockeye-bench")].into_iter().chain(args.line.iter().cloned());
        let line = Line::try_parse_from(words)
            .map_err(|error| CommandError::Usage(UsageError(error.to_string())))?;
        limit::raise_descriptors();
        let unknown = |what: &str| CommandError::Usage(UsageError(format!("there is no {what}")));
        let labels = |rows: &[Row]| rows.iter().map(|row| row.label.clone()).collect::<Vec<_>>().join("; ");
        let target = line.args.experiments().map_err(CommandError::Usage)?;
        let plan = Plan::of(&line.args, target.ok_or_else(|| unknown("experiment in the command line"))?);
        let plan = plan.map_err(CommandError::Usage)?;
        let part = plan.parts.iter().find(|part| part.experiment.name == args.experiment);
        let part = part.ok_or_else(|| unknown(&format!("experiment {:?}", args.experiment)))?;
        let row = part.rows.iter().find(|row| row.label == args.row);
        let row = row.ok_or_else(|| {
            let (row, rows) = (&args.row, labels(&part.rows));
            unknown(&format!("row {row:?} of {}; give one of: {rows}", args.experiment))
        })?;
        let config =
            row.config(&plan.given, part.experiment.key, &args.setting).map_err(CommandError::Usage)?;
        let testbed = row.work.open(&On::Sockeye(&config))?;
        handoffs::reset();
        let taken = testbed.sample(plan.timing)?;
        let counted = Counted { operations: taken.operations, counters: taken.counters, top: places() };
        Ok(serde_json::to_string(&counted).map_err(io::Error::from)?)
    }

    /// The places with the most hand-offs, and their share of all.
    fn places() -> Vec<(String, f64)> {
        let top: Vec<(String, u64)> = handoffs::top().collect();
        let all: u64 = top.iter().map(|(_, handoffs)| handoffs).sum();
        let share = |(site, handoffs): (String, u64)| (site, handoffs as f64 / all.max(1) as f64);
        top.into_iter().take(PLACES_SHOWN).map(share).collect()
    }

    /// Places with the most hand-offs, as many as say where it hurts.
    const PLACES_SHOWN: usize = 5;
}
