//! The cap on memory obtained from the system, and the threads that wait for memory.
//!
//! It does not depend on clusters. `taken` counts bytes obtained from the system and not returned; it changes only
//! then, not with every allocation. `control` is the word every allocation and free compares with its thread's last
//! copy, so that in the usual case one read-only load answers all of: closed? near the cap? a caller refused? trim
//! wanted? Its low bits are flags, the rest a generation that counts requests to empty the thread caches.
//!
//! | flag | set by | cleared by | while it is set |
//! |---|---|---|---|
//! | CLOSED | the drop of the last handle | no thread | freed memory goes to the system |
//! | PRESSURE | `reserve`, from 7/8 of the cap | `release`, below 3/4 | the same |
//! | REFUSED | `refuse`, under the lock | `release`, under the lock | the same, and the next `release` wakes |
//! | NO_REUSE | `new` | no thread | the same |
//!
//! Why no wake-up is lost. The refused thread sets REFUSED and remembers the count `freed` (in one
//! section of the lock), then tries to reserve once more. A releasing thread lowers `taken`, then
//! looks for REFUSED. Both have a sequentially consistent fence between their two steps, so either
//! the second try sees the lowered `taken`, or the releasing thread sees REFUSED; then it raises
//! `freed` under the lock, and each thread that waits for another count than the one that it remembered goes on. REFUSED is
//! cleared in the section that raises `freed`, so every thread refused before it wakes, and every thread refused after it sets
//! it anew.
//!
//! A free into a thread cache wakes no waiter. A thread that has not seen REFUSED yet may do so, and caches of idle
//! threads keep their clusters. That cannot starve a waiter for good: all caches together hold at most
//! [`CACHE_SHARE`] of the cap, so when enough is freed to serve it, some of that passes through `release`. The depot
//! reads the flags under its own lock (`depot.rs`).
//!
//! PRESSURE is advice: if setting and clearing cross, a free or two go the other way, and the next
//! `reserve` or `release` puts it right.
//!
//! Tests: loom models at the end; `tests/cap.rs`.

use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::facade::{AtomicUsize, Condvar, Mutex, Ordering, fence};

pub(crate) struct Quota {
    /// (c)
    max: usize,
    /// (c) From here on PRESSURE is set.
    high: usize,
    /// (c) Below this it is cleared.
    low: usize,
    /// (a) Flags and generation. Read all the time, written rarely: a line of its own.
    control: CachePadded<AtomicUsize>,
    /// (a) Bytes obtained from the system.
    taken: CachePadded<AtomicUsize>,
    /// (a) Bytes that can still be granted to thread caches.
    cache_budget: AtomicUsize,
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

struct Waiting {
    /// How often memory was given back to refused threads. Wraps never: 64 bits.
    freed: u64,
    /// Threads asleep.
    count: usize,
}

pub(crate) const CLOSED: usize = 1;
const PRESSURE: usize = 2;
const REFUSED: usize = 4;
pub(crate) const NO_REUSE: usize = 8;
pub(crate) const FLAGS: usize = CLOSED | PRESSURE | REFUSED | NO_REUSE;
const GENERATION: usize = 16;

/// All thread caches together may hold one part in so many of the cap.
const CACHE_SHARE: usize = 4;

impl Quota {
    pub(crate) fn new(max: usize, reuse: bool) -> Quota {
        Quota {
            max,
            high: max - max / 8,
            low: max - max / 4,
            control: CachePadded::new(AtomicUsize::new(if reuse { 0 } else { NO_REUSE })),
            taken: CachePadded::new(AtomicUsize::new(0)),
            cache_budget: AtomicUsize::new(max / CACHE_SHARE),
            waiting: Mutex::new(Waiting { freed: 0, count: 0 }),
            wake: Condvar::default(),
        }
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Flags and generation, for comparing only.
    #[inline]
    pub(crate) fn control(&self) -> usize {
        // Relaxed: seeing a change late is allowed, see the head; values that must be exact are read under a
        // lock.
        self.control.load(Ordering::Relaxed)
    }

    /// Whether freed memory should be kept for reuse.
    pub(crate) fn keeps(&self) -> bool {
        self.control() & FLAGS == 0
    }

    /// Counts `bytes` as taken, if the cap allows.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        // Relaxed, here and below: a count; fences order the rest, see the head.
        let mut taken = self.taken.load(Ordering::Relaxed);
        let after = loop {
            let after = match taken.checked_add(bytes) {
                Some(after) if after <= self.max => after,
                Some(_) | None => return false,
            };
            match self.taken.compare_exchange(taken, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break after,
                Err(now) => taken = now,
            }
        };
        if after >= self.high && self.control() & PRESSURE == 0 {
            self.control.fetch_or(PRESSURE, Ordering::Relaxed);
        }
        true
    }

    /// Takes `bytes` off the count, and wakes the threads that were refused. Called after the memory is returned.
    pub(crate) fn release(&self, bytes: usize) {
        let before = self.taken.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "more memory returned than was taken");
        // Pairs with the fence in `refuse`, see the head.
        fence(Ordering::SeqCst);
        let control = self.control();
        if control & PRESSURE != 0 && before - bytes < self.low {
            self.control.fetch_and(!PRESSURE, Ordering::Relaxed);
        }
        if control & REFUSED != 0 {
            self.tell_refused();
        }
    }

    #[cold]
    fn tell_refused(&self) {
        let mut waiting = self.waiting.lock();
        self.control.fetch_and(!REFUSED, Ordering::Relaxed);
        waiting.freed += 1;
        let asleep = waiting.count > 0;
        drop(waiting);
        if asleep {
            self.wake.notify_all();
        }
    }

