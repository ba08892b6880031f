//! The wait of a runtime that has nothing to do: it is skipped, and its embedder gets to know its limit.
//!
//! A runtime such as tokio's parks its thread until its next timer. In a simulation nothing would wake it, and the thread has other runtimes to run. So the
//! embedder [arms](arm_wait) its thread before the runtime parks: the next wait for a futex that has a limit does not wait, keeps the limit and wakes a waker of the
//! embedder's. A wait without a limit is for another thread, which holds a lock, and is a wait as always.
//!
//! A condition variable of `std` returns when its wait returns. One of `parking_lot`, which tokio uses with its features `parking_lot` and `full`, reads the clock and waits
//! again unless it was notified or its limit has come. `parking_lot` waits by `FUTEX_WAIT`, whose limit is relative. So after a skipped wait of that kind the thread's next
//! read of the monotonic clock returns the limit, once.
//!
//! Tests: `tests/waits.rs`.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Duration;

thread_local! {
    /// Whether `WAIT` has a waker: a word without a destructor, which may be looked at at any time.
    static IS_ARMED: Cell<bool> = const { Cell::new(false) };
    /// What this thread's next look at the monotonic clock shows, as nanoseconds; 0 for the time.
    static SHOWN_NEXT: Cell<u64> = const { Cell::new(0) };
    static WAIT: RefCell<Wait> = const { RefCell::new(Wait { waker: None, skipped: None }) };
}

struct Wait {
    waker: Option<Waker>,
    skipped: Option<SkippedWait>,
}

/// A wait that an armed thread has skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SkippedWait {
    /// The end of the wait, as the machine's monotonic time since its start.
    pub until: Duration,
}

/// Arms this thread: within a [`Scope`](crate::Scope) its next wait for a futex that has a limit wakes `waker` and returns at once, and [`take_wait`] then has the limit. A wait
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
    SHOWN_NEXT.set(0);
    let old = WAIT.with_borrow_mut(|wait| wait.waker.take());
    drop(old);
}

/// The wait that was skipped since the last call.
pub fn take_wait() -> Option<SkippedWait> {
    WAIT.with_borrow_mut(|wait| wait.skipped.take())
}

/// What the thread's monotonic clock shows in place of `now`, this once.
pub(crate) fn shown(now: u64) -> u64 {
    match SHOWN_NEXT.replace(0) {
        0 => now,
        late => late,
    }
}

/// The thread's next look at its monotonic clock shows `nanos`.
pub(crate) fn show_next(nanos: u64) {
    SHOWN_NEXT.set(nanos);
}

/// A wait with a limit comes: whether it is skipped. Wakes the waker then, with nothing borrowed.
pub(crate) fn is_skipped(until: Duration) -> bool {
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
