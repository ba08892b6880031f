//! The kernel's futex: a word that threads sleep on.
//!
//! Does not depend on which threads sleep, or on whether accesses to the word are counted. Tests: through
//! `wait.rs` and `sleeper.rs`.

use core::ops::Deref;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::{Timespec, futex};

use super::{AtomicU32, raw};

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
    /// caller looks at the word again. That the word still is `expected` is checked by the kernel
    /// under the lock that [`Futex::wake_all`] takes, hence a change followed by a wake is never
    /// slept through.
    pub fn wait(&self, expected: u32, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else {
            let _changed_or_interrupted = futex::wait(raw(&self.0), PRIVATE, expected, None);
            return true;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let timeout = relative(left);
        futex::wait(raw(&self.0), PRIVATE, expected, Some(&timeout)) != Err(Errno::TIMEDOUT)
    }

    /// Wakes every thread asleep on the word. A system call of about a microsecond; never blocks.
    pub fn wake_all(&self) {
        // The kernel takes the count as a signed number.
        let _woken_count = futex::wake(raw(&self.0), PRIVATE, i32::MAX as u32);
    }

    /// Wakes one thread asleep on the word, if there is one. A system call; never blocks.
    pub fn wake_one(&self) {
        let _woken_count = futex::wake(raw(&self.0), PRIVATE, 1);
    }
}

impl Deref for Futex {
    type Target = AtomicU32;
    fn deref(&self) -> &AtomicU32 {
        &self.0
    }
}

fn relative(left: Duration) -> Timespec {
    Timespec {
        // A time that does not fit is as good as for ever.
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    }
}

/// Sleepers and wakers share an address space, which spares the kernel a look at the mapping.
const PRIVATE: futex::Flags = futex::Flags::PRIVATE;
