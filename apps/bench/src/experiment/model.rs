//! The model of an experiment.
//!
//! Purpose: the types that describe experiments. An [`Experiment`] compares the settings of one switch over some
//! [`Row`]s; a row's [`Work`] is opened once for each [`Lane`] and then sampled; [`Line`]s name the counters that decide
//! it, [`Goal`]s the expected result, a [`Figure`] the result in its document.
//!
//! Does not depend on which experiments there are, or on how results are printed.
//!
//! Invariants: a lane is the kernel or one setting, and each lane of a row does the same work.
//!
//! Tests: in the parts that use it.

use std::io;
use std::time::Duration;

use sockeye::Config;
use sockeye_shared::end::UsageError;

use crate::args::Dev;
use crate::meter::{Timing, Window};
use crate::provider::Counters;
use crate::workloads::Params;

/// One switch, compared with itself.
pub struct Experiment {
    /// On the command line.
    pub name: &'static str,
    /// In a heading.
    pub title: &'static str,
    /// In one sentence, for the help.
    pub about: &'static str,
    /// The switch's key in the configuration.
    pub key: &'static str,
    /// Its settings, the oldest first: that one is the base of comparisons.
    pub settings: &'static [&'static str],
    /// The flags of the command line that shape its rows.
    pub flags: &'static [&'static str],
    /// The rows, shaped by those flags.
    pub rows: fn(&Asked) -> Result<Vec<Row>, UsageError>,
    /// Those of its settings with which all connections share one lock, for the prediction.
    pub one_lock: &'static [&'static str],
    /// The counters that decide it.
    pub lines: &'static [Line],
    /// The result in the document that introduced the technique.
    pub figure: &'static Figure,
}

/// The flags that select rows; a flag that was not given is empty or `None`.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// `--connections`
    pub connections: Vec<usize>,
    /// `--threads`
    pub threads: Option<usize>,
    /// `--size`
    pub size: Option<usize>,
    /// `--clients`
    pub clients: Vec<usize>,
    /// `--dev`
    pub dev: Option<Dev>,
}

/// One workload, with the parameters it is run with.
pub struct Row {
    /// In a short line.
    pub label: String,
    /// By name, for programs.
    pub params: Params,
    /// Settings that the row's shape asks for, before those of the command line.
    pub base: &'static [(&'static str, &'static str)],
    /// Unit of a value.
    pub unit: &'static str,
    /// The divisor of counters, in a word or two.
    pub operation: &'static str,
    /// Whether the workload exists on the kernel.
    pub kernel: bool,
    /// Time a sample takes besides its window, setting up and tearing down.
    pub setup: Duration,
    /// Its workload.
    pub work: Box<dyn Work>,
    /// The expected result.
    pub goals: Vec<Goal>,
    /// Whether the prediction for more cores is made from this row.
    pub scales: bool,
}

impl Row {
    /// The settings of one lane, later ones over earlier ones: the row's, the given ones, the switch's.
    pub fn settings(&self, given: &[(String, String)], key: &str, setting: &str) -> Vec<(String, String)> {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let own = self.base.iter().map(owned);
        own.chain(given.iter().cloned()).chain([(key.to_owned(), setting.to_owned())]).collect()
    }

    /// The configuration of one lane: the default with [`settings`](Self::settings).
    ///
    /// # Errors
    /// A setting that is not known, or out of bounds.
    pub fn config(&self, given: &[(String, String)], key: &str, setting: &str) -> Result<Config, UsageError> {
        let mut config = Config::default();
        for (key, value) in self.settings(given, key, setting) {
            config.set(&key, &value).map_err(|error| UsageError(error.to_string()))?;
        }
        config.validate().map_err(|error| UsageError(error.to_string()))?;
        Ok(config)
    }
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Sockeye with this setting of the experiment's switch.
    Setting(&'static str),
    /// The kernel's sockets.
    Kernel,
}

impl Lane {
    /// The setting's name, or the kernel's.
    pub fn name(&self) -> &'static str {
        match self {
            Lane::Setting(name) => name,
            Lane::Kernel => KERNEL,
        }
    }
}

/// The sockets that a lane is opened on.
pub enum On<'a> {
    /// The kernel.
    Kernel,
    /// A stack of its own with this configuration.
    Sockeye(&'a Config),
}

/// A workload that can be opened on either side.
pub trait Work: Send + Sync {
    /// Creates the objects that live as long as the row: stacks, listeners.
    fn open(&self, on: &On<'_>) -> io::Result<Box<dyn Testbed>>;
}

/// A workload on one side, ready to be sampled again and again.
pub trait Testbed {
    /// One sample. Blocks for its time.
    fn sample(&self, timing: Timing) -> io::Result<Taken>;
}

/// One sample.
#[derive(Clone, Debug)]
pub struct Taken {
    /// In the row's unit.
    pub value: f64,
    /// Cores used.
    pub cpu: Option<f64>,
    /// Cores that there were for it, used or idle.
    pub cores_had: Option<f64>,
    /// Operations in the window.
    pub operations: f64,
    /// The increase of the counters in the window.
    pub counters: Counters,
}

impl Taken {
    /// From a window: `scale` converts the counted rate to the row's unit, and `per_operation` of it are one operation.
    pub fn of(window: Window, scale: f64, per_operation: f64) -> Self {
        Self {
            value: window.rate() * scale,
            cpu: Some(window.cores()),
            cores_had: window.cores_had(),
            operations: window.count as f64 / per_operation,
            counters: window.counters,
        }
    }
}

/// A counter in readable form.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Its text.
    pub name: &'static str,
    /// These counters, added up.
    pub of: &'static [&'static str],
    /// Divided by this.
    pub per: Per,
}

/// The divisor of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// The row's operations.
    Operation,
    /// Another counter, or a sum.
    Counters(&'static [&'static str]),
}

/// The expected result of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The median of one setting over that of another, at least.
    Ratio {
        /// The setting.
        of: &'static str,
        /// The other.
        over: &'static str,
        /// At least.
        least: f64,
    },
    /// A counter's line with this setting, at most.
    LineAtMost {
        /// The setting.
        of: &'static str,
        /// The line's name.
        line: &'static str,
        /// At most.
        most: f64,
    },
    /// A counter's line with this setting, as a share of another setting's, at most.
    LineShare {
        /// The setting.
        of: &'static str,
        /// The other.
        over: &'static str,
        /// The line's name.
        line: &'static str,
        /// At most.
        most: f64,
    },
}

/// The result in a document, in its own words and on its own machine.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Where it stands.
    pub source: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// The machine.
    pub machine: &'static str,
    /// Name, figure and ratio to the first.
    pub found: &'static [(&'static str, &'static str, &'static str)],
}

/// The name of the kernel's lane.
pub const KERNEL: &str = "kernel";
