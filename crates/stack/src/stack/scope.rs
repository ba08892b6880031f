//! The current stack: that of the sockets which are made without naming one.
//!
//! A scope is a thread's own and ends with the call. Does not depend on sockets. Tests: `tests/tcp/seeded.rs`,
//! `tests/unix/stacks.rs`.

use std::cell::RefCell;

use crate::rt::handle::Stack;

thread_local! {
    /// The stack of the innermost scope.
    static AMBIENT: RefCell<Option<Stack>> = const { RefCell::new(None) };
}

/// The stack of the scope around, put back at the end of the inner one.
struct Outer(Option<Stack>);

impl Drop for Outer {
    fn drop(&mut self) {
        // The inner stack is dropped outside of the cell: its end may run code that asks for the current one.
        let inner = AMBIENT.replace(self.0.take());
        drop(inner);
    }
}

impl Stack {
    /// The stack used by calls that name none: that of the innermost [`scope`](Self::scope) on this thread, else
    /// [`global`](Self::global).
    pub fn current() -> Self {
        Self::of_scope().unwrap_or_else(|| Self::global().clone())
    }

    /// The [`current`](Self::current) stack, unless that is a default stack which nothing has used yet.
    #[cfg(all(feature = "tokio", unix))]
    pub(crate) fn current_if_used() -> Option<Self> {
        Self::of_scope().or_else(|| Self::global_if_used().cloned())
    }

    /// The stack of the innermost scope. A thread that ends, and has no thread-local values any more, is in none.
    fn of_scope() -> Option<Self> {
        AMBIENT.try_with(|ambient| ambient.borrow().clone()).ok().flatten()
    }

    /// Calls `f`. Within it, sockets of every kind that are made without naming a stack belong to this stack:
    /// `TcpStream::connect` connects on it instead of on the process's default stack, and `UnixStream::connect` finds
    /// its names. A socket keeps its stack afterwards.
    ///
    /// The scope is the call, on this thread. An asynchronous constructor looks up the current stack when its future is
    /// first polled, so the poll must also be within the scope.
    ///
    /// ```
    /// use sockeye::{Config, Stack};
    /// use sockeye::unix::{UnixListener, UnixStream};
    ///
    /// let stack = Stack::new(Config::default())?;
    /// let listener = stack.scope(|| UnixListener::bind("/run/service"))?;
    /// assert!(stack.scope(|| UnixStream::connect("/run/service")).is_ok());
    /// assert!(UnixStream::connect("/run/service").is_err(), "the default stack has no such name");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn scope<R>(&self, f: impl FnOnce() -> R) -> R {
        let _outer = Outer(AMBIENT.replace(Some(self.clone())));
        f()
    }
}
