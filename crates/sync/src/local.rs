//! A value that belongs to the process that made it, for objects that an application holds beside sockets: a poller, a channel, a
//! capture.
//!
//! Threads of the process may be in the middle of it when another one forks, so a child neither uses nor drops it. As long as no
//! other thread has to do with it ([`Local::unshared`]), a child goes on with its copy.
//!
//! Does not depend on the value's type. Tests: `crates/drivers/tests/fork`.

use std::io;

use crate::facade::{AtomicBool, Ordering};
use crate::fork::Origin;

/// A value of this process; a child does not touch parts that other threads may be changing.
pub struct Local<T> {
    origin: Origin,
    /// Whether other threads than the application's have to do with it.
    is_shared: AtomicBool,
    value: Option<T>,
}

impl<T> Local<T> {
    /// One that other threads have to do with from the beginning.
    pub fn new(value: T) -> Self {
        Self { origin: Origin::here(), is_shared: AtomicBool::new(true), value: Some(value) }
    }

    /// As yet only the application's, so that a child may go on with it like with a stack without threads.
    pub fn unshared(value: T) -> Self {
        Self { origin: Origin::here(), is_shared: AtomicBool::new(false), value: Some(value) }
    }

    /// From now on other threads have to do with it.
    pub fn share(&self) {
        // Read first: the line is shared by all threads.
        if !self.is_shared.load(Ordering::Relaxed) {
            self.origin.adopt();
            self.is_shared.store(true, Ordering::Relaxed);
        }
    }

    /// The value, if this process may use it.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.is_lost() { None } else { self.value.as_ref() }
    }

    /// The value.
    ///
    /// # Errors
    /// `StaleNetworkFileHandle` in a child of the process that shared it; `what` names it in the message.
    pub fn open(&self, what: &str) -> io::Result<&T> {
        self.get().ok_or_else(|| {
            let message = format!(
                "this process was forked from the one that made the {what}: make a new one here, or exec"
            );
            io::Error::new(io::ErrorKind::StaleNetworkFileHandle, message)
        })
    }

    #[inline]
    fn is_lost(&self) -> bool {
        !self.origin.is_here() && self.is_shared.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Local<T> {
    fn drop(&mut self) {
        if self.is_lost() {
            std::mem::forget(self.value.take());
        }
    }
}
