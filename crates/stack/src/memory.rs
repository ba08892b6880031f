//! Tasks that wait for packet memory.
//!
//! At the memory cap a thread sleeps in the pool until memory comes back. A task cannot; it leaves its waker
//! here and is woken after [`PAUSE`] to try again. Polling, but only at the cap, and through the timer wheel, so
//! that a stack without threads has it too.
//!
//! Whoever takes packet memory at once or does without [`obtain`]s it: what is parked is given back for him, and where that
//! does not help [`prune`](crate::prune) is asked to give up what lies behind holes. Who waits for memory asks it too.
//!
//! Bound: a waker per task that is writing. Rank: the mutex is a leaf; wakers run outside of it. Tests:
//! `tests/tokio_shape.rs`.

use std::task::Waker;
use std::time::Duration;

use sockeye_sync::Mutex;

use crate::stack::Core;
use crate::timers::TimerKey;

/// Takes packet memory by `take`, once more if what is parked could be given back. If there is none all the same, what lies
/// behind holes is given up soon. Not to be called with a lock of the stack's held, nor inside a perimeter.
#[inline]
pub(crate) fn obtain<T, E>(core: &Core, take: impl Fn() -> Result<T, E>) -> Result<T, E> {
    take().or_else(|refused| once_more(core, refused, take))
}

#[cold]
fn once_more<T, E>(core: &Core, refused: E, take: impl Fn() -> Result<T, E>) -> Result<T, E> {
    let again = if core.recycler.reclaim(core) { take() } else { Err(refused) };
    again.inspect_err(|_| core.pruner.ask(core))
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct MemoryWaiters {
    tasks: Mutex<Vec<Waker>>,
}

/// How long a task waits before it tries again.
const PAUSE: Duration = Duration::from_millis(5);

impl MemoryWaiters {
    /// Has `waker` woken after a while.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "only tasks wait so"))]
    pub fn register(&self, core: &Core, waker: &Waker) {
        let mut tasks = self.tasks.lock();
        let is_first = tasks.is_empty();
        if !tasks.iter().any(|known| known.will_wake(waker)) {
            tasks.push(waker.clone());
        }
        drop(tasks);
        if is_first {
            core.workers.arm(0, (core.clock.now() + PAUSE).as_micros(), TimerKey::Memory);
            core.workers.tell_driver(core);
        }
    }

    /// The wheel's call: everybody tries again.
    pub fn on_timer(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.wake();
        }
    }
}
