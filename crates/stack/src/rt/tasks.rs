//! Tasks that wait for a socket.
//!
//! A task waits on the [`WaitList`](sockeye_sync::WaitList) of the buffer that it waits for, like threads and pollers; that file describes its
//! entries, and `sockeye_sync`'s [`tasks`](mod@sockeye_sync::tasks) how it comes onto it and why no wake-up is lost. That happens in one of two
//! ways:
//!
//! * a *poll function* ([`poll`]) uses the place of its handle for its direction ([`Places`]). Of several tasks that call it on one handle the last is
//!   woken, as in tokio; a handle that is dropped leaves the list, and takes nothing from the other handles of its socket;
//! * a *future* ([`Waiting`]) has a place of its own for as long as it lives. Any number of them waits, all are woken, and one that is dropped
//!   leaves the list.
//!
//! # Foreign code
//! A waker is the application's. It is cloned before the mutex of the list is locked, and the waker that the list gives back is dropped
//! after it is unlocked; both may use the same socket. A panic in either is caught and counted ([`panics`]). After a panic in `clone`
//! there is nothing that could be woken, so the call fails with [`waker_panicked`] and the list is as it was.
//!
//! Does not depend on the awaited event. Tests: `tests/waiting`; models in
//! `crates/sync/tests/loom/{tasks,wait_list}.rs`.

use std::io;
use std::task::{Poll, Waker};

use sockeye_sync::facade::OnceLock;
use sockeye_sync::{Key, tasks};

use crate::rt::env::Env;
use crate::rt::handle::Stack;
use crate::rt::panics::{self, PanicSource};
use crate::rt::poll::{Ready, Registration, Waiters};

/// Events that a task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// A receive or accept that does not block.
    Read,
    /// A send that does not block.
    Write,
    /// The end of a handshake.
    Connect,
    /// Urgent data, or the end of received data.
    Priority,
    /// A pending error, or a report on sent bytes.
    Error,
}

impl Want {
    fn interest(self) -> u8 {
        match self {
            Self::Read => Ready::READABLE.with(Ready::ERROR).bits(),
            Self::Write | Self::Connect => Ready::WRITABLE.with(Ready::ERROR).bits(),
            // The end of a direction wakes those that wait for its data.
            Self::Priority => Ready::PRIORITY.with(Ready::READABLE).with(Ready::ERROR).bits(),
            Self::Error => Ready::READABLE.with(Ready::WRITABLE).with(Ready::ERROR).bits(),
        }
    }
}

/// A socket that tasks wait for.
pub(crate) trait Waitable {
    /// # Errors
    /// That of a stack which this process may not use; so have all of these.
    fn env(&self) -> io::Result<&Env>;

    /// Calls `f` under the mutex of the buffer that is waited for: with whether there is something, or never will be, and the
    /// buffer's list.
    fn with_list<R>(&self, want: Want, f: impl FnOnce(bool, &mut Waiters) -> R) -> io::Result<R>;

    /// Whether the condition holds by state under other mutexes than the list's. Asked after a task is on the list.
    fn is_ready_elsewhere(&self, _want: Want) -> io::Result<bool> {
        Ok(false)
    }
}

/// A handle whose poll functions wait.
pub(crate) trait Polled: Waitable {
    fn places(&self) -> &Places;
}

/// What a handle is for, and its poll functions wait for.
pub(crate) trait Listed {
    /// Takes a task off the list on which it waits for `want`. Its waker is to be dropped with no lock held.
    fn take_off(&self, want: Want, key: Key) -> Option<Waker>;
}

/// The places of a handle's poll functions, each on the list of its direction from the first wait on. Set under the mutex of that list.
#[derive(Default)]
pub(crate) struct Places {
    read: OnceLock<Key>,
    write: OnceLock<Key>,
}

impl Places {
    fn of(&self, want: Want) -> &OnceLock<Key> {
        match want {
            Want::Read => &self.read,
            Want::Write => &self.write,
            Want::Connect | Want::Priority | Want::Error => unreachable!("only futures wait for {want:?}"),
        }
    }

    /// The handle is dropped: its tasks leave the lists.
    pub fn leave(&self, stack: &Stack, target: &impl Listed) {
        for want in [Want::Read, Want::Write] {
            if let Some(key) = self.of(want).get()
                && let Ok(env) = stack.core()
            {
                discard(env, target.take_off(want, *key));
            }
        }
    }
}

