//! Delegation: a thread that waits runs what is left for the socket meanwhile, so that the thread that leaves it need
//! not.
//!
//! A reader that waits for bytes is the best one to run the packets that bring them: it is about to touch what they change, and the
//! sender need not fetch that. So before it waits it *offers* to look ([`Delegate::offer`]), and afterwards, whatever has ended the wait,
//! it *withdraws* and looks. The thread that leaves the first item may then have the waiting thread pay the debt
//! ([`Delegate::takes_over`]), and ends its wait. (Linux had this as the prequeue.)
//!
//! The lock is as free as ever: any thread may lock it, and run what was left. The word has the CPU of the thread, since for a sender on the
//! same one there is nothing to be won. Of several offers the last one stands.
//!
//! # Why no item is stranded, and no wait goes on for ever
//! ```text
//!   sender:  S1 push                     reader:  R1 announce the wait, then offer
//!            S2 takes_over: is there one?      R2 withdraw, after the wait
//!            S3 end its wait                      R3 look at the backlog
//! ```
//! S2, R1 and R2 are read-modify-writes of one word. If S2 comes before R2 it releases S1 to R2, and R3 finds the item. If it comes after, it
//! finds another thread's offer, for which the same holds, or none, and the sender remains the debtor. S2 acquires R1, so S3 sees the
//! announced wait and ends it, with those of all others that were announced.
//!
//! Must not know how a thread waits. Tests: `tests/loom/delegate.rs`.

use crate::facade::{AtomicU32, Ordering};

/// The thread that has offered to look at the backlog of a [`SocketLock`](super::SocketLock); see the head of the file.
#[derive(Debug)]
pub struct Delegate {
    /// (a) 1 more than the CPU of the thread, or [`NONE`].
    word: AtomicU32,
}

impl Delegate {
    /// No thread has offered.
    pub fn new() -> Self {
        Self { word: AtomicU32::new(NONE) }
    }

    /// The caller runs on `cpu`, has announced its wait, and owes a [`withdraw`](Self::withdraw) after it. Never blocks.
    pub fn offer(&self, cpu: u32) {
        // Release: the announcement, with the acquire of `takes_over`.
        self.word.swap(cpu.wrapping_add(1), Ordering::AcqRel);
    }

    /// The caller's wait is over. It then looks whether something was left in the backlog. Never blocks.
    pub fn withdraw(&self) {
        // Acquire: with the release of `takes_over`, so that the look finds what was left before that.
        self.word.swap(NONE, Ordering::AcqRel);
    }

    /// The CPU of a thread that has offered. A hint: true the moment it was looked at.
    #[inline]
    pub fn cpu(&self) -> Option<u32> {
        // Relaxed: `takes_over` looks again.
        self.word.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Passes the debt of a caller that has left the first item on to a thread that has offered. If true, the caller ends that
    /// thread's wait; if false, it still owes the look. Never blocks.
    #[must_use = "if no thread has offered, the caller still owes a look"]
    pub fn takes_over(&self) -> bool {
        // A read-modify-write that changes nothing. Release: the push, with the acquire of `withdraw`. Acquire: the announced wait.
        self.word.fetch_add(0, Ordering::AcqRel) != NONE
    }
}

impl Default for Delegate {
    fn default() -> Self {
        Self::new()
    }
}

const NONE: u32 = 0;
