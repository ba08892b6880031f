//! Blocking: threads that wait until a condition under a mutex comes true.
//!
//! A condition variable in three steps, so that the expensive ones happen outside of all locks: the
//! waiter spins and sleeps after unlocking, and the waker's system call goes to its outbox.
//!
//! ```text
//!   waiter:  lock; condition false; t = prepare(); unlock; wait(t, ...); lock; look again
//!   waker:   lock; make it true; owed = notify(); unlock; ...; if owed { wake() }
//! ```
//!
//! # States, in one word: a generation and two flags
//!
//! | flag | set by | cleared by |
//! |---|---|---|
//! | `WAITING`: a waiter will look at the generation | `prepare`, under the mutex | `notify`, under the mutex |
//! | `PARKED`: a waiter sleeps in the kernel, or is about to | `wait`, without a lock | `notify`, under the mutex |
//!
//! `notify` counts the generation up, and only `notify` does.
//!
//! # Why no wake-up is lost
//!
//! *Between waiter and waker* there is the mutex of the condition. The waiter looks at the
//! condition and announces itself within one section. A waker that makes the condition true in an
//! earlier section is seen by that look; one in a later section sees `WAITING` and counts the
//! generation up. The ticket holds the generation of the announcement, so `wait` returns.
//!
//! *Between spinning and sleeping* the word decides. A waiter sets `PARKED` by compare-exchange
//! on a word that still has its generation. If `notify` came first the exchange fails and the
//! waiter returns; if it comes after, its exchange reads `PARKED` and a wake is owed. The kernel
//! compares the word again before it puts the thread to sleep, under the lock that `wake` takes:
//! a `notify` before that comparison is noticed by it, one after it finds the thread asleep.
//!
//! All waiters of a generation are woken: a waiter that is late re-checks the condition and prepares again. A waiter
//! that gives up (deadline) leaves its flags behind, which costs the next `notify` one needless count and perhaps one
//! needless system call, and nothing else.
//!
//! A thread would have to be held up between two instructions while the generation comes round,
//! 2^30 notifications each met by a new waiter, to mistake a later generation for its own.
//!
//! Does not depend on the condition. Tests: `wait/tests.rs`, `tests/loom`.

#[cfg(all(test, not(loom)))]
mod tests;

use std::time::Instant;

use crate::facade::{Futex, Ordering};
use crate::spin::Spin;

/// A place to wait; four bytes.
#[derive(Debug)]
pub struct WaitQueue {
    /// (a) The generation above two flags; see the head of the file.
    word: Futex,
}

/// Whether a queue has a waiter, kept beside the condition under its mutex.
///
/// It is `WAITING` once more, where a waker has it at hand: the line of the word is then fetched once, to be written,
/// if a thread waits, and not at all if none does. A queue with one of these is used through [`WaitQueue::prepare_in`]
/// and [`WaitQueue::notify_in`] alone, always with the same one.
#[derive(Debug, Default)]
pub struct Awaited(bool);

/// The announcement of a waiter: which generation it waits out.
#[must_use = "a ticket is to be waited on"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    generation: u32,
}

/// How a wait ended. Either way the condition has to be looked at again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// There was a `notify`, seen while spinning or before.
    Spinning,
    /// There was a `notify`, which ended a sleep in the kernel.
    Parked,
    /// The deadline passed.
    TimedOut,
}

/// Waiters that a `notify` found.
#[must_use = "a wake may be owed"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notified {
    /// No thread waits. Nothing was written.
    NoWaiter,
    /// The waiter looks at the word and will see it.
    Spinning,
    /// A waiter sleeps: the caller owes a [`WaitQueue::wake`], best after unlocking.
    Parked,
}

impl Notified {
    /// Whether [`WaitQueue::wake`] must be called.
    #[must_use]
    pub fn is_wake_owed(self) -> bool {
        match self {
            Self::NoWaiter | Self::Spinning => false,
            Self::Parked => true,
        }
    }
}

impl WaitQueue {
    /// No thread waits.
    pub fn new() -> Self {
        Self { word: Futex::new(0) }
    }

    /// Announces a waiter. To be called under the mutex of the condition, which is false. Never
    /// blocks.
    pub fn prepare(&self) -> Ticket {
        // Relaxed: the mutex orders it before the `notify` that has to see it. A read-modify-write,
        // because `PARKED` is set without the mutex.
        let before = self.word.fetch_or(WAITING, Ordering::Relaxed);
        Ticket { generation: before & GENERATION }
    }

