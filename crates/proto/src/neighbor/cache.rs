//! All neighbors of one link, within bounds that a flood cannot move.
//!
//! An entry belongs to one of three kinds, each with a bound of its own:
//!
//! * *asked for*: INCOMPLETE, at most [`INCOMPLETE_MAX`]. The oldest gives way: a resolution that succeeds takes far
//!   less time than a flood of packets to absent hosts needs to come round.
//! * *learned*: a neighbor has told us of itself and we have never sent to it, at most [`LEARNED_MAX`]; the oldest
//!   gives way.
//! * *used*: we have sent to it. All kinds together are at most [`ENTRIES_MAX`]; when they are reached, entries that
//!   are STALE and have been silent for [`UNUSED_AFTER`] are thrown out, at most once in [`FORCED_EVERY`]. If that frees
//!   nothing, the [`GIVE_WAY`] least recently used give way, those through which no higher layer got lately before the
//!   others. Only permanent entries never do.
//!
//! So a newcomer is always taken in, unless all entries are permanent. The first two kinds of flood evict nothing that is in use. An
//! attacker on the link that *answers* for more than a thousand addresses, and gets us to send to each, does evict others; each costs
//! one round trip of resolution at its next packet. [`take_evicted`](Cache::take_evicted) names them, for a caller that keeps copies.
//! Choosing looks at all entries, so it is done for many at once: a newcomer costs a look at [`ENTRIES_MAX`] / [`GIVE_WAY`] entries
//! on average.
//!
//! When an entry was used or confirmed last is known better by senders: they keep it outside, where no lock
//! is, and it is asked for by a [`Hint`] whenever it matters.
//!
//! Tests: `neighbor/tests.rs`.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use super::{Action, Advert, Change, Entry, LinkAddr, State, Times};
use crate::time::Instant;

/// Most entries of a link.
pub const ENTRIES_MAX: usize = 1024;
/// Most of them that are being asked for.
pub const INCOMPLETE_MAX: usize = 128;
/// Most of them that we have never sent to.
pub const LEARNED_MAX: usize = 256;
/// Most packets that wait for one neighbor; the oldest gives way (RFC 4861 section 7.2.2).
pub const PENDING_MAX: usize = 16;
/// Most bytes that wait for one neighbor, but for a single packet that is larger.
pub const PENDING_BYTES_MAX: usize = 128 << 10;
/// A stale entry that was not sent to for so long may go (Linux: `gc_stale_time`).
const UNUSED_AFTER: Duration = Duration::from_secs(60);
/// Stale entries are looked through so often (Linux: `gc_interval`).
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Used entries that give way together when there is no room.
pub const GIVE_WAY: usize = 64;
/// And at most so often when there is no room.
const FORCED_EVERY: Duration = Duration::from_secs(1);

/// The senders' view of an entry: when it was sent to, and when a higher layer got through, last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hint {
    /// Sent to.
    pub used: Option<Instant>,
    /// Got through.
    pub confirmed: Option<Instant>,
}

/// How a packet may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// To this address.
    Known(LinkAddr),
    /// It has to wait ([`Cache::queue`]); `solicit`: ask for the neighbor.
    Wait {
        /// Whether a first request has to be sent.
        solicit: bool,
    },
    /// There is no room for another neighbor.
    Refused,
}

/// Result of an advertisement or a request of a neighbor.
#[derive(Debug)]
pub struct Learned<P> {
    /// Changes of the entry.
    pub change: Change,
    /// Packets that waited, to be sent to the entry's address, in order.
    pub ready: VecDeque<P>,
}

/// Result of the timers.
#[derive(Debug)]
pub struct Due {
    /// To do for this neighbor. [`Action::Unreachable`] is in [`Expired`] instead.
    pub actions: Vec<(IpAddr, Action)>,
}

/// A neighbor that was given up, and the packets that waited for it.
#[derive(Debug)]
pub struct Expired<P> {
    /// Its address.
    pub addr: IpAddr,
    /// It was a router.
    pub was_router: bool,
    /// Packets that cannot go.
    pub packets: VecDeque<P>,
}

/// A neighbor, for diagnosis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its address.
    pub addr: IpAddr,
    /// Its link-layer address.
    pub lladdr: Option<LinkAddr>,
    /// Its state.
    pub state: State,
    /// Whether it is a router.
    pub is_router: bool,
}

