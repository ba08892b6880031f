//! Waiters that are owed a wake, noted under a lock and woken outside of all.
//!
//! Sockets of a kind have their own way to wake threads that are parked at one ([`Sleepers`]); tasks and pollers are the same for all.
//! A layer with more to do at a wake than that has a type of its own that contains this one.
//!
//! Does not depend on sockets. Tests: `tests/waiting`.

use std::task::Waker;

use sockeye_sync::WaitQueue;
use sockeye_sync::facade::{Arc, unsize};

use crate::rt::env::Env;
use crate::rt::panics::{self, PanicSource};
use crate::rt::poll::Queue;

/// See the module's head.
pub(crate) enum Wake {
    Task(Waker),
    Poller(Arc<Queue>),
    /// Threads that are parked at a queue of their own.
    Threads(Arc<WaitQueue>),
    /// Threads that are parked at a socket, for this of its changes.
    Sleepers(Arc<dyn Sleepers>, Change),
}

/// A socket at which threads are parked.
pub(crate) trait Sleepers: Send + Sync {
    /// Wakes those that wait for this change. Outside all locks.
    fn wake(&self, change: Change);
}

/// Events that threads wait for at a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Something to read.
    Arrival,
    /// Room to write.
    Room,
}

impl From<Waker> for Wake {
    fn from(waker: Waker) -> Self {
        Self::Task(waker)
    }
}

impl Wake {
    /// Of the threads that are parked at a socket.
    pub fn sleepers<S: Sleepers + 'static>(socket: &Arc<S>, change: Change) -> Self {
        Self::Sleepers(unsize::<S, dyn Sleepers>(Arc::clone(socket), |socket| socket), change)
    }

    /// Wakes. Outside all locks; a waker of the application's may panic.
    pub fn fire(self) {
        match self {
            Self::Task(waker) => waker.wake(),
            Self::Poller(queue) => queue.wake(),
            Self::Threads(queue) => queue.wake(),
            Self::Sleepers(socket, change) => socket.wake(change),
        }
    }
}

/// Wakes all of them, in spite of wakers that panic. Outside all locks.
pub(crate) fn fire_all(env: &Env, wakes: &mut Vec<Wake>) {
    while let Some(wake) = wakes.pop() {
        panics::contain(env, PanicSource::Waker, "Waker::wake", || wake.fire());
    }
}
