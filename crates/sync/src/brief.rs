//! A mutex for brief sections, whose unlock is a store.
//!
//! An ordinary mutex is unlocked by a locked instruction, because the unlocker has to find out whether a thread sleeps, and
//! may not look before its store is seen. On a socket's buffers, which each byte passes several times, that is a fifth of
//! all locked instructions, for a question that is nearly always answered with no. So here the price is paid by the thread
//! that is about to sleep: it makes every other thread of the process take a full fence (`membarrier`).
//!
//! # States, in two words
//!
//! | word | from → to | by |
//! |---|---|---|
//! | `locked` | free → locked | a thread that wants in: `lock`, `try_lock`, by compare-exchange |
//! | `locked` | locked → free | the owner: the guard's drop, by a store |
//! | `parked` | 0 or 1 → 1 | a thread that is about to sleep |
//! | `parked` | 1 → 0 | an owner that has unlocked; it then wakes one sleeper |
//!
//! # Why no wake-up is lost
//!
//! ```text
//!   sleeper: S1 parked = 1                       owner: U1 locked = free
//!            S2 full fence in *all* threads             U2 no instruction; the compiler keeps the order
//!            S3 try to lock                             U3 read parked
//!            S4 sleep while parked is 1                 U4 if it is 1: parked = 0, wake one
//! ```
//!
//! Say S3 failed because of an owner. If that owner's U3 came before the fence S2 hit its thread, then so did its U1, and S3
//! would have found the word free (or a later owner, of which the same is asked). So the U3 of the owner that S3 saw comes
//! after the fence and finds S1's write, or the 0 that another owner put there since. In that case the sleeper has either not
//! gone to sleep yet, then the kernel compares at S4 and lets it try again; or a sleeper was woken: this one, or another one.
//! *That other one* is now awake between S4 and S1: before it sleeps again or owns the mutex it sets `parked`, and as an
//! owner it will find its own 1 at U3 and wake the next. So while any thread sleeps, `parked` is 1 or a thread is awake that
//! will set it.
//!
//! The wake that an owner owes itself this way may find no sleeper: one needless system call after each sleep.
//!
//! Where the kernel refuses `membarrier` (a sandbox), S2 says so and the thread polls instead of sleeping.
//!
//! # What it is not
//!
//! Not fair, as most mutexes: the next thread to come by takes it. Not poisoned by a panic. Not for sections that
//! block. Under the model checker both fences are sequentially consistent ones, which the pair amounts to.
//!
//! Does not depend on the guarded value. Tests: below, `tests/loom/brief.rs`, `tests/stress.rs`.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use crate::facade::{Futex, LockWord, Ordering, UnsafeCell, heavy_fence, light_fence, spin_loop, thread};

/// A mutex for brief sections; see the head of the file. Eight bytes beside the value.
///
/// `repr(C)`: they come first, on the line of the value's first fields.
#[repr(C)]
pub struct BriefMutex<T> {
    /// (a)
    locked: LockWord,
    /// (a) Whether an unlock has to wake.
    parked: Futex,
    /// (m)
    value: UnsafeCell<T>,
}

// SAFETY: the value goes from thread to thread, one at a time.
unsafe impl<T: Send> Send for BriefMutex<T> {}
// SAFETY: as above; `locked` lets one thread at a time reach the value.
unsafe impl<T: Send> Sync for BriefMutex<T> {}

/// The lock on a [`BriefMutex`]; unlocks when dropped.
#[must_use = "the mutex is unlocked at once if the guard is dropped"]
pub struct BriefGuard<'a, T> {
    of: &'a BriefMutex<T>,
    /// Stays on its thread, as `std`'s does.
    _on_this_thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives a shared reference to the value and nothing else.
unsafe impl<T: Sync> Sync for BriefGuard<'_, T> {}

