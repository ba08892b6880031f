//! The names of `linux.rs` for systems without those calls, from what every system has.
//!
//! | Linux | here |
//! |---|---|
//! | futex | `parking_lot_core`: sleepers in a table of the process, by the address of the word |
//! | `membarrier` | a full fence on either side, so an unlock costs one |
//! | number of the CPU | a number that each thread is dealt at its first question |
//! | clock of ticks | the ordinary clock |
//! | a page that a fork wipes | none: `fork.rs` has a handler instead |
//!
//! Builds for Linux with `--cfg sockeye_portable` have these as well, so that Linux runs their tests.
//!
//! Does not depend on any protocol. Tests: below, and with the callers.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use core::time::Duration;
use std::time::Instant;

use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, ParkResult, park, unpark_all, unpark_one};

/// Sleeps while the word is `expected`, at most for `limit`; false if that time is over. Blocks, and may return early.
///
/// The table's lock is held while the word is compared, and [`wake_one`] and [`wake_all`] take it.
pub(in crate::facade) fn wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) -> bool {
    // A time that does not fit is as good as for ever.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    // Relaxed: the table's lock orders it.
    let is_expected = || word.load(Ordering::Relaxed) == expected;
    // SAFETY: none of the three calls panics or parks, and no other user of the table parks at the address of our word.
    let parked = unsafe { park(key(word), is_expected, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, deadline) };
    parked != ParkResult::TimedOut
}

/// Wakes one thread asleep on the word, if there is one.
pub(in crate::facade) fn wake_one(word: &AtomicU32) {
    // SAFETY: the call neither panics nor parks, and only sleepers of `wait` have this key.
    let _woken = unsafe { unpark_one(key(word), |_| DEFAULT_UNPARK_TOKEN) };
}

/// Wakes every thread asleep on the word.
pub(in crate::facade) fn wake_all(word: &AtomicU32) {
    // SAFETY: only sleepers of `wait` have this key.
    let _woken_count = unsafe { unpark_all(key(word), DEFAULT_UNPARK_TOKEN) };
}

fn key(word: &AtomicU32) -> usize {
    ptr::from_ref(word).addr()
}

/// A full fence: no system call makes other threads take theirs.
#[inline(always)]
pub(in crate::facade) fn light_fence() {
    fence(Ordering::SeqCst);
}

/// The other fence of the pair. It is always ordered.
pub(in crate::facade) fn heavy_fence() -> bool {
    fence(Ordering::SeqCst);
    true
}

/// A number that the thread keeps, dealt in turn: threads that run at once seldom have the same, as with CPUs.
#[inline]
pub(crate) fn current_cpu() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::thread_local! {
        /// [`NOT_DEALT`] until the first question. Has no destructor, so a thread that ends may ask.
        static OWN: Cell<u32> = const { Cell::new(NOT_DEALT) };
    }
    if OWN.get() == NOT_DEALT {
        // CPUs are fewer than 2^32.
        let count = u32::try_from(crate::cpu::count()).unwrap_or(u32::MAX);
        OWN.set(NEXT.fetch_add(1, Ordering::Relaxed) % count);
    }
    OWN.get()
}

/// No clock of ticks.
#[cfg(unix)]
pub(crate) const TICKS: Option<libc::clockid_t> = None;

/// No such memory.
pub(crate) fn wiped_on_fork(_len: usize) -> Option<*mut u8> {
    None
}

/// Fills the words with random bits; false if the system has none to give.
pub(crate) fn fill_random(words: &mut [u64; 2]) -> bool {
    let mut bytes = [[0; 8]; 2];
    let is_drawn = getrandom::fill(bytes.as_flattened_mut()).is_ok();
    *words = bytes.map(u64::from_ne_bytes);
    is_drawn
}

const NOT_DEALT: u32 = u32::MAX;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_thread_keeps_its_number_and_it_is_that_of_a_cpu() {
        let own = current_cpu();
        assert_eq!(current_cpu(), own);
        let numbers: Vec<_> = (0..crate::cpu::count())
            .map(|_| std::thread::spawn(current_cpu).join().expect("no panic"))
            .collect();
        assert!(numbers.iter().all(|&number| (number as usize) < crate::cpu::count()), "{numbers:?}");
    }

    #[test]
    fn a_sleeper_is_woken_and_a_word_that_has_changed_is_not_slept_on() {
        let word = Arc::new(AtomicU32::new(1));
        assert!(wait(&word, 0, None), "it is not 0");
        assert!(!wait(&word, 1, Some(Duration::from_millis(1))), "no thread wakes");
        for wake in [wake_one, wake_all] {
            word.store(1, Ordering::Relaxed);
            let other = Arc::clone(&word);
            let sleeper = std::thread::spawn(move || {
                while other.load(Ordering::Relaxed) == 1 {
                    wait(&other, 1, None);
                }
            });
            word.store(2, Ordering::Relaxed);
            wake(&word);
            sleeper.join().expect("no panic");
        }
    }

    #[test]
    fn the_system_has_random_bits() {
        let mut words = [0; 2];
        assert!(fill_random(&mut words));
        assert_ne!(words, [0; 2]);
    }
}
