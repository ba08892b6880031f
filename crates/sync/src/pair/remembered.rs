//! Whether the peer that a datagram socket was made with is its peer still.
//!
//! Handles of a socket of a pair hold the peer that it was made with, so a send may follow that pointer without any lock of the socket's: as long as
//! the socket has not been connected to another one. Afterwards the pointer under the link's mutex (`pair.rs`) is asked.
//!
//! # States
//!
//! | from → to | by |
//! |---|---|
//! | remembered → relinked | [`forget`](Remembered::forget), *before* the link changes, by the thread that is about to change it |
//!
//! It never goes back, even if the link does not change after all: a lookup under the mutex is right in any case.
//!
//! # Why no send follows a pointer that it must not follow
//!
//! A send that begins before a new link may reach the old peer, as if it had been sent before. One that begins *after* must not. "After" is whatever
//! shows the new link to the sender: the return of the call that made it, or a datagram from the new peer, which may send as soon as the
//! link is there. Each of them comes after the change of the link, and `forget` before it; so a thread that knows of the link finds the word
//! changed. With the word changed after the link, the answer to the new peer's first datagram could go to the old one.
//!
//! Does not depend on the type of peers. Tests: `tests/loom/pair.rs`.

use crate::facade::{Arc, AtomicBool, Ordering};

/// See the head of the file.
#[derive(Debug)]
pub struct Remembered {
    is_relinked: AtomicBool,
}

impl Remembered {
    /// The peer, if any, is the one that the socket was made with.
    pub fn new() -> Self {
        Self { is_relinked: AtomicBool::new(false) }
    }

    /// The link is about to change.
    pub fn forget(&self) {
        // Release, with `peer`: a thread that sees the socket linked anew looks under its mutex.
        self.is_relinked.store(true, Ordering::Release);
    }

    /// `known`, the peer that the socket was made with, if it may still be followed. No lock, and no locked instruction.
    #[inline]
    pub fn peer<'a, T>(&self, known: Option<&'a Arc<T>>) -> Option<&'a Arc<T>> {
        // Acquire, with `forget`.
        let is_relinked = self.is_relinked.load(Ordering::Acquire);
        known.filter(|_| !is_relinked)
    }
}

impl Default for Remembered {
    fn default() -> Self {
        Self::new()
    }
}
