//! Martians: addresses that cannot stand where they stand in a packet that has come in. The one table of them, for both
//! families.
//!
//! [`Class::of`] classifies an address by itself. The caller classifies those that only the tables of a host know (its own
//! addresses, and the broadcast and network addresses of its links). [`Class::source`] and [`Class::destination`] are the table:
//! whether a packet that names an address of this class is admitted, by the [`Kind`] of interface that it came in by. Both are
//! exhaustive matches, so a new class cannot be forgotten.
//!
//! | class | as source, from outside | as destination, from outside | why |
//! |---|---|---|---|
//! | `Host` | a host | elsewhere; here if any address is taken in | |
//! | `LinkLocal` | a host of the link | elsewhere | means no host beyond the link (RFC 3927 section 7, RFC 4007 section 9) |
//! | `Own`, `OwnElsewhere` | martian | here | weak host model (RFC 1122 section 3.3.4.2) |
//! | `OwnOffLink` | martian | elsewhere | a link-local address is its link's alone |
//! | `Unspecified` | nameless: to many only | martian | RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.2 |
//! | `ThisNetwork` | martian | martian | 0.0.0.0/8 (RFC 1122 section 3.2.1.3) |
//! | `Loopback` | martian | martian | RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3 |
//! | `Mapped` | martian | martian | a socket would take it for IPv4: `::ffff:127.0.0.1` would be the loopback |
//! | `Compatible` | martian | martian | withdrawn (RFC 4291 section 2.5.5.1), and IPv4 to hosts that still know it |
//! | `Group` | martian | many | RFC 1112, RFC 4291 section 2.7 |
//! | `NodeGroup` | martian | martian | never leaves a node (RFC 4291 section 2.7) |
//! | `Reserved` | martian | martian | 240.0.0.0/4 (RFC 1112 section 4); Linux takes it for hosts |
//! | `LimitedBroadcast`, `Broadcast` | martian | many | RFC 919, RFC 922 |
//! | `BroadcastElsewhere` | martian | martian | directed broadcasts are not carried on (RFC 2644) |
//! | `Network` | martian | martian | was a broadcast once (RFC 1122 section 3.3.6) |
//!
//! On the loopback all sources are this stack's own packets: loopback, own addresses, and hosts in whose name a transparent
//! socket sends.
//!
//! It does not depend on interfaces or routes. Tests: below, and with packets `stack/tests/ip/martians.rs`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{PROTOCOL_ICMPV6, PROTOCOL_IGMP, PROTOCOL_TCP};

/// How an interface takes packets in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// From outside, for addresses of our own.
    Wire,
    /// From outside, for every host.
    AnyAddress,
    /// From this stack itself.
    Loopback,
}

/// The class of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// A unicast address, of which nothing more is known.
    Host,
    /// One that means a host on each link: 169.254.0.0/16, fe80::/10.
    LinkLocal,
    /// 0.0.0.0, `::`.
    Unspecified,
    /// The rest of 0.0.0.0/8.
    ThisNetwork,
    /// 127.0.0.0/8, `::1`.
    Loopback,
    /// `::ffff:0.0.0.0/96`.
    Mapped,
    /// The rest of `::/96`.
    Compatible,
    /// Multicast.
    Group,
    /// IPv6 multicast of the scopes 0 (reserved) and 1 (interface-local).
    NodeGroup,
    /// 240.0.0.0/4 but for the broadcast address.
    Reserved,
    /// 255.255.255.255.
    LimitedBroadcast,
    /// The caller says: an address of the interface.
    Own,
    /// The caller says: an address of another interface of the stack.
    OwnElsewhere,
    /// The caller says: a link-local address of another interface of the stack.
    OwnOffLink,
    /// The caller says: the broadcast address of a network on the interface's link.
    Broadcast,
    /// The caller says: that of a network on another link.
    BroadcastElsewhere,
    /// The caller says: the network address of a network on any link, whose host part is zero. Never of a /31 or a /32, nor
    /// of IPv6.
    Network,
}

/// Whether a packet from an address is admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// All that its destination allows; it can be answered.
    Host,
    /// Its host has no address yet: it may send to groups only the messages of hosts without an address
    /// ([`nameless_may`]).
    Nameless,
    /// Nothing.
    Martian,
}

