//! Fragments put together again (RFC 791 section 3.2, RFC 8200 section 4.5), within hard bounds.
//!
//! A datagram gathers the fragments of one [`Key`] until none is missing, its time is over, or something in it does not
//! fit: then all of it is dropped. It does not depend on packet memory: a piece is whatever the caller keeps, its
//! length and its cost in bytes are reported.
//!
//! # Eviction
//! A source address proves nothing, so no bound here makes a newcomer wait: whatever is full, something older gives way.
//! Which datagram that is depends on how much its source holds, in *shares*: one for each [`SHARE_DATAGRAMS`] datagrams
//! and each [`SHARE_COST`] bytes, whichever are more, rounded down.
//!
//! | bound | dropped |
//! |---|---|
//! | [`FRAGMENTS_MAX`] pieces of a datagram | that datagram |
//! | [`SOURCE_DATAGRAMS_MAX`] datagrams or [`SOURCE_COST_MAX`] bytes of one source | the oldest datagram of that source |
//! | [`DATAGRAMS_MAX`] datagrams or [`COST_MAX`] bytes in all | the oldest datagram of the source with the most shares; among sources with equally many, of the one whose oldest datagram is the oldest |
//!
//! The datagram that the new fragment belongs to is never the one that gives way. A fragment is refused for want of room only
//! if its datagram alone would exceed [`SOURCE_COST_MAX`].
//!
//! Consequences for a datagram of an honest source, one that holds less than a share (seven datagrams, a bit less than 320 KiB):
//! - Sources that hold a share or more, however many there are, never evict it.
//! - An attacker that spreads its fragments over forged sources evicts it only by beginning [`DATAGRAMS_MAX`] newer datagrams, or
//!   filling nearly [`COST_MAX`] newer bytes, between its first fragment and its last. At 100,000 forged fragments a
//!   second that leaves it 10 ms.
//! - An attacker that forges the honest source's own address needs [`SOURCE_DATAGRAMS_MAX`] newer datagrams. One that also guesses
//!   the identification can spoil the datagram with a single overlapping fragment, which nothing in IP prevents.
//!
//! Shares are coarse so that a source which has a few datagrams under way, or one long one, is not the heaviest among forged
//! sources that hold a single short datagram each.
//!
//! A fragment costs a bounded number of searches in ordered maps of at most [`DATAGRAMS_MAX`] entries, plus a walk over the datagrams of
//! one source ([`SOURCE_DATAGRAMS_MAX`]) for each eviction; it evicts as many datagrams as it takes to free its bytes.
//!
//! # Overlaps
//! Fragments that overlap, disagree about the end or reach beyond it drop the datagram with all that is still to come
//! (RFC 5722, for IPv4 as Linux has it): only a mark without pieces is left, until its time is over. An exact
//! duplicate is only ignored (RFC 8200 section 4.5). ECN marks are joined by RFC 3168 section 5.3.
//!
//! Tests: `reass/tests.rs`.

#[cfg(test)]
mod tests;

use core::cmp::Reverse;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Addresses;
use super::fragment::Fragment;
use crate::time::Instant;

/// Pieces of one datagram.
pub const FRAGMENTS_MAX: usize = 128;
/// Datagrams of one source.
pub const SOURCE_DATAGRAMS_MAX: usize = 32;
/// Bytes of one source.
pub const SOURCE_COST_MAX: usize = 1 << 20;
/// Datagrams in all.
pub const DATAGRAMS_MAX: usize = 1024;
/// Bytes in all.
pub const COST_MAX: usize = 4 << 20;
/// Datagrams of one source that make a share; see the module's head.
pub const SHARE_DATAGRAMS: usize = 8;
/// Bytes of one source that make a share: more than the longest datagram occupies in pieces of 576 to 2,048 bytes, each of which
/// takes a cluster of 2 KiB.
pub const SHARE_COST: usize = 320 << 10;
/// How long a datagram may take in IPv4 (Linux: `ipfrag_time`).
const TIME_V4: Duration = Duration::from_secs(30);
/// How long a datagram may take in IPv6 (RFC 8200 section 4.5).
const TIME_V6: Duration = Duration::from_secs(60);
/// The longest payload of a packet, bytes: the maximum of a length field. IPv4's counts the header too.
const PAYLOAD_MAX: u32 = u16::MAX as u32;

