//! What a stack knows of its interfaces: their addresses, and the routes that lead to them.
//!
//! The three lists only grow, each up to a bound, and an entry never changes once it stands, so readers
//! take no lock and write no line: they go through the slots until the first empty one. Who adds holds
//! `adding`, which ranks before nothing.
//!
//! A route is chosen by the longest prefix; of equal ones the first. A connection keeps the number of its
//! route ([`Via`]): its segments are not looked up.
//!
//! # The neighbor hint
//! When a connection's peer has acknowledged something new, the next hop of its route can be reached in both
//! directions (RFC 4861 section 7.3.1). Input says so with [`Route::confirm`], from any number of threads at a
//! time: a relaxed load, and at most once a second a relaxed store. The time is a value of its own which
//! orders nothing, and of two threads that write at once either is right. A neighbor table will ask
//! [`Route::confirmed_at`] before it probes; the wire has no neighbors.
//!
//! Tests: below.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sockeye_proto::time::Instant;
use sockeye_sync::Mutex;
use sockeye_sync::facade::{AtomicU64, OnceLock, Ordering};

use super::{Netif, Prefix};
use crate::ip::Cast;

/// Interfaces that a stack may have, loopback not counted.
pub(crate) const NETIFS_MAX: usize = 16;
/// Addresses of all interfaces together.
const ADDRESSES_MAX: usize = 64;
/// Routes, those to the networks of the interfaces' own addresses included.
const ROUTES_MAX: usize = 128;
/// Queues of an interface in each direction.
pub(crate) const QUEUES_MAX: usize = 64;
/// The smallest MTU of an interface, bytes: that of IPv6 (RFC 8200 section 5).
pub(crate) const MTU_MIN: u32 = 1280;
/// The largest, bytes.
pub(crate) const MTU_MAX: u32 = 65536;
/// A route that was confirmed is not written again for so long.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);

/// Names an interface of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NetifId(u16);

impl NetifId {
    /// The stack itself: the loopback is no interface of the table.
    pub(crate) const LOOPBACK: Self = Self(u16::MAX);

    /// Its place in the table.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The way that a connection's segments take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Via(u16);

impl Via {
    /// To this stack itself.
    pub const LOOPBACK: Self = Self(u16::MAX);

    /// Whether it leads out of the stack.
    pub fn is_wire(self) -> bool {
        self != Self::LOOPBACK
    }
}

/// See the module's head.
pub(crate) struct Netifs {
    netifs: Slots<Box<dyn Netif>>,
    addresses: Slots<(Prefix, NetifId)>,
    routes: Slots<Route>,
    /// A bit for each interface that takes in packets to every host's address.
    any_address: AtomicU64,
    adding: Mutex<()>,
}

/// A way out.
pub(crate) struct Route {
    prefix: Prefix,
    netif: NetifId,
    /// When its next hop was last known to answer, in the clock's microseconds; 0 for never.
    confirmed: AtomicU64,
}

impl Route {
    /// The next hop has answered. See the module's head.
    #[inline]
    pub fn confirm(&self, now: Instant) {
        let now = now.as_micros();
        let seen = self.confirmed.load(Ordering::Relaxed);
        if seen == 0 || now.saturating_sub(seen) >= CONFIRM_EVERY.as_micros() as u64 {
            self.confirmed.store(now, Ordering::Relaxed);
        }
    }

    /// When the next hop last answered, to the second.
    pub fn confirmed_at(&self) -> Option<Instant> {
        let at = self.confirmed.load(Ordering::Relaxed);
        (at != 0).then(|| Instant::from_micros(at))
    }
}

/// What a connection over an interface has to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// The MSS to announce, bytes.
    pub mss: u16,
    /// The most that is handed over as one segment, bytes; what is less than the MSS means the MSS, of which options
    /// have been deducted.
    pub segment_max: u32,
    /// Fixed headers of IP and TCP, bytes.
    pub headers_len: u16,
}