    /// The first step of being refused: frees bypass the caches from now on, and caches empty themselves. The
    /// caller then gives back all clusters cached within its reach and tries `reserve` again. Returns the count of
    /// frees so far, for `wait_freed`.
    pub(crate) fn refuse(&self) -> u64 {
        let waiting = self.waiting.lock();
        self.control.fetch_or(REFUSED, Ordering::Relaxed);
        self.control.fetch_add(GENERATION, Ordering::Relaxed);
        // Pairs with the fence in `release`, see the head.
        fence(Ordering::SeqCst);
        waiting.freed
    }

    /// Blocks until memory was given back since `refuse` returned `seen`, or until `deadline`. True
    /// if it was.
    pub(crate) fn wait_freed(&self, seen: u64, deadline: Option<Instant>) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.count += 1;
        while waiting.freed == seen {
            waiting = match deadline {
                None => self.wake.wait(waiting),
                Some(at) if Instant::now() < at => self.wake.wait_until(waiting, at),
                Some(_) => break,
            };
        }
        waiting.count -= 1;
        waiting.freed != seen
    }

    /// Asks all threads to empty their caches at their next allocation or free.
    pub(crate) fn ask_trim(&self) {
        self.control.fetch_add(GENERATION, Ordering::Relaxed);
    }

    /// No more handles: nothing is worth keeping.
    pub(crate) fn close(&self) {
        self.control.fetch_or(CLOSED, Ordering::Relaxed);
    }

    /// Promises `bytes` to a thread's cache, if the share of all caches allows.
    pub(crate) fn grant_cache(&self, bytes: usize) -> bool {
        // Relaxed: a count that orders nothing.
        self.cache_budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .is_ok()
    }

    /// Ends a grant of `grant_cache`.
    pub(crate) fn return_cache(&self, bytes: usize) {
        self.cache_budget.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_cap_holds_and_refusing_changes_nothing() {
        let quota = Quota::new(1000, true);
        assert!(quota.reserve(600));
        assert!(!quota.reserve(401));
        assert!(!quota.reserve(usize::MAX), "the sum must not wrap");
        assert_eq!(quota.taken(), 600);
        assert!(quota.reserve(400));
        assert!(!quota.reserve(1));
    }

    #[test]
    fn pressure_begins_at_seven_eighths_and_ends_below_three_quarters() {
        let quota = Quota::new(1000, true);
        assert!(quota.reserve(874));
        assert!(quota.keeps());
        assert!(quota.reserve(1));
        assert!(!quota.keeps());
        quota.release(125);
        assert!(!quota.keeps(), "750 is not below three quarters");
        quota.release(1);
        assert!(quota.keeps());
    }

    #[test]
    fn waiting_ends_at_once_if_memory_came_back_since_the_refusal() {
        let quota = Quota::new(1000, true);
        assert!(quota.reserve(1000));
        let seen = quota.refuse();
        quota.release(10);
        assert!(quota.wait_freed(seen, None));
    }

    #[test]
    fn waiting_ends_at_the_deadline() {
        let quota = Quota::new(1000, true);
        assert!(quota.reserve(1000));
        let seen = quota.refuse();
        assert!(!quota.wait_freed(seen, Some(Instant::now() + Duration::from_millis(5))));
    }

    #[test]
    fn thread_caches_may_hold_a_quarter_of_the_cap() {
        let quota = Quota::new(1000, true);
        assert!(quota.grant_cache(200));
        assert!(!quota.grant_cache(51));
        assert!(quota.grant_cache(50));
        assert!(!quota.grant_cache(1));
        quota.return_cache(200);
        assert!(quota.grant_cache(200));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Takes `bytes`, waiting as a sender does.
    fn take(quota: &Quota, bytes: usize) {
        while !quota.reserve(bytes) {
            let seen = quota.refuse();
            if quota.reserve(bytes) {
                return;
            }
            assert!(quota.wait_freed(seen, None));
        }
    }

    #[test]
    fn a_refused_thread_never_sleeps_through_a_release() {
        loom::model(|| {
            let quota = Arc::new(Quota::new(8, true));
            assert!(quota.reserve(8));
            let other = Arc::clone(&quota);
            let releaser = thread::spawn(move || other.release(8));
            take(&quota, 4);
            releaser.join().unwrap();
            assert_eq!(quota.taken(), 4);
        });
    }

    #[test]
    fn releases_that_suffice_only_together_wake_until_they_do() {
        let mut model = loom::model::Builder::new();
        // Three threads: two preemptions show every race seen so far, and keep the model short.
        model.preemption_bound = Some(2);
        model.check(|| {
            let quota = Arc::new(Quota::new(8, true));
            assert!(quota.reserve(8));
            let releasers = [2, 2].map(|bytes| {
                let other = Arc::clone(&quota);
                thread::spawn(move || other.release(bytes))
            });
            take(&quota, 4);
            for releaser in releasers {
                releaser.join().unwrap();
            }
            assert_eq!(quota.taken(), 8);
        });
    }

    #[test]
    fn two_refused_threads_are_both_woken() {
        let mut model = loom::model::Builder::new();
        // As above.
        model.preemption_bound = Some(2);
        model.check(|| {
            let quota = Arc::new(Quota::new(8, true));
            assert!(quota.reserve(8));
            let takers = [4, 4].map(|bytes| {
                let other = Arc::clone(&quota);
                thread::spawn(move || take(&other, bytes))
            });
            quota.release(4);
            quota.release(4);
            for taker in takers {
                taker.join().unwrap();
            }
            assert_eq!(quota.taken(), 8);
        });
    }
}
