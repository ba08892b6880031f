//! Panics that the stack catches: those of the application's code, and those of its own protocol code.
//!
//! Wakers, hooks and interfaces belong to the application. The stack calls them on its own threads and in the middle of its own
//! work, so a panic in one is caught right where the call was made ([`catch`]): the rest of the same call is done, and no thread
//! of the stack ends. A panic in protocol code is a bug of the stack. It is caught where the protocol code was entered, and ends
//! the connection or the table entry that it was about.
//!
//! Catching and reporting are two steps, because a panic may be caught while a lock is held. A [`Caught`] is inert: it owns the
//! panic's payload, and [`Caught::report`], which counts it and calls the application's hook, is called after all locks are let go
//! (from inside protocol code through an outbox). The hook is foreign code as well: it is called with no lock held, and a panic in
//! it is counted and goes nowhere.
//!
//! Does not depend on which code panics. Tests: below, `tests/panics/`.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;
use sockeye_netif::Waking;
use sockeye_sync::facade::{Arc, Weak};
use sockeye_sync::{Mutex, discard_payload};

use crate::base::errno;
use crate::rt::counter;
use crate::rt::env::Env;
use crate::rt::fork;
use crate::rt::handle::Whole;

/// The kind of code that panicked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum PanicSource {
    /// The waker of a task, while it was called, cloned or dropped.
    Waker,
    /// A hook or filter of the application (for SYNs, a driver, a capture), or its name resolver.
    Hook,
    /// An interface ([`Netif`](crate::netif::Netif)) or the code that it calls.
    Netif,
    /// The stack's own protocol code. This is a bug of the stack; the affected connection or entry was dropped.
    Protocol,
}

/// A panic that the stack has caught: see [`Stack::set_panic_hook`](crate::Stack::set_panic_hook).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PanicReport {
    /// The kind of code that panicked.
    pub source: PanicSource,
    /// The call that panicked, for humans: `Waker::wake`, `Netif::transmit`, `segment input`.
    pub place: &'static str,
    /// The panic's message, or `(no message)` if it carried no text.
    pub message: String,
}

impl fmt::Display for PanicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} panicked: {}", self.place, self.message)
    }
}

/// The hook that the application has set with [`Stack::set_panic_hook`](crate::Stack::set_panic_hook).
pub(crate) type Hook = dyn Fn(&PanicReport) + Send + Sync;

/// The hook that a stack calls for panics. The mutex is a leaf; the hook is called and dropped outside of it.
#[derive(Default)]
pub(crate) struct Panics {
    hook: Mutex<Option<Arc<Box<Hook>>>>,
}

impl Panics {
    /// Sets the hook, or takes it away.
    pub fn set_hook(&self, hook: Option<Box<Hook>>) {
        let before = std::mem::replace(&mut *self.hook.lock(), hook.map(Arc::new));
        discard(before);
    }
}

/// The object by which an interface wakes tasks: their panics are reported to the stack, as long as it is
/// there. And the driver of a stack without threads.
pub(crate) fn waking<W: Whole + 'static>(whole: &Arc<W>) -> Waking {
    let has_threads = whole.env().config.workers > 0;
    let whole = Arc::downgrade(whole);
    let driven = Weak::clone(&whole);
    let waking =
        Waking::reporting(move |payload| match whole.upgrade().filter(|whole| !fork::is_lost(whole.env())) {
            Some(whole) => {
                Caught { source: PanicSource::Waker, place: "Waker::wake", payload }.report(whole.env())
            }
            None => discard_payload(payload),
        });
    if has_threads {
        return waking;
    }
    waking.announcing(move || {
        if let Some(whole) = driven.upgrade().filter(|whole| !fork::is_lost(whole.env())) {
            whole.env().workers.ask_driver(whole.env());
        }
    })
}

/// A panic that was caught and is to be reported after all locks are let go. Dropped unreported it is only forgotten.
#[must_use = "a panic is to be reported, outside all locks"]
pub(crate) struct Caught {
    source: PanicSource,
    place: &'static str,
    payload: Box<dyn Any + Send>,
}

/// Calls `f` and catches its panic. `source` and `place` name the callee.
///
/// Whatever `f` had borrowed must be usable after it was left half way: that is for the caller to see to, as with
/// [`AssertUnwindSafe`].
#[inline]
pub(crate) fn catch<R>(source: PanicSource, place: &'static str, f: impl FnOnce() -> R) -> Result<R, Caught> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| Caught { source, place, payload })
}

/// Calls foreign code with no lock held; a panic is caught and reported at once.
#[inline]
pub(crate) fn contain<R>(
    env: &Env,
    source: PanicSource,
    place: &'static str,
    f: impl FnOnce() -> R,
) -> Option<R> {
    match catch(source, place, f) {
        Ok(result) => Some(result),
        Err(caught) => {
            caught.report(env);
            None
        }
    }
}

/// Runs a call of the application, with no lock held. If the stack's own code panics in it the call fails. The sections inside see
/// to it that the call has had no effect.
#[inline]
pub(crate) fn call<R>(env: &Env, place: &'static str, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    contain(env, PanicSource::Protocol, place, call).unwrap_or_else(|| Err(error()))
}

