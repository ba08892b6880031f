//! A value of a few words that is read without writing: a seqlock (Lameter, "Effective synchronization on
//! Linux/NUMA systems", 2005), for values that many cores read and that seldom change.
//!
//! # States, in one word: a count
//! Even: the words agree. Odd: a writer is between them. Only [`SeqCell::store`] moves it, and its callers exclude
//! each other (the proof is whatever lock they hold; the cell has none).
//!
//! # Why a reader that returns has one writer's words
//! The writer stores the odd count, then each word with release, then the even count with release. A reader loads the
//! count with acquire, the words with acquire, and the count again. If any word is a later writer's, the acquire that
//! read it orders that writer's odd count before the second load of the count, which then differs from the first, and
//! the reader starts over. If the first count is a writer's even one, the acquire that read it makes all of that
//! writer's words visible, so none is older.
//!
//! A reader writes nothing, and may be held up only by a writer that is between two stores: it pauses, then offers its
//! core. Does not depend on the meaning of the words. Tests: below, `tests/loom/seq_cell.rs`.

use crate::facade::{AtomicU64, Ordering, spin_loop, thread};

/// `N` words that are changed together.
#[derive(Debug)]
pub struct SeqCell<const N: usize> {
    /// (a) Stores begun and ended.
    count: AtomicU64,
    /// (a) Of the last store, if `count` is even.
    words: [AtomicU64; N],
}

/// Looks at an odd count before a reader offers its core.
const PAUSES_MAX: u32 = if cfg!(loom) { 1 } else { 64 };

impl<const N: usize> SeqCell<N> {
    /// Holds `words`.
    pub fn new(words: [u64; N]) -> Self {
        Self { count: AtomicU64::new(0), words: words.map(AtomicU64::new) }
    }

    /// The words of one [`store`](Self::store). Writes nothing; waits while a writer is between two of its few stores.
    #[inline]
    pub fn load(&self) -> [u64; N] {
        let mut pauses = 0;
        loop {
            if let Some((_, words)) = self.try_load() {
                return words;
            }
            if pauses < PAUSES_MAX {
                spin_loop();
                pauses += 1;
            } else {
                thread::yield_now();
            }
        }
    }

    /// The words of one [`store`](Self::store) and the count behind it, which distinguishes them from every other
    /// store's; `None` while a writer is between two of its few stores. Writes nothing, never waits.
    #[inline]
    pub fn try_load(&self) -> Option<(u64, [u64; N])> {
        // Acquire, with the last store of `store`: its words are visible.
        let before = self.count.load(Ordering::Acquire);
        // Acquire, with the stores of the words: see the head. Relaxed for the second look: they order it.
        let words = core::array::from_fn(|index| self.words[index].load(Ordering::Acquire));
        let agree = before.is_multiple_of(2) && self.count.load(Ordering::Relaxed) == before;
        agree.then_some((before, words))
    }

    /// Changes the words, and returns the count behind them. The caller excludes other callers of this.
    pub fn store(&self, words: [u64; N]) -> u64 {
        // Relaxed: the caller's lock orders it behind the store before.
        let before = self.count.load(Ordering::Relaxed);
        self.count.store(before + 1, Ordering::Relaxed);
        for (slot, word) in self.words.iter().zip(words) {
            // Release: a thread that reads this word sees the odd count.
            slot.store(word, Ordering::Release);
        }
        // Release: a thread that reads this count sees all the words.
        self.count.store(before + 2, Ordering::Release);
        before + 2
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_never_sees_words_of_two_stores() {
        let cell = SeqCell::new([0u64; 3]);
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=rounds).for_each(|i| assert_eq!(cell.store([i, i * 2, i * 3]), i * 2)));
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < rounds {
                        let [a, b, c] = cell.load();
                        assert_eq!((b, c), (a * 2, a * 3));
                        assert!(a >= last, "a later look never sees an earlier store");
                        last = a;
                    }
                });
            }
        });
    }
}
