//! A bell that wakes one task.
//!
//! Any thread may ring it, and often. One task waits for it by [`Bell::poll_rung`]; where another one waits later, the latest is woken.
//!
//! # States, under the bell's lock
//!
//! | state | left by | to |
//! |---|---|---|
//! | silent (no waker) | `ring`, any thread | rung |
//! | | `poll_rung`, the task: leaves its waker, made without the lock | awaited |
//! | awaited (a waker) | `ring`, any thread: takes the waker out, and calls it without the lock | rung |
//! | rung | `ring`: nothing | rung |
//! | | `poll_rung`, the task, which goes on | silent |
//!
//! # Why no wake-up is lost
//!
//! A thread makes something there for the task, and rings; the task polls the bell, and looks after it was rung. The lock orders the two calls:
//! * The ring is first: the poll finds the bell rung, so the task looks, and sees what was made before the ring.
//! * The poll is first: its waker is there, and the ring calls it.
//!
//! A ring stays until a poll takes it, also where the task was about to sleep or awake for other reasons. Many rings may be taken as one, so the task looks for all that may be there.
//!
//! Does not depend on what it rings for. Tests: below, `tests/loom/exchange.rs`.

use std::task::{Context, Poll, Waker};

use crate::facade::Mutex;

/// See the module's head.
#[derive(Debug)]
pub struct Bell {
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    is_rung: bool,
    waker: Option<Waker>,
}

impl Bell {
    /// A silent one.
    pub fn new() -> Self {
        Self { state: Mutex::new(State::default()) }
    }

    /// Wakes the task that waits, or the next one that would wait. Calls its waker.
    pub fn ring(&self) {
        let mut state = self.state.lock();
        state.is_rung = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it was rung since the last poll that said so. If not, the task of `task` is woken by the next ring.
    pub fn poll_rung(&self, task: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_rung) {
            return Poll::Ready(());
        }
        if state.waker.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
            return Poll::Pending;
        }
        drop(state);
        // Foreign code, as the drop below.
        let waker = task.waker().clone();
        let mut state = self.state.lock();
        let is_rung = std::mem::take(&mut state.is_rung);
        let unused = if is_rung { Some(waker) } else { state.waker.replace(waker) };
        drop(state);
        drop(unused);
        if is_rung { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_ring_is_taken_once_and_wakes_the_latest_that_waits() {
        let bell = Bell::default();
        let tasks = [(); 2].map(|()| Arc::new(Task::default()));
        let woken = || tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed));
        let poll = |task: usize| bell.poll_rung(&mut Context::from_waker(&tasks[task].clone().into()));
        bell.ring();
        bell.ring();
        assert_eq!((poll(0), poll(0), poll(0)), (Poll::Ready(()), Poll::Pending, Poll::Pending));
        bell.ring();
        bell.ring();
        assert_eq!((woken(), poll(0), poll(0)), ([1, 0], Poll::Ready(()), Poll::Pending));
        assert_eq!(poll(1), Poll::Pending);
        bell.ring();
        assert_eq!((woken(), poll(1)), ([1, 1], Poll::Ready(())));
    }
}