impl Link {
    /// A link whose packets of `mtu` bytes carry segments between addresses like `addr`.
    pub fn of_mtu(mtu: u32, addr: IpAddr) -> Self {
        let headers = if addr.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
        // An IP packet's length is a 16-bit field, whatever the MTU.
        let packet = mtu.min(u32::from(u16::MAX));
        let mss = u16::try_from(packet.saturating_sub(headers)).unwrap_or(u16::MAX);
        // 40 or 60.
        Self { mss, segment_max: 0, headers_len: u16::try_from(headers).unwrap_or(u16::MAX) }
    }

    /// This link, with a device that takes IP packets of `packet_max` bytes and cuts them; 0 for none.
    pub fn cut_by_device(self, packet_max: u32, addr: IpAddr) -> Self {
        let headers = if addr.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
        let packet = packet_max.min(u32::from(u16::MAX));
        Self { segment_max: packet.saturating_sub(headers + OPTIONS_MAX), ..self }
    }
}

/// IPv4 and TCP headers without options, bytes (RFC 9293 section 3.7.1).
const HEADERS_V4: u32 = 40;
/// IPv6 and TCP headers without options, bytes.
const HEADERS_V6: u32 = 60;
/// The longest TCP options, bytes (RFC 9293 section 3.1).
const OPTIONS_MAX: u32 = 40;

impl Netifs {
    pub fn new() -> Self {
        Self {
            netifs: Slots::new(NETIFS_MAX),
            addresses: Slots::new(ADDRESSES_MAX),
            routes: Slots::new(ROUTES_MAX),
            any_address: AtomicU64::new(0),
            adding: Mutex::new(()),
        }
    }

