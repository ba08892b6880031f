//! Where the host really connects when it is given an address.
//!
//! An address can contain another one ([`forms`]): the host, or a router behind it, sends packets for `2002:7f00:1::` to 127.0.0.1 if it has a tunnel of that
//! kind. Other addresses mean the host itself, its link, or many hosts ([`special`]); a rule for everything does not cover these. The classes are
//! those of the stack's address table ([`Class`]), plus IPv6 ranges that Linux routes elsewhere.
//!
//! Does not depend on rules or sockets. Tests: below; with random addresses `mod.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sockeye::netif::Prefix;
use sockeye_proto::ip::martian::Class;

/// Services of clouds with an instance's secrets, that are not at link-local addresses: of Alibaba, Azure, and Oracle's classic one.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
/// Likewise by IPv6: of Google, Oracle, Scaleway and Linode. Amazon has a network of its own for its services.
const METADATA_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1),
];

/// The longest network that holds an address that means the host itself, its link, a group or nobody; `None` for an ordinary host. A rule
/// covers such an address only if its network is inside this one.
pub fn special(addr: IpAddr) -> Option<Prefix> {
    let (network, len): (IpAddr, u8) = match (Class::of(addr), addr) {
        // Linux takes 0.0.0.0 for the host itself.
        (Class::Unspecified | Class::ThisNetwork, IpAddr::V4(_)) => (Ipv4Addr::UNSPECIFIED.into(), 8),
        (Class::Loopback, IpAddr::V4(_)) => (Ipv4Addr::new(127, 0, 0, 0).into(), 8),
        // The link, where clouds have the service with an instance's secrets.
        (Class::LinkLocal, IpAddr::V4(_)) => (Ipv4Addr::new(169, 254, 0, 0).into(), 16),
        (Class::LinkLocal, IpAddr::V6(_)) => (v6([0xfe80, 0, 0, 0]), 10),
        (Class::Unspecified | Class::Loopback | Class::Compatible | Class::Mapped, IpAddr::V6(_)) => {
            (Ipv6Addr::UNSPECIFIED.into(), 80)
        }
        (Class::Group | Class::NodeGroup, IpAddr::V4(_)) => (Ipv4Addr::new(224, 0, 0, 0).into(), 4),
        (Class::Group | Class::NodeGroup, IpAddr::V6(_)) => (v6([0xff00, 0, 0, 0]), 8),
        (Class::Reserved | Class::LimitedBroadcast, _) => (Ipv4Addr::new(240, 0, 0, 0).into(), 4),
        (_, IpAddr::V4(service)) if METADATA_V4.contains(&service) => (addr, 32),
        (_, IpAddr::V6(service)) if METADATA_V6.contains(&service) => (addr, 128),
        (_, IpAddr::V6(v6_addr)) => match v6_addr.segments() {
            // Site-local, withdrawn and still routed by some (RFC 3879).
            [0xfec0..=0xfeff, ..] => (v6([0xfec0, 0, 0, 0]), 10),
            // Of a translator whose operator alone knows where in it the IPv4 address stands (RFC 8215).
            [0x64, 0xff9b, 1, ..] => (v6([0x64, 0xff9b, 1, 0]), 48),
            // Amazon's services.
            [0xfd00, 0xec2, ..] => (v6([0xfd00, 0xec2, 0, 0]), 32),
            _ => return None,
        },
        _ => return None,
    };
    Prefix::new(network, len).ok()
}

const fn v6(first: [u16; 4]) -> IpAddr {
    let [a, b, c, d] = first;
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
}

/// All that an address names: itself, and each IPv4 address that it carries for some tunnel or translator. A mapped address is the IPv4
/// address and nothing else.
pub fn forms(addr: IpAddr) -> impl Iterator<Item = IpAddr> + Clone {
    let addr = addr.to_canonical();
    let carried = match addr {
        IpAddr::V4(_) => [None; 3],
        IpAddr::V6(addr) => carried(addr),
    };
    std::iter::once(addr).chain(carried.into_iter().flatten().map(IpAddr::V4))
}

