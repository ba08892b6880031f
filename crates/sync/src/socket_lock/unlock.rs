//! How a socket lock is unlocked, and how a thread makes sure that the holder looks: two ways.
//!
//! [`SocketLock`](super::SocketLock) needs of a way: if [`Unlock::insist`] finds the lock held, then the look of that holder after its
//! [`Unlock::unlock`], and of every later holder, finds what the insisting thread wrote before.
//!
//! | way | unlock | insist |
//! |---|---|---|
//! | [`ByStore`] | a store and no fence; it always looks | a full fence in *all* threads (`membarrier`), then lock if free |
//! | [`BySwap`] | a read-modify-write; it looks if the word says so | a read-modify-write: lock if free, else mark the word |
//!
//! # Why `ByStore` does
//! Say `insist` found the word locked by holder H. If H, or a holder after H, had looked before the fence reached its thread, it had also
//! unlocked before, and `insist` would have seen that, or a holder later still. So all of them look after the fence, and find what
//! was written before it. (The argument of `brief.rs`.) An insisting thread pays a system call; it is one that is about to sleep, or one
//! that has left an item and could not lock for a while.
//!
//! # Why `BySwap` does
//! A mark and an unlock are both read-modify-writes of one word, so the unlock of H finds the mark and acquires what was written before it.
//! It takes the mark away; so whoever has found something and leaves a later holder responsible insists in its turn, and a sleeper that
//! was woken insists, too, and marks the word even where it locks: others sleep, and wait for its look.
//!
//! Must not know what is looked for. Tests: `tests/loom/socket_lock.rs` runs each model with both.

use super::{FREE, HOLDER, MARK, RUN, SECTION};
use crate::facade::{LockWord, Ordering, heavy_fence, light_fence};

/// A way of unlocking; see the head of the file.
pub trait Unlock {
    /// Unlocks. True if the caller has to look afterwards.
    #[doc(hidden)]
    fn unlock(word: &LockWord) -> bool;

    /// The holder of a section becomes a runner.
    #[doc(hidden)]
    fn promote(word: &LockWord);

    /// One attempt to lock, after the caller has written what holders are to find. Never sleeps.
    #[doc(hidden)]
    fn insist(word: &LockWord, holder: u32) -> Insisted;
}

/// What came of [`Unlock::insist`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Insisted {
    /// The caller is the holder.
    Locked,
    /// It is held, in this way, and the holder will find what the caller wrote.
    Held(u32),
    /// It is held, and nothing is known of what the holder will find: the caller tries again after a while.
    Refused,
}

/// The unlock is a store.
#[derive(Debug)]
pub enum ByStore {}

impl Unlock for ByStore {
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn unlock(word: &LockWord) -> bool {
        // Release: what the section wrote, with the acquire of the next holder.
        word.store(FREE, Ordering::Release);
        // Between the unlock and the look.
        light_fence();
        true
    }

    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn promote(word: &LockWord) {
        // Relaxed: whoever sees the section waits for an unlock, which comes.
        word.store(RUN, Ordering::Relaxed);
    }

    fn insist(word: &LockWord, holder: u32) -> Insisted {
        let is_fenced = heavy_fence();
        // Acquire: as `acquire`.
        match word.compare_exchange(FREE, holder, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_free) => Insisted::Locked,
            Err(held) if is_fenced => Insisted::Held(held),
            Err(_held) => Insisted::Refused,
        }
    }
}

/// The unlock is a read-modify-write.
#[derive(Debug)]
pub enum BySwap {}

impl Unlock for BySwap {
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn unlock(word: &LockWord) -> bool {
        // Release: what the section wrote, with the acquire of the next holder. Acquire: what whoever marked it wrote.
        word.swap(FREE, Ordering::AcqRel) & MARK != 0
    }

    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn promote(word: &LockWord) {
        // Keeps a mark. Relaxed: as with a store.
        let _always =
            word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(held - SECTION + RUN));
    }

    fn insist(word: &LockWord, holder: u32) -> Insisted {
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let (new, insisted) = match seen {
                FREE => (holder | MARK, Insisted::Locked),
                held => (held | MARK, Insisted::Held(held & HOLDER)),
            };
            // Written even if the mark stands there already, so that the unlock acquires this thread's writes. Acquire: as `acquire`.
            match word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_seen) => return insisted,
                Err(now) => seen = now,
            }
        }
    }
}
