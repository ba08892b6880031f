//! Addresses and routes of a stack at one moment, for lookups.
//!
//! Tables never change. A thread that changes something makes new ones from the old ([`Tables::changed`]) and puts them in
//! their place (`table.rs`); a reader works with those that it has read. Invariants: routes stand in the order in which
//! they are preferred, the longest prefix first; no address stands twice; the generation is one more than that of the
//! tables before. Does not depend on interfaces but by their number. `admit.rs` decides which addresses a packet may have.
//!
//! # The neighbor hint
//! When a connection's peer has acknowledged something new, the next hop of its route can be reached in both
//! directions (RFC 4861 section 7.3.1). Input says so with [`Entry::confirm`], from any number of threads at a
//! time: a relaxed load, and at most once a second a relaxed store. The time is a value of its own which
//! orders nothing, and of two threads that write at once either is right. It outlives changes of the tables.
//!
//! Tests: below, `tests/ip/routes.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustix::io::Errno;
use sockeye_proto::ip::martian;
use sockeye_proto::ip::source::{self, Candidate};
use sockeye_proto::ndp::{ALL_NODES, solicited_node};
use sockeye_proto::time::Instant;
use sockeye_sync::facade::{Arc, AtomicU64, Ordering};

use super::scope;
use super::table::{NetifId, Via};
use super::{Address, AddressState, Prefix, Route, RouteKind, RpFilter};
use crate::inet::ip::Cast;

/// Addresses of all interfaces together.
pub(super) const ADDRESSES_MAX: usize = 64;
/// Routes, those to the networks of the interfaces' own addresses included.
pub(super) const ROUTES_MAX: usize = 128;
/// A route that was confirmed is not written again for so long.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);

/// Why there is no way to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoWay {
    /// No route leads there.
    NoRoute,
    /// The route is a [`RouteKind::Blackhole`].
    Blackhole,
    /// The route is a [`RouteKind::Unreachable`].
    Unreachable,
    /// The route is a [`RouteKind::Prohibit`].
    Prohibited,
}

impl NoWay {
    /// Linux's error number for it.
    pub fn errno(self) -> Errno {
        match self {
            Self::NoRoute => Errno::NETUNREACH,
            Self::Blackhole => Errno::INVAL,
            Self::Unreachable => Errno::HOSTUNREACH,
            Self::Prohibited => Errno::ACCESS,
        }
    }
}

/// A route and the state of its next hop.
#[derive(Clone)]
pub(crate) struct Entry {
    pub route: Route,
    /// When its next hop was last known to answer, in the clock's microseconds; 0 for never.
    confirmed: Arc<AtomicU64>,
}

impl Entry {
    fn new(route: Route) -> Self {
        Self { route, confirmed: Arc::new(AtomicU64::new(0)) }
    }

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

/// See the module's head.
#[derive(Clone, Default)]
pub(crate) struct Tables {
    generation: u32,
    addresses: Vec<Address>,
    routes: Vec<Entry>,
    /// A bit for each interface that takes in packets to every host's address.
    any_address: u64,
    /// A bit for each interface that looks for a way back to the sources of its packets: some way, and one by itself.
    rp_loose: u64,
    rp_strict: u64,
}

impl Tables {
    /// Counts changes.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().map(|entry| &entry.route)
    }

    /// Whether `addr` is an address of this stack, loopback included. A tentative one is not yet.
    pub fn is_local(&self, addr: IpAddr) -> bool {
        addr.is_loopback()
            || self
                .addresses
                .iter()
                .any(|own| own.prefix.addr() == addr && own.state != AddressState::Tentative)
    }

    /// Whether packets to every host's address are taken in there.
    pub(super) fn takes_any(&self, netif: NetifId) -> bool {
        self.any_address & bit(netif) != 0
    }

    pub(super) fn set_takes_any(&mut self, netif: NetifId, any: bool) {
        set_bit(&mut self.any_address, netif, any);
    }

    /// The check of sources of packets that come in there.
    pub(super) fn rp_filter(&self, netif: NetifId) -> RpFilter {
        match (self.rp_loose & bit(netif) != 0, self.rp_strict & bit(netif) != 0) {
            (false, false) => RpFilter::Off,
            (true, false) => RpFilter::Loose,
            (_, true) => RpFilter::Strict,
        }
    }

    pub(super) fn set_rp_filter(&mut self, netif: NetifId, filter: RpFilter) {
        set_bit(&mut self.rp_loose, netif, filter == RpFilter::Loose);
        set_bit(&mut self.rp_strict, netif, filter == RpFilter::Strict);
    }

    pub(super) fn of(&self, netif: NetifId) -> impl Iterator<Item = &Address> {
        self.addresses.iter().filter(move |own| own.netif == netif)
    }

