//! The `sockeye-bench` program, which `sockeye bench` starts.
//!
//! Purpose: help, hidden subcommands of the processes that some workloads start, exit codes. 0: all measured; 1: something
//! failed; 2: the command line is wrong; 3: a measurement hung.
//!
//! Must not know: how anything is measured.
//!
//! Tests: `tests/bench`.
#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use sockeye_bench::workloads::{mem, rr};
use sockeye_bench::{BenchArgs, bench};
use sockeye_shared::end::{CommandError, exit_code};

/// Measure Sockeye beside the kernel, both doing the same work over loopback
#[derive(Parser)]
#[command(
    name = "sockeye-bench",
    bin_name = "sockeye bench",
    version,
    long_about = LONG_ABOUT,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    args: BenchArgs,
    #[command(subcommand)]
    helper: Option<Helper>,
}

/// What this program is when it was started by itself.
#[derive(Subcommand)]
enum Helper {
    #[command(name = rr::remote::SUBCOMMAND, hide = true)]
    RrServer(rr::remote::ServeArgs),
    #[command(name = mem::SUBCOMMAND, hide = true)]
    Hold(mem::HoldArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.helper {
        None => bench(&cli.args),
        Some(Helper::RrServer(args)) => helped(rr::remote::serve(&args)),
        Some(Helper::Hold(args)) => helped(mem::hold(&args)),
    };
    exit_code(Cli::command(), done)
}

fn helped(done: io::Result<()>) -> Result<ExitCode, CommandError> {
    done.map(|()| ExitCode::SUCCESS).map_err(CommandError::Io)
}

const LONG_ABOUT: &str = "\
Measure Sockeye beside the kernel, both doing the same work over loopback.

One program, compiled for either side, runs each workload; samples of the two sides take turns, and the \
table gives medians, the ratio of the medians with its 95 % interval, and the cores each side kept busy. \
Experiments (rcvd, input, gro, rxfree, wake; all, scale) compare the settings of one switch instead; see docs/experiments.md. The kernel's sockets use cubic where that may be set, because bbr paces even loopback. Nothing leaves \
this machine and nothing needs root.";

const EXAMPLES: &str = "\
Examples:
  sockeye bench --quick
      everything, in less than two minutes
  sockeye bench stream --connections 1,2,10,32,96
      bulk data in 64 KiB writes, one row for each number of connections
  sockeye bench stream --size 128 --nodelay
      small writes, each sent at once
  sockeye bench rr --spin off --pin split
      ping-pong between two cores by sleeping and waking alone
  sockeye bench rr --connections 10000 --threads 2
      the same on many connections, two threads a side waiting for readiness
  sockeye bench crr --clients 1,8,32 --on kernel
      connect, request, response, close; the kernel only
  sockeye bench mem --connections 100000 --touch
      memory of connections that have carried a byte each way
  sockeye bench --json --out results.jsonl
      for a program to read
  sockeye bench rcvd --variants sync,async
      two settings of one switch against each other, and the kernel
  sockeye bench wake --set grain=per_core --set spin_max=0
      an experiment with other settings of the stack
  sockeye bench --quick --apps
      the same and HTTP calls of hyper under tokio
  sockeye bench --quick --against main
      this build and that of a git revision in turns, all rows
  sockeye bench rr --connections 1,100 --against ./sockeye-before
      the same with a program that was built elsewhere, two rows
  sockeye bench tun --peers
      through a TUN device, beside gVisor's netstack and smoltcp (as root)
  sockeye bench input --dev tun --connections 10
      the settings of parallel input, with the kernel as the sender (as root)
  sockeye bench input --connections 1 --threads 1 --variants batched --pcap trace.pcapng
      the frames that cross the wire of a row, for Wireshark
  sockeye bench hostile
      what a hostile peer's segments cost, beside a good one's
  sockeye bench all --quick --report experiments.html
      every experiment and what more cores would do, on a page

Exit codes: 0 all measured, 1 something failed, 2 wrong command line, 3 a measurement hung.";
