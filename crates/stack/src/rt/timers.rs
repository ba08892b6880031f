//! The timer wheel: calls and their times, to the millisecond.
//!
//! A hierarchical wheel of four levels of 64 slots. A deadline goes into the level of the highest
//! six-bit digit in which it differs from the present, and comes down a level when that digit is
//! reached, so inserting and firing are O(1). Nothing is ever taken out: a deadline that has moved or
//! gone is noticed where the call arrives, and a connection has at most one entry that counts
//! (`Conn::timer_at`). Entries name connections, they do not keep them alive.
//!
//! A call never comes early; it comes at most a tick late. Deadlines beyond the horizon of 4.6 hours
//! are kept in the last slot and looked at again when it is reached.
//!
//! So entries of connections and flows that have ended pile up, for as long as their timers would have run: [`Workers::turn`](crate::rt::workers::Workers::turn) takes
//! them out when they are many.
//!
//! Bound: two entries of 24 bytes per armed timer, and 65,536.

use crate::rt::failpoints::{self, Point};

/// The call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerKey {
    /// A connection of this name hash and these low bits of its serial number, if it still exists. A later one that has both
    /// in common is called for nothing, which it notices.
    Conn { hash: u64, serial: u32 },
    /// A shard of the demux table.
    Shard { index: usize },
    /// Fragments of datagrams that are not whole.
    Fragments,
    /// The tasks that wait for packet memory.
    Memory,
    /// Pruning of out-of-order data, at the memory cap.
    Prune,
    /// Packet memory on remote-free lists.
    #[cfg(feature = "experiments")]
    RemoteSweep,
    /// The link of an interface, by its place in the table.
    Link { netif: u16 },
    /// A flow of UDP, named as a connection is.
    Flow { hash: u64, serial: u32 },
    /// Frames that were left at a lane of an interface.
    Frames { netif: u16, lane: u8 },
}

const _: () = assert!(size_of::<Entry>() == 24);

/// A call that is due at `at` microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub at: u64,
    pub key: TimerKey,
}

/// See the module's head.
pub(crate) struct Wheel {
    /// The tick up to which everything has been called.
    elapsed: u64,
    /// Entries in all slots.
    len: usize,
    levels: [Level; LEVELS],
}

struct Level {
    /// Bit i: slot i is not empty.
    occupied: u64,
    slots: [Vec<Entry>; SLOTS],
}

const LEVELS: usize = 4;
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
/// A tick, microseconds.
const TICK: u64 = 1000;
/// Range of the wheel, ticks.
const HORIZON: u64 = 1 << (DIGIT_BITS * LEVELS as u32);
/// Ticks of one slot of the highest level.
const TOP_SLOT: u64 = HORIZON / SLOTS as u64;

impl Wheel {
    /// A wheel whose present is `now` microseconds.
    pub fn new(now: u64) -> Self {
        let level = || Level { occupied: 0, slots: std::array::from_fn(|_| Vec::new()) };
        Self { elapsed: now / TICK, len: 0, levels: std::array::from_fn(|_| level()) }
    }

    /// Asks for a call at `at` microseconds, or as soon as possible if that is past.
    pub fn insert(&mut self, entry: Entry) {
        let due = entry.at.div_ceil(TICK).max(self.elapsed + 1);
        // A top slot less than the horizon: further ahead lies the slot that is present now, and an entry put
        // there would come up at once, go back there, and so on for ever.
        let tick = due.min(self.elapsed + HORIZON - TOP_SLOT);
        let (level, slot) = self.place(tick);
        let level = &mut self.levels[level];
        level.slots[slot].push(entry);
        level.occupied |= 1 << slot;
        self.len += 1;
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Takes all entries out, in no order.
    pub fn take_all(&mut self) -> Vec<Entry> {
        let mut all = Vec::with_capacity(std::mem::take(&mut self.len));
        for level in &mut self.levels {
            level.occupied = 0;
            level.slots.iter_mut().for_each(|slot| all.append(&mut std::mem::take(slot)));
        }
        all
    }

    /// When [`advance`](Self::advance) has something to do next, microseconds; never later than the
    /// earliest entry.
    pub fn next(&self) -> Option<u64> {
        self.next_slot().map(|(tick, ..)| tick * TICK)
    }

    /// Moves the present to `now` microseconds and appends the due timers to `due`.
    pub fn advance(&mut self, now: u64, due: &mut Vec<Entry>) {
        let target = now / TICK;
        while let Some((tick, level, slot)) = self.next_slot().filter(|(tick, ..)| *tick <= target) {
            self.elapsed = tick.max(self.elapsed);
            let level = &mut self.levels[level];
            level.occupied &= !(1 << slot);
            let mut entries = std::mem::take(&mut level.slots[slot]);
            self.len -= entries.len();
            for entry in entries.drain(..) {
                failpoints::hit(Point::Advance, 0);
                if entry.at.div_ceil(TICK) <= self.elapsed {
                    due.push(entry);
                } else {
                    self.insert(entry);
                }
            }
            self.keep_memory(tick, entries);
        }
        self.elapsed = self.elapsed.max(target);
    }

    /// A slot's vector keeps its memory for the next time round, unless it is large.
    fn keep_memory(&mut self, tick: u64, entries: Vec<Entry>) {
        let slot = &mut self.levels[0].slots[(tick % SLOTS as u64) as usize];
        if slot.capacity() == 0 && entries.capacity() <= KEPT_ENTRIES_MAX {
            *slot = entries;
        }
    }

    /// Level and slot of a tick that lies ahead, within the horizon.
    fn place(&self, tick: u64) -> (usize, usize) {
        // The highest digit that differs decides; within the horizon a carry may reach beyond the top
        // digit, which then belongs to the top level all the same.
        let differing = (self.elapsed ^ tick) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / DIGIT_BITS).min(LEVELS as u32 - 1);
        let slot = (tick >> (level * DIGIT_BITS)) % SLOTS as u64;
        (level as usize, slot as usize)
    }

