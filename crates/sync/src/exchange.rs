//! Loops that read packets of several sources, and hand each other what belongs to another one's flow.
//!
//! A *loop* is a thread with a task that reads sources and serves flows. A flow belongs to the loop that began it. Which source a flow's packets come by is not known, and changes; so any
//! loop may read them. All loops share a table of owners: [`Exchange::elsewhere`] says whose a packet is, and [`Exchange::give`] puts it into its owner's inbox.
//!
//! ```text
//! source s ─► loop s mod (loops in use) ─► elsewhere(): another loop's ─► give() ─► inbox, bell ─► take(), by that loop
//!                                          └► otherwise its own, or nobody's
//! ```
//!
//! * **In use** are the loops that read: the first [`in_use`](Exchange::in_use) of them. The others serve the flows that they have, from their inboxes. [`Exchange::set_in_use`] changes the number, and rings all
//!   bells: each loop then reads the number again, and waits at the sources that are its now.
//! * **Owners** are known from a flow's beginning until [`Bounds::linger`] after its end, since a flow's last packets come after that.
//!
//! # Why nothing is lost
//!
//! *In an inbox*: the giver puts the item there under the inbox's lock, and rings the bell then. The owner polls its bell before it sleeps, and takes until the inbox is empty after each ring. `bell.rs` says why
//! the ring arrives; an owner that has left drains its inbox as before.
//!
//! *In a source*: a loop that has read the new number may take over a source whose loop has not, so both read it, which sources permit. None is without a reader: the new one's bell was rung after the number was
//! stored, and the source reports what waits there to a reader that registers.
//!
//! *Of a flow*: the owner enters it into the table before it answers the flow's first packet. A loop that reads a packet that this answer has caused asks the table *after it has read the packet*, so it finds the owner: the
//! count of flows is raised before the answer. A loop that asked once for a batch, before it reads that, could miss it.
//!
//! Locks: the owners', each inbox's and each bell's, leaves, never held together. Bounds: [`Bounds`]. Does not depend on packets and sources. Tests:
//! `tests/loom/exchange.rs`; `queues/tests.rs` of the gateway.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::facade::{Arc, AtomicUsize, Mutex, Ordering};

/// See the module's head. `K` is what a flow is known by, `T` a packet.
#[derive(Debug)]
pub struct Exchange<K, T> {
    /// (a) Loops that read.
    in_use: AtomicUsize,
    seats: Box<[Seat<T>]>,
    owners: Mutex<Owners<K>>,
    /// (c)
    bounds: Bounds,
}

/// Of an [`Exchange`].
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes in an inbox, at most. What comes on top is lost.
    pub inbox_max: usize,
    /// How long a flow's owner is known after its end.
    pub linger: Duration,
    /// Flows that have ended and whose owner is known, at most.
    pub ended_max: usize,
}

/// A loop, as the others see it.
#[derive(Debug)]
struct Seat<T> {
    inbox: Mutex<Inbox<T>>,
    bell: Arc<Bell>,
    /// (a) Flows whose owner it is.
    owns: AtomicUsize,
}

#[derive(Debug)]
struct Inbox<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
}

#[derive(Debug)]
struct Owners<K> {
    of: HashMap<K, Owner>,
    /// Flows that have ended, the first first.
    ended: VecDeque<(Instant, K, u64)>,
    last_number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    index: usize,
    number: u64,
    has_ended: bool,
}

impl<K: Copy + Eq + Hash, T> Exchange<K, T> {
    /// Of so many loops, of which the first `in_use` read.
    pub fn new(loops: usize, in_use: usize, bounds: Bounds) -> Self {
        let seat = |_| Seat {
            inbox: Mutex::new(Inbox { items: VecDeque::new(), bytes: 0 }),
            bell: Arc::new(Bell::new()),
            owns: AtomicUsize::new(0),
        };
        let owners = Owners { of: HashMap::new(), ended: VecDeque::new(), last_number: 0 };
        Self {
            in_use: AtomicUsize::new(in_use),
            seats: (0..loops).map(seat).collect(),
            owners: Mutex::new(owners),
            bounds,
        }
    }

    /// How many loops there are.
    pub fn count(&self) -> usize {
        self.seats.len()
    }

    /// How many of them read.
    pub fn in_use(&self) -> usize {
        // Acquire, with the release in `set_in_use`.
        self.in_use.load(Ordering::Acquire)
    }

    /// Changes how many read, at least one. All learn of it.
    pub fn set_in_use(&self, count: usize) {
        self.in_use.store(count.clamp(1, self.count()), Ordering::Release);
        self.seats.iter().for_each(|seat| seat.bell.ring());
    }

    /// What wakes a loop.
    pub fn bell(&self, index: usize) -> Arc<Bell> {
        Arc::clone(&self.seats[index].bell)
    }

    /// Flows whose owner is a loop, with those that have ended and are not forgotten.
    pub fn owned(&self, index: usize) -> usize {
        // Relaxed: whoever has to see a flow has read a packet that its owner has caused.
        self.seats[index].owns.load(Ordering::Relaxed)
    }

