//! Tasks that wait for packet memory.
//!
//! At the memory cap a thread sleeps in the pool until memory comes back. A task cannot; it leaves its waker
//! here and is woken after [`PAUSE`] to try again. Polling, but only at the cap, and through the timer wheel, so
//! that a stack without threads has it too.
//!
//! Whoever takes packet memory at once or does without [`obtain`]s it: what is parked is given back for him, and where that
//! does not help [`prune`](crate::tcp::prune) is asked to give up what lies behind holes. Who waits for memory asks it too.
//!
//! Bound: a waker per task that is writing. Rank: the mutex is a leaf; wakers are cloned, called and dropped outside of it. Tests:
//! `tests/tokio_shape.rs`.

use std::time::Duration;

use sockeye_sync::{Mutex, NoPollers, WaitList};

use crate::rt::panics::{self, PanicSource};
use crate::rt::timers::TimerKey;
use crate::stack::Core;

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
    tasks: Mutex<WaitList<NoPollers>>,
}

/// All of them wait for the same thing.
const MEMORY: u8 = 1;

/// How long a task waits before it tries again.
const PAUSE: Duration = Duration::from_millis(5);

impl MemoryWaiters {
    /// Has `waker` woken after a while.
    ///
    /// # Errors
    /// The waker panicked.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "only tasks wait so"))]
    pub fn register(&self, core: &Core, waker: &std::task::Waker) -> std::io::Result<()> {
        let own = crate::rt::tasks::clone(core, waker).ok_or_else(crate::rt::tasks::waker_panicked)?;
        let mut tasks = self.tasks.lock();
        let is_first = tasks.task_count() == 0;
        let unused = tasks.register_once(MEMORY, own);
        drop(tasks);
        crate::rt::tasks::discard(core, unused);
        if is_first {
            core.workers.arm(0, (core.clock.now() + PAUSE).as_micros(), TimerKey::Memory);
            core.workers.tell_driver(core);
        }
        Ok(())
    }

    /// The wheel's call: everybody tries again.
    pub fn on_timer(&self, core: &Core) {
        let mut tasks = Vec::new();
        self.tasks.lock().mark(MEMORY, &mut tasks);
        for task in tasks {
            panics::contain(core, PanicSource::Waker, "Waker::wake", || task.wake());
        }
    }
}
