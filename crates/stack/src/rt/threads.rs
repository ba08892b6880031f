//! What the calling thread is: an application's, or one of a stack.
//!
//! Threads of a stack run wakers, hooks and interfaces of the application, so the application's code may find itself on one,
//! of this stack or of another. What must not be done there asks here. Does not depend on what the threads do. Tests:
//! `tests/panics/`.

use std::cell::Cell;

/// What a thread of a stack is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It turns timers and does what others have left.
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