    /// The first slot ahead that is not empty: the tick at which it begins, level and index.
    fn next_slot(&self) -> Option<(u64, usize, usize)> {
        // A lower level always comes before a higher one: its entries share all higher digits.
        (0..LEVELS).find_map(|level| {
            let occupied = self.levels[level].occupied;
            if occupied == 0 {
                return None;
            }
            let shift = DIGIT_BITS * level as u32;
            let present = (self.elapsed >> shift) % SLOTS as u64;
            let ahead = occupied.rotate_right(present as u32).trailing_zeros();
            let slot = (present + u64::from(ahead)) % SLOTS as u64;
            let base = (self.elapsed >> shift) - present;
            let turn = if slot < present { SLOTS as u64 } else { 0 };
            let tick = ((base + turn + slot) << shift).max(self.elapsed);
            Some((tick, level, slot as usize))
        })
    }
}

/// Entries whose memory a slot keeps when it is emptied.
const KEPT_ENTRIES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(at: u64) -> Entry {
        Entry { at, key: TimerKey::Conn { hash: at, serial: 0 } }
    }

    #[test]
    fn an_empty_wheel_has_nothing_next_and_may_jump() {
        let mut wheel = Wheel::new(5_000_000);
        let mut due = Vec::new();
        assert_eq!(wheel.next(), None);
        wheel.advance(u64::MAX / 2, &mut due);
        assert!(due.is_empty());
    }

    #[test]
    fn all_entries_can_be_taken_out_and_put_back() {
        let mut wheel = Wheel::new(0);
        let times = [3, 70, 5000, 300_000, HORIZON * 2].map(|tick| tick * TICK);
        times.iter().for_each(|at| wheel.insert(entry(*at)));
        let mut due = Vec::new();
        wheel.advance(80 * TICK, &mut due);
        assert_eq!((due.len(), wheel.len()), (2, 3));
        let all = wheel.take_all();
        assert_eq!((all.len(), wheel.len(), wheel.next()), (3, 0, None));
        all.into_iter().for_each(|entry| wheel.insert(entry));
        wheel.advance(400_000 * TICK, &mut due);
        assert_eq!((due.len(), wheel.len()), (4, 1));
    }

    #[test]
    fn a_past_deadline_fires_at_the_next_tick() {
        let mut wheel = Wheel::new(5_000_000);
        let mut due = Vec::new();
        wheel.insert(entry(1));
        wheel.advance(5_001_000, &mut due);
        assert_eq!(due, [entry(1)]);
    }

    #[test]
    fn a_deadline_beyond_the_horizon_does_not_fire_early() {
        let mut wheel = Wheel::new(0);
        let far = HORIZON * TICK * 3 + 17;
        wheel.insert(entry(far));
        let mut due = Vec::new();
        let mut hops = 0;
        while due.is_empty() {
            let next = wheel.next().unwrap();
            assert!(next <= far.div_ceil(TICK) * TICK);
            wheel.advance(next, &mut due);
            hops += 1;
            assert!(hops < 100);
        }
        assert_eq!(due, [entry(far)]);
    }

    proptest! {
        /// Compared with a list: every entry fires exactly once, not early, and not later than the next
        /// call that the wheel asked for.
        #[test]
        fn each_entry_fires_once_and_in_its_tick(
            start in 0u64..100_000_000,
            waits in proptest::collection::vec((0u64..30_000_000_000, any::<bool>()), 1..80),
        ) {
            let mut wheel = Wheel::new(start);
            let mut due = Vec::new();
            let (mut now, mut open, mut seen) = (start, Vec::new(), 0);
            for (wait, turn) in waits {
                // Deadlines of all magnitudes.
                let wait = if turn { wait % 300_000 } else { wait };
                wheel.insert(entry(now + wait));
                open.push(now + wait);
                if turn {
                    now = wheel.next().unwrap().max(now);
                    wheel.advance(now, &mut due);
                }
            }
            loop {
                for called in due.drain(..) {
                    prop_assert!(called.at <= now, "early");
                    let place = open.iter().position(|at| *at == called.at).expect("called twice");
                    open.swap_remove(place);
                    seen += 1;
                }
                for at in &open {
                    prop_assert!(now < at.div_ceil(TICK).max(start / TICK + 1) * TICK + TICK, "late");
                }
                let Some(next) = wheel.next() else { break };
                now = next.max(now);
                wheel.advance(now, &mut due);
            }
            prop_assert!(open.is_empty() && seen > 0);
        }
    }
}
