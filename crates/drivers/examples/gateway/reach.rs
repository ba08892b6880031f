//! Where an address that a program in the sandbox names leads, when the host connects to it.
//!
//! Two things make a list of places miss one. An address may carry another one ([`forms`]): the host, or a router behind it,
//! leads `2002:7f00:1::` to 127.0.0.1 if it has a tunnel of that kind. And some addresses mean the host itself, its link, or many
//! ([`block`], [`is_own`]), which a rule for "everything" does not include.
//!
//! It does not depend on rules or sockets of the stack. Tests: below; `tests/examples.rs`, with packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use sockeye::netif::Prefix;

/// Addresses of which a rule has to name a part to cover them.
const BLOCKS: [(IpAddr, u8); 10] = [
    // 0.0.0.0 is the host itself to Linux.
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8),
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    // The link, where clouds have the service with an instance's secrets.
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4),
    (IpAddr::V4(Ipv4Addr::new(240, 0, 0, 0)), 4),
    // Unspecified, loopback, and IPv4-compatible addresses.
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 96),
    // Of a translator whose operator alone knows where in it the IPv4 address stands (RFC 8215).
    (IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0)), 48),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

/// The block of [`BLOCKS`] that an address is in.
pub fn block(addr: IpAddr) -> Option<Prefix> {
    BLOCKS.iter().filter_map(|(block, len)| Prefix::new(*block, *len).ok()).find(|block| block.contains(addr))
}

/// All that an address names: itself, and each IPv4 address that it carries for some tunnel or translator. A mapped
/// address is the IPv4 address and nothing else.
pub fn forms(addr: IpAddr) -> Vec<IpAddr> {
    let addr = addr.to_canonical();
    let mut forms = vec![addr];
    if let IpAddr::V6(v6) = addr {
        forms.extend(carried(v6).into_iter().flatten().map(IpAddr::V4));
    }
    forms
}

/// The IPv4 addresses in an IPv6 address: two at most.
fn carried(addr: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match addr.segments() {
        // Unspecified, the loopback, and addresses with so many zeros that are not IPv4-compatible.
        [0, 0, 0, 0, 0, 0, 0, _] => [None, None],
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => [v4(high, low), None],
        // Teredo: its server, and the client, whose bits are inverted (RFC 4380 section 4).
        [0x2001, 0, s0, s1, _, _, c0, c1] => [v4(s0, s1), v4(!c0, !c1)],
        // IPv4-compatible, SIIT's "IPv4-translated" (RFC 2765), NAT64 (RFC 6052 section 2.1).
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        // ISATAP, in any network (RFC 5214 section 6.1).
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => [v4(high, low), None],
        _ => [None, None],
    }
}

/// Whether this is an address of the host. The kernel is asked, so addresses that come and go count as they are now: a socket that
/// connects to an own address is bound to that address. Nothing is sent, and nothing blocks.
pub fn is_own(addr: IpAddr) -> bool {
    let wildcard: IpAddr =
        if addr.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Any port: connecting a datagram socket sends nothing.
    let from = UdpSocket::bind((wildcard, 0)).and_then(|socket| {
        socket.connect((addr, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_includes_the_addresses_embedded_in_it() {
        for (of, carries) in [
            ("192.0.2.1", &[][..]),
            ("2001:db8::1", &[]),
            ("::1", &[]),
            ("::127.0.0.1", &["127.0.0.1"]),
            ("::ffff:0:127.0.0.1", &["127.0.0.1"]),
            ("2002:7f00:1::", &["127.0.0.1"]),
            ("2002:a9fe:a9fe:1::9", &["169.254.169.254"]),
            ("64:ff9b::127.0.0.1", &["127.0.0.1"]),
            ("64:ff9b::8.8.8.8", &["8.8.8.8"]),
            // The server 192.0.2.7, the client 127.0.0.1.
            ("2001:0:c000:207:0:0:80ff:fffe", &["192.0.2.7", "127.0.0.1"]),
            ("fe80::5efe:127.0.0.1", &["127.0.0.1"]),
            ("2001:db8::200:5efe:10.0.0.1", &["10.0.0.1"]),
        ] {
            let expected: Vec<IpAddr> =
                std::iter::once(of).chain(carries.iter().copied()).map(addr).collect();
            assert_eq!(forms(addr(of)), expected, "{of}");
        }
        assert_eq!(forms(addr("::ffff:127.0.0.1")), [addr("127.0.0.1")]);
    }

    #[test]
    fn the_host_link_local_and_multicast_addresses_are_in_blocked_ranges() {
        for (of, expected) in [
            ("0.0.0.0", Some("0.0.0.0/8")),
            ("0.1.2.3", Some("0.0.0.0/8")),
            ("127.255.255.255", Some("127.0.0.0/8")),
            ("169.254.169.254", Some("169.254.0.0/16")),
            ("224.0.0.251", Some("224.0.0.0/4")),
            ("255.255.255.255", Some("240.0.0.0/4")),
            ("::", Some("::/96")),
            ("::1", Some("::/96")),
            ("64:ff9b:1::7f00:1", Some("64:ff9b:1::/48")),
            ("fe80::1", Some("fe80::/10")),
            ("fec0::1", Some("fec0::/10")),
            ("ff02::1", Some("ff00::/8")),
            ("126.255.255.255", None),
            ("128.0.0.1", None),
            ("10.0.0.1", None),
            ("64:ff9b::1", None),
            ("2001:db8::1", None),
            ("fd00::1", None),
        ] {
            assert_eq!(block(addr(of)), expected.map(|block| block.parse().unwrap()), "{of}");
        }
    }

    #[test]
    fn the_kernel_reports_the_hosts_addresses() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        // Set aside for documentation: no host has them.
        assert!(!is_own(addr("192.0.2.77")) && !is_own(addr("2001:db8::77")));
        assert!(!is_own(addr("255.255.255.255")));
    }
}
