//! Half-open connections (SYN-RECEIVED of a passive open) until their handshake is complete.
//!
//! A listener is the only part of a stack that a stranger can fill with a single packet per entry. So a handshake gets
//! 96 bytes here instead of a pcb, and the number of entries is fixed at creation. It does not depend on addresses (the
//! caller's key `K`), listeners (the caller's handle `L`), accept queues or pcbs. One instance belongs to one shard,
//! under the caller's lock; nothing here blocks.
//!
//! States of an entry, and their transitions:
//! * made by [`on_syn`](SynCache::on_syn), which answers with a SYN-ACK;
//! * repeated by [`on_timer`](SynCache::on_timer) after 1, 2, 4, 8 and 16 s, and dropped 32 s later, unless the listener has
//!   another [`Patience`];
//! * found complete by [`on_ack`](SynCache::on_ack), which leaves it in place. If the accept queue is full, the caller
//!   does nothing: the client's ACK counts as lost, and a later SYN-ACK causes another one (as on Linux). Else the
//!   caller makes the pcb and calls [`remove`](SynCache::remove). A listener that defers ignores an acknowledgment
//!   without text, and waits for the text;
//! * dropped by [`on_rst`](SynCache::on_rst), by [`on_unreachable`](SynCache::on_unreachable), by
//!   [`retain`](SynCache::retain) when its listener closes, or as the oldest one when a new SYN finds the cache full.
//!   So during a flood of SYNs, the cache holds the newest entries, and an honest client's entry completes within a
//!   round trip (BSD's solution); or the caller answers with a cookie ([`cookie`]), and makes no entry.
//!
//! Invariants: at most `capacity` entries; every entry is in exactly one timer queue, that of its number of retries; a
//! queue is in the order of `sent_at`, and no entry of a queue is younger than one of a queue with fewer retries. No
//! step costs more than a hash, a short chain and a few links.
//!
//! Cookies leave no entry, but the cache remembers when the last one was sent ([`note_cookie`](SynCache::note_cookie)):
//! only within the lifetime of a cookie is a stray acknowledgment checked
//! ([`expects_cookies`](SynCache::expects_cookies)), so that nobody can guess numbers while no cookies are in use.
//!
//! Tests: `syncache/tests.rs`.

pub mod cookie;
mod half_open;
mod table;
#[cfg(test)]
mod tests;

use core::hash::Hash;
use core::time::Duration;

use self::half_open::HalfOpen;
use self::table::{NIL, Table};
use super::accepted::Accepted;
use super::closed::reset_at;
use super::segment::{Flags, Header};
use super::time_wait::is_acceptable;
use super::timestamp;
use crate::seq::SeqNum;
use crate::time::Instant;

/// Largest number of SYN-ACK repetitions before the handshake is given up.
pub const SYNACK_RETRIES_MAX: u8 = 15;
/// Time from the first SYN-ACK to the second; it doubles with each (RFC 6298 section 2.1 and 5.5).
pub const SYNACK_TIMEOUT: Duration = Duration::from_secs(1);
/// Upper limit of that time, as for the retransmission timeout of a connection.
pub const SYNACK_TIMEOUT_MAX: Duration = Duration::from_secs(120);
/// Default number of entries of a shard: 96 KiB with an IPv6 key.
pub const CAPACITY_DEFAULT: usize = 1024;
/// Largest number of entries of a cache.
pub const CAPACITY_MAX: usize = 1 << 20;
/// Largest number of immediate answers of one entry to segments other than a SYN; afterwards only the timer sends. It
/// bounds challenge ACKs (RFC 5961 section 7) and ends ACK loops.
pub const ANSWERS_MAX: u8 = 16;

/// The least time between two answers to a repeated SYN, here and in a Fast Open connection (`tcp_invalid_ratelimit`).
pub(super) const AGAIN_INTERVAL: Duration = Duration::from_millis(500);

