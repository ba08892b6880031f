//! The stack's state on one link: its link-layer address, its neighbors, and its own addresses.
//!
//! [`Work`] is a stay under the link's mutex: packets are sent from it, and its end asks for the next timer.
//! Lock rank and timers: the head of `mod.rs`. Tests: `tests/link/`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use siphasher::sip::SipHasher24;
use sockeye_proto::dad::{Check, Standing};
use sockeye_proto::group::Membership;
use sockeye_proto::ndp::host::Host;
use sockeye_proto::ndp::stable::Identifiers;
use sockeye_proto::ndp::wire::Nonce;
use sockeye_proto::neighbor::{Cache, LinkAddr, Times};
use sockeye_proto::time::Instant;
use sockeye_sync::facade::{AtomicU8, AtomicU32, AtomicU64};
use sockeye_sync::{Mutex, MutexGuard};

use super::api::LinkOptions;
use super::slots::Slots;
use super::{addresses, count, groups};
use crate::base::addr::HashKey;
use crate::base::errno;
use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::netif::departures::{self, Queued};
use crate::inet::netif::table::NetifId;
use crate::inet::netif::tables::absent;
use crate::inet::netif::{Checksum, HEAD_MAX, LINK_HEADER_LEN, Medium, Prefix, TxFrame};
use crate::rt::panics::{self, Caught, PanicSource};

/// A link: the state that senders and the input read without its mutex, and the state that the mutex
/// protects.
pub(crate) struct Link {
    pub(super) id: NetifId,
    pub(super) mac: LinkAddr,
    /// It says that it is a router.
    pub(super) is_router: bool,
    /// It probes the addresses that it is given.
    pub(super) detects_duplicates: bool,
    /// Neighbors, as senders find them.
    pub(super) slots: Slots,
    /// (a) Groups that are joined, by hash: a clear bit says that none of its groups is.
    pub(super) filter: [AtomicU64; groups::FILTER_WORDS],
    /// (a) The MTU of IPv6 packets that routers advertise, bytes; 0 if they do not.
    pub(super) advertised_mtu: AtomicU32,
    /// (a) The hop limit, likewise.
    pub(super) advertised_hop_limit: AtomicU8,
    state: Mutex<LinkState>,
}

/// The link's state, under its mutex.
pub(super) struct LinkState {
    pub cache: Cache<Queued>,
    /// Facts that routers have advertised; `None` if they are not listened to.
    pub host: Option<Host>,
    pub own: Vec<Own>,
    /// Groups of both families, IPv4's first.
    pub groups: [Membership; 2],
    pub identifiers: Identifiers,
    /// Random numbers drawn so far.
    draws: u64,
    key: HashKey,
    /// The earliest call of the timer wheel that was asked for.
    armed: Option<Instant>,
}

/// An address of ours on the link.
pub(super) struct Own {
    pub addr: IpAddr,
    pub check: Check,
    /// Of the probe that was sent last.
    pub nonce: Option<Nonce>,
    pub origin: Origin,
}

/// Gives an interface another address, and looks after it as after those of [`begin`]. Tables and link change together, so that
/// of two calls about one address both see what the other has done.
pub(crate) fn add_address(core: &Core, id: NetifId, prefix: Prefix) -> io::Result<()> {
    let Some(link) = core.links.get(id) else { return core.netifs.assign(id, &[prefix]) };
    on_link(core, link, |work| addresses::give(work, prefix))
}

/// Takes an address away from its interface.
pub(crate) fn remove_address(core: &Core, addr: IpAddr) -> io::Result<()> {
    let id = core.netifs.netif_with(addr).ok_or_else(|| absent("address"))?;
    match core.links.get(id) {
        Some(link) => on_link(core, link, |work| addresses::take_away(work, addr)),
        None => core.netifs.remove_address(id, addr),
    }
}

fn on_link(
    core: &Core,
    link: &Link,
    change: impl FnOnce(&mut Work<'_, '_>) -> io::Result<()>,
) -> io::Result<()> {
    Context::run(core, |cx| link.work(cx, None, change)).unwrap_or_else(|| Err(errno::IO.into()))
}

/// Where an address of ours is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// From the application, by `attach` or `add_address`.
    Given,
    /// Our link-local one; the number of those that were taken before it.
    LinkLocal { attempt: u8 },
    /// Made of a prefix that a router has advertised.
    Made,
}

