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
//! Threads that put frames into the queue themselves are *senders*, one of which works at a time. One word says so:
//!
//! | from → to | by |
//! |---|---|
//! | none → at work | a sender, after it has put its frames there: [`send`](BusyPoll::send). It takes frames until there are none |
//! | at work → missed | another sender, which has put frames there and leaves them to the first |
//! | missed → at work | the sender at work, when it is about to end: it looks again |
//! | at work → none | the sender at work; also missed → none, if it cannot go on, and then it answers that frames are left |
//!
//! # Why nothing is stranded
//!
//! *Frames of a sender.* It has put them there before it reads the word. If it finds a sender at work, it writes *missed* with a read-modify-write, and that sender cannot end
//! without reading this (its end is a read-modify-write of the same word, too) and sees the frames then. If it becomes the one at work and finds the queue owned, by a caller or the
//! input thread, it answers that frames are left, and whoever called it wakes the input thread; so does the sender of a turn that panics.
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

use crate::facade::{AtomicBool, AtomicU32, Ordering, TryMutex, TryMutexGuard};
use crate::sleeper::Sleeper;
use crate::spin::Spin;

/// See the head of the file.
#[derive(Debug)]
pub struct BusyPoll<B> {
    batch: TryMutex<B>,
    /// (a) Callers poll, and take frames. A hint.
    preferred: AtomicBool,
    /// (a) Whether a sender is at work: `NONE`, `AT_WORK` or `MISSED`.
    sender: AtomicU32,
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

/// What became of frames that a sender has put into a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the input thread has to be woken for what is left"]
pub enum Taken {
    /// They were taken, and handled.
    All,
    /// Another sender takes them, which is at work just now.
    ByAnother,
    /// Some may be left, this sender's or others': for the input thread.
    Left,
}

impl<B> BusyPoll<B> {
    /// A queue that no thread owns.
    pub fn new(batch: B) -> Self {
        Self { batch: TryMutex::new(batch), preferred: AtomicBool::new(false), sender: AtomicU32::new(NONE) }
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

    /// A sender, which has put frames into the queue, takes from it, for `turns_max` turns at most: `turn` takes some, and says whether it has found none. Other senders
    /// leave theirs to it meanwhile. It gives up if another thread owns the queue. Never blocks.
    pub fn send(&self, turns_max: usize, mut turn: impl FnMut(&mut B) -> bool) -> Taken {
        if !self.begin_to_send() {
            return Taken::ByAnother;
        }
        let mut sending = Sending(&self.sender);
        for _ in 0..turns_max {
            let Some(mut batch) = self.try_take() else { break };
            let is_empty = turn(&mut batch);
            drop(batch);
            if is_empty {
                match sending.end() {
                    Ok(()) => return Taken::All,
                    Err(again) => sending = again,
                }
            }
        }
        Taken::Left
    }

    /// Becomes the sender at work, or leaves to it what is in the queue: false.
    fn begin_to_send(&self) -> bool {
        // Acquire: what the last one has done. Release: the frames, to the one at work.
        let swap = |seen| Some(if seen == NONE { AT_WORK } else { MISSED });
        self.sender.fetch_update(Ordering::AcqRel, Ordering::Relaxed, swap) == Ok(NONE)
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

/// The sender at work. Dropping it ends that, and then frames may be left.
struct Sending<'a>(&'a AtomicU32);

impl Sending<'_> {
    /// Ends it after the queue was found empty, unless others have left frames since.
    fn end(self) -> Result<(), Self> {
        // Release: what was done, to the next one at work.
        if self.0.compare_exchange(AT_WORK, NONE, Ordering::Release, Ordering::Relaxed).is_ok() {
            std::mem::forget(self);
            return Ok(());
        }
        // Acquire: the frames. A swap and not a store, so that it reads the last of those that have written `MISSED`.
        self.0.swap(AT_WORK, Ordering::Acquire);
        Err(self)
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        // Acquire and release: as in `end`. The caller has the input thread woken, for the frames of all.
        self.0.swap(NONE, Ordering::AcqRel);
    }
}

const NONE: u32 = 0;
const AT_WORK: u32 = 1;
const MISSED: u32 = 2;

impl<B: Default> Default for BusyPoll<B> {
    fn default() -> Self {
        Self::new(B::default())
    }
}
