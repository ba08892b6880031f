//! Routes and addresses, as an application names them.
//!
//! Knows nothing of how they are looked up (`tables.rs`). Tests: `tables.rs`, `tests/ip/routes.rs`.

use std::net::IpAddr;

use super::{NetifId, Prefix};

/// The way to a network. Of several that contain a destination the longest prefix decides, then the least
/// metric, then which was there first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Route {
    /// Where it leads; bits behind the prefix do not count.
    pub destination: Prefix,
    /// Less is better.
    pub metric: u32,
    /// Treatment of a packet that takes it.
    pub kind: RouteKind,
}

/// Treatment of a packet that takes a [`Route`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RouteKind {
    /// It leaves by an interface.
    Unicast {
        /// The interface.
        netif: NetifId,
        /// The router that is its next hop; `None` if the destination itself is.
        gateway: Option<IpAddr>,
    },
    /// It vanishes. A call fails with EINVAL, as on Linux.
    Blackhole,
    /// A call fails with EHOSTUNREACH.
    Unreachable,
    /// A call fails with EACCES.
    Prohibit,
}

impl Route {
    /// A route by an interface to hosts that are on its link, with metric 0.
    pub fn on_link(destination: Prefix, netif: NetifId) -> Self {
        Self { destination, metric: 0, kind: RouteKind::Unicast { netif, gateway: None } }
    }

    /// A route by a router on an interface's link, with metric 0.
    pub fn by(destination: Prefix, netif: NetifId, gateway: IpAddr) -> Self {
        Self { destination, metric: 0, kind: RouteKind::Unicast { netif, gateway: Some(gateway) } }
    }

    /// The interface by which packets leave, if they do.
    pub fn netif(&self) -> Option<NetifId> {
        match self.kind {
            RouteKind::Unicast { netif, .. } => Some(netif),
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => None,
        }
    }

    /// The router, if there is one.
    pub fn gateway(&self) -> Option<IpAddr> {
        match self.kind {
            RouteKind::Unicast { gateway, .. } => gateway,
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => None,
        }
    }
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// The address and its network.
    pub prefix: Prefix,
    /// The interface.
    pub netif: NetifId,
    /// Whether it may be used.
    pub state: AddressState,
}

/// Whether an address may be used (RFC 4862 section 5.5.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AddressState {
    /// It is not known yet whether another host has it: it neither receives nor sends.
    Tentative,
    /// It may.
    Preferred,
    /// It may, but nothing new should begin from it while there is another.
    Deprecated,
}
