//! Handles of a stack, and its end.
//!
//! Every socket has a handle, and the last one ends the stack. If all were counted in one place, each connection that
//! comes or goes on any core would write the same line. So there are [`LANES`] references to the stack, each counted on a
//! line of its own, and a clone takes the one of the core it is made on:
//!
//! ```text
//!   first Stack --> Lane of the owner --+--> lanes 0..LANES --> Handle --> (threads, the whole)
//!   clones -------------> the lane of a core --^
//! ```
//!
//! The handle that [`Stack::new`] gave keeps all lanes. After it is gone a lane goes with its last clone, and a clone made
//! where there is no lane any more is counted with the one it is made from. The `Handle` goes with the last lane.
//!
//! Nothing here is a protocol of its own: a lane that is found is kept by the count that was raised to find it.
//!
//! # The end
//! The `Handle`'s drop stops the threads and joins them, so that the interfaces are closed when it returns. A thread of a
//! stack joins no other: wakers and hooks run there and may hold a last handle, and if the workers of two stacks did so for
//! each other, each would wait for the other to end. So if the last handle is dropped on such a thread, the threads end
//! soon afterwards by themselves. Either way the last one of the threads and the `Handle` to let go of [`End`] does the
//! work handed to workers that are gone.
//!
//! # The parts of a stack
//! The layers of a stack lie in one value, a [`Whole`]. Nothing here depends on the parts: a lane has a pointer to each of its parts
//! ([`Parts`]), and code of a layer asks for its own by its type ([`Layer`]).
//!
//! Tests: below; `tests/panics/ends.rs`; `apps/bench-counted/tests/lives.rs` (no core writes another's line).

use std::any::Any;
use std::io;
use std::thread::{self, JoinHandle};

use sockeye_sync::facade::{Arc, OnceLock, Weak, unsize};
use sockeye_sync::{Mutex, Parts};

use crate::config::Config;
use crate::rt::env::Env;
use crate::rt::fork;
use crate::rt::panics::{self, PanicSource};
use crate::rt::threads;

/// A handle of a stack. Clones are the same stack, which ends with the last of them; each socket has one.
///
/// Dropping the last one **blocks** until the stack's threads have ended: its interfaces are closed then. Dropped on a thread
/// of this or another stack, by a waker, a hook or an interface, it does not wait, and they end soon afterwards. Nor does it wait
/// for the threads of an interface whose [`Netif::interrupt`](crate::netif::Netif::interrupt) has panicked.
///
/// In a child of fork(2), a stack with threads answers every call with an error of the kind `StaleNetworkFileHandle`, or with
/// nothing, and its drop does nothing; see [`fork`].
pub struct Stack(Arc<Lane>);

/// A handle that does not keep its stack.
#[derive(Clone)]
pub(crate) struct WeakStack(Weak<Handle>);

/// A reference to the stack, of several; see the module's head. Alignment keeps the counts of two apart.
#[repr(align(128))]
struct Lane {
    parts: Parts<dyn Whole, LAYERS>,
    handle: Arc<Handle>,
    /// The lanes that the first handle keeps; none in these themselves.
    _kept: Box<[Arc<Lane>]>,
}

/// The end of the stack.
struct Handle {
    whole: Arc<dyn Whole>,
    /// Those that serve a queue of an interface, with its place in the table.
    threads: Mutex<Vec<(Option<u16>, JoinHandle<()>)>>,
    lanes: OnceLock<Box<[Weak<Lane>]>>,
    end: Arc<End>,
}

/// Held by the threads and the handle: the last one does the remaining work. See the module's head.
struct End {
    whole: Arc<dyn Whole>,
}

/// All layers of a stack, as its handles know them.
pub(crate) trait Whole: Send + Sync {
    fn env(&self) -> &Env;

    /// The part of this number: see [`Layer::AT`].
    fn part(&self, at: usize) -> &(dyn Any + Send + Sync);

    /// Ends the sleep of the threads in interfaces. Returns the interfaces, by their places, that could not be told.
    fn stop(&self) -> Vec<u16>;

    /// Does the work handed to threads that have ended.
    fn finish(&self);

    /// In a child of fork(2), before anything else: takes over all state but the environment's for this process. Returns the interfaces
    /// that it has lost, by their places.
    fn adopt(&self) -> Vec<u16>;

    /// Wakes the threads that waited for one of those.
    fn lose(&self, netif: u16);
}

/// A layer's part of a stack.
pub(crate) trait Layer: Any + Send + Sync {
    /// Its number, below [`LAYERS`]. 0 is the environment's.
    const AT: usize;
}

/// Parts that a stack has.
pub(crate) const LAYERS: usize = 4;

impl Layer for Env {
    const AT: usize = 0;
}

impl Drop for End {
    fn drop(&mut self) {
        let env = self.whole.env();
        panics::contain(env, PanicSource::Protocol, "the end of a stack", || self.whole.finish());
        // Values that the application has set are dropped with the stack, each by itself: one may panic.
        env.workers.set_driver(env, None);
        env.panics.set_hook(None);
        env.resolver.set(None);
        #[cfg(all(feature = "tokio", unix))]
        env.signals.set(None);
    }
}

/// Cores beyond share.
const LANES: usize = 16;

