//! A stack's interfaces: how many there are, their addresses, and the routes that lead to them.
//!
//! Interfaces are only added, up to a bound, and never change once they stand, so readers take no lock and write no
//! line. Addresses and routes change at any time: they are read as [`Tables`] of one moment, without a lock either, and
//! replaced as a whole (`sockeye_sync::Snapshot`) by the thread that holds `changing`, which ranks before nothing.
//!
//! # Why a connection need not look up its way
//! It keeps it as a [`Via`]: the interface, the route's place, and the generation of the tables in which it was found.
//! For each segment it compares that with the present generation, a word that is written on a change only, and
//! looks up again when they differ ([`ViaCell`]). The generation is stored after the tables are replaced, with
//! release, and read with acquire: a thread that sees the new one sees the new tables. A thread that sees the old
//! one beside the new tables looks up once more than it had to.
//!
//! Tests: below, and in `tables.rs`.

use std::io;
use std::net::IpAddr;

use sockeye_netif::{MTU_MAX, MTU_MIN, QUEUES_MAX};
use sockeye_proto::time::Instant;
use sockeye_sync::Mutex;
use sockeye_sync::facade::{AtomicU32, AtomicU64, OnceLock, Ordering, Read, Snapshot};

use super::device::Device;
use super::tables::{NoWay, Tables, full, invalid};
use super::{AddressState, Prefix, Route, RpFilter};
use crate::rt::panics;

/// Interfaces that a stack may have, loopback not counted.
pub(crate) const NETIFS_MAX: usize = 16;

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

    /// That of this place.
    pub(crate) fn from_index(index: usize) -> Option<Self> {
        u16::try_from(index).ok().map(Self)
    }
}

/// The way that packets take. See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Via {
    netif: NetifId,
    /// The route's place in the tables of `generation`; [`NO_ROUTE`] for a destination on the link.
    route: u16,
    generation: u32,
}

/// Stands for no route: there are fewer of them.
const NO_ROUTE: u16 = u16::MAX;

impl Via {
    /// To this stack itself.
    pub const LOOPBACK: Self = Self { netif: NetifId::LOOPBACK, route: NO_ROUTE, generation: 0 };

    /// By a route.
    pub(super) fn new(netif: NetifId, route: usize, generation: u32) -> Self {
        Self { netif, route: u16::try_from(route).unwrap_or(NO_ROUTE), generation }
    }

    /// To a host on the link of an interface.
    pub(super) fn on_link(netif: NetifId, generation: u32) -> Self {
        Self { netif, route: NO_ROUTE, generation }
    }

    /// Whether it leads out of the stack.
    pub fn is_wire(self) -> bool {
        self.netif != NetifId::LOOPBACK
    }

    /// The interface, or [`NetifId::LOOPBACK`].
    pub fn netif(self) -> NetifId {
        self.netif
    }

    pub(super) fn generation(self) -> u32 {
        self.generation
    }

    pub(super) fn route_index(self) -> Option<usize> {
        (self.route != NO_ROUTE).then_some(usize::from(self.route))
    }

    fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.route) << 16 | u64::from(self.netif.0)
    }

    fn from_bits(bits: u64) -> Self {
        let part = |shift: u32| ((bits >> shift) & u64::from(u16::MAX)) as u16;
        Self { netif: NetifId(part(0)), route: part(16), generation: (bits >> 32) as u32 }
    }
}

/// The way of a connection, which is looked up again when routes have changed.
pub(crate) struct ViaCell(AtomicU64);

impl ViaCell {
    pub fn new(via: Via) -> Self {
        Self(AtomicU64::new(via.to_bits()))
    }

