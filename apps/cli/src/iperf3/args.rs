//! The command line of `sockeye iperf3`.
//!
//! Flags are iperf3's own where it has them. Does not depend on the protocol. Tests: below; exit codes in
//! `tests/cli/iperf3.rs`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;
use sockeye_shared::parse;

use crate::services::Kind;
use crate::services::iperf3::client::Wishes;
use crate::services::iperf3::protocol::{Params, STREAMS_MAX};
use crate::tun::DeviceArgs;

/// A measurement with an iperf3 server.
#[derive(Args, Debug)]
pub struct Iperf3Args {
    /// The server: the kernel's address on the device, another address that the device leads to, or a name of either
    #[arg(short, long, value_name = "HOST")]
    pub client: String,

    /// Port of the server
    #[arg(short, long, default_value_t = Kind::IPERF3_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Send datagrams (UDP) instead of a TCP stream
    #[arg(short, long)]
    pub udp: bool,

    /// Seconds to measure
    #[arg(short, long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub time: u32,

    /// Transfer this many bytes instead of measuring for a time; total of all streams in a direction, such as 100M
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = parse::amount, conflicts_with = "time")]
    pub bytes: Option<u64>,

    /// Number of parallel streams
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=STREAMS_MAX as i64))]
    pub parallel: u16,

    /// Receive from the server instead of sending to it
    #[arg(short = 'R', long)]
    pub reverse: bool,

    /// Send and receive at once, on separate streams
    #[arg(long, conflicts_with = "reverse")]
    pub bidir: bool,

    /// Bits per second of each stream, such as 100M or 1G; 0: no limit [default: 0, for UDP 1M]
    #[arg(short, long, value_name = "RATE", value_parser = parse::bitrate)]
    pub bitrate: Option<u64>,

    /// Size of a write or of a datagram [default: 128K, for UDP the largest that fits into a packet]
    #[arg(short, long, value_name = "BYTES", value_parser = parse::size)]
    pub length: Option<usize>,

    /// Socket buffer size at both ends, 2K to 64M [default: the buffers grow as needed]
    #[arg(short, long, value_name = "BYTES", value_parser = window)]
    pub window: Option<usize>,

    /// Seconds between two lines of output; 0: only the final result
    #[arg(short, long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,

    /// Send each write at once (TCP_NODELAY)
    #[arg(short = 'N', long)]
    pub no_delay: bool,

    /// Print one JSON object at the end, with iperf3's names
    #[arg(short = 'J', long)]
    pub json: bool,

    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Bits a second of a stream of datagrams unless told otherwise, as in iperf3.
const UDP_BITRATE: u64 = 1 << 20;

impl Iperf3Args {
    /// What to measure.
    ///
    /// # Errors
    /// The contradiction, as a sentence.
    pub fn wishes(&self) -> Result<Wishes, String> {
        let to = SocketAddr::new(self.server()?, self.port);
        let len = self.length.unwrap_or(0);
        let params = Params {
            udp: self.udp,
            time: if self.bytes.is_some() { 0 } else { u64::from(self.time) },
            num: self.bytes.unwrap_or(0),
            window: self.window.unwrap_or(0),
            bidirectional: self.bidir,
            parallel: usize::from(self.parallel),
            reverse: self.reverse,
            len,
            bandwidth: self.bitrate.unwrap_or(if self.udp { UDP_BITRATE } else { 0 }),
            nodelay: self.no_delay,
            udp_counters_64bit: self.udp,
            ..Params::default()
        };
        if let Some(refusal) = params.refusal().filter(|_| self.length.is_some()) {
            return Err(refusal);
        }
        let every = Duration::from_secs_f64(self.interval);
        Ok(Wishes { host: self.client.clone(), to, params, every })
    }

