//! A few words that are read together without a lock and without writing anything.
//!
//! One writer at a time (its own lock sees to that) makes the version odd, writes the words, and makes it even again. A
//! reader that finds the same even version before and after it has the words of one write; otherwise it has nothing,
//! and takes whatever slower way there is. It never waits and never tries again: a word that is written all the time
//! would keep it.
//!
//! # Why a reader never mixes two writes
//! Writer: version odd; fence(Release); words; version even (Release). Reader: version (Acquire); words; fence(Acquire);
//! version again. If a reader sees a word of a later write, the fences order that write's odd version before the
//! reader's second look, which then differs. If its first look saw an even version, the acquire makes that write's words
//! the oldest it can see.
//!
//! Tests: below; every interleaving: `tests/loom/versioned.rs`.

use crate::facade::{AtomicU64, Ordering, fence};

/// `N` words of one version. See the module's head.
pub struct Versioned<const N: usize> {
    /// Odd while it is written.
    version: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Versioned<N> {
    /// All zero, version 0.
    pub fn new() -> Self {
        Self { version: AtomicU64::new(0), words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The words with their version; `None` if they are being written. Never blocks, writes nothing.
    #[inline]
    pub fn read(&self) -> Option<(u64, [u64; N])> {
        let before = self.version.load(Ordering::Acquire);
        let words = core::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some((before, words))
    }

    /// Replaces the words, and returns their version. The caller is the only one who writes.
    pub fn write(&self, words: [u64; N]) -> u64 {
        let odd = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.version.store(odd + 1, Ordering::Release);
        odd + 1
    }
}

impl<const N: usize> Default for Versioned<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> core::fmt::Debug for Versioned<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Versioned").field(&self.read()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_was_written_is_read_with_its_version() {
        let words = Versioned::<3>::new();
        assert_eq!(words.read(), Some((0, [0; 3])));
        assert_eq!(words.write([1, 2, 3]), 2);
        assert_eq!(words.write([4, 5, 6]), 4);
        assert_eq!(words.read(), Some((4, [4, 5, 6])));
    }

    #[test]
    fn readers_under_load_see_words_of_one_write() {
        let (words, stop) = (Versioned::<4>::new(), AtomicBool::new(false));
        let rounds: u64 = if cfg!(miri) { 100 } else { 100_000 };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut seen, mut last) = (0u64, 0);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) || seen == 0 {
                    let Some((version, read)) = words.read() else { continue };
                    assert!(read.iter().all(|word| *word == read[0]), "{read:?}");
                    assert!(version == read[0] * 2 && version >= last);
                    (seen, last) = (seen + 1, version);
                }
            });
            (1..=rounds).for_each(|round| {
                words.write([round; 4]);
            });
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            reader.join().expect("no panic");
        });
    }
}