/// Identification of a datagram: equal in all its fragments. In IPv6 the protocol is not part of it, and is
/// 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    id: u32,
}

impl Key {
    /// The key of a fragment.
    pub fn new(addresses: &Addresses, protocol: u8, id: u32) -> Self {
        let protocol = if addresses.src().is_ipv4() { protocol } else { 0 };
        Self { src: addresses.src(), dst: addresses.dst(), protocol, id }
    }
}

/// A fragment as it came in.
#[derive(Debug)]
pub struct Piece<H, P> {
    /// Its place in the datagram.
    pub fragment: Fragment,
    /// Bytes of payload.
    pub len: usize,
    /// Bytes of headers in front of the datagram's payload that count towards an IPv4 packet's length.
    pub header_len: usize,
    /// Bytes of memory that it occupies.
    pub cost: usize,
    /// The two bits of ECN.
    pub ecn: u8,
    /// The kept part of the first fragment's headers.
    pub headers: H,
    /// The payload.
    pub payload: P,
}

/// Why a fragment was dropped, and maybe its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The same fragment is there already. The datagram goes on.
    Duplicate,
    /// It overlaps another.
    Overlap,
    /// It ends behind the datagram's end, or says that the end is elsewhere.
    Inconsistent,
    /// It is empty, or not the last and not of a multiple of eight bytes.
    Length,
    /// The datagram would be longer than a packet can be.
    TooLong,
    /// There are too many pieces.
    TooMany,
    /// Its datagram was dropped before.
    Dead,
    /// Its datagram alone would occupy more than one source may.
    NoRoom,
    /// Marks of ECN that cannot come from one datagram.
    Ecn,
}

/// Result of a fragment.
#[derive(Debug)]
pub enum Outcome<H, P> {
    /// More are missing.
    Pending,
    /// It was the last one missing: the first's headers, the ECN bits of the whole, the payloads in their order.
    Complete(H, u8, Vec<P>),
    /// It was dropped.
    Refused(Refused),
}

/// A datagram whose time was over, and which had its first fragment: its headers and that fragment's payload.
pub type Expired<H, P> = (H, P);

struct Held<P> {
    start: u32,
    end: u32,
    payload: P,
}

struct Datagram<H, P> {
    /// In the order of their place. Empty in a datagram that is dead.
    pieces: Vec<Held<P>>,
    headers: Option<H>,
    header_len: usize,
    /// Where the payload ends, once the last fragment has come.
    end: Option<u32>,
    cost: usize,
    ecn_seen: u8,
    ecn: u8,
    deadline: Instant,
    is_dead: bool,
}

#[derive(Default)]
struct Source {
    /// Oldest first, with their running numbers.
    datagrams: VecDeque<(u64, Key)>,
    cost: usize,
}

/// Where a source stands among all: the greatest gives way first. Shares, the number of its oldest datagram, its address.
type Rank = (usize, Reverse<u64>, IpAddr);

impl Source {
    fn shares(&self) -> usize {
        (self.datagrams.len() / SHARE_DATAGRAMS).max(self.cost / SHARE_COST)
    }

    /// `None` of a source without datagrams, which is not kept.
    fn rank(&self, src: IpAddr) -> Option<Rank> {
        self.datagrams.front().map(|(oldest, _)| (self.shares(), Reverse(*oldest), src))
    }
}

