//! Neighbors as an application sees and sets them, and how an interface on Ethernet behaves. Tests: `tests/link/`.

use std::io;
use std::net::IpAddr;

use sockeye_proto::ip::martian::is_host;
use sockeye_proto::ndp::stable::Identifiers;
pub use sockeye_proto::neighbor::State as NeighborState;

use super::state::Link;
use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::netif::{MacAddr, NetifId, RpFilter};
use crate::rt::handle::Stack;
use crate::rt::panics;

/// A neighbor: a host on the link of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// The interface.
    pub netif: NetifId,
    /// Its address.
    pub addr: IpAddr,
    /// Its link-layer address, unless that is still being resolved.
    pub lladdr: Option<MacAddr>,
    /// Its state (RFC 4861 section 7.3.2), also for ARP.
    pub state: NeighborState,
    /// Whether it has announced itself as a router.
    pub is_router: bool,
}

/// How an interface makes the lower half of its IPv6 addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Addressing {
    /// From a secret that is drawn when the stack is made: different addresses at each start (RFC 7217).
    #[default]
    Stable,
    /// From this secret: the same addresses at each start on the same network (RFC 7217).
    StableFrom([u8; 16]),
    /// From the Ethernet address (RFC 4291 appendix A).
    Eui64,
}

/// How an interface behaves. Start from [`LinkOptions::default`]. All except [`rp_filter`](Self::rp_filter) have a
/// meaning only on Ethernet.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// It listens to router advertisements: default routes, prefixes and addresses (RFC 4861, RFC 4862). Default true.
    pub accept_ra: bool,
    /// It gives itself a link-local IPv6 address. Default true.
    pub link_local: bool,
    /// It probes the addresses that it was given, while they are already in use, and removes them if another host has
    /// them (RFC 5227, RFC 4862 section 5.4). It always probes those that it makes itself. Default true.
    pub detect_duplicates: bool,
    /// How its own IPv6 addresses are made.
    pub addressing: Addressing,
    /// Its neighbor advertisements announce it as a router (RFC 4861 section 4.4), which a host expects from its
    /// default router. The stack itself advertises no prefixes and forwards nothing. Default false.
    pub router: bool,
    /// The source check for packets; [`Stack::set_rp_filter`] changes it. Default [`RpFilter::Off`].
    pub rp_filter: RpFilter,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            accept_ra: true,
            link_local: true,
            detect_duplicates: true,
            addressing: Addressing::default(),
            router: false,
            rp_filter: RpFilter::default(),
        }
    }
}

impl LinkOptions {
    pub(super) fn identifiers(&self, drawn: [u8; 16]) -> Identifiers {
        match self.addressing {
            Addressing::Stable => Identifiers::Stable { secret: drawn },
            Addressing::StableFrom(secret) => Identifiers::Stable { secret },
            Addressing::Eui64 => Identifiers::Eui64,
        }
    }
}

impl Stack {
    /// The neighbors of all interfaces on Ethernet.
    pub fn neighbors(&self) -> Vec<Neighbor> {
        let Ok(core) = self.core::<Core>() else { return Vec::new() };
        let now = core.clock.now();
        let mut neighbors = Vec::new();
        for link in core.netifs.each().filter_map(|(id, _)| core.links.get(id)) {
            let state = link.look();
            neighbors.extend(state.cache.list(now).map(|listed| {
                // The senders have later confirmations by a higher layer.
                let confirmed = link.slots.hint(&listed.addr).confirmed;
                let is_fresh = confirmed.is_some_and(|at| now < at + state.cache.times.reachable);
                let is_known = listed.lladdr.is_some() && listed.state != NeighborState::Permanent;
                Neighbor {
                    netif: link.id,
                    addr: listed.addr,
                    lladdr: listed.lladdr.map(MacAddr),
                    state: if is_fresh && is_known { NeighborState::Reachable } else { listed.state },
                    is_router: listed.is_router,
                }
            }));
        }
        neighbors
    }

    /// Sets a neighbor's link-layer address: the stack sends no request for it, and its own advertisements change
    /// nothing.
    ///
    /// # Errors
    /// `InvalidInput` if the interface is not on Ethernet, or the addresses cannot be a host's; `QuotaExceeded` if the
    /// table is full of neighbors in use.
    pub fn set_neighbor(&self, netif: NetifId, addr: IpAddr, lladdr: MacAddr) -> io::Result<()> {
        let link = self.link(netif)?;
        let is_group = lladdr.0[0] & 1 != 0;
        if is_group || !is_host(addr) {
            let message = format!("{addr} at {lladdr}: not the addresses of one host");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Context::run(self.core::<Core>()?, |cx| {
            let set = link.work(cx, Some(addr), |work| {
                let (now, slots) = (work.now(), &link.slots);
                let ready = work.state.cache.set_permanent(addr, lladdr.0, now, |addr| slots.hint(addr));
                work.retract_evicted();
                let Some(ready) = ready else { return Err(io::ErrorKind::QuotaExceeded.into()) };
                work.release(addr, ready);
                Ok(())
            });
            set.unwrap_or_else(|| Err(panics::error()))
        })
    }

    /// Removes a neighbor, set by [`set_neighbor`](Self::set_neighbor) or learned. False if it was not known.
    ///
    /// # Errors
    /// `InvalidInput` if the interface is not on Ethernet.
    pub fn remove_neighbor(&self, netif: NetifId, addr: IpAddr) -> io::Result<bool> {
        let link = self.link(netif)?;
        let mut state = link.look();
        let dropped = state.cache.remove(&addr);
        link.slots.retract(addr);
        drop(state);
        Ok(dropped.is_some())
    }

    /// Removes all neighbors of an interface that were not set by [`set_neighbor`](Self::set_neighbor).
    ///
    /// # Errors
    /// `InvalidInput` if the interface is not on Ethernet.
    pub fn flush_neighbors(&self, netif: NetifId) -> io::Result<()> {
        let link = self.link(netif)?;
        let mut state = link.look();
        let dropped = state.cache.flush(self.core::<Core>()?.clock.now());
        link.slots.clear();
        drop(state);
        // Outside the mutex: the frames give packet memory back.
        drop(dropped);
        Ok(())
    }

    fn link(&self, netif: NetifId) -> io::Result<&Link> {
        self.core::<Core>()?.links.get(netif).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{netif:?} is no interface on Ethernet"))
        })
    }
}
