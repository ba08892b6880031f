//! Kind of the calling thread: an application's, or one of a stack.
//!
//! Threads of a stack run wakers, hooks and interfaces of the application, so the application's code may find itself on one,
//! of this stack or of another. Operations that are forbidden there ask here. Does not depend on the threads' work. Tests:
//! `tests/panics/`.

use std::cell::Cell;

/// Purpose of a thread of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It runs timers and the work that others have left.
    Worker,
    /// It takes in the frames of one queue.
    Input,
}

thread_local! {
    static ROLE: Cell<Option<Role>> = const { Cell::new(None) };
}

/// The calling thread begins its life.
pub(crate) fn enter(role: Role) {
    ROLE.set(Some(role));
}

/// Whether the calling thread is a worker, of whatever stack: one that must not wait for a worker.
pub(crate) fn is_worker() -> bool {
    ROLE.get() == Some(Role::Worker)
}

/// Whether the calling thread is one of a stack, whichever: one that must not wait for the end of such a thread.
pub(crate) fn is_of_a_stack() -> bool {
    ROLE.get().is_some()
}
