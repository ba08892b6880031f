//! The settings `wake`, `rx_free`, `pool` and `input`, as far as they change when threads sleep and their work before.
//!
//! | setting | here |
//! |---|---|
//! | `wake=delayed` | workers are not woken for work left to them: they look every [`LOOK_INTERVAL`] |
//! | `rx_free=core_list` | threads empty their core's list before they wait, workers those of their cores: [`recycle`] |
//! | `pool=system` | freed memory goes back to the system's allocator |
//! | `input`, all but `batched` | threads of the application take no frames |
//!
//! Tests: `tests/experiments/{wake,rx_free}.rs, tests/wire/transfers.rs`.

pub(crate) mod recycle;

use std::time::{Duration, Instant};

use sockeye_mbuf::PoolStats;

use crate::config::Config;
use crate::experiments::{Input, PoolSource, Wake};
use crate::rt::discipline::Discipline;
use crate::rt::env::Env;
use recycle::Recycler;

/// The discipline of the settings that the stack was made with.
pub(crate) struct Configured;

/// How often a worker looks for work that was left to it without a wake-up: the longest delay of that work. 10 ms, as on
/// illumos.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Handling of buffers that one core used up and another allocated.
#[inline]
pub(crate) fn recycler(env: &Env) -> &Recycler {
    &env.discipline
}

impl Discipline for Configured {
    type OfStack = Recycler;

    fn of_stack(config: &Config) -> Recycler {
        Recycler::new(config.experiments.rx_free, config.workers.max(1))
    }

    fn keeps_memory(config: &Config) -> bool {
        config.experiments.pool == PoolSource::Cached
    }

    fn pool_counters(stats: &PoolStats) -> Vec<(&'static str, u64)> {
        recycle::pool_counters(stats)
    }

    #[inline]
    fn before_wait(env: &Env) {
        recycler(env).before_wait(env);
    }

    #[inline]
    fn turn(env: &Env, lane: usize) {
        recycler(env).turn(env, lane);
    }

    #[inline]
    fn before_sleep(env: &Env, lane: usize) {
        recycler(env).flush_lane(env, lane);
    }

    #[inline]
    fn has_work(env: &Env, lane: usize) -> bool {
        recycler(env).is_kicked(lane)
    }

    #[inline]
    fn sleeps_until(env: &Env, deadline: Option<Instant>) -> Option<Instant> {
        match env.config.experiments.wake {
            Wake::Delayed => deadline.into_iter().chain(Instant::now().checked_add(LOOK_INTERVAL)).min(),
            Wake::Immediate | Wake::Elide => deadline,
        }
    }

    #[inline]
    fn wakes_for_left_work(env: &Env) -> bool {
        match env.config.experiments.wake {
            // Without workers no thread looks by itself.
            Wake::Delayed => env.config.workers == 0,
            Wake::Immediate | Wake::Elide => true,
        }
    }

    #[inline]
    fn takes_frames_in_calls(env: &Env) -> bool {
        env.config.experiments.input == Input::Batched
    }
}
