//! The `sockeye` command.
//!
//! Purpose: subcommands, help, exit codes. 0: everything was done; 1: something was not; 2: the command
//! line is wrong; 3: a measurement hung.
//!
//! Does not depend on the work of the subcommands.
//!
//! Tests: `tests/cli`.
#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use sockeye_gateway::GatewayArgs;
use sockeye_shared::end::{CommandError, exit_code};
use sockeye_shared::manual::{self, CompletionsArgs, ManArgs};

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

/// Run, measure and inspect Sockeye, a multi-core socket stack in user space
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
    /// Run TCP transfers over a simulated path; report goodput and retransmissions
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimCommand),
    /// Run a stack on a TUN or TAP device, with servers that the kernel can reach (needs root)
    #[command(after_help = TUN_EXAMPLES)]
    Tun(TunArgs),
    /// Give a command, a namespace or a container a network, without root
    #[command(after_help = sockeye_gateway::EXAMPLES)]
    Gateway(Box<GatewayArgs>),
    /// Measure to an iperf3 server, from a stack on a device of its own (needs root)
    #[command(after_help = IPERF3_EXAMPLES)]
    Iperf3(Iperf3Args),
    /// Show the sockets of every running stack of this user, as ss(8) does the kernel's
    #[command(after_help = DIAG_HELP)]
    Ss(diag::SsArgs),
    /// Show the counters of every running stack of this user, by the names of the kernel's MIB
    #[command(after_help = DIAG_HELP)]
    Nstat(diag::NstatArgs),
    /// Explain in a sentence what limits a connection now
    #[command(after_help = DIAG_HELP)]
    Why(diag::WhyArgs),
    /// Write completions for a shell to standard output
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write the man pages of this command
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut Cli::command()).exit());
    let done = match cli.command {
        Command::Bench(args) => bench::bench(&args),
        Command::Sim(args) => sim::sim(&args).map_err(CommandError::Io),
        Command::Tun(args) => tun::tun(&args),
        Command::Gateway(args) => sockeye_gateway::run(&args, &["gateway"]),
        Command::Iperf3(args) => iperf3::iperf3(&args),
        Command::Ss(args) => diag::ss(&args),
        Command::Nstat(args) => diag::nstat(&args).map_err(CommandError::Io),
        Command::Why(args) => diag::why(&args).map_err(CommandError::Io),
        Command::Completions(args) => written(manual::completions(&args, Cli::command())),
        Command::Man(args) => written(man(&args)),
    };
    exit_code(Cli::command(), &matches, done)
}

/// The pages of this program, and into a directory that of the measuring program too, if it is there.
fn man(args: &ManArgs) -> io::Result<()> {
    manual::man(args, Cli::command())?;
    args.dir.as_deref().map_or(Ok(()), bench::man)
}

fn written(done: io::Result<()>) -> Result<ExitCode, CommandError> {
    done.map(|()| ExitCode::SUCCESS).map_err(CommandError::Io)
}

const EXAMPLES: &str = "\
Examples:
  sockeye bench --quick
      everything beside the kernel, in less than two minutes
  sockeye sim --rtt 100ms --loss 0.1% --rate 1gbit
      a TCP transfer over a simulated path
  sockeye tun --addr 10.9.0.2/24 --serve echo,iperf3
      a stack that the kernel can reach (needs root)
  sockeye gateway -- curl -sI https://example.org/
      a command whose network is a stack in this process, without root
  sockeye ss -ti
      the connections of every running stack of this user

`sockeye COMMAND --help` has more examples. Exit codes: 0 done, 1 failed, 2 wrong command line, 3 a measurement hung.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  sockeye completions bash > ~/.local/share/bash-completion/completions/sockeye
      for bash, which reads them when it first completes the command
  sockeye completions fish > ~/.config/fish/completions/sockeye.fish
      for fish
  sockeye completions zsh > ~/.zfunc/_sockeye
      for zsh, with ~/.zfunc in its fpath

Behind `sockeye bench`, only file names are completed: it starts another program, sockeye-bench, whose completions \
`sockeye bench completions SHELL` writes.";