    /// Adds an interface, without addresses so far.
    pub fn add(&self, netif: Box<dyn Netif>) -> io::Result<NetifId> {
        let (mtu, queues) = (netif.mtu(), netif.queue_count());
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) || !(1..=QUEUES_MAX).contains(&queues) {
            return Err(invalid(format!(
                "an interface with an MTU of {mtu} bytes and {queues} queues: {MTU_MIN} to {MTU_MAX} bytes and 1 to \
                 {QUEUES_MAX} queues are possible"
            )));
        }
        let _adding = self.adding.lock();
        let index = self.netifs.push(netif).ok_or_else(|| full("interfaces", NETIFS_MAX))?;
        Ok(NetifId(u16::try_from(index).unwrap_or(u16::MAX)))
    }

    /// Gives an interface its addresses, and routes to their networks. All or nothing.
    pub fn assign(&self, netif: NetifId, prefixes: &[Prefix]) -> io::Result<()> {
        let _adding = self.adding.lock();
        for (place, prefix) in prefixes.iter().enumerate() {
            let addr = prefix.addr();
            let twice = prefixes.iter().take(place).any(|other| other.addr() == addr);
            if !is_host(addr) || self.is_local(addr) || twice {
                return Err(invalid(format!("{addr} cannot be an interface's address, or is one already")));
            }
        }
        if self.addresses.free() < prefixes.len() || self.routes.free() < prefixes.len() {
            return Err(full("addresses or routes", ADDRESSES_MAX));
        }
        for prefix in prefixes {
            self.addresses.push((*prefix, netif));
            self.routes.push(Route { prefix: *prefix, netif, confirmed: AtomicU64::new(0) });
        }
        Ok(())
    }

    /// Adds a route.
    pub fn add_route(&self, prefix: Prefix, netif: NetifId) -> io::Result<()> {
        if self.netif(netif).is_none() {
            return Err(invalid(format!("{netif:?} is no interface of this stack")));
        }
        let _adding = self.adding.lock();
        let route = Route { prefix, netif, confirmed: AtomicU64::new(0) };
        self.routes.push(route).map(drop).ok_or_else(|| full("routes", ROUTES_MAX))
    }

    /// Whether `addr` is an address of this stack, loopback included.
    pub fn is_local(&self, addr: IpAddr) -> bool {
        addr.is_loopback() || self.addresses.iter().any(|(own, _)| own.addr() == addr)
    }

    /// Whether a packet that came in by `netif` may be for `addr`.
    pub fn takes_in(&self, netif: NetifId, addr: IpAddr) -> bool {
        !addr.is_loopback() && (self.is_local(addr) || self.takes_any(netif) && is_host(addr))
    }

    /// Whether packets to every host's address are taken in there.
    fn takes_any(&self, netif: NetifId) -> bool {
        // Relaxed: a setting, which orders nothing.
        self.any_address.load(Ordering::Relaxed) & (1 << netif.index()) != 0
    }

    /// Takes in packets to every host's address there, or only those to our own.
    pub fn set_takes_any(&self, netif: NetifId, any: bool) -> io::Result<()> {
        if self.netif(netif).is_none() {
            return Err(invalid(format!("{netif:?} is no interface of this stack")));
        }
        let bit = 1 << netif.index();
        if any {
            self.any_address.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.any_address.fetch_and(!bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether `addr` means everybody on the network of one of our addresses.
    pub fn is_broadcast(&self, addr: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| own.broadcast() == Some(addr))
    }

    /// The interface that has the address `addr`.
    pub fn netif_with(&self, addr: IpAddr) -> Option<NetifId> {
        self.addresses.iter().find(|(own, _)| own.addr() == addr).map(|(_, netif)| *netif)
    }

    /// To whom a packet is sent that comes in at `netif` for `dst`, which is no address of ours; `None` if we are not
    /// among them.
    pub fn cast(&self, netif: NetifId, dst: IpAddr) -> Option<Cast> {
        let own = || self.addresses.iter().filter(|(_, of)| *of == netif).map(|(own, _)| own);
        match dst {
            IpAddr::V4(Ipv4Addr::BROADCAST) => Some(Cast::Broadcast),
            IpAddr::V4(ALL_HOSTS) | IpAddr::V6(ALL_NODES) => Some(Cast::Multicast),
            IpAddr::V4(_) => own().any(|own| own.broadcast() == Some(dst)).then_some(Cast::Broadcast),
            IpAddr::V6(group) => {
                let is_asked =
                    |own: &Prefix| matches!(own.addr(), IpAddr::V6(own) if solicited_node(own) == group);
                own().any(is_asked).then_some(Cast::Multicast)
            }
        }
    }

    /// The way to `remote`, if there is one.
    #[inline]
    pub fn via(&self, remote: IpAddr) -> Option<Via> {
        if self.is_local(remote) {
            return Some(Via::LOOPBACK);
        }
        let routes = self.routes.iter().enumerate().filter(|(_, route)| route.prefix.contains(remote));
        // The first of the longest, where `max_by_key` would give the last.
        let longer =
            |best: &(usize, &Route), next: &(usize, &Route)| next.1.prefix.len() > best.1.prefix.len();
        let (index, _) = routes.reduce(|best, next| if longer(&best, &next) { next } else { best })?;
        Some(Via(u16::try_from(index).unwrap_or(u16::MAX)))
    }

    /// The address from which `remote` is talked to.
    pub fn source(&self, remote: IpAddr) -> Option<IpAddr> {
        let via = self.via(remote)?;
        let Some(route) = self.route(via) else {
            return Some(match remote {
                IpAddr::V4(v4) if v4.is_loopback() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(v6) if v6.is_loopback() => Ipv6Addr::LOCALHOST.into(),
                // Of our own addresses: it talks to itself, as on Linux.
                IpAddr::V4(_) | IpAddr::V6(_) => remote,
            });
        };
        let own = || self.addresses.iter().filter(|(_, netif)| *netif == route.netif).map(|(own, _)| own);
        let near = own().find(|own| own.contains(remote));
        near.or_else(|| own().find(|own| own.addr().is_ipv4() == remote.is_ipv4())).map(Prefix::addr)
    }

    /// The route that `via` stands for; `None` for the loopback.
    #[inline]
    pub fn route(&self, via: Via) -> Option<&Route> {
        self.routes.at(usize::from(via.0))
    }

    /// The interface that `via` leads to; `None` for the loopback.
    #[inline]
    pub fn out(&self, via: Via) -> Option<(NetifId, &dyn Netif)> {
        let id = self.route(via)?.netif;
        Some((id, self.netif(id)?))
    }

    pub fn netif(&self, id: NetifId) -> Option<&dyn Netif> {
        self.netifs.at(id.index()).map(Box::as_ref)
    }

    /// All interfaces.
    pub fn each(&self) -> impl Iterator<Item = (NetifId, &dyn Netif)> {
        (0u16..).map(NetifId).zip(self.netifs.iter().map(Box::as_ref))
    }
}

/// A list that only grows.
struct Slots<T>(Box<[OnceLock<T>]>);

impl<T> Slots<T> {
    fn new(bound: usize) -> Self {
        Self((0..bound).map(|_| OnceLock::new()).collect())
    }

    fn at(&self, index: usize) -> Option<&T> {
        self.0.get(index)?.get()
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map_while(OnceLock::get)
    }

    fn free(&self) -> usize {
        self.0.len() - self.iter().count()
    }

    /// Under `adding`: its index, or `None` if there is no room.
    fn push(&self, value: T) -> Option<usize> {
        let index = self.iter().count();
        self.0.get(index)?.set(value).ok().map(|()| index)
    }
}

/// The group of all hosts of a link (RFC 1112 section 4).
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// The group of all nodes of a link (RFC 4291 section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The group in which the owner of an address is asked for (RFC 4291 section 2.7.1).
pub(crate) fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., high, low] = addr.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (high & 0xff), low)
}