    /// As it was last looked up.
    #[inline]
    pub fn last(&self) -> Via {
        Via::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// The way from `local` to `remote` now; `None` if there is none any more. A connection over a wire never becomes one over
    /// loopback: its peer is another host.
    #[inline]
    pub fn now(&self, netifs: &Netifs, local: IpAddr, remote: IpAddr) -> Option<Via> {
        let last = self.last();
        if !last.is_wire() || last.generation == netifs.generation.load(Ordering::Acquire) {
            return Some(last);
        }
        self.again(netifs, local, remote)
    }

    #[cold]
    fn again(&self, netifs: &Netifs, local: IpAddr, remote: IpAddr) -> Option<Via> {
        let via = netifs.via_from(local, remote).filter(|via| via.is_wire())?;
        self.0.store(via.to_bits(), Ordering::Relaxed);
        Some(via)
    }
}

/// See the module's head.
pub(crate) struct Netifs {
    netifs: Slots<Device>,
    tables: Snapshot<Tables>,
    /// That of the tables.
    generation: AtomicU32,
    changing: Mutex<()>,
}

/// Facts about an interface for its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// The MSS to announce, bytes.
    pub mss: u16,
    /// The most that is handed over as one segment, bytes; a value below the MSS means the MSS, of which options
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

    /// This link, with a device that takes IP packets of `packet_max` bytes and cuts them; 0 for none. More than a packet can say
    /// of its length is for neighbors only, over IPv4: a router would have to cut it in software.
    pub fn cut_by_device(self, packet_max: u32, addr: IpAddr, is_neighbor: bool) -> Self {
        let headers = if addr.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
        let most = if addr.is_ipv4() && is_neighbor { SEGMENT_MAX } else { PACKET_MAX };
        let packet = packet_max.min(most);
        Self { segment_max: packet.saturating_sub(headers + OPTIONS_MAX), ..self }
    }
}

