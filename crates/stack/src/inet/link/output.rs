//! Frames on their way to a neighbor.
//!
//! A neighbor that is known and was heard of lately is found without a lock. Otherwise the table is asked: frames wait in
//! it while their neighbor is asked for, and leave in order when it answers, before any later frame can find it: they
//! are offered to their lanes under the table's lock, and only then the neighbor is published. Tests: `tests/link/`.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sockeye_proto::arp;
use sockeye_proto::dad::Standing;
use sockeye_proto::ndp::solicited_node;
use sockeye_proto::ndp::wire::{self as ndp_wire, Message};
use sockeye_proto::neighbor::{Action, LinkAddr, Resolution};

use super::state::{
    BROADCAST, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Link, Work, group_mac, link_header,
};
use super::{count, routes};
use crate::inet::context::Context;
use crate::inet::netif::TxFrame;
use crate::inet::netif::departures::{self, Queued};
use crate::inet::netif::table::Via;
use crate::rt::failpoints::{self, Point};

/// Sends frames of one flow, all for one destination, by `via`. Returns how many were dropped. May be called under a
/// socket lock.
pub(crate) fn transmit<'s>(
    cx: &mut Context<'s>,
    link: &'s Link,
    via: Via,
    flow: u64,
    frames: &mut Vec<TxFrame>,
) -> usize {
    let Some(dst) = frames.first().and_then(|frame| destination(frame.head())) else {
        return std::mem::take(frames).len();
    };
    let next_hop = if dst.is_multicast() { dst } else { routes::next_hop(cx.core, via, dst) };
    let ethertype = if next_hop.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
    let to = if dst.is_multicast() { Some(group_mac(dst)) } else { link.slots.hit(next_hop, cx.now) };
    match to.or_else(|| routes::is_broadcast(cx.core, link.id, next_hop).then_some(BROADCAST)) {
        Some(to) => {
            address(frames, &link_header(to, link.mac, ethertype));
            let Some(netif) = cx.core.netifs.netif(link.id) else { return frames.len() };
            departures::offer(cx, link.id, netif, flow, frames)
        }
        None => {
            let count = frames.len();
            let asked = link.work(cx, Some(next_hop), |work| work.ask(next_hop, flow, frames, ethertype));
            asked.unwrap_or_else(|| {
                frames.clear();
                count
            })
        }
    }
}

fn address(frames: &mut [TxFrame], header: &[u8; crate::inet::netif::LINK_HEADER_LEN]) {
    for frame in frames {
        frame.push_link(header);
    }
}