/// Whether `addr` can be the address of one host.
pub(crate) fn is_host(addr: IpAddr) -> bool {
    let broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
    !addr.is_unspecified() && !addr.is_loopback() && !addr.is_multicast() && !broadcast
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn full(what: &str, most: usize) -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, format!("a stack has {most} {what} at most"))
}

#[cfg(test)]
mod tests {
    use super::super::{WireConfig, wire};
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn with_two() -> (Netifs, NetifId, NetifId) {
        let netifs = Netifs::new();
        let (a, b) = wire(&WireConfig::default()).unwrap();
        let (a, b) = (netifs.add(Box::new(a)).unwrap(), netifs.add(Box::new(b)).unwrap());
        netifs.assign(a, &prefixes(&["10.0.0.1/24", "fd00::1/64"])).unwrap();
        netifs.assign(b, &prefixes(&["10.0.1.1/24"])).unwrap();
        (netifs, a, b)
    }

    #[test]
    fn the_longest_prefix_decides_and_of_equals_the_first() {
        let (netifs, a, b) = with_two();
        let leads_to = |to: &str| netifs.out(netifs.via(addr(to))?).map(|(id, _)| id);
        assert_eq!((leads_to("10.0.0.9"), leads_to("10.0.1.9")), (Some(a), Some(b)));
        assert_eq!(netifs.via(addr("10.0.2.9")), None);
        netifs.add_route("0.0.0.0/0".parse().unwrap(), a).unwrap();
        netifs.add_route("10.0.2.0/23".parse().unwrap(), b).unwrap();
        netifs.add_route("10.0.2.0/23".parse().unwrap(), a).unwrap();
        assert_eq!((leads_to("8.8.8.8"), leads_to("10.0.3.9")), (Some(a), Some(b)));
        netifs.add_route("10.0.3.9/32".parse().unwrap(), a).unwrap();
        assert_eq!(leads_to("10.0.3.9"), Some(a));
        assert_eq!(leads_to("fd01::1"), None);
    }