const MAN_EXAMPLES: &str = "\
Examples:
  sockeye man | man -l -
      read the main page
  sockeye man ~/.local/share/man/man1
      write the pages of all commands; then: man sockeye, man sockeye-tun

The page of `sockeye bench` is complete if the program sockeye-bench is beside this one.";

const SIM_EXAMPLES: &str = "\
Examples:
  sockeye sim --rtt 100ms --loss 0.1% --rate 1gbit --streams 4 --seed 7
      four transfers over a long, fast path that loses one packet in a thousand
  sockeye sim --rtt 20ms --rate 50mbit --reorder 5% --chart course.html
      what reordering costs, with charts of sequence number, window and round-trip time
  sockeye sim --rtt 10ms --rate 10mbit --queue 30K --seconds 3 --pcap course.pcapng
      a short queue, with all packets in a capture file
  sockeye sim --on kernel --rtt 50ms --rate 100mbit --loss 0.1%
      the kernel's TCP on the same path, in real time (needs root)
  sockeye sim matrix --seconds 20 --out sockeye.jsonl --beside linux.jsonl --html goodput.html
      one stream over many paths, beside theory and the kernel's results

The clock is simulated: equal arguments give equal results on every machine. With --on kernel, the kernel's TCP runs in real time.
Exit codes: 0 done, 1 failed, 2 wrong command line.";

const TUN_EXAMPLES: &str = "\
Examples:
  sockeye tun --addr 10.9.0.2/24 --serve echo,iperf3
      a device with the kernel at 10.9.0.1; then: ping 10.9.0.2, iperf3 -c 10.9.0.2 [-R]
  sockeye tun --addr 10.9.0.2/24 --addr fd09::2/64 --serve echo,discard,chargen --tap
      both families, over Ethernet
  sockeye tun --addr 10.9.0.2/24 --serve http:80=/usr/share/doc
      the files of a directory, and nothing outside of it; then: curl http://10.9.0.2/
  sockeye tun --addr 10.9.0.2/24 --queues 2 --set congestion_control=bbr --serve iperf3 --seconds 60
      two input threads and another congestion control, for a minute
  sockeye tun --addr 10.9.0.2/24 --serve iperf3 --pcap trace.pcapng --snaplen 128
      with a capture of all frames, cut to 128 bytes each

Creating a device needs root or CAP_NET_ADMIN. The kernel removes it when the command ends, however it ends.
Exit codes: 0 stopped as asked, 1 failed or the device went away, 2 wrong command line.";

const IPERF3_EXAMPLES: &str = "\
Examples:
  iperf3 -s -D
      a stock server, on the kernel's TCP
  sockeye iperf3 -c 10.9.0.1 --addr 10.9.0.2/24
      one TCP stream to it for ten seconds, through a device on which the kernel has the address 10.9.0.1
  sockeye iperf3 -c 10.9.0.1 --addr 10.9.0.2/24 -R -P 10 -t 5
      ten streams that the server sends
  sockeye iperf3 -c fd09::1 --addr fd09::2/64 -u -b 1G --json
      datagrams, with the result as a JSON object
  sockeye iperf3 -c 10.9.0.1 --addr 10.9.0.2/24 --tap --set congestion_control=bbr --pcap trace.pcapng
      over Ethernet, with another congestion control algorithm and a capture

Creating a device needs root or CAP_NET_ADMIN. The kernel removes it when the command ends, however it ends.
Exit codes: 0 measured, 1 failed or the server refused, 2 wrong command line.";

const DIAG_HELP: &str = "\
Examples:
  sockeye ss -ti
      TCP connections with window, round trip and bytes carried, in the format of ss -ti
  sockeye ss -l
      listeners and datagram sockets without a peer
  sockeye ss -xa
      UNIX-domain sockets, each with its number and that of its peer
  sockeye nstat tcp
      counters with `tcp` in their name; add -z for those that are zero
  sockeye why 10.9.0.2:5201 10.9.0.1:40000
      what limits this connection: application, receive window, congestion window, send buffer or path

These commands ask the programs of this user that publish their stack: `sockeye tun`, and your own if they call sockeye_diag::publish.
Exit codes: 0 all shown, 1 a program did not answer or there is no such connection, 2 wrong command line.";
