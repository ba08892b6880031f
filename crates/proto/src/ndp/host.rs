//! Facts that a host learns from router advertisements: default routers, prefixes on the link, addresses of its
//! own, and the link's numbers (RFC 4861 section 6.3, RFC 4862 section 5.5).
//!
//! Everything learned has a lifetime and ends by the clock; everything has a bound, beyond which advertisements are not
//! believed, so that forged ones do not drive out entries in use. Only a router that has been found not to answer gives way
//! to another. Addresses are only named here: the caller that carries out [`Effect::AddAddress`] checks first that no other
//! host has them (`dad`), and says so with [`Host::on_duplicate`] if one has. Tests stand in `host/tests.rs`.

#[cfg(test)]
mod tests;

use core::net::Ipv6Addr;
use core::time::Duration;

use super::stable::Identifiers;
use super::wire::{PrefixInfo, RouterAdvert, is_link_local};
use crate::dad::part;
use crate::neighbor::LinkAddr;
use crate::time::Instant;

/// Most default routers.
pub const ROUTERS_MAX: usize = 8;
/// Most prefixes on the link.
pub const ON_LINK_MAX: usize = 16;
/// Most addresses that are made of prefixes.
pub const ADDRESSES_MAX: usize = 16;
/// The smallest MTU that a router may set, bytes (RFC 8200 section 5).
pub const MTU_MIN: u32 = 1280;
/// The smallest hop limit that we believe: a router shall not keep our packets from leaving the site.
pub const HOP_LIMIT_MIN: u8 = 32;
/// MAX_RTR_SOLICITATIONS.
const SOLICITS_MAX: u8 = 3;
/// RTR_SOLICITATION_INTERVAL.
const SOLICIT_INTERVAL: Duration = Duration::from_secs(4);
/// MAX_RTR_SOLICITATION_DELAY.
const SOLICIT_DELAY_MAX: Duration = Duration::from_secs(1);
/// An advertisement cannot bring an address's life below this unless it is authentic (RFC 4862 section 5.5.3 e).
const TWO_HOURS: Duration = Duration::from_secs(7200);

/// Action for the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Ask for routers.
    SolicitRouters,
    /// A default route by this router.
    AddRouter(Ipv6Addr),
    /// No more.
    RemoveRouter(Ipv6Addr),
    /// Addresses of this prefix are neighbors.
    AddOnLink(Ipv6Addr, u8),
    /// No more.
    RemoveOnLink(Ipv6Addr, u8),
    /// An address of ours, with the length of its prefix.
    AddAddress(Ipv6Addr, u8),
    /// Whether new connections should begin from an address of ours.
    SetPreferred(Ipv6Addr, bool),
    /// An address is ours no more.
    RemoveAddress(Ipv6Addr),
    /// The link's MTU, bytes.
    SetMtu(u32),
    /// The hop limit of packets sent.
    SetHopLimit(u8),
    /// BaseReachableTime.
    SetReachable(Duration),
    /// RetransTimer.
    SetRetrans(Duration),
}

/// See the module's head.
#[derive(Debug)]
pub struct Host {
    identifiers: Identifiers,
    lladdr: LinkAddr,
    solicits_sent: u8,
    solicit_at: Option<Instant>,
    routers: Vec<Router>,
    on_link: Vec<OnLink>,
    addresses: Vec<Made>,
}

#[derive(Clone, Copy, Debug)]
struct Router {
    addr: Ipv6Addr,
    until: Instant,
    /// It did not answer: not used until it is heard of again.
    is_lost: bool,
}

#[derive(Clone, Copy, Debug)]
struct OnLink {
    prefix: Ipv6Addr,
    len: u8,
    until: Instant,
}

/// An address that was made of a prefix.
#[derive(Clone, Copy, Debug)]
struct Made {
    prefix: Ipv6Addr,
    addr: Ipv6Addr,
    attempt: u8,
    preferred_until: Instant,
    valid_until: Instant,
    is_preferred: bool,
}

