//! A word that threads sleep on: Linux's futex, and the same from `system/portable.rs` elsewhere.
//!
//! Does not depend on which threads sleep, or on whether accesses to the word are counted. Tests: through
//! `wait.rs` and `sleeper.rs`.

use core::ops::Deref;
use std::time::Instant;

use super::{AtomicU32, raw, system};

/// A 32-bit word that threads of this process can sleep on.
#[derive(Debug)]
#[repr(transparent)]
pub struct Futex(AtomicU32);

impl Futex {
    /// A word with this value and no thread asleep on it.
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// Sleeps while the word is `expected`, at most until `deadline`. Blocks.
    ///
    /// False if the deadline has passed; true for any other return, a spurious one included, so the
    /// caller looks at the word again. That the word still is `expected` is checked by the system
    /// under the lock that [`Futex::wake_all`] takes, hence a change followed by a wake is never
    /// slept through.
    pub fn wait(&self, expected: u32, deadline: Option<Instant>) -> bool {
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if limit.is_some_and(|limit| limit.is_zero()) {
            return false;
        }
        system::wait(raw(&self.0), expected, limit)
    }

    /// Wakes every thread asleep on the word. A system call of about a microsecond; never blocks.
    pub fn wake_all(&self) {
        system::wake_all(raw(&self.0));
    }

    /// Wakes one thread asleep on the word, if there is one. A system call; never blocks.
    pub fn wake_one(&self) {
        system::wake_one(raw(&self.0));
    }
}

impl Deref for Futex {
    type Target = AtomicU32;
    fn deref(&self) -> &AtomicU32 {
        &self.0
    }
}
