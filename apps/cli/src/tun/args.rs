//! The command line of `sockeye tun`, and the part of it that others share: a device with a stack on it.
//!
//! Does not depend on how a device is opened. Invariant: a plan that [`DeviceArgs::plan`] returns can be tried; contradictory
//! options are an error that names a correct form. Tests: below; exit codes in `tests/cli/tun.rs`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sockeye::Config;
use sockeye::netif::{CaptureConfig, Prefix, RpFilter};
use sockeye_drivers::{Layer, TunConfig};
use sockeye_shared::parse;

use crate::services::{IdleMax, Service};

/// A device, a stack on it, and the services of the stack.
#[derive(Args, Debug)]
pub struct TunArgs {
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Services: echo, discard, chargen, http=DIR, iperf3; each on its usual port unless :PORT follows its name
    #[arg(long, alias = "service", value_name = "SERVICE[:PORT][=DIR],...", value_delimiter = ',')]
    pub serve: Vec<Service>,

    /// Disconnect a client of echo, discard or chargen if no byte moves in either direction for this long; 0: never
    #[arg(long, value_name = "S", default_value = "300", value_parser = seconds)]
    pub idle_timeout: f64,

    /// Stop after this many seconds instead of at Ctrl-C
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
}

impl TunArgs {
    /// How long a client may stand still.
    pub fn idle_max(&self) -> IdleMax {
        IdleMax::new(Duration::from_secs_f64(self.idle_timeout))
    }
}

/// A device, and a stack on it.
#[derive(Args, Debug)]
pub struct DeviceArgs {
    /// Address of the stack with its prefix length, such as 10.9.0.2/24 or fd09::2/64; repeatable
    #[arg(long, value_name = "ADDR/LEN", required = true)]
    pub addr: Vec<Prefix>,

    /// Address of the kernel's side, or `none` to configure nothing there; repeatable
    /// [default: the first other address of each network; of IPv4, of the first network only]
    #[arg(long, value_name = "ADDR/LEN", value_parser = peer)]
    pub peer_addr: Vec<Peer>,

    /// Name of the device; %d stands for the first free number [default: the first free of sock0, sock1 and so on]
    #[arg(long, default_value = "sock%d", hide_default_value = true)]
    pub name: String,

    /// Exchange Ethernet frames instead of IP packets, with ARP and Neighbor Discovery
    #[arg(long)]
    pub tap: bool,

    /// Number of queues; each gets one input thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub queues: usize,

    /// Size of the largest IP packet [default: the device's, 1500]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u32>,

    /// Exchange packets as they are on a wire: with checksums, and no longer than the MTU
    #[arg(long)]
    pub no_offload: bool,

    /// Limit frames to 64 KiB where the kernel would take 256 KiB (BIG TCP), for programs that capture packets and cannot read those
    #[arg(long)]
    pub no_big_tcp: bool,

    /// Drop packets whose source has no route back (RFC 3704): through this device (strict), or through any (loose)
    #[arg(long, value_name = "off|loose|strict", default_value = "off", value_parser = rp_filter)]
    pub rp_filter: RpFilter,

    /// Set a field of the stack's configuration, such as congestion_control=bbr or rcvbuf_max=16M; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::key_value)]
    pub set: Vec<(String, String)>,

    /// Write all frames of the device to a pcap-ng file
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// Largest size of the pcap-ng file; later frames are not recorded
    #[arg(long, value_name = "BYTES", default_value = "1024M", value_parser = parse::size, requires = "pcap")]
    pub pcap_max: usize,

    /// Bytes recorded of each frame [default: all]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..), requires = "pcap")]
    pub snaplen: Option<u32>,
}

/// The settings of the kernel's side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// Nothing.
    None,
    /// This address.
    Addr(Prefix),
}

/// The plan of the command line.
#[derive(Debug)]
pub struct Plan {
    pub device: TunConfig,
    pub stack: Config,
    /// The stack's addresses.
    pub addrs: Vec<Prefix>,
    /// The kernel's addresses.
    pub kernel: Vec<Prefix>,
    /// Addresses that the kernel would have too, if its device could have more than one of IPv4.
    pub left_out: Vec<Prefix>,
    pub rp_filter: RpFilter,
    pub capture: Option<CaptureConfig>,
}

