//! Neighbors as senders find them: without a lock, and without writing a line that others read.
//!
//! A copy of the table's entries, by a hash of the address; two neighbors of one slot take turns, and the one that is
//! not there is found in the table, behind its lock. A copy says until when it may be used without asking.
//!
//! A slot is written under the table's lock, read by any thread ([`SeqCell::try_load`]: an entry being written counts as
//! absent). Two *stamps* are written by senders and by input: when the neighbor was sent to, and when a higher layer got
//! through to it. Each at most once in [`STAMP_EVERY`]: so no line is written per packet. A stamp carries the version
//! of the slot that it was made for; one that is late, for a neighbor that has left the slot, fits no version and is
//! not believed. It orders nothing.
//!
//! Tests: below; of `SeqCell`: `sockeye-sync`.

use std::net::IpAddr;
use std::time::Duration;

use sockeye_proto::neighbor::{Hint, LinkAddr};
use sockeye_proto::time::Instant;
use sockeye_sync::SeqCell;
use sockeye_sync::facade::{AtomicU64, Ordering};

use crate::base::addr::{HashKey, octets};

/// Slots: twice as many as there may be neighbors in use in all but the largest links.
const SLOTS: usize = 1024;
/// A stamp is not written again for so long.
const STAMP_EVERY: Duration = Duration::from_secs(1);

/// See the module's head.
pub(super) struct Slots {
    slots: Box<[Slot]>,
    key: HashKey,
    /// (a) ReachableTime, microseconds.
    reachable: AtomicU64,
}

/// One line of the cache. Words: the address's halves, the link-layer address with [`TAKEN`], until when.
#[repr(align(64))]
struct Slot {
    words: SeqCell<4>,
    used: AtomicU64,
    confirmed: AtomicU64,
}

/// Above the 48 bits of a link-layer address: the slot holds a neighbor.
const TAKEN: u64 = 1 << 48;
/// Bits of a stamp that are the time; those above are the slot's version.
const TIME_BITS: u32 = 48;

impl Slots {
    pub fn new(key: HashKey) -> Self {
        let slot =
            |_| Slot { words: SeqCell::new([0; 4]), used: AtomicU64::new(0), confirmed: AtomicU64::new(0) };
        let slots = (0..SLOTS).map(slot).collect();
        Self { slots, key, reachable: AtomicU64::new(0) }
    }

    /// Under the table's lock.
    pub fn set_reachable(&self, reachable: Duration) {
        let micros = u64::try_from(reachable.as_micros()).unwrap_or(u64::MAX);
        // Relaxed: a value of its own.
        self.reachable.store(micros, Ordering::Relaxed);
    }

    /// The link-layer address of a neighbor that may be sent to without asking, and notes that it is.
    #[inline]
    pub fn hit(&self, addr: IpAddr, now: Instant) -> Option<LinkAddr> {
        let slot = self.slot(addr);
        let (version, words) = slot.of(addr)?;
        let now = now.as_micros();
        if now >= words[3] {
            let confirmed = read_stamp(&slot.confirmed, version)?;
            if now >= confirmed.saturating_add(self.reachable.load(Ordering::Relaxed)) {
                return None;
            }
        }
        stamp(&slot.used, version, now);
        let [_, _, lladdr @ ..] = words[2].to_be_bytes();
        Some(lladdr)
    }

    /// A higher layer got through to a neighbor.
    #[inline]
    pub fn confirm(&self, addr: IpAddr, now: Instant) {
        let slot = self.slot(addr);
        if let Some((version, _)) = slot.of(addr) {
            stamp(&slot.confirmed, version, now.as_micros());
        }
    }

    /// A higher layer does not get through any more: forgets when one did, unless that is so short a while ago that it is
    /// not the neighbor's fault. Whether it may be. Under the table's lock.
    pub fn doubt(&self, addr: IpAddr, now: Instant) -> bool {
        let slot = self.slot(addr);
        let Some((version, _)) = slot.of(addr) else { return true };
        let confirmed = read_stamp(&slot.confirmed, version).map(Instant::from_micros);
        let is_in_doubt = confirmed.is_none_or(|at| now.since(at) >= STAMP_EVERY);
        if is_in_doubt {
            slot.confirmed.store(0, Ordering::Relaxed);
        }
        is_in_doubt
    }

    /// A neighbor's cached state. Under the table's lock.
    pub fn hint(&self, addr: &IpAddr) -> Hint {
        let slot = self.slot(*addr);
        let Some((version, _)) = slot.of(*addr) else { return Hint::default() };
        let at = |of| read_stamp(of, version).map(Instant::from_micros);
        Hint { used: at(&slot.used), confirmed: at(&slot.confirmed) }
    }

    /// A neighbor may be sent to until `until`. Under the table's lock.
    pub fn publish(&self, addr: IpAddr, lladdr: LinkAddr, until: Instant) {
        let hint = self.hint(&addr);
        let [a, b, c, d, e, f] = lladdr;
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]) | TAKEN;
        let [high, low] = halves(addr);
        let slot = self.slot(addr);
        let version = slot.words.store([high, low, mac, until.as_micros()]);
        for (place, at) in [(&slot.used, hint.used), (&slot.confirmed, hint.confirmed)] {
            let at = at.map_or(0, Instant::as_micros);
            place.store(stamped(version, at), Ordering::Relaxed);
        }
    }

    /// A neighbor may not be sent to any more without asking. Under the table's lock.
    pub fn retract(&self, addr: IpAddr) {
        let slot = self.slot(addr);
        if slot.of(addr).is_some() {
            slot.words.store([0; 4]);
        }
    }

    /// None may. Under the table's lock.
    pub fn clear(&self) {
        for slot in &self.slots {
            slot.words.store([0; 4]);
        }
    }

    fn slot(&self, addr: IpAddr) -> &Slot {
        // A keyed mix and no keyed hash: a sender that makes addresses collide only makes its own packets take the lock.
        let [high, low] = halves(addr);
        let mixed = (high ^ self.key.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ low ^ self.key.1;
        let spread = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        &self.slots[spread as usize % SLOTS]
    }
}

