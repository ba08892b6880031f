//! Statistics that cost a store: one shard per thread, added up on request.
//!
//! A thread with a number (`slot.rs`) is the only writer of its shard, so it counts with a load and a store,
//! no locked instruction, and on a line that no other thread writes. Threads without a number share one more
//! shard and add atomically. A number passes from a dead thread to a living one by a release and an acquire of its
//! bit, so the new owner of a shard goes on from the last value. A sum is not a snapshot: it may miss the latest counts.
//!
//! Counters order nothing and decide nothing; that is why the model checker does not see them.
//! Memory: a shard is made when its thread first counts, and kept. Tests: below.

use crossbeam_utils::CachePadded;

use crate::facade::unmodelled::{AtomicU64, OnceLock, Ordering};
use crate::slot::{self, SLOTS_MAX};

/// `N` counters, sharded by thread. One instance serves a whole stack.
pub struct Counters<const N: usize> {
    shards: Box<[OnceLock<Box<Shard<N>>>]>,
    /// Of the threads that have no number.
    overflow: Box<Shard<N>>,
}

type Shard<const N: usize> = CachePadded<[AtomicU64; N]>;

impl<const N: usize> Counters<N> {
    /// All zero.
    pub fn new() -> Self {
        Self { shards: (0..SLOTS_MAX).map(|_| OnceLock::new()).collect(), overflow: shard() }
    }

    /// Adds one. Never blocks.
    ///
    /// # Panics
    /// If there is no counter `index`.
    #[inline]
    pub fn inc(&self, index: usize) {
        self.add(index, 1);
    }

    /// Adds `amount`, wrapping at 2^64. Never blocks.
    ///
    /// # Panics
    /// If there is no counter `index`.
    #[inline]
    pub fn add(&self, index: usize, amount: u64) {
        let Some(shards) = slot::current().and_then(|slot| self.shards.get(slot)) else {
            // Relaxed, like every access here: a counter orders nothing.
            self.overflow[index].fetch_add(amount, Ordering::Relaxed);
            return;
        };
        let counter = &shards.get_or_init(shard)[index];
        // No addition is lost: this thread is the shard's only writer.
        let value = counter.load(Ordering::Relaxed).wrapping_add(amount);
        counter.store(value, Ordering::Relaxed);
    }

    /// The counts of all threads, including those that have ended.
    ///
    /// # Panics
    /// If there is no counter `index`.
    pub fn sum(&self, index: usize) -> u64 {
        self.living().fold(0, |sum, shard| sum.wrapping_add(shard[index].load(Ordering::Relaxed)))
    }

    /// All sums.
    pub fn sums(&self) -> [u64; N] {
        core::array::from_fn(|index| self.sum(index))
    }

    fn living(&self) -> impl Iterator<Item = &Shard<N>> {
        let own = self.shards.iter().filter_map(OnceLock::get).map(Box::as_ref);
        own.chain(core::iter::once(self.overflow.as_ref()))
    }
}

fn shard<const N: usize>() -> Box<Shard<N>> {
    Box::new(CachePadded::new([const { AtomicU64::new(0) }; N]))
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> core::fmt::Debug for Counters<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Counters").field(&self.sums()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::Arc;

    #[test]
    fn every_addition_of_every_thread_is_in_the_sum() {
        let counters = Counters::<3>::new();
        // More threads one after the other than there are shards, some at a time.
        let rounds_count = if cfg!(miri) { 3 } else { 100 };
        for _ in 0..rounds_count {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..10 {
                            counters.inc(0);
                            counters.add(2, 5);
                        }
                    });
                }
            });
        }
        assert_eq!(counters.sums(), [rounds_count * 40, 0, rounds_count * 200]);
    }

    #[test]
    fn threads_without_a_number_are_counted_too() {
        struct Late(Arc<Counters<1>>);
        impl Drop for Late {
            fn drop(&mut self) {
                self.0.inc(0);
            }
        }
        std::thread_local! {
            static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
        }
        let counters = Arc::new(Counters::new());
        let own = counters.clone();
        std::thread::spawn(move || {
            // Registered before the number is claimed, hence dropped after it is given back.
            LATE.with(|late| *late.borrow_mut() = Some(Late(own.clone())));
            own.inc(0);
        })
        .join()
        .expect("no panic");
        assert_eq!(counters.sum(0), 2);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_counter_beyond_the_table_is_refused() {
        Counters::<2>::new().inc(2);
    }
}