/// The longest IP packet that says its length, bytes.
pub(crate) const PACKET_MAX: u32 = u16::MAX as u32;
/// The longest that is handed over to be cut, bytes: Linux's bound (`GSO_MAX_SIZE`).
const SEGMENT_MAX: u32 = 8 * PACKET_MAX;
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
            tables: Snapshot::new(Tables::default()),
            generation: AtomicU32::new(0),
            changing: Mutex::new(()),
        }
    }

    /// Adds an interface, its addresses, the routes to their networks and the check of sources. `prepare` is called before anything can be sent by it.
    ///
    /// # Errors
    /// Why not, and the interface, to be dropped without a lock. Nothing has changed then.
    pub fn add(
        &self,
        netif: Device,
        prefixes: &[Prefix],
        rp_filter: RpFilter,
        prepare: impl FnOnce(NetifId),
    ) -> Result<NetifId, (io::Error, Device)> {
        let _changing = self.changing.lock();
        let (id, tables) = match self.with_another(&netif, prefixes, rp_filter) {
            Ok(found) => found,
            Err(error) => return Err((error, netif)),
        };
        prepare(id);
        self.netifs.put(id.index(), netif);
        self.publish(tables);
        Ok(id)
    }

    /// Under `changing`: the place of another interface, and the tables with its addresses.
    fn with_another(
        &self,
        netif: &Device,
        prefixes: &[Prefix],
        rp_filter: RpFilter,
    ) -> io::Result<(NetifId, Tables)> {
        let (mtu, queues) = (netif.mtu(), netif.queue_count());
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) || !(1..=QUEUES_MAX).contains(&queues) {
            return Err(invalid(format!(
                "an interface with an MTU of {mtu} bytes and {queues} queues: {MTU_MIN} to {MTU_MAX} bytes and 1 to \
                 {QUEUES_MAX} queues are possible"
            )));
        }
        let place = self.netifs.iter().count();
        let id = NetifId::from_index(place).filter(|_| place < NETIFS_MAX);
        let id = id.ok_or_else(|| full("interfaces", NETIFS_MAX))?;
        let tables = self.tables.read().changed(|tables| {
            tables.set_rp_filter(id, rp_filter);
            tables.assign(id, prefixes)
        })?;
        Ok((id, tables))
    }

    /// Addresses and routes as they are now. For one or a few lookups, not to be kept.
    #[inline]
    pub fn tables(&self) -> Read<Tables> {
        self.tables.read()
    }

    /// Changes addresses and routes, all of it or nothing.
    pub(super) fn change(&self, change: impl FnOnce(&mut Tables) -> io::Result<()>) -> io::Result<()> {
        let _changing = self.changing.lock();
        let new = self.tables.read().changed(change)?;
        self.publish(new);
        Ok(())
    }

    /// Under `changing`: has readers see new tables.
    fn publish(&self, new: Tables) {
        let generation = new.generation();
        self.tables.replace(new);
        // Release, with the acquire of `ViaCell::now`.
        self.generation.store(generation, Ordering::Release);
    }

    /// Gives an interface addresses, and routes to their networks. All or nothing.
    pub fn assign(&self, netif: NetifId, prefixes: &[Prefix]) -> io::Result<()> {
        self.known(netif)?;
        self.change(|tables| tables.assign(netif, prefixes))
    }

    /// Takes an address away from an interface.
    pub fn remove_address(&self, netif: NetifId, addr: IpAddr) -> io::Result<()> {
        self.change(|tables| tables.remove_address(netif, addr))
    }

    /// Changes the permitted use of an address.
    pub fn set_address_state(&self, addr: IpAddr, state: AddressState) -> io::Result<()> {
        self.change(|tables| tables.set_state(addr, state))
    }

    /// Takes in packets to every host's address there, or only those to our own.
    pub fn set_takes_any(&self, netif: NetifId, any: bool) -> io::Result<()> {
        self.known(netif)?;
        self.change(|tables| {
            tables.set_takes_any(netif, any);
            Ok(())
        })
    }

    /// Adds a route.
    pub fn add_route(&self, route: Route) -> io::Result<()> {
        if let Some(netif) = route.netif() {
            self.known(netif)?;
        }
        self.change(|tables| tables.add_route(route))
    }

    /// Takes a route away.
    pub fn remove_route(&self, route: &Route) -> io::Result<()> {
        self.change(|tables| tables.remove_route(route))
    }

    /// Whether `addr` means all hosts on the network of one of our addresses.
    pub fn is_broadcast(&self, addr: IpAddr) -> bool {
        self.tables().addresses().iter().any(|own| own.prefix.broadcast() == Some(addr))
    }

    /// Whether `addr` is on the network of an address of this interface.
    pub fn is_neighbor(&self, netif: NetifId, addr: IpAddr) -> bool {
        self.tables().addresses().iter().any(|own| own.netif == netif && own.prefix.contains(addr))
    }

    /// The interface that has the address `addr`.
    pub fn netif_with(&self, addr: IpAddr) -> Option<NetifId> {
        self.tables().addresses().iter().find(|own| own.prefix.addr() == addr).map(|own| own.netif)
    }

    pub(super) fn known(&self, netif: NetifId) -> io::Result<()> {
        match self.netif(netif) {
            Some(_) => Ok(()),
            None => Err(invalid(format!("{netif:?} is no interface of this stack"))),
        }
    }

    /// Whether `addr` is an address of this stack, loopback included.
    pub fn is_local(&self, addr: IpAddr) -> bool {
        self.tables().is_local(addr)
    }

    /// The way from `local`, an address of ours, to `remote`, if there is one.
    #[inline]
    pub fn via_from(&self, local: IpAddr, remote: IpAddr) -> Option<Via> {
        self.tables().lookup_from(local, remote).ok()
    }

    /// The address from which `remote` is talked to.
    ///
    /// # Errors
    /// Why there is no way there. With a way, but without an address of its family, there is none either.
    pub fn source(&self, remote: IpAddr) -> Result<IpAddr, NoWay> {
        let tables = self.tables();
        tables.source(tables.lookup(remote)?, remote).ok_or(NoWay::NoRoute)
    }

    /// The address from which `remote` is talked to on the link of `netif`.
    ///
    /// # Errors
    /// None of its addresses can be that.
    pub fn source_on(&self, netif: NetifId, remote: IpAddr) -> Result<IpAddr, NoWay> {
        let tables = self.tables();
        let source = if tables.is_local(remote) { Some(remote) } else { tables.source_on(netif, remote) };
        source.ok_or(NoWay::NoRoute)
    }

    /// The next hop of `via` has answered.
    #[inline]
    pub fn confirm(&self, via: Via, now: Instant) {
        if let Some(entry) = self.tables().entry(via) {
            entry.confirm(now);
        }
    }

    /// The interface that `via` leads to; `None` for the loopback.
    #[inline]
    pub fn out(&self, via: Via) -> Option<(NetifId, &Device)> {
        Some((via.netif, self.netif(via.netif)?))
    }

    #[inline]
    pub fn netif(&self, id: NetifId) -> Option<&Device> {
        self.netifs.at(id.index())
    }

    /// All interfaces.
    pub fn each(&self) -> impl Iterator<Item = (NetifId, &Device)> {
        (0u16..).map(NetifId).zip(self.netifs.iter())
    }
}

