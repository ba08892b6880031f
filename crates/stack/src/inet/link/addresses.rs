//! Addresses of ours on a link: whether they are another host's too, and those that we make for ourselves.
//!
//! An address is used at once, while it is being probed (RFC 4429 calls such an address optimistic, and the messages that
//! RFC 4429 forbids are not sent): a stack is up when `attach` returns. If another host has it, it is taken away again.
//! Tests: `tests/link/`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sockeye_proto::arp;
use sockeye_proto::dad::{self, Check, Standing, Step};
use sockeye_proto::ndp::host::{Effect, Host};
use sockeye_proto::ndp::wire::{self, Message, NeighborAdvert, Nonce, is_link_local};
use sockeye_proto::ndp::{ALL_NODES, ALL_ROUTERS, solicited_node};

use sockeye_sync::facade::Ordering;

use super::api::LinkOptions;
use super::state::{BROADCAST, ETHERTYPE_ARP, Origin, Own, Work};
use super::{count, groups, routes};
use crate::inet::netif::Prefix;

/// Bits of a link-local address's prefix.
const LINK_LOCAL_LEN: u8 = 64;
/// The group of all hosts (RFC 1112 section 4).
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// The link begins: it checks the addresses that were given, makes a link-local one, and asks for routers.
pub(super) fn begin(work: &mut Work<'_, '_>, addrs: &[Prefix], options: &LinkOptions) {
    let now = work.now();
    let reachable = work.state.cache.times.reachable;
    let random = work.state.random();
    work.state.cache.times = work.state.cache.times.with_base(reachable, random);
    work.link.slots.set_reachable(work.state.cache.times.reachable);
    groups::join_under(work, ALL_HOSTS.into());
    groups::join_under(work, ALL_NODES.into());
    for addr in addrs.iter().map(Prefix::addr) {
        // Unless another call has taken it away already, or given it again.
        if work.cx.core.netifs.netif_with(addr) == Some(work.link.id) && work.state.own_mut(addr).is_none() {
            add(work, addr, Origin::Given, work.link.detects_duplicates);
        }
    }
    if options.link_local {
        make_link_local(work, 0);
    }
    if options.accept_ra {
        let (identifiers, mac, random) = (work.state.identifiers, work.link.mac, work.state.random());
        work.state.host = Some(Host::new(identifiers, mac, now, random));
    }
}

/// The application gives the interface another address.
pub(super) fn give(work: &mut Work<'_, '_>, prefix: Prefix) -> io::Result<()> {
    let addr = prefix.addr();
    work.cx.core.netifs.assign(work.link.id, &[prefix])?;
    // It may be known as one that was another host's.
    work.state.own.retain(|own| own.addr != addr);
    add(work, addr, Origin::Given, work.link.detects_duplicates);
    Ok(())
}

/// The application takes an address away.
pub(super) fn take_away(work: &mut Work<'_, '_>, addr: IpAddr) -> io::Result<()> {
    work.cx.core.netifs.remove_address(work.link.id, addr)?;
    forget(work, addr);
    Ok(())
}

/// Looks after an address that is in the tables already.
fn add(work: &mut Work<'_, '_>, addr: IpAddr, origin: Origin, detect: bool) {
    let (now, random) = (work.now(), work.state.random());
    let rules = if addr.is_ipv4() { dad::V4 } else { dad::V6 };
    let check = if detect { Check::new(rules, now, random) } else { Check::trusted(rules, now) };
    work.state.own.push(Own { addr, check, nonce: None, origin });
    if let IpAddr::V6(v6) = addr {
        groups::join_under(work, solicited_node(v6).into());
    }
}

fn make_link_local(work: &mut Work<'_, '_>, attempt: u8) {
    let mac = work.link.mac;
    let Some(addr) = work.state.identifiers.link_local(mac, attempt) else { return };
    make(work, addr, LINK_LOCAL_LEN, Origin::LinkLocal { attempt });
}

/// An address that we make for ourselves.
fn make(work: &mut Work<'_, '_>, addr: Ipv6Addr, len: u8, origin: Origin) {
    if routes::add_address(work.cx.core, work.link.id, addr.into(), len) {
        add(work, addr.into(), origin, true);
    }
}

/// Takes an address of ours away.
fn remove(work: &mut Work<'_, '_>, addr: IpAddr) -> Option<Own> {
    let own = forget(work, addr)?;
    routes::remove_address(work.cx.core, work.link.id, addr);
    Some(own)
}

/// Looks after an address no longer.
fn forget(work: &mut Work<'_, '_>, addr: IpAddr) -> Option<Own> {
    let place = work.state.own.iter().position(|own| own.addr == addr)?;
    let own = work.state.own.swap_remove(place);
    if let IpAddr::V6(v6) = addr {
        groups::leave_under(work, solicited_node(v6).into());
    }
    Some(own)
}

/// Actions that the checks of addresses ask for now.
pub(super) fn on_timer(work: &mut Work<'_, '_>) {
    let now = work.now();
    for place in 0..work.state.own.len() {
        let random = work.state.random();
        // Steps that time brings take no address away, so places stay.
        let Some(own) = work.state.own.get_mut(place) else { break };
        let (step, addr) = (own.check.on_timer(now, random), own.addr);
        take_step(work, addr, step);
    }
}

/// Another host uses an address of ours, or asks for it as we do.
pub(super) fn conflict(work: &mut Work<'_, '_>, addr: IpAddr) {
    work.cx.core.links.count(count::CONFLICTS);
    let now = work.now();
    let Some(own) = work.state.own_mut(addr) else { return };
    let step = own.check.on_conflict(now);
    take_step(work, addr, step);
}

