//! Received Neighbor Discovery (RFC 4861), and its meaning for our own addresses (RFC 4862). Messages have passed the
//! checks of `sockeye_proto::ndp::wire`, and were not in fragments (RFC 6980). Tests: `tests/link/`.

use std::net::{IpAddr, Ipv6Addr};

use sockeye_proto::dad::Standing;
use sockeye_proto::ip;
use sockeye_proto::ndp::ALL_NODES;
use sockeye_proto::ndp::wire::{self, Message, NeighborAdvert, Nonce, Refusal, RouterAdvert};
use sockeye_proto::neighbor::{Advert, LinkAddr};

use super::state::{ETHERTYPE_IPV6, Work, group_mac};
use super::{addresses, count};
use crate::inet::context::Context;
use crate::inet::ip::Received;

/// Bytes of the longest message that is read.
pub(super) const MESSAGE_MAX: usize = 2048;

/// A message has come in.
pub(crate) fn input(cx: &mut Context<'_>, received: &Received) {
    let core = cx.core;
    let ip::Addresses::V6 { src, dst } = received.header.addresses else { return };
    let Some(link) = core.links.get(received.netif) else { return };
    core.links.count(count::NDP_IN);
    if received.was_in_fragments {
        core.links.count(count::NDP_REFUSED);
        return core.links.count(count::NDP_FRAGMENTED);
    }
    let (bytes, len) = received.first::<MESSAGE_MAX>();
    let whole = if received.payload.len() > MESSAGE_MAX { &[] } else { &bytes[..len] };
    let message = match wire::parse(src, dst, received.header.hop_limit, whole) {
        Ok(message) => message,
        Err(refusal) => {
            core.links.count(count::NDP_REFUSED);
            return core.links.count(match refusal {
                // The caller has looked at the sum, over the same bytes.
                Refusal::Malformed | Refusal::Checksum => count::NDP_MALFORMED,
                Refusal::OptionLen => count::NDP_BAD_OPTION,
                Refusal::HopLimit => count::NDP_BAD_HOP_LIMIT,
                Refusal::Addresses => count::NDP_BAD_ADDRESSES,
            });
        }
    };
    let about = match &message {
        Message::NeighborAdvert(advert) => advert.target,
        _ => src,
    };
    link.work(cx, Some(about.into()), |work| match message {
        Message::NeighborSolicit { target, lladdr, nonce } => {
            let heard_from = lladdr.or(received.link_src.map(|mac| mac.0));
            on_solicit(work, src, target, (lladdr, heard_from), nonce);
        }
        Message::NeighborAdvert(advert) => on_advert(work, &advert),
        Message::RouterAdvert(advert) => on_router_advert(work, src, &advert),
        // For routers; and better first hops, without which packets arrive all the same.
        Message::RouterSolicit { .. } | Message::Redirect { .. } => {}
    });
}

/// RFC 4861 section 7.2.3, RFC 4862 section 5.4.3.
fn on_solicit(
    work: &mut Work<'_, '_>,
    src: Ipv6Addr,
    target: Ipv6Addr,
    (lladdr, heard_from): (Option<LinkAddr>, Option<LinkAddr>),
    nonce: Option<Nonce>,
) {
    let Some(own) = work.state.held_mut(target.into()) else { return };
    let (standing, ours) = (own.check.standing(), own.nonce.is_some() && own.nonce == nonce);
    // A probe of ours that the link has brought back is recognized by its nonce (RFC 7527), or by its sender.
    if ours || heard_from == Some(work.link.mac) {
        return;
    }
    let is_probe = src.is_unspecified();
    if is_probe && standing == Standing::Tentative {
        return addresses::conflict(work, target.into());
    }
    let addr = IpAddr::V6(src);
    if let Some(lladdr) = lladdr.filter(|_| !is_probe) {
        let now = work.now();
        let learned = work.state.cache.on_solicit(addr, lladdr, true, now);
        work.release(addr, learned.ready);
    }
    let advert = NeighborAdvert {
        target,
        lladdr: Some(work.link.mac),
        router: work.link.is_router,
        solicited: !is_probe,
        overrides: standing == Standing::Owned,
    };
    let dst = if is_probe { ALL_NODES } else { src };
    let to = if is_probe { Some(group_mac(ALL_NODES.into())) } else { heard_from };
    if let (Some(to), Some(packet)) = (to, wire::emit(target, dst, &Message::NeighborAdvert(advert))) {
        work.send(to, ETHERTYPE_IPV6, &packet);
        work.cx.core.links.count(count::ADVERTS_OUT);
    }
}

/// RFC 4861 section 7.2.5, RFC 4862 section 5.4.4.
fn on_advert(work: &mut Work<'_, '_>, advert: &NeighborAdvert) {
    let addr = IpAddr::V6(advert.target);
    if work.state.held_mut(addr).is_some() {
        if advert.lladdr != Some(work.link.mac) {
            addresses::conflict(work, addr);
        }
        return;
    }
    let claim = Advert {
        lladdr: advert.lladdr,
        solicited: advert.solicited,
        overrides: advert.overrides,
        router: Some(advert.router),
    };
    let now = work.now();
    let learned = work.state.cache.on_advert(&addr, &claim, now);
    if work.state.cache.entry(&addr).is_some() {
        work.release(addr, learned.ready);
    }
    if learned.change.router_lost
        && let Some(host) = &mut work.state.host
    {
        let effects = host.on_router_gone(advert.target);
        addresses::carry_out(work, effects);
    }
}

/// RFC 4861 section 6.3.4.
fn on_router_advert(work: &mut Work<'_, '_>, src: Ipv6Addr, advert: &RouterAdvert) {
    let (now, addr) = (work.now(), IpAddr::V6(src));
    let mtu = work.cx.core.netifs.netif(work.link.id).map_or(0, |netif| netif.mtu());
    let Some(host) = &mut work.state.host else { return };
    let effects = host.on_advert(src, advert, mtu, now);
    work.cx.core.links.count(count::ROUTER_ADVERTS_IN);
    if let Some(lladdr) = advert.lladdr {
        let learned = work.state.cache.on_solicit(addr, lladdr, true, now);
        work.release(addr, learned.ready);
    }
    work.state.cache.set_router(&addr, true);
    addresses::carry_out(work, effects);
}