/// [`call`] of a socket whose errors are numbers: EIO.
#[inline]
pub(crate) fn call_or_errno<R>(
    env: &Env,
    place: &'static str,
    call: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, Errno> {
    contain(env, PanicSource::Protocol, place, call).unwrap_or(Err(errno::IO))
}

/// The error of a call in which the stack's own code has panicked.
#[cold]
pub(crate) fn error() -> io::Error {
    io::Error::other(PANICKED)
}

const PANICKED: &str = "the stack's protocol code panicked in this call, which has no effect: this is a bug of the stack; please report \
                        it with the message of the panic";

/// Drops a value of the application's with no lock held; a panic in its drop is caught and reported.
pub(crate) fn release<T>(env: &Env, source: PanicSource, place: &'static str, value: T) {
    contain(env, source, place, || drop(value));
}

/// Drops a value of the application's whose drop may panic, with no lock held and no caller to report to.
pub(crate) fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        discard_payload(payload);
    }
}

impl Caught {
    /// Lets the panic go on, to the next frame that catches it.
    #[cold]
    pub fn resume(self) -> ! {
        std::panic::resume_unwind(self.payload)
    }

    /// Counts the panic and calls the application's hook. Outside all locks.
    #[cold]
    pub fn report(self, env: &Env) {
        env.count(match self.source {
            PanicSource::Waker | PanicSource::Hook | PanicSource::Netif => counter::PANICS_FOREIGN,
            PanicSource::Protocol => counter::PANICS_PROTOCOL,
        });
        let hook = env.panics.hook.lock().clone();
        if let Some(hook) = hook {
            let report = PanicReport { source: self.source, place: self.place, message: self.message() };
            // Panics of the hook itself are counted only.
            if let Err(caught) = catch(PanicSource::Hook, "the panic hook", || hook(&report)) {
                env.count(counter::PANICS_FOREIGN);
                discard_payload(caught.payload);
            }
            // It may have been replaced meanwhile; then this is its last reference.
            discard(hook);
        }
        discard_payload(self.payload);
    }

    fn message(&self) -> String {
        let text = self.payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| self.payload.downcast_ref::<String>().cloned());
        text.unwrap_or_else(|| "(no message)".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::Stack;
    use std::sync::Mutex as StdMutex;

    fn stack() -> Stack {
        Stack::new(Config { workers: 0, ..Config::default() }).unwrap()
    }

    fn count(stack: &Stack, name: &str) -> u64 {
        stack.counters().into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn a_caught_panic_is_counted_and_reported_to_the_hook_once() {
        let (stack, reported) = (stack(), std::sync::Arc::new(StdMutex::new(Vec::new())));
        let listener = reported.clone();
        stack.set_panic_hook(Some(move |report: &PanicReport| {
            listener.lock().unwrap().push(report.to_string());
        }));
        let core = stack.core().unwrap();
        assert_eq!(contain(core, PanicSource::Waker, "Waker::wake", || 7), Some(7));
        assert_eq!(contain::<()>(core, PanicSource::Waker, "Waker::wake", || panic!("one")), None);
        assert_eq!(contain::<()>(core, PanicSource::Protocol, "input", || panic!("{}", 2)), None);
        let number = || std::panic::panic_any(3);
        assert_eq!(contain::<()>(core, PanicSource::Netif, "Netif::ring", number), None);
        let expected =
            ["Waker::wake panicked: one", "input panicked: 2", "Netif::ring panicked: (no message)"];
        assert_eq!(*reported.lock().unwrap(), expected);
        assert_eq!((count(&stack, "panics_foreign"), count(&stack, "panics_protocol")), (2, 1));
        stack.set_panic_hook(None::<fn(&PanicReport)>);
        assert_eq!(contain::<()>(core, PanicSource::Hook, "a hook", || panic!("unheard")), None);
        assert_eq!(reported.lock().unwrap().len(), 3);
        assert_eq!(count(&stack, "panics_foreign"), 3);
    }

    #[test]
    fn a_hook_that_panics_or_replaces_itself_does_no_harm() {
        struct PanicsWhenDropped;
        impl Drop for PanicsWhenDropped {
            fn drop(&mut self) {
                panic!("while it is dropped");
            }
        }
        let stack = stack();
        let (inner, held) = (stack.downgrade(), PanicsWhenDropped);
        stack.set_panic_hook(Some(move |_: &PanicReport| {
            let _held = &held;
            if let Some(stack) = inner.upgrade() {
                stack.set_panic_hook(None::<fn(&PanicReport)>);
            }
            panic!("in the hook");
        }));
        let payload = || std::panic::panic_any(PanicsWhenDropped);
        assert_eq!(contain::<()>(stack.core().unwrap(), PanicSource::Waker, "Waker::wake", payload), None);
        assert_eq!(count(&stack, "panics_foreign"), 2, "the waker's and the hook's own");
    }
}
