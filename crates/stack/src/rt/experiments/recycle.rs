//! Receive-buffer recycling: the handling of a buffer that a core has used up and another one allocated
//! (`Experiments::rx_free`, technique 3).
//!
//! * `inline`: it goes to the cache of the thread that freed it.
//! * `slot`, `socket_list`: it waits in a list of its connection (`tcp/experiments/remote_sweep.rs`) for the thread that allocates next.
//! * `core_list`: it waits in the list of the core that allocated it, which a thread on that core takes when its own
//!   cache is empty, and a worker when the list is half full (the *kick*). This needs no connection, and does not
//!   care whether input and allocation run on the same core.
//!
//! In all of them a buffer that was allocated on the freeing thread's own core goes to its cache. A buffer is put on a remote-free list
//! after the last reference to it is gone, after its bytes left the socket buffer, and outside the socket lock.
//!
//! # Memory on the lists is bounded, and none is left behind
//! A core's list holds a share of the memory cap, 4 MiB at most; near the cap the pool puts nothing there. A thread that is refused memory has
//! everything reclaimed before it gets the error ([`Env::reclaim`]). Lists of cores are emptied by threads before they wait and by workers before
//! they sleep. For the rest there is the *sweep*: while anything is on a list the timer wheel calls every [`PERIOD`], and the sweep gives back
//! buffers that no thread has touched since the last call. So an idle stack holds nothing after two periods, and no timer.
//!
//! `is_armed` is that call. A thread puts a buffer on a list, then (a fence between) reads it and arms if it is clear. The sweep that
//! finds nothing left clears it, then (a fence between) looks again. Either the sweep sees the buffer, or the thread sees
//! that it is clear.
//!
//! Does not depend on connections. Tests: `tests/experiments/rx_free.rs`; for the lists themselves `sockeye-mbuf`.

use std::time::Duration;

use sockeye_mbuf::{ClassStats, Freed, PoolStats, Seen};
use sockeye_sync::facade::{AtomicBool, Ordering, fence};

use crate::experiments::RxFree;
use crate::rt::counter;
use crate::rt::env::Env;
use crate::rt::timers::TimerKey;

/// See the module's head.
pub(crate) struct Recycler {
    /// (c)
    setting: RxFree,
    /// (a) The timer wheel will call for a sweep.
    is_armed: AtomicBool,
    /// (a) For each lane of workers: a list of one of its cores is half full, and the worker is to empty it.
    kicked: Box<[AtomicBool]>,
}

/// Time between two sweeps. Long against the time between two packets of a busy connection.
const PERIOD: Duration = Duration::from_millis(100);

/// Counts of the remote-free lists, all sizes together.
pub(super) fn pool_counters(stats: &PoolStats) -> Vec<(&'static str, u64)> {
    let sum = |f: fn(&ClassStats) -> u64| stats.classes.iter().map(f).sum();
    vec![
        ("mbuf_remote_listed", sum(|c| c.remote_lists.listed)),
        ("mbuf_remote_taken", sum(|c| c.remote_lists.taken)),
        ("mbuf_remote_list_overflows", sum(|c| c.remote_lists.overflows)),
    ]
}

impl Recycler {
    pub fn new(setting: RxFree, lanes: usize) -> Self {
        let kicked = (0..lanes).map(|_| AtomicBool::new(false)).collect();
        Self { setting, is_armed: AtomicBool::new(false), kicked }
    }

    /// Whether used-up buffers go to the cache of the thread that frees them.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.setting == RxFree::Inline
    }

    /// A list is half full: the worker of its core empties it. Whether it sleeps is looked at after the flag was set, and the worker looks at
    /// the flag after it has announced that it sleeps: the argument of `rt/workers.rs`.
    fn kick(&self, env: &Env, of: usize) {
        let lane = env.workers.lane_of(of as u64);
        self.kicked[lane].store(true, Ordering::Release);
        env.workers.wake(lane);
    }

    /// Whether a lane's worker is to empty a list.
    #[inline]
    pub fn is_kicked(&self, lane: usize) -> bool {
        self.kicked[lane].load(Ordering::Acquire)
    }

    /// A worker's turn: empties the lists of its cores if that was asked for.
    #[inline]
    pub fn turn(&self, env: &Env, lane: usize) {
        let kicked = &self.kicked[lane];
        if kicked.load(Ordering::Relaxed) && kicked.swap(false, Ordering::Acquire) {
            self.flush_lane(env, lane);
        }
    }

    /// Whether they wait on lists of their connections.
    #[inline]
    pub fn by_connection(&self) -> bool {
        match self.setting {
            RxFree::Slot | RxFree::SocketList => true,
            RxFree::Inline | RxFree::CoreList => false,
        }
    }

    /// Whether they lie in lists of the cores.
    #[inline]
    pub fn by_core(&self) -> bool {
        self.setting == RxFree::CoreList
    }

    /// Gives buffers back to the cores that allocated them, or to this thread's cache. Outside all locks.
    pub fn give_back(&self, env: &Env, freed: Freed) {
        if freed.is_empty() || !self.by_core() {
            return;
        }
        let kick = |of: u32| {
            env.count(counter::RX_FREE_KICKS);
            self.kick(env, of as usize % env.pool.core_list_count());
        };
        if env.pool.remote_free_to_cores(freed, kick) && !self.is_armed() {
            self.arm(env);
        }
    }

    /// Whether a sweep is coming. Relaxed: the fences of the module's head order it.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.is_armed.load(Ordering::Relaxed)
    }

    /// Asks for a sweep in a while, if none is coming. Outside all locks.
    #[cold]
    pub fn arm(&self, env: &Env) {
        if !self.is_armed.swap(true, Ordering::Relaxed) {
            env.workers.arm(0, (env.clock.now() + PERIOD).as_micros(), TimerKey::RemoteSweep);
            env.workers.tell_driver(env);
        }
    }

    /// A thread is about to wait: its core's list would wait with it.
    #[inline]
    pub fn before_wait(&self, env: &Env) {
        if self.by_core() {
            self.flush(env, sockeye_sync::cpu::current() as usize);
        }
    }

    /// Gives one core's list back to the pool.
    pub fn flush(&self, env: &Env, of: usize) {
        if env.pool.flush_core(of as u32) > 0 {
            env.count(counter::RX_FREE_FLUSHES);
        }
    }

    /// Flushes the lists of the cores that one lane looks after.
    pub fn flush_lane(&self, env: &Env, lane: usize) {
        if self.by_core() {
            for of in (lane..env.pool.core_list_count()).step_by(env.workers.lane_count()) {
                self.flush(env, of);
            }
        }
    }

    /// Gives back buffers in lists of the cores that were there the last time. Whether something may be left.
    pub fn flush_stale(&self, env: &Env, seen: &mut Seen) -> bool {
        self.by_core() && env.pool.flush_stale(seen)
    }

    /// The end of a sweep. `is_left`: it has left something. `has_more`: whether something has been put elsewhere than on the lists of
    /// the cores.
    pub fn swept(&self, env: &Env, is_left: bool, has_more: impl FnOnce() -> bool) {
        if is_left {
            env.workers.arm(0, (env.clock.now() + PERIOD).as_micros(), TimerKey::RemoteSweep);
            return;
        }
        self.is_armed.store(false, Ordering::Relaxed);
        // Pairs with the fence between the put and reading `is_armed`.
        fence(Ordering::SeqCst);
        if env.pool.has_core_lists() || has_more() {
            self.arm(env);
        }
    }
}
