//! A worker that sleeps when there is no work, without missing any and without a system call
//! per piece of it.
//!
//! One thread, the worker, sleeps here. Any thread may wake it. Where the work comes from (run queues,
//! devices, timers) is none of this file's business; each source is looked at between
//! [`Sleeper::prepare_sleep`] and [`Drowsy::sleep`].
//!
//! # States
//!
//! | from → to | by |
//! |---|---|
//! | awake → drowsy | the worker: `prepare_sleep` |
//! | drowsy → asleep | the worker: `sleep`, after a bounded spin |
//! | drowsy or asleep → awake | the worker: `cancel`, or its deadline; or a producer: `wake_if_sleeping` |
//!
//! # Why no wake-up is lost
//!
//! ```text
//!   producer: P1 publish the work          worker: W1 word = drowsy
//!             fence                                fence
//!             P2 read the word                     W2 look for work
//! ```
//!
//! The store-buffering shape again, here with a sequentially consistent fence on either side, which come in
//! one order for all threads. If the producer's is first, W2 finds the work; if the worker's is first, P2
//! reads *drowsy* (or a later state) and the producer wakes. The word itself is not written by a producer
//! that finds the worker awake, so under load the line stays shared.
//!
//! *Drowsy to asleep* is a compare-exchange by the worker, *to awake* one by a producer, and the
//! kernel compares the word again before it lets the worker sleep: whichever is second notices.
//! A producer that found the worker only drowsy owes no system call.
//!
//! Tests: below, `tests/loom`.

use std::time::Instant;

use crate::facade::{Futex, Ordering, fence};
use crate::spin::Spin;
use crate::wait::Woken;

/// Where one worker sleeps.
#[derive(Debug)]
pub struct Sleeper {
    /// (a)
    word: Futex,
}

/// A worker about to sleep, which has to look for work once more. Dropping it is
/// [`Drowsy::cancel`].
#[must_use = "look for work, then sleep or cancel"]
#[derive(Debug)]
pub struct Drowsy<'s> {
    sleeper: &'s Sleeper,
}

impl Sleeper {
    /// The worker is awake.
    pub fn new() -> Self {
        Self { word: Futex::new(AWAKE) }
    }

    /// The worker's announcement that it is about to sleep. Afterwards it looks at every source of
    /// work once more, then sleeps or cancels. Never blocks.
    ///
    /// # Panics
    /// If another thread is about to sleep here, which is a bug of the caller.
    pub fn prepare_sleep(&self) -> Drowsy<'_> {
        // Relaxed: the fence orders it.
        let before = self.word.swap(DROWSY, Ordering::Relaxed);
        assert!(before == AWAKE, "one thread sleeps in a sleeper");
        // Between W1 and W2, with the fence in `wake_if_sleeping`.
        fence(Ordering::SeqCst);
        Drowsy { sleeper: self }
    }

    /// A producer's last step, after publishing work: wakes the worker if it is asleep or about to
    /// be. True if it was. A fence and a load if the worker is awake; never blocks.
    #[inline]
    pub fn wake_if_sleeping(&self) -> bool {
        // Between P1 and P2, with the fence in `prepare_sleep`.
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it.
        let seen = self.word.load(Ordering::Relaxed);
        seen != AWAKE && self.wake()
    }

    /// Whether the worker is asleep or about to be, the moment it was looked at: a measure of its
    /// load, not a substitute for [`Sleeper::wake_if_sleeping`].
    pub fn is_sleeping(&self) -> bool {
        // Relaxed: a hint, which orders nothing.
        self.word.load(Ordering::Relaxed) != AWAKE
    }

    #[cold]
    fn wake(&self) -> bool {
        // Release: the work, with the acquire in `sleep`. A swap: of several producers one reads the worker's
        // value, and the others have nothing to do.
        match self.word.swap(AWAKE, Ordering::Release) {
            ASLEEP => {
                self.word.wake_one();
                true
            }
            DROWSY => true,
            _awake => false,
        }
    }
}