    /// A flow of this loop begins. Its number, to end it by; `None` if another loop has one of this key that goes on.
    pub fn begin(&self, index: usize, key: K, now: Instant) -> Option<u64> {
        let mut owners = self.owners.lock();
        self.forget(&mut owners, now);
        let before = owners.of.get(&key).copied();
        if before.is_some_and(|before| before.index != index && !before.has_ended) {
            return None;
        }
        owners.last_number += 1;
        let number = owners.last_number;
        owners.of.insert(key, Owner { index, number, has_ended: false });
        // Relaxed: see `owned`. This thread alone ends the flow, so nothing is taken away that is not counted yet.
        self.seats[index].owns.fetch_add(1, Ordering::Relaxed);
        if let Some(before) = before {
            self.seats[before.index].owns.fetch_sub(1, Ordering::Relaxed);
        }
        Some(number)
    }

    /// The flow of this number has ended. Nothing, if a later one of its key has begun.
    pub fn end(&self, key: K, number: u64, now: Instant) {
        let mut owners = self.owners.lock();
        if let Some(owner) = owners.of.get_mut(&key).filter(|owner| owner.number == number) {
            owner.has_ended = true;
            owners.ended.push_back((now, key, number));
        }
    }

    /// Forgets flows that have ended long ago, or are too many.
    fn forget(&self, owners: &mut Owners<K>, now: Instant) {
        let Bounds { linger, ended_max, .. } = self.bounds;
        while let Some((at, key, number)) = owners.ended.front().copied()
            && (owners.ended.len() > ended_max || now.saturating_duration_since(at) > linger)
        {
            owners.ended.pop_front();
            if owners.of.get(&key).is_some_and(|owner| owner.number == number)
                && let Some(owner) = owners.of.remove(&key)
            {
                self.seats[owner.index].owns.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// How many flows the table has.
    pub fn known(&self) -> usize {
        self.owners.lock().of.len()
    }

    /// The loop that a packet is to go to, if it is another one's than the reader's, `index`. Call it after the packet was read. `key` reads the packet's flow, and whether it begins one: a new flow of a key
    /// whose last one has ended is anybody's. It is not called where no other loop has flows.
    pub fn elsewhere(&self, index: usize, key: impl FnOnce() -> Option<(K, bool)>) -> Option<usize> {
        if (0..self.count()).all(|other| other == index || self.owned(other) == 0) {
            return None;
        }
        let (key, begins) = key()?;
        let owner = *self.owners.lock().of.get(&key)?;
        (owner.index != index && !(begins && owner.has_ended)).then_some(owner.index)
    }

    /// Puts an item of so many bytes into a loop's inbox. It is lost where that is full.
    pub fn give(&self, index: usize, bytes: usize, item: impl FnOnce() -> T) {
        let seat = &self.seats[index];
        let mut inbox = seat.inbox.lock();
        if inbox.bytes + bytes <= self.bounds.inbox_max {
            inbox.bytes += bytes;
            inbox.items.push_back((bytes, item()));
        }
        drop(inbox);
        seat.bell.ring();
    }

    /// The oldest item of a loop's inbox. The loop takes until there is none before it sleeps.
    pub fn take(&self, index: usize) -> Option<T> {
        let mut inbox = self.seats[index].inbox.lock();
        let (bytes, item) = inbox.items.pop_front()?;
        inbox.bytes -= bytes;
        Some(item)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { inbox_max: 10, linger: Duration::from_secs(10), ended_max: 3 };

    #[test]
    fn a_flow_has_an_owner_until_long_after_its_end_and_a_new_one_of_its_key_is_anybodys() {
        let (exchange, now) = (Exchange::<u32, ()>::new(2, 2, BOUNDS), Instant::now());
        let whose = || {
            [0, 1].map(|index| [true, false].map(|begins| exchange.elsewhere(index, || Some((7, begins)))))
        };
        assert_eq!(exchange.elsewhere(0, || unreachable!("no other loop has flows")), None);
        let earlier = exchange.begin(1, 7, now).unwrap();
        let number = exchange.begin(1, 7, now).unwrap();
        exchange.end(7, earlier, now);
        assert_eq!(exchange.begin(0, 7, now), None, "the later one goes on");
        assert_eq!(whose(), [[Some(1); 2], [None; 2]]);
        assert_eq!(exchange.elsewhere(0, || None), None, "of no flow");
        exchange.end(7, number, now);
        assert_eq!(whose(), [[None, Some(1)], [None; 2]], "its last packets still have an owner");
        assert!(exchange.begin(0, 7, now + BOUNDS.linger).is_some());
        assert_eq!((whose(), exchange.owned(0), exchange.owned(1)), ([[None; 2], [Some(0); 2]], 1, 0));
        // The earlier end of its key is forgotten, and it goes on.
        assert!(exchange.begin(0, 8, now + 2 * BOUNDS.linger).is_some());
        assert_eq!(whose()[1], [Some(0); 2]);
        for key in 10..100 {
            let number = exchange.begin(1, key, now).unwrap();
            exchange.end(key, number, now);
        }
        // One more, until the next begins.
        assert_eq!((exchange.owned(1), exchange.known()), (BOUNDS.ended_max + 1, BOUNDS.ended_max + 3));
    }

    #[test]
    fn an_inbox_has_a_bound_in_bytes() {
        let exchange = Exchange::<u32, u32>::new(2, 2, BOUNDS);
        (1..=3).for_each(|item| exchange.give(1, 4, || item));
        assert_eq!(
            [exchange.take(0), exchange.take(1), exchange.take(1), exchange.take(1)],
            [None, Some(1), Some(2), None]
        );
        exchange.give(1, 10, || 4);
        assert_eq!(exchange.take(1), Some(4));
    }
}
