//! One sample of work in a simulator, for `sockeye bench sim`.
//!
//! Purpose: the same programs in Sockeye's simulator and in turmoil. [`kv`], [`http`] and [`rpc`] are the programs, each one source; [`net`] is what is swapped;
//! [`worlds`] has the hosts and links. Nothing else is different.
//!
//! Prints one line of JSON: units of work (calls, simulated seconds or seeds), seconds of real and of CPU time, and the simulated time. The bench chooses the rows,
//! interleaves the samples and compares them.
//!
//! Invariants: everything is new for each sample and ends with the process. A call that fails fails the sample.
//!
//! Tests: `tests/samples.rs`.
#![forbid(unsafe_code)]

mod http;
mod kv;
mod net;
mod rpc;
mod worlds;

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use worlds::{On, Program, Shape};

/// One sample of work in a simulator; `sockeye bench sim` starts this
#[derive(Parser)]
#[command(name = "sockeye-bench-sim", version)]
struct Cli {
    #[command(subcommand)]
    work: Work,
}

#[derive(Subcommand)]
enum Work {
    /// Calls of pairs of hosts, a server and a client each
    Calls(CallArgs),
    /// Two hosts with a connection that nothing happens on
    Idle {
        /// The simulator
        #[arg(long, value_enum)]
        on: On,
        /// Simulated seconds
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10 * 86_400))]
        seconds: u64,
    },
    /// A world of calls for each of many seeds, in Sockeye's simulator, as many at a time as SOCKEYE_SIM_THREADS says
    Seeds {
        #[command(flatten)]
        shape: CallArgs,
        /// How many seeds
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        seeds: u64,
    },
}

#[derive(Args)]
struct CallArgs {
    /// The program
    #[arg(value_enum)]
    program: Program,
    /// The simulator
    #[arg(long, value_enum)]
    on: On,
    /// Hosts, an even number
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=1000))]
    hosts: u16,
    /// Calls of each client
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
    /// Latency of a link in milliseconds [default: as turmoil draws it, 20 ms in the mean]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    latency: Option<u64>,
}

impl CallArgs {
    fn shape(&self) -> Shape {
        Shape {
            program: self.program,
            hosts: usize::from(self.hosts),
            calls: self.calls,
            latency: self.latency.map(Duration::from_millis),
            seed: SEED,
        }
    }
}

/// Of single worlds.
const SEED: u64 = 1;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (begin, cpu) = (Instant::now(), process_cpu());
    let done = work(&cli.work);
    let (wall, cpu) = (begin.elapsed(), process_cpu().saturating_sub(cpu));
    match done {
        Ok((units, simulated)) => {
            let (wall, cpu) = (wall.as_secs_f64(), cpu.as_secs_f64());
            let simulated = simulated.as_secs_f64();
            println!("{}", json!({"work": units, "wall": wall, "cpu": cpu, "simulated": simulated}));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Units of work, and the simulated time of it. Blocks until it is done.
fn work(work: &Work) -> io::Result<(f64, Duration)> {
    match work {
        Work::Calls(args) => {
            let shape = checked(args)?;
            let count = shape.hosts as f64 / 2.0 * f64::from(shape.calls);
            Ok((count, worlds::calls(args.on, &shape)?))
        }
        Work::Idle { on, seconds } => {
            let simulated = worlds::idle(*on, Duration::from_secs(*seconds), SEED)?;
            Ok((simulated.as_secs_f64(), simulated))
        }
        Work::Seeds { shape, seeds } => {
            if shape.on == On::Turmoil {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "turmoil has no runner of seeds"));
            }
            Ok((*seeds as f64, worlds::seeds(shape.on, &checked(shape)?, *seeds)?))
        }
    }
}

fn checked(args: &CallArgs) -> io::Result<Shape> {
    let shape = args.shape();
    if !shape.hosts.is_multiple_of(2) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "--hosts: each client has a server; write an even number",
        ));
    }
    if args.on == On::Native && shape.program != Program::Kv {
        let message = "--on native: axum and tonic spawn tasks of tokio; write --on tokio";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(shape)
}

/// CPU time, user and system, that this process has used so far.
fn process_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    // The clock of a process starts at zero and nanoseconds are below a second.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
