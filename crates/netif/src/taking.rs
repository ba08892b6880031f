//! Having a stack take the frames of its interface on a thread that is not its own.
//!
//! A stack's input thread sleeps in [`Netif::wait`](crate::Netif::wait) until there are frames. An interface whose frames are put there by threads of this
//! process can spare that switch of threads: whoever has put them there has the stack take them. So the kernel does it for a pair of veth devices, whose
//! sender runs the receiver's protocols. The stack gives its interface a [`Taking`] when it is attached ([`Netif::takes_by`](crate::Netif::takes_by)).
//!
//! Does not depend on the stack, or on the interface. Tests: `crates/stack/tests/wire/senders.rs`.

use std::fmt;

pub use sockeye_sync::busy_poll::Taken;
use sockeye_sync::facade::Arc;

/// Takes the frames of a queue: see [`Taking::take`].
type Take = Box<dyn Fn(usize) -> Taken + Send + Sync>;

/// Has a stack take frames; see [`Netif::takes_by`](crate::Netif::takes_by).
#[derive(Clone, Default)]
pub struct Taking(Option<Arc<Take>>);

impl Taking {
    /// `take` is called for a queue, and does what [`take`](Self::take) says. It must not panic.
    pub fn by(take: impl Fn(usize) -> Taken + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Box::new(take))))
    }

    /// The stack takes the frames of a queue with [`Netif::receive`](crate::Netif::receive) and handles them, on the calling thread, until there are none. Some may be
    /// [left](Taken::Left) if a thread that is no sender takes frames just then, if there were very many, and if the stack has ended or has no threads.
    ///
    /// To be called without locks: the stack transmits answers, wakes tasks, and calls hooks of its application. Does not wait for other threads.
    pub fn take(&self, queue: usize) -> Taken {
        self.0.as_ref().map_or(Taken::Left, |take| take(queue))
    }
}

impl fmt::Debug for Taking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taking").finish_non_exhaustive()
    }
}
