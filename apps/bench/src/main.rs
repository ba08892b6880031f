//! The `sockeye-bench` program, which `sockeye bench` starts.
//!
//! Purpose: help, hidden subcommands of the processes that some workloads start, exit codes. 0: all measured; 1: something
//! failed; 2: the command line is wrong; 3: a measurement hung.
//!
//! Does not depend on how anything is measured.
//!
//! Tests: `tests/bench`.
#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use sockeye_bench::workloads::{mem, rr};
use sockeye_bench::{BenchArgs, bench, gateway};
use sockeye_shared::end::{CommandError, exit_code};
use sockeye_shared::manual::{self, CompletionsArgs, ManArgs};

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

/// The child processes of this program, and the documents of its own command line.
#[derive(Subcommand)]
enum Helper {
    #[command(name = rr::remote::SUBCOMMAND, hide = true)]
    RrServer(rr::remote::ServeArgs),
    /// Measure the gateway of rootless namespaces beside slirp4netns and pasta
    #[command(after_help = gateway::EXAMPLES)]
    Gateway(gateway::GatewayBenchArgs),
    #[command(name = gateway::HOLD_SUBCOMMAND, hide = true)]
    GatewayHold,
    #[command(name = mem::SUBCOMMAND, hide = true)]
    Hold(mem::HoldArgs),
    /// Write completions for a shell to standard output
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the man page of this program
    #[command(hide = true)]
    Man(ManArgs),
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut Cli::command()).exit());
    let done = match cli.helper {
        None => bench(&cli.args),
        Some(Helper::RrServer(args)) => helped(rr::remote::serve(&args)),
        Some(Helper::Gateway(args)) => gateway::run(&args),
        Some(Helper::GatewayHold) => helped(gateway::hold_connections()),
        Some(Helper::Hold(args)) => helped(mem::hold(&args)),
        Some(Helper::Completions(args)) => helped(manual::completions(&args, Cli::command())),
        Some(Helper::Man(args)) => helped(manual::man(&args, Cli::command())),
    };
    exit_code(Cli::command(), &matches, done)
}

fn helped(done: io::Result<()>) -> Result<ExitCode, CommandError> {
    done.map(|()| ExitCode::SUCCESS).map_err(CommandError::Io)
}

const LONG_ABOUT: &str = "\
Measure Sockeye beside the kernel, both doing the same work over loopback.

The same code, compiled for either side, runs each workload. Samples of the two sides take turns, and the table shows medians, their \
ratio with its 95 % interval, and the number of cores that each side kept busy. Experiments (rcvd, input, gro, rxfree, wake; all, scale) compare \
the settings of one switch instead; docs/experiments.md describes them. The kernel's sockets use cubic where that can be set, because bbr paces even on loopback. No packet leaves \
this machine, and nothing needs root unless it says so.";

const EXAMPLES: &str = "\
Examples:
  sockeye bench --quick
      all workloads, in less than two minutes
  sockeye bench stream --connections 1,2,10,32,96
      bulk data in 64 KiB writes, one row for each number of connections
  sockeye bench stream --size 128 --nodelay
      small writes, each sent at once
  sockeye bench rr --spin off --pin split
      request and response between two cores, by sleeping and waking alone
  sockeye bench rr --connections 10000 --threads 2
      the same on many connections, two threads a side waiting for readiness
  sockeye bench crr --clients 1,8,32 --on kernel
      connect, request, response, close; only the kernel
  sockeye bench mem --connections 100000 --touch
      memory of connections that have carried one byte each way
  sockeye bench --json --out results.jsonl
      results for a program to read
  sockeye bench rcvd --variants sync,async
      two settings of one switch, and the kernel
  sockeye bench wake --set grain=per_core --set spin_max=0
      an experiment with other settings of the stack
  sockeye bench --quick --apps
      all workloads, and HTTP calls of hyper under tokio
  sockeye bench --quick --against main
      this build and that of a git revision in turns, on all rows
  sockeye bench rr --connections 1,100 --against ./sockeye-before
      this build and a program built elsewhere, on two rows
  sockeye bench tun --peers
      through a TUN device, beside gVisor's netstack and smoltcp (needs root)
  sockeye bench input --dev tun --connections 10
      the settings of parallel input, with the kernel as the sender (needs root)
  sockeye bench input --connections 1 --threads 1 --variants batched --pcap trace.pcapng
      one row, with a capture of its frames for Wireshark
  sockeye bench patterns --count 500
      patterns of traffic drawn from a seed, those slower than the kernel first (devices need root)
  sockeye bench patterns --only 17 --samples 9
      one of them, nine times
  sockeye bench hostile
      cost of a hostile peer's segments, beside those of an ordinary peer
  sockeye bench sim --rows many,two --goals
      the simulator beside turmoil: calls of 100 hosts and of 2, in a second of CPU time
  sockeye bench all --quick --report experiments.html
      all experiments and predictions for more cores, as an HTML page

`sockeye bench completions SHELL` writes completions for the program sockeye-bench, `sockeye bench man` its man page.
Exit codes: 0 all measured, 1 something failed, 2 wrong command line, 3 a measurement hung.";
