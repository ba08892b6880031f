//! Counts of what a pool does, kept per thread so that counting shares no line.
//!
//! It must not know caches. A [`Shard`] belongs to one thread, which counts with a load and a store;
//! readers add all shards up and may see a moment's numbers in pieces. Counts are exact whenever no
//! thread is in the middle of something. The shard of threads without a cache is counted in with
//! locked additions. Nothing is ordered by any of this, so all of it is relaxed.
//! Tests: `tests/accounting.rs`.

use sockeye_sync::facade::unmodelled::{AtomicU64, Ordering};

use crate::class::{CLASS_COUNT, Class};
use crate::cluster::Cluster;

/// What is counted, per class.
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
    /// Put on a remote-free list.
    RemoteListed,
    /// Taken from a remote-free list.
    RemoteTaken,
    /// Freed on another core, and its remote-free list had no room.
    RemoteListFull,
    /// Refused for the cap, or because the system had no memory.
    Refusal,
}

const EVENT_COUNT: usize = Event::Refusal as usize + 1;

/// The counts of one thread.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Shard([[AtomicU64; EVENT_COUNT]; CLASS_COUNT]);

impl Shard {
    /// Counts one. Only for the thread the shard belongs to; from two threads, counts would be lost.
    #[inline]
    pub(crate) fn count(&self, class: Class, event: Event) {
        let counter = &self.0[class.index()][event as usize];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts one, from any thread.
    pub(crate) fn count_shared(&self, class: Class, event: Event) {
        self.0[class.index()][event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds what `other` counted; it is not to be read again.
    pub(crate) fn absorb(&self, other: &Shard) {
        for class in Class::ALL {
            for (into, from) in self.0[class.index()].iter().zip(&other.0[class.index()]) {
                into.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    fn read(&self, class: Class, event: Event) -> u64 {
        self.0[class.index()][event as usize].load(Ordering::Relaxed)
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
            sum.remote_listed += self.read(class, Event::RemoteListed);
            sum.remote_taken += self.read(class, Event::RemoteTaken);
            sum.remote_list_overflows += self.read(class, Event::RemoteListFull);
            sum.refusals += self.read(class, Event::Refusal);
        }
    }
}

/// Counts of one class since the pool was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// been allocated; those that were on a remote-free list in between included.
    pub local_frees: u64,
    /// Clusters that did so by a thread on another core.
    pub remote_frees: u64,
    /// Clusters put on a remote-free list, for the core that allocates.
    pub remote_listed: u64,
    /// Clusters taken from a remote-free list.
    pub remote_taken: u64,
    /// Clusters freed on another core because the remote-free list was full.
    pub remote_list_overflows: u64,
    /// Allocations refused: the cap was reached, or the system had no memory.
    pub refusals: u64,
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

    /// Clusters on remote-free lists now. Taken while threads work, the parts may disagree: never less than zero.
    pub fn remote_listed_now(&self) -> u64 {
        self.remote_listed.saturating_sub(self.remote_taken)
    }

    /// Clusters in use. Taken while threads work, the parts may disagree: never less than zero.
    pub fn live(&self) -> u64 {
        self.allocs().saturating_sub(self.frees()).saturating_sub(self.remote_listed_now())
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

    /// Bytes of clusters on remote-free lists now, headers included.
    pub fn remote_listed(&self) -> usize {
        self.bytes_of(ClassStats::remote_listed_now)
    }

    fn bytes_of(&self, count: fn(&ClassStats) -> u64) -> usize {
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