/// See the module's head. `H` is the kept part of headers, `P` a payload.
pub struct Reass<H, P> {
    datagrams: BTreeMap<Key, Datagram<H, P>>,
    sources: BTreeMap<IpAddr, Source>,
    /// Every source once, by its rank at present.
    ranks: BTreeSet<Rank>,
    ends: BTreeSet<(Instant, Key)>,
    cost: usize,
    evicted: u64,
    /// Datagrams that were ever begun.
    begun: u64,
}

impl<H, P> Default for Reass<H, P> {
    fn default() -> Self {
        Self {
            datagrams: BTreeMap::new(),
            sources: BTreeMap::new(),
            ranks: BTreeSet::new(),
            ends: BTreeSet::new(),
            cost: 0,
            evicted: 0,
            begun: 0,
        }
    }
}

impl<H, P> Reass<H, P> {
    /// Bytes that pieces occupy.
    pub fn cost(&self) -> usize {
        self.cost
    }

    /// Datagrams that are not whole, dead ones included.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Datagrams dropped for the sake of others since the last time it was asked.
    pub fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// A fragment has come in.
    pub fn on_fragment(&mut self, key: Key, piece: Piece<H, P>, now: Instant) -> Outcome<H, P> {
        let (start, end) = match bounds(&piece) {
            Ok(bounds) => bounds,
            Err(refused) => return Outcome::Refused(refused),
        };
        if !self.datagrams.contains_key(&key) {
            self.begin(key, now);
        }
        if !self.make_room(&key, piece.cost) {
            // A datagram that begins with this fragment and cannot be kept leaves no mark.
            self.remove_if_empty(&key);
            return Outcome::Refused(Refused::NoRoom);
        }
        let Some(datagram) = self.datagrams.get_mut(&key) else {
            return Outcome::Refused(Refused::NoRoom);
        };
        let cost = piece.cost;
        if let Err(refused) = datagram.add(piece, start, end) {
            if refused != Refused::Duplicate && refused != Refused::Dead {
                self.kill(&key);
            }
            return Outcome::Refused(refused);
        }
        self.charge(&key, cost);
        self.complete(&key)
    }

    /// After a panic over a datagram, which may be half changed: forgets it, and recomputes the sums of its source and of the whole.
    pub fn forget(&mut self, key: &Key) {
        let _half_changed = self.datagrams.remove(key);
        self.ends.retain(|(_, own)| own != key);
        if let Some(source) = self.sources.get_mut(&key.src) {
            let datagrams = &self.datagrams;
            source.datagrams.retain(|(_, own)| datagrams.contains_key(own));
            let cost_of = |(_, own): &(u64, Key)| datagrams.get(own).map_or(0, |datagram| datagram.cost);
            source.cost = source.datagrams.iter().map(cost_of).sum();
        }
        self.sources.retain(|_, source| !source.datagrams.is_empty());
        self.ranks = self.sources.iter().filter_map(|(src, source)| source.rank(*src)).collect();
        self.cost = self.datagrams.values().map(|datagram| datagram.cost).sum();
    }

    /// The datagram whose time is over next.
    pub fn next_key(&self) -> Option<Key> {
        self.ends.first().map(|(_, key)| *key)
    }

    /// Drops the datagrams whose time is over, and calls `on_expired` for those whose first fragment was there. Returns
    /// how many there were, dead ones not counted.
    pub fn expire(&mut self, now: Instant, mut on_expired: impl FnMut(Expired<H, P>)) -> u64 {
        let mut count = 0;
        while let Some((_, key)) = self.ends.first().copied().filter(|(at, _)| *at <= now) {
            let Some(mut datagram) = self.remove(&key) else { break };
            count += u64::from(!datagram.is_dead);
            let first = if datagram.pieces.is_empty() { None } else { Some(datagram.pieces.swap_remove(0)) };
            if let (Some(headers), Some(first)) = (datagram.headers.take(), first) {
                on_expired((headers, first.payload));
            }
        }
        count
    }

