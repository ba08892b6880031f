//! An Ethernet segment with the gateway as its router.
//!
//! The stack handles ARP and Neighbor Discovery. This module answers DHCP, DHCPv6 and router solicitations before the stack sees them: [`Lan`] wraps the device,
//! takes these frames out, and passes all others on.
//!
//! | file | holds |
//! |---|---|
//! | `frame.rs` | frames with requests and answers |
//! | `dhcp.rs`, `dhcp6.rs`, `advert.rs` | messages |
//! | `leases.rs` | which machine has which address |
//! | `packet.rs` | packets with a datagram, for any part of the gateway |
//!
//! Does not depend on the engine. Bounds: `LEASES_MAX` machines; one answer per request, no longer than a packet of 1,280 bytes. Lock: one mutex around the
//! leases, a leaf. Tests: at the ends of the files, `tests/` with real clients, and the fuzz target `machine`, which also compiles this folder.

mod advert;
mod dhcp;
mod dhcp6;
mod frame;
mod leases;
pub mod packet;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sockeye::netif::{
    Checksum, HEAD_MAX, LINK_HEADER_LEN, MacAddr, Medium, Netif, RxFrame, Sent, TxFrame, Waited, Waking,
};
use sockeye_mbuf::Pool;

use super::plan::Plan;
use frame::Question;
use leases::Leases;

pub use advert::EVERY as ADVERTISE_EVERY;

/// Bytes of the longest frame with a question: clients send none that is longer than a packet of 1,500 bytes.
const QUESTION_MAX: usize = 1600;
/// Answers of one batch of frames, at most; further questions are dropped and come again.
const ANSWERS_MAX: usize = 64;
/// The gateway's own address on the link, from which it advertises.
pub const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
const ALL_MACS: MacAddr = MacAddr([0xff; 6]);

/// What machines are told.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The addresses.
    pub plan: Plan,
    /// IPv6 is there.
    pub has_v6: bool,
    /// The gateway's address on the link.
    pub mac: MacAddr,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// Domains in which names are looked for.
    pub search: Vec<String>,
}

impl Facts {
    /// The Ethernet address of the gateway of this plan, which nobody has given to a device: as slirp's.
    pub fn mac_of(plan: &Plan) -> MacAddr {
        let [a, b, c, d] = v4(plan.host[0]).octets();
        MacAddr([0x52, 0x55, a, b, c, d])
    }

    fn host_v4(&self) -> Ipv4Addr {
        v4(self.plan.host[0])
    }

    fn names_v4(&self) -> Ipv4Addr {
        v4(self.plan.names[0])
    }

    fn names_v6(&self) -> Ipv6Addr {
        v6(self.plan.names[1])
    }

    fn mask_v4(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.plan.lens[0])).unwrap_or(0))
    }

    fn network_v6(&self) -> Ipv6Addr {
        let [a, b, c, d, ..] = v6(self.plan.inside[1]).segments();
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)
    }

    fn place_v4(&self, place: u8) -> Ipv4Addr {
        Ipv4Addr::from_bits(v4(self.plan.inside[0]).to_bits() + u32::from(place))
    }

    fn place_v6(&self, place: u8) -> Ipv6Addr {
        Ipv6Addr::from_bits(v6(self.plan.inside[1]).to_bits() + u128::from(place))
    }

    /// The domains as labels (RFC 1035 section 3.1), as many as fit.
    fn search_labels(&self, max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for domain in &self.search {
            let mut labels = Vec::new();
            let parts = domain.trim_end_matches('.').split('.');
            let is_name = parts.clone().all(|label| !label.is_empty() && label.len() < 64);
            if !is_name {
                continue;
            }
            for label in parts {
                labels.push(u8::try_from(label.len()).unwrap_or(0));
                labels.extend(label.as_bytes());
            }
            labels.push(0);
            if bytes.len() + labels.len() > max {
                break;
            }
            bytes.extend(labels);
        }
        bytes
    }
}

