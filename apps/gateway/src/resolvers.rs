//! The host's resolv.conf(5): its resolvers and domains.
//!
//! What a line says that is not known, or not well written, is skipped and the rest counts, as in the C library. Bytes that are no text stand in the way of their line alone.
//!
//! Tests: below.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use resolv_conf::{Config, ScopedIp};
use sockeye_drivers::link::KernelLink;

use crate::args::{DNS_PORT, GatewayArgs};

/// The system's file.
pub const PATH: &str = "/etc/resolv.conf";
/// Resolvers that are asked, at most (resolv.conf(5): MAXNS).
const RESOLVERS_MAX: usize = 3;

/// How long a resolver is waited for before the next one is asked, at most.
const NEXT_AFTER: Duration = Duration::from_secs(2);

/// Where names are forwarded to.
pub struct Resolvers {
    /// The resolvers, in order.
    pub addrs: Vec<SocketAddr>,
    /// How long one is waited for before the next one is asked, too.
    pub next_after: Duration,
}

/// The text of the host's file; nothing where there is none.
pub fn text() -> Vec<u8> {
    fs::read(PATH).unwrap_or_default()
}

impl Resolvers {
    /// Those that were given, or those of the host's file.
    pub fn new(args: &GatewayArgs, text: &[u8]) -> Self {
        let config = Config::parse_with_errors(text).0;
        let addrs = if args.dns.is_empty() { of(&config) } else { args.dns.clone() };
        // resolv.conf(5): 1 is the least.
        let next_after = Duration::from_secs(config.timeout.max(1).into()).min(NEXT_AFTER);
        Self { addrs, next_after }
    }
}

/// The domains in which names are looked for: those that were given, or those of the host's file.
pub fn search(args: &GatewayArgs, text: &[u8]) -> Vec<String> {
    if !args.search.is_empty() {
        return args.search.clone();
    }
    Config::parse_with_errors(text).0.get_last_search_or_domain().cloned().collect()
}

/// The resolvers of a file; this host where it names none (resolv.conf(5)).
fn of(config: &Config) -> Vec<SocketAddr> {
    if config.nameservers.is_empty() {
        return vec![(Ipv4Addr::LOCALHOST, DNS_PORT).into()];
    }
    config.nameservers.iter().filter_map(resolver_at).take(RESOLVERS_MAX).collect()
}

/// Where a resolver is. A link-local one is at an interface, by its name or its number; none if that is not there.
fn resolver_at(ip: &ScopedIp) -> Option<SocketAddr> {
    let (addr, scope) = match ip {
        ScopedIp::V4(addr) => return Some(SocketAddr::new(IpAddr::V4(*addr), DNS_PORT)),
        ScopedIp::V6(addr, None) => (*addr, 0),
        ScopedIp::V6(addr, Some(name)) => (*addr, KernelLink::new(name).index().ok().or(name.parse().ok())?),
    };
    Some(SocketAddrV6::new(addr, DNS_PORT, 0, scope).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_resolver_is_at_its_interface() {
        let text = b"nameserver fe80::1%lo\nnameserver fe80::1%nowhere\nnameserver fe80::2%7\nnameserver 192.0.2.1\n";
        let loopback = KernelLink::new("lo").index().unwrap();
        let link_local =
            |last, scope| SocketAddrV6::new([0xfe80, 0, 0, 0, 0, 0, 0, last].into(), 53, 0, scope);
        let expected =
            [link_local(1, loopback).into(), link_local(2, 7).into(), "192.0.2.1:53".parse().unwrap()];
        assert_eq!(of(&Config::parse_with_errors(text).0), expected);
    }

    #[test]
    fn what_is_not_understood_is_skipped_and_the_rest_counts() {
        let expected = ["192.0.2.1:53".parse().unwrap()];
        for odd in [
            &b"options ndots:x"[..],
            b"options strict-error edns0",
            b"interface eth0",
            b"nameserver 1.1.1.1.1",
            b"nameserver",
            b"# caf\xe9",
            b"search caf\xe9.example",
        ] {
            let text = [odd, b"\nnameserver 192.0.2.1 its name\n"].concat();
            assert_eq!(of(&Config::parse_with_errors(&text).0), expected, "{}", String::from_utf8_lossy(odd));
        }
        for without in [&b""[..], b"search a.example\n", b"nameserver x\n"] {
            assert_eq!(of(&Config::parse_with_errors(without).0), ["127.0.0.1:53".parse().unwrap()]);
        }
    }
}
