//! The `sockeye` command.
//!
//! Purpose: subcommands, help, exit codes. 0: everything was done; 1: something was not; 2: the command
//! line is wrong; 3: a measurement hung.
//!
//! Must not know: what the subcommands do.
//!
//! Tests: `tests/cli`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use sockeye_shared::end::{CommandError, exit_code};

mod bench;
mod diag;
mod iperf3;
mod services;
mod sim;
mod tun;

use bench::BenchArgs;
use iperf3::Iperf3Args;
use sim::SimCommand;
use tun::TunArgs;

/// Sockeye: a multi-core TCP stack in user space.
#[derive(Parser)]
#[command(name = "sockeye", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure Sockeye beside the kernel, both doing the same work over loopback
    #[command(disable_help_flag = true)]
    Bench(BenchArgs),
    /// Run transfers over a simulated path and show what TCP makes of it
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimCommand),
    /// Run a stack on a TUN or TAP device, with servers that the kernel can reach (root)
    #[command(after_help = TUN_EXAMPLES)]
    Tun(TunArgs),
    /// Measure with an iperf3 server from a stack on a device of its own (root)
    #[command(after_help = IPERF3_EXAMPLES)]
    Iperf3(Iperf3Args),
    /// Show the sockets of every running stack of this user, as ss(8) does the kernel's
    #[command(after_help = DIAG_HELP)]
    Ss(diag::SsArgs),
    /// Show the counters of every running stack of this user, by the names of the kernel's MIB
    #[command(after_help = DIAG_HELP)]
    Nstat(diag::NstatArgs),
    /// Say in a sentence what limits a connection now
    #[command(after_help = DIAG_HELP)]
    Why(diag::WhyArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::bench(&args),
        Command::Sim(args) => sim::sim(&args).map_err(CommandError::Io),
        Command::Tun(args) => tun::tun(&args),
        Command::Iperf3(args) => iperf3::iperf3(&args),
        Command::Ss(args) => diag::ss(&args).map_err(CommandError::Io),
        Command::Nstat(args) => diag::nstat(&args).map_err(CommandError::Io),
        Command::Why(args) => diag::why(&args).map_err(CommandError::Io),
    };
    exit_code(Cli::command(), done)
}

const EXAMPLES: &str = "\
Examples:
  sockeye bench --quick
      everything beside the kernel, in less than two minutes
  sockeye sim --rtt 100ms --loss 0.1% --rate 1gbit
      a transfer over a simulated path
  sockeye tun --addr 10.9.0.2/24 --serve echo,iperf3
      a stack that the kernel can reach (root)

Each subcommand has more in its --help.";

const SIM_EXAMPLES: &str = "\
Examples:
  sockeye sim --rtt 100ms --loss 0.1% --rate 1gbit --streams 4 --seed 7
      four transfers over a long and fast path that loses a packet in a thousand
  sockeye sim --rtt 20ms --rate 50mbit --reorder 5% --chart course.html
      what reordering costs, with charts of sequence, window and round-trip time
  sockeye sim --rtt 10ms --rate 10mbit --queue 30K --seconds 3 --pcap course.pcapng
      a short queue, packet by packet
  sockeye sim --on kernel --rtt 50ms --rate 100mbit --loss 0.1%
      the kernel's TCP on the same path, in real time (root)
  sockeye sim matrix --seconds 20 --out sockeye.jsonl --beside linux.jsonl --html goodput.html
      one stream over all paths, beside theory and what was measured of the kernel

Equal arguments give equal results. The clock is simulated: what is printed does not depend on this machine, unless it \
is the kernel's TCP that runs.";

const TUN_EXAMPLES: &str = "\
Examples:
  sockeye tun --addr 10.9.0.2/24 --serve echo,iperf3
      a device with the kernel at 10.9.0.1; then: ping 10.9.0.2, iperf3 -c 10.9.0.2 [-R]
  sockeye tun --addr 10.9.0.2/24 --addr fd09::2/64 --serve echo,discard,chargen --tap
      both families, over Ethernet
  sockeye tun --addr 10.9.0.2/24 --serve http:80=/usr/share/doc
      files of a directory, nothing outside of it; then: curl http://10.9.0.2/
  sockeye tun --addr 10.9.0.2/24 --queues 2 --set congestion_control=bbr --serve iperf3 --seconds 60
      two input threads and another congestion control, for a minute
  sockeye tun --addr 10.9.0.2/24 --serve iperf3 --pcap trace.pcapng --snaplen 128
      with a record of what passes

Making a device needs root or CAP_NET_ADMIN. It is gone when the command ends, however that ends.
Exit codes: 0 ended as asked, 1 it cannot be done or the device went away, 2 wrong command line.";

const IPERF3_EXAMPLES: &str = "\
Examples:
  iperf3 -s -D
      a stock server, in the kernel
  sockeye iperf3 -c 10.9.0.1 --addr 10.9.0.2/24
      a stream of TCP to it for ten seconds, through a device that gives the kernel 10.9.0.1
  sockeye iperf3 -c 10.9.0.1 --addr 10.9.0.2/24 -R -P 10 -t 5
      ten streams that the server sends
  sockeye iperf3 -c fd09::1 --addr fd09::2/64 -u -b 1G --json
      datagrams, with the result as an object
  sockeye iperf3 -c 10.9.0.1 --addr 10.9.0.2/24 --tap --set congestion_control=bbr --pcap trace.pcapng
      over Ethernet with another congestion control, and a record

Making a device needs root or CAP_NET_ADMIN. It is gone when the command ends, however that ends.
Exit codes: 0 measured, 1 it cannot be done or the server said no, 2 wrong command line.";

const DIAG_HELP: &str = "\
Examples:
  sockeye ss -ti
      TCP connections with window, round trip and what they have carried, in the words of ss -ti
  sockeye ss -l
      who waits for connections or datagrams
  sockeye ss -xa
      UNIX-domain sockets, each with its number and its peer's
  sockeye nstat tcp
      counters with `tcp` in their name; -z for those that are zero too
  sockeye why 10.9.0.2:5201 10.9.0.1:40000
      what limits this connection: application, receive window, congestion window, send buffer or path

Seen are the programs of this user that show their stack: `sockeye tun`, or your own by sockeye_diag::publish.
Exit codes: 0 everything was shown, 1 a program did not answer or there is no such connection.";
