//! Ownership of a receive queue under busy polling (SO_BUSY_POLL, NAPI): its own thread takes frames from it, or callers that
//! wait for them.
//!
//! A thread that is about to block is busy for a while first. It spends that time at the queue on which it waits: it takes a batch, handles
//! it, and often finds its own wait over. The queue's own thread, the *input thread*, defers to callers meanwhile.
//!
//! # States
//!
//! | event | from → to | by |
//! |---|---|---|
//! | the queue | free ↔ owned | the thread that takes from it, for one turn: the mutex of the batch. No thread waits for it |
//! | *preferred* (as in SO_PREFER_BUSY_POLL) | no → yes | a caller: it has found something, has found the queue owned, or will be back soon ([`prefer`](BusyPoll::prefer)) |
//! | *preferred* | yes → no | the input thread, when it has seen it; a caller that gives up ([`leave`](BusyPoll::leave)) |
//! | the input thread | at work → deferring | itself: it found the queue preferred by callers, or owned |
//! | the input thread | deferring → at work | its deadline; `leave` |
//!
//! # Why nothing is stranded
//!
//! *The input thread* sleeps with a deadline when it defers, and takes a turn after a sleep during which no caller has polled. It goes back to
//! waiting at its device, which reports frames by level, after a turn only. So a frame waits for it no longer than that deadline, whatever the
//! callers do. That bound also covers the one race: a caller leaves between the input thread's look at *preferred* and its sleep, and its wake finds
//! no sleeping thread. So *preferred* is a hint, and its accesses are relaxed. (A [`LeaderSlot`](crate::LeaderSlot) lets the input thread sleep
//! without a deadline.)
//!
//! *A caller* has a ticket of its wait queue from before its last look at the queue, and the thread that handles its frame ends that
//! wait, whether the caller spins, takes its own turn, or sleeps. The caller wakes the input thread before it parks.
//!
//! *A turn panics.* The batch is unlocked, and *preferred* is as it was. The input thread goes on after its deadline.
//!
//! Rank: the mutex of the batch is the first of all; a thread that tries it holds no lock. Does not depend on devices or on the content of
//! batches. Tests: `tests/loom/busy_poll.rs`.

use std::time::Instant;

use crate::facade::{AtomicBool, Ordering, TryMutex, TryMutexGuard};
use crate::sleeper::Sleeper;
use crate::spin::Spin;

/// See the head of the file.
#[derive(Debug)]
pub struct BusyPoll<B> {
    batch: TryMutex<B>,
    /// (a) Callers poll, and take frames. A hint.
    preferred: AtomicBool,
}

/// Result for the input thread.
#[derive(Debug)]
pub enum Turn<'a, B> {
    /// It takes its turn, with the batch.
    Own(TryMutexGuard<'a, B>),
    /// It defers: callers poll the queue, or another thread owns it.
    Deferred {
        /// Callers had said that they poll the queue.
        was_preferred: bool,
    },
}

impl<B> BusyPoll<B> {
    /// A queue that no thread owns.
    pub fn new(batch: B) -> Self {
        Self { batch: TryMutex::new(batch), preferred: AtomicBool::new(false) }
    }

    /// The input thread's next step. `has_leader`: a caller sleeps at the device, so it has to defer anyway.
    pub fn turn(&self, has_leader: bool) -> Turn<'_, B> {
        // Relaxed, here and below: only the bound on the sleep matters.
        let was_preferred = self.preferred.load(Ordering::Relaxed);
        let own = if was_preferred || has_leader { None } else { self.batch.try_lock() };
        own.map_or_else(
            || {
                self.preferred.store(false, Ordering::Relaxed);
                Turn::Deferred { was_preferred }
            },
            Turn::Own,
        )
    }

    /// The input thread sleeps while it defers, until the deadline or until a caller leaves. **Blocks**.
    pub fn defer(sleeper: &Sleeper, until: Option<Instant>) {
        sleeper.prepare_sleep().sleep(until, Spin::OFF);
    }

    /// Takes from the queue for a thread that is not the input thread; `None` while another thread owns it.
    pub fn try_take(&self) -> Option<TryMutexGuard<'_, B>> {
        self.batch.try_lock()
    }

    /// A busy caller's look. `turn` says how many there were; 0 also if another thread owns it. The caller then [prefers](Self::prefer) to poll, unless nothing was there.
    pub fn look(&self, turn: impl FnOnce(&mut B) -> usize) -> usize {
        let Some(mut batch) = self.try_take() else {
            // So that the input thread leaves the next ones to us.
            self.prefer();
            return 0;
        };
        let count = turn(&mut batch);
        if count > 0 {
            self.prefer();
        }
        count
    }

    /// A caller takes the next frames, or is about to: the input thread is to defer.
    #[inline]
    pub fn prefer(&self) {
        // Not written again: the line is shared by all callers.
        if !self.preferred.load(Ordering::Relaxed) {
            self.preferred.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the input thread would defer. A hint.
    pub fn is_preferred(&self) -> bool {
        self.preferred.load(Ordering::Relaxed)
    }

    /// A caller gives up and parks: the input thread need not wait for it any longer.
    pub fn leave(&self, sleeper: &Sleeper) {
        if self.preferred.load(Ordering::Relaxed) {
            self.preferred.store(false, Ordering::Relaxed);
        }
        sleeper.wake_if_sleeping();
    }
}

impl<B: Default> Default for BusyPoll<B> {
    fn default() -> Self {
        Self::new(B::default())
    }
}
