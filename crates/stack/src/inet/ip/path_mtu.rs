//! The learned MTU of paths, by destination (RFC 1191 section 6.3, RFC 8201 section 5.2).
//!
//! The next connection or socket to a host begins with the MTU that an earlier one has learned from a report. The protocol that
//! reports it to the cache has found that the report quotes a packet of a socket here (RFC 5927 section 7: TCP goes by the
//! sequence number, UDP and ICMP by the name of a socket); besides that a report can only make an entry smaller, and never less
//! than the floor of its family, so a forged one costs fragments for ten minutes and nothing else.
//!
//! # Concurrency
//! Every datagram that leaves by an interface reads, and only a report writes. Each entry is a [`SeqCell`], read without a
//! lock and written under the mutex `changing`, a leaf. One word says whether anything was ever learnt. An entry has its
//! place by the keyed hash of the destination, so no outside host chooses which entry it drives out; in a full set that is
//! the oldest. Bound: [`SETS`] × [`WAYS`] entries. Tests: below, `tests/ip/path_mtu.rs`.

use std::net::IpAddr;
use std::time::Duration;

use sockeye_proto::time::Instant;
use sockeye_sync::facade::{AtomicBool, Ordering};
use sockeye_sync::{Mutex, SeqCell};

use crate::base::addr::{Endpoint, FourTuple, HashKey, octets};
use crate::rt::failpoints::{self, Point};

/// Sets of entries.
const SETS: usize = 64;
/// Entries of a set.
const WAYS: usize = 4;
/// An entry is forgotten after so long: the path may have changed (RFC 8201 section 4; Linux's `mtu_expires`).
const AGE_MAX: Duration = Duration::from_secs(600);
/// The least MTU that a path is believed to have on IPv4, bytes, as on Linux (`min_pmtu`).
pub(crate) const FLOOR_V4: u16 = 552;
/// And on IPv6: every link takes that (RFC 8200 section 5), and a report of less does not come here.
pub(crate) const FLOOR_V6: u16 = 1280;
/// Common MTUs, for reports of routers before RFC 1191, which do not say how much they take (its section 7.1).
const PLATEAUS: [u32; 7] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006];

/// An entry: both halves of the address, the MTU (0: none) with [`CUT`], and when it was learnt, microseconds.
type Entry = SeqCell<4>;

/// A bit beside the MTU: [`Path::is_cut`].
const CUT: u64 = 1 << 32;

/// What is known of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    /// Bytes of the largest packet that it takes, and not less than the floor of its family.
    pub mtu: u32,
    /// It takes less than the floor (IPv4): its routers have to cut packets, which so do not forbid it ("don't fragment"). As on Linux,
    /// where the MTU of such a route is locked.
    pub is_cut: bool,
}

/// See the module's head.
pub(crate) struct PathMtus {
    sets: Box<[[Entry; WAYS]]>,
    changing: Mutex<()>,
    /// (a) Something was learnt, ever.
    is_used: AtomicBool,
}

impl Default for PathMtus {
    fn default() -> Self {
        let set = || std::array::from_fn(|_| SeqCell::new([0; 4]));
        Self {
            sets: (0..SETS).map(|_| set()).collect(),
            changing: Mutex::new(()),
            is_used: AtomicBool::new(false),
        }
    }
}

impl PathMtus {
    /// What is known of the path to `dst`; `None` if only the link is known to limit it.
    #[inline]
    pub fn get(&self, key: &HashKey, dst: IpAddr, now: Instant) -> Option<Path> {
        // Relaxed: the next packet sees an MTU that is being learned just now.
        if self.is_used.load(Ordering::Relaxed) { self.find(key, dst, now) } else { None }
    }

    #[cold]
    fn find(&self, key: &HashKey, dst: IpAddr, now: Instant) -> Option<Path> {
        let wanted = words(dst);
        let entries = self.set(key, dst).iter().map(SeqCell::load);
        let mut here = entries.filter(|[high, low, ..]| [*high, *low] == wanted);
        here.find_map(|entry| valid(&entry, now))
    }

    /// A report that was believed says that the path to `dst` takes packets of `mtu` bytes; 0 if it does not say, then
    /// `sent` is the length of the packet that was too big. True if that is news.
    pub fn learn(&self, key: &HashKey, dst: IpAddr, mtu: u32, sent: u32, now: Instant) -> bool {
        let reported = if mtu == 0 { plateau_below(sent) } else { mtu };
        let floor = if dst.is_ipv4() { FLOOR_V4 } else { FLOOR_V6 };
        let path = Path { mtu: reported.max(floor.into()), is_cut: dst.is_ipv4() && reported < floor.into() };
        let [high, low] = words(dst);
        let set = self.set(key, dst);
        let changing = self.changing.lock();
        let known = set.iter().find(|entry| {
            let [h, l, mtu, _] = entry.load();
            [h, l] == [high, low] && mtu != 0
        });
        if known
            .and_then(|entry| valid(&entry.load(), now))
            .is_some_and(|known| known.mtu <= path.mtu && known.is_cut >= path.is_cut)
        {
            return false;
        }
        // An empty one was learnt at 0, before all others.
        let oldest = || set.iter().min_by_key(|entry| entry.load()[3]);
        failpoints::hit(Point::PathMtu, failpoints::of_addr(dst));
        if let Some(entry) = known.or_else(oldest) {
            let cut = if path.is_cut { CUT } else { 0 };
            entry.store([high, low, u64::from(path.mtu) | cut, now.as_micros()]);
        }
        drop(changing);
        self.is_used.store(true, Ordering::Relaxed);
        true
    }