    #[test]
    fn own_addresses_are_reached_by_loopback_and_from_themselves() {
        let (netifs, a, b) = with_two();
        for (to, from) in [
            ("127.1.2.3", Some("127.0.0.1")),
            ("::1", Some("::1")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("10.0.0.2", Some("10.0.0.1")),
            ("10.0.1.2", Some("10.0.1.1")),
            ("fd00::2", Some("fd00::1")),
            ("9.9.9.9", None),
        ] {
            assert_eq!(netifs.source(addr(to)), from.map(addr), "{to}");
        }
        assert_eq!(netifs.via(addr("10.0.1.1")), Some(Via::LOOPBACK));
        assert!(netifs.takes_in(a, addr("10.0.1.1")) && !netifs.takes_in(a, addr("127.0.0.1")));
        let foreign =
            |netif| ["9.9.9.9", "224.0.0.1", "127.0.0.1"].map(|dst| netifs.takes_in(netif, addr(dst)));
        netifs.set_takes_any(a, true).unwrap();
        assert_eq!((foreign(a), foreign(b)), ([true, false, false], [false; 3]));
        netifs.set_takes_any(a, false).unwrap();
        assert_eq!(foreign(a), [false; 3]);
        assert!(netifs.set_takes_any(NetifId(7), true).is_err());
    }

    #[test]
    fn an_address_that_is_taken_or_no_hosts_is_refused_and_changes_nothing() {
        let (netifs, a, _) = with_two();
        for bad in ["10.0.0.1/24", "127.0.0.1/8", "0.0.0.0/0", "224.0.0.1/4", "::1/128", "ff02::1/16"] {
            let refused = netifs.assign(a, &prefixes(&["10.7.0.1/24", bad])).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{bad}");
        }
        assert_eq!(netifs.via(addr("10.7.0.1")), None);
        assert!(netifs.assign(a, &prefixes(&["10.7.0.1/24", "10.7.0.1/16"])).is_err());
        assert!(netifs.add_route("::/0".parse().unwrap(), NetifId(9)).is_err());
    }

    #[test]
    fn the_tables_are_bounded() {
        let (netifs, a, _) = with_two();
        let route = "10.9.0.0/16".parse().unwrap();
        let added = (0..=ROUTES_MAX).take_while(|_| netifs.add_route(route, a).is_ok()).count();
        assert_eq!(added, ROUTES_MAX - 3);
        assert!(netifs.assign(a, &prefixes(&["10.8.0.1/16"])).is_err());
        assert!(!netifs.is_local(addr("10.8.0.1")));
    }

    #[test]
    fn a_route_is_confirmed_at_most_once_a_second_by_however_many_threads() {
        let (netifs, ..) = with_two();
        let route = netifs.route(netifs.via(addr("10.0.0.2")).unwrap()).unwrap();
        assert_eq!(route.confirmed_at(), None);
        let at = |micros| Instant::from_micros(micros);
        let start = 5_000_000;
        route.confirm(at(start));
        assert_eq!(route.confirmed_at(), Some(at(start)));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    (0..900_000).step_by(1000).for_each(|t| route.confirm(at(start + t + thread)))
                });
            }
        });
        assert_eq!(route.confirmed_at(), Some(at(start)), "the second is not over");
        route.confirm(at(start + 1_000_000));
        assert_eq!(route.confirmed_at(), Some(at(start + 1_000_000)));
        // A thread whose clock was read earlier does not turn it back.
        route.confirm(at(start + 999_999));
        assert_eq!(route.confirmed_at(), Some(at(start + 1_000_000)));
    }

    #[test]
    fn the_mss_is_the_mtu_less_the_headers_and_fits_an_ip_packet() {
        let (v4, v6) = (addr("10.0.0.1"), addr("fd00::1"));
        assert_eq!((Link::of_mtu(1500, v4).mss, Link::of_mtu(1500, v6).mss), (1460, 1440));
        assert_eq!(Link::of_mtu(65536, v4), Link { mss: 65495, segment_max: 0, headers_len: 40 });
    }
}