impl DeviceArgs {
    /// Checks options that belong together.
    ///
    /// # Errors
    /// The contradiction, as a sentence.
    pub fn plan(&self) -> Result<Plan, String> {
        let mut stack = Config::default();
        for (key, value) in &self.set {
            stack.set(key, value).map_err(|error| error.to_string())?;
        }
        stack.validate().map_err(|error| error.to_string())?;
        let device = TunConfig {
            name: self.name.clone(),
            layer: if self.tap { Layer::Ethernet } else { Layer::Ip },
            queues: self.queues,
            offload: !self.no_offload,
            big_tcp: !self.no_big_tcp,
            mtu: self.mtu,
            ..TunConfig::default()
        };
        let capture = self.pcap.as_ref().map(|path| CaptureConfig {
            file_max: self.pcap_max as u64,
            snaplen: self.snaplen.unwrap_or(CaptureConfig::to(path).snaplen),
            ..CaptureConfig::to(path)
        });
        let ((kernel, left_out), rp_filter) = (self.kernel()?, self.rp_filter);
        Ok(Plan { device, stack, addrs: self.addr.clone(), kernel, left_out, rp_filter, capture })
    }

    /// The kernel's addresses, as they were given or as they suggest themselves, and those that its device has no room for.
    fn kernel(&self) -> Result<(Vec<Prefix>, Vec<Prefix>), String> {
        let given = self.peer_addr.iter().filter_map(|peer| match peer {
            Peer::None => None,
            Peer::Addr(addr) => Some(*addr),
        });
        let given: Vec<Prefix> = given.collect();
        if self.peer_addr.contains(&Peer::None) && !given.is_empty() {
            return Err("--peer-addr none and another --peer-addr: give one or the other".to_owned());
        }
        if let Some(twice) = given.iter().find(|peer| self.addr.iter().any(|own| own.addr() == peer.addr())) {
            return Err(format!("{} cannot be on both sides of the device", twice.addr()));
        }
        // The kernel's device has one IPv4 address: the second would take the place of the first.
        if given.iter().filter(|peer| peer.addr().is_ipv4()).count() > 1 {
            return Err("more than one IPv4 --peer-addr: add the others by `ip addr add`".to_owned());
        }
        if !self.peer_addr.is_empty() {
            return Ok((given, Vec::new()));
        }
        let (mut peers, mut left_out): (Vec<Prefix>, Vec<Prefix>) = (Vec::new(), Vec::new());
        for own in &self.addr {
            if peers.iter().chain(&left_out).any(|peer| peer.network() == own.network()) {
                continue;
            }
            let is_second = own.addr().is_ipv4() && peers.iter().any(|peer| peer.addr().is_ipv4());
            let list = if is_second { &mut left_out } else { &mut peers };
            list.extend(other_host(*own, &self.addr));
        }
        Ok((peers, left_out))
    }
}

/// The first address of the network of `own` that is none of `taken`. `None` if the network has no other.
fn other_host(own: Prefix, taken: &[Prefix]) -> Option<Prefix> {
    let base = own.network().addr();
    // A network of two has no address of its own (RFC 3021, RFC 6164).
    let is_pair = own.len() == if base.is_ipv4() { 31 } else { 127 };
    // One more than there are addresses to keep clear of.
    let candidates = (u32::from(!is_pair)..=taken.len() as u32 + 1).filter_map(|step| {
        Some(match base {
            IpAddr::V4(base) => IpAddr::V4(base.to_bits().checked_add(step)?.into()),
            IpAddr::V6(base) => IpAddr::V6(base.to_bits().checked_add(u128::from(step))?.into()),
        })
    });
    let is_free = |addr: &IpAddr| {
        own.contains(*addr) && own.broadcast() != Some(*addr) && taken.iter().all(|own| own.addr() != *addr)
    };
    Prefix::new(candidates.into_iter().find(is_free)?, own.len()).ok()
}

fn peer(text: &str) -> Result<Peer, String> {
    if text == "none" {
        return Ok(Peer::None);
    }
    text.parse().map(Peer::Addr).map_err(|error| format!("{error}; or none"))
}