    /// The receivers of a packet that comes in at `netif` for `dst`, which is no address of ours; `None` if we are not
    /// among them.
    pub fn cast(&self, netif: NetifId, dst: IpAddr) -> Option<Cast> {
        match dst {
            IpAddr::V4(Ipv4Addr::BROADCAST) => Some(Cast::Broadcast),
            IpAddr::V4(ALL_HOSTS) | IpAddr::V6(ALL_NODES) => Some(Cast::Multicast),
            IpAddr::V4(_) => {
                self.of(netif).any(|own| own.prefix.broadcast() == Some(dst)).then_some(Cast::Broadcast)
            }
            IpAddr::V6(group) => {
                // Tentative addresses too: duplicate detection asks for them there.
                let is_asked = |own: &Address| matches!(own.prefix.addr(), IpAddr::V6(own) if solicited_node(own) == group);
                self.of(netif).any(is_asked).then_some(Cast::Multicast)
            }
        }
    }

    /// The way to `remote`.
    ///
    /// # Errors
    /// Why there is none.
    #[inline]
    pub fn lookup(&self, remote: IpAddr) -> Result<Via, NoWay> {
        if self.is_local(remote) {
            return Ok(Via::LOOPBACK);
        }
        self.routed(remote, |_| true)
    }

    /// The way to `remote` from an address of ours: to an address that is only on a link, by the interface that has
    /// the address.
    ///
    /// # Errors
    /// Why there is none.
    #[inline]
    pub fn lookup_from(&self, local: IpAddr, remote: IpAddr) -> Result<Via, NoWay> {
        if scope::is_of_link(remote) { self.lookup_of_link(local, remote) } else { self.lookup(remote) }
    }

    #[cold]
    fn lookup_of_link(&self, local: IpAddr, remote: IpAddr) -> Result<Via, NoWay> {
        match self.addresses.iter().find(|own| own.prefix.addr() == local) {
            Some(own) if !self.is_local(remote) => self.lookup_on(own.netif, remote),
            Some(_) | None => self.lookup(remote),
        }
    }

    /// The way to `remote` by one interface: by a route there, or straight to an address that can only be on its
    /// link (groups, broadcasts, link-local addresses).
    ///
    /// # Errors
    /// Why there is none.
    pub fn lookup_on(&self, netif: NetifId, remote: IpAddr) -> Result<Via, NoWay> {
        let here = self.routed(remote, |route| route.netif() == Some(netif));
        if here.is_err() && is_of_link(remote) {
            return Ok(Via::on_link(netif, self.generation));
        }
        here
    }

    fn routed(&self, remote: IpAddr, fits: impl Fn(&Route) -> bool) -> Result<Via, NoWay> {
        let leads = |entry: &Entry| entry.route.destination.contains(remote) && fits(&entry.route);
        let found = self.routes.iter().enumerate().find(|(_, entry)| leads(entry));
        let (index, entry) = found.ok_or(NoWay::NoRoute)?;
        match entry.route.kind {
            RouteKind::Unicast { netif, .. } => Ok(Via::new(netif, index, self.generation)),
            RouteKind::Blackhole => Err(NoWay::Blackhole),
            RouteKind::Unreachable => Err(NoWay::Unreachable),
            RouteKind::Prohibit => Err(NoWay::Prohibited),
        }
    }

    /// The route that `via` stands for; `None` for the loopback, for an address on the link without a route, and for a
    /// way that was looked up in other tables.
    #[inline]
    pub fn entry(&self, via: Via) -> Option<&Entry> {
        if via.generation() != self.generation {
            return None;
        }
        self.routes.get(via.route_index()?)
    }

    /// The neighbor on the link that takes packets for `remote` by `via`: a router, or `remote` itself.
    pub fn next_hop(&self, via: Via, remote: IpAddr) -> IpAddr {
        self.entry(via).and_then(|entry| entry.route.gateway()).unwrap_or(remote)
    }

    /// The address from which `remote` is talked to by `via` (RFC 6724 section 5): one of the interface, or if it has
    /// none that fits, of any.
    pub fn source(&self, via: Via, remote: IpAddr) -> Option<IpAddr> {
        self.source_of(via, remote, |_| true)
    }

    /// The address of an interface from which `remote`, on its link, is talked to.
    pub fn source_on(&self, netif: NetifId, remote: IpAddr) -> Option<IpAddr> {
        self.source_of(Via::on_link(netif, self.generation), remote, |own| own.netif == netif)
    }

    fn source_of(&self, via: Via, remote: IpAddr, may_be: impl Fn(&Address) -> bool) -> Option<IpAddr> {
        if !via.is_wire() {
            return Some(match remote {
                IpAddr::V4(v4) if v4.is_loopback() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(v6) if v6.is_loopback() => Ipv6Addr::LOCALHOST.into(),
                // Of our own addresses: it talks to itself, as on Linux.
                IpAddr::V4(_) | IpAddr::V6(_) => remote,
            });
        }
        let usable = self.addresses.iter().filter(|own| own.state != AddressState::Tentative && may_be(own));
        let candidates = usable.map(|own| Candidate {
            addr: own.prefix.addr(),
            prefix_len: own.prefix.len(),
            is_deprecated: own.state == AddressState::Deprecated,
            is_outgoing: own.netif == via.netif(),
        });
        source::select(remote, candidates)
    }