    fn set(&self, key: &HashKey, dst: IpAddr) -> &[Entry; WAYS] {
        let end = Endpoint::new(dst, 0);
        let hash = FourTuple { local: end, remote: end }.hash(key);
        &self.sets[hash as usize % SETS]
    }
}

/// The path of an entry that has not become too old.
fn valid([_, _, mtu, learnt]: &[u64; 4], now: Instant) -> Option<Path> {
    let age = now.as_micros().saturating_sub(*learnt);
    let is_valid = *mtu != 0 && u128::from(age) < AGE_MAX.as_micros();
    is_valid.then_some(Path { mtu: *mtu as u32, is_cut: mtu & CUT != 0 })
}

/// The next common MTU below the length of a packet.
fn plateau_below(sent: u32) -> u32 {
    PLATEAUS.into_iter().find(|mtu| *mtu < sent).unwrap_or(0)
}

/// An address as two words.
fn words(addr: IpAddr) -> [u64; 2] {
    let bits = u128::from_be_bytes(octets(addr));
    // The upper and the lower half.
    [(bits >> 64) as u64, bits as u64]
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const NOW: Instant = Instant::from_micros(5_000_000);

    fn host(i: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + i).into()
    }

    #[test]
    fn an_entry_becomes_smaller_not_larger_and_is_forgotten() {
        let (paths, key) = (PathMtus::default(), HashKey(1, 2));
        let get = |dst, now| paths.get(&key, dst, now).map(|path| path.mtu);
        assert_eq!(get(host(1), NOW), None);
        assert!(paths.learn(&key, host(1), 1400, 1500, NOW));
        assert!(!paths.learn(&key, host(1), 1450, 1500, NOW));
        assert!(paths.learn(&key, host(1), 1300, 1500, NOW));
        assert_eq!((get(host(1), NOW), get(host(2), NOW)), (Some(1300), None));
        let last = NOW + (AGE_MAX - Duration::from_micros(1));
        assert_eq!(get(host(1), last), Some(1300));
        assert_eq!(get(host(1), NOW + AGE_MAX), None);
        assert!(paths.learn(&key, host(1), 1450, 1500, NOW + AGE_MAX), "the known value is too old");
    }

    #[test]
    fn the_minimum_is_that_of_the_family_and_a_report_without_an_mtu_uses_plateaus() {
        let (paths, key) = (PathMtus::default(), HashKey(1, 2));
        let v6: IpAddr = "fd00::1".parse().unwrap();
        paths.learn(&key, host(1), 68, 1500, NOW);
        paths.learn(&key, v6, 1, 1500, NOW);
        let get = |dst| paths.get(&key, dst, NOW).unwrap();
        assert_eq!(get(host(1)), Path { mtu: 552, is_cut: true });
        assert_eq!(get(v6), Path { mtu: 1280, is_cut: false }, "no router of IPv6 cuts");
        for (at, sent, mtu) in
            [(2, 1500, 1492), (3, 9000, 8166), (4, 65_535, 32_000), (5, 1006, 552), (6, 552, 552)]
        {
            paths.learn(&key, host(at), 0, sent, NOW);
            assert_eq!(get(host(at)).mtu, mtu, "of {sent}");
        }
        assert!(paths.learn(&key, host(7), 552, 1500, NOW) && !get(host(7)).is_cut);
        assert!(paths.learn(&key, host(7), 551, 1500, NOW) && get(host(7)).is_cut, "which is news");
        assert!(!paths.learn(&key, host(7), 552, 1500, NOW) && get(host(7)).is_cut);
    }

    #[test]
    fn a_flood_evicts_the_oldest_entries_and_takes_no_more_room() {
        let (paths, key) = (PathMtus::default(), HashKey(1, 2));
        let flood = 10_000;
        for i in 0..flood {
            paths.learn(&key, host(i), 1400, 1500, NOW + Duration::from_micros(u64::from(i)));
        }
        let now = NOW + Duration::from_secs(1);
        let known = (0..flood).filter(|i| paths.get(&key, host(*i), now).is_some()).count();
        assert!(known <= SETS * WAYS, "{known}");
        assert_eq!(paths.get(&key, host(flood - 1), now).map(|path| path.mtu), Some(1400));
    }
}