impl Stack {
    /// A first handle.
    pub(crate) fn of<W: Whole + 'static>(whole: Arc<W>) -> Self {
        let whole = unsize::<W, dyn Whole>(whole, |whole| whole);
        let handle = Arc::new(Handle {
            whole: Arc::clone(&whole),
            threads: Mutex::new(Vec::new()),
            lanes: OnceLock::new(),
            end: Arc::new(End { whole: Arc::clone(&whole) }),
        });
        let parts = || Parts::new(Arc::clone(&whole), |whole, at| whole.part(at));
        let lane = |kept| Arc::new(Lane { parts: parts(), handle: Arc::clone(&handle), _kept: kept });
        let lanes: Box<[Arc<Lane>]> = (0..LANES).map(|_| lane(Box::default())).collect();
        let _was_empty = handle.lanes.set(lanes.iter().map(Arc::downgrade).collect());
        Self(lane(lanes))
    }

    /// The shared state of a layer's sockets, if this process may use it. In a child of fork(2) the first call takes over a
    /// stack without threads.
    ///
    /// # Errors
    /// [`fork::lost`].
    #[inline]
    pub(crate) fn core<L: Layer>(&self) -> io::Result<&L> {
        fork::ask(self.0.parts.owner(), self.env())?;
        Ok(self.core_in_use())
    }

    /// The same, for state that an application reaches through [`fork::Held`] only, which has checked that.
    #[inline]
    pub(crate) fn core_in_use<L: Layer>(&self) -> &L {
        self.0.parts.get(L::AT).expect("each layer has a part of its own type")
    }

    #[inline]
    fn env(&self) -> &Env {
        self.core_in_use()
    }

    /// Whether this process is a child that may not touch anything of the stack.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        fork::is_lost(self.env())
    }

    /// The settings that the stack was made with.
    pub fn config(&self) -> &Config {
        &self.env().config
    }

    /// Starts a thread that ends with the stack. `serves` is the place of the interface in which it waits.
    pub(crate) fn spawn(
        &self,
        name: String,
        serves: Option<u16>,
        life: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let end = Arc::clone(&self.0.handle.end);
        let thread = thread::Builder::new().name(name).spawn(move || {
            life();
            drop(end);
        })?;
        self.0.handle.threads.lock().push((serves, thread));
        Ok(())
    }

    /// A handle that does not keep it.
    pub(crate) fn downgrade(&self) -> WeakStack {
        WeakStack(Arc::downgrade(&self.0.handle))
    }
}

impl Clone for Stack {
    fn clone(&self) -> Self {
        Self(self.0.handle.lane(self.env().cpu()).unwrap_or_else(|| Arc::clone(&self.0)))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.is_lost() {
            // The stack does not end in a child: there is no thread to join, and no lock that may be taken.
            std::mem::forget(Arc::clone(&self.0));
        }
    }
}

impl WeakStack {
    /// Whether the stack is still there and this process may use it.
    pub fn is_lost(&self) -> bool {
        self.0.upgrade().is_some_and(|handle| {
            let is_lost = fork::is_lost(handle.whole.env());
            if is_lost {
                std::mem::forget(handle);
            }
            is_lost
        })
    }

    /// The stack, if it is still there.
    pub fn upgrade(&self) -> Option<Stack> {
        let handle = self.0.upgrade()?;
        let own = handle.lane(handle.whole.env().cpu());
        own.or_else(|| (0..LANES as u32).find_map(|cpu| handle.lane(cpu))).map(Stack)
    }
}

impl Handle {
    /// The lane of a core, if it is still there.
    fn lane(&self, cpu: u32) -> Option<Arc<Lane>> {
        self.lanes.get()?.get(cpu as usize % LANES)?.upgrade()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.whole.env().workers.stop();
        let deaf = self.whole.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        if !threads::is_of_a_stack() {
            // A thread whose wait could not be ended is left to itself.
            for (_, thread) in
                threads.into_iter().filter(|(serves, _)| serves.is_none_or(|netif| !deaf.contains(&netif)))
            {
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn stack() -> (Stack, Weak<Handle>) {
        let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
        let handle = Arc::downgrade(&stack.0.handle);
        (stack, handle)
    }

    #[test]
    fn a_stack_ends_when_its_last_handle_is_dropped() {
        let (first, handle) = stack();
        let weak = first.downgrade();
        let clone = first.clone();
        let clone_of_clone = clone.clone();
        drop((first, clone));
        assert!(weak.upgrade().is_some(), "a clone keeps the stack without the first");
        let late = clone_of_clone.clone();
        drop(clone_of_clone);
        assert!(handle.upgrade().is_some());
        drop(late);
        assert!(weak.upgrade().is_none() && handle.upgrade().is_none());

        let (first, handle) = stack();
        drop(first.clone());
        assert!(handle.upgrade().is_some());
        drop(first);
        assert!(handle.upgrade().is_none());
    }

    #[test]
    fn clones_of_two_cores_are_counted_on_lines_of_their_own() {
        let (first, _) = stack();
        let lanes: Vec<_> = (0..LANES as u32).map(|cpu| first.0.handle.lane(cpu).unwrap()).collect();
        let mut lines: Vec<usize> = lanes.iter().map(|lane| Arc::as_ptr(lane).addr() / 128).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), LANES);
        assert!(lanes.iter().all(|lane| Arc::strong_count(lane) == 2));
    }
}
