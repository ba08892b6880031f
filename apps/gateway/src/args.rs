//! The command line of the gateway.
//!
//! Does not depend on how anything is done. Tests: below.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::control::{Action, ControlArgs};
use crate::engine::inward::Ports;
use crate::frames::FramesArgs;
use crate::plan::{Network, Plan};
use crate::policy::Rules;
use crate::rates::RateArgs;
use crate::upstream::Upstream;

/// Examples, for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  sockeye gateway -- curl -sI https://example.org/
      a command with a network of its own; nothing needs root
  sockeye gateway -p 8080:80 -- ./server
      port 80 inside is port 8080 of this host
  sockeye gateway --netns 4711 --log flows.jsonl
      serve the namespace of a process that runs, such as a container's
  sockeye gateway --deny 10.0.0.0/8 --allow '*:443' -- ./untrusted
      first match decides; what matches no rule is denied as soon as there is an --allow
  sockeye gateway -p auto --ctl /run/user/1000/gw.sock -- ./servers
  sockeye gateway ctl /run/user/1000/gw.sock add 8080:80
      ports that listen inside appear outside, and more of them while it runs
  sockeye gateway --upstream socks5://127.0.0.1:1080 -- ./program
      every connection through a SOCKS server

The host's loopback, its link-local networks and the metadata addresses of clouds are refused unless a rule names them:
--allow 127.0.0.1:5432 opens that port of the host, which the inside reaches as the gateway's address (10.0.2.2).";

/// Options of `sockeye gateway`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct GatewayArgs {
    /// Serve the network namespace of a process, by its number or a path such as /run/netns/NAME, instead of running a command
    #[arg(long, value_name = "PID|PATH", conflicts_with_all = ["fd", "command"])]
    pub netns: Option<String>,
    /// How frames come in.
    #[command(flatten)]
    pub frames: FramesArgs,
    /// Threads, each with flows of its own [default: one, which others join under load, as many as there are processors and at most four]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub loops: Option<u16>,
    /// Bytes of the largest IP packet on the device
    #[arg(long, value_name = "BYTES", default_value_t = 65_520, value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    pub mtu: u32,
    /// Addresses inside, such as 10.1.0.0/24, instead of those of 10.0.2.0/24 and fd00::/64; repeatable, one of each family
    #[arg(long, value_name = "PREFIX")]
    pub network: Vec<Network>,
    /// No IPv6 inside
    #[arg(long)]
    pub ipv4_only: bool,
    /// A resolver to forward names to, instead of those of the host's /etc/resolv.conf; repeatable
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = resolver)]
    pub dns: Vec<SocketAddr>,
    /// Domains in which a name is looked for inside, instead of those of the host
    #[arg(long, value_name = "DOMAIN")]
    pub search: Vec<String>,
    /// `--allow` and `--deny`.
    #[command(flatten)]
    pub rules: Rules,
    /// A port of the host that leads inside; repeatable
    /// `auto`: each port that listens inside
    #[arg(
        short = 'p',
        long,
        value_name = "[ADDR:]HOSTPORT[-LAST][:PORT[-LAST]][/udp] | [ADDR:]auto[/tcp|/udp]"
    )]
    pub publish: Vec<Ports>,
    /// Connect onward through a proxy, by SOCKS5 or HTTP CONNECT
    #[arg(long, value_name = "socks5://[USER:PASSWORD@]HOST:PORT|http://HOST:PORT")]
    pub upstream: Option<Upstream>,
    /// Most connections and flows of datagrams at a time
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub flows_max: u32,
    /// Most packet memory of each loop, bytes
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = sockeye_shared::parse::size)]
    pub memory_max: usize,
    /// How long a loop looks for more after the last thing that came, before it sleeps, microseconds; 0: it sleeps at once
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub busy: u32,
    /// Limits on rates.
    #[command(flatten)]
    pub rates: RateArgs,
    /// The control socket.
    #[command(flatten)]
    pub control: ControlArgs,
    /// Record all packets of the device in a pcap-ng file, 1 GiB at most; with several loops in FILE, FILE.1 and so on
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Keep the file system and all system calls, for debuggers; capabilities are dropped all the same
    #[arg(long)]
    pub no_sandbox: bool,
    /// Write a JSON object a line for each flow that ends, and for each that was refused
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Say what is served, and how to use it
    #[arg(short, long)]
    pub verbose: bool,
    /// The command, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// The name of the socket of the process outside (the program starts itself inside)
    #[arg(long, hide = true, value_name = "NAME")]
    pub inside: Option<String>,
    /// Instead of all that.
    #[command(subcommand)]
    pub action: Option<Action>,
}

impl GatewayArgs {
    /// Whether loops join and leave.
    pub fn loops_join(&self) -> bool {
        // Other programs' devices have the queues that they have, packets are recorded in one file, and answers to ARP come by any queue.
        self.loops.is_none() && !self.frames.is_some() && self.pcap.is_none() && !self.frames.tap
    }

    /// Queues of the device that is made inside.
    pub fn queues(&self) -> usize {
        let processors = || thread::available_parallelism().map_or(1, usize::from).min(JOIN_MAX);
        self.loops.map_or_else(|| if self.loops_join() { processors() } else { 1 }, usize::from)
    }

    /// The addresses inside.
    pub fn plan(&self) -> Plan {
        Plan::new(&self.network)
    }
}

/// Loops, where they join under load.
const JOIN_MAX: usize = 4;

/// How long a flow of datagrams is kept without any.
pub const UDP_IDLE: Duration = Duration::from_secs(180);

/// The port of resolvers.
pub const DNS_PORT: u16 = 53;

fn resolver(text: &str) -> Result<SocketAddr, String> {
    let alone = text.parse().map(|addr: IpAddr| SocketAddr::new(addr, DNS_PORT));
    alone
        .or_else(|_| text.parse())
        .map_err(|_| "write an address, or [ADDR]:PORT, such as 192.0.2.1".to_owned())
}