/// Ready when the wait is over; else `waker` is called then. For poll functions, after an attempt that would have blocked.
///
/// # Errors
/// [`waker_panicked`].
pub(crate) fn poll(socket: &impl Polled, want: Want, waker: &Waker) -> Poll<io::Result<()>> {
    let place = |list: &mut Waiters| *socket.places().of(want).get_or_init(|| list.issue(want.interest()));
    register(socket, want, place, waker)
}

/// [`poll`] without an attempt before it: does not clone the waker if the wait is over.
///
/// # Errors
/// [`waker_panicked`].
pub(crate) fn poll_first(socket: &impl Polled, want: Want, waker: &Waker) -> Poll<io::Result<()>> {
    if is_over(socket, want)? { Poll::Ready(Ok(())) } else { poll(socket, want, waker) }
}

/// The wait of one future.
pub(crate) struct Waiting<'a, S: Waitable> {
    socket: &'a S,
    want: Want,
    key: Option<Key>,
}

impl<'a, S: Waitable> Waiting<'a, S> {
    pub fn new(socket: &'a S, want: Want) -> Self {
        Self { socket, want, key: None }
    }

    /// As [`poll`], for this future alone.
    pub fn poll(&mut self, waker: &Waker) -> Poll<io::Result<()>> {
        let (want, key) = (self.want, &mut self.key);
        let own = |list: &mut Waiters| *key.get_or_insert_with(|| list.issue(want.interest()));
        register(self.socket, want, own, waker)
    }

    /// [`poll`](Self::poll) without an attempt before it: does not clone the waker if the wait is over.
    pub fn poll_first(&mut self, waker: &Waker) -> Poll<io::Result<()>> {
        if is_over(self.socket, self.want)? { Poll::Ready(Ok(())) } else { self.poll(waker) }
    }
}

impl<S: Waitable> Drop for Waiting<'_, S> {
    fn drop(&mut self) {
        // In a child of fork(2) the list is its parent's.
        if let Some(key) = self.key
            && let Ok(env) = self.socket.env()
        {
            let _or_lost = tasks::leave(&Of(self.socket), self.want, key, |gone| discard(env, Some(gone)));
        }
    }
}

/// A socket as `sockeye_sync` has it.
struct Of<'a, S>(&'a S);

impl<S: Waitable> tasks::Waitable for Of<'_, S> {
    type Poller = Registration;
    type Want = Want;
    type Error = io::Error;

    #[inline]
    fn with_list<R>(&self, want: Want, f: impl FnOnce(bool, &mut Waiters) -> R) -> io::Result<R> {
        self.0.with_list(want, f)
    }

    #[inline]
    fn is_ready_elsewhere(&self, want: Want) -> io::Result<bool> {
        self.0.is_ready_elsewhere(want)
    }
}

/// Whether there is nothing to wait for. Adds no task to the list.
pub(crate) fn is_over(socket: &impl Waitable, want: Want) -> io::Result<bool> {
    tasks::is_over(&Of(socket), want)
}

fn register(
    socket: &impl Waitable,
    want: Want,
    key: impl FnOnce(&mut Waiters) -> Key,
    waker: &Waker,
) -> Poll<io::Result<()>> {
    let env = socket.env()?;
    let Some(own) = clone(env, waker) else { return Poll::Ready(Err(waker_panicked())) };
    let is_over = tasks::register(&Of(socket), want, key, own, |unused| discard(env, Some(unused)))?;
    if is_over { Poll::Ready(Ok(())) } else { Poll::Pending }
}

/// A clone of a task's waker, made with no lock held. `None` if that panicked.
pub(crate) fn clone(env: &Env, waker: &Waker) -> Option<Waker> {
    panics::contain(env, PanicSource::Waker, "Waker::clone", || waker.clone())
}

/// Drops a waker that a list has given back, with no lock held.
#[inline]
pub(crate) fn discard(env: &Env, waker: Option<Waker>) {
    if let Some(waker) = waker {
        panics::contain(env, PanicSource::Waker, "Waker::drop", || drop(waker));
    }
}

/// The error of a wait whose task cannot be woken.
pub(crate) fn waker_panicked() -> io::Error {
    io::Error::other("the task's waker panicked while it was cloned: nothing could wake the task")
}