impl Slot {
    /// Its words and their version, if it is this neighbor's.
    #[inline]
    fn of(&self, addr: IpAddr) -> Option<(u64, [u64; 4])> {
        let (version, words) = self.words.try_load()?;
        let [high, low] = halves(addr);
        (words[0] == high && words[1] == low && words[2] & TAKEN != 0).then_some((version, words))
    }
}

#[inline]
fn halves(addr: IpAddr) -> [u64; 2] {
    let whole = u128::from_be_bytes(octets(addr));
    [(whole >> 64) as u64, whole as u64]
}

fn stamped(version: u64, micros: u64) -> u64 {
    // Versions of slots at rest are even.
    ((version / 2) << TIME_BITS) | (micros & ((1 << TIME_BITS) - 1))
}

/// The time of a stamp that was made for this version; `None` if there is none.
#[inline]
fn read_stamp(of: &AtomicU64, version: u64) -> Option<u64> {
    let stamp = of.load(Ordering::Relaxed);
    let micros = stamp & ((1 << TIME_BITS) - 1);
    (micros != 0 && stamp >> TIME_BITS == stamped(version, 0) >> TIME_BITS).then_some(micros)
}

#[inline]
fn stamp(of: &AtomicU64, version: u64, now: u64) {
    let is_fresh =
        |seen: u64| now.saturating_sub(seen) < u64::try_from(STAMP_EVERY.as_micros()).unwrap_or(u64::MAX);
    if !read_stamp(of, version).is_some_and(is_fresh) {
        // Of two threads that write at once either is right.
        of.store(stamped(version, now), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LinkAddr = [2, 0, 0, 0, 0, 0xa];

    fn slots() -> Slots {
        let slots = Slots::new(HashKey(1, 2));
        slots.set_reachable(Duration::from_secs(30));
        slots
    }

    fn ip(number: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from(0x0a00_0000 + number))
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(1_000_000 + seconds * 1_000_000)
    }

    #[test]
    fn a_neighbor_is_found_until_it_expires_and_longer_if_a_higher_layer_makes_progress() {
        let slots = slots();
        assert_eq!(slots.hit(ip(1), at(0)), None);
        slots.publish(ip(1), A, at(30));
        assert_eq!((slots.hit(ip(1), at(29)), slots.hit(ip(1), at(30))), (Some(A), None));
        slots.confirm(ip(1), at(20));
        assert_eq!((slots.hit(ip(1), at(49)), slots.hit(ip(1), at(50))), (Some(A), None));
        slots.retract(ip(1));
        assert_eq!((slots.hit(ip(1), at(1)), slots.hint(&ip(1))), (None, Hint::default()));
    }

    #[test]
    fn stamps_outlive_a_new_copy_and_not_another_neighbor() {
        let slots = slots();
        slots.publish(ip(1), A, at(30));
        slots.hit(ip(1), at(3));
        slots.confirm(ip(1), at(4));
        let hint = Hint { used: Some(at(3)), confirmed: Some(at(4)) };
        assert_eq!(slots.hint(&ip(1)), hint);
        slots.publish(ip(1), A, at(60));
        assert_eq!(slots.hint(&ip(1)), hint);
        // Another neighbor of the same slot.
        let other = (2..100_000).map(ip).find(|addr| std::ptr::eq(slots.slot(*addr), slots.slot(ip(1))));
        let other = other.expect("a hundred addresses for each slot");
        slots.publish(other, A, at(60));
        assert_eq!((slots.hit(ip(1), at(5)), slots.hint(&other)), (None, Hint::default()));
    }

    #[test]
    fn a_stamp_is_written_once_a_second() {
        let slots = slots();
        slots.publish(ip(1), A, at(30));
        for millis in 0..999 {
            slots.confirm(ip(1), at(0) + Duration::from_millis(millis));
        }
        assert_eq!(slots.hint(&ip(1)).confirmed, Some(at(0)));
        slots.confirm(ip(1), at(1));
        assert_eq!(slots.hint(&ip(1)).confirmed, Some(at(1)));
    }

    #[test]
    fn a_cache_line_holds_a_slot() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (64, 64));
    }

    #[test]
    fn readers_under_load_never_see_an_address_of_another_neighbor() {
        let slots = slots();
        let mac = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            [2, 0, a, b, c, d]
        };
        let numbers = 5000;
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for round in 0..200_000u32 {
                    let number = round % numbers;
                    slots.confirm(ip(number), at(0));
                    let seen = slots.hit(ip(number), at(0));
                    assert!(seen.is_none_or(|seen| seen == mac(number)));
                }
            });
            for round in 0..200_000u32 {
                let number = round.wrapping_mul(7919) % numbers;
                slots.publish(ip(number), mac(number), at(30));
            }
            reader.join().expect("no panic");
        });
    }
}
