//! State that all handles of a pool, its clusters and the threads' caches share.
//!
//! It does not depend on thread-local storage. Its life: handles, caches and clusters each hold one count of
//! the `Arc<Store>`. When the last handle goes, the store is *closed*: the depot is emptied and stays empty,
//! freed clusters go to the system. So memory outlives the handles only as long as something is in view, or
//! lies in the cache of a thread that has not touched a pool since.
//!
//! In a child of fork(2) that has not taken the pool over ([`Store::is_lost`]) another thread of the parent may hold any of
//! the locks for good, and may be in the middle of a list. There nothing is locked, put back or freed: memory given back is
//! left where it is, and none is handed out. Caches of threads need no lock until they are full or empty, so the question
//! is asked on those ways alone. Tests: `tests/accounting.rs`, `tests/cap.rs`, `crates/drivers/tests/fork`.

use std::ptr::NonNull;

use sockeye_sync::facade::unmodelled::Arc;
use sockeye_sync::fork::Origin;

use crate::class::Class;
use crate::cluster::Cluster;
use crate::cpu;
use crate::depot::Depot;
use crate::discipline::{Chosen, Discipline};
use crate::facade::Mutex;
use crate::magazine::Magazine;
use crate::quota::Quota;
use crate::stats::{Counted, PoolStats, Shard};

pub(crate) struct Store {
    /// The process whose threads use it.
    pub(crate) origin: Origin,
    pub(crate) quota: Quota,
    pub(crate) depot: Depot,
    /// Clusters that are kept elsewhere than in caches and the depot.
    #[cfg_attr(not(feature = "experiments"), allow(dead_code, reason = "the product keeps nothing"))]
    pub(crate) discipline: <Chosen as Discipline>::OfPool,
    shards: Mutex<Shards>,
}

struct Shards {
    /// Of threads that have a cache for this pool.
    of_threads: Vec<Arc<Shard>>,
    /// Of threads that have none, or no longer.
    of_others: Arc<Shard>,
}

impl Store {
    pub(crate) fn new(memory_max: usize, depot_max: usize, reuse: bool) -> Store {
        let shards = Shards { of_threads: Vec::new(), of_others: Arc::new(Shard::default()) };
        Store {
            origin: Origin::here(),
            quota: Quota::new(memory_max, reuse),
            depot: Depot::new(depot_max),
            discipline: Chosen::of_pool(memory_max),
            shards: Mutex::new(shards),
        }
    }

    /// Whether this process has it from its parent, and must leave it alone.
    pub(crate) fn is_lost(&self) -> bool {
        !self.origin.is_here()
    }

    /// A free cluster from the system, counted against the cap. `None` at the cap, or if the system
    /// has no memory.
    pub(crate) fn obtain(this: &Arc<Store>, class: Class) -> Option<NonNull<Cluster>> {
        let bytes = Cluster::footprint(class);
        if !this.quota.reserve(bytes) {
            return None;
        }
        let count = Arc::into_raw(Arc::clone(this));
        let cluster = Cluster::obtain(class, count);
        if cluster.is_none() {
            // SAFETY: `count` is from `into_raw` just now, and the cluster did not take it over.
            drop(unsafe { Arc::from_raw(count) });
            this.quota.release(bytes);
        }
        cluster
    }

    /// Returns a free cluster to the system.
    ///
    /// # Safety
    /// `cluster` is free, and the caller owns it and hands it over.
    pub(crate) unsafe fn give_back(cluster: NonNull<Cluster>) {
        // SAFETY: the caller owns the cluster, so the header is valid.
        let class = unsafe { cluster.as_ref() }.class();
        // SAFETY: free and owned, as the caller says.
        let count = unsafe { Cluster::give_back(cluster) };
        // SAFETY: each cluster owns one count, made in `obtain`, and has just handed it over.
        let store = unsafe { Arc::from_raw(count) };
        store.quota.release(Cluster::footprint(class));
    }

    /// Returns all clusters of a magazine to the system.
    pub(crate) fn give_back_all(mut magazine: Magazine) {
        while let Some(cluster) = magazine.pop() {
            // SAFETY: the magazine owned it and handed it over.
            unsafe { Store::give_back(cluster) };
        }
    }

    /// Returns all that lies outside of the threads' caches to the system.
    pub(crate) fn drain(&self) {
        for class in Class::ALL {
            for magazine in self.depot.drain(class) {
                Store::give_back_all(magazine);
            }
        }
        Chosen::drain(self);
    }

    /// Gives a magazine to the depot, or to the system if the depot does not want it. True if it
    /// was kept.
    pub(crate) fn put(&self, class: Class, magazine: Magazine) -> bool {
        self.put_for(cpu::current(), class, magazine)
    }

    /// As [`Store::put`], into the rack of `core`.
    pub(crate) fn put_for(&self, core: u32, class: Class, magazine: Magazine) -> bool {
        if self.is_lost() {
            return true;
        }
        match self.depot.store(core, class, magazine, || self.quota.keeps()) {
            Ok(()) => true,
            Err(magazine) => {
                Store::give_back_all(magazine);
                false
            }
        }
    }

    /// Gives one cluster to the depot, or to the system if the depot does not want it. True if it
    /// was kept.
    ///
    /// # Safety
    /// `cluster` is free, of this store and class, and the caller owns it and hands it over.
    pub(crate) unsafe fn put_one(&self, class: Class, cluster: NonNull<Cluster>) -> bool {
        if self.is_lost() {
            return true;
        }
        // SAFETY: as the caller says.
        match unsafe { self.depot.store_one(class, cluster, || self.quota.keeps()) } {
            Ok(()) => true,
            Err(cluster) => {
                // SAFETY: the depot did not take it, so it is still ours to hand over.
                unsafe { Store::give_back(cluster) };
                false
            }
        }
    }

    /// The last handle went.
    pub(crate) fn close(&self) {
        self.quota.close();
        self.drain();
    }

    /// A shard for a thread that begins to use the pool.
    pub(crate) fn open_shard(&self) -> Arc<Shard> {
        let shard = Arc::new(Shard::default());
        self.shards.lock().of_threads.push(Arc::clone(&shard));
        shard
    }

    /// Adds a thread's counts to the others' for good.
    pub(crate) fn close_shard(&self, shard: &Arc<Shard>) {
        let mut shards = self.shards.lock();
        shards.of_threads.retain(|other| !Arc::ptr_eq(other, shard));
        shards.of_others.absorb(shard);
    }

    /// Counts for a thread that has no shard.
    pub(crate) fn count(&self, class: Class, event: impl Counted) {
        if self.is_lost() {
            return;
        }
        self.shards.lock().of_others.count_shared(class, event);
    }

    pub(crate) fn stats(&self) -> PoolStats {
        let mut stats = PoolStats {
            allocated: self.quota.taken(),
            depot: self.depot.held(),
            memory_max: self.quota.max(),
            ..PoolStats::default()
        };
        let shards = self.shards.lock();
        shards.of_others.add_to(&mut stats);
        for shard in &shards.of_threads {
            shard.add_to(&mut stats);
        }
        stats
    }
}
