//! Ephemeral ports (RFC 6056, algorithm 4: double-hash port selection).
//!
//! Two keyed hashes of (local address, remote address, remote port) choose the start of a destination in the range, and
//! the counter of a small table that advances it. So ports for one destination are used in order and reused late, and
//! ports for different destinations reveal nothing about each other to an observer. Because of a small random gap
//! before each connection, an observer that shares a counter with a victim cannot count the victim's connections.
//!
//! This module does not know which ports are in use: the caller tests each candidate. Invariants: an iteration offers
//! each port of the range exactly once and then ends; a counter is always less than the number of ports. One instance
//! belongs to one shard, under the caller's lock. Tests stand at the end.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

/// Number of counters in the table; each serves its share of all destinations. RFC 6056 suggests 10 or more; with
/// thousands, two destinations seldom share one. 8 KiB.
const TABLE_LEN: usize = 4096;
/// The random gap before a connection is below this many ports.
const GAP_MAX: u64 = 8;
/// Random bits used for one gap.
const GAP_BITS: u32 = GAP_MAX.ilog2();

/// The ports to choose from, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    min: u16,
    max: u16,
}

impl PortRange {
    /// Ports from `min` to `max`; `None` if the range is empty or contains port 0.
    pub const fn new(min: u16, max: u16) -> Option<Self> {
        if min == 0 || min > max { None } else { Some(Self { min, max }) }
    }

    /// How many ports there are: at least 1.
    pub const fn count(self) -> u16 {
        // Port 0 is not in the range, so the maximum is 65,535.
        self.max - self.min + 1
    }

    /// True if `port` is one of them.
    pub const fn contains(self, port: u16) -> bool {
        self.min <= port && port <= self.max
    }
}

impl Default for PortRange {
    /// 32768 to 60999, as in Linux's `ip_local_port_range`.
    fn default() -> Self {
        Self { min: 32_768, max: 60_999 }
    }
}

/// Chooses ephemeral ports.
#[derive(Clone)]
pub struct PortChoice {
    range: PortRange,
    secret: [u8; 16],
    /// How far each group of destinations has advanced, in ports. The first choice allocates it: a stack that only
    /// listens has none.
    moved: Vec<u16>,
    gap: Gap,
}

impl PortChoice {
    /// A chooser over `range`; `secret` must be random and not that of sequence numbers.
    pub fn new(range: PortRange, secret: [u8; 16]) -> Self {
        Self { range, secret, moved: Vec::new(), gap: Gap::default() }
    }

    /// The range given at creation.
    pub const fn range(&self) -> PortRange {
        self.range
    }

    /// The candidates for a connection, best first; the caller takes the first one that is free.
    ///
    /// `local` and `remote` are the bytes of the addresses. Offers each port of the range once, then ends: then every
    /// 4-tuple to this destination is in use (`EADDRNOTAVAIL`). A port that was offered is not the first one next time.
    /// Does not block; takes some tens of nanoseconds.
    pub fn candidates(&mut self, local: &[u8], remote: &[u8], remote_port: u16) -> Candidates<'_> {
        let hash = self.hash(local, remote, remote_port);
        let count = self.range.count();
        // Disjoint bits of one hash are the two hashes F and G of RFC 6056.
        let start = scale(hash >> 32, count);
        let index = usize::try_from(hash % TABLE_LEN as u64).unwrap_or(0);
        // Zeros only the first time.
        self.moved.resize(TABLE_LEN, 0);
        let moved = &mut self.moved[index];
        *moved = advance(*moved, self.gap.next(&self.secret), count);
        Candidates { range: self.range, start, moved, left: count }
    }

    fn hash(&self, local: &[u8], remote: &[u8], remote_port: u16) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write_u64(((local.len() as u64) << 16) | u64::from(remote_port));
        hasher.write(local);
        hasher.write(remote);
        hasher.finish()
    }
}

impl core::fmt::Debug for PortChoice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Secret and counters would allow ports to be predicted.
        f.debug_struct("PortChoice").field("range", &self.range).finish_non_exhaustive()
    }
}

