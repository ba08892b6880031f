//! Stacks and sockets in a child of fork(2).
//!
//! A child has one thread, and a copy of everything, in the state in which the parent's threads were working on it. So
//!
//! * a stack *with threads* is **lost** there: its workers do not exist, and one of them may hold any of its locks.
//!   Every call on the stack and its sockets fails with an error of the kind `StaleNetworkFileHandle`, and dropping
//!   them frees nothing;
//! * a stack *without threads* (`Config::workers` = 0) is **adopted** by the first call of the child: its interfaces
//!   are detached, its keys for generating numbers are changed, and it continues. That is sound only if no other thread
//!   of the parent was in a call of the stack, which the application must ensure.
//!
//! # How every call is made to ask
//! No part of a stack can be reached without asking whether this process may use it. `Stack` gives out its core only
//! through `Stack::core`, which asks. A socket keeps its target in a `Held`, whose value is private to this file and is
//! only given out by `Held::open` and `Held::enter`, which ask. All three return `Result`, so a new call does not
//! compile until it handles the case of a child. Code inside (`Context`, protocol code, the types behind a `Held`) is
//! only reached through them. `Stack::core_in_use` is for those types; `tests/fork.rs` lists the files that call it.
//!
//! The other objects that an application holds ask their own [`Origin`]: a `Poll`, the program's side of a channel, a
//! wire, a capture. Packet memory asks before it takes a lock (`sockeye_mbuf`'s `store.rs`), since chains of it are
//! dropped everywhere.
//!
//! Asking takes no lock and writes nothing: see `sockeye_sync::fork`. Semantics for users: `docs/fork.md`. Tests:
//! `crates/drivers/tests/fork`, where fork(2) may be called.

use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};

use sockeye_sync::Mutex;
use sockeye_sync::facade::Arc;
pub use sockeye_sync::fork::Origin;

use crate::rt::env::Env;
use crate::rt::handle::{Layer, Stack, Whole};
use crate::rt::tasks::{Listed, Places};

/// The error of every call on a stack whose threads are the parent's.
#[cold]
pub(crate) fn lost() -> io::Error {
    io::Error::new(
        io::ErrorKind::StaleNetworkFileHandle,
        "this process was forked from the one whose threads drive the stack: make a new stack and new sockets here, or exec",
    )
}

/// A stack's record of its process.
pub(crate) struct Home {
    origin: Origin,
    adopting: Mutex<()>,
}

impl Home {
    pub fn here() -> Self {
        Self { origin: Origin::here(), adopting: Mutex::new(()) }
    }
}

/// Whether the calling process may use a stack.
///
/// # Errors
/// [`lost`].
#[inline]
pub(crate) fn ask(whole: &Arc<dyn Whole>, env: &Env) -> io::Result<()> {
    if env.home.origin.is_here() { Ok(()) } else { ask_in_child(whole, env) }
}

/// Whether nothing of the stack may be touched.
#[inline]
pub(crate) fn is_lost(env: &Env) -> bool {
    !env.home.origin.is_here() && env.config.workers > 0
}

#[cold]
fn ask_in_child(whole: &Arc<dyn Whole>, env: &Env) -> io::Result<()> {
    if env.config.workers > 0 {
        return Err(lost());
    }
    let inherited = {
        // No other thread of the parent was in a call, so this is free, or held by a thread of ours.
        let _adopting = env.home.adopting.lock();
        if env.home.origin.is_here() { Vec::new() } else { adopt(whole, env) }
    };
    // Outside the lock: it wakes the threads that waited for a connection.
    for netif in inherited {
        whole.lose(netif);
    }
    Ok(())
}

/// Under `adopting`: makes the stack this process's. Returns the interfaces that it has lost.
fn adopt(whole: &Arc<dyn Whole>, env: &Env) -> Vec<u16> {
    env.pool.adopt();
    let inherited = whole.adopt();
    if !inherited.is_empty() {
        // Interfaces are foreign code whose end may change a device that is the parent's: they never end here.
        std::mem::forget(Arc::clone(whole));
    }
    env.home.origin.adopt();
    inherited
}

/// The target of an application's handle; see the module's head.
pub(crate) struct Held<T: Listed> {
    stack: Stack,
    /// Those of this handle's poll functions.
    places: Places,
    /// Always there, but in a handle that was made in a child for a lost stack.
    value: Option<T>,
}

// A panic that leaves a call leaves no socket half changed: those of protocol code are contained (`panics.rs`), and the locks of the
// others say so themselves.
impl<T: Listed> UnwindSafe for Held<T> {}
impl<T: Listed> RefUnwindSafe for Held<T> {}

impl<T: Listed> Held<T> {
    pub fn new(stack: Stack, value: T) -> Self {
        Self { stack, places: Places::default(), value: Some(value) }
    }

    /// For a constructor that cannot fail: without the value, if the stack is lost.
    pub fn try_new(stack: &Stack, make: impl FnOnce() -> T) -> Self {
        let value = stack.core::<Env>().is_ok().then(make);
        Self { stack: stack.clone(), places: Places::default(), value }
    }

    /// The value.
    ///
    /// # Errors
    /// [`lost`].
    #[inline]
    pub fn open(&self) -> io::Result<&T> {
        self.enter::<Env>().map(|(_, value)| value)
    }

    /// The value, and the shared state of its layer's sockets.
    ///
    /// # Errors
    /// [`lost`].
    #[inline]
    pub fn enter<L: Layer>(&self) -> io::Result<(&L, &T)> {
        let core = self.stack.core()?;
        Ok((core, self.value.as_ref().ok_or_else(lost)?))
    }

    /// The value, without taking over a stack that was not called in this process: for code that counts handles under a
    /// lock.
    pub fn unless_lost(&self) -> Option<&T> {
        if self.stack.is_lost() { None } else { self.value.as_ref() }
    }

    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    #[cfg(feature = "tokio")]
    pub fn places(&self) -> &Places {
        &self.places
    }
}

impl<T: Listed> Drop for Held<T> {
    fn drop(&mut self) {
        if self.stack.is_lost() {
            std::mem::forget(self.value.take());
        } else if let Some(value) = &self.value {
            self.places.leave(&self.stack, value);
        }
    }
}
