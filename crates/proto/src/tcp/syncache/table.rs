//! The memory of the syncache: slots, found by a keyed hash, each in one timer queue.
//!
//! Slots never move; they are linked by index, into the chain of their hash bucket and into a queue, of which there is
//! one per number of retries. All entries of a queue wait equally long, so appending keeps it in the order of
//! deadlines, and a timer only checks its head. It does not depend on segments. Invariants: `free` and the used slots
//! together are all slots ever made; a used slot is in the chain of its key's bucket and in the queue of its
//! `half_open.retries`, once each. Tests: `syncache/tests.rs`, which check all of this after each step.

use core::hash::{Hash, Hasher};
use core::time::Duration;

use siphasher::sip::SipHasher13;

use super::half_open::HalfOpen;
use super::{SYNACK_RETRIES_MAX, SYNACK_TIMEOUT, SYNACK_TIMEOUT_MAX};
use crate::time::Instant;

/// No slot.
pub(super) const NIL: u32 = u32::MAX;
/// Number of slots that the first entry makes.
const SLOTS_FIRST: usize = 4;
/// One queue for each number of retries, including zero.
const QUEUE_COUNT: usize = SYNACK_RETRIES_MAX as usize + 1;

/// An entry: 96 bytes with a 40-byte key and a handle of one word.
#[derive(Debug)]
pub(super) struct Slot<K, L> {
    pub key: K,
    pub listener: L,
    pub half_open: HalfOpen,
    /// When the timer last started.
    pub sent_at: Instant,
    /// The next slot of the same bucket.
    chain: u32,
    /// Neighbours in the queue.
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Table<K, L> {
    hasher: SipHasher13,
    /// First slot of each chain. There are `mask` + 1 of them, at least as many as slots. The first entry makes them,
    /// because few stacks need them.
    buckets: Vec<u32>,
    mask: usize,
    /// Grows up to the capacity, by doubling.
    slots: Vec<Option<Slot<K, L>>>,
    free: Vec<u32>,
    capacity: usize,
    queues: [Queue; QUEUE_COUNT],
}

impl<K: Hash + Eq, L> Table<K, L> {
    pub fn new(capacity: usize, hash_key: [u8; 16]) -> Self {
        Self {
            hasher: SipHasher13::new_with_key(&hash_key),
            buckets: Vec::new(),
            mask: capacity.next_power_of_two() - 1,
            slots: Vec::new(),
            free: Vec::new(),
            capacity,
            queues: [Queue { head: NIL, tail: NIL }; QUEUE_COUNT],
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// The bucket of `key`, and the slot that holds it or [`NIL`].
    pub fn find(&self, key: &K) -> (usize, u32) {
        let bucket = self.bucket_of(key);
        let mut at = self.buckets.get(bucket).copied().unwrap_or(NIL);
        while at != NIL {
            let slot = self.slot(at);
            if slot.key == *key {
                break;
            }
            at = slot.chain;
        }
        (bucket, at)
    }

    fn bucket_of(&self, key: &K) -> usize {
        let mut hasher = self.hasher;
        key.hash(&mut hasher);
        // The mask leaves an index below the number of buckets, which is a usize.
        (hasher.finish() & self.mask as u64) as usize
    }

    pub fn slot(&self, index: u32) -> &Slot<K, L> {
        self.slots[index as usize].as_ref().expect("links lead to used slots only")
    }

    pub fn slot_mut(&mut self, index: u32) -> &mut Slot<K, L> {
        self.slots[index as usize].as_mut().expect("links lead to used slots only")
    }

    /// Makes an entry; `bucket` is where [`find`](Self::find) did not find the key.
    ///
    /// # Panics
    /// If the table is full. The owner must prevent this.
    pub fn insert(&mut self, bucket: usize, key: K, listener: L, half_open: HalfOpen, now: Instant) {
        assert!(!self.is_full(), "insert into a full syncache");
        if self.slots.len() == self.slots.capacity() && self.free.is_empty() {
            self.grow();
        }
        let chain = self.buckets[bucket];
        let slot = Slot { key, listener, half_open, sent_at: now, chain, prev: NIL, next: NIL };
        let index = if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(slot);
            index
        } else {
            let index = u32::try_from(self.slots.len()).expect("capacity is below 2^32");
            self.slots.push(Some(slot));
            index
        };
        self.buckets[bucket] = index;
        self.append(index);
    }

    /// Makes room for one more entry, and for all slots in the free list. The first call makes the buckets.
    #[cold]
    fn grow(&mut self) {
        self.buckets.resize(self.mask + 1, NIL);
        let count = self.slots.len();
        self.slots.reserve_exact(count.max(SLOTS_FIRST).min(self.capacity - count));
        self.free.reserve_exact(self.slots.capacity());
    }

    /// Removes the entry at `index`, whose key belongs to `bucket`.
    pub fn remove(&mut self, bucket: usize, index: u32) -> L {
        self.unlink(index);
        let behind = self.slot(index).chain;
        let mut at = self.buckets[bucket];
        if at == index {
            self.buckets[bucket] = behind;
        } else {
            while self.slot(at).chain != index {
                at = self.slot(at).chain;
            }
            self.slot_mut(at).chain = behind;
        }
        self.free.push(index);
        let slot = self.slots[index as usize].take().expect("it was linked a moment ago");
        slot.listener
    }

    /// Removes the entry at `index`.
    pub fn remove_at(&mut self, index: u32) -> L {
        let bucket = self.bucket_of(&self.slot(index).key);
        self.remove(bucket, index)
    }

    /// Removes the oldest entry: the head of the queue with the most retries.
    pub fn evict_oldest(&mut self) {
        let oldest = self.queues.iter().rev().map(|queue| queue.head).find(|head| *head != NIL);
        if let Some(index) = oldest {
            self.remove_at(index);
        }
    }

    /// Removes every entry for which `keep` is false; returns how many.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &L) -> bool) -> u64 {
        let mut removed = 0;
        for index in 0..self.slots.len() {
            let drop = self.slots[index].as_ref().is_some_and(|s| !keep(&s.key, &s.listener));
            if drop {
                self.remove_at(u32::try_from(index).expect("capacity is below 2^32"));
                removed += 1;
            }
        }
        removed
    }

