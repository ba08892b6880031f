//! The link below IP, where it is Ethernet: neighbors, duplicate address detection, router advertisements, groups.
//!
//! Each interface of [`Medium::Ethernet`](crate::netif::Medium) has a [`Link`]; others have none, and cost nothing here.
//!
//! ```text
//!  netif/output.rs ──► output::transmit ──► slots.hit ──────────────────────► header, device
//!                                              │ not there, or too old            ▲
//!                                              ▼                                  │ the answer
//!                          LinkState (mutex): Cache · Host · Own · Membership ──► waits, is asked for
//!                                 ▲           ▲            ▲
//!  input ── ARP ── arp::input ────┘   NDP ── ndp::input    └── timer wheel: `on_timer`
//! ```
//!
//! The protocols are `sockeye_proto`'s and pure; here stand the lock around them, the frames, and their changes of the
//! tables of addresses and routes.
//!
//! # Locks
//! One mutex for each link. It may be taken under a socket lock (a connection's frames whose neighbor is not known or
//! was not heard of lately), so it is held shortly and no thread waits for anything under it; under it are taken the lock of
//! the tables of addresses and routes, and a device's queue: packets that waited leave before later ones can find the
//! neighbor. A sender that finds its neighbor takes no lock (`slots.rs`).
//!
//! # Timers
//! A link asks the wheel for a call by the outbox, never directly: arming may wake a worker, and that comes after
//! all locks. `armed` is the earliest call that was asked for and has not come; a thread that changes something under the
//! mutex compares it with the new deadline before it lets go (`Work::finish`), so none is missed.
//!
//! Tests: `tests/link/`, and at the ends of the files.

mod addresses;
mod api;
pub(crate) mod arp;
pub(crate) mod count;
mod groups;
pub(crate) mod ndp;
pub(crate) mod output;
mod routes;
mod slots;
mod state;
mod timer;

use std::net::IpAddr;

use sockeye_sync::Counters;
use sockeye_sync::facade::{OnceLock, Ordering};

use crate::inet::context::Context;
use crate::inet::netif::output::HOP_LIMIT;
use crate::inet::netif::table::{NETIFS_MAX, NetifId, Via};

pub use api::{Addressing, LinkOptions, Neighbor, NeighborState};
pub(crate) use groups::input as group_input;
pub(crate) use groups::{join, leave};
pub(crate) use state::{Link, add_address, attach, begin, remove_address};
pub(crate) use timer::{on_timer, timer_of};

/// The links of a stack.
pub(crate) struct Links {
    all: Box<[OnceLock<Link>]>,
    counters: Counters<{ count::COUNT }>,
}

impl Links {
    pub fn new() -> Self {
        Self { all: (0..NETIFS_MAX).map(|_| OnceLock::new()).collect(), counters: Counters::new() }
    }

    /// The link of an interface, if its medium is Ethernet.
    #[inline]
    pub fn get(&self, id: NetifId) -> Option<&Link> {
        self.all.get(id.index())?.get()
    }

    /// Counts one.
    #[inline]
    pub fn count(&self, index: usize) {
        self.counters.inc(index);
    }

    /// Counts `amount`.
    fn count_many(&self, index: usize, amount: usize) {
        self.counters.add(index, amount as u64);
    }

    /// Names and counts.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        count::NAMES.iter().enumerate().map(|(index, (name, _))| (*name, self.counters.sum(index)))
    }

    /// Bytes of the largest packet by an interface of this MTU: of IPv6 no more than routers advertise (RFC 4861 section
    /// 6.3.4).
    pub fn mtu(&self, id: NetifId, mtu: u32, is_v6: bool) -> u32 {
        let link = if is_v6 { self.get(id) } else { None };
        match link.map_or(0, |link| link.advertised_mtu.load(Ordering::Relaxed)) {
            0 => mtu,
            advertised => advertised.min(mtu),
        }
    }

    /// The hop limit of unicast packets by an interface, for a socket that sets none: over IPv6 the one that routers
    /// advertise.
    #[inline]
    pub fn hop_limit(&self, id: NetifId, is_v6: bool) -> u8 {
        let link = if is_v6 { self.get(id) } else { None };
        match link.map_or(0, |link| link.advertised_hop_limit.load(Ordering::Relaxed)) {
            0 => HOP_LIMIT,
            advertised => advertised,
        }
    }

    /// Whether frames to `group` that come in at `id` are wanted.
    pub fn wants(&self, id: NetifId, group: IpAddr) -> bool {
        self.get(id).is_some_and(|link| link.wants(group))
    }
}

/// A connection's peer has acknowledged something new, so the next hop of its way can be reached in both directions (RFC
/// 4861 section 7.3.1). Reads; writes at most once a second for each neighbor.
#[inline]
pub(crate) fn confirm(cx: &Context<'_>, via: Via, remote: IpAddr) {
    let link = cx.core.netifs.out(via).and_then(|(id, _)| cx.core.links.get(id));
    if let Some(link) = link {
        link.slots.confirm(routes::next_hop(cx.core, via, remote), cx.now);
    }
}

/// A connection's segments get no answer any more: its next hop may have got another link-layer address silently, and is
/// asked (RFC 4861 section 7.3.3). May be called under a socket lock.
#[cold]
pub(crate) fn suspect(cx: &mut Context<'_>, via: Via, remote: IpAddr) {
    let core = cx.core;
    let Some(link) = core.netifs.out(via).and_then(|(id, _)| core.links.get(id)) else { return };
    let next_hop = routes::next_hop(core, via, remote);
    link.work(cx, Some(next_hop), |work| work.suspect(next_hop));
}