impl Default for Sleeper {
    fn default() -> Self {
        Self::new()
    }
}

impl Drowsy<'_> {
    /// There was work after all.
    pub fn cancel(self) {
        drop(self);
    }

    /// Sleeps until a producer wakes, or until `deadline`. **Blocks**; spins first as far as `spin`
    /// allows, by which time the deadline may be overshot.
    pub fn sleep(self, deadline: Option<Instant>, spin: Spin) -> Woken {
        let word = &self.sleeper.word;
        // Acquire, here and below: the work, with the release of `wake`.
        if spin.until(|| word.load(Ordering::Acquire) == AWAKE) {
            return Woken::Spinning;
        }
        let asleep = word.compare_exchange(DROWSY, ASLEEP, Ordering::Relaxed, Ordering::Acquire);
        if asleep.is_err() {
            return Woken::Spinning;
        }
        loop {
            let in_time = word.wait(ASLEEP, deadline);
            if word.load(Ordering::Acquire) == AWAKE {
                return Woken::Parked;
            }
            if !in_time {
                return match word.swap(AWAKE, Ordering::Acquire) {
                    AWAKE => Woken::Parked,
                    _asleep => Woken::TimedOut,
                };
            }
        }
    }
}

impl Drop for Drowsy<'_> {
    fn drop(&mut self) {
        // A swap, not a store, and acquire: a producer that woke us meanwhile is answered for, and
        // the work it published is seen by whatever the worker looks at next.
        self.sleeper.word.swap(AWAKE, Ordering::Acquire);
    }
}

const AWAKE: u32 = 0;
const DROWSY: u32 = 1;
const ASLEEP: u32 = 2;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_worker_that_is_awake_is_not_woken() {
        let sleeper = Sleeper::new();
        assert!(!sleeper.is_sleeping());
        assert!(!sleeper.wake_if_sleeping());
        sleeper.prepare_sleep().cancel();
        assert!(!sleeper.wake_if_sleeping());
    }

    #[test]
    fn one_producer_wakes_a_drowsy_worker() {
        let sleeper = Sleeper::new();
        let drowsy = sleeper.prepare_sleep();
        assert!(sleeper.is_sleeping());
        assert!(sleeper.wake_if_sleeping());
        assert!(!sleeper.wake_if_sleeping());
        assert_eq!(drowsy.sleep(None, Spin::OFF), Woken::Spinning);
        assert!(!sleeper.is_sleeping());
    }

    #[test]
    fn the_deadline_ends_a_sleep() {
        let sleeper = Sleeper::new();
        let deadline = Instant::now() + Duration::from_millis(5);
        let woken = sleeper.prepare_sleep().sleep(Some(deadline), Spin::OFF);
        assert_eq!(woken, Woken::TimedOut);
        assert!(Instant::now() >= deadline);
        assert!(!sleeper.is_sleeping());
        let past = Some(Instant::now());
        assert_eq!(sleeper.prepare_sleep().sleep(past, Spin::OFF), Woken::TimedOut);
    }

    #[test]
    fn a_sleeper_is_woken_long_before_its_deadline() {
        let sleeper = std::sync::Arc::new(Sleeper::new());
        let worker = {
            let sleeper = sleeper.clone();
            std::thread::spawn(move || {
                let deadline = Instant::now() + Duration::from_secs(60);
                sleeper.prepare_sleep().sleep(Some(deadline), Spin::OFF)
            })
        };
        while !sleeper.wake_if_sleeping() {
            std::thread::yield_now();
        }
        assert_ne!(worker.join().expect("no panic"), Woken::TimedOut);
    }

    #[test]
    #[should_panic(expected = "one thread sleeps")]
    fn two_threads_cannot_share_a_sleeper() {
        let sleeper = Sleeper::new();
        let _first = sleeper.prepare_sleep();
        let _second = sleeper.prepare_sleep();
    }
}
