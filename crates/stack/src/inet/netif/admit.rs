//! Which packets an interface takes in, by their addresses: the host model, martians and the check of the reverse path.
//!
//! One table says which classes of address are admitted where, [`sockeye_proto::ip::martian`]. Here an address gets its
//! class, for which our own addresses and their networks are looked at, and the table's answers for source and destination
//! are put together:
//!
//! 1. A source that cannot be outside is refused, with one exception: neighbor discovery in which another host uses an address of
//!    ours must be heard (RFC 4862 section 5.4.4). One that is unspecified may send to groups only the messages of hosts without
//!    an address.
//! 2. A destination is one of our own addresses, of whichever interface: the *weak* host model of RFC 1122 section 3.3.4.2, as
//!    Linux's. Link-local addresses are the exception, in both families: a link-local address is ours on that link only. On an
//!    interface that takes in any address every host's is ours, but no martian and nothing that is of the link.
//! 3. A sender with a link-local IPv6 address may talk to an address of this very interface, or to a group on it: the answer would
//!    leave by another link, where another host may have that address (RFC 4007 section 9).
//! 4. With [`RpFilter`] there must be a way back to the source: any, or one by the same interface.
//!
//! It does not depend on the content of packets but for their protocol. Tests: `tests/ip/martians.rs`,
//! `tests/ip/reverse_path.rs`.

use std::io;
use std::net::IpAddr;

use sockeye_proto::ip;
use sockeye_proto::ip::martian::{Class, Destination, Kind, Source, nameless_may};
use sockeye_proto::ndp::wire::HOP_LIMIT;

use super::table::{NetifId, Netifs};
use super::tables::Tables;
use super::{Address, AddressState};

/// The check of packets' sources by an interface, besides that they can be hosts (RFC 3704). The words are Linux's.
///
/// It is for packets of both families, to groups and broadcasts likewise; sources of the link (fe80::/10) are on it by
/// definition and pass. A packet that does not pass is dropped without an answer, and counted as `frames_rp_filter`
/// (`TcpExtIPReversePathFilter`). A route of kind `Blackhole`, `Unreachable` or `Prohibit` is no way back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RpFilter {
    /// Nothing. The default, as in Linux's kernel: a host with several interfaces may be talked to by one and answer by another,
    /// and only the operator knows whether the routes of the network exclude that.
    #[default]
    Off,
    /// Some route leads to the source, by whichever interface (RFC 3704 section 2.4). Finds sources of which nothing is known.
    Loose,
    /// The route to the source leads out by the interface by which the packet came (RFC 3704 section 2.2). For interfaces to
    /// which each network belongs alone: a sandbox's, a customer's. No host behind it can then use another's address.
    Strict,
}

/// Decision about a packet with such addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is for a host, and that is us.
    Here,
    /// It is for all on the link or for a group. Which sockets listen there is not known here.
    Many,
    /// It is another host's.
    Elsewhere,
    /// It comes from an address that cannot be outside.
    MartianSource,
    /// It goes to an address that no outside host can mean.
    MartianDestination,
    /// There is no way back, or none by the interface by which it came.
    ReversePath,
}

impl Tables {
    /// Decision about a packet with this header that came in by `netif`. See the module's head.
    #[inline]
    pub fn verdict(&self, netif: NetifId, header: &ip::Header) -> Verdict {
        let (src, dst) = (header.addresses.src(), header.addresses.dst());
        let kind = if self.takes_any(netif) { Kind::AnyAddress } else { Kind::Wire };
        let (from, to) = (self.class(netif, src), self.class(netif, dst));
        match (from.source(kind), to.destination(kind)) {
            (Source::Host, Destination::Here) if is_beyond_its_link(from, src, to) => Verdict::MartianSource,
            (Source::Host, Destination::Here) => self.back(netif, src, Verdict::Here),
            (Source::Host, Destination::Many) => self.back(netif, src, Verdict::Many),
            (Source::Host, Destination::Elsewhere) => Verdict::Elsewhere,
            (Source::Host, Destination::Martian) => Verdict::MartianDestination,
            (Source::Nameless, Destination::Many) if nameless_may(dst, header.protocol) => Verdict::Many,
            (Source::Martian, Destination::Many) if is_of_a_neighbor(from, header) => Verdict::Many,
            (Source::Nameless | Source::Martian, _) => Verdict::MartianSource,
        }
    }