    /// Begins a datagram. If there is no place for it, another gives way.
    fn begin(&mut self, key: Key, now: Instant) {
        let own = self.sources.get(&key.src).map_or(0, |source| source.datagrams.len());
        if own >= SOURCE_DATAGRAMS_MAX {
            self.evict_oldest_of(key.src, None);
        } else if self.datagrams.len() >= DATAGRAMS_MAX {
            self.evict_from_heaviest(None);
        }
        let deadline = now + if key.src.is_ipv4() { TIME_V4 } else { TIME_V6 };
        let datagram = Datagram {
            pieces: Vec::new(),
            headers: None,
            header_len: 0,
            end: None,
            cost: 0,
            ecn_seen: 0,
            ecn: 0,
            deadline,
            is_dead: false,
        };
        self.datagrams.insert(key, datagram);
        self.ends.insert((deadline, key));
        self.begun += 1;
        let number = self.begun;
        self.change_source(key.src, |source| source.datagrams.push_back((number, key)));
    }

    /// Makes room for a piece of `cost` bytes, without touching the datagram that it belongs to. False if that datagram leaves
    /// none.
    fn make_room(&mut self, key: &Key, cost: usize) -> bool {
        while self.cost_of(key.src) + cost > SOURCE_COST_MAX {
            if !self.evict_oldest_of(key.src, Some(key)) {
                return false;
            }
        }
        while self.cost + cost > COST_MAX {
            if !self.evict_from_heaviest(Some(key)) {
                return false;
            }
        }
        true
    }

    fn cost_of(&self, src: IpAddr) -> usize {
        self.sources.get(&src).map_or(0, |source| source.cost)
    }

    /// Drops the oldest datagram of the source that ranks first, or of the next if it has none but `spared`. False if there
    /// is no other datagram.
    fn evict_from_heaviest(&mut self, spared: Option<&Key>) -> bool {
        let mut first = self.ranks.iter().rev().map(|(_, _, src)| *src);
        // Only one source can hold `spared` and nothing else.
        let (heaviest, next) = (first.next(), first.next());
        [heaviest, next].into_iter().flatten().any(|src| self.evict_oldest_of(src, spared))
    }

    /// Drops the oldest datagram of a source but `spared`. False if there is none.
    fn evict_oldest_of(&mut self, src: IpAddr, spared: Option<&Key>) -> bool {
        let Some(source) = self.sources.get(&src) else { return false };
        let mut others = source.datagrams.iter().map(|(_, key)| key).filter(|key| Some(*key) != spared);
        let Some(oldest) = others.next().copied() else { return false };
        self.evicted += 1;
        self.remove(&oldest).is_some()
    }

    /// Changes the note of a source, and its rank with it.
    fn change_source(&mut self, src: IpAddr, change: impl FnOnce(&mut Source)) {
        let source = self.sources.entry(src).or_default();
        let before = source.rank(src);
        change(source);
        let after = source.rank(src);
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.ranks.remove(&before);
        }
        match after {
            Some(after) => drop(self.ranks.insert(after)),
            None => drop(self.sources.remove(&src)),
        }
    }

    fn remove_if_empty(&mut self, key: &Key) {
        if self.datagrams.get(key).is_some_and(|datagram| datagram.pieces.is_empty() && !datagram.is_dead) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Datagram<H, P>> {
        let datagram = self.datagrams.remove(key)?;
        self.ends.remove(&(datagram.deadline, *key));
        self.cost -= datagram.cost;
        self.change_source(key.src, |source| {
            source.cost -= datagram.cost;
            source.datagrams.retain(|(_, own)| own != key);
        });
        Some(datagram)
    }

    fn charge(&mut self, key: &Key, cost: usize) {
        self.cost += cost;
        self.change_source(key.src, |source| source.cost += cost);
        if let Some(datagram) = self.datagrams.get_mut(key) {
            datagram.cost += cost;
        }
    }

    /// Drops the pieces of a datagram, and keeps a mark of it.
    fn kill(&mut self, key: &Key) {
        let Some(datagram) = self.datagrams.get_mut(key) else { return };
        let cost = std::mem::take(&mut datagram.cost);
        datagram.pieces = Vec::new();
        datagram.headers = None;
        datagram.is_dead = true;
        self.cost -= cost;
        self.change_source(key.src, |source| source.cost -= cost);
    }

    /// Takes a datagram out if nothing of it is missing.
    fn complete(&mut self, key: &Key) -> Outcome<H, P> {
        if !self.datagrams.get(key).is_some_and(Datagram::is_whole) {
            return Outcome::Pending;
        }
        let Some(datagram) = self.remove(key) else { return Outcome::Pending };
        let Some(headers) = datagram.headers else { return Outcome::Refused(Refused::Inconsistent) };
        match joined_ecn(datagram.ecn, datagram.ecn_seen) {
            Some(ecn) => {
                let pieces = datagram.pieces.into_iter().map(|piece| piece.payload).collect();
                Outcome::Complete(headers, ecn, pieces)
            }
            None => Outcome::Refused(Refused::Ecn),
        }
    }
}

