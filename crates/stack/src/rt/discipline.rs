//! The parts of the stack's threads that settings measured against each other change: the defaults are the product's.
//!
//! [`Discipline`] has a function for each place at which a setting makes a difference. Without the feature `experiments` a stack has the
//! defaults, as code that the compiler sees through; with it, [`Chosen`] asks the stack's settings (`experiments/`). Transports have the same
//! for their part: `tcp/discipline.rs`, `unix/locking.rs`.
//!
//! Does not depend on protocols. Tests: those of the callers.

use std::time::Instant;

use sockeye_mbuf::PoolStats;

use crate::config::Config;
use crate::rt::env::Env;

/// See the module's head. Each function is called with no lock held.
pub(crate) trait Discipline {
    /// The settings' state of a stack.
    type OfStack: Send + Sync;

    /// That of a new stack.
    fn of_stack(config: &Config) -> Self::OfStack;

    /// Whether the pool keeps freed memory for the next allocation.
    fn keeps_memory(config: &Config) -> bool {
        let _ = config;
        true
    }

    /// Counters of packet memory besides those of every stack.
    fn pool_counters(stats: &PoolStats) -> Vec<(&'static str, u64)> {
        let _ = stats;
        Vec::new()
    }

    /// The calling thread is about to wait.
    #[inline]
    fn before_wait(env: &Env) {
        let _ = env;
    }

    /// A worker takes its turn at a lane.
    #[inline]
    fn turn(env: &Env, lane: usize) {
        let (_, _) = (env, lane);
    }

    /// A worker has taken its turn, and sleeps next if there is nothing to do.
    #[inline]
    fn before_sleep(env: &Env, lane: usize) {
        let (_, _) = (env, lane);
    }

    /// Whether a lane's worker has something to do besides the work handed to it. Asked after it has announced that it sleeps.
    #[inline]
    fn has_work(env: &Env, lane: usize) -> bool {
        let (_, _) = (env, lane);
        false
    }

    /// Until when a worker sleeps that has nothing to do, if no thread wakes it; `deadline` is that of its timers.
    #[inline]
    fn sleeps_until(env: &Env, deadline: Option<Instant>) -> Option<Instant> {
        let _ = env;
        deadline
    }

    /// Whether a worker is woken for work that was left to it and can wait.
    #[inline]
    fn wakes_for_left_work(env: &Env) -> bool {
        let _ = env;
        true
    }

    /// Whether a thread of the application that waits for a connection takes frames from its queue.
    #[inline]
    fn takes_frames_in_calls(env: &Env) -> bool {
        let _ = env;
        true
    }
}

/// The product's discipline.
#[cfg(not(feature = "experiments"))]
pub(crate) struct Product;

#[cfg(not(feature = "experiments"))]
impl Discipline for Product {
    type OfStack = ();

    fn of_stack(_: &Config) {}
}

/// The discipline that stacks have.
#[cfg(not(feature = "experiments"))]
pub(crate) type Chosen = Product;
#[cfg(feature = "experiments")]
pub(crate) type Chosen = super::experiments::Configured;
