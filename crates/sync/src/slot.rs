//! A small number for every thread, unique among the living.
//!
//! It indexes per-thread state: counter shards, pools. A thread gets its number at the first question and
//! gives it back when it ends; the lowest free one is given out next, so tables stay short. There are
//! [`SLOTS_MAX`]; a thread beyond, or one whose locals are already gone, has none and uses whatever its
//! caller shares among such threads.
//!
//! A thread that gets a number after another thread has seen all that this thread did before its end, through the word
//! of the number's bit. There is no lock, which a child of fork(2) might find locked for good. In a child the numbers
//! of its parent's other threads stay taken. Tests: below.

use crate::facade::unmodelled::{AtomicU64, Ordering, thread_local};

/// How many threads can have a number at a time.
pub const SLOTS_MAX: usize = 256;

/// The calling thread's number, below [`SLOTS_MAX`], if it could have one.
#[inline]
pub fn current() -> Option<usize> {
    MINE.try_with(|mine| mine.0).ok().flatten()
}

/// A number for as long as the thread lives.
struct Slot(Option<usize>);

impl Slot {
    fn claim() -> Self {
        for (index, word) in TAKEN.iter().enumerate() {
            // The lowest bit that is 0, if there is one. Acquire, with the release of `drop`.
            let lowest = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
            if let Ok(before) = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, lowest) {
                return Self(Some(index * BITS + before.trailing_ones() as usize));
            }
        }
        Self(None)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            // Release, with the acquire of `claim`.
            TAKEN[slot / BITS].fetch_and(!(1 << (slot % BITS)), Ordering::Release);
        }
    }
}

thread_local! {
    static MINE: Slot = Slot::claim();
}

/// A bit per number.
static TAKEN: [AtomicU64; SLOTS_MAX / BITS] = [const { AtomicU64::new(0) }; SLOTS_MAX / BITS];

const BITS: usize = u64::BITS as usize;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;

    #[test]
    fn live_threads_have_different_numbers_and_keep_them() {
        let everybody_asked = Barrier::new(8);
        let numbers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let number = current();
                        everybody_asked.wait();
                        assert_eq!(number, current());
                        number
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let different: HashSet<_> = numbers.iter().flatten().collect();
        assert_eq!(different.len(), 8);
        assert!(different.iter().all(|&&number| number < SLOTS_MAX));
    }

    #[test]
    fn numbers_of_ended_threads_are_given_out_again() {
        // Miri takes some 0.1 s for a thread; there it only looks at the accesses.
        let threads_count = if cfg!(miri) { 4 } else { 2 * SLOTS_MAX };
        for _ in 0..threads_count {
            let number = std::thread::spawn(current).join().expect("no panic");
            assert!(number.is_some());
        }
    }
}