/// A listener's offer to its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenParams {
    /// The MSS to announce, bytes.
    pub mss: u16,
    /// The MSS to assume of a peer that announces none, bytes: 536 for IPv4, 1220 for IPv6 (RFC 9293
    /// MUST-15).
    pub peer_mss_default: u16,
    /// Room in the new socket's `so_rcv`, bytes. At most 65,535 of it are announced, since a SYN's
    /// window is never scaled (RFC 7323 section 2.2).
    pub rcv_wnd: u32,
    /// Rcv.Wind.Shift to offer, at most 14; `None` to do without window scaling.
    pub window_scale: Option<u8>,
    /// Agree to timestamps.
    pub timestamps: bool,
    /// Agree to SACK.
    pub sack: bool,
    /// Agree to ECN (RFC 3168).
    pub ecn: bool,
    /// Agree to accurate ECN (RFC 9768).
    pub accurate_ecn: bool,
}

/// How long a listener waits for its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// How often a SYN-ACK is repeated before the handshake is given up (`tcp_synack_retries`), at most [`SYNACK_RETRIES_MAX`].
    pub retries: u8,
    /// Expiries of the SYN-ACK's timer during which a handshake is not complete until text arrives
    /// (`TCP_DEFER_ACCEPT`), at most [`SYNACK_RETRIES_MAX`]; 0: the acknowledgment completes it.
    pub defers: u8,
}

impl Default for Patience {
    /// Linux's defaults.
    fn default() -> Self {
        Self { retries: 5, defers: 0 }
    }
}

impl Patience {
    /// The number of expiries in which `time` passes, rounded up, as Linux counts (`secs_to_retrans`).
    pub fn defers_for(time: Duration) -> u8 {
        (0..SYNACK_RETRIES_MAX).find(|count| Self::time_of(*count) >= time).unwrap_or(SYNACK_RETRIES_MAX)
    }

    /// The time that this many expiries take.
    pub fn time_of(defers: u8) -> Duration {
        (0..defers.min(SYNACK_RETRIES_MAX)).map(|retries| table::timeout(usize::from(retries))).sum()
    }

    /// Whether a handshake is given up when its timer expires after `retries` earlier expiries.
    fn is_over(self, retries: u8, is_acked: bool) -> bool {
        retries >= SYNACK_RETRIES_MAX || (retries >= self.retries && !(is_acked && retries < self.defers))
    }

    /// Whether the SYN-ACK is then repeated: for a peer that has acknowledged it, only at the end of the time.
    fn repeats(self, retries: u8, is_acked: bool) -> bool {
        self.defers == 0 || !is_acked || retries + 1 >= self.defers
    }
}

/// The initial numbers of a connection, both from [`isn`](super::isn).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitialNumbers {
    /// ISS.
    pub iss: SeqNum,
    /// Offset of TSval.
    pub ts_offset: u32,
}

/// Effect of a segment other than a SYN or a reset on the handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AckOutcome<L> {
    /// The handshake is complete. Make the pcb, feed it this same segment, and
    /// [`remove`](SynCache::remove) the entry; or leave the entry if there is no room.
    Accept {
        /// The listener's handle, as given with the SYN.
        listener: L,
        /// Values for the pcb.
        accepted: Accepted,
    },
    /// The acknowledgment cannot be right: send this reset. The entry stays.
    Reject(Header),
    /// Send this acknowledgment; the segment is outside the window or too old. The entry stays.
    Challenge(Header),
    /// Drop the segment. The entry stays.
    Ignore,
    /// There is no such handshake: handle the segment as one to a bare listener.
    NoEntry,
}

/// Effect of a reset on the handshake (RFC 5961 section 3.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RstOutcome<L> {
    /// Its number is exact: the handshake has ended, and its entry is removed.
    Removed(L),
    /// Its number is in the window but not exact: send this challenge ACK.
    Challenge(Header),
    /// It is outside the window, or the entry has been challenged enough: drop it.
    Ignore,
    /// There is no such handshake.
    NoEntry,
}