fn rp_filter(text: &str) -> Result<RpFilter, String> {
    match text {
        "off" => Ok(RpFilter::Off),
        "loose" => Ok(RpFilter::Loose),
        "strict" => Ok(RpFilter::Strict),
        _ => Err("give off, loose or strict".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|s| (0.0..=1e9).contains(s))
        .ok_or_else(|| "give seconds, such as 10 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TunArgs,
    }

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("tun").chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string())?.args.device.plan()
    }

    fn kernel(line: &str) -> Vec<String> {
        plan(line).unwrap().kernel.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_kernel_gets_the_first_other_address_of_each_network() {
        assert_eq!(kernel("--addr 10.9.0.2/24"), ["10.9.0.1/24"]);
        assert_eq!(kernel("--addr 10.9.0.1/24 --addr fd09::1/64"), ["10.9.0.2/24", "fd09::2/64"]);
        assert_eq!(kernel("--addr 10.9.0.1/24 --addr 10.9.0.2/24"), ["10.9.0.3/24"]);
        assert_eq!(kernel("--addr 10.9.0.2/24 --peer-addr 10.9.0.9/16"), ["10.9.0.9/16"]);
        assert!(kernel("--addr 10.9.0.2/24 --peer-addr none").is_empty());
        assert!(kernel("--addr 10.9.0.2/32").is_empty(), "no other host is in that network");
        assert!(kernel("--addr fd09::1/128").is_empty());
    }

    #[test]
    fn a_network_of_two_has_no_address_that_is_not_a_hosts() {
        for (own, other) in [
            ("10.9.0.1/31", "10.9.0.0/31"),
            ("10.9.0.0/31", "10.9.0.1/31"),
            ("fd09::1/127", "fd09::/127"),
            ("fd09::/127", "fd09::1/127"),
        ] {
            assert_eq!(kernel(&format!("--addr {own}")), [other]);
        }
        assert!(kernel("--addr 10.9.0.1/31 --addr 10.9.0.0/31").is_empty());
    }

    #[test]
    fn of_several_networks_of_ipv4_the_kernel_is_in_the_first_and_the_others_are_named() {
        let plan =
            plan("--addr 10.9.0.2/24 --addr fd09::1/64 --addr 10.10.0.2/24 --addr 10.10.0.3/24").unwrap();
        let text = |prefixes: &[Prefix]| prefixes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(&plan.kernel), ["10.9.0.1/24", "fd09::2/64"]);
        assert_eq!(text(&plan.left_out), ["10.10.0.1/24"]);
    }

    #[test]
    fn impossible_arguments_are_refused() {
        for (line, expected) in [
            ("", "--addr"),
            ("--addr 10.9.0.2", "10.9.0.2"),
            ("--addr 10.9.0.2/24 --peer-addr 10.9.0.2/24", "both sides"),
            ("--addr 10.9.0.2/24 --peer-addr none --peer-addr 10.9.0.3/24", "one or the other"),
            ("--addr 10.9.0.2/24 --peer-addr 10.9.0.3/24 --peer-addr 10.9.0.4/24", "ip addr add"),
            ("--addr 10.9.0.2/24 --set sndbuff=1", "sndbuff"),
            ("--addr 10.9.0.2/24 --set sndbuf=1", "sndbuf"),
            ("--addr 10.9.0.2/24 --serve finger", "no service"),
            ("--addr 10.9.0.2/24 --rp-filter on", "off, loose or strict"),
            ("--addr 10.9.0.2/24 --pcap-max 1M", "--pcap"),
            ("--addr 10.9.0.2/24 --seconds=-1", "seconds"),
            ("--addr 10.9.0.2/24 --idle-timeout=-1", "seconds"),
            ("--addr 10.9.0.2/24 --idle-timeout soon", "seconds"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn settings_reach_the_device_the_stack_and_the_record() {
        let plan = plan(
            "--addr 10.9.0.2/24 --tap --queues 2 --mtu 9000 --no-offload --no-big-tcp --rp-filter strict --set sndbuf=1M --pcap x --pcap-max 2M",
        )
        .unwrap();
        assert_eq!((plan.device.layer, plan.device.queues), (Layer::Ethernet, 2));
        assert_eq!((plan.device.mtu, plan.device.offload, plan.device.big_tcp), (Some(9000), false, false));
        assert_eq!(plan.stack.sndbuf, 1 << 20);
        assert_eq!(plan.rp_filter, RpFilter::Strict);
        assert_eq!(plan.capture.unwrap().file_max, 2 << 20);
    }
}
