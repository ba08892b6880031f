//! The environment of every layer of a stack: settings, time, memory, counters, workers, panics.
//!
//! An [`Env`] knows no protocol. The shared state of a layer's sockets contains one, or is reached from it. Rare calls to the layers above
//! go through [`Above`].
//!
//! Does not depend on protocols. Fields are constant, or lock themselves. Tests: those of its parts.

use std::any::Any;

use sockeye_mbuf::{Pool, PoolConfig};
use sockeye_sync::facade::{Arc, OnceLock, unsize};
use sockeye_sync::{Counters, Parts};

use crate::base::addr::HashKey;
use crate::base::clock::Clock;
use crate::base::entropy::{Entropy, Key};
use crate::config::Config;
use crate::rt::counter;
use crate::rt::discipline::{Chosen, Discipline};
use crate::rt::fork::Home;
use crate::rt::memory::{MemoryWaiters, Pruner};
use crate::rt::panics::Panics;
use crate::rt::resolve::Resolver;
#[cfg(all(feature = "tokio", unix))]
use crate::rt::signals::Source;
use crate::rt::workers::Workers;

/// See the module's head.
pub(crate) struct Env {
    pub config: Config,
    pub clock: Clock,
    /// The key of names' hashes.
    pub key: HashKey,
    secret: Key,
    /// Which process the stack is in.
    pub home: Home,
    pub pool: Pool,
    pub memory_waiters: MemoryWaiters,
    pub pruner: Pruner,
    /// State of the settings that are measured against each other.
    #[cfg_attr(not(feature = "experiments"), allow(dead_code, reason = "the product keeps nothing"))]
    pub discipline: <Chosen as Discipline>::OfStack,
    pub workers: Workers,
    /// The application's hook for panics.
    pub panics: Panics,
    /// The resolver of names.
    pub resolver: Resolver,
    /// The application's source of signals.
    #[cfg(all(feature = "tokio", unix))]
    pub signals: Source,
    counters: Counters<{ counter::COUNT }>,
    /// The CPU to take every thread for, where the run may not depend on that.
    pinned: Option<u32>,
    above: OnceLock<Box<dyn Above>>,
    /// State of layers that is reached from here.
    kept: [OnceLock<Parts<dyn Any + Send + Sync, 1>>; KEPT],
}

/// State that a layer keeps with the environment: its number is below [`KEPT`].
pub(crate) trait Kept: Any + Send + Sync {
    const AT: usize;
}

/// Values that are kept.
const KEPT: usize = 2;

/// Calls of the environment to the layers above it.
pub(crate) trait Above: Send + Sync {
    /// Packet memory was refused: gives back memory that sockets have parked. Whether that was something. Outside all
    /// locks.
    fn reclaim(&self) -> bool;
}

impl Env {
    /// `is_pinned`: the run may not depend on the machine.
    pub fn new(config: Config, entropy: &mut Entropy, is_pinned: bool) -> Self {
        let clock = if config.workers == 0 { Clock::driven() } else { Clock::system() };
        Self {
            key: HashKey(entropy.u64(), entropy.u64()),
            secret: Key::new(entropy.bytes()),
            home: Home::here(),
            pool: Pool::new(PoolConfig {
                reuse: Chosen::keeps_memory(&config),
                ..PoolConfig::with_memory_max(config.memory_max)
            }),
            memory_waiters: MemoryWaiters::default(),
            pruner: Pruner::new(),
            discipline: Chosen::of_stack(&config),
            workers: Workers::new(config.workers, clock.now()),
            panics: Panics::default(),
            resolver: Resolver::default(),
            #[cfg(all(feature = "tokio", unix))]
            signals: Source::default(),
            counters: Counters::new(),
            pinned: is_pinned.then_some(0),
            above: OnceLock::new(),
            kept: [const { OnceLock::new() }; KEPT],
            clock,
            config,
        }
    }

    /// Sets the layer above. Once, before anything else is done.
    pub fn set_above(&self, above: Box<dyn Above>) {
        let _ = self.above.set(above);
    }

    /// Keeps a value for a layer. Once, before anything else is done.
    pub fn keep<T: Kept>(&self, value: T) {
        let value = unsize::<T, dyn Any + Send + Sync>(Arc::new(value), |value| value);
        let _ = self.kept[T::AT].set(Parts::new(value, |value, _| value));
    }

    /// The value that is kept.
    #[inline]
    pub fn kept<T: Kept>(&self) -> &T {
        self.kept[T::AT].get().and_then(|kept| kept.get(0)).expect("each stack keeps one")
    }

    /// See [`Above::reclaim`].
    #[cold]
    pub fn reclaim(&self) -> bool {
        self.above.get().is_some_and(|above| above.reclaim())
    }

    /// The CPU that the calling thread runs on, for choosing among copies.
    #[inline]
    pub fn cpu(&self) -> u32 {
        self.pinned.unwrap_or_else(sockeye_sync::cpu::current)
    }

    /// Whether it takes every thread to run on one CPU.
    pub fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Counts one.
    #[inline]
    pub fn count(&self, index: usize) {
        self.counters.add(index, 1);
    }

    /// Counts `amount`.
    #[inline]
    pub fn count_many(&self, index: usize, amount: u32) {
        self.counters.add(index, u64::from(amount));
    }

    /// Names and counts.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        counter::NAMES
            .iter()
            .take(counter::SHOWN_COUNT)
            .enumerate()
            .map(|(index, name)| (*name, self.counters.sum(index)))
    }

    /// The key of values that others must not predict: sequence numbers, cookies.
    pub fn secret_bytes(&self) -> [u8; 16] {
        self.secret.bytes()
    }

    /// Changes it.
    pub fn set_secret(&self, bytes: [u8; 16]) {
        self.secret.set(bytes);
    }
}
