//! A queue that a thread of the stack's takes from, or callers who wait for what it brings (SO_BUSY_POLL).
//!
//! A thread that is about to block is busy for a while first. It spends that time at the queue where what it waits for comes in: it takes a
//! batch, handles it, and often finds its own wait over. The queue's own thread, the *input thread*, stands aside meanwhile.
//!
//! # States
//!
//! | what | from → to | by |
//! |---|---|---|
//! | the queue | free ↔ taken | the thread that takes from it, for one turn: the mutex of the batch. No thread waits for it |
//! | *served* | no → yes | a caller: it has found something, has found the queue taken, or will be back soon ([`mark`](BusyPoll::mark)) |
//! | *served* | yes → no | the input thread, when it has seen it; a caller that gives up ([`leave`](BusyPoll::leave)) |
//! | the input thread | at work → aside | itself: it found the queue served, or taken |
//! | the input thread | aside → at work | its deadline; `leave` |
//!
//! # Why nothing is stranded
//!
//! *The input thread* sleeps with a deadline when it stands aside, and takes a turn after a sleep during which nobody has served. It goes back to waiting
//! at its device, which reports by level what is there, after a turn only. So what comes waits for it no longer than that deadline, whatever the
//! callers do. That bound also covers the one race: a caller leaves between the input thread's look at *served* and its sleep, and its wake finds
//! nobody asleep. *Served* is a hint therefore, and its accesses are relaxed. (A [`LeaderSlot`](crate::LeaderSlot) lets it sleep without a deadline.)
//!
//! *A caller* has a ticket of its wait queue from before its last look at the queue, and the thread that handles what it waits for ends
//! that wait, whether the caller spins, takes its own turn, or sleeps. It wakes the input thread before it parks.
//!
//! *A turn panics.* The batch is unlocked, and *served* is as it was. The input thread goes on after its deadline.
//!
//! Rank: the mutex of the batch is the first of all; nobody holds any lock when it is tried. Must not know devices, or what a batch is. Tests:
//! `tests/loom/seat.rs`.

use std::time::Instant;

use crate::facade::{AtomicBool, Ordering, TryMutex, TryMutexGuard};
use crate::sleeper::Sleeper;
use crate::spin::Spin;

/// See the head of the file.
#[derive(Debug)]
pub struct BusyPoll<B> {
    batch: TryMutex<B>,
    /// (a) Callers take what comes. A hint.
    served: AtomicBool,
}

/// What the input thread finds.
#[derive(Debug)]
pub enum Turn<'a, B> {
    /// It takes its turn, with the batch.
    Own(TryMutexGuard<'a, B>),
    /// It stands aside: callers serve the queue, or one is at it.
    Aside {
        /// Callers had marked the queue.
        was_served: bool,
    },
}

impl<B> BusyPoll<B> {
    /// Nobody takes from the queue.
    pub fn new(batch: B) -> Self {
        Self { batch: TryMutex::new(batch), served: AtomicBool::new(false) }
    }

    /// The input thread's next step. `has_leader`: a caller sleeps at the device, so it has to stand aside anyway.
    pub fn turn(&self, has_leader: bool) -> Turn<'_, B> {
        // Relaxed, here and below: the bound on the sleep is what counts.
        let was_served = self.served.load(Ordering::Relaxed);
        let own = if was_served || has_leader { None } else { self.batch.try_lock() };
        own.map_or_else(
            || {
                self.served.store(false, Ordering::Relaxed);
                Turn::Aside { was_served }
            },
            Turn::Own,
        )
    }

    /// The input thread sleeps in its bed while it stands aside, until the deadline or until a caller leaves. **Blocks**.
    pub fn stand_aside(bed: &Sleeper, until: Option<Instant>) {
        bed.prepare_sleep().sleep(until, Spin::OFF);
    }

    /// Takes from the queue for a thread that is not the input thread; `None` while another thread is at it.
    pub fn try_take(&self) -> Option<TryMutexGuard<'_, B>> {
        self.batch.try_lock()
    }

    /// A busy caller's look. `turn` says how many there were; 0 also if somebody else is at it. Marks the queue unless nothing was there.
    pub fn look(&self, turn: impl FnOnce(&mut B) -> usize) -> usize {
        let Some(mut batch) = self.try_take() else {
            // So the input thread leaves the next ones to us.
            self.mark();
            return 0;
        };
        let count = turn(&mut batch);
        if count > 0 {
            self.mark();
        }
        count
    }

    /// A caller takes what comes next, or is about to.
    #[inline]
    pub fn mark(&self) {
        // Not written again: the line is everybody's.
        if !self.served.load(Ordering::Relaxed) {
            self.served.store(true, Ordering::Relaxed);
        }
    }

    /// A caller gives up and parks: the input thread need not wait for it any longer.
    pub fn leave(&self, bed: &Sleeper) {
        if self.served.load(Ordering::Relaxed) {
            self.served.store(false, Ordering::Relaxed);
        }
        bed.wake_if_sleeping();
    }
}

impl<B: Default> Default for BusyPoll<B> {
    fn default() -> Self {
        Self::new(B::default())
    }
}
