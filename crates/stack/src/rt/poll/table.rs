//! A poller's queue: the lists of `sockeye_sync`'s `poll_queue.rs`, and how the sockets' side wakes the poller.
//!
//! Rank: `table` before the sockets' mutexes, `inbox` after them (see ARCHITECTURE).
//!
//! Must not know sockets. Tests: `tests/suite/{poll,poll_stress}.rs`; models in `crates/sync/tests/loom/poll_queue.rs`.

use std::io;

use sockeye_sync::facade::Arc;
use sockeye_sync::poll_queue::PollQueue;
use sockeye_sync::slots::{Entry, Numbered};

use super::registration::Registration;
use crate::rt::wake::Wake;

/// What a poller shares with the sockets in it.
#[derive(Default)]
pub(crate) struct Queue {
    pub(super) list: PollQueue<Registration>,
}

impl Queue {
    /// Wakes the thread that waits; outside all locks.
    pub fn wake(&self) {
        self.list.wake();
    }

    /// Makes a registration and gives it a number.
    ///
    /// # Errors
    /// `QuotaExceeded` if there are no numbers left, of 2^32.
    pub(super) fn admit(&self, make: impl FnOnce(Numbered) -> Registration) -> io::Result<Arc<Registration>> {
        self.list.admit(make).ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
    }

    /// Queues an entry. Under the mutex of its socket, or without one if its word is a shared one.
    pub(super) fn push<O: From<Wake>>(this: &Arc<Self>, entry: Entry, wakes: &mut Vec<O>) {
        if this.list.push(entry) {
            wakes.push(Wake::Poller(Arc::clone(this)).into());
        }
    }

    pub(super) fn wake_all(&self, wakes: Vec<Wake>) {
        if !wakes.is_empty() {
            self.list.wake();
        }
    }
}
