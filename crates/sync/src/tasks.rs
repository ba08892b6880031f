//! How a task begins to wait for a socket, and gives up.
//!
//! A task that is polled *looks* whether its condition holds, and if not comes onto the [`WaitList`] of the buffer, both in one section of that
//! buffer's mutex. Where readiness depends on more than that buffer, it looks at the rest *afterwards*.
//!
//! # States of a task's place
//!
//! | from → to | by |
//! |---|---|
//! | - → listed | [`register`]: it was not over at the look |
//! | listed → told | a `notify` or `close` of the list's owner, which takes the waker out |
//! | listed → - | [`leave`], when its future is dropped, or [`WaitList::remove`] when its handle is |
//!
//! # Why no wake-up is lost
//!
//! *Under the mutex of the list*: look and listing are one section, a change and its `notify` another one (`wait_list.rs`). *Elsewhere*: a
//! thread that changes something there makes the change first and notifies the list afterwards. The task is listed first and looks there
//! afterwards. If the look misses the change, then it is before it in the order of the other mutex (or word), so the listing is before the
//! telling, which finds the task. If both see each other, the task goes on and its entry is notified in vain, or removed.
//!
//! A task that goes on although it is listed leaves its place behind; the next `register` with the same key takes the place over, and `leave` ends it.
//!
//! # Foreign code
//!
//! A [`Waker`] comes in cloned. The one that is not kept goes to `discard`, outside of all locks. If that panics the task is on the list all the same.
//!
//! Does not depend on the awaited event. Tests: `tests/loom/tasks.rs`.

use std::task::Waker;

use crate::wait_list::{Key, Poller, WaitList};

/// A socket that tasks wait for.
pub trait Waitable {
    /// The pollers of its list.
    type Poller: Poller;
    /// Events to wait for.
    type Want: Copy;
    /// Why it cannot be waited for at all.
    type Error;

    /// Calls `f` under the mutex of the buffer that is waited for: with whether there is something, or never will be, and the
    /// buffer's list.
    ///
    /// # Errors
    /// The socket's own; `f` was not called.
    fn with_list<R>(
        &self,
        want: Self::Want,
        f: impl FnOnce(bool, &mut WaitList<Self::Poller>) -> R,
    ) -> Result<R, Self::Error>;

    /// Whether the condition holds by state under other mutexes than the list's. Asked after a task is on the list.
    ///
    /// # Errors
    /// The socket's own.
    fn is_ready_elsewhere(&self, want: Self::Want) -> Result<bool, Self::Error>;
}

/// Whether the wait is over. Lists no task.
///
/// # Errors
/// The socket's own.
pub fn is_over<S: Waitable>(socket: &S, want: S::Want) -> Result<bool, S::Error> {
    Ok(socket.with_list(want, |is_over, _| is_over)? || socket.is_ready_elsewhere(want)?)
}

/// Whether the wait is over; if not, `waker` is on the list, in the place of `key`. A waker that is not kept, be it `waker` or the
/// one that was in that place, goes to `discard`.
///
/// # Errors
/// The socket's own. If only the second look has failed, the task is on the list.
pub fn register<S: Waitable>(
    socket: &S,
    want: S::Want,
    key: impl FnOnce(&mut WaitList<S::Poller>) -> Key,
    waker: Waker,
    discard: impl FnOnce(Waker),
) -> Result<bool, S::Error> {
    let (is_over, unused) = socket.with_list(want, |is_over, list| {
        if is_over {
            return (true, Some(waker));
        }
        let key = key(list);
        (false, list.register(key, waker))
    })?;
    if let Some(unused) = unused {
        discard(unused);
    }
    Ok(is_over || socket.is_ready_elsewhere(want)?)
}

/// A future with this key is dropped. Its waker, if it was not told, goes to `discard`.
///
/// # Errors
/// The socket's own; no task may leave the place any more.
pub fn leave<S: Waitable>(
    socket: &S,
    want: S::Want,
    key: Key,
    discard: impl FnOnce(Waker),
) -> Result<(), S::Error> {
    let gone = socket.with_list(want, |_, list| list.remove(key))?;
    if let Some(gone) = gone {
        discard(gone);
    }
    Ok(())
}
