//! `soak`: runs the checkers' seeds for as long as one likes.
//!
//! Purpose: find faults that some hundred seeds do not. A seed that fails is printed with the command that replays it
//! and the file of its packets, and ends the run, unless it is to go on. Exit codes: 0 all seeds passed, 1 one failed,
//! 2 wrong command line. Does not depend on the checkers' rules. Tests: `tests/hosts/checkers.rs`.
#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sockeye_sim::check::{Summary, run_seed};

const USAGE: &str = "\
usage: soak [--first SEED] [--seeds COUNT | --seconds SECONDS] [--keep-going]

Runs random worlds against the checkers, one for each seed from SEED (default 0) on: COUNT of them (default 1000), or for so
many seconds. Ends with the first that fails, unless it is to keep going.";

struct Args {
    first: u64,
    seeds: u64,
    seconds: Option<u64>,
    keep_going: bool,
}

/// Reads the command line by hand: users of the library in tests should not have to build a parser for this.
fn arguments(mut args: impl Iterator<Item = String>) -> Option<Args> {
    let mut read = Args { first: 0, seeds: 1000, seconds: None, keep_going: false };
    while let Some(arg) = args.next() {
        let mut number = || args.next()?.parse().ok();
        match arg.as_str() {
            "--first" => read.first = number()?,
            "--seeds" => read.seeds = number()?,
            "--seconds" => read.seconds = Some(number()?),
            "--keep-going" => read.keep_going = true,
            _ => return None,
        }
    }
    Some(read)
}

/// What a seed is depends on whether there are programs of tokio.
const COMMAND: &str = if cfg!(feature = "tokio") {
    "cargo run --release -p sockeye-sim --features tokio --bin soak"
} else {
    "cargo run --release -p sockeye-sim --bin soak"
};

/// How often progress is reported.
const PROGRESS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let Some(args) = arguments(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let (mut reported, mut total, mut failed) = (start, Summary::default(), Vec::new());
    let mut seed = args.first;
    let is_over = |seed: u64| match args.seconds {
        Some(seconds) => start.elapsed() >= Duration::from_secs(seconds),
        None => seed - args.first >= args.seeds,
    };
    while !is_over(seed) {
        let replay = format!("{COMMAND} -- --first {seed} --seeds 1");
        match catch_unwind(|| run_seed(seed, Some(replay))) {
            Ok(summary) => add(&mut total, &summary),
            Err(_) => failed.push(seed),
        }
        seed += 1;
        if !failed.is_empty() && !args.keep_going {
            break;
        }
        if reported.elapsed() >= PROGRESS {
            reported = Instant::now();
            progress(seed - args.first, &total, failed.len(), start);
        }
    }
    progress(seed - args.first, &total, failed.len(), start);
    println!();
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed seeds: {failed:?}");
    ExitCode::FAILURE
}

fn add(total: &mut Summary, one: &Summary) {
    total.conversations += one.conversations;
    total.clean += one.clean;
    total.bytes += one.bytes;
    total.faults += one.faults;
    total.retransmitted += one.retransmitted;
    total.crashes += one.crashes;
    total.unix_bytes += one.unix_bytes;
    total.requests += one.requests;
    total.seconds += one.seconds;
}

/// One line, over and over on a terminal.
fn progress(seeds: u64, total: &Summary, failed: usize, start: Instant) {
    let mut out = std::io::stdout();
    let end = if out.is_terminal() { "\r" } else { "\n" };
    let Summary {
        conversations,
        clean,
        bytes,
        faults,
        retransmitted,
        crashes,
        unix_bytes,
        requests,
        seconds,
    } = *total;
    let _ = write!(
        out,
        "{seeds} seeds in {:.0?}: {failed} failed; {clean} of {conversations} conversations clean, {} MB, {} MB of UNIX sockets, {requests} \
         requests to tokio's tasks, {faults} faults, {retransmitted} retransmissions, {crashes} crashes, {} simulated hours{end}",
        start.elapsed(),
        bytes / 1_000_000,
        unix_bytes / 1_000_000,
        seconds / 3600,
    );
    let _ = out.flush();
}
