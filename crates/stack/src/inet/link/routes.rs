//! A link's queries and changes of the tables of addresses and routes. Knows no protocol.
//!
//! A change that the tables refuse leaves them as they are: they are full, or it was made already.

use std::net::{IpAddr, Ipv6Addr};

use crate::inet::Core;
use crate::inet::netif::table::{NetifId, Via};
use crate::inet::netif::{AddressState, Prefix, Route};

/// The metric of routes that routers have told of, so that those of an application come first (as on Linux).
const ADVERTISED_METRIC: u32 = 1024;

/// The neighbor that takes packets for `dst` on the link.
#[inline]
pub(super) fn next_hop(core: &Core, via: Via, dst: IpAddr) -> IpAddr {
    core.netifs.tables().next_hop(via, dst)
}

/// Whether `addr` stands for all hosts of the interface's link.
pub(super) fn is_broadcast(core: &Core, id: NetifId, addr: IpAddr) -> bool {
    core.netifs.tables().cast(id, addr) == Some(crate::inet::ip::Cast::Broadcast)
}

/// The address from which `dst`, on the link, is talked to.
pub(super) fn source(core: &Core, id: NetifId, dst: IpAddr) -> Option<IpAddr> {
    let tables = core.netifs.tables();
    tables.source(tables.lookup_on(id, dst).ok()?, dst)
}

/// Gives the interface an address. False if that cannot be.
pub(super) fn add_address(core: &Core, id: NetifId, addr: IpAddr, len: u8) -> bool {
    Prefix::new(addr, len).is_ok_and(|prefix| core.netifs.assign(id, &[prefix]).is_ok())
}

pub(super) fn remove_address(core: &Core, id: NetifId, addr: IpAddr) {
    let _ = core.netifs.remove_address(id, addr);
}

pub(super) fn set_preferred(core: &Core, addr: IpAddr, preferred: bool) {
    let state = if preferred { AddressState::Preferred } else { AddressState::Deprecated };
    let _ = core.netifs.set_address_state(addr, state);
}

pub(super) fn add_default(core: &Core, id: NetifId, router: Ipv6Addr) {
    if let Some(route) = default(id, router) {
        let _ = core.netifs.add_route(route);
    }
}

pub(super) fn remove_default(core: &Core, id: NetifId, router: Ipv6Addr) {
    if let Some(route) = default(id, router) {
        let _ = core.netifs.remove_route(&route);
    }
}

pub(super) fn add_on_link(core: &Core, id: NetifId, prefix: Ipv6Addr, len: u8) {
    if let Some(route) = on_link(id, prefix, len) {
        let _ = core.netifs.add_route(route);
    }
}

pub(super) fn remove_on_link(core: &Core, id: NetifId, prefix: Ipv6Addr, len: u8) {
    if let Some(route) = on_link(id, prefix, len) {
        let _ = core.netifs.remove_route(&route);
    }
}

fn default(id: NetifId, router: Ipv6Addr) -> Option<Route> {
    let everything = Prefix::new(Ipv6Addr::UNSPECIFIED.into(), 0).ok()?;
    Some(Route { metric: ADVERTISED_METRIC, ..Route::by(everything, id, router.into()) })
}

fn on_link(id: NetifId, prefix: Ipv6Addr, len: u8) -> Option<Route> {
    let prefix = Prefix::new(prefix.into(), len).ok()?;
    Some(Route { metric: ADVERTISED_METRIC, ..Route::on_link(prefix, id) })
}