fn v4(addr: IpAddr) -> Ipv4Addr {
    match addr {
        IpAddr::V4(addr) => addr,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

fn v6(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V6(addr) => addr,
        IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
    }
}

/// What answers machines.
#[derive(Debug)]
pub struct Router {
    facts: Facts,
    leases: Mutex<Leases>,
}

impl Router {
    /// Machines get addresses from `first` on, counted from that of the first machine.
    pub fn new(facts: Facts, first: u8) -> Self {
        Self { facts, leases: Mutex::new(Leases::from(first)) }
    }

    /// All machines have gone, and another may come.
    pub fn forget(&self) {
        self.leases().clear();
    }

    fn leases(&self) -> std::sync::MutexGuard<'_, Leases> {
        // Each change is whole.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The frame that answers the one with a question.
    fn answer(&self, frame: &[u8], is_checked: bool, now: Instant) -> Option<Vec<u8>> {
        let facts = &self.facts;
        let (from, question) = frame::question(frame, is_checked)?;
        match question {
            Question::Dhcp(message) => {
                let reply = dhcp::answer(facts, &mut self.leases(), from, message, now)?;
                let to = reply.to.map_or((ALL_MACS, Ipv4Addr::BROADCAST), |addr| (from, addr));
                frame::dhcp((facts.mac, to.0), (facts.host_v4(), to.1), &reply.message)
            }
            Question::Dhcpv6(message, src) if facts.has_v6 && src.is_unicast_link_local() => {
                let reply = dhcp6::answer(facts, &mut self.leases(), from, message, now)?;
                frame::dhcpv6((facts.mac, from), (LINK_LOCAL, src), &reply)
            }
            Question::Routers(src) if facts.has_v6 => {
                let (mac, dst) = if src.is_unspecified() { (ALL_NODES_MAC, ALL_NODES) } else { (from, src) };
                frame::icmpv6((facts.mac, mac), (LINK_LOCAL, dst), advert::message(facts))
            }
            Question::Dhcpv6(..) | Question::Routers(_) => None,
        }
    }

    /// The frame that tells all machines of the gateway.
    fn advert(&self) -> Option<Vec<u8>> {
        let facts = self.facts.has_v6.then_some(&self.facts)?;
        frame::icmpv6((facts.mac, ALL_NODES_MAC), (LINK_LOCAL, ALL_NODES), advert::message(facts))
    }
}

/// An Ethernet device with the router's answers. A handle: clones are the same device.
pub struct Lan<N> {
    inner: Arc<N>,
    router: Arc<Router>,
    pool: Arc<OnceLock<Pool>>,
}

impl<N> Clone for Lan<N> {
    fn clone(&self) -> Self {
        let (inner, router) = (Arc::clone(&self.inner), Arc::clone(&self.router));
        Self { inner, router, pool: Arc::clone(&self.pool) }
    }
}

impl<N: Netif> Lan<N> {
    /// Around `inner`, whose medium is Ethernet.
    pub fn new(inner: N, router: Arc<Router>) -> Self {
        Self { inner: Arc::new(inner), router, pool: Arc::default() }
    }

    /// Tells all machines of the gateway, as routers do from time to time.
    pub fn advertise(&self) {
        if let Some(advert) = self.router.advert() {
            self.send(&advert);
        }
    }

    fn send(&self, frame: &[u8]) {
        let Some((link, packet)) = frame.split_first_chunk::<LINK_HEADER_LEN>() else { return };
        let (head, rest) = packet.split_at(packet.len().min(HEAD_MAX));
        // Without memory nothing is sent, and the machine asks again.
        let Some(Ok(rest)) = self.pool.get().map(|pool| pool.copy_in(rest)) else { return };
        let Some(mut frame) = TxFrame::new(head, rest, Checksum::Software) else { return };
        frame.push_link(link);
        let sent = self.inner.transmit(0, &mut vec![frame]);
        self.inner.ring(sent.queue);
    }
}

impl<N: Netif> Netif for Lan<N> {
    fn mtu(&self) -> u32 {
        self.inner.mtu()
    }

    fn queue_count(&self) -> usize {
        self.inner.queue_count()
    }

    fn medium(&self) -> Medium {
        self.inner.medium()
    }

    fn offloads_checksum(&self) -> bool {
        self.inner.offloads_checksum()
    }

    fn segment_max(&self) -> u32 {
        self.inner.segment_max()
    }

    fn udp_segment_max(&self) -> u32 {
        self.inner.udp_segment_max()
    }

    fn attached(&self, pool: &Pool) {
        // It is told once.
        let _ = self.pool.set(pool.clone());
        self.inner.attached(pool);
    }

    fn wakes_by(&self, waking: &Waking) {
        self.inner.wakes_by(waking);
    }

    fn is_down(&self) -> bool {
        self.inner.is_down()
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.inner.transmit(flow, frames)
    }

    fn ring(&self, queue: usize) {
        self.inner.ring(queue);
    }

    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut answers = Vec::new();
        let frames = self.inner.receive(queue, max, &mut |frame| {
            if frame.len() > QUESTION_MAX || !frame::may_ask(frame.head) {
                return sink(frame);
            }
            let mut bytes = frame.head.to_vec();
            frame.rest.iter().for_each(|piece| bytes.extend(piece));
            let is_checked = frame.checksum == Checksum::Device;
            if answers.len() < ANSWERS_MAX {
                answers.extend(self.router.answer(&bytes, is_checked, Instant::now()));
            }
        });
        // Behind the call: the device may not take frames inside of it.
        answers.iter().for_each(|answer| self.send(answer));
        frames
    }

    fn wait(&self, queue: usize, spin: Duration) {
        self.inner.wait(queue, spin);
    }

    fn interrupt(&self, queue: usize) {
        self.inner.interrupt(queue);
    }

    fn wait_until(&self, queue: usize, deadline: Option<Instant>) -> Waited {
        self.inner.wait_until(queue, deadline)
    }

    fn kick(&self, queue: usize) {
        self.inner.kick(queue);
    }

    fn descriptor(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor(queue)
    }

    fn announced(&self, queue: usize) {
        self.inner.announced(queue);
    }

    fn unannounced(&self, queue: usize) {
        self.inner.unannounced(queue);
    }
}

