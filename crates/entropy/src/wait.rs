//! The wait of a runtime that has nothing to do: it is skipped, and its embedder gets to know its limit.
//!
//! A runtime such as tokio's parks its thread until its next timer. In a simulation nothing would wake it, and the thread has other runtimes to run. So the
//! embedder [arms](arm_wait) its thread before the runtime parks: the next wait for a futex does not wait, keeps the limit that it was given and wakes a waker of the
//! embedder's. Only the runtime's own wait may come in between: a wait for a lock that another thread holds would be skipped as well.
//!
//! Tests: `tests/waits.rs`.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Duration;

thread_local! {
    /// Whether `WAIT` has a waker: a word without a destructor, which may be looked at at any time.
    static IS_ARMED: Cell<bool> = const { Cell::new(false) };
    static WAIT: RefCell<Wait> = const { RefCell::new(Wait { waker: None, skipped: None }) };
}

struct Wait {
    waker: Option<Waker>,
    skipped: Option<SkippedWait>,
}

/// A wait that an armed thread has skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SkippedWait {
    /// The end of the wait, as the machine's monotonic time since its start; `None` if it had no limit.
    pub until: Option<Duration>,
}

/// Arms this thread: within a [`Scope`](crate::Scope) its next wait for a futex wakes `waker` and returns at once, and [`take_wait`] then has its limit. A wait
/// whose limit has come already does not count.
pub fn arm_wait(waker: Waker) {
    let old = WAIT.with_borrow_mut(|wait| {
        wait.skipped = None;
        wait.waker.replace(waker)
    });
    IS_ARMED.set(true);
    drop(old);
}

/// Takes back what [`arm_wait`] did, if there was no wait since.
pub fn disarm_wait() {
    IS_ARMED.set(false);
    let old = WAIT.with_borrow_mut(|wait| wait.waker.take());
    drop(old);
}

/// The wait that was skipped since the last call.
pub fn take_wait() -> Option<SkippedWait> {
    WAIT.with_borrow_mut(|wait| wait.skipped.take())
}

/// A wait comes: whether it is skipped. Wakes the waker then, with nothing borrowed.
pub(crate) fn is_skipped(until: Option<Duration>) -> bool {
    if !IS_ARMED.replace(false) {
        return false;
    }
    let waker = WAIT.with_borrow_mut(|wait| {
        wait.skipped = Some(SkippedWait { until });
        wait.waker.take()
    });
    if let Some(waker) = waker {
        waker.wake();
    }
    true
}
