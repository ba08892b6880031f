//! `sockeye bench tun`: the kernel's TCP on the other side of a device.
//!
//! Purpose: what a connection between the kernel and Sockeye through a TUN device does, beside a trivial end that only
//! acknowledges, feeds or echoes (how fast the device and the kernel are), and beside kernel and kernel through a
//! veth pair. The kernel's end is the same code in all three, and what it counts is what is reported. The three are
//! interleaved: a round takes one sample of each.
//!
//! Must not know: how an end does its work.
//!
//! Invariants: everything is made in network namespaces of this process, which end with it.
//!
//! Tests: `trivial.rs`; `tests/cli` for the command without rights.

mod client;
mod ends;
mod table;
mod trivial;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use sockeye_drivers::testing::unavailable;

use super::args::{BenchArgs, UsageError};
use super::machine::Machine;
use super::stats::{Ratio, Summary};
use super::{BenchError, watchdog};
use client::Sample;
use ends::End;

/// What the far end does, seen from the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// It receives what the kernel sends.
    Receive,
    /// It sends, and the kernel receives.
    Send,
    /// It answers each byte by one.
    Rr,
}

impl Work {
    /// In the order of the table.
    pub const ALL: [Work; 3] = [Work::Receive, Work::Send, Work::Rr];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Work::Receive => "receive",
            Work::Send => "send",
            Work::Rr => "rr",
        }
    }

    /// What its values count.
    pub fn unit(self) -> &'static str {
        match self {
            Work::Receive | Work::Send => "Gbit/s",
            Work::Rr => "1/s",
        }
    }

    /// The port at which an end does it.
    pub fn port(self) -> u16 {
        match self {
            Work::Receive => 5001,
            Work::Send => 5002,
            Work::Rr => 5003,
        }
    }

    /// What Sockeye should reach of the trivial end.
    pub fn goal(self) -> f64 {
        match self {
            Work::Receive | Work::Rr => 0.85,
            Work::Send => 0.75,
        }
    }
}

/// What came out for one kind of work: for each end its samples.
pub struct Row {
    pub work: Work,
    pub samples: Vec<Vec<Sample>>,
}

impl Row {
    /// Median and extremes of the end with this index.
    pub fn summary(&self, end: usize) -> Option<Summary> {
        Summary::of(&self.values(end))
    }

    /// The first end's median over that of the end with this index.
    pub fn ratio(&self, end: usize) -> Option<Ratio> {
        Ratio::of_rounds(&self.values(0), &self.values(end))
    }

    /// The median of the cores that all of the process used.
    pub fn cores(&self, end: usize) -> Option<f64> {
        let cores: Vec<f64> = self.samples.get(end)?.iter().map(|sample| sample.cores).collect();
        Summary::of(&cores).map(|cores| cores.median)
    }

    fn values(&self, end: usize) -> Vec<f64> {
        self.samples.get(end).into_iter().flatten().map(|sample| sample.value).collect()
    }
}

/// Samples of each end, and how long one takes.
const SAMPLES: usize = 10;
const SECONDS: f64 = 1.0;
const SECONDS_QUICK: f64 = 0.12;
/// Before the time that counts, as a part of it.
const WARM_UP_SHARE: f64 = 0.25;

/// Measures and writes a table, or JSON lines. Blocks until everything is done.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, BenchError> {
    args.check_plain("tun").map_err(BenchError::Usage)?;
    if let Some(reason) = unavailable() {
        let message = format!(
            "bench tun makes network namespaces and TUN devices, for which it has no right: {reason}; run as root"
        );
        return Err(BenchError::Usage(UsageError(message)));
    }
    let machine = Machine::read()?;
    let samples = args.samples.unwrap_or(SAMPLES);
    let seconds = args.seconds.unwrap_or(if args.quick { SECONDS_QUICK } else { SECONDS });
    let ends = [ends::sockeye()?, ends::trivial()?, ends::kernel()?];
    let names: Vec<&str> = ends.iter().map(|end| end.name).collect();
    let mut out = table::Output::new(args.json, args.out.as_deref())?;
    out.begin(&machine, &names, samples, seconds)?;
    for work in Work::ALL {
        let row = measure(&ends, work, samples, seconds)?;
        out.row(&names, &row)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(ends: &[End], work: Work, rounds: usize, seconds: f64) -> io::Result<Row> {
    let mut samples = vec![Vec::with_capacity(rounds); ends.len()];
    let warm_up = Duration::from_secs_f64(seconds * WARM_UP_SHARE);
    let timed = Duration::from_secs_f64(seconds);
    for round in 0..rounds {
        for turn in 0..ends.len() {
            let index = (round + turn) % ends.len();
            let end = &ends[index];
            let what = format!("a sample of {} with {}", work.name(), end.name);
            let _armed = watchdog::arm(warm_up + timed + watchdog::GRACE, what);
            let sample = end.client.run(|| client::sample(end.addr, work, warm_up, timed))?;
            samples[index].push(sample?);
        }
    }
    Ok(Row { work, samples })
}