/// Counts since creation. They wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Entries made.
    pub added: u64,
    /// Entries that led to a connection.
    pub completed: u64,
    /// Oldest entries dropped for a new one in a full cache.
    pub dropped_overflow: u64,
    /// Entries dropped because their listener was closed.
    pub dropped_listener: u64,
    /// Entries given up after the listener's [`Patience`].
    pub timed_out: u64,
    /// Entries ended by the peer's reset.
    pub reset: u64,
    /// Entries ended by a report of the network.
    pub unreachable: u64,
    /// SYN-ACKs repeated by the timer.
    pub retransmitted: u64,
}

/// The half-open connections of one shard; see the head of this file.
#[derive(Debug)]
pub struct SynCache<K, L> {
    table: Table<K, L>,
    statistics: Statistics,
    /// When the last cookie was sent instead of making an entry.
    cookie_at: Option<Instant>,
}

impl<K: Hash + Eq + Clone, L: Clone> SynCache<K, L> {
    /// An empty cache for `capacity` entries (limited to 1 to [`CAPACITY_MAX`]); all its memory is allocated now.
    /// `hash_key` must be random, because the peer chooses the keys.
    ///
    /// A `K` whose `Hash` makes few writes is the fastest.
    pub fn new(capacity: usize, hash_key: [u8; 16]) -> Self {
        let table = Table::new(capacity.clamp(1, CAPACITY_MAX), hash_key);
        Self { table, statistics: Statistics::default(), cookie_at: None }
    }

    /// Processes a SYN (without ACK and RST, as [`closed::listen`](super::closed::listen) has found) and returns the
    /// answer.
    ///
    /// For a new key, the answer is a SYN-ACK, and an entry is made. The same SYN again gets the same SYN-ACK again,
    /// and its timer restarts; another one within half a second of such an answer gets none (`tcp_oow_rate_limited`). A
    /// SYN with another sequence number gets a challenge ACK (RFC 5961 section 4.2), or `None` after [`ANSWERS_MAX`],
    /// and changes nothing. If the entry comes from an old duplicate or a client that has restarted, the client answers
    /// the challenge with an exact reset (RFC 9293 section 3.10.7.3), which makes room for its next SYN. If the entry
    /// were replaced at once, a host off the path could break the handshakes of others.
    pub fn on_syn(
        &mut self,
        key: K,
        listener: L,
        hdr: &Header,
        params: &ListenParams,
        numbers: InitialNumbers,
        now: Instant,
    ) -> Option<Header> {
        let (bucket, found) = self.table.find(&key);
        if found != NIL {
            let answered_at = self.table.slot_mut(found).sent_at;
            let half_open = &mut self.table.slot_mut(found).half_open;
            if hdr.seq != half_open.irs {
                return challenge(half_open, now);
            }
            let is_repeated = half_open.is_repeated();
            half_open.note_answer();
            half_open.note_repeated(hdr);
            if is_repeated && now.since(answered_at) < AGAIN_INTERVAL {
                return None;
            }
            let answer = half_open.syn_ack(now);
            self.table.restart(found, now);
            return Some(answer);
        }
        if self.table.is_full() {
            // The non-empty queue with the most retries has the oldest entry at its head.
            self.table.evict_oldest();
            self.statistics.dropped_overflow += 1;
        }
        let half_open = HalfOpen::new(hdr, params, numbers);
        self.table.insert(bucket, key, listener, half_open, now);
        self.statistics.added += 1;
        Some(half_open.syn_ack(now))
    }

    /// How often the handshake of this key, if there is one, has requested another path ([`Accepted::rehashes`]).
    pub fn rehashes(&self, key: &K) -> u8 {
        let found = self.table.find(key).1;
        if found == NIL { 0 } else { self.table.slot(found).half_open.rehashes() }
    }

    /// True if a SYN of this key would make a new entry.
    pub fn is_new(&self, key: &K) -> bool {
        self.table.find(key).1 == NIL
    }

    /// True if the next new entry would replace an old one.
    pub fn is_full(&self) -> bool {
        self.table.is_full()
    }

    /// A SYN was answered with a cookie.
    pub fn note_cookie(&mut self, now: Instant) {
        self.cookie_at = Some(now);
    }

