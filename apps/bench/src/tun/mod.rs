//! `sockeye bench tun`: the kernel's TCP on the other side of a device.
//!
//! Purpose: the performance of a connection between the kernel and Sockeye through a TUN device, beside a trivial end that only acknowledges, feeds
//! or echoes (how fast the device and the kernel are), and beside kernel and kernel through a veth pair; with `--peers` also beside other stacks on
//! devices like ours. By default each end has the MTU that suits it (ours 1,500), with `--mtu` all have the same, and with `--spin-us` all that can
//! are busy for as long before they sleep. The kernel's end is the same code in all of them, and its counts are reported. They are interleaved: a
//! round takes one sample of each.
//!
//! Does not depend on how an end does its work.
//!
//! Invariants: everything is made in network namespaces of this process, which end with it.
//!
//! Tests: `trivial.rs`, `table.rs`, `peers`; `tests/bench/tun.rs` for the command.

pub mod client;
pub mod ends;
mod mtu;
pub mod peers;
mod spin;
mod table;
mod trivial;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use sockeye_drivers::testing::unavailable;
use sockeye_shared::end::{CommandError, UsageError};

use super::args::BenchArgs;
use super::machine::Machine;
use super::stats::{Ratio, Summary};
use super::{record, watchdog};
use client::Sample;
use ends::End;
pub use mtu::Mtu;
pub use spin::SpinTime;

/// The work of the far end, seen from the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Work {
    /// The far end receives from the kernel
    Receive,
    /// The far end sends to the kernel
    Send,
    /// The same from packet memory, if the far end can
    Lent,
    /// The far end answers each byte with one
    Rr,
}

/// A far end in this process, as it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Own {
    /// The stack that is measured
    Sockeye,
    /// A program that does only the part that the kernel must see
    Trivial,
    /// The kernel, behind a veth pair
    Kernel,
}

impl Own {
    /// In the order of the table.
    const ALL: [Own; 3] = [Own::Sockeye, Own::Trivial, Own::Kernel];

    fn open(self, mtu: Mtu, spin: Option<SpinTime>) -> io::Result<End> {
        match self {
            Own::Sockeye => record::labelled(|| "tun with sockeye".to_owned(), || ends::sockeye(mtu, spin)),
            Own::Trivial => ends::trivial(mtu),
            Own::Kernel => ends::kernel(mtu),
        }
    }
}

impl Work {
    /// In the order of the table.
    pub const ALL: [Work; 4] = [Work::Receive, Work::Send, Work::Lent, Work::Rr];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Work::Receive => "receive",
            Work::Send => "send",
            Work::Lent => "lent",
            Work::Rr => "rr",
        }
    }

    /// Unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Work::Receive | Work::Send | Work::Lent => "Gbit/s",
            Work::Rr => "1/s",
        }
    }

    /// The port at which an end does it.
    pub fn port(self) -> u16 {
        match self {
            Work::Receive => 5001,
            Work::Send => 5002,
            Work::Rr => 5003,
            Work::Lent => 5004,
        }
    }
}

/// A kind of far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Far {
    /// The kind of work that is measured.
    Sockeye,
    /// A program that does only the part that the kernel must see.
    Trivial,
    /// The kernel, behind a veth pair.
    Kernel,
    /// Another stack.
    Peer(peers::Kind),
}

/// The goal of Sockeye relative to another end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    /// At least this ratio.
    pub must: f64,
    /// Better this one.
    pub aim: Option<f64>,
}

impl Far {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Far::Sockeye => "sockeye",
            Far::Trivial => "trivial",
            Far::Kernel => "kernel",
            Far::Peer(kind) => kind.name(),
        }
    }

    /// Sockeye's goal relative to it; there is none relative to the kernel.
    pub fn goal(self, work: Work) -> Option<Goal> {
        match (self, work) {
            (Far::Sockeye | Far::Kernel, _) => None,
            (Far::Trivial, Work::Receive | Work::Rr) => Some(Goal { must: 0.85, aim: None }),
            (Far::Trivial, Work::Send | Work::Lent) => Some(Goal { must: 0.75, aim: None }),
            (Far::Peer(_), _) => Some(Goal { must: 2.0, aim: Some(4.0) }),
        }
    }
}

/// The result of one kind of work: the samples of each end.
pub struct Row {
    pub work: Work,
    pub ends: Vec<Far>,
    pub mtus: Vec<Mtu>,
    pub about: Vec<Option<String>>,
    pub samples: Vec<Vec<Sample>>,
}

impl Row {
    /// Median and extremes of the end with this index.
    pub fn summary(&self, end: usize) -> Option<Summary> {
        Summary::of(&self.values(end))
    }

