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
//! below, `tests/tokio/shape.rs`.

use std::collections::HashSet;
use std::task::Waker;
use std::time::Duration;

use sockeye_sync::Mutex;
use sockeye_sync::facade::{AtomicBool, Ordering};

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
    tasks: Mutex<Listed>,
}

/// Each task once: all of them come again every few milliseconds, and there may be many thousands.
#[derive(Default)]
struct Listed {
    /// In the order of their coming, in which they are woken.
    wakers: Vec<Waker>,
    /// Whose they are: see [`identity`].
    tasks: HashSet<(usize, usize)>,
}

/// What two wakers of one task have in common ([`Waker::will_wake`]). Of a waker that is listed: later ones may be in its place.
fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
}

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
        let mut listed = self.tasks.lock();
        let is_first = listed.wakers.is_empty();
        let unused = listed.add(own);
        drop(listed);
        crate::rt::tasks::discard(env, unused);
        if is_first {
            env.workers.arm(0, (env.clock.now() + PAUSE).as_micros(), TimerKey::Memory);
            env.workers.tell_driver(env);
        }
        Ok(())
    }

    /// The wheel's call: all waiters try again.
    pub fn on_timer(&self, env: &Env) {
        let listed = std::mem::take(&mut *self.tasks.lock());
        for task in listed.wakers {
            panics::contain(env, PanicSource::Waker, "Waker::wake", || task.wake());
        }
    }
}

impl Listed {
    /// Adds a task, unless it is there. Its waker comes back then, to be dropped after unlocking.
    fn add(&mut self, waker: Waker) -> Option<Waker> {
        if !self.tasks.insert(identity(&waker)) {
            return Some(waker);
        }
        self.wakers.push(waker);
        None
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_task_is_listed_once_and_tasks_are_woken_in_the_order_of_their_coming() {
        let mut listed = Listed::default();
        let tasks = [(); 3].map(|()| Waker::from(Arc::new(Task)));
        for task in tasks.iter().rev() {
            assert!(listed.add(task.clone()).is_none());
        }
        for task in &tasks {
            assert!(listed.add(task.clone()).is_some_and(|back| back.will_wake(task)));
        }
        assert!(listed.wakers.iter().rev().zip(&tasks).all(|(one, other)| one.will_wake(other)));
    }
}
