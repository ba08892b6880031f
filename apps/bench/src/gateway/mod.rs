//! `sockeye bench gateway`: `sockeye gateway` beside other gateways of rootless namespaces.
//!
//! Purpose: how fast a program in a namespace talks to a server outside through each of them, what idle flows cost, and how long one takes to start. The programs that
//! measure (`iperf3`, `ab`) and the server of HTTP (`nginx`) are the same for all, and so is the place: a network namespace of this process stands for the host,
//! with the servers on its loopback, and each gateway serves a namespace of its own, which reaches that loopback as 10.0.2.2. All run all the time and rounds are
//! interleaved: one sample of each, in the order of the experiments' rounds, so that none always follows the same other one.
//!
//! Does not depend on how a gateway works. A peer that is not installed is left out, and said.
//!
//! Invariants: no packet leaves this machine; every process that is started here ends with the run.
//!
//! Tests: `work.rs`, `table.rs`; `tests/bench/gateway.rs` for the command.

mod peers;
mod place;
mod table;
mod work;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sockeye_drivers::testing::unavailable;
use sockeye_shared::end::{CommandError, UsageError};
use sockeye_shared::limit;
use sockeye_shared::progress::Progress;

use crate::experiment::run::order;
use crate::machine::Machine;
use peers::Gateway;
pub use peers::Kind;
use place::Place;
pub use place::{HOLD_SUBCOMMAND, hold_connections};
use table::{Output, Row};
pub use work::Work;

/// Options of `sockeye bench gateway`.
#[derive(Args, Clone, Debug)]
pub struct GatewayBenchArgs {
    /// Run only these kinds of work
    #[arg(long, value_name = "WORK[,WORK...]", value_enum, value_delimiter = ',')]
    pub work: Vec<Work>,
    /// Measure only these gateways
    #[arg(long, value_name = "GATEWAY[,GATEWAY...]", value_enum, value_delimiter = ',')]
    pub gateways: Vec<Kind>,
    /// The program that serves as sockeye's gateway, instead of `sockeye` beside this one
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
    /// Loops of sockeye's gateway, instead of its default
    #[arg(long, value_name = "N")]
    pub loops: Option<u16>,
    /// Number of rounds, each with a sample of every gateway [default: 5; --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Length of a sample in whole seconds [default: 2; --quick 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: Option<u32>,
    /// Idle flows that are held open
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=25_000))]
    pub flows: u32,
    /// Take fewer and shorter samples: three minutes
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub json: bool,
    /// Also write the JSON lines to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Examples, for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  sockeye bench gateway
      every kind of work, with slirp4netns and pasta where they are installed: eight minutes; needs root, iperf3, ab and nginx
  sockeye bench gateway --quick --work keep-alive-1,keep-alive-32
      small requests on connections that stay
  sockeye bench gateway --gateways sockeye,none --json --out figures.jsonl";

impl GatewayBenchArgs {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 3 } else { 5 })
    }

    fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(if self.quick { 1 } else { 2 })
    }
}

/// Measures.
///
/// # Errors
/// A usage error if nothing can be measured; the system's.
pub fn run(args: &GatewayBenchArgs) -> Result<ExitCode, CommandError> {
    if let Some(why) = unavailable() {
        return Err(CommandError::Usage(UsageError(format!("gateway: {why}: start it with sudo"))));
    }
    limit::raise_descriptors();
    let works: Vec<Work> = if args.work.is_empty() { Work::ALL.to_vec() } else { args.work.clone() };
    let place = Place::new(&works)?;
    let mut gateways = Vec::new();
    let kinds = if args.gateways.is_empty() { Kind::ALL.to_vec() } else { args.gateways.clone() };
    for kind in kinds {
        match Gateway::start(kind, args, &place) {
            Ok(gateway) => gateways.push(gateway),
            Err(error) if kind == Kind::Sockeye => {
                let said = format!("sockeye's gateway does not serve: {error}");
                return Err(CommandError::Io(io::Error::new(error.kind(), said)));
            }
            Err(error) => eprintln!("left out: {}: {error}", kind.name()),
        }
    }
    let mut output = Output::new(args.json, args.out.as_deref())?;
    let versions: Vec<String> = gateways.iter().map(|gateway| gateway.version.clone()).collect();
    output.begin(&Machine::read()?, &versions, args.rounds(), args.seconds())?;
    let samples = works.len() * gateways.len() * args.rounds() as usize;
    let progress = Progress::of(samples, works.len());
    let mut is_complete = true;
    for (index, work) in works.into_iter().enumerate() {
        progress.step(index, "gateway", work.name());
        let row = measure(work, args, (&gateways, &place), &progress);
        // What a peer cannot do is its own affair, and is in the table.
        is_complete &= row.failed.iter().all(|(kind, _)| kind.is_peer());
        progress.suspend(|| output.row(&row))?;
    }
    progress.end();
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The rounds of a kind of work. A gateway through which it fails has no further rounds.
fn measure(
    work: Work,
    args: &GatewayBenchArgs,
    (gateways, place): (&[Gateway], &Place),
    progress: &Progress,
) -> Row {
    let mut samples = vec![Ok(Vec::new()); gateways.len()];
    // Once is enough for what does not depend on the time.
    let rounds = if work.is_steady() { 1 } else { args.rounds() };
    for round in 0..rounds {
        for index in order(round as usize, gateways.len()) {
            let (gateway, samples) = (&gateways[index], &mut samples[index]);
            if let Ok(values) = samples
                && work.applies_to(gateway.kind)
            {
                match work.sample(args, gateway, place) {
                    Ok(value) => values.push(value),
                    Err(error) => *samples = Err(error.to_string()),
                }
            }
            progress.sample();
        }
    }
    let mut row = Row { work, gateways: Vec::new(), failed: Vec::new() };
    for (gateway, samples) in gateways.iter().zip(samples) {
        match samples {
            Ok(values) if values.is_empty() => {}
            Ok(values) => row.gateways.push((gateway.kind, values)),
            Err(how) => row.failed.push((gateway.kind, how)),
        }
    }
    row
}
