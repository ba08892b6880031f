//! Scopes of IPv6 addresses (RFC 4007): which interface is meant by an address that others may have on other links.
//!
//! An application names the interface by the scope id of a `SocketAddrV6`, which is its number
//! ([`NetifId::interface_index`]). Inside nothing carries it: a link-local address of our own belongs to one interface, so a
//! socket that sends from it sends there ([`Tables::lookup_from`](super::tables::Tables::lookup_from)). A socket that connects, or sends, with a
//! scope is given the interface's own address, and has its way from then on. Without a scope the routes decide, as for any
//! other address (Linux refuses that).
//!
//! The limit of it: two connections with equal addresses and ports at both ends cannot exist on two links at once.
//! Does not depend on sockets. Tests: `tests/ip/scopes.rs`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rustix::io::Errno;

use super::NetifId;
use super::table::Netifs;
use crate::base::addr::Endpoint;
use crate::base::errno;
use crate::inet::Core;

/// Number of the loopback interface.
pub(crate) const LOOPBACK: u32 = 1;
/// Number of the first attached interface.
const FIRST: u32 = 2;
/// 127.255.255.255, which the loopback's network has as any other.
pub(crate) const LOOPBACK_BROADCAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);

impl NetifId {
    /// The number by which IPv6 calls name the interface (`join_multicast_v6`, a scope). 1 is the loopback's.
    pub fn interface_index(self) -> u32 {
        if self == Self::LOOPBACK {
            return LOOPBACK;
        }
        u32::try_from(self.index()).unwrap_or(u32::MAX).saturating_add(FIRST)
    }

    /// The interface of `core` that has this number, unless that is the loopback.
    pub(crate) fn of_interface(core: &Core, index: u32) -> Option<Self> {
        core.netifs.each().map(|(id, _)| id).find(|id| id.interface_index() == index)
    }
}

/// Whether `addr` means all hosts on some network of this stack.
pub(crate) fn is_broadcast(netifs: &Netifs, addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) if v4.is_loopback() => v4 == LOOPBACK_BROADCAST,
        IpAddr::V4(v4) => v4.is_broadcast() || netifs.is_broadcast(addr),
        IpAddr::V6(_) => false,
    }
}

/// Whether the address means a host on each link (RFC 4291 section 2.5.6), or a group on each.
#[inline]
pub(crate) fn is_of_link(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V6(v6) if v6.is_multicast() => matches!(v6.octets()[1] & 0xf, 1 | 2),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    }
}

/// The interface that an application's address names; `None` if it names none, or need not.
///
/// # Errors
/// ENODEV if there is none of that number.
pub(crate) fn named(core: &Core, addr: &SocketAddr) -> Result<Option<NetifId>, Errno> {
    match addr {
        SocketAddr::V6(v6) if v6.scope_id() != 0 && is_of_link(addr.ip()) => match v6.scope_id() {
            LOOPBACK => Ok(Some(NetifId::LOOPBACK)),
            index => NetifId::of_interface(core, index).map(Some).ok_or(errno::NODEV),
        },
        SocketAddr::V6(_) | SocketAddr::V4(_) => Ok(None),
    }
}

/// Whether an own address to which a socket is bound is one of the interface that it names.
///
/// # Errors
/// EADDRNOTAVAIL if it is another's; ENODEV.
pub(crate) fn check_bind(core: &Core, addr: &SocketAddr) -> Result<(), Errno> {
    let Some(netif) = named(core, addr)? else { return Ok(()) };
    let is_there = addr.ip().is_multicast() || core.netifs.netif_with(addr.ip()) == Some(netif);
    if is_there { Ok(()) } else { Err(Errno::ADDRNOTAVAIL) }
}

/// An address as an application sees it, with the number of its interface where it needs one.
#[inline]
pub(crate) fn with_interface(mut addr: SocketAddr, interface: impl FnOnce() -> u32) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut addr
        && is_of_link(IpAddr::V6(*v6.ip()))
    {
        v6.set_scope_id(interface());
    }
    addr
}

/// An end of a conversation of which `local` is our address.
pub(crate) fn shown(netifs: &Netifs, end: Endpoint, mapped: bool, local: IpAddr) -> SocketAddr {
    let interface = || netifs.netif_with(local).map_or(0, NetifId::interface_index);
    with_interface(end.to_socket_addr(mapped), interface)
}
