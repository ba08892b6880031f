//! A poller's queue: the lists of `sockeye_sync`'s `poll_queue.rs`, how the sockets' side wakes the poller, and the descriptor that a poller may have.
//!
//! Rank: `table` before the sockets' mutexes, `inbox` after them (see ARCHITECTURE).
//!
//! Does not depend on sockets. Tests: `tests/suite/{poll,poll_stress}.rs`; models in
//! `crates/sync/tests/loom/poll_queue.rs`.

use std::io;

use sockeye_sync::facade::{Arc, OnceLock};
use sockeye_sync::poll_queue::{Owed, PollQueue};
use sockeye_sync::slots::{Entry, Numbered};

use super::registration::Registration;
use super::signal::Signal;
use crate::rt::wake::Wake;

/// State that a poller shares with the sockets in it.
pub(crate) struct Queue {
    pub(super) list: PollQueue<Registration>,
    /// When it is shown is in `poll_queue.rs`.
    descriptor: OnceLock<Arc<Signal>>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { list: PollQueue::default(), descriptor: OnceLock::new() }
    }
}

impl Queue {
    /// Wakes the thread that waits, and has the descriptor show it; outside all locks.
    pub fn wake(&self) {
        self.list.wake();
        self.show();
    }

    /// What is owed after a look at the list; outside all locks.
    #[inline]
    pub(super) fn settle(&self, owed: Owed) {
        if owed.wake {
            self.list.wake();
        }
        if owed.write {
            self.show();
        }
    }

    /// Ends one wait, or the next one.
    pub(super) fn interrupt(&self) {
        if self.list.interrupt() {
            self.wake();
        }
    }

    /// Makes the descriptor, once.
    ///
    /// # Errors
    /// The system's, above all `EMFILE`.
    #[cfg(unix)]
    pub(super) fn describe(&self) -> io::Result<Arc<Signal>> {
        let made = Signal::new()?;
        let signal = Arc::clone(self.descriptor.get_or_init(|| Arc::new(made)));
        // After it is there: a thread that finds the queue described writes to it.
        if self.list.describe() {
            self.show();
        }
        Ok(signal)
    }

    /// Makes the descriptor readable, if there is one.
    fn show(&self) {
        if let Some(signal) = self.descriptor.get() {
            signal.show();
        }
    }

    /// Empties the descriptor, before the list is taken over.
    pub(super) fn hide(&self) {
        if let Some(signal) = self.descriptor.get() {
            signal.hide();
        }
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
            self.wake();
        }
    }
}