    /// The class of `addr` in a packet that came in by `netif`.
    #[inline]
    pub fn class(&self, netif: NetifId, addr: IpAddr) -> Class {
        let class = Class::of(addr);
        if !class.is_host() {
            return class;
        }
        let mut found = class;
        for own in self.addresses() {
            if own.prefix.addr() == addr && own.state != AddressState::Tentative {
                return match (own.netif == netif, class) {
                    (true, _) => Class::Own,
                    (false, Class::LinkLocal) => Class::OwnOffLink,
                    (false, _) => Class::OwnElsewhere,
                };
            }
            // Of several networks that end there, that of this link counts.
            if found != Class::Broadcast {
                found = of_network(own, netif, addr).unwrap_or(found);
            }
        }
        found
    }

    /// `verdict`, if the interface's check of the reverse path has nothing against the source.
    #[inline]
    fn back(&self, netif: NetifId, src: IpAddr, verdict: Verdict) -> Verdict {
        match self.rp_filter(netif) {
            RpFilter::Off => verdict,
            filter @ (RpFilter::Loose | RpFilter::Strict) if self.has_way_back(netif, src, filter) => verdict,
            RpFilter::Loose | RpFilter::Strict => Verdict::ReversePath,
        }
    }

    fn has_way_back(&self, netif: NetifId, src: IpAddr, filter: RpFilter) -> bool {
        let is_of_link = matches!(src, IpAddr::V6(v6) if v6.is_unicast_link_local());
        is_of_link || self.lookup(src).is_ok_and(|via| filter != RpFilter::Strict || via.netif() == netif)
    }

    /// Whether a conversation between these addresses, `local` ours, goes out by `netif`; those of the stack with itself do by
    /// [`NetifId::LOOPBACK`]. A packet that has come in elsewhere can say nothing about it.
    pub fn goes_out_by(&self, netif: NetifId, local: IpAddr, remote: IpAddr) -> bool {
        if remote.is_multicast() {
            return self.of(netif).any(|own| own.prefix.addr() == local);
        }
        // No packet leaves the stack with a source like 127.0.0.1, whatever a route says.
        let is_inside = local.is_loopback() || remote.is_loopback();
        if is_inside {
            return netif == NetifId::LOOPBACK;
        }
        self.lookup_from(local, remote).is_ok_and(|via| via.netif() == netif)
    }

    /// [`verdict`](Self::verdict) on addresses as text, for tests: whether the packet is taken in as one for a host.
    #[cfg(test)]
    pub fn admits(&self, netif: NetifId, src: &str, dst: &str) -> bool {
        let addr = |text: &str| text.parse().unwrap();
        let addresses = ip::Addresses::new(addr(src), addr(dst)).unwrap();
        let header = ip::Header {
            addresses,
            protocol: ip::PROTOCOL_TCP,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        self.verdict(netif, &header) == Verdict::Here
    }
}

impl Netifs {
    /// Sets the check of sources of packets that come in there.
    pub fn set_rp_filter(&self, netif: NetifId, filter: RpFilter) -> io::Result<()> {
        self.known(netif)?;
        self.change(|tables| {
            tables.set_rp_filter(netif, filter);
            Ok(())
        })
    }

    /// The check.
    pub fn rp_filter(&self, netif: NetifId) -> io::Result<RpFilter> {
        self.known(netif)?;
        Ok(self.tables().rp_filter(netif))
    }
}

/// The class that an address has by the network of an address of ours, if it has one. There are none in IPv6, and none where
/// the prefix leaves less than two bits (RFC 3021).
#[inline]
fn of_network(own: &Address, netif: NetifId, addr: IpAddr) -> Option<Class> {
    let broadcast = own.prefix.broadcast()?;
    if broadcast == addr {
        return Some(if own.netif == netif { Class::Broadcast } else { Class::BroadcastElsewhere });
    }
    (own.prefix.network().addr() == addr).then_some(Class::Network)
}

/// Whether the source is of the interface's link (in IPv6) and the destination is not this interface's.
fn is_beyond_its_link(from: Class, src: IpAddr, to: Class) -> bool {
    from == Class::LinkLocal && src.is_ipv6() && to != Class::Own
}

/// Whether this may be a neighbor that uses an address of ours.
fn is_of_a_neighbor(from: Class, header: &ip::Header) -> bool {
    let is_ours = matches!(from, Class::Own | Class::OwnElsewhere | Class::OwnOffLink);
    is_ours && header.protocol == ip::PROTOCOL_ICMPV6 && header.hop_limit == HOP_LIMIT
}
