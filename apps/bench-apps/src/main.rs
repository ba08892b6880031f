//! One sample of HTTP calls over Sockeye's sockets or the kernel's, for `sockeye bench`.
//!
//! Purpose: the performance of the sockets in an application: hyper on both ends of loopback connections, each with one call
//! in progress at a time. Both ends are tasks of one tokio runtime, or each end has a runtime of its own; the number of threads
//! is the same. The same code runs over `sockeye::tokio` and over `tokio::net`, which [`net`] makes alike. [`calls`] is the HTTP.
//!
//! Prints one line of JSON: calls a second, and the cores that were kept busy. The bench chooses the rows, interleaves the
//! samples and compares them.
//!
//! Invariants: everything is new for each sample and ends with the process. A call that fails fails the sample.
//!
//! Tests: `tests/samples.rs`.
#![forbid(unsafe_code)]

mod calls;
mod net;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use calls::{Counts, Version};
use net::{Kernel, Net, Sockeye};

/// One sample of HTTP calls; `sockeye bench` starts this
#[derive(Parser)]
#[command(name = "sockeye-bench-apps", version)]
struct Args {
    /// The protocol
    #[arg(value_enum)]
    protocol: Version,
    /// The implementation of the sockets
    #[arg(long, value_enum)]
    on: On,
    /// Open connections, each with one call under way
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: u16,
    /// Both ends in one runtime, or each in its own
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
    runtimes: u8,
    /// Seconds before the window
    #[arg(long)]
    warm_up: f64,
    /// Seconds of the window
    #[arg(long)]
    seconds: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum On {
    Sockeye,
    Kernel,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let sample = match args.on {
        On::Sockeye => sample::<Sockeye>(&args),
        On::Kernel => sample::<Kernel>(&args),
    };
    match sample {
        Ok((value, cpu)) => {
            println!("{}", json!({"value": value, "cpu": cpu}));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Calls a second, and cores used. Blocks for warm-up and window.
fn sample<N: Net>(args: &Args) -> io::Result<(f64, f64)> {
    let times = [args.warm_up, args.seconds].map(Duration::try_from_secs_f64);
    let [Ok(warm_up), Ok(timed)] = times else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a time is too long or no time"));
    };
    let cores = thread::available_parallelism()?.get();
    let (server, client) = match args.runtimes {
        1 => {
            let both = runtime(cores)?;
            (Arc::clone(&both), both)
        }
        _ => (runtime(cores.div_ceil(2))?, runtime(cores.div_ceil(2))?),
    };
    let (counts, failures) = Counts::new(args.connections);
    let listener = server.block_on(N::listen())?;
    let address = N::address(&listener)?;
    server.spawn(calls::serve::<N>(args.protocol, listener, counts.failed.clone()));
    for index in 0..args.connections {
        client.spawn(calls::call::<N>(args.protocol, address, counts.clone(), usize::from(index)));
    }
    // The first call of every connection is over when the warm-up begins.
    while counts.calls.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
        wait(&failures, Duration::from_millis(1))?;
    }
    wait(&failures, warm_up)?;
    let (before, cpu, begin) = (total(&counts.calls), process_cpu(), Instant::now());
    wait(&failures, timed)?;
    let (after, elapsed) = (total(&counts.calls), begin.elapsed().as_secs_f64());
    let cpu = process_cpu().saturating_sub(cpu).as_secs_f64();
    Ok(((after - before) as f64 / elapsed, cpu / elapsed))
}

fn runtime(threads: usize) -> io::Result<Arc<Runtime>> {
    Ok(Arc::new(Builder::new_multi_thread().worker_threads(threads).enable_all().build()?))
}

/// Sleeps, unless a task fails.
fn wait(failures: &Receiver<String>, time: Duration) -> io::Result<()> {
    match failures.recv_timeout(time) {
        Err(RecvTimeoutError::Timeout) => Ok(()),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("all calls have ended")),
        Ok(failure) => Err(io::Error::other(failure)),
    }
}

fn total(calls: &[AtomicU64]) -> u64 {
    calls.iter().map(|count| count.load(Ordering::Relaxed)).sum()
}

/// CPU time, user and system, that this process has used so far.
fn process_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    // The clock of a process starts at zero and nanoseconds are below a second.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