/// The IPv4 addresses in an IPv6 address: two at most by its network, and one by its interface, whatever network that is in.
fn carried(addr: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    let segments = addr.segments();
    let [first, second] = match segments {
        // Unspecified, the loopback, and addresses with so many zeros that are not IPv4-compatible.
        [0, 0, 0, 0, 0, 0, 0, _] => [None, None],
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => [v4(high, low), None],
        // Teredo: its server, and the client, whose bits are inverted (RFC 4380 section 4).
        [0x2001, 0, s0, s1, _, _, c0, c1] => [v4(s0, s1), v4(!c0, !c1)],
        // IPv4-compatible, SIIT's "IPv4-translated" (RFC 2765), and NAT64 (RFC 6052 section 2.1).
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => [v4(high, low), None],
        _ => [None, None],
    };
    let isatap = match segments {
        // RFC 5214 section 6.1.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => v4(high, low),
        _ => None,
    };
    [first, second, isatap]
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
            ("64:ff9b::127.0.0.1", &["127.0.0.1"]),
            // The server 192.0.2.7, the client 127.0.0.1.
            ("2001:0:c000:207:0:0:80ff:fffe", &["192.0.2.7", "127.0.0.1"]),
            ("2001:db8::200:5efe:10.0.0.1", &["10.0.0.1"]),
            // A 6to4 network with an ISATAP interface.
            ("2002:c000:207::5efe:127.0.0.1", &["192.0.2.7", "127.0.0.1"]),
        ] {
            let expected: Vec<IpAddr> =
                std::iter::once(of).chain(carries.iter().copied()).map(addr).collect();
            assert_eq!(forms(addr(of)).collect::<Vec<_>>(), expected, "{of}");
        }
        assert_eq!(forms(addr("::ffff:127.0.0.1")).collect::<Vec<_>>(), [addr("127.0.0.1")]);
    }

    #[test]
    fn the_host_its_link_groups_and_reserved_addresses_are_special() {
        for (of, expected) in [
            ("0.0.0.0", Some("0.0.0.0/8")),
            ("127.255.255.255", Some("127.0.0.0/8")),
            ("169.254.169.254", Some("169.254.0.0/16")),
            ("224.0.0.251", Some("224.0.0.0/4")),
            ("255.255.255.255", Some("240.0.0.0/4")),
            ("::", Some("::/80")),
            ("::1", Some("::/80")),
            ("::ffff:10.0.0.1", Some("::/80")),
            ("64:ff9b:1::7f00:1", Some("64:ff9b:1::/48")),
            ("fd00:ec2::254", Some("fd00:ec2::/32")),
            ("100.100.100.200", Some("100.100.100.200/32")),
            ("168.63.129.16", Some("168.63.129.16/32")),
            ("192.0.0.192", Some("192.0.0.192/32")),
            ("fd20:ce::254", Some("fd20:ce::254/128")),
            ("fd00:c1::a9fe:a9fe", Some("fd00:c1::a9fe:a9fe/128")),
            ("fd00:42::42", Some("fd00:42::42/128")),
            ("fd00:a9fe:a9fe::1", Some("fd00:a9fe:a9fe::1/128")),
            ("100.100.100.201", None),
            ("fd00:42::43", None),
            ("fe80::1", Some("fe80::/10")),
            ("fec0::1", Some("fec0::/10")),
            ("ff02::1", Some("ff00::/8")),
            ("126.255.255.255", None),
            ("10.0.0.1", None),
            ("64:ff9b::1", None),
            ("2001:db8::1", None),
            ("fd00::1", None),
        ] {
            assert_eq!(special(addr(of)), expected.map(|block| block.parse().unwrap()), "{of}");
        }
    }
}
