//! Tasks that wait for packet memory.
//!
//! At the memory cap a thread sleeps in the pool until memory comes back. A task cannot; it leaves its waker
//! here and is woken after [`PAUSE`] to try again. Polling, but only at the cap, and through the timer wheel, so
//! that a stack without threads has it too.
//!
//! A thread that takes packet memory at once or does without [`obtain`]s it: parked memory is given back for it, and where that does not
//! help out-of-order data is given up soon: a thread that is refused memory [asks](Pruner::ask) for that, and so does one that waits for
//! memory. `tcp/prune.rs` describes how, and why.
//!
//! Bound: a waker per task that is writing. Rank: the mutex is a leaf; wakers are cloned, called and dropped outside of it. Tests:
//! `tests/tokio/shape.rs`.

use std::task::Waker;
use std::time::Duration;

use sockeye_sync::facade::{AtomicBool, Ordering};
use sockeye_sync::{Mutex, NoPollers, WaitList};

use crate::rt::env::Env;
use crate::rt::panics::{self, PanicSource};
use crate::rt::timers::TimerKey;

/// Takes packet memory by `take`, once more if parked memory could be given back. If there is none all the same,
/// out-of-order data is given up soon. Not to be called with a lock of the stack's held, nor under a socket lock.
#[inline]
pub(crate) fn obtain<T, E>(env: &Env, take: impl Fn() -> Result<T, E>) -> Result<T, E> {
    take().or_else(|refused| once_more(env, refused, take))
}

#[cold]
fn once_more<T, E>(env: &Env, refused: E, take: impl Fn() -> Result<T, E>) -> Result<T, E> {
    let again = if env.reclaim() { take() } else { Err(refused) };
    again.inspect_err(|_| env.pruner.ask(env))
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
    pub fn register(&self, env: &Env, waker: &Waker) -> std::io::Result<()> {
        let own = crate::rt::tasks::clone(env, waker).ok_or_else(crate::rt::tasks::waker_panicked)?;
        let mut tasks = self.tasks.lock();
        let is_first = tasks.task_count() == 0;
        let unused = tasks.register_once(MEMORY, own);
        drop(tasks);
        crate::rt::tasks::discard(env, unused);
        if is_first {
            env.workers.arm(0, (env.clock.now() + PAUSE).as_micros(), TimerKey::Memory);
            env.workers.tell_driver(env);
        }
        Ok(())
    }

    /// The wheel's call: all waiters try again.
    pub fn on_timer(&self, env: &Env) {
        let mut tasks: Vec<Waker> = Vec::new();
        self.tasks.lock().mark(MEMORY, &mut tasks);
        for task in tasks {
            panics::contain(env, PanicSource::Waker, "Waker::wake", || task.wake());
        }
    }
}

/// Asks that out-of-order data be given up. Soon afterwards the timer wheel calls [`TimerKey::Prune`].
///
/// No request is lost: [`Pruner::begin`] comes before the connections are looked at, so a thread that finds the request made already has
/// all of them looked at afterwards.
pub(crate) struct Pruner {
    /// (a) The timer wheel will call. Partner: the swaps in [`Pruner::ask`] and [`Pruner::begin`].
    is_asked: AtomicBool,
}

/// From a request to its sweep: requests of many connections together cause one sweep.
const PRUNE_PAUSE: Duration = Duration::from_millis(10);

impl Pruner {
    pub fn new() -> Self {
        Self { is_asked: AtomicBool::new(false) }
    }

    /// Packet memory was refused. Not to be called with a lock held, nor under a socket lock.
    #[cold]
    pub fn ask(&self, env: &Env) {
        if let Some((at, key)) = self.ask_later(env) {
            env.workers.arm(0, at, key);
            env.workers.tell_driver(env);
        }
    }

    /// Packet memory was refused to a thread that may hold locks or be under a socket lock. Returns the call that it asks of the wheel when
    /// it has let go of them; `None` if another thread has asked since the latest sweep began.
    #[cold]
    pub fn ask_later(&self, env: &Env) -> Option<(u64, TimerKey)> {
        let is_first = !self.is_asked.swap(true, Ordering::AcqRel);
        is_first.then(|| ((env.clock.now() + PRUNE_PAUSE).as_micros(), TimerKey::Prune))
    }

    /// The wheel has called: the sweep begins.
    pub fn begin(&self) {
        self.is_asked.swap(false, Ordering::AcqRel);
    }
}
