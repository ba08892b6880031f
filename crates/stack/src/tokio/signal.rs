//! Signals, in the shape of `tokio::signal`: a program that says `sockeye::tokio::signal` in its place is told to end wherever it runs.
//!
//! They are the process's, by `tokio::signal`, unless the current stack ([`Stack::current`](crate::Stack::current)) has a source of its own
//! ([`Stack::set_signals`](crate::Stack::set_signals)), as each host of the simulator has. No stack is made for the question.
//!
//! ```no_run
//! # async fn serve() -> std::io::Result<()> {
//! let listener = sockeye::tokio::TcpListener::bind("0.0.0.0:80").await?;
//! loop {
//!     tokio::select! {
//!         accepted = listener.accept() => drop(accepted?),
//!         told = sockeye::tokio::signal::ctrl_c() => return told,
//!     }
//! }
//! # }
//! ```
//!
//! Tests: `tests/tokio/signals.rs`, the simulator's `tests/hosts/signals.rs`.

#[cfg(unix)]
use std::io;

#[cfg(not(unix))]
pub use ::tokio::signal::ctrl_c;

/// Waits for Ctrl-C (`SIGINT`), as `tokio::signal::ctrl_c`: once it was called, the signal does not end the process any more.
///
/// # Errors
/// As of [`unix::signal`].
///
/// # Panics
/// As there.
#[cfg(unix)]
pub async fn ctrl_c() -> io::Result<()> {
    unix::signal(unix::SignalKind::interrupt())?.recv().await;
    Ok(())
}

/// Signals of Unix, in the shape of `tokio::signal::unix`.
#[cfg(unix)]
pub mod unix {
    use std::fmt;
    use std::future::poll_fn;
    use std::io;
    use std::task::{Context, Poll};

    use rustix::process::Signal as Number;

    #[doc(inline)]
    pub use ::tokio::signal::unix::SignalKind;

    use crate::rt::handle::Stack;
    use crate::rt::signals::{Asked, Contained};

    /// Gets the signals of one kind: [`signal`].
    pub struct Signal {
        kind: SignalKind,
        source: Source,
    }

    enum Source {
        Process(::tokio::signal::unix::Signal),
        Stack(Contained),
    }

    /// Asks for the signals of one kind, as `tokio::signal::unix::signal`: from now on until the process ends, they do not do what they would.
    ///
    /// # Errors
    /// `Other` for a signal that cannot be caught (`SIGKILL`, `SIGSTOP`, `SIGILL`, `SIGFPE`, `SIGSEGV`, and numbers below one); else those of the source.
    ///
    /// # Panics
    /// If the signals are the process's, outside of a runtime of tokio with its I/O enabled.
    pub fn signal(kind: SignalKind) -> io::Result<Signal> {
        let source = match Stack::current_if_used() {
            Some(stack) => Asked::of(&stack)?.map(|asked| (stack, asked)),
            None => None,
        };
        let source = match source {
            Some((stack, asked)) => {
                let number = kind.as_raw_value();
                if number <= 0 || NEVER_CAUGHT.iter().any(|never| never.as_raw() == number) {
                    return Err(io::Error::other(format!("signal {number} cannot be caught")));
                }
                Source::Stack(asked.catch(&stack, number)?)
            }
            None => Source::Process(::tokio::signal::unix::signal(kind)?),
        };
        Ok(Signal { kind, source })
    }

    /// tokio refuses the same ones.
    const NEVER_CAUGHT: [Number; 5] = [Number::KILL, Number::STOP, Number::ILL, Number::FPE, Number::SEGV];

    impl Signal {
        /// Waits for the next one; those that come faster than they are taken become one. `None` if none will come any more, which the process's signals
        /// never say. May be cancelled.
        pub async fn recv(&mut self) -> Option<()> {
            poll_fn(|cx| self.poll_recv(cx)).await
        }

        /// As [`recv`](Self::recv), for one task: the one that called last is woken.
        pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
            match &mut self.source {
                Source::Process(signal) => signal.poll_recv(cx),
                Source::Stack(caught) => caught.poll_recv(cx),
            }
        }
    }

    impl fmt::Debug for Signal {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Signal").field("kind", &self.kind).finish_non_exhaustive()
        }
    }
}