impl<H, P> Datagram<H, P> {
    /// Puts a piece in its place. Any refusal here but for a duplicate is the end of the datagram.
    fn add(&mut self, piece: Piece<H, P>, start: u32, end: u32) -> Result<(), Refused> {
        if self.is_dead {
            return Err(Refused::Dead);
        }
        let at = self.pieces.partition_point(|held| held.start < start);
        if self.pieces.get(at).is_some_and(|held| (held.start, held.end) == (start, end)) {
            return Err(Refused::Duplicate);
        }
        let before = at.checked_sub(1).and_then(|before| self.pieces.get(before));
        let runs_into = self.pieces.get(at).is_some_and(|next| next.start < end);
        if runs_into || before.is_some_and(|before| before.end > start) {
            return Err(Refused::Overlap);
        }
        let last = self.pieces.last().map_or(0, |last| last.end);
        let is_last = !piece.fragment.more;
        if self.end.is_some_and(|known| end > known || is_last && end != known) || is_last && last > end {
            return Err(Refused::Inconsistent);
        }
        if self.pieces.len() >= FRAGMENTS_MAX {
            return Err(Refused::TooMany);
        }
        if is_last {
            self.end = Some(end);
        }
        self.ecn_seen |= 1 << (piece.ecn & 3);
        if start == 0 {
            (self.headers, self.header_len, self.ecn) =
                (Some(piece.headers), piece.header_len, piece.ecn & 3);
        }
        self.pieces.insert(at, Held { start, end, payload: piece.payload });
        let reaches = self.pieces.last().map_or(0, |last| last.end) as usize;
        if reaches + self.header_len > PAYLOAD_MAX as usize {
            return Err(Refused::TooLong);
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        let mut next = 0;
        let is_contiguous = self.pieces.iter().all(|held| {
            let fits = held.start == next;
            next = held.end;
            fits
        });
        is_contiguous && self.end == Some(next) && !self.is_dead
    }
}

/// Where a piece begins and ends in its datagram.
fn bounds<H, P>(piece: &Piece<H, P>) -> Result<(u32, u32), Refused> {
    if piece.len == 0 || piece.fragment.more && !piece.len.is_multiple_of(8) {
        return Err(Refused::Length);
    }
    let start = u32::from(piece.fragment.offset);
    let len = u32::try_from(piece.len).map_err(|_| Refused::TooLong)?;
    let end = start.checked_add(len).filter(|end| *end <= PAYLOAD_MAX);
    Ok((start, end.ok_or(Refused::TooLong)?))
}

const NOT_ECT: u8 = 0;
const CE: u8 = 3;

/// The mark of a datagram whose fragments had those of `seen`, a bit for each; `None` if it must be dropped.
fn joined_ecn(first: u8, seen: u8) -> Option<u8> {
    if seen & (1 << CE) == 0 {
        return Some(first);
    }
    if seen & (1 << NOT_ECT) != 0 { None } else { Some(CE) }
}
