//! Pools: where a stack's packet memory comes from.
//!
//! It does not depend on how memory is cached. Tests: `tests/accounting.rs`, `tests/cap.rs`,
//! `tests/threads.rs`.

use std::error::Error;
use std::fmt;
use std::time::Instant;

use sockeye_sync::facade::unmodelled::{Arc, OnceLock};

use crate::cache;
use crate::chain::Chain;
use crate::class::{CLUSTER_MAX, Class};
use crate::mbuf::Mbuf;
use crate::stats::PoolStats;
use crate::store::Store;

/// A stack's packet memory. A handle: clones are the same pool.
///
/// Memory goes back to the system when the last handle is gone: idle clusters at once (in caches of other
/// threads: when such a thread next touches a pool, or ends), those in view when their last view is dropped.
/// Mbufs may outlive all handles.
#[derive(Clone)]
pub struct Pool {
    handle: Arc<Handle>,
}

struct Handle {
    store: Arc<Store>,
    on_refused: OnceLock<OnRefused>,
}

/// The hook for callers that report that they were refused memory.
type OnRefused = Box<dyn Fn() + Send + Sync>;

/// How a pool is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The most bytes obtained from the system at a time, headers included. Values below
    /// [`MEMORY_MIN`] mean that. Reached: allocations are refused with [`Exhausted`].
    pub memory_max: usize,
    /// The most bytes that lie in the depot for reuse. Clusters freed beyond that go back to the system.
    pub depot_max: usize,
    /// Whether freed clusters are kept for reuse. Without, each allocation is one of the system's allocator, and each free
    /// too, as in a kernel that takes packet memory from its slab allocator.
    pub reuse: bool,
}

/// The smallest cap: below it, caches and one large segment on its way would not leave each other
/// room.
pub const MEMORY_MIN: usize = 512 * 1024;

const MEMORY_MAX_DEFAULT: usize = 512 * 1024 * 1024;
const DEPOT_MAX_DEFAULT: usize = 32 * 1024 * 1024;

impl PoolConfig {
    /// A pool of at most `memory_max` bytes, of which a sixteenth, and 32 MiB at most, may lie in the
    /// depot.
    pub fn with_memory_max(memory_max: usize) -> PoolConfig {
        let depot_max = DEPOT_MAX_DEFAULT.min(memory_max.max(MEMORY_MIN) / 16);
        PoolConfig { memory_max, depot_max, reuse: true }
    }
}

impl Default for PoolConfig {
    /// 512 MiB.
    fn default() -> PoolConfig {
        PoolConfig::with_memory_max(MEMORY_MAX_DEFAULT)
    }
}

/// The pool is at its cap, or the system has no memory. Nothing was lost or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packet memory is exhausted")
    }
}

impl Error for Exhausted {}

impl Pool {
    /// A pool that holds nothing yet.
    pub fn new(config: PoolConfig) -> Pool {
        Pool::of(Store::new(config.memory_max.max(MEMORY_MIN), config.depot_max, config.reuse))
    }

    /// A pool with a cap of any size.
    pub(crate) fn of(store: Store) -> Pool {
        Pool { handle: Arc::new(Handle { store: Arc::new(store), on_refused: OnceLock::new() }) }
    }

    /// An empty mbuf whose cluster takes at least `want` bytes, [`CLUSTER_MAX`] if `want` is more.
    /// Does not block, beyond short locks.
    #[inline]
    pub fn alloc(&self, want: usize) -> Result<Mbuf, Exhausted> {
        match cache::alloc(self.store(), Class::for_len(want)) {
            Some(cluster) => Ok(Mbuf::of(cluster)),
            None => Err(Exhausted),
        }
    }

    /// A chain with a copy of `bytes`, in one cluster for each [`CLUSTER_MAX`] begun. All or nothing.
    pub fn copy_in(&self, bytes: &[u8]) -> Result<Chain, Exhausted> {
        let mut chain = Chain::new();
        for piece in bytes.chunks(CLUSTER_MAX) {
            let mut mbuf = self.alloc(piece.len())?;
            let taken = mbuf.try_extend(piece);
            debug_assert_eq!(taken, piece.len(), "a new cluster takes what it was chosen for");
            chain.push_back(mbuf);
        }
        Ok(chain)
    }

    /// Bytes of clusters in use, headers included. Adds up all threads' counts: not for hot paths.
    /// Exact when no thread allocates or frees meanwhile.
    pub fn in_use(&self) -> usize {
        self.stats().in_use()
    }

    /// Bytes obtained from the system and not returned, headers included: in use, in caches, in the
    /// depot. Never above [`Pool::memory_max`].
    pub fn allocated(&self) -> usize {
        self.store().quota.taken()
    }

    /// The cap on [`Pool::allocated`], in bytes.
    pub fn memory_max(&self) -> usize {
        self.store().quota.max()
    }

    /// All counts. Adds up all threads': not for hot paths.
    pub fn stats(&self) -> PoolStats {
        self.store().stats()
    }

    /// Blocks until memory was given back since this thread was last refused, or until `deadline`
    /// (`None`: no limit). True if memory was given back, or if this thread was not refused: try
    /// again, and wait again if refused again.
    ///
    /// A free by another thread ends the wait even if it does not suffice for the refused request.
    pub fn wait_freed(&self, deadline: Option<Instant>) -> bool {
        match cache::refusal(self.store()).filter(|_| !self.is_lost()) {
            Some(seen) => self.store().quota.wait_freed(seen, deadline),
            None => true,
        }
    }

    /// Has `hook` called by [`Pool::report_refused`]. Only the first one counts.
    pub fn set_on_refused(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.handle.on_refused.set(Box::new(hook));
    }

    /// A caller that was refused memory and does not say so to its stack says it here: something may be given up for
    /// it. The pool does not do it itself, since it does not know its callers' locks; the caller of this holds none.
    /// Does not block, beyond short locks.
    #[cold]
    pub fn report_refused(&self) {
        if let Some(hook) = self.handle.on_refused.get() {
            hook();
        }
    }

    /// Gives idle clusters back to the system: the depot and this thread's cache now, the caches of other
    /// threads when they next allocate or free. For stacks that have become idle; under load it only costs.
    pub fn trim(&self) {
        if self.is_lost() {
            return;
        }
        self.store().quota.ask_trim();
        cache::flush(self.store());
        self.store().drain();
    }

    #[inline]
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.handle.store
    }

    /// Whether this process has the pool from its parent, by fork(2): then nothing is handed out, and clusters given
    /// back are leaked.
    pub fn is_lost(&self) -> bool {
        self.store().is_lost()
    }

    /// Takes over the parent's pool in a child of fork(2). No other thread of the parent was in a call of the pool when
    /// the child was made. The content of the caches of those threads is lost.
    pub fn adopt(&self) {
        self.store().origin.adopt();
    }

    /// Whether both are handles of one pool.
    pub fn is_same(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("allocated", &self.allocated())
            .field("memory_max", &self.memory_max())
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.store.is_lost() {
            std::mem::forget(Arc::clone(&self.store));
            return;
        }
        self.store.close();
        cache::note_closing();
        cache::forget_closed();
    }
}
