//! Counts of a pool's events, kept per thread so that counting shares no line.
//!
//! It does not depend on caches. A [`Shard`] belongs to one thread, which counts with a load and a store;
//! readers add all shards up and may see a moment's numbers in pieces. Counts are exact whenever no thread is
//! in the middle of something. The shard of threads without a cache is counted in with locked additions.
//! Nothing is ordered by any of this, so all of it is relaxed. Tests: `tests/accounting.rs`.

use sockeye_sync::facade::unmodelled::{AtomicU64, Ordering};

use crate::class::{CLASS_COUNT, Class};
use crate::cluster::Cluster;
use crate::discipline::{Chosen, Discipline};
#[cfg(feature = "experiments")]
use crate::experiments::RemoteListStats;

/// Events, per class.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    /// An allocation served from the thread's cache.
    Hit,
    /// An allocation served from the depot.
    DepotLoad,
    /// An allocation served by the system.
    Fresh,
    /// A magazine (or one cluster) given to the depot.
    DepotStore,
    /// Freed on the core on which it was allocated.
    FreeLocal,
    /// Freed on another core.
    FreeRemote,
    /// Refused for the cap, or because the system had no memory.
    Refusal,
}

pub(crate) const EVENT_COUNT: usize = Event::Refusal as usize + 1;

/// Counts of one class: those of the events, and behind them those of the discipline.
const COLUMN_COUNT: usize = EVENT_COUNT + Chosen::EVENT_COUNT;

/// Events with a column of their own.
pub(crate) trait Counted: Copy {
    /// Below [`COLUMN_COUNT`].
    fn column(self) -> usize;
}

impl Counted for Event {
    #[inline]
    fn column(self) -> usize {
        self as usize
    }
}

/// The counts of one thread.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Shard([[AtomicU64; COLUMN_COUNT]; CLASS_COUNT]);

impl Shard {
    /// Counts one. Only for the thread the shard belongs to; from two threads, counts would be lost.
    #[inline]
    pub(crate) fn count(&self, class: Class, event: impl Counted) {
        let counter = &self.0[class.index()][event.column()];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts one, from any thread.
    pub(crate) fn count_shared(&self, class: Class, event: impl Counted) {
        self.0[class.index()][event.column()].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the counts of `other`, which is not to be read again.
    pub(crate) fn absorb(&self, other: &Shard) {
        for class in Class::ALL {
            for (into, from) in self.0[class.index()].iter().zip(&other.0[class.index()]) {
                into.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn read(&self, class: Class, event: impl Counted) -> u64 {
        self.0[class.index()][event.column()].load(Ordering::Relaxed)
    }

    /// Adds the counts to `stats`.
    pub(crate) fn add_to(&self, stats: &mut PoolStats) {
        for class in Class::ALL {
            let sum = &mut stats.classes[class.index()];
            sum.local_hits += self.read(class, Event::Hit);
            sum.depot_loads += self.read(class, Event::DepotLoad);
            sum.fresh += self.read(class, Event::Fresh);
            sum.depot_stores += self.read(class, Event::DepotStore);
            sum.local_frees += self.read(class, Event::FreeLocal);
            sum.remote_frees += self.read(class, Event::FreeRemote);
            sum.refusals += self.read(class, Event::Refusal);
            Chosen::add_to(self, class, sum);
        }
    }
}

/// Counts of one class since the pool was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassStats {
    /// Allocations served from the allocating thread's cache.
    pub local_hits: u64,
    /// Allocations served from the depot; each brought a magazine with it.
    pub depot_loads: u64,
    /// Allocations for which memory was obtained from the system.
    pub fresh: u64,
    /// Magazines given to the depot by frees.
    pub depot_stores: u64,
    /// Clusters that came into a cache, the depot or the system's hands by a thread on the core on which they had
    /// been allocated.
    pub local_frees: u64,
    /// Clusters that did so by a thread on another core.
    pub remote_frees: u64,
    /// Allocations refused: the cap was reached, or the system had no memory.
    pub refusals: u64,
    /// Counts of remote-free lists. Only with the feature `experiments`.
    #[cfg(feature = "experiments")]
    pub remote_lists: RemoteListStats,
}

impl ClassStats {
    /// Allocations that succeeded.
    pub fn allocs(&self) -> u64 {
        self.local_hits + self.depot_loads + self.fresh
    }

    /// Clusters freed, by whomever.
    pub fn frees(&self) -> u64 {
        self.local_frees + self.remote_frees
    }

    /// Clusters in use. Taken while threads work, the parts may disagree: never less than zero.
    pub fn live(&self) -> u64 {
        self.allocs().saturating_sub(self.frees()).saturating_sub(Chosen::waiting(self))
    }
}

/// A pool's counts and bytes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Counts by class, ascending as in [`Class::ALL`].
    pub classes: [ClassStats; CLASS_COUNT],
    /// Bytes obtained from the system and not returned, headers included.
    pub allocated: usize,
    /// Bytes of those that lie in the depot.
    pub depot: usize,
    /// The cap on `allocated`, in bytes.
    pub memory_max: usize,
}

impl PoolStats {
    /// Bytes of clusters in use, headers included.
    pub fn in_use(&self) -> usize {
        self.bytes_of(ClassStats::live)
    }

    /// Bytes of the clusters that `count` counts, headers included.
    pub(crate) fn bytes_of(&self, count: fn(&ClassStats) -> u64) -> usize {
        let bytes = |class: Class| {
            let count = count(&self.classes[class.index()]);
            usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(Cluster::footprint(class))
        };
        Class::ALL.into_iter().map(bytes).fold(0, usize::saturating_add)
    }

    /// The counts of one class.
    pub fn class(&self, class: Class) -> &ClassStats {
        &self.classes[class.index()]
    }
}