/// Candidate ports towards one destination; see [`PortChoice::candidates`].
#[derive(Debug)]
pub struct Candidates<'a> {
    range: PortRange,
    start: u16,
    moved: &'a mut u16,
    left: u16,
}

impl Iterator for Candidates<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        self.left = self.left.checked_sub(1)?;
        let count = self.range.count();
        let index = advance(self.start, *self.moved, count);
        *self.moved = advance(*self.moved, 1, count);
        Some(self.range.min + index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

/// Random gaps, cut from a hash of a counter: unpredictable without the secret, with one hash for many gaps.
#[derive(Clone, Copy, Default)]
struct Gap {
    bits: u64,
    left: u32,
    counter: u64,
}

impl Gap {
    fn next(&mut self, secret: &[u8; 16]) -> u16 {
        if self.left < GAP_BITS {
            self.counter = self.counter.wrapping_add(1);
            // Twelve bytes differ in length from every hash over a destination, which has 8 bytes and two addresses:
            // the two uses of the secret cannot collide.
            let mut hasher = SipHasher13::new_with_key(secret);
            hasher.write_u64(self.counter);
            hasher.write_u32(u32::MAX);
            self.bits = hasher.finish();
            self.left = u64::BITS;
        }
        let gap = u16::try_from(self.bits % GAP_MAX).unwrap_or(0);
        self.bits /= GAP_MAX;
        self.left -= GAP_BITS;
        gap
    }
}

/// Maps 32 random bits evenly to 0..`count`.
fn scale(bits: u64, count: u16) -> u16 {
    let product = (bits & 0xffff_ffff) * u64::from(count);
    // The product is less than `count` times 2^32.
    u16::try_from(product >> 32).unwrap_or(0)
}

/// `position` advanced by `by`, modulo `count` ports.
fn advance(position: u16, by: u16, count: u16) -> u16 {
    // Less than `count`, so it fits.
    u16::try_from((u32::from(position) + u32::from(by)) % u32::from(count)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const LOCAL: &[u8] = &[10, 0, 0, 1];
    const REMOTE: &[u8] = &[10, 0, 0, 2];

    fn chooser(min: u16, max: u16) -> PortChoice {
        PortChoice::new(PortRange::new(min, max).unwrap(), *b"another sixteen.")
    }

    #[test]
    fn ranges_without_a_port_are_refused() {
        assert_eq!(PortRange::new(2, 1), None);
        assert_eq!(PortRange::new(0, 9), None);
        assert_eq!(PortRange::new(1, u16::MAX).map(PortRange::count), Some(u16::MAX));
        assert_eq!(PortRange::default().count(), 28_232);
    }

    #[test]
    fn each_port_of_the_range_is_offered_once() {
        for (min, max) in [(32_768, 60_999), (1, u16::MAX), (5, 5), (9, 10)] {
            let mut chooser = chooser(min, max);
            for port in [80, 443] {
                let offered: Vec<u16> = chooser.candidates(LOCAL, REMOTE, port).collect();
                let distinct: HashSet<u16> = offered.iter().copied().collect();
                assert_eq!(offered.len(), usize::from(max - min) + 1);
                assert_eq!(distinct.len(), offered.len());
                assert!(offered.iter().all(|port| chooser.range().contains(*port)));
            }
        }
    }

    #[test]
    fn connections_to_one_destination_use_every_port_before_one_is_reused() {
        let mut chooser = chooser(10_000, 10_999);
        let mut seen = HashSet::new();
        let mut port = || chooser.candidates(LOCAL, REMOTE, 80).next().unwrap();
        // A step is 1 to 8 ports, so 125 connections fit into one round of 1000 ports at the worst.
        for _ in 0..125 {
            assert!(seen.insert(port()));
        }
    }

    #[test]
    fn failed_candidates_are_not_offered_first_next_time() {
        let mut chooser = chooser(10_000, 10_999);
        let tried: Vec<u16> = chooser.candidates(LOCAL, REMOTE, 80).take(50).collect();
        let next = chooser.candidates(LOCAL, REMOTE, 80).next().unwrap();
        let distance = (i32::from(next) - i32::from(tried[49])).rem_euclid(1000);
        assert!((1..=8).contains(&distance), "{distance}");
    }

    #[test]
    fn destinations_start_at_unrelated_places() {
        let mut chooser = chooser(10_000, 19_999);
        let first: Vec<u16> =
            (0..1000).filter_map(|port| chooser.candidates(LOCAL, REMOTE, port).next()).collect();
        let low = first.iter().filter(|port| **port < 15_000).count();
        // A fair coin gives 500 +- 16.
        assert!((340..660).contains(&low), "{low}");
        let in_order = first.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((340..660).contains(&in_order), "{in_order}");
    }

    #[test]
    fn gaps_are_of_every_size() {
        let mut chooser = chooser(10_000, 10_999);
        let mut sizes = HashSet::new();
        let mut last = chooser.candidates(LOCAL, REMOTE, 80).next().unwrap();
        for _ in 0..1000 {
            let port = chooser.candidates(LOCAL, REMOTE, 80).next().unwrap();
            sizes.insert((i32::from(port) - i32::from(last)).rem_euclid(1000));
            last = port;
        }
        assert_eq!(sizes, (1..=8).collect());
    }

    #[test]
    fn another_secret_is_another_order() {
        let range = PortRange::default();
        let ports = |secret| {
            let mut chooser = PortChoice::new(range, [secret; 16]);
            (0..8).filter_map(|_| chooser.candidates(LOCAL, REMOTE, 80).next()).collect::<Vec<_>>()
        };
        assert_ne!(ports(1), ports(2));
        assert_eq!(ports(1), ports(1));
    }

    #[test]
    fn candidates_know_how_many_are_left() {
        let mut chooser = chooser(10_000, 10_009);
        let mut candidates = chooser.candidates(LOCAL, REMOTE, 80);
        for left in (0..10).rev() {
            assert!(candidates.next().is_some());
            assert_eq!(candidates.size_hint(), (left, Some(left)));
        }
        assert_eq!((candidates.next(), candidates.size_hint()), (None, (0, Some(0))));
    }

    #[test]
    fn thirty_two_bits_are_mapped_evenly() {
        let scaled = [0, 1 << 31, (1 << 31) - 1, 0xffff_ffff, 7 << 32, (7 << 32) | (1 << 30)]
            .map(|bits| scale(bits, 1_000));
        assert_eq!(scaled, [0, 500, 499, 999, 0, 250]);
    }

    #[test]
    fn where_one_address_ends_and_the_other_begins_matters() {
        let chooser = chooser(10_000, 10_999);
        assert_ne!(chooser.hash(&[1, 2], &[3], 80), chooser.hash(&[1], &[2, 3], 80));
        assert_ne!(chooser.hash(&[1, 2], &[3], 80), chooser.hash(&[1, 2], &[3], 81));
    }

    #[test]
    fn gaps_are_cut_from_one_hash_until_its_bits_are_used_up() {
        let (mut gap, secret) = (Gap::default(), *b"another sixteen.");
        let from_a_hash = usize::try_from(u64::BITS / GAP_BITS).unwrap();
        let gaps: Vec<u16> = (0..300 * from_a_hash).map(|_| gap.next(&secret)).collect();
        assert_eq!(gap.counter, 300);
        // All of them are used, and about as often after an equal one as after any other.
        let distinct: HashSet<u16> = gaps.iter().copied().collect();
        assert_eq!(distinct.len() as u64, GAP_MAX.min(gaps.len() as u64));
        let repeated = gaps.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(repeated < gaps.len() / 4, "{repeated} of {}", gaps.len());
    }

    #[test]
    fn neither_the_secret_nor_the_counters_are_printed() {
        let text = format!("{:?}", chooser(10_000, 10_999));
        assert!(text.contains("10000") && !text.contains("moved") && !text.contains("secret"), "{text}");
    }
}