impl LinkState {
    /// 16 random bits, for spreading actions that all hosts would else do at once.
    pub fn random(&mut self) -> u16 {
        self.draw() as u16
    }

    pub fn draw(&mut self) -> u64 {
        self.draws += 1;
        SipHasher24::new_with_key(&self.key.bytes()).hash(&self.draws.to_ne_bytes())
    }

    /// The address of ours that is this one.
    pub fn own_mut(&mut self, addr: IpAddr) -> Option<&mut Own> {
        self.own.iter_mut().find(|own| own.addr == addr)
    }

    /// The same, unless it has turned out to be another's.
    pub fn held_mut(&mut self, addr: IpAddr) -> Option<&mut Own> {
        self.own_mut(addr).filter(|own| own.check.standing() != Standing::Duplicate)
    }

    fn deadline(&self) -> Option<Instant> {
        let checks = self.own.iter().filter_map(|own| own.check.deadline());
        let groups = self.groups.iter().filter_map(Membership::deadline);
        let host = self.host.as_ref().and_then(Host::deadline);
        checks.chain(groups).chain(host).chain(self.cache.deadline()).min()
    }

    /// The wheel has called.
    pub fn called(&mut self, now: Instant) {
        self.armed = self.armed.filter(|at| now < *at);
    }
}

/// Makes the link of an interface, if its medium is Ethernet: before anything is sent.
pub(crate) fn attach(core: &Core, id: NetifId, medium: Medium, options: &LinkOptions) {
    let Medium::Ethernet(mac) = medium else { return };
    let link = || {
        let hash = |salt: u64| {
            let mut bytes = core.key.bytes().to_vec();
            bytes.extend(salt.to_ne_bytes());
            SipHasher24::new_with_key(&core.key.bytes()).hash(&bytes)
        };
        let salt = id.index() as u64 * 4;
        let now = core.clock.now();
        let secret: [u8; 16] = HashKey(hash(salt + 2), hash(salt + 3)).bytes();
        let state = LinkState {
            cache: Cache::new(now, Times::default()),
            host: None,
            own: Vec::new(),
            groups: [Membership::new(), Membership::new()],
            identifiers: options.identifiers(secret),
            draws: 0,
            key: HashKey(hash(salt), hash(salt + 1)),
            armed: None,
        };
        Link {
            id,
            mac: mac.0,
            is_router: options.router,
            detects_duplicates: options.detect_duplicates,
            slots: Slots::new(HashKey(hash(salt + 1), hash(salt))),
            filter: Default::default(),
            advertised_mtu: AtomicU32::new(0),
            advertised_hop_limit: AtomicU8::new(0),
            state: Mutex::new(state),
        }
    };
    let Some(slot) = core.links.all.get(id.index()) else { return };
    slot.get_or_init(link);
}

/// Looks after the addresses that an interface was given, and makes others.
pub(crate) fn begin(core: &Core, id: NetifId, addrs: &[Prefix], options: &LinkOptions) {
    let Some(link) = core.links.get(id) else { return };
    Context::run(core, |cx| link.work(cx, None, |work| addresses::begin(work, addrs, options)));
}

impl Link {
    /// Takes the mutex.
    fn enter<'a, 's>(&'s self, cx: &'a mut Context<'s>) -> Work<'a, 's> {
        Work { cx, link: self, state: self.state.lock() }
    }

    /// Works under the mutex. A panic takes the neighbor or the group that it is `about` with it, and the tables stay as they are
    /// otherwise: `None` then, as if the packet had not come.
    pub(super) fn work<'s, R>(
        &'s self,
        cx: &mut Context<'s>,
        about: Option<IpAddr>,
        work: impl FnOnce(&mut Work<'_, 's>) -> R,
    ) -> Option<R> {
        let mut held = self.enter(cx);
        let result = match panics::catch(PanicSource::Protocol, "the link", || work(&mut held)) {
            Ok(result) => Some(result),
            Err(caught) => {
                held.give_up(about, caught);
                None
            }
        };
        held.finish();
        result
    }

    /// Only looks.
    pub(super) fn look(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock()
    }
}