impl<T> BriefMutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Self { locked: LockWord::new(FREE), parked: Futex::new(NO_SLEEPER), value: UnsafeCell::new(value) }
    }

    /// Locks it. One compare-exchange if it is free. **Blocks** otherwise: spins briefly, yields, then sleeps.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    pub fn lock(&self) -> BriefGuard<'_, T> {
        if !self.acquire() {
            self.lock_contended();
        }
        BriefGuard { of: self, _on_this_thread: PhantomData }
    }

    /// Locks it if it is free. Never blocks.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    pub fn try_lock(&self) -> Option<BriefGuard<'_, T>> {
        // A closure: a guard made in vain would unlock the mutex of another when it is dropped.
        self.acquire().then(|| BriefGuard { of: self, _on_this_thread: PhantomData })
    }

    /// The value of a mutex that no other thread can reach.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn acquire(&self) -> bool {
        // Acquire: with the release of the unlock before.
        self.locked.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self) {
        for round in 0..PAUSE_ROUNDS {
            (0..2u32 << round).for_each(|_| spin_loop());
            if self.looks_free() && self.acquire() {
                return;
            }
        }
        for _ in 0..YIELDS {
            thread::yield_now();
            if self.looks_free() && self.acquire() {
                return;
            }
        }
        self.park();
    }

    fn looks_free(&self) -> bool {
        // Relaxed: a hint that saves a write of a line that the owner writes.
        self.locked.load(Ordering::Relaxed) == FREE
    }

    /// S1 to S4 until it is ours.
    fn park(&self) {
        loop {
            // Relaxed: the fence orders it before the attempt, and before every look of an owner from then on.
            self.parked.store(SLEEPER, Ordering::Relaxed);
            if !heavy_fence() {
                return self.poll();
            }
            if self.acquire() {
                return;
            }
            self.parked.wait(SLEEPER, None);
        }
    }

    /// Where no other thread can be made to take a fence, none may be relied on to wake us.
    fn poll(&self) {
        while !self.acquire() {
            poll_pause();
        }
    }

    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn unlock(&self) {
        // Release: the section's writes, with the acquire of the next owner.
        self.locked.store(FREE, Ordering::Release);
        // Between U1 and U3.
        light_fence();
        // Relaxed: the sleeper's fence orders it. `self` is still there: the guard borrows it.
        if self.parked.load(Ordering::Relaxed) != NO_SLEEPER {
            self.wake();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        // Of several owners one after the other, one wakes. Not a swap, which would write where it finds no sleeper: loom, which does not
        // know that nothing comes between the read and the write of an exchange, would let that hide the mark of a later sleeper.
        if self.parked.compare_exchange(SLEEPER, NO_SLEEPER, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.parked.wake_one();
        }
    }
}

impl<T> Drop for BriefGuard<'_, T> {
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn drop(&mut self) {
        self.of.unlock();
    }
}

impl<T> Deref for BriefGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the one owner of the lock, and the reference borrows it.
        self.of.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for BriefGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        self.of.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: Default> Default for BriefMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for BriefMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BriefMutex").field("is_locked", &!self.looks_free()).finish_non_exhaustive()
    }
}

/// Lets others run while the mutex cannot be slept on.
fn poll_pause() {
    #[cfg(loom)]
    thread::yield_now();
    #[cfg(not(loom))]
    thread::sleep(POLL_EVERY);
}

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const NO_SLEEPER: u32 = 0;
const SLEEPER: u32 = 1;

/// Rounds of 2, 4, 8, 16 pauses: some sections' length.
const PAUSE_ROUNDS: u32 = if cfg!(loom) { 0 } else { 4 };
/// Then the owner may have lost its core, and may be waiting for ours.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 7 };
/// Between two attempts where the kernel knows no `membarrier`.
#[cfg_attr(loom, expect(dead_code, reason = "models have no time"))]
const POLL_EVERY: Duration = Duration::from_micros(50);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn one_at_a_time() {
        let mutex = BriefMutex::new(1);
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        assert!(mutex.try_lock().is_none(), "an attempt in vain has unlocked it");
        drop(guard);
        *mutex.try_lock().expect("free") += 1;
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn a_panic_leaves_it_unlocked() {
        let mutex = Arc::new(BriefMutex::new(()));
        let other = mutex.clone();
        let panicked = std::thread::spawn(move || {
            let _guard = other.lock();
            panic!("on purpose");
        })
        .join();
        assert!(panicked.is_err());
        assert!(mutex.try_lock().is_some());
    }

    /// The owner sleeps while it owns, so that the others run out of spins and yields.
    #[test]
    fn sleepers_are_woken_one_after_the_other() {
        let mutex = Arc::new(BriefMutex::new(0));
        let guard = mutex.lock();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mutex = mutex.clone();
                std::thread::spawn(move || {
                    let mut value = mutex.lock();
                    std::thread::sleep(Duration::from_millis(2));
                    *value += 1;
                })
            })
            .collect();
        while mutex.parked.load(Ordering::Relaxed) == NO_SLEEPER {
            std::thread::yield_now();
        }
        drop(guard);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(*mutex.lock(), 4);
    }

    #[test]
    fn try_lock_in_a_loop_gets_the_lock() {
        let mutex = Arc::new(BriefMutex::new(()));
        let guard = mutex.lock();
        let other = mutex.clone();
        let thread = std::thread::spawn(move || {
            other.poll();
            drop(BriefGuard { of: &other, _on_this_thread: PhantomData });
        });
        std::thread::sleep(Duration::from_millis(1));
        drop(guard);
        thread.join().expect("no panic");
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn a_brief_mutex_adds_eight_bytes() {
        assert_eq!(size_of::<BriefMutex<u64>>(), 16);
    }
}