impl Drop for Netifs {
    /// Each interface by itself: its drop is foreign code, and the others' are not to suffer by its panic.
    fn drop(&mut self) {
        self.netifs.0.iter_mut().filter_map(OnceLock::take).for_each(panics::discard);
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

    /// Under `changing`: fills the first free place.
    fn put(&self, index: usize, value: T) {
        let is_free = self.0.get(index).is_some_and(|place| place.set(value).is_ok());
        assert!(is_free, "a place that was found free");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::ROUTES_MAX;
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
        let add = |netif, addrs: &[&str]| {
            netifs
                .add(Device::of(netif), &prefixes(addrs), RpFilter::Off, |_| ())
                .map_err(|(error, _)| error)
                .unwrap()
        };
        let (a, b) = (add(a, &["10.0.0.1/24", "fd00::1/64"]), add(b, &["10.0.1.1/24"]));
        (netifs, a, b)
    }

    #[test]
    fn the_longest_prefix_decides_and_of_equals_the_first() {
        let (netifs, a, b) = with_two();
        let leads_to = |to: &str| netifs.out(netifs.tables().lookup(addr(to)).ok()?).map(|(id, _)| id);
        assert_eq!((leads_to("10.0.0.9"), leads_to("10.0.1.9")), (Some(a), Some(b)));
        assert_eq!(netifs.tables().lookup(addr("10.0.2.9")).ok(), None);
        let add = |to: &str, netif| netifs.add_route(Route::on_link(to.parse().unwrap(), netif));
        add("0.0.0.0/0", a).unwrap();
        add("10.0.2.0/23", b).unwrap();
        add("10.0.2.0/23", a).unwrap();
        assert_eq!(add("10.0.2.1/23", a).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((leads_to("8.8.8.8"), leads_to("10.0.3.9")), (Some(a), Some(b)));
        add("10.0.3.9/32", a).unwrap();
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
            assert_eq!(netifs.source(addr(to)).ok(), from.map(addr), "{to}");
        }
        assert_eq!(netifs.tables().lookup(addr("10.0.1.1")).ok(), Some(Via::LOOPBACK));
        let takes_in = |netif, to| netifs.tables().admits(netif, "9.9.9.8", to);
        assert!(takes_in(a, "10.0.1.1") && !takes_in(a, "127.0.0.1"));
        let foreign = |netif| ["9.9.9.9", "224.0.0.1", "127.0.0.1"].map(|dst| takes_in(netif, dst));
        netifs.set_takes_any(a, true).unwrap();
        assert_eq!((foreign(a), foreign(b)), ([true, false, false], [false; 3]));
        netifs.set_takes_any(a, false).unwrap();
        assert_eq!(foreign(a), [false; 3]);
        assert!(netifs.set_takes_any(NetifId(7), true).is_err());
    }

    #[test]
    fn an_address_that_is_in_use_or_is_not_a_host_address_is_refused_and_changes_nothing() {
        let (netifs, a, _) = with_two();
        for bad in [
            "10.0.0.1/24",
            "127.0.0.1/8",
            "0.0.0.0/0",
            "0.0.0.1/8",
            "224.0.0.1/4",
            "240.0.0.1/4",
            "::1/128",
            "::ffff:10.0.0.9/128",
            "::10.0.0.9/128",
            "ff02::1/16",
        ] {
            let refused = netifs.assign(a, &prefixes(&["10.7.0.1/24", bad])).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{bad}");
        }
        assert_eq!(netifs.tables().lookup(addr("10.7.0.1")).ok(), None);
        assert!(netifs.assign(a, &prefixes(&["10.7.0.1/24", "10.7.0.1/16"])).is_err());
        let foreign = Route::on_link("::/0".parse().unwrap(), NetifId(9));
        assert!(netifs.add_route(foreign).is_err());
    }

    #[test]
    fn readers_always_find_a_route_while_routes_change_and_a_cached_route_follows() {
        let (netifs, a, b) = with_two();
        let (near, far) = (addr("10.0.0.1"), addr("8.8.8.8"));
        let default = |netif, metric| Route { metric, ..Route::on_link("0.0.0.0/0".parse().unwrap(), netif) };
        netifs.add_route(default(a, 0)).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let kept = ViaCell::new(netifs.tables().lookup(far).unwrap());
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        let via = kept.now(&netifs, near, far).expect("there is always one");
                        assert!([a, b].contains(&via.netif()));
                        let tables = netifs.tables();
                        let via = tables.lookup(far).expect("there is always one");
                        assert_eq!(tables.entry(via).unwrap().route.netif(), Some(via.netif()));
                        assert!(tables.source(via, far).unwrap().is_ipv4());
                    }
                });
            }
            let (mut now, mut next) = (a, b);
            for round in 0..3000 {
                netifs.add_route(default(next, 0)).unwrap();
                netifs.remove_route(&default(now, 0)).unwrap();
                let kept = ViaCell::new(Via::new(now, 0, 0));
                assert_eq!(kept.now(&netifs, near, far).map(Via::netif), Some(next), "{round}");
                assert_eq!(kept.last(), netifs.tables().lookup(far).unwrap());
                std::mem::swap(&mut now, &mut next);
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        netifs.withdraw(a);
        netifs.withdraw(b);
        assert!(netifs.tables().lookup(far).is_err() && netifs.tables().addresses().is_empty());
        assert!(!netifs.withdraw(a));
    }

    #[test]
    fn the_tables_are_bounded() {
        let (netifs, a, _) = with_two();
        let route = |metric| Route { metric, ..Route::on_link("10.9.0.0/16".parse().unwrap(), a) };
        let added = (0..).take_while(|metric| netifs.add_route(route(*metric)).is_ok()).count();
        assert_eq!(added, ROUTES_MAX - 3);
        assert!(netifs.assign(a, &prefixes(&["10.8.0.1/16"])).is_err());
        assert!(!netifs.is_local(addr("10.8.0.1")));
    }

    #[test]
    fn a_route_is_confirmed_at_most_once_a_second_by_however_many_threads() {
        let (netifs, ..) = with_two();
        let tables = netifs.tables();
        let route = tables.entry(tables.lookup(addr("10.0.0.2")).unwrap()).unwrap();
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

    #[test]
    fn only_a_neighbor_over_ipv4_gets_frames_longer_than_the_ip_length_field_can_hold() {
        let (v4, v6) = (addr("10.0.0.1"), addr("fd00::1"));
        let max = |device, addr, is_neighbor| {
            Link::of_mtu(1500, addr).cut_by_device(device, addr, is_neighbor).segment_max
        };
        assert_eq!((max(0, v4, true), max(40_000, v4, true), max(65_535, v4, true)), (0, 39_920, 65_455));
        assert_eq!((max(200_000, v4, true), max(200_000, v4, false)), (199_920, 65_455));
        assert_eq!((max(200_000, v6, true), max(u32::MAX, v4, true)), (65_435, 524_200));
        let (netifs, a, b) = with_two();
        assert!(netifs.is_neighbor(a, addr("10.0.0.9")) && !netifs.is_neighbor(a, addr("10.0.1.9")));
        assert!(!netifs.is_neighbor(b, addr("10.0.0.9")));
    }
}