    /// Sockeye's median over that of another end, by its index; none if one of the two has failed in a round.
    pub fn ratio(&self, end: usize) -> Option<Ratio> {
        if end == 0 || self.ends.first() != Some(&Far::Sockeye) || !self.is_whole(0) || !self.is_whole(end) {
            return None;
        }
        Ratio::of_rounds(&self.values(0), &self.values(end))
    }

    /// The median of the cores that all of the process used.
    pub fn cores(&self, end: usize) -> Option<f64> {
        let cores: Vec<f64> = self.samples.get(end)?.iter().map(|sample| sample.cores).collect();
        Summary::of(&cores).map(|cores| cores.median)
    }

    /// The median for each core used: which depends less on other load of the machine.
    pub fn by_core(&self, end: usize) -> Option<f64> {
        let cores = self.cores(end).filter(|cores| *cores > 0.0)?;
        self.summary(end).map(|found| found.median / cores)
    }

    /// Whether no sample of the end with this index is missing.
    pub fn is_whole(&self, end: usize) -> bool {
        let most = self.samples.iter().map(Vec::len).max();
        self.samples.get(end).map(Vec::len) == most
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
pub const WARM_UP_SHARE: f64 = 0.25;

/// Measures and writes a table, or JSON lines. Blocks until everything is done.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, CommandError> {
    args.check_plain("tun").map_err(CommandError::Usage)?;
    check_rights().map_err(CommandError::Usage)?;
    let machine = Machine::read()?;
    let samples = args.samples.unwrap_or(SAMPLES);
    let seconds = seconds(args);
    let programs = args.peers.as_ref().map_or(Ok(Vec::new()), peers::programs)?;
    let open = |own: Own| own.open(args.mtu.unwrap_or_default(), args.spin_us);
    let own = chosen(&args.far, Own::ALL).map(open).collect::<io::Result<Vec<End>>>()?;
    let mut out = table::Output::new(args)?;
    out.begin(&machine, samples, seconds)?;
    let mut failed = false;
    for work in chosen(&args.work, Work::ALL) {
        let peers = programs.iter().map(|(kind, program)| {
            let mtu = args.mtu.unwrap_or_else(|| kind.mtu(work));
            let spin = args.spin_us.map_or(kind.spin(), SpinTime::duration);
            ends::peer(*kind, program, mtu, spin)
        });
        let peers = peers.collect::<io::Result<Vec<End>>>()?;
        let ends: Vec<&End> = own.iter().chain(&peers).collect();
        let row = measure(&ends, work, samples, seconds)?;
        failed |= row.samples.iter().any(|of_end| of_end.len() < samples);
        out.row(&row)?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Checks that this process may create namespaces and devices.
///
/// # Errors
/// It may not, with the remedy.
pub fn check_rights() -> Result<(), UsageError> {
    let refused = |reason| {
        UsageError(format!(
            "bench tun makes network namespaces and TUN devices, for which it has no right: {reason}; run as root"
        ))
    };
    unavailable().map_or(Ok(()), |reason| Err(refused(reason)))
}

/// The length of a sample that the command line asks for.
pub fn seconds(args: &BenchArgs) -> f64 {
    args.seconds.unwrap_or(if args.quick { SECONDS_QUICK } else { SECONDS })
}

/// Those of `all` that were asked for, in its order: all of them if none was.
pub fn chosen<T: PartialEq + Copy, const N: usize>(asked: &[T], all: [T; N]) -> impl Iterator<Item = T> {
    all.into_iter().filter(move |one| asked.is_empty() || asked.contains(one))
}

/// A round takes one sample of each end. An end that fails is excluded from the row, with a message; the others continue.
fn measure(ends: &[&End], work: Work, rounds: usize, seconds: f64) -> io::Result<Row> {
    let mut samples = vec![Vec::with_capacity(rounds); ends.len()];
    let timing = (Duration::from_secs_f64(seconds * WARM_UP_SHARE), Duration::from_secs_f64(seconds));
    for round in 0..rounds {
        for turn in 0..ends.len() {
            let index = (round + turn) % ends.len();
            let end = ends[index];
            if samples[index].len() < round {
                continue;
            }
            let what = format!("a sample of {} with {}", work.name(), end.far.name());
            let _armed = watchdog::arm(timing.0 + timing.1 + watchdog::GRACE, what.clone());
            match end.client.run(|| client::sample((end.addr, end.port(work)), work, timing, || end.cpu()))? {
                Ok(sample) => samples[index].push(sample),
                Err(error) => eprintln!("error: {what}: {error}"),
            }
        }
    }
    let about = ends.iter().map(|end| end.peer.as_ref().map(|peer| peer.about().to_owned())).collect();
    let mtus = ends.iter().map(|end| end.mtu).collect();
    Ok(Row { work, ends: ends.iter().map(|end| end.far).collect(), mtus, about, samples })
}
