//! The cooperative budget that `tokio` gives a task each time it polls it.
//!
//! A task whose socket is always ready would never return to its runtime, and the other tasks of the thread would not
//! run. So each operation that can complete at once takes a unit of the budget when it does; once the budget is used up the
//! operation answers `Pending` and has the task woken, as `tokio`'s own sockets do. An operation that waits takes nothing.
//! On other executors, and without the feature `tokio`, the budget has no end.
//!
//! One operation takes one unit: functions that poll a socket do so inside of [`poll`] and do not nest. A batch is one operation.
//! Does not depend on the polled sources. Tests: `crates/stack/tests/tokio/coop.rs`.

use std::task::{Context, Poll};

/// Polls `operation` if the task has some of its budget left.
#[cfg(feature = "tokio")]
#[inline]
pub fn poll<R>(cx: &mut Context<'_>, operation: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
    // Takes a unit, which comes back when the permit is dropped without progress.
    let permit = std::task::ready!(::tokio::task::coop::poll_proceed(cx));
    let done = operation(cx);
    if done.is_ready() {
        permit.made_progress();
    }
    done
}

/// Polls `operation`.
#[cfg(not(feature = "tokio"))]
#[inline]
pub fn poll<R>(cx: &mut Context<'_>, operation: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
    operation(cx)
}

/// [`poll`] as a future.
#[cfg(feature = "tokio")]
pub fn cooperative<R>(mut operation: impl FnMut(&mut Context<'_>) -> Poll<R>) -> impl Future<Output = R> {
    std::future::poll_fn(move |cx| poll(cx, &mut operation))
}
