//! Received ARP (RFC 826), and its meaning for our own addresses (RFC 5227). The bytes may be anything. Tests:
//! `tests/link/`.

use std::net::{IpAddr, Ipv4Addr};

use sockeye_proto::arp::{Operation, Packet, Refusal};
use sockeye_proto::dad::Standing;
use sockeye_proto::ip::martian::Class;
use sockeye_proto::neighbor::Advert;

use super::state::{ETHERTYPE_ARP, Work};
use super::{addresses, count};
use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::netif::table::NetifId;
use crate::rt::failpoints::{self, Point};

/// A packet has come in at `id`.
pub(crate) fn input(cx: &mut Context<'_>, id: NetifId, bytes: &[u8]) {
    let core = cx.core;
    let Some(link) = core.links.get(id) else { return };
    core.links.count(count::ARP_IN);
    let packet = match Packet::parse(bytes) {
        Ok(packet) => packet,
        Err(refusal) => {
            core.links.count(count::ARP_REFUSED);
            return core.links.count(match refusal {
                Refusal::Malformed => count::ARP_MALFORMED,
                Refusal::BadSender => count::ARP_BAD_SENDER,
            });
        }
    };
    // A sender that claims to be all hosts of a network would get packets to all.
    if !packet.sender.is_unspecified() && is_of_network(core, id, packet.sender) {
        core.links.count(count::ARP_REFUSED);
        return core.links.count(count::ARP_BAD_SENDER);
    }
    // Our own, brought back by the link.
    if packet.sender_lladdr == link.mac {
        return;
    }
    link.work(cx, Some(packet.sender.into()), |work| {
        if !conflict(work, &packet) {
            learn(work, &packet);
            failpoints::hit(Point::Learn, failpoints::of_addr(packet.sender.into()));
            answer(work, &packet);
        }
    });
}

/// Whether an address is a network's or its broadcast address.
fn is_of_network(core: &Core, id: NetifId, addr: Ipv4Addr) -> bool {
    let class = core.netifs.tables().class(id, addr.into());
    matches!(class, Class::Broadcast | Class::BroadcastElsewhere | Class::Network)
}

/// Whether another host uses an address of ours, or probes one that we are probing.
fn conflict(work: &mut Work<'_, '_>, packet: &Packet) -> bool {
    let probes_the_same = packet.sender.is_unspecified();
    let addr: IpAddr = if probes_the_same { packet.target.into() } else { packet.sender.into() };
    let Some(own) = work.state.held_mut(addr) else { return false };
    if probes_the_same && (own.check.standing() != Standing::Tentative || !own.check.has_probed()) {
        return false;
    }
    addresses::conflict(work, addr);
    true
}

/// RFC 826: a known sender is updated; an unknown one is remembered if it wants something of us.
fn learn(work: &mut Work<'_, '_>, packet: &Packet) {
    if packet.sender.is_unspecified() {
        return;
    }
    let (addr, now) = (IpAddr::from(packet.sender), work.now());
    let for_us = work.state.held_mut(packet.target.into()).is_some();
    let learned = match packet.operation {
        Operation::Request => work.state.cache.on_solicit(addr, packet.sender_lladdr, for_us, now),
        Operation::Reply => {
            let advert = Advert {
                lladdr: Some(packet.sender_lladdr),
                solicited: for_us && packet.target_lladdr == work.link.mac,
                overrides: true,
                router: None,
            };
            work.state.cache.on_advert(&addr, &advert, now)
        }
    };
    if work.state.cache.entry(&addr).is_some() {
        work.release(addr, learned.ready);
    }
}

/// Answers a host that asks for an address of ours, or probes it.
fn answer(work: &mut Work<'_, '_>, packet: &Packet) {
    if packet.operation == Operation::Request && work.state.held_mut(packet.target.into()).is_some() {
        let reply = packet.reply(work.link.mac).emit();
        work.send(packet.sender_lladdr, ETHERTYPE_ARP, &reply);
        work.cx.core.links.count(count::ADVERTS_OUT);
    }
}
