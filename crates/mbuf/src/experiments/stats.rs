//! Counts of remote-free lists: in the shards of `crate::stats`, behind the events of every pool.
//!
//! Does not depend on the lists. Tests: `tests/remote_free.rs`.

use std::ptr::NonNull;

use sockeye_sync::facade::unmodelled::Arc;

use crate::cache;
use crate::class::Class;
use crate::freed::FreeList;
use crate::stats::{self, Counted, PoolStats, Shard};
use crate::store::Store;

/// Events, per class.
#[derive(Clone, Copy)]
pub(super) enum RemoteEvent {
    /// Put on a remote-free list.
    Listed,
    /// Taken from a remote-free list.
    Taken,
    /// Freed on another core, and its remote-free list had no room.
    ListFull,
}

pub(super) const EVENT_COUNT: usize = RemoteEvent::ListFull as usize + 1;

impl Counted for RemoteEvent {
    #[inline]
    fn column(self) -> usize {
        stats::EVENT_COUNT + self as usize
    }
}

/// Counts of one class's clusters on remote-free lists since the pool was made. One that is taken from a list is counted as freed,
/// here or on another core, when it comes into a cache, the depot or the system's hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteListStats {
    /// Clusters put on a remote-free list, for the core that allocates.
    pub listed: u64,
    /// Clusters taken from a remote-free list.
    pub taken: u64,
    /// Clusters freed on another core because the remote-free list was full.
    pub overflows: u64,
}

impl RemoteListStats {
    /// Clusters on remote-free lists now. Taken while threads work, the parts may disagree: never less than zero.
    pub fn listed_now(&self) -> u64 {
        self.listed.saturating_sub(self.taken)
    }

    /// Adds the counts of `shard`.
    pub(super) fn add(&mut self, shard: &Shard, class: Class) {
        self.listed += shard.read(class, RemoteEvent::Listed);
        self.taken += shard.read(class, RemoteEvent::Taken);
        self.overflows += shard.read(class, RemoteEvent::ListFull);
    }
}

impl PoolStats {
    /// Bytes of clusters on remote-free lists now, headers included.
    pub fn remote_listed(&self) -> usize {
        self.bytes_of(|class| class.remote_lists.listed_now())
    }
}

/// Counts an event of one cluster of `store`.
pub(super) fn count(store: &Arc<Store>, class: Class, event: impl Counted) {
    cache::with_cache(Arc::as_ptr(store), |cache| match cache {
        Some(cache) => cache.shard.count(class, event),
        None => store.count(class, event),
    });
}

/// Counts an event for each cluster of a list.
pub(super) fn count_list(list: &FreeList, event: RemoteEvent) {
    let Some(first) = NonNull::new(list.head) else { return };
    // SAFETY: the list owns the cluster, so the header is valid.
    let store = unsafe { first.as_ref() }.store();
    cache::with_cache(store, |cache| match cache {
        Some(cache) => list.classes().for_each(|class| cache.shard.count(class, event)),
        None => {
            // SAFETY: the cluster holds a count of the store.
            let store = unsafe { cache::count_store(store) };
            list.classes().for_each(|class| store.count(class, event));
        }
    });
}
