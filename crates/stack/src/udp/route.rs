//! Where a datagram goes: to this stack, out, to a group; and from which address.
//!
//! Does not depend on how the packet gets there. Tests: `tests/udp/`.

use std::net::IpAddr;

use rustix::io::Errno;
use sockeye_proto::ip::martian::is_host;
use sockeye_sync::facade::Ordering;

use super::name::Name;
use super::pcb::Pcb;
use crate::base::errno;
use crate::inet::Core;
use crate::inet::netif::NetifId;
use crate::inet::netif::device::Device;
use crate::inet::netif::scope::{self, LOOPBACK, LOOPBACK_BROADCAST};
use crate::inet::netif::table::Via;
use crate::inet::netif::tables::NoWay;

/// A way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// To an address of this stack.
    Own,
    /// Out of an interface.
    Out(Via),
    /// To all hosts on an interface, or in a group there, by its number.
    All(u32),
}

/// The way from `src` to `dst`. `interface`: that the caller, or the socket's option, names for groups.
///
/// # Errors
/// ENETUNREACH if there is none.
pub(crate) fn way(core: &Core, src: IpAddr, dst: IpAddr, interface: u32) -> Result<Way, Errno> {
    if dst.is_multicast() || scope::is_broadcast(&core.netifs, dst) {
        return Ok(Way::All(if interface != 0 { interface } else { interface_from(core, src, dst)? }));
    }
    match core.netifs.via_from(src, dst) {
        Some(Via::LOOPBACK) => Ok(Way::Own),
        Some(via) => Ok(Way::Out(via)),
        None => Err(Errno::NETUNREACH),
    }
}

/// Bytes of the largest packet that the path to `dst` takes, as far as is known.
///
/// # Errors
/// ENETUNREACH and the like if there is no way.
pub(crate) fn path_mtu(core: &Core, dst: IpAddr) -> Result<u32, Errno> {
    let via = core.netifs.tables().lookup(dst).map_err(NoWay::errno)?;
    let of_link = |(id, netif): (NetifId, &Device)| core.links.mtu(id, netif.mtu(), dst.is_ipv6());
    let link = core.netifs.out(via).map_or(LOOPBACK_MTU, of_link);
    let known = core.ip.path_mtus.get(&core.key, dst, core.clock.now());
    Ok(known.map_or(link, |path| path.mtu.min(link)))
}

/// MTU of the loopback, bytes: any packet (Linux's `lo` has this MTU, too).
const LOOPBACK_MTU: u32 = 65_536;

/// The number of the interface to which the routes lead `dst`.
///
/// # Errors
/// ENETUNREACH if they do not.
pub(crate) fn interface_of(core: &Core, dst: IpAddr) -> Result<u32, Errno> {
    interface_from(core, super::name::wildcard(dst.is_ipv6()), dst)
}

fn interface_from(core: &Core, src: IpAddr, dst: IpAddr) -> Result<u32, Errno> {
    if dst == IpAddr::V4(LOOPBACK_BROADCAST) {
        return Ok(LOOPBACK);
    }
    let via = core.netifs.via_from(src, dst).ok_or(Errno::NETUNREACH)?;
    Ok(via.netif().interface_index())
}

/// The address that a datagram from a socket of this name to `dst` comes from. `wanted`: the call's ancillary
/// data; `interface`: by which it leaves, if that is known.
///
/// # Errors
/// ENETUNREACH if there is none of its family, or no way; EINVAL if the address cannot be a source for it.
pub(crate) fn source(
    core: &Core,
    pcb: &Pcb,
    name: &Name,
    dst: IpAddr,
    wanted: Option<IpAddr>,
    interface: u32,
) -> Result<IpAddr, Errno> {
    let may_be = |addr| core.netifs.is_local(addr) || pcb.transparent && is_host(addr);
    if let Some(wanted) = wanted.filter(|addr| !may_be(*addr)) {
        return Err(if wanted.is_unspecified() { Errno::ADDRNOTAVAIL } else { Errno::INVAL });
    }
    let own = name.local.addr;
    let names_one_host =
        !own.is_unspecified() && !own.is_multicast() && !scope::is_broadcast(&core.netifs, own);
    let Some(src) = wanted.or(names_one_host.then_some(own)) else {
        return source_for(core, dst, interface);
    };
    if src.is_ipv4() != dst.is_ipv4() {
        return Err(Errno::NETUNREACH);
    }
    // A packet that leaves the host does not come from its loopback (RFC 1122 section 3.2.1.3).
    match way(core, src, dst, interface)? {
        Way::Out(_) if src.is_loopback() => Err(Errno::INVAL),
        Way::All(interface) if src.is_loopback() && interface != LOOPBACK => Err(Errno::INVAL),
        Way::Own | Way::Out(_) | Way::All(_) => Ok(src),
    }
}

/// The address that the stack chooses.
fn source_for(core: &Core, dst: IpAddr, interface: u32) -> Result<IpAddr, Errno> {
    if interface == LOOPBACK || dst == IpAddr::V4(LOOPBACK_BROADCAST) {
        return core.netifs.source(super::name::loopback(dst.is_ipv4())).map_err(NoWay::errno);
    }
    let source = if interface == 0 {
        core.netifs.source(dst)
    } else {
        core.netifs.source_on(NetifId::of_interface(core, interface).ok_or(errno::NODEV)?, dst)
    };
    source.map_err(NoWay::errno)
}

/// The interface that the socket's option names, if `dst` is a group; else 0, for none.
pub(crate) fn interface_for(pcb: &Pcb, dst: IpAddr) -> u32 {
    if !dst.is_multicast() {
        return 0;
    }
    let slot = if dst.is_ipv4() { &pcb.options.multicast_if_v4 } else { &pcb.options.multicast_if_v6 };
    slot.load(Ordering::Relaxed)
}