/// Whether a packet to an address is admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// It is for a host, and taken in.
    Here,
    /// It is for all on the link, or for a group, and taken in by its members.
    Many,
    /// It is another host's.
    Elsewhere,
    /// No host can be there.
    Martian,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 17] = [
        Self::Host,
        Self::LinkLocal,
        Self::Unspecified,
        Self::ThisNetwork,
        Self::Loopback,
        Self::Mapped,
        Self::Compatible,
        Self::Group,
        Self::NodeGroup,
        Self::Reserved,
        Self::LimitedBroadcast,
        Self::Own,
        Self::OwnElsewhere,
        Self::OwnOffLink,
        Self::Broadcast,
        Self::BroadcastElsewhere,
        Self::Network,
    ];

    /// Class of an address by itself.
    #[inline]
    pub const fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(v4) => Self::of_v4(v4),
            IpAddr::V6(v6) => Self::of_v6(v6),
        }
    }

    #[inline]
    const fn of_v4(addr: Ipv4Addr) -> Self {
        match addr.octets() {
            [0, 0, 0, 0] => Self::Unspecified,
            [0, ..] => Self::ThisNetwork,
            [127, ..] => Self::Loopback,
            [169, 254, ..] => Self::LinkLocal,
            [224..=239, ..] => Self::Group,
            [255, 255, 255, 255] => Self::LimitedBroadcast,
            [240..=255, ..] => Self::Reserved,
            _ => Self::Host,
        }
    }

    #[inline]
    const fn of_v6(addr: Ipv6Addr) -> Self {
        match addr.segments() {
            [0, 0, 0, 0, 0, 0, 0, 0] => Self::Unspecified,
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            [0, 0, 0, 0, 0, 0, ..] => Self::Compatible,
            [0, 0, 0, 0, 0, 0xffff, ..] => Self::Mapped,
            [0xfe80..=0xfebf, ..] => Self::LinkLocal,
            // The scope is the last digit of the first word.
            [first @ 0xff00..=0xffff, ..] if first & 0xf <= 1 => Self::NodeGroup,
            [0xff00..=0xffff, ..] => Self::Group,
            _ => Self::Host,
        }
    }

    /// Whether it can be the address of one host outside.
    #[inline]
    pub const fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::LinkLocal)
    }

    /// The table, for sources.
    #[inline]
    pub const fn source(self, kind: Kind) -> Source {
        match (self, kind) {
            (Self::Host | Self::LinkLocal, _) => Source::Host,
            (Self::Own | Self::OwnElsewhere | Self::OwnOffLink | Self::Loopback, Kind::Loopback) => {
                Source::Host
            }
            (Self::Unspecified, Kind::Wire | Kind::AnyAddress) => Source::Nameless,
            (
                Self::Own
                | Self::OwnElsewhere
                | Self::OwnOffLink
                | Self::Loopback
                | Self::Unspecified
                | Self::ThisNetwork
                | Self::Mapped
                | Self::Compatible
                | Self::Group
                | Self::NodeGroup
                | Self::Reserved
                | Self::LimitedBroadcast
                | Self::Broadcast
                | Self::BroadcastElsewhere
                | Self::Network,
                Kind::Wire | Kind::AnyAddress | Kind::Loopback,
            ) => Source::Martian,
        }
    }

    /// The table, for destinations.
    #[inline]
    pub const fn destination(self, kind: Kind) -> Destination {
        match (self, kind) {
            (Self::Own | Self::OwnElsewhere, _) | (Self::Host, Kind::AnyAddress) => Destination::Here,
            (Self::Loopback | Self::OwnOffLink, Kind::Loopback) => Destination::Here,
            (Self::Group | Self::LimitedBroadcast | Self::Broadcast, _)
            | (Self::NodeGroup, Kind::Loopback) => Destination::Many,
            (Self::Host, Kind::Wire | Kind::Loopback)
            | (Self::LinkLocal, _)
            | (Self::OwnOffLink, Kind::Wire | Kind::AnyAddress) => Destination::Elsewhere,
            (Self::Loopback | Self::NodeGroup, Kind::Wire | Kind::AnyAddress)
            | (
                Self::Unspecified
                | Self::ThisNetwork
                | Self::Mapped
                | Self::Compatible
                | Self::Reserved
                | Self::BroadcastElsewhere
                | Self::Network,
                _,
            ) => Destination::Martian,
        }
    }
}

/// Whether `addr` can be the address of one host outside.
#[inline]
pub const fn is_host(addr: IpAddr) -> bool {
    Class::of(addr).is_host()
}