/// The destination in an IP header.
fn destination(head: &[u8]) -> Option<IpAddr> {
    if head.first()? >> 4 == 4 {
        let octets: [u8; 4] = head.get(16..20)?.try_into().ok()?;
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets: [u8; 16] = head.get(24..40)?.try_into().ok()?;
    Some(Ipv6Addr::from(octets).into())
}

impl Work<'_, '_> {
    /// Asks the table for the way to `next_hop`, and sends, or lets wait.
    fn ask(&mut self, next_hop: IpAddr, flow: u64, frames: &mut Vec<TxFrame>, ethertype: u16) -> usize {
        let links = &self.cx.core.links;
        links.count(count::SLOW_LOOKUPS);
        let (slots, now) = (&self.link.slots, self.cx.now);
        let resolution = self.state.cache.resolve(next_hop, now, |addr| slots.hint(addr));
        failpoints::hit(Point::Resolve, failpoints::of_addr(next_hop));
        self.retract_evicted();
        match resolution {
            Resolution::Known(to) => {
                address(frames, &link_header(to, self.link.mac, ethertype));
                let dropped = self.transmit(flow, frames);
                self.publish(next_hop);
                dropped
            }
            Resolution::Wait { solicit } => {
                let dropped: usize = frames
                    .drain(..)
                    .map(|frame| {
                        let len = frame.len();
                        self.state.cache.queue(&next_hop, Queued { flow, frame }, len).len()
                    })
                    .sum();
                links.count_many(count::PENDING_DROPPED, dropped);
                if solicit {
                    self.solicit(next_hop, Action::SolicitAll);
                }
                // Waiting packets are not dropped yet, and those that gave way are counted here.
                0
            }
            Resolution::Refused => {
                links.count_many(count::TABLE_FULL, frames.len());
                std::mem::take(frames).len()
            }
        }
    }

    /// Asks a neighbor whether it is still there, if it is one and may be gone.
    pub(super) fn suspect(&mut self, addr: IpAddr) {
        let now = self.cx.now;
        if !self.link.slots.doubt(addr, now) {
            return;
        }
        let action = self.state.cache.on_suspect(&addr, now);
        if action != Action::None {
            self.solicit(addr, action);
            self.publish(addr);
        }
    }

    /// Neighbors that gave way to others are not to be found any more.
    pub(super) fn retract_evicted(&mut self) {
        let evicted = self.state.cache.take_evicted();
        self.cx.core.links.count_many(count::EVICTED, evicted.len());
        evicted.into_iter().for_each(|addr| self.link.slots.retract(addr));
    }

    /// Senders may find a neighbor from now on, as long as the table lets them.
    pub(super) fn publish(&mut self, addr: IpAddr) {
        let entry = self.state.cache.entry(&addr);
        match entry.and_then(|entry| Some((entry.lladdr()?, entry.good_until()?))) {
            Some((lladdr, until)) => self.link.slots.publish(addr, lladdr, until),
            None => self.link.slots.retract(addr),
        }
    }

    /// A neighbor's link-layer address is known: the packets that waited for it go there, then it is
    /// published.
    pub(super) fn release(&mut self, addr: IpAddr, ready: VecDeque<Queued>) {
        if !ready.is_empty()
            && let Some(to) = self.state.cache.entry(&addr).and_then(|entry| entry.lladdr())
        {
            let ethertype = if addr.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
            let header = link_header(to, self.link.mac, ethertype);
            // Each by the lane of its flow, where later ones of the flow come behind it.
            for Queued { flow, mut frame } in ready {
                frame.push_link(&header);
                self.transmit(flow, &mut vec![frame]);
            }
        }
        self.publish(addr);
    }

    /// Asks for a neighbor.
    pub(super) fn solicit(&mut self, addr: IpAddr, action: Action) {
        let unicast = match action {
            Action::SolicitAll => None,
            Action::Solicit(lladdr) => Some(lladdr),
            Action::None | Action::Unreachable => return,
        };
        match addr {
            IpAddr::V4(target) => self.solicit_v4(target, unicast),
            IpAddr::V6(target) => self.solicit_v6(target, unicast),
        }
        self.cx.core.links.count(count::SOLICITS_OUT);
    }

    fn solicit_v4(&mut self, target: Ipv4Addr, unicast: Option<LinkAddr>) {
        let source = match routes::source(self.cx.core, self.link.id, target.into()) {
            Some(IpAddr::V4(source)) => source,
            Some(IpAddr::V6(_)) | None => return,
        };
        let request = arp::Packet::request(self.link.mac, source, target);
        self.send(unicast.unwrap_or(BROADCAST), ETHERTYPE_ARP, &request.emit());
    }

    /// RFC 4861 section 7.2.2. An address that is only believed to be ours says nothing of our link-layer address
    /// (RFC 4429 section 3.2).
    fn solicit_v6(&mut self, target: Ipv6Addr, unicast: Option<LinkAddr>) {
        let source = match routes::source(self.cx.core, self.link.id, target.into()) {
            Some(IpAddr::V6(source)) => source,
            Some(IpAddr::V4(_)) | None => return,
        };
        let mac = self.link.mac;
        let owned =
            self.state.own_mut(source.into()).is_none_or(|own| own.check.standing() == Standing::Owned);
        let message = Message::NeighborSolicit { target, lladdr: owned.then_some(mac), nonce: None };
        let group = solicited_node(target);
        let dst = if unicast.is_some() { target } else { group };
        if let Some(packet) = ndp_wire::emit(source, dst, &message) {
            self.send(unicast.unwrap_or(group_mac(group.into())), ETHERTYPE_IPV6, &packet);
        }
    }
}