fn take_step(work: &mut Work<'_, '_>, addr: IpAddr, step: Step) {
    match (step, addr) {
        (Step::None, _) => {}
        (Step::Probe, IpAddr::V4(v4)) => {
            let probe = arp::Packet::probe(work.link.mac, v4);
            work.send(BROADCAST, ETHERTYPE_ARP, &probe.emit());
            work.cx.core.links.count(count::PROBES_OUT);
        }
        (Step::Announce { .. }, IpAddr::V4(v4)) => {
            let announcement = arp::Packet::announcement(work.link.mac, v4);
            work.send(BROADCAST, ETHERTYPE_ARP, &announcement.emit());
        }
        (Step::Probe, IpAddr::V6(v6)) => probe_v6(work, v6),
        (Step::Announce { .. }, IpAddr::V6(v6)) => announce_v6(work, v6),
        (Step::GiveUp, _) => give_up(work, addr),
    }
}

/// RFC 4862 section 5.4.2, with a nonce (RFC 7527).
fn probe_v6(work: &mut Work<'_, '_>, target: Ipv6Addr) {
    let [_, _, nonce @ ..] = work.state.draw().to_be_bytes();
    let nonce: Nonce = nonce;
    if let Some(own) = work.state.own_mut(target.into()) {
        own.nonce = Some(nonce);
    }
    let group = solicited_node(target);
    let message = Message::NeighborSolicit { target, lladdr: None, nonce: Some(nonce) };
    if let Some(packet) = wire::emit(Ipv6Addr::UNSPECIFIED, group, &message) {
        work.send_to_group(group.into(), &packet);
        work.cx.core.links.count(count::PROBES_OUT);
    }
}

/// RFC 4861 section 7.2.6: neighbors that knew us as optimistic, or by another link-layer address, learn better.
fn announce_v6(work: &mut Work<'_, '_>, target: Ipv6Addr) {
    let advert = NeighborAdvert {
        target,
        lladdr: Some(work.link.mac),
        router: work.link.is_router,
        solicited: false,
        overrides: true,
    };
    if let Some(packet) = wire::emit(target, ALL_NODES, &Message::NeighborAdvert(advert)) {
        work.send_to_group(ALL_NODES.into(), &packet);
    }
}

/// The address is another host's. Those that we have made are replaced by others, as long as there are.
fn give_up(work: &mut Work<'_, '_>, addr: IpAddr) {
    let Some(own) = remove(work, addr) else { return };
    match (own.origin, addr) {
        (Origin::LinkLocal { attempt }, _) => make_link_local(work, attempt + 1),
        (Origin::Made, IpAddr::V6(v6)) => {
            let effects = work.state.host.as_mut().map(|host| host.on_duplicate(v6));
            carry_out(work, effects.unwrap_or_default());
        }
        (Origin::Given, _) => {
            // It stays known as a duplicate, so that its owner's frames are not taken for a conflict for ever.
            work.state.own.push(own);
        }
        (Origin::Made, IpAddr::V4(_)) => {}
    }
}

/// Carries out the actions that advertisements ask for.
pub(super) fn carry_out(work: &mut Work<'_, '_>, effects: Vec<Effect>) {
    let (core, id) = (work.cx.core, work.link.id);
    for effect in effects {
        match effect {
            Effect::SolicitRouters => solicit_routers(work),
            Effect::AddRouter(router) => routes::add_default(core, id, router),
            Effect::RemoveRouter(router) => routes::remove_default(core, id, router),
            Effect::AddOnLink(prefix, len) => routes::add_on_link(core, id, prefix, len),
            Effect::RemoveOnLink(prefix, len) => routes::remove_on_link(core, id, prefix, len),
            Effect::AddAddress(addr, len) => make(work, addr, len, Origin::Made),
            Effect::SetPreferred(addr, preferred) => routes::set_preferred(core, addr.into(), preferred),
            Effect::RemoveAddress(addr) => drop(remove(work, addr.into())),
            Effect::SetReachable(base) => {
                let random = work.state.random();
                work.state.cache.times = work.state.cache.times.with_base(base, random);
                work.link.slots.set_reachable(work.state.cache.times.reachable);
            }
            Effect::SetRetrans(retrans) => work.state.cache.times.retrans = retrans,
            // Relaxed, both: each stands for itself, and holds from the next packet or connection on.
            Effect::SetMtu(mtu) => work.link.advertised_mtu.store(mtu, Ordering::Relaxed),
            Effect::SetHopLimit(hops) => work.link.advertised_hop_limit.store(hops, Ordering::Relaxed),
        }
    }
}

/// RFC 4861 section 6.3.7. From our link-local address, with our link-layer address, if it is known to be ours.
fn solicit_routers(work: &mut Work<'_, '_>) {
    let source = link_local(work);
    let src = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
    let message = Message::RouterSolicit { lladdr: source.map(|_| work.link.mac) };
    if let Some(packet) = wire::emit(src, ALL_ROUTERS, &message) {
        work.send_to_group(ALL_ROUTERS.into(), &packet);
        work.cx.core.links.count(count::ROUTER_SOLICITS_OUT);
    }
}

/// Our link-local address, once it is known to be ours.
pub(super) fn link_local(work: &Work<'_, '_>) -> Option<Ipv6Addr> {
    work.state.own.iter().find_map(|own| match own.addr {
        IpAddr::V6(v6) if is_link_local(v6) && own.check.standing() == Standing::Owned => Some(v6),
        IpAddr::V6(_) | IpAddr::V4(_) => None,
    })
}