/// Whether a host without an address may send this to many, as on Linux: to all on the link, and to the groups that routers
/// do not carry on (DHCP, IGMP; in IPv6 neighbor discovery and reports of groups). Never TCP.
pub const fn nameless_may(dst: IpAddr, protocol: u8) -> bool {
    if protocol == PROTOCOL_TCP {
        return false;
    }
    match dst {
        IpAddr::V4(dst) => match dst.octets() {
            [255, 255, 255, 255] | [224, 0, 0, _] => true,
            _ => protocol == PROTOCOL_IGMP,
        },
        IpAddr::V6(dst) => protocol == PROTOCOL_ICMPV6 || matches!(dst.segments()[0], 0xff02 | 0xff12),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(addr: &str) -> Class {
        Class::of(addr.parse().unwrap())
    }

    #[test]
    fn every_block_has_its_class_from_its_first_to_its_last_address() {
        for (addrs, expected) in [
            (&["0.0.0.0", "::"][..], Class::Unspecified),
            (&["0.0.0.1", "0.255.255.255"], Class::ThisNetwork),
            (&["127.0.0.0", "127.0.0.1", "127.255.255.255", "::1"], Class::Loopback),
            (&["169.254.0.0", "169.254.255.255", "fe80::", "febf:ffff::"], Class::LinkLocal),
            (&["::ffff:0.0.0.0", "::ffff:127.0.0.1", "::ffff:255.255.255.255"], Class::Mapped),
            (&["::2", "::127.0.0.1", "::255.255.255.255"], Class::Compatible),
            (&["224.0.0.0", "239.255.255.255", "ff02::1", "ff0e::1", "ff32::1", "ffff::"], Class::Group),
            (&["ff00::", "ff01::1", "ff11::1", "ff30::"], Class::NodeGroup),
            (&["240.0.0.0", "255.255.255.254"], Class::Reserved),
            (&["255.255.255.255"], Class::LimitedBroadcast),
        ] {
            addrs.iter().for_each(|addr| assert_eq!(class(addr), expected, "{addr}"));
        }
        // Neighboring blocks, and addresses of tunnels, which are hosts to a stack that has no such tunnel.
        for addr in [
            "1.0.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "223.255.255.255",
            "10.0.0.255",
            "::1:0:0",
            "::fffe:0:0",
            "::ffff:0:0:0",
            "fe7f::",
            "fec0::",
            "feff::1",
            "2002:7f00:1::",
            "64:ff9b::127.0.0.1",
            "2001::1",
            "fd00::",
        ] {
            assert_eq!(class(addr), Class::Host, "{addr}");
        }
    }

    #[test]
    fn only_host_addresses_are_answered_and_forwarded() {
        for class in Class::ALL {
            for kind in [Kind::Wire, Kind::AnyAddress] {
                assert_eq!(class.source(kind) == Source::Host, class.is_host(), "{class:?} {kind:?}");
            }
            let is_ours = matches!(class, Class::Own | Class::OwnElsewhere);
            assert_eq!(class.destination(Kind::Wire) == Destination::Here, is_ours, "{class:?}");
            let is_led_on = is_ours || class == Class::Host;
            assert_eq!(class.destination(Kind::AnyAddress) == Destination::Here, is_led_on, "{class:?}");
        }
        let nameless: Vec<_> =
            Class::ALL.into_iter().filter(|class| class.source(Kind::Wire) == Source::Nameless).collect();
        assert_eq!(nameless, [Class::Unspecified]);
    }

    #[test]
    fn a_host_without_an_address_may_send_to_its_link() {
        const UDP: u8 = super::super::PROTOCOL_UDP;
        for (dst, protocol, may) in [
            ("255.255.255.255", UDP, true),
            ("224.0.0.251", UDP, true),
            ("239.1.2.3", UDP, false),
            ("239.1.2.3", PROTOCOL_IGMP, true),
            ("10.9.0.255", UDP, false),
            ("255.255.255.255", PROTOCOL_TCP, false),
            ("ff02::1:ff00:1", PROTOCOL_ICMPV6, true),
            ("ff05::1", PROTOCOL_ICMPV6, true),
            ("ff02::fb", UDP, true),
            ("ff05::1", UDP, false),
            ("ff02::1", PROTOCOL_TCP, false),
        ] {
            assert_eq!(nameless_may(dst.parse().unwrap(), protocol), may, "{dst} {protocol}");
        }
    }
}
