//! Signals of hosts: a program is asked to end, or ends.
//!
//! As in a process on Unix: [`Host::ctrl_c`] sends `SIGINT`. A program that has asked for the signal gets it, from then on until the process ends; one that has not ends, as by [`Host::kill`].
//! Signals that come faster than they are taken become one. Programs ask by `sockeye::tokio::signal`, which is here, too, and outside of a simulation has the process's; tokio's own `signal` says in a run that
//! "IO is disabled".
//!
//! ```
//! # sockeye_sim::run(1, |net| async move {
//! let server = net.host("server");
//! let served = server.spawn(async {
//!     let requests = std::future::pending::<()>(); // serves until it is told to end
//!     tokio::select! {
//!         biased;
//!         _ = sockeye::tokio::signal::ctrl_c() => "ended in order",
//!         () = requests => unreachable!(),
//!     }
//! });
//! sockeye_sim::time::sleep(std::time::Duration::from_secs(1)).await;
//! server.ctrl_c();
//! assert_eq!(served.await, Ok("ended in order"));
//! # });
//! ```
//!
//! A host's stack asks its `HostSignals`, as it asks for names. Tests: `tests/hosts/signals.rs`.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use sockeye::Stack;
pub use sockeye::tokio::signal::{ctrl_c, unix};

use crate::network::Host;
use crate::world::{State, World};
use unix::SignalKind;

/// Signals by the names that a run's events have, and whether one that a program has not asked for is without effect. Programs in Rust ignore `SIGPIPE`.
const NAMES: [(SignalKind, &str, bool); 11] = [
    (SignalKind::hangup(), "SIGHUP", false),
    (SignalKind::interrupt(), "SIGINT", false),
    (SignalKind::quit(), "SIGQUIT", false),
    (SignalKind::user_defined1(), "SIGUSR1", false),
    (SignalKind::user_defined2(), "SIGUSR2", false),
    (SignalKind::pipe(), "SIGPIPE", true),
    (SignalKind::alarm(), "SIGALRM", false),
    (SignalKind::terminate(), "SIGTERM", false),
    (SignalKind::child(), "SIGCHLD", true),
    (SignalKind::window_change(), "SIGWINCH", true),
    (SignalKind::io(), "SIGIO", false),
];

/// What the process of a host does with signals.
#[derive(Default)]
pub(crate) struct Signals {
    /// The kinds that it has asked for, by their numbers.
    caught: BTreeMap<i32, Caught>,
    next: u64,
    /// It ends when it is resumed.
    pub is_doomed: bool,
}

#[derive(Default)]
struct Caught {
    /// How often it came.
    count: u64,
    /// Those that wait, each for one [`HostSignal`].
    wakers: BTreeMap<u64, Waker>,
}

/// See the module's head. `None` is the main program, which is on no host. It keeps the world weakly, because the world keeps the stacks.
pub(crate) struct HostSignals {
    world: Weak<World>,
    host: Option<usize>,
}

impl HostSignals {
    /// Has the programs on `stack` get the signals of `host`.
    pub fn serve(world: &Arc<World>, host: Option<usize>, stack: &Stack) {
        stack.set_signals(Some(Box::new(Self { world: Arc::downgrade(world), host })));
    }
}

impl sockeye::Signals for HostSignals {
    fn catch(&self, _: &Stack, kind: i32) -> io::Result<Box<dyn sockeye::SignalStream>> {
        let none = "the main program is on no host and gets no signals: wait for them in a host's program";
        let host = self.host.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, none))?;
        let over = || io::Error::other("the simulation is over");
        let world = self.world.upgrade().ok_or_else(over)?;
        let mut state = world.lock();
        let process = state.process_of(host);
        let signals = &mut state.hosts[host].signals;
        let number = signals.next;
        signals.next += 1;
        let seen = signals.caught.entry(kind).or_default().count;
        drop(state);
        Ok(Box::new(HostSignal { world: Arc::downgrade(&world), host, process, kind, number, seen }))
    }
}

/// The signals of one kind for one program.
struct HostSignal {
    world: Weak<World>,
    host: usize,
    process: u64,
    kind: i32,
    /// Which of the process's it is.
    number: u64,
    seen: u64,
}

impl HostSignal {
    fn caught<'a>(&self, state: &'a mut State) -> Option<&'a mut Caught> {
        let is_there = state.process_of(self.host) == self.process;
        is_there.then(|| state.hosts[self.host].signals.caught.get_mut(&self.kind))?
    }
}

impl sockeye::SignalStream for HostSignal {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let waker = cx.waker().clone();
        let Some(world) = self.world.upgrade() else { return Poll::Ready(None) };
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
}

impl Drop for HostSignal {
    fn drop(&mut self) {
        let Some(world) = self.world.upgrade() else { return };
        let mut state = world.lock();
        let old = self.caught(&mut state).and_then(|caught| caught.wakers.remove(&self.number));
        drop(state);
        drop(old);
    }
}

impl Host {
    /// Sends `SIGINT` to its programs, as Ctrl-C does: see [`signal`](Self::signal).
    pub fn ctrl_c(&self) {
        self.signal(SignalKind::interrupt());
    }

    /// Sends a signal to its programs, which are one process. If none of them has asked for it, they end, as by [`kill`](Self::kill); while they are paused, once they are resumed. But for `SIGCHLD`,
    /// `SIGWINCH` and `SIGPIPE`, which have no effect then. Nothing if the host is down or its programs were killed. Nothing stops at a signal: see [`pause`](Self::pause).
    pub fn signal(&self, kind: SignalKind) {
        let mut state = self.net.world.lock();
        let host = &mut state.hosts[self.index];
        if host.stack.is_none() || host.is_killed {
            return;
        }
        let (is_paused, signals) = (host.is_paused, &mut host.signals);
        let number = kind.as_raw_value();
        let named = NAMES.iter().find(|(named, ..)| *named == kind);
        let wakers = signals.caught.get_mut(&number).map(|caught| {
            caught.count += 1;
            std::mem::take(&mut caught.wakers)
        });
        let is_ignored = wakers.is_none() && named.is_some_and(|(.., is_ignored)| *is_ignored);
        signals.is_doomed |= is_paused && wakers.is_none() && !is_ignored;
        let name = named.map_or_else(|| format!("signal {number}"), |(_, name, _)| (*name).to_owned());
        state.fault(Some(self.index), format!("got {name}"));
        drop(state);
        match wakers {
            Some(wakers) => wakers.into_values().for_each(Waker::wake),
            None if is_paused || is_ignored => {}
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