/// See the module's head. `P` is a packet that waits.
#[derive(Debug)]
pub struct Cache<P> {
    entries: BTreeMap<IpAddr, Slot<P>>,
    /// Entries that were asked for, oldest first, by number: those that have changed since are passed over.
    asked: VecDeque<(IpAddr, u64)>,
    /// Entries that were learned, likewise.
    learned: VecDeque<(IpAddr, u64)>,
    /// The number of the next entry.
    serial: u64,
    sweep_at: Instant,
    forced_at: Instant,
    /// No entry's timer is due before this; it may be early, never late.
    next: Option<Instant>,
    evicted: Vec<IpAddr>,
    /// The entry that the timer is looking at.
    in_hand: Option<IpAddr>,
    /// The times of the link.
    pub times: Times,
}

#[derive(Debug)]
struct Slot<P> {
    entry: Entry,
    serial: u64,
    /// We have sent to it.
    is_used: bool,
    used: Instant,
    pending: VecDeque<(P, usize)>,
    pending_bytes: usize,
}

impl<P> Cache<P> {
    /// An empty one.
    pub fn new(now: Instant, times: Times) -> Self {
        Self {
            entries: BTreeMap::new(),
            asked: VecDeque::new(),
            learned: VecDeque::new(),
            serial: 0,
            sweep_at: now + SWEEP_EVERY,
            forced_at: now,
            next: None,
            evicted: Vec::new(),
            in_hand: None,
            times,
        }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Used neighbors that gave way to others since the last time it was asked.
    pub fn take_evicted(&mut self) -> Vec<IpAddr> {
        std::mem::take(&mut self.evicted)
    }

    /// The entry of `addr`.
    pub fn entry(&self, addr: &IpAddr) -> Option<&Entry> {
        self.entries.get(addr).map(|slot| &slot.entry)
    }

    /// All neighbors, by address.
    pub fn list(&self, now: Instant) -> impl Iterator<Item = Listed> {
        self.entries.iter().map(move |(addr, slot)| Listed {
            addr: *addr,
            lladdr: slot.entry.lladdr(),
            state: slot.entry.state(now),
            is_router: slot.entry.is_router(),
        })
    }

    /// A packet is to go to `addr`. `hint` returns the senders' view of any entry.
    pub fn resolve(&mut self, addr: IpAddr, now: Instant, hint: impl Fn(&IpAddr) -> Hint) -> Resolution {
        let times = self.times;
        if let Some(slot) = self.entries.get_mut(&addr) {
            if let Some(at) = hint(&addr).confirmed {
                slot.entry.on_confirm(at, &times);
            }
            (slot.is_used, slot.used) = (true, now);
            slot.entry.on_use(now, &times);
            let (entry, next) = (slot.entry, &mut self.next);
            sooner(next, entry.deadline());
            return entry.lladdr().map_or(Resolution::Wait { solicit: false }, Resolution::Known);
        }
        self.bound_asked();
        if !self.make_room(now, hint) {
            return Resolution::Refused;
        }
        let serial = self.insert(addr, Entry::incomplete(now, &times), now, true);
        self.asked.push_back((addr, serial));
        Resolution::Wait { solicit: true }
    }

    /// Lets a packet of `len` bytes wait for `addr`, which has to be asked for already. Returns packets that gave
    /// way, or the packet itself if the entry is gone.
    pub fn queue(&mut self, addr: &IpAddr, packet: P, len: usize) -> VecDeque<P> {
        let mut dropped = VecDeque::new();
        let Some(slot) = self.entries.get_mut(addr) else {
            dropped.push_back(packet);
            return dropped;
        };
        slot.pending.push_back((packet, len));
        slot.pending_bytes += len;
        while slot.pending.len() > PENDING_MAX
            || (slot.pending_bytes > PENDING_BYTES_MAX && slot.pending.len() > 1)
        {
            let Some((oldest, len)) = slot.pending.pop_front() else { break };
            slot.pending_bytes -= len;
            dropped.push_back(oldest);
        }
        dropped
    }

    /// `addr` has sent a request that names its address: an entry is made if there is none and `create` (the target
    /// is ours, so that we are about to answer).
    pub fn on_solicit(&mut self, addr: IpAddr, lladdr: LinkAddr, create: bool, now: Instant) -> Learned<P> {
        let Some(slot) = self.entries.get_mut(&addr) else {
            if create {
                self.learn(addr, lladdr, now);
            }
            return Learned { change: Change::default(), ready: VecDeque::new() };
        };
        let change = slot.entry.on_solicit(lladdr);
        let learned = slot.settle(change, now, &self.times);
        sooner(&mut self.next, slot.entry.deadline());
        learned
    }

    /// `addr` has advertised itself. Without an entry nothing happens (RFC 4861 section 7.2.5).
    pub fn on_advert(&mut self, addr: &IpAddr, advert: &Advert, now: Instant) -> Learned<P> {
        let Some(slot) = self.entries.get_mut(addr) else {
            return Learned { change: Change::default(), ready: VecDeque::new() };
        };
        let change = slot.entry.on_advert(advert, now, &self.times);
        let learned = slot.settle(change, now, &self.times);
        sooner(&mut self.next, slot.entry.deadline());
        learned
    }

    /// `addr` is a router, or none.
    pub fn set_router(&mut self, addr: &IpAddr, is_router: bool) {
        if let Some(slot) = self.entries.get_mut(addr) {
            slot.entry.set_router(is_router);
        }
    }

    /// A higher layer got through to `addr` at `at`.
    pub fn on_confirm(&mut self, addr: &IpAddr, at: Instant) {
        if let Some(slot) = self.entries.get_mut(addr) {
            slot.entry.on_confirm(at, &self.times);
        }
    }

    /// A higher layer does not get through to `addr` any more; see [`Entry::on_suspect`].
    pub fn on_suspect(&mut self, addr: &IpAddr, now: Instant) -> Action {
        let Some(slot) = self.entries.get_mut(addr) else { return Action::None };
        let action = slot.entry.on_suspect(now, &self.times);
        sooner(&mut self.next, slot.entry.deadline());
        action
    }

    /// The user vouches for a neighbor. False if there is no room.
    pub fn set_permanent(
        &mut self,
        addr: IpAddr,
        lladdr: LinkAddr,
        now: Instant,
        hint: impl Fn(&IpAddr) -> Hint,
    ) -> Option<VecDeque<P>> {
        if let Some(slot) = self.entries.get_mut(&addr) {
            slot.entry = Entry::permanent(lladdr);
            return Some(slot.take_pending());
        }
        self.make_room(now, hint).then(|| {
            self.insert(addr, Entry::permanent(lladdr), now, true);
            VecDeque::new()
        })
    }

    /// Forgets a neighbor, and the packets that waited for it.
    pub fn remove(&mut self, addr: &IpAddr) -> Option<VecDeque<P>> {
        self.entries.remove(addr).map(|mut slot| slot.take_pending())
    }

    /// Forgets all that the user has not set. Returns the packets that waited.
    pub fn flush(&mut self, now: Instant) -> VecDeque<P> {
        let mut packets = VecDeque::new();
        self.entries.retain(|_, slot| {
            let stays = slot.entry.state(now) == State::Permanent;
            if !stays {
                packets.append(&mut slot.take_pending());
            }
            stays
        });
        packets
    }

    /// After [`on_timer`](Self::on_timer) has panicked: forgets the neighbor that it was looking at, over which it would panic
    /// again. Returns its address.
    pub fn drop_in_hand(&mut self) -> Option<IpAddr> {
        let addr = self.in_hand.take()?;
        self.entries.remove(&addr);
        // The cached earliest deadline of the others is lost.
        self.next = self.entries.values().filter_map(|slot| slot.entry.deadline()).min();
        Some(addr)
    }

    /// When to call [`on_timer`](Self::on_timer); that may be too early, and is found without looking at entries.
    pub fn deadline(&self) -> Option<Instant> {
        if self.entries.is_empty() {
            return None;
        }
        self.next.into_iter().chain([self.sweep_at]).min()
    }

    /// Runs the due timers.
    pub fn on_timer(&mut self, now: Instant, hint: impl Fn(&IpAddr) -> Hint) -> (Due, Vec<Expired<P>>) {
        let (mut actions, mut gone) = (Vec::new(), Vec::new());
        for (addr, slot) in &mut self.entries {
            if slot.entry.deadline().is_none_or(|deadline| now < deadline) {
                continue;
            }
            self.in_hand = Some(*addr);
            // A higher layer that got through meanwhile makes a probe needless.
            if let Some(at) = hint(addr).confirmed.filter(|at| *at + self.times.reachable > now) {
                slot.entry.on_confirm(at, &self.times);
            }
            match slot.entry.on_timer(now, &self.times) {
                Action::None => {}
                Action::Unreachable => gone.push(*addr),
                action @ (Action::SolicitAll | Action::Solicit(_)) => actions.push((*addr, action)),
            }
        }
        self.in_hand = None;
        self.next = self.entries.values().filter_map(|slot| slot.entry.deadline()).min();
        let expired = gone.iter().filter_map(|addr| self.expire(addr)).collect();
        if now >= self.sweep_at {
            self.sweep(now, hint);
        }
        (Due { actions }, expired)
    }

    fn expire(&mut self, addr: &IpAddr) -> Option<Expired<P>> {
        let mut slot = self.entries.remove(addr)?;
        Some(Expired { addr: *addr, was_router: slot.entry.is_router(), packets: slot.take_pending() })
    }

    fn insert(&mut self, addr: IpAddr, entry: Entry, now: Instant, is_used: bool) -> u64 {
        self.serial += 1;
        let serial = self.serial;
        sooner(&mut self.next, entry.deadline());
        let slot = Slot { entry, serial, is_used, used: now, pending: VecDeque::new(), pending_bytes: 0 };
        self.entries.insert(addr, slot);
        serial
    }

    /// An entry for a neighbor that has told us of itself.
    fn learn(&mut self, addr: IpAddr, lladdr: LinkAddr, now: Instant) {
        while self.learned.len() >= LEARNED_MAX {
            let Some((oldest, serial)) = self.learned.pop_front() else { break };
            if self.entries.get(&oldest).is_some_and(|slot| slot.serial == serial && !slot.is_used) {
                self.entries.remove(&oldest);
            }
        }
        if self.entries.len() < ENTRIES_MAX {
            let serial = self.insert(addr, Entry::stale(lladdr), now, false);
            self.learned.push_back((addr, serial));
        }
    }

    /// Makes room among the entries that are asked for. Packets that waited for the one that goes are
    /// dropped.
    fn bound_asked(&mut self) {
        while self.asked.len() >= INCOMPLETE_MAX {
            let Some((oldest, serial)) = self.asked.pop_front() else { break };
            let slot = self.entries.get(&oldest);
            if slot.is_some_and(|slot| slot.serial == serial && slot.entry.lladdr().is_none()) {
                self.entries.remove(&oldest);
            }
        }
    }

    fn make_room(&mut self, now: Instant, hint: impl Fn(&IpAddr) -> Hint) -> bool {
        if self.entries.len() >= ENTRIES_MAX && now >= self.forced_at {
            self.sweep(now, &hint);
            self.forced_at = now + FORCED_EVERY;
        }
        if self.entries.len() >= ENTRIES_MAX {
            self.evict(now, hint);
        }
        self.entries.len() < ENTRIES_MAX
    }

    /// Evicts the least recently used, and the packets that wait for them.
    fn evict(&mut self, now: Instant, hint: impl Fn(&IpAddr) -> Hint) {
        let rank = |(addr, slot): (&IpAddr, &Slot<P>)| {
            if slot.entry.state(now) == State::Permanent {
                return None;
            }
            let hint = hint(addr);
            let got_through = hint.confirmed.is_some_and(|at| now.since(at) < UNUSED_AFTER);
            let used = slot.used.max(hint.used.unwrap_or(slot.used));
            Some((got_through, used, slot.serial, *addr))
        };
        let mut ranks: Vec<_> = self.entries.iter().filter_map(rank).collect();
        if ranks.len() > GIVE_WAY {
            ranks.select_nth_unstable(GIVE_WAY);
            ranks.truncate(GIVE_WAY);
        }
        for (.., addr) in ranks {
            self.entries.remove(&addr);
            self.evicted.push(addr);
        }
    }

    /// Evicts stale entries that were not used for long.
    fn sweep(&mut self, now: Instant, hint: impl Fn(&IpAddr) -> Hint) {
        self.sweep_at = now + SWEEP_EVERY;
        let reachable = self.times.reachable;
        self.entries.retain(|addr, slot| {
            let hint = hint(addr);
            slot.used = slot.used.max(hint.used.unwrap_or(slot.used));
            let confirmed = hint.confirmed.is_some_and(|at| at + reachable > now);
            let is_stale = slot.entry.state(now) == State::Stale && !confirmed;
            !(is_stale && now.since(slot.used) >= UNUSED_AFTER)
        });
        // Numbers of entries that are gone or have changed are of no use.
        let entries = &self.entries;
        self.asked.retain(|(addr, serial)| {
            entries.get(addr).is_some_and(|slot| slot.serial == *serial && slot.entry.lladdr().is_none())
        });
        self.learned.retain(|(addr, serial)| {
            entries.get(addr).is_some_and(|slot| slot.serial == *serial && !slot.is_used)
        });
    }
}

fn sooner(next: &mut Option<Instant>, at: Option<Instant>) {
    *next = next.iter().copied().chain(at).min();
}

impl<P> Slot<P> {
    fn take_pending(&mut self) -> VecDeque<P> {
        self.pending_bytes = 0;
        self.pending.drain(..).map(|(packet, _)| packet).collect()
    }

    /// Packets that waited may go, and going they use the entry.
    fn settle(&mut self, change: Change, now: Instant, times: &Times) -> Learned<P> {
        let ready = if change.resolved { self.take_pending() } else { VecDeque::new() };
        if !ready.is_empty() {
            self.entry.on_use(now, times);
        }
        Learned { change, ready }
    }
}
