//! What a link asks of, and changes in, the tables of addresses and routes. Knows no protocol.

use std::net::{IpAddr, Ipv6Addr};

use crate::netif::Prefix;
use crate::netif::table::{NetifId, Via};
use crate::stack::Core;

/// Who takes packets for `dst` on the link.
#[inline]
pub(super) fn next_hop(_core: &Core, _via: Via, dst: IpAddr) -> IpAddr {
    dst
}

/// Whether `addr` stands for all hosts of the interface's link.
pub(super) fn is_broadcast(core: &Core, id: NetifId, addr: IpAddr) -> bool {
    core.netifs.cast(id, addr) == Some(crate::ip::Cast::Broadcast)
}

/// The address from which `dst`, on the link, is talked to.
pub(super) fn source(core: &Core, _id: NetifId, dst: IpAddr) -> Option<IpAddr> {
    core.netifs.source(dst)
}

/// Gives the interface an address. False if that cannot be.
pub(super) fn add_address(core: &Core, id: NetifId, addr: IpAddr, len: u8) -> bool {
    Prefix::new(addr, len).is_ok_and(|prefix| core.netifs.assign(id, &[prefix]).is_ok())
}

pub(super) fn remove_address(_core: &Core, _addr: IpAddr) {}

pub(super) fn set_preferred(_core: &Core, _addr: IpAddr, _preferred: bool) {}

pub(super) fn add_default(_core: &Core, _id: NetifId, _router: Ipv6Addr) {}

pub(super) fn remove_default(_core: &Core, _id: NetifId, _router: Ipv6Addr) {}

pub(super) fn add_on_link(core: &Core, id: NetifId, prefix: Ipv6Addr, len: u8) {
    if let Ok(prefix) = Prefix::new(prefix.into(), len) {
        let _ = core.netifs.add_route(prefix, id);
    }
}

pub(super) fn remove_on_link(_core: &Core, _id: NetifId, _prefix: Ipv6Addr, _len: u8) {}
