//! Where programs get signals from: the source of a stack.
//!
//! A stack asks the application's [`Signals`] if it has one, else signals are the process's (`tokio/signal.rs`). Only tasks ask.
//!
//! The source is foreign code: it is called, polled and dropped with no lock held, and a panic in it is caught, reported and the end of what was
//! asked for. Does not depend on sockets. Tests: `tests/tokio/signals.rs`.

use std::io;
use std::task::{Context, Poll};

use crate::rt::asked::{self, Slot};
use crate::rt::env::Env;
use crate::rt::handle::Stack;
use crate::rt::panics::{self, PanicSource};

/// A source of signals for the programs on a stack, instead of the process: [`Stack::set_signals`].
///
/// The stack calls it when a program on it calls [`sockeye::tokio::signal`](crate::tokio::signal). If a program runs
/// several times in a process, each on its own stack, each instance can be told to end; the simulator's hosts use this.
///
/// ```
/// use std::io;
/// use std::task::{Context, Poll};
/// use sockeye::{SignalStream, Config, Signals, Stack};
///
/// /// Sends each signal once, at once.
/// struct Once;
///
/// struct Sent(bool);
///
/// impl Signals for Once {
///     fn catch(&self, _: &Stack, _kind: i32) -> io::Result<Box<dyn SignalStream>> {
///         Ok(Box::new(Sent(false)))
///     }
/// }
///
/// impl SignalStream for Sent {
///     fn poll_recv(&mut self, _: &mut Context<'_>) -> Poll<Option<()>> {
///         if std::mem::replace(&mut self.0, true) { Poll::Ready(None) } else { Poll::Ready(Some(())) }
///     }
/// }
///
/// let stack = Stack::new(Config::default())?;
/// stack.set_signals(Some(Box::new(Once)));
/// stack.scope(|| pollster::block_on(sockeye::tokio::signal::ctrl_c()))?;
/// # io::Result::Ok(())
/// ```
pub trait Signals: Send + Sync {
    /// A program requests the signals of one kind from now on. `kind` is the operating system's number. Signals that
    /// cannot be caught, such as `SIGKILL`, are refused before this call.
    ///
    /// # Errors
    /// The source's own: they are passed on. After a panic, which is caught and reported ([`Stack::set_panic_hook`]), `Other`.
    fn catch(&self, stack: &Stack, kind: i32) -> io::Result<Box<dyn SignalStream>>;
}

/// The signals of one kind for one [`Signal`](crate::tokio::signal::unix::Signal); it is dropped with that.
pub trait SignalStream: Send + Sync {
    /// Whether a signal has arrived since the last one; several count as one. After `Pending`, the next signal wakes
    /// the task of the last call. `None` if no more will arrive.
    ///
    /// It must not block. A panic is caught and reported, and ends the stream: it is not polled again.
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>>;
}

/// The source that the application has set.
pub(crate) type Source = Slot<dyn Signals>;

/// A source that is kept while it is asked.
pub(crate) type Asked = asked::Asked<dyn Signals>;

impl Asked {
    /// The source of a stack; `None` if it is the process.
    ///
    /// # Errors
    /// That of a stack which this process may not use.
    pub fn of(stack: &Stack) -> io::Result<Option<Self>> {
        Ok(stack.core::<Env>()?.signals.get())
    }

    /// Asks for the signals of one kind.
    pub fn catch(self, stack: &Stack, kind: i32) -> io::Result<Contained> {
        let env: &Env = stack.core()?;
        let asked = self.value().and_then(|signals| {
            panics::contain(env, PanicSource::Hook, "Signals::catch", || signals.catch(stack, kind))
        });
        let caught = asked.unwrap_or_else(|| Err(io::Error::other("the source of signals panicked")))?;
        Ok(Contained { stack: stack.clone(), caught: Some(caught) })
    }
}

/// Signals of the application's source whose panics are caught; none if it has panicked.
pub(crate) struct Contained {
    stack: Stack,
    caught: Option<Box<dyn SignalStream>>,
}

impl Contained {
    /// See [`SignalStream::poll_recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let Ok(env) = self.stack.core::<Env>() else { return Poll::Ready(None) };
        let Some(caught) = &mut self.caught else { return Poll::Ready(None) };
        let poll = || caught.poll_recv(cx);
        panics::contain(env, PanicSource::Hook, "SignalStream::poll_recv", poll).unwrap_or_else(|| {
            panics::release(env, PanicSource::Hook, "the drop of SignalStream", self.caught.take());
            Poll::Ready(None)
        })
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        panics::discard(self.caught.take());
    }
}