impl Host {
    /// A host on a link, which asks for routers after a random part of a second.
    pub fn new(identifiers: Identifiers, lladdr: LinkAddr, now: Instant, random: u16) -> Self {
        Self {
            identifiers,
            lladdr,
            solicits_sent: 0,
            solicit_at: Some(now + part(SOLICIT_DELAY_MAX, random)),
            routers: Vec::new(),
            on_link: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Default routers that are in use.
    pub fn routers(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.routers.iter().filter(|router| !router.is_lost).map(|router| router.addr)
    }

    /// Addresses that were made of prefixes.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.addresses.iter().map(|made| made.addr)
    }

    /// An advertisement of the router `from`, its link-local address; `mtu_max`: MTU of the interface.
    pub fn on_advert(
        &mut self,
        from: Ipv6Addr,
        advert: &RouterAdvert,
        mtu_max: u32,
        now: Instant,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        if advert.hop_limit >= HOP_LIMIT_MIN {
            effects.push(Effect::SetHopLimit(advert.hop_limit));
        }
        if !advert.reachable.is_zero() && advert.reachable <= REACHABLE_MAX {
            effects.push(Effect::SetReachable(advert.reachable));
        }
        if (RETRANS_MIN..=REACHABLE_MAX).contains(&advert.retrans) {
            effects.push(Effect::SetRetrans(advert.retrans));
        }
        if let Some(mtu) = advert.mtu.filter(|mtu| (MTU_MIN..=mtu_max).contains(mtu)) {
            effects.push(Effect::SetMtu(mtu));
        }
        self.learn_router(from, advert.lifetime, now, &mut effects);
        for info in &advert.prefixes {
            if is_link_local(info.prefix) || info.prefix.is_multicast() {
                continue;
            }
            if info.on_link {
                self.learn_on_link(info, now, &mut effects);
            }
            if info.autonomous {
                self.learn_address(info, now, &mut effects);
            }
        }
        effects
    }

    /// A default router does not answer. It is passed over until it is heard of again, if there is another one.
    pub fn on_router_lost(&mut self, addr: Ipv6Addr) -> Vec<Effect> {
        let others = self.routers().filter(|router| *router != addr).count();
        let lost = self.routers.iter_mut().find(|router| router.addr == addr && !router.is_lost);
        let Some(router) = lost.filter(|_| others > 0) else { return Vec::new() };
        router.is_lost = true;
        vec![Effect::RemoveRouter(addr)]
    }

    /// A router says that it is none any more.
    pub fn on_router_gone(&mut self, addr: Ipv6Addr) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.drop_routers(&mut effects, |router| router.addr == addr);
        effects
    }

    /// An address that was named here is another host's.
    pub fn on_duplicate(&mut self, addr: Ipv6Addr) -> Vec<Effect> {
        let Some(place) = self.addresses.iter().position(|made| made.addr == addr) else {
            return Vec::new();
        };
        let mut effects = vec![Effect::RemoveAddress(addr)];
        let mut made = self.addresses.swap_remove(place);
        made.attempt += 1;
        if let Some(next) = self.identifiers.address(made.prefix, self.lladdr, made.attempt) {
            made.addr = next;
            effects.push(Effect::AddAddress(next, PREFIX_LEN));
            if !made.is_preferred {
                effects.push(Effect::SetPreferred(next, false));
            }
            self.addresses.push(made);
        }
        effects
    }

    /// When to call [`on_timer`](Self::on_timer).
    pub fn deadline(&self) -> Option<Instant> {
        let routers = self.routers.iter().map(|router| router.until);
        let on_link = self.on_link.iter().map(|entry| entry.until);
        let addresses = self
            .addresses
            .iter()
            .map(|made| if made.is_preferred { made.preferred_until } else { made.valid_until });
        let ends = routers.chain(on_link).chain(addresses).filter(|at| *at != FOR_EVER);
        self.solicit_at.into_iter().chain(ends).min()
    }

    /// Runs the due timers.
    pub fn on_timer(&mut self, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.solicit_at.is_some_and(|at| at <= now) {
            self.solicits_sent += 1;
            self.solicit_at = (self.solicits_sent < SOLICITS_MAX).then(|| now + SOLICIT_INTERVAL);
            effects.push(Effect::SolicitRouters);
        }
        self.drop_routers(&mut effects, |router| router.until <= now);
        self.on_link.retain(|entry| {
            let stays = now < entry.until;
            if !stays {
                effects.push(Effect::RemoveOnLink(entry.prefix, entry.len));
            }
            stays
        });
        self.addresses.retain_mut(|made| {
            if made.valid_until <= now {
                effects.push(Effect::RemoveAddress(made.addr));
                return false;
            }
            made.settle(now, &mut effects);
            true
        });
        effects
    }

    fn drop_routers(&mut self, effects: &mut Vec<Effect>, which: impl Fn(&Router) -> bool) {
        self.routers.retain(|router| {
            let goes = which(router);
            if goes && !router.is_lost {
                effects.push(Effect::RemoveRouter(router.addr));
            }
            !goes
        });
    }