    /// Whether a cookie may come back: one was sent that may still be valid.
    pub fn expects_cookies(&self, now: Instant) -> bool {
        self.cookie_at.is_some_and(|at| now.since(at) <= cookie::PERIOD * cookie::PERIODS_MAX)
    }

    /// Processes a segment that is neither RST nor a SYN that a listener accepts, of `payload_len` bytes: normally the
    /// third of the handshake. Follows the steps of RFC 9293 section 3.10.7.4 for SYN-RECEIVED.
    pub fn on_ack(
        &mut self,
        key: &K,
        hdr: &Header,
        payload_len: usize,
        now: Instant,
        patience: impl FnOnce(&L) -> Patience,
    ) -> AckOutcome<L> {
        let (_, found) = self.table.find(key);
        if found == NIL {
            return AckOutcome::NoEntry;
        }
        let slot = self.table.slot_mut(found);
        let half_open = &mut slot.half_open;
        match check_ack(half_open, hdr, payload_len) {
            AckCheck::Complete if half_open.waits_for_text(hdr, payload_len, patience(&slot.listener)) => {
                AckOutcome::Ignore
            }
            AckCheck::Complete => AckOutcome::Accept {
                listener: slot.listener.clone(),
                accepted: half_open.accepted(hdr.options.timestamps, slot.sent_at, now),
            },
            AckCheck::WrongAck => AckOutcome::Reject(reset_at(hdr.ack)),
            AckCheck::Unacceptable => {
                challenge(half_open, now).map_or(AckOutcome::Ignore, AckOutcome::Challenge)
            }
            AckCheck::Drop => AckOutcome::Ignore,
        }
    }

    /// Processes a reset. Only one with exactly the next sequence number ends the handshake.
    pub fn on_rst(&mut self, key: &K, hdr: &Header, now: Instant) -> RstOutcome<L> {
        let (bucket, found) = self.table.find(key);
        if found == NIL {
            return RstOutcome::NoEntry;
        }
        let half_open = &mut self.table.slot_mut(found).half_open;
        let rcv_nxt = half_open.rcv_nxt();
        if hdr.seq == rcv_nxt {
            self.statistics.reset += 1;
            return RstOutcome::Removed(self.table.remove(bucket, found));
        }
        if !is_acceptable(hdr.seq, 0, rcv_nxt, u32::from(half_open.window)) {
            return RstOutcome::Ignore;
        }
        challenge(half_open, now).map_or(RstOutcome::Ignore, RstOutcome::Challenge)
    }

    /// The network reports that a SYN-ACK with sequence number `seq` did not arrive. If that number is ours, the
    /// handshake ends: its client will try again (as on Linux; nobody waits for it here). Another number is a guess
    /// (RFC 5927), and changes nothing. Returns the listener's handle if the entry was removed.
    pub fn on_unreachable(&mut self, key: &K, seq: SeqNum) -> Option<L> {
        let (bucket, found) = self.table.find(key);
        if found == NIL || self.table.slot_mut(found).half_open.iss != seq {
            return None;
        }
        self.statistics.unreachable += 1;
        Some(self.table.remove(bucket, found))
    }

    /// Whether a handshake with this key is under way.
    pub fn contains(&self, key: &K) -> bool {
        self.table.find(key).1 != NIL
    }

    /// Removes the entry whose connection has been made; returns the listener's handle, or `None` if there is no such
    /// entry.
    pub fn remove(&mut self, key: &K) -> Option<L> {
        let (bucket, found) = self.table.find(key);
        if found == NIL {
            return None;
        }
        self.statistics.completed += 1;
        Some(self.table.remove(bucket, found))
    }

    /// Drops every entry for which `keep` is false: those of a listener that closes. Visits the whole cache.
    pub fn retain(&mut self, keep: impl FnMut(&K, &L) -> bool) {
        self.statistics.dropped_listener += self.table.retain(keep);
    }

