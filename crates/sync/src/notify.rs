//! Notify: the work item embedded in a connection, which coalesces.
//!
//! `rcvd`, `writable`, `close`, a socket option, a timer: each is a bit. A thread that wants the owner's attention
//! posts its bit, and puts the connection into its squeue's queue only if the post says so. The queued item holds a
//! reference to the connection; nothing is ever unlinked from the middle of a queue, and no thread waits for a message
//! addressed to itself.
//!
//! # States, in one word
//!
//! | state | left by | to |
//! |---|---|---|
//! | idle (no flag, no bits) | `post`, any thread: *must queue the item* | queued |
//! | queued (`QUEUED` and bits) | `post`, any thread: adds bits | queued |
//! | | `take`, the owner | idle |
//! | dead (`DEAD`, whatever else) | – | |
//! | any | `kill`, the owner | dead |
//!
//! # Why no wake-up is lost
//!
//! A user changes something the owner has to look at, then posts; the owner takes, then looks:
//!
//! ```text
//!   user:   U1 publish the change (space freed)      owner:  O1 take: clear QUEUED and bits
//!           U2 post: set the bit and QUEUED                  O2 look at the buffers
//! ```
//!
//! This is the store-buffering shape: it must not happen that U2 finds `QUEUED` still set *and* O2 misses the
//! change. Both U2 and O1 are read-modify-writes that *always write*, so one of them comes first in the
//! word's order and the second reads the first one's value:
//! * U2 before O1: O1 acquires U2's release, hence O2 sees U1.
//! * O1 before U2: U2 finds `QUEUED` clear and the user queues the item again.
//!
//! A post that first looks and skips the write when the bit is already there would be only a load,
//! and so would a compare-exchange that fails: neither orders U1 before itself, and the argument
//! falls. Hence no such short cut. For the same reason the owner takes *first* and looks after.
//!
//! The owner decides that a connection is dead before it drops it; a later post learns of it
//! and queues nothing; an item that was queued earlier is dropped when it is popped.
//!
//! Does not depend on the meaning of the bits. Tests: below, `tests/loom`.

use crate::facade::{AtomicU32, Ordering};

/// The reasons to look at a connection, coalesced.
#[derive(Debug)]
pub struct Notify {
    /// (a)
    word: AtomicU32,
}

/// Duty of the poster.
#[must_use = "an item whose post fired has to be queued"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Post {
    /// It was idle: the caller queues the connection.
    Fire,
    /// It is queued already, and the owner will see the bits.
    Coalesced,
    /// The connection is gone: nothing to do.
    Dead,
}

impl Notify {
    /// The bits that a caller may use.
    pub const REASONS: u32 = QUEUED - 1;

    /// Idle.
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Sets `bits`, which must be among [`Notify::REASONS`]. One locked instruction; never blocks.
    ///
    /// The change that the bits stand for must have been made before.
    ///
    /// # Panics
    /// If a bit is outside of [`Notify::REASONS`], which is a bug of the caller.
    #[inline]
    pub fn post(&self, bits: u32) -> Post {
        assert!(bits & !Self::REASONS == 0, "these bits are not the caller's");
        // Release: U1, with the acquire of `take`. Acquire: the owner's writes before `take`.
        let before = self.word.fetch_or(bits | QUEUED, Ordering::AcqRel);
        match (before & DEAD != 0, before & QUEUED != 0) {
            (true, _) => Post::Dead,
            (false, true) => Post::Coalesced,
            (false, false) => Post::Fire,
        }
    }

    /// The owner's first step when it pops the item: clears and gives the bits, and re-arms. Only afterwards
    /// may it look at the state behind the bits. One locked instruction; never blocks.
    #[inline]
    pub fn take(&self) -> u32 {
        // Acquire: U1 of every post so far. Release: the owner's earlier writes, with the acquire of the post
        // that finds it re-armed and fires.
        self.word.fetch_and(DEAD, Ordering::AcqRel) & Self::REASONS
    }

    /// Declares the connection dead, for good. True for the first call.
    pub fn kill(&self) -> bool {
        // AcqRel: a thread that reads `is_dead` also sees the writes before it.
        self.word.fetch_or(DEAD, Ordering::AcqRel) & DEAD == 0
    }

    /// Whether [`Notify::kill`] was called.
    #[inline]
    pub fn is_dead(&self) -> bool {
        // Acquire: with the release of `kill`.
        self.word.load(Ordering::Acquire) & DEAD != 0
    }

    /// Whether the item is queued, the moment it was looked at: for reports and assertions.
    pub fn is_queued(&self) -> bool {
        // Relaxed: a hint. Must not replace `post`; see the head of the file.
        self.word.load(Ordering::Relaxed) & QUEUED != 0
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

const QUEUED: u32 = 1 << 30;
const DEAD: u32 = 1 << 31;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const RCVD: u32 = 1;
    const CLOSE: u32 = 2;

    #[test]
    fn a_notify_fires_once_until_taken() {
        let notify = Notify::new();
        assert_eq!(notify.post(RCVD), Post::Fire);
        assert_eq!(notify.post(RCVD), Post::Coalesced);
        assert_eq!(notify.post(CLOSE), Post::Coalesced);
        assert!(notify.is_queued());
        assert_eq!(notify.take(), RCVD | CLOSE);
        assert_eq!(notify.take(), 0);
        assert_eq!(notify.post(CLOSE), Post::Fire);
        assert_eq!(notify.take(), CLOSE);
    }

    #[test]
    fn a_post_without_bits_queues() {
        let notify = Notify::new();
        assert_eq!(notify.post(0), Post::Fire);
        assert_eq!(notify.post(0), Post::Coalesced);
    }

    #[test]
    fn a_dead_notify_stays_dead_and_keeps_the_posted_bits() {
        let notify = Notify::new();
        assert_eq!(notify.post(RCVD), Post::Fire);
        assert!(!notify.is_dead());
        assert!(notify.kill());
        assert!(!notify.kill());
        assert_eq!(notify.post(CLOSE), Post::Dead);
        assert_eq!(notify.take(), RCVD | CLOSE);
        assert!(notify.is_dead());
        assert_eq!(notify.post(RCVD), Post::Dead);
    }

    #[test]
    #[should_panic(expected = "not the caller's")]
    fn the_flags_are_not_reasons() {
        let _post = Notify::new().post(QUEUED);
    }
}