/// A stay under the link's mutex.
pub(crate) struct Work<'a, 's> {
    pub(super) cx: &'a mut Context<'s>,
    pub(super) link: &'s Link,
    pub(super) state: MutexGuard<'s, LinkState>,
}

/// Types of Ethernet frames.
pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(super) const ETHERTYPE_ARP: u16 = 0x0806;
/// All hosts on the link.
pub(super) const BROADCAST: LinkAddr = [0xff; 6];

impl Work<'_, '_> {
    /// Leaves, and asks for the next timer if it is earlier than the one asked for.
    fn finish(mut self) {
        let Some(deadline) = self.state.deadline() else { return };
        if self.state.armed.is_none_or(|armed| deadline < armed) {
            self.state.armed = Some(deadline);
            self.cx.due.timers.push((deadline.as_micros(), super::timer_of(self.link.id)));
        }
    }

    /// After a panic: forgets the neighbor or the group that it was about.
    #[cold]
    fn give_up(&mut self, about: Option<IpAddr>, caught: Caught) {
        self.cx.due.caught.push(caught);
        let forgot = panics::catch(PanicSource::Protocol, "the link", || {
            self.retract_evicted();
            let by_timer = self.state.cache.drop_in_hand();
            groups::give_up(self, about);
            for addr in about.into_iter().filter(|about| !about.is_multicast()).chain(by_timer) {
                self.link.slots.retract(addr);
                let waiting = self.state.cache.remove(&addr).map_or(0, |packets| packets.len());
                self.cx.core.links.count_many(count::PENDING_DROPPED, waiting);
            }
        });
        self.cx.due.caught.extend(forgot.err());
    }

    /// Sends one packet to a link.
    pub(super) fn send(&mut self, to: LinkAddr, ethertype: u16, packet: &[u8]) {
        let (head, rest) = packet.split_at(packet.len().min(HEAD_MAX));
        let Ok(payload) = self.cx.core.pool.copy_in(rest) else { return self.cx.ask_for_memory() };
        let Some(mut frame) = TxFrame::new(head, payload, Checksum::Software) else { return };
        frame.push_link(&link_header(to, self.link.mac, ethertype));
        self.transmit(0, &mut vec![frame]);
    }

    /// Sends a packet to a group, or to all.
    pub(super) fn send_to_group(&mut self, group: IpAddr, packet: &[u8]) {
        let ethertype = if group.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
        self.send(group_mac(group), ethertype, packet);
    }

    /// Offers frames with link headers to the device. Returns how many were dropped.
    pub(super) fn transmit(&mut self, flow: u64, frames: &mut Vec<TxFrame>) -> usize {
        let Some(netif) = self.cx.core.netifs.netif(self.link.id) else { return frames.len() };
        departures::offer(self.cx, self.link.id, netif, flow, frames)
    }

    /// The time of this call.
    pub(super) fn now(&self) -> Instant {
        self.cx.now
    }
}

/// An Ethernet header.
pub(super) fn link_header(to: LinkAddr, from: LinkAddr, ethertype: u16) -> [u8; LINK_HEADER_LEN] {
    let mut header = [0; LINK_HEADER_LEN];
    header[..6].copy_from_slice(&to);
    header[6..12].copy_from_slice(&from);
    header[12..].copy_from_slice(&ethertype.to_be_bytes());
    header
}

/// The link-layer address of a group (RFC 1112 section 6.4, RFC 2464 section 7).
pub(super) fn group_mac(group: IpAddr) -> LinkAddr {
    match group {
        IpAddr::V4(Ipv4Addr::BROADCAST) => BROADCAST,
        IpAddr::V4(v4) => {
            let [_, b, c, d] = v4.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(v6) => {
            let [.., a, b, c, d] = Ipv6Addr::octets(&v6);
            [0x33, 0x33, a, b, c, d]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_link_layer_addresses_of_the_rfcs() {
        let mac = |text: &str| group_mac(text.parse().unwrap());
        assert_eq!(mac("224.0.0.1"), [0x01, 0, 0x5e, 0, 0, 1]);
        assert_eq!(mac("239.255.1.2"), [0x01, 0, 0x5e, 0x7f, 1, 2]);
        assert_eq!(mac("255.255.255.255"), BROADCAST);
        assert_eq!(mac("ff02::1:ff28:9c5a"), [0x33, 0x33, 0xff, 0x28, 0x9c, 0x5a]);
    }
}
