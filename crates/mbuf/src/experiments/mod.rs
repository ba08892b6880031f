//! Parts that only older settings of the stack use, for experiments: remote-free lists (the setting `rx_free`). Only with the
//! feature `experiments`.
//!
//! | module | content |
//! |---|---|
//! | [`remote_list`] | the lists: of a connection, which the user keeps, and of the cores, which a pool has |
//! | [`remote_free`] | when a pool puts clusters there, and when it looks there |
//! | [`stats`] | its counts |
//!
//! The interface to the rest of the crate is in `discipline.rs`.
//!
//! Does not depend on connections, or which thread empties a list. Tests: `tests/remote_free.rs`; models in
//! `remote_list.rs` and `remote_free/models.rs`.

mod remote_free;
mod remote_list;
mod stats;

use crate::cache::ThreadCache;
use crate::class::Class;
use crate::cpu;
use crate::discipline::Discipline;
use crate::facade::{Ordering, fence};
use crate::stats::{ClassStats, Shard};
use crate::store::Store;
use remote_list::CoreLists;
use stats::RemoteEvent;

pub use remote_free::Seen;
pub use remote_list::{CORE_BYTES_MAX, RemoteFreeList, RemoteFreeSlot};
pub use stats::RemoteListStats;

/// The discipline of pools that have remote-free lists.
pub(crate) struct RemoteFree;

/// Clusters that wait for the core that allocates, if the pool is used so
/// ([`crate::Pool::remote_free_to_cores`]).
#[inline]
fn core_lists(store: &Store) -> &CoreLists {
    &store.discipline
}

impl Discipline for RemoteFree {
    type OfPool = CoreLists;

    const EVENT_COUNT: usize = stats::EVENT_COUNT;

    fn of_pool(memory_max: usize) -> CoreLists {
        CoreLists::new(memory_max)
    }

    fn collect(cache: &ThreadCache) {
        let mut list = core_lists(&cache.store).of(cpu::current()).take_if_any();
        list.classes().for_each(|class| cache.shard.count(class, RemoteEvent::Taken));
        while let Some(cluster) = list.pop() {
            // SAFETY: the list owned the cluster, so the header is valid.
            let header = unsafe { cluster.as_ref() };
            let (class, event) = (header.class(), header.freed_here());
            // SAFETY: the list handed the cluster over, and lists of this store hold this store's.
            unsafe { cache.free(class, event, cluster) };
        }
    }

    fn drain(store: &Store) {
        // Pairs with the fence after a push: see `remote_list.rs`.
        fence(Ordering::SeqCst);
        for list in core_lists(store).iter() {
            let mut listed = list.take_if_any();
            listed.classes().for_each(|class| store.count(class, RemoteEvent::Taken));
            while let Some(cluster) = listed.pop() {
                // SAFETY: the list owned the cluster, so the header is valid.
                let header = unsafe { cluster.as_ref() };
                store.count(header.class(), header.freed_here());
                // SAFETY: the list owned it and handed it over. Our caller holds the store.
                unsafe { Store::give_back(cluster) };
            }
        }
    }

    fn waiting(stats: &ClassStats) -> u64 {
        stats.remote_lists.listed_now()
    }

    fn add_to(shard: &Shard, class: Class, stats: &mut ClassStats) {
        stats.remote_lists.add(shard, class);
    }
}