    /// Repeats the SYN-ACKs that are due at `now`, each through `send` with its listener and
    /// [`rehashes`](Self::rehashes), and removes those that have been repeated often enough. After a jump of the clock
    /// each entry is still repeated only once. Work is bounded by the number of entries due.
    pub fn on_timer(
        &mut self,
        now: Instant,
        patience: impl Fn(&L) -> Patience,
        mut send: impl FnMut(&K, &L, Header, u8),
    ) {
        // An entry moved to the next queue restarts at `now`, so this loop does not find it again there.
        for retries in 0..=SYNACK_RETRIES_MAX {
            while let Some(index) = self.table.due(retries, now) {
                let slot = self.table.slot_mut(index);
                let (patience, is_acked) = (patience(&slot.listener), slot.half_open.is_acked());
                if patience.is_over(retries, is_acked) {
                    self.table.remove_at(index);
                    self.statistics.timed_out += 1;
                    continue;
                }
                self.table.requeue(index, now);
                if !patience.repeats(retries, is_acked) {
                    continue;
                }
                let repeating = Repeating { table: &mut self.table, index };
                let slot = repeating.table.slot_mut(index);
                slot.half_open.note_resend();
                let (syn_ack, rehashes) = (slot.half_open.syn_ack(now), slot.half_open.rehashes());
                send(&slot.key, &slot.listener, syn_ack, rehashes);
                std::mem::forget(repeating);
                self.statistics.retransmitted += 1;
            }
        }
    }

    /// When [`on_timer`](Self::on_timer) must next be called; `None` if the cache is empty. Costs sixteen loads.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.table.next_deadline()
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if no handshake is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bound on [`len`](Self::len).
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Counts since creation.
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }
}

/// Values for a connection that does not wait for the third segment (Fast Open).
pub fn accepted_at_syn(
    syn: &Header,
    params: &ListenParams,
    numbers: InitialNumbers,
    now: Instant,
) -> Accepted {
    Accepted { rtt: None, ..HalfOpen::new(syn, params, numbers).accepted(None, now, now) }
}

/// An entry whose SYN-ACK is being repeated. If that panics, the entry is removed; otherwise it would panic at every
/// call.
struct Repeating<'t, K: Hash + Eq + Clone, L: Clone> {
    table: &'t mut Table<K, L>,
    index: u32,
}

impl<K: Hash + Eq + Clone, L: Clone> Drop for Repeating<'_, K, L> {
    fn drop(&mut self) {
        self.table.remove_at(self.index);
    }
}

/// Result of [`check_ack`].
enum AckCheck {
    Complete,
    WrongAck,
    Unacceptable,
    Drop,
}

/// The steps that a segment in SYN-RECEIVED goes through, in the RFC's order.
fn check_ack(half_open: &HalfOpen, hdr: &Header, payload_len: usize) -> AckCheck {
    if hdr.flags.has(Flags::RST) {
        return AckCheck::Drop;
    }
    // A segment without timestamps is accepted, as on an open connection (`input/arrives.rs`).
    if let Some(ts) = hdr.options.timestamps
        && half_open.agreed.timestamps()
        && timestamp::is_stale(ts.val, half_open.ts_recent)
    {
        return AckCheck::Unacceptable;
    }
    let len = hdr.seq_len(payload_len);
    if !is_acceptable(hdr.seq, len, half_open.rcv_nxt(), u32::from(half_open.window)) {
        return AckCheck::Unacceptable;
    }
    if hdr.flags.has(Flags::SYN) {
        return AckCheck::Unacceptable;
    }
    if !hdr.flags.has(Flags::ACK) {
        return AckCheck::Drop;
    }
    if hdr.ack == half_open.snd_nxt() { AckCheck::Complete } else { AckCheck::WrongAck }
}

/// An ACK with the handshake's present numbers, unless the entry has sent enough of them.
fn challenge(half_open: &mut HalfOpen, now: Instant) -> Option<Header> {
    if half_open.answers() >= ANSWERS_MAX {
        return None;
    }
    half_open.note_answer();
    Some(half_open.ack(now))
}