    fn learn_router(&mut self, from: Ipv6Addr, lifetime: Duration, now: Instant, effects: &mut Vec<Effect>) {
        if lifetime.is_zero() {
            return self.drop_routers(effects, |router| router.addr == from);
        }
        // A router has answered: no more is asked (RFC 4861 section 6.3.7).
        self.solicit_at = None;
        let until = now + lifetime;
        if let Some(known) = self.routers.iter_mut().find(|router| router.addr == from) {
            known.until = until;
            if core::mem::take(&mut known.is_lost) {
                effects.push(Effect::AddRouter(from));
            }
        } else {
            // One that does not answer gives way: forged routers keep no true one out for longer than it takes to find out.
            let lost = self.routers.iter().position(|router| router.is_lost);
            match lost.filter(|_| self.routers.len() >= ROUTERS_MAX) {
                Some(lost) => drop(self.routers.remove(lost)),
                None if self.routers.len() >= ROUTERS_MAX => return,
                None => {}
            }
            self.routers.push(Router { addr: from, until, is_lost: false });
            effects.push(Effect::AddRouter(from));
        }
    }

    /// RFC 4861 section 6.3.4.
    fn learn_on_link(&mut self, info: &PrefixInfo, now: Instant, effects: &mut Vec<Effect>) {
        let prefix = masked(info.prefix, info.len);
        let place = self.on_link.iter().position(|entry| (entry.prefix, entry.len) == (prefix, info.len));
        match place {
            Some(place) if info.valid.is_zero() => {
                self.on_link.swap_remove(place);
                effects.push(Effect::RemoveOnLink(prefix, info.len));
            }
            Some(place) => self.on_link[place].until = end_of(info.valid, now),
            None if info.valid.is_zero() || self.on_link.len() >= ON_LINK_MAX => {}
            None => {
                self.on_link.push(OnLink { prefix, len: info.len, until: end_of(info.valid, now) });
                effects.push(Effect::AddOnLink(prefix, info.len));
            }
        }
    }

    /// RFC 4862 section 5.5.3.
    fn learn_address(&mut self, info: &PrefixInfo, now: Instant, effects: &mut Vec<Effect>) {
        if info.preferred > info.valid || info.len != PREFIX_LEN {
            return;
        }
        let prefix = masked(info.prefix, info.len);
        if let Some(made) = self.addresses.iter_mut().find(|made| made.prefix == prefix) {
            made.preferred_until = end_of(info.preferred, now);
            made.renew(info.valid, now);
            made.settle(now, effects);
            return;
        }
        if info.valid.is_zero() || self.addresses.len() >= ADDRESSES_MAX {
            return;
        }
        let Some(addr) = self.identifiers.address(prefix, self.lladdr, 0) else { return };
        let mut made = Made {
            prefix,
            addr,
            attempt: 0,
            preferred_until: end_of(info.preferred, now),
            valid_until: end_of(info.valid, now),
            is_preferred: true,
        };
        effects.push(Effect::AddAddress(addr, PREFIX_LEN));
        made.settle(now, effects);
        self.addresses.push(made);
    }
}

impl Made {
    /// An address's life is not cut short below two hours by any host that can send an advertisement.
    fn renew(&mut self, valid: Duration, now: Instant) {
        let left = self.valid_until.since(now);
        if valid > TWO_HOURS || valid > left {
            self.valid_until = end_of(valid, now);
        } else if left > TWO_HOURS {
            self.valid_until = now + TWO_HOURS;
        }
    }

    /// Says so if it has become preferred, or is no more.
    fn settle(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let preferred = now < self.preferred_until;
        if core::mem::replace(&mut self.is_preferred, preferred) != preferred {
            effects.push(Effect::SetPreferred(self.addr, preferred));
        }
    }
}

/// Bits of the prefix of an address that a host makes on Ethernet (RFC 2464 section 4).
const PREFIX_LEN: u8 = 64;
/// The longest time that a router may set for reachability or between requests: an hour (RFC 4861 section 6.2.1).
const REACHABLE_MAX: Duration = Duration::from_secs(3600);
/// The shortest time between requests that we believe: a router shall not make us flood the link.
const RETRANS_MIN: Duration = Duration::from_millis(100);
/// Deadline of an entry without one.
const FOR_EVER: Instant = Instant::from_micros(u64::MAX);

fn end_of(lifetime: Duration, now: Instant) -> Instant {
    if lifetime == Duration::MAX { FOR_EVER } else { now + lifetime }
}

/// The first `len` bits of an address.
fn masked(addr: Ipv6Addr, len: u8) -> Ipv6Addr {
    let host_bits = 128 - u32::from(len.min(128));
    Ipv6Addr::from(u128::from(addr) & u128::MAX.checked_shl(host_bits).unwrap_or(0))
}
