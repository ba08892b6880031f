//! The socket behind a registration, as a poller knows it: where its list is, and its readiness now.
//!
//! Does not depend on sockets: each kind has a [`Target`] of its own. Nothing on the way of a read or write goes through it.
//! Tests: `tests/suite/poll.rs`, `tests/unix/`, `tests/udp/`.

use std::io;

use sockeye_sync::cpu::Place;
use sockeye_sync::facade::Arc;

use super::ready::Ready;
use super::registration::Registration;
use super::table::Queue;
use crate::rt::failpoints::{self, Point};
use crate::rt::wake::Wake;

/// A source of events.
pub(crate) trait Target: Send + Sync {
    /// Lists a registration, and marks it with the socket's readiness: first the one, then the other, or both in one section of the
    /// list's mutex. See [`mark`].
    ///
    /// # Errors
    /// Those of [`registration::add`](super::registration::add).
    fn add(&self, registration: &Arc<Registration>, wakes: &mut Vec<Wake>) -> io::Result<()>;

    /// Takes the registration of a set out of the list.
    fn remove(&self, queue: &Arc<Queue>) -> Option<Arc<Registration>>;

    /// Readiness now, from the buffers themselves.
    fn ready(&self) -> Ready;

    /// Whether everything that a level-triggered registration's word says changes under the mutex of its list: see
    /// `registration.rs`, *owned*.
    fn owns_words(&self) -> bool {
        false
    }

    /// Calls `settle` with the readiness of a socket that owns words, under the mutex of the list.
    fn settle(&self, settle: &mut dyn FnMut(Ready)) {
        settle(self.ready());
    }

    /// Where the socket begins in memory.
    fn place(&self) -> Place {
        Place::NONE
    }
}

/// Marks a registration that was just listed with its socket's readiness.
pub(crate) fn mark(registration: &Arc<Registration>, ready: Ready, wakes: &mut Vec<Wake>) {
    failpoints::hit(Point::PollAdd, registration.token.0 as u64);
    Registration::mark(registration, ready, wakes);
}

pub(crate) mod sealed {
    use super::Target;
    use crate::rt::handle::Stack;

    /// A socket's entry in a set.
    pub trait Source {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn target(&self) -> std::io::Result<Box<dyn Target>>;

        /// Its stack.
        #[doc(hidden)]
        fn owner(&self) -> &Stack;
    }
}