    /// The server's address. A name is looked up by the host's own resolver, before the device is made: it may well answer
    /// by a way that the device takes over.
    fn server(&self) -> Result<IpAddr, String> {
        let name = &self.client;
        let found: Vec<IpAddr> = match name.parse() {
            Ok(addr) => vec![addr],
            Err(_) => (name.as_str(), self.port)
                .to_socket_addrs()
                .map_err(|error| format!("-c {name}: no address of that name: {error}"))?
                .map(|found| found.ip())
                .collect(),
        };
        let own = || self.device.addr.iter().map(|prefix| prefix.addr());
        let Some(server) = found.iter().find(|addr| own().any(|own| own.is_ipv4() == addr.is_ipv4())) else {
            let version = if found.iter().any(IpAddr::is_ipv4) { "IPv4" } else { "IPv6" };
            return Err(format!("-c {name} and no --addr of {version}: give one"));
        };
        if own().any(|own| own == *server) {
            return Err(format!("-c {name} is an --addr of this very stack: give the server's"));
        }
        if server.is_loopback() {
            let message = format!("-c {name} is {server}, this host's loopback, to which no device leads");
            return Err(format!("{message}: give the server's address on the device"));
        }
        Ok(*server)
    }
}

fn window(text: &str) -> Result<usize, String> {
    let bytes = parse::size(text)?;
    if WINDOWS.contains(&bytes) { Ok(bytes) } else { Err("give 2K to 64M".to_owned()) }
}

/// Bytes that a socket's buffer may have.
const WINDOWS: RangeInclusive<usize> = 2 << 10..=64 << 20;

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| *s == 0.0 || (0.1..=3600.0).contains(s));
    seconds.ok_or_else(|| "give seconds from 0.1 to 3600, or 0".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Iperf3Args,
    }

    fn wishes(line: &str) -> Result<Wishes, String> {
        let words = ["iperf3", "--addr", "10.9.0.2/24"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string())?.args.wishes()
    }

    #[test]
    fn flags_are_those_of_iperf3_with_its_defaults() {
        let plain = wishes("-c 10.9.0.1").unwrap();
        assert_eq!(plain.to, "10.9.0.1:5201".parse().unwrap());
        assert_eq!((plain.params.time, plain.params.parallel, plain.params.bandwidth), (10, 1, 0));
        let all = wishes("-c 10.9.0.1 -p 99 -u -t 3 -P 4 -R -b 2M -l 1000 -i 0 -N -J").unwrap();
        assert!(all.params.udp && all.params.reverse && all.params.nodelay && all.params.udp_counters_64bit);
        assert_eq!((all.to.port(), all.params.parallel, all.params.bandwidth), (99, 4, 2_000_000));
        assert_eq!((all.params.len, all.every), (1000, Duration::ZERO));
        let other = wishes("-c 10.9.0.1 -n 3M -w 256K --bidir -P 2").unwrap();
        assert_eq!((other.params.num, other.params.time, other.params.window), (3 << 20, 0, 256 << 10));
        assert_eq!((other.params.bidirectional, other.params.stream_count()), (true, 4));
        assert_eq!(wishes("-c 10.9.0.1 -u").unwrap().params.bandwidth, 1 << 20);
    }

    #[test]
    fn a_name_is_resolved_and_a_loopback_address_is_refused() {
        // Every host has this name.
        let message = wishes("-c localhost").unwrap_err();
        assert!(
            message.contains("localhost") && (message.contains("loopback") || message.contains("IPv6")),
            "{message}"
        );
        assert_eq!(wishes("-c 10.9.0.1").unwrap().host, "10.9.0.1");
    }

    #[test]
    fn impossible_arguments_are_refused_before_anything_is_created() {
        for (line, expected) in [
            ("", "--client"),
            ("-c fd09::1", "IPv6"),
            ("-c 10.9.0.2", "very stack"),
            ("-c 10.9.0.1 -P 129", "129"),
            ("-c 10.9.0.1 -u -l 70000", "16 to 65507"),
            ("-c 10.9.0.1 -l 2M", "1048576"),
            ("-c 10.9.0.1 -i 0.01", "0.1 to 3600"),
            ("-c 10.9.0.1 -b fast", "100M"),
            ("-c 10.9.0.1 -n 0", "100M or 4G"),
            ("-c 10.9.0.1 -n 1M -t 3", "--time"),
            ("-c 10.9.0.1 --bidir -R", "--reverse"),
            ("-c 10.9.0.1 -w 1K", "2K to 64M"),
            ("-c 127.0.0.1", "loopback"),
            ("-c no.such.host.invalid", "no address of that name"),
        ] {
            let message = wishes(line).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