    /// New tables with a change. `change` may refuse, and nothing has happened then.
    pub(super) fn changed(&self, change: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<Self> {
        let mut new = Self { generation: self.generation.wrapping_add(1), ..self.clone() };
        change(&mut new)?;
        Ok(new)
    }

    /// Gives an interface addresses, and routes to their networks.
    pub(super) fn assign(&mut self, netif: NetifId, prefixes: &[Prefix]) -> io::Result<()> {
        for prefix in prefixes {
            self.add_address(Address { prefix: *prefix, netif, state: AddressState::Preferred })?;
            // Two addresses of one network share its route.
            match self.add_route(Route::on_link(prefix.network(), netif)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn add_address(&mut self, address: Address) -> io::Result<()> {
        let addr = address.prefix.addr();
        if !martian::is_host(addr) || self.addresses.iter().any(|own| own.prefix.addr() == addr) {
            return Err(invalid(format!("{addr} cannot be an interface's address, or is one already")));
        }
        if self.addresses.len() >= ADDRESSES_MAX {
            return Err(full("addresses", ADDRESSES_MAX));
        }
        self.addresses.push(address);
        Ok(())
    }

    /// Takes an address away, and the route to its network if it was the last one there.
    pub(super) fn remove_address(&mut self, netif: NetifId, addr: IpAddr) -> io::Result<()> {
        let at = self.addresses.iter().position(|own| own.netif == netif && own.prefix.addr() == addr);
        let at = at.ok_or_else(|| absent("address"))?;
        let gone = self.addresses.remove(at);
        let network = gone.prefix.network();
        if !self.of(gone.netif).any(|own| own.prefix.network() == network) {
            let connected = Route::on_link(network, gone.netif);
            self.routes.retain(|entry| entry.route != connected);
        }
        Ok(())
    }

    pub(super) fn set_state(&mut self, addr: IpAddr, state: AddressState) -> io::Result<()> {
        let own = self.addresses.iter_mut().find(|own| own.prefix.addr() == addr);
        own.ok_or_else(|| absent("address"))?.state = state;
        Ok(())
    }

    pub(super) fn add_route(&mut self, route: Route) -> io::Result<()> {
        let route = Route { destination: route.destination.network(), ..route };
        if route.gateway().is_some_and(|gateway| {
            gateway.is_ipv4() != route.destination.addr().is_ipv4()
                || !martian::is_host(gateway)
                || self.is_local(gateway)
        }) {
            return Err(invalid("a gateway has to be another host of the destination's family".to_owned()));
        }
        if self.routes.iter().any(|entry| entry.route == route) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is this route already"));
        }
        if self.routes.len() >= ROUTES_MAX {
            return Err(full("routes", ROUTES_MAX));
        }
        let rank = |route: &Route| (std::cmp::Reverse(route.destination.len()), route.metric);
        let at = self.routes.partition_point(|entry| rank(&entry.route) <= rank(&route));
        self.routes.insert(at, Entry::new(route));
        Ok(())
    }

    pub(super) fn remove_route(&mut self, route: &Route) -> io::Result<()> {
        let route = Route { destination: route.destination.network(), ..*route };
        let at = self.routes.iter().position(|entry| entry.route == route);
        self.routes.remove(at.ok_or_else(|| absent("route"))?);
        Ok(())
    }

    /// Forgets everything about an interface.
    pub(super) fn withdraw(&mut self, netif: NetifId) {
        self.addresses.retain(|own| own.netif != netif);
        self.routes.retain(|entry| entry.route.netif() != Some(netif));
    }
}

/// The group of all hosts of a link (RFC 1112 section 4).
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// Whether `addr` means a host on the link, whatever the routes say.
fn is_of_link(addr: IpAddr) -> bool {
    let link_local = match addr {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    link_local || addr.is_multicast()
}

/// An interface as a bit: there are fewer than bits. The loopback has none.
fn bit(netif: NetifId) -> u64 {
    1u64.checked_shl(u32::try_from(netif.index()).unwrap_or(u32::MAX)).unwrap_or(0)
}

fn set_bit(bits: &mut u64, netif: NetifId, is_set: bool) {
    *bits = if is_set { *bits | bit(netif) } else { *bits & !bit(netif) };
}

pub(super) fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

pub(super) fn full(what: &str, most: usize) -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, format!("a stack has {most} {what} at most"))
}

pub(crate) fn absent(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the stack has no such {what}"))
}
