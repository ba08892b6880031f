//! Signals, in the shape of `tokio::signal`: a program is asked to end, or ends.
//!
//! As in a process on Unix: [`Host::ctrl_c`] sends `SIGINT`. A program that has asked for the signal gets it, from then on until the process ends; one that has not ends, as by [`Host::kill`].
//! Signals that come faster than they are taken become one. tokio's own `signal` says in a run that "IO is disabled".
//!
//! ```
//! # sockeye_sim::run(1, |net| async move {
//! let server = net.host("server");
//! let served = server.spawn(async {
//!     let requests = std::future::pending::<()>(); // serves until it is told to end
//!     tokio::select! {
//!         biased;
//!         _ = sockeye_sim::signal::ctrl_c() => "ended in order",
//!         () = requests => unreachable!(),
//!     }
//! });
//! sockeye_sim::time::sleep(std::time::Duration::from_secs(1)).await;
//! server.ctrl_c();
//! assert_eq!(served.await, Ok("ended in order"));
//! # });
//! ```
//!
//! Tests: `tests/hosts/signals.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::executor::Ambient;
use crate::network::Host;
use crate::world::{State, World};

/// Signals of Unix, in the shape of `tokio::signal::unix`.
pub mod unix {
    pub use super::{Signal, SignalKind, signal};
}

/// A kind of signal that ends a process which has not asked for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SignalKind(Name);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Name {
    Sighup,
    Sigint,
    Sigquit,
    Sigusr1,
    Sigusr2,
    Sigterm,
}

impl SignalKind {
    /// `SIGINT`: Ctrl-C.
    pub const fn interrupt() -> Self {
        Self(Name::Sigint)
    }

    /// `SIGTERM`: what service managers send.
    pub const fn terminate() -> Self {
        Self(Name::Sigterm)
    }

    /// `SIGHUP`.
    pub const fn hangup() -> Self {
        Self(Name::Sighup)
    }

    /// `SIGQUIT`.
    pub const fn quit() -> Self {
        Self(Name::Sigquit)
    }

    /// `SIGUSR1`.
    pub const fn user_defined1() -> Self {
        Self(Name::Sigusr1)
    }

    /// `SIGUSR2`.
    pub const fn user_defined2() -> Self {
        Self(Name::Sigusr2)
    }
}

impl fmt::Display for SignalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Name::Sighup => "SIGHUP",
            Name::Sigint => "SIGINT",
            Name::Sigquit => "SIGQUIT",
            Name::Sigusr1 => "SIGUSR1",
            Name::Sigusr2 => "SIGUSR2",
            Name::Sigterm => "SIGTERM",
        })
    }
}

/// What the process of a host does with signals.
#[derive(Default)]
pub(crate) struct Signals {
    /// The kinds that it has asked for.
    caught: BTreeMap<SignalKind, Caught>,
    next: u64,
    /// It ends when it is resumed.
    pub is_doomed: bool,
}

#[derive(Default)]
struct Caught {
    /// How often it came.
    count: u64,
    /// Those that wait, each for one [`Signal`].
    wakers: BTreeMap<u64, Waker>,
}

/// Waits for Ctrl-C.
///
/// # Errors
/// `Unsupported` in the main program, which is no process of a host.
///
/// # Panics
/// Outside of a simulation.
pub async fn ctrl_c() -> io::Result<()> {
    signal(SignalKind::interrupt())?.recv().await;
    Ok(())
}

/// Asks for a signal, which does not end the process from now on.
///
/// # Errors
/// `Unsupported` in the main program, which is no process of a host.
///
/// # Panics
/// Outside of a simulation.
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    let Ambient { world, host, .. } = Ambient::current();
    let none = "the main program is on no host and gets no signals: wait for them in a host's program";
    let host = host.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, none))?;
    let mut state = world.lock();
    let process = state.process_of(host);
    let signals = &mut state.hosts[host].signals;
    let number = signals.next;
    signals.next += 1;
    let seen = signals.caught.entry(kind).or_default().count;
    drop(state);
    Ok(Signal { world, host, process, kind, number, seen })
}

/// Gets the signals of one kind.
pub struct Signal {
    world: Arc<World>,
    host: usize,
    process: u64,
    kind: SignalKind,
    /// Which of the process's it is.
    number: u64,
    seen: u64,
}

impl Signal {
    /// Waits for the next one. `None` if the process that asked for it is gone.
    pub async fn recv(&mut self) -> Option<()> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`recv`](Self::recv), for one task.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let waker = cx.waker().clone();
        let world = Arc::clone(&self.world);
        let mut state = world.lock();
        let Some(caught) = self.caught(&mut state) else { return Poll::Ready(None) };
        if caught.count > self.seen {
            self.seen = caught.count;
            return Poll::Ready(Some(()));
        }
        let old = caught.wakers.insert(self.number, waker);
        drop(state);
        drop(old);
        Poll::Pending
    }

    fn caught<'a>(&self, state: &'a mut State) -> Option<&'a mut Caught> {
        let is_there = state.process_of(self.host) == self.process;
        is_there.then(|| state.hosts[self.host].signals.caught.get_mut(&self.kind))?
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let world = Arc::clone(&self.world);
        let mut state = world.lock();
        let old = self.caught(&mut state).and_then(|caught| caught.wakers.remove(&self.number));
        drop(state);
        drop(old);
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Host {
    /// Sends `SIGINT` to its programs, as Ctrl-C does: see [`signal`](Self::signal).
    pub fn ctrl_c(&self) {
        self.signal(SignalKind::interrupt());
    }

    /// Sends a signal to its programs, which are one process. If none of them has asked for it, they end, as by [`kill`](Self::kill); while they are paused, once they are resumed. Nothing if the host is
    /// down or its programs were killed.
    pub fn signal(&self, kind: SignalKind) {
        let mut state = self.net.world.lock();
        let host = &mut state.hosts[self.index];
        if host.stack.is_none() || host.is_killed {
            return;
        }
        let (is_paused, signals) = (host.is_paused, &mut host.signals);
        let wakers = signals.caught.get_mut(&kind).map(|caught| {
            caught.count += 1;
            std::mem::take(&mut caught.wakers)
        });
        signals.is_doomed |= is_paused && wakers.is_none();
        state.fault(Some(self.index), format!("got {kind}"));
        drop(state);
        match wakers {
            Some(wakers) => wakers.into_values().for_each(Waker::wake),
            None if is_paused => {}
            None => self.kill(),
        }
    }
}

impl State {
    /// Which process of a host runs: another number for each start.
    fn process_of(&self, host: usize) -> u64 {
        let host = &self.hosts[host];
        u64::from(host.life) << 32 | u64::from(host.processes)
    }
}