#[cfg(test)]
mod tests {
    use sockeye_proto::ndp::wire::{Message, parse};

    use super::*;

    pub fn facts() -> Facts {
        let plan = Plan::default();
        let search = ["example.org", "bad..name", "lan."].map(str::to_owned).to_vec();
        Facts { plan, has_v6: true, mac: Facts::mac_of(&plan), mtu: 65_520, search }
    }

    const GUEST: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    #[test]
    fn a_discovery_in_a_frame_is_answered_by_one_and_a_damaged_one_is_not() {
        let router = Router::new(facts(), 0);
        let message = dhcp::tests::message(1, &[]);
        let frame = frame::tests::from_client(GUEST, &message);
        assert!(frame::may_ask(&frame));
        let answer = router.answer(&frame, false, Instant::now()).unwrap();
        assert_eq!((&answer[..6], &answer[6..12]), (&GUEST.0[..], &facts().mac.0[..]));
        assert_eq!(answer[30..34], [10, 0, 2, 100], "to the address that is offered");
        let mut damaged = frame;
        // The number of the transaction.
        damaged[46] ^= 1;
        assert!(router.answer(&damaged, false, Instant::now()).is_none());
        assert!(router.answer(&damaged, true, Instant::now()).is_some(), "the device has checked it");
    }

    #[test]
    fn a_solicitation_is_answered_by_an_advertisement_that_hosts_take() {
        let router = Router::new(facts(), 0);
        let src: Ipv6Addr = "fe80::9".parse().unwrap();
        let ask = sockeye_proto::ndp::wire::emit(
            src,
            "ff02::2".parse().unwrap(),
            &Message::RouterSolicit { lladdr: Some(GUEST.0) },
        );
        let frame = [&[0x33, 0x33, 0, 0, 0, 2][..], &GUEST.0, &[0x86, 0xdd], &ask.unwrap()].concat();
        assert!(frame::may_ask(&frame));
        let answer = router.answer(&frame, false, Instant::now()).unwrap();
        let Ok(Message::RouterAdvert(advert)) = parse(LINK_LOCAL, src, answer[21], &answer[54..]) else {
            panic!("no advertisement")
        };
        assert_eq!((advert.mtu, advert.lladdr), (Some(65_520), Some(facts().mac.0)));
        let prefix = advert.prefixes[0];
        assert_eq!((prefix.prefix, prefix.len), ("fd00::".parse().unwrap(), 64));
        assert!(prefix.autonomous && prefix.on_link);
        let without = Router::new(Facts { has_v6: false, ..facts() }, 0);
        assert!(without.answer(&frame, false, Instant::now()).is_none());
    }

    #[test]
    fn frames_of_a_hostile_machine_are_answered_or_dropped() {
        let router = Router::new(facts(), 0);
        let frame = frame::tests::from_client(GUEST, &dhcp::tests::message(1, &[(55, &[1, 3, 6])]));
        let mut state = 1u32;
        for round in 0..20_000 {
            let mut changed = frame.clone();
            for _ in 0..round % 4 + 1 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = state as usize % changed.len();
                changed[at] = (state >> 24) as u8;
            }
            changed.truncate(changed.len() - round % 7);
            let _ = (frame::may_ask(&changed), router.answer(&changed, true, Instant::now()));
        }
    }
}
