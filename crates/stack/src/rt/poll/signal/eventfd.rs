//! A descriptor that shows whether a poller has events, on Linux: an eventfd.
//!
//! `pair.rs` has the same names for other systems. Does not depend on when it is shown or hidden (`table.rs`). Tests:
//! `tests/suite/poll_fd.rs`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that is readable from [`show`](Self::show) to [`hide`](Self::hide).
#[derive(Debug)]
pub(crate) struct Signal(OwnedFd);

impl Signal {
    /// Hidden.
    ///
    /// # Errors
    /// The system's, above all `EMFILE`.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable. Never blocks.
    pub fn show(&self) {
        // It fails only if the count is at its end, and the descriptor is readable then.
        let _count_is_full = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable. Never blocks.
    pub fn hide(&self) {
        let _was_empty = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