    /// The first entry of those with `retries` retries, if it is due.
    pub fn due(&self, retries: u8, now: Instant) -> Option<u32> {
        let head = self.queues[usize::from(retries)].head;
        (self.deadline(usize::from(retries))? <= now).then_some(head)
    }

    /// Moves an entry to the end of the next queue; its timer starts at `now`.
    pub fn requeue(&mut self, index: u32, now: Instant) {
        self.unlink(index);
        let slot = self.slot_mut(index);
        slot.half_open.note_expiry();
        slot.sent_at = now;
        self.append(index);
    }

    /// Moves an entry to the end of its queue; its timer starts at `now`.
    pub fn restart(&mut self, index: u32, now: Instant) {
        self.unlink(index);
        self.slot_mut(index).sent_at = now;
        self.append(index);
    }

    /// The earliest deadline of all entries.
    pub fn next_deadline(&self) -> Option<Instant> {
        (0..QUEUE_COUNT).filter_map(|retries| self.deadline(retries)).min()
    }

    /// The deadline of a queue's head.
    fn deadline(&self, retries: usize) -> Option<Instant> {
        let head = self.queues[retries].head;
        (head != NIL).then(|| self.slot(head).sent_at + timeout(retries))
    }

    fn append(&mut self, index: u32) {
        let retries = usize::from(self.slot(index).half_open.retries());
        let tail = self.queues[retries].tail;
        let slot = self.slot_mut(index);
        slot.prev = tail;
        slot.next = NIL;
        if tail == NIL {
            self.queues[retries].head = index;
        } else {
            self.slot_mut(tail).next = index;
        }
        self.queues[retries].tail = index;
    }

    fn unlink(&mut self, index: u32) {
        let slot = self.slot(index);
        let (prev, next) = (slot.prev, slot.next);
        let retries = usize::from(slot.half_open.retries());
        if prev == NIL {
            self.queues[retries].head = next;
        } else {
            self.slot_mut(prev).next = next;
        }
        if next == NIL {
            self.queues[retries].tail = prev;
        } else {
            self.slot_mut(next).prev = prev;
        }
    }
}

/// How long an entry waits that was repeated `retries` times.
pub(super) fn timeout(retries: usize) -> Duration {
    (SYNACK_TIMEOUT * (1 << retries)).min(SYNACK_TIMEOUT_MAX)
}

#[cfg(test)]
impl<K: Hash + Eq, L> Table<K, L> {
    /// Walks every chain, queue and free slot and compares them with the invariants.
    pub fn assert_consistent(&self) {
        let mut chained = 0;
        for (bucket, first) in self.buckets.iter().enumerate() {
            let mut at = *first;
            while at != NIL {
                assert_eq!(self.bucket_of(&self.slot(at).key), bucket);
                chained += 1;
                assert!(chained <= self.len(), "a chain runs in a circle");
                at = self.slot(at).chain;
            }
        }
        let mut queued = 0;
        for (retries, queue) in self.queues.iter().enumerate() {
            let (mut at, mut before, mut sent_at) = (queue.head, NIL, Instant::ZERO);
            while at != NIL {
                let slot = self.slot(at);
                assert_eq!((slot.prev, usize::from(slot.half_open.retries())), (before, retries));
                assert!(slot.sent_at >= sent_at, "queue {retries} is out of order");
                queued += 1;
                assert!(queued <= self.len(), "a queue runs in a circle");
                (before, at, sent_at) = (at, slot.next, slot.sent_at);
            }
            assert_eq!(queue.tail, before);
        }
        let used = self.slots.iter().flatten().count();
        assert_eq!((chained, queued, used), (self.len(), self.len(), self.len()));
        assert!(self.free.iter().all(|index| self.slots[*index as usize].is_none()));
        assert!(self.slots.capacity() <= self.capacity && self.free.capacity() >= self.slots.capacity());
        assert!(self.slots.is_empty() || self.buckets.len() > self.mask);
    }
}