    /// Waits until a [`WaitQueue::notify`] after the ticket, or until `deadline`. To be called
    /// without the mutex. **Blocks**; spins first as far as `spin` allows, by which time the
    /// deadline may be overshot.
    pub fn wait(&self, ticket: Ticket, deadline: Option<Instant>, spin: Spin) -> Woken {
        if spin.until(|| self.is_over(ticket)) { Woken::Spinning } else { self.park(ticket, deadline) }
    }

    /// The second part of [`wait`](Self::wait), for a caller that has been busy in a way of its own: without any spin.
    pub fn park(&self, ticket: Ticket, deadline: Option<Instant>) -> Woken {
        if !self.announce(ticket) {
            return Woken::Spinning;
        }
        loop {
            let seen = self.word.load(Ordering::Acquire);
            if seen & GENERATION != ticket.generation {
                return Woken::Parked;
            }
            if !self.word.wait(seen, deadline) && !self.is_over(ticket) {
                return Woken::TimedOut;
            }
        }
    }

    /// Says that the waiter of `ticket` sleeps from now on, in a place of its own: the `notify` that ends its wait will owe a
    /// wake, and the thread that owes it has to see to that place as well. It sees the caller's earlier writes. False if the
    /// wait is over. Never blocks.
    pub fn announce(&self, ticket: Ticket) -> bool {
        let mut seen = ticket.generation | WAITING;
        loop {
            // Acquire: the waker's writes, with the release of `notify`. Release on success: where we sleep, with the
            // acquire of `notify`.
            match self.word.compare_exchange(seen, seen | PARKED, Ordering::Release, Ordering::Acquire) {
                Ok(_announced) => return true,
                Err(now) if now & GENERATION != ticket.generation => return false,
                // Another waiter of the same generation has parked, or we have before.
                Err(now) => seen = now,
            }
        }
    }

    /// Tells the waiters that the condition has come true. To be called under its mutex. Writes
    /// nothing if no thread waits. Never blocks.
    #[inline]
    pub fn notify(&self) -> Notified {
        // Relaxed: the mutex orders every `prepare` that matters before this look.
        let seen = self.word.load(Ordering::Relaxed);
        if seen & WAITING == 0 {
            return Notified::NoWaiter;
        }
        self.notify_waiting(seen)
    }

    /// Wakes the sleepers that a `notify` found. A system call of about a microsecond; never
    /// blocks, and needs no lock.
    #[cold]
    pub fn wake(&self) {
        self.word.wake_all();
    }

    /// [`WaitQueue::prepare`], noted in `awaited` as well.
    pub fn prepare_in(&self, awaited: &mut Awaited) -> Ticket {
        awaited.0 = true;
        self.prepare()
    }

    /// [`WaitQueue::notify`] for a queue with state `awaited`. Touches nothing else if no thread waits.
    #[inline]
    pub fn notify_in(&self, awaited: &mut Awaited) -> Notified {
        if !core::mem::take(&mut awaited.0) {
            return Notified::NoWaiter;
        }
        // `WAITING` is set, since only this clears it: so one addition clears it and counts the generation up, and
        // the word need not be read first. Acquire and release: as in `notify_waiting`.
        let before = self.word.fetch_add(GENERATION_STEP - WAITING, Ordering::AcqRel);
        debug_assert!(before & WAITING != 0, "a queue with an `Awaited` is used through it alone");
        if before & PARKED == 0 {
            return Notified::Spinning;
        }
        // No thread sets the flag meanwhile: the next waiter prepares under our mutex, and an earlier one finds the
        // generation gone.
        self.word.fetch_and(!PARKED, Ordering::Relaxed);
        Notified::Parked
    }

    fn notify_waiting(&self, seen: u32) -> Notified {
        let next = (seen & GENERATION).wrapping_add(GENERATION_STEP);
        // A swap is enough: under the mutex no other thread changes anything but `PARKED`, at which the swap looks.
        // Release: the condition and all before it, with the acquire of `is_over`. Acquire: where a sleeper is, with
        // the release of `announce`.
        let before = self.word.swap(next, Ordering::AcqRel);
        if before & PARKED == 0 { Notified::Spinning } else { Notified::Parked }
    }

    /// Whether the wait of this ticket has ended, or would at once.
    #[inline]
    pub fn is_over(&self, ticket: Ticket) -> bool {
        // Acquire: with the release of `notify`.
        self.word.load(Ordering::Acquire) & GENERATION != ticket.generation
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

const WAITING: u32 = 1;
const PARKED: u32 = 2;
const GENERATION_STEP: u32 = 4;
const GENERATION: u32 = !(GENERATION_STEP - 1);
