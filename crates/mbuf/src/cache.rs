//! Each thread's own free clusters: the fast path of allocating and freeing.
//!
//! A thread has one [`ThreadCache`] for each pool it uses, and finds the one it used last without a
//! search. Only the thread itself touches it, so no instruction in it is locked. It holds two
//! magazines of each class: with two, a thread that allocates and frees around the border of a
//! magazine does not go to the depot each time. Bulk clusters of other cores have a third one, in which they go home.
//!
//! It does not depend on views or chains. Invariants:
//! * `CURRENT` is null or points to a cache in `CACHES` of the same thread.
//! * A cache is dropped by its own thread only, and only while no reference to it exists:
//!   in [`with_cache`] before the reference is made, in `forget`, and at the thread's end.
//! * The cache's copy of the control word (`seen`) has no flag set. So when the word has one, each operation
//!   goes the slow way and looks.
//!
//! A cache empties itself when the generation in the control word has moved, when the pool is closed, and at
//! its thread's end. An idle thread does none of this until it touches a pool again: it keeps at most
//! [`CACHE_BYTES`], and the quota bounds the caches of all threads together. Tests: `tests/accounting.rs`,
//! `tests/threads.rs`; models in `experiments/remote_free/models.rs`.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};

use sockeye_sync::facade::unmodelled::{Arc, AtomicUsize, Ordering};

use crate::class::{CLASS_COUNT, Class};
use crate::cluster::Cluster;
use crate::cpu;
use crate::discipline::{Chosen, Discipline};
use crate::facade::thread_local;
use crate::magazine::Magazine;
use crate::quota::{CLOSED, FLAGS};
use crate::stats::{Event, Shard};
use crate::store::Store;

/// One thread's free clusters of one pool.
pub(crate) struct ThreadCache {
    pub(crate) store: Arc<Store>,
    pub(crate) shard: Arc<Shard>,
    /// The control word when it was last acted on.
    seen: Cell<usize>,
    /// The count of frees at the last refusal, for `wait_freed`.
    refused: Cell<Option<u64>>,
    /// Whether the quota allows this cache to hold anything. One that may not passes everything on
    /// to the depot, one by one.
    granted: bool,
    bins: [Bin; CLASS_COUNT],
    /// Clusters of bulk data that another core allocated, and will again: they go to the depot together, since each
    /// access of one core to memory that another wrote last costs more than the rest of a free.
    homebound: Cell<Magazine>,
}

/// The class that goes home together: of the others a full magazine does.
const HOMEBOUND: Class = Class::K64;
/// Clusters that go home together.
const HOMEBOUND_ROUNDS: u32 = 4;

/// Two magazines of one class. `loaded` is used first; `spare` is full, empty, or from the depot.
struct Bin {
    loaded: Cell<Magazine>,
    spare: Cell<Magazine>,
}

/// Bound of a cache, bytes with headers: two magazines of each class. Of the class that goes home, the rest of what came from the depot together takes the
/// place of one, and fewer than go together wait for that.
const CACHE_BYTES: usize = {
    let homebound = 2 * (HOMEBOUND_ROUNDS - 1) - HOMEBOUND.rounds();
    let mut bytes = homebound as usize * Cluster::footprint(HOMEBOUND);
    let mut i = 0;
    while i < CLASS_COUNT {
        let class = Class::ALL[i];
        bytes += 2 * class.rounds() as usize * Cluster::footprint(class);
        i += 1;
    }
    bytes
};

thread_local! {
    /// The cache used last. Has no destructor, so it can be read until the thread is gone.
    static CURRENT: Cell<*const ThreadCache> = const { Cell::new(ptr::null()) };
}
thread_local! {
    /// All caches of this thread.
    static CACHES: Caches = const { Caches(RefCell::new(Vec::new())) };
}
thread_local! {
    /// [`CLOSINGS`] when this thread last looked for closed pools among its caches; another number if it never did.
    static LOOKED_AT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// How many pools of the process were closed. A thread with caches of many pools, as the simulator has, looks at all of them only when this has moved.
/// Not modelled: when a thread sees it decides how long it keeps memory, and nothing else.
static CLOSINGS: AtomicUsize = AtomicUsize::new(0);

/// A pool's control word says that it is closed: threads are to look for it.
pub(crate) fn note_closing() {
    CLOSINGS.fetch_add(1, Ordering::Release);
}

/// With the address of the store beside each, so that a search reads this list only. Boxed, because `CURRENT` points to one of them while the list grows.
struct Caches(RefCell<Vec<(*const Store, Box<ThreadCache>)>>);

impl Drop for Caches {
    fn drop(&mut self) {
        // From here on this thread has no caches: `CACHES` cannot be reached any more.
        set_current(ptr::null());
    }
}

/// The cache used last, or null.
#[inline]
fn current() -> *const ThreadCache {
    CURRENT.try_with(Cell::get).unwrap_or(ptr::null())
}

fn set_current(cache: *const ThreadCache) {
    // In a model the thread may be past its locals.
    let _ = CURRENT.try_with(|current| current.set(cache));
}

/// A free cluster of at least the class's capacity, or `None` at the cap.
#[inline]
pub(crate) fn alloc(store: &Arc<Store>, class: Class) -> Option<NonNull<Cluster>> {
    with_cache(Arc::as_ptr(store), |cache| match cache {
        Some(cache) => {
            let cluster = cache.alloc(class)?;
            // SAFETY: the cluster is free and ours, so the header is valid.
            unsafe { cluster.as_ref() }.publish(cpu::current());
            Some(cluster)
        }
        None => alloc_without_cache(store, class),
    })
}

/// Takes back a cluster whose last view is gone.
///
/// # Safety
/// `cluster` is free, and the caller owns it and hands it over.
#[inline]
pub(crate) unsafe fn free(cluster: NonNull<Cluster>) {
    // SAFETY: the caller owns the cluster, so the header is valid.
    let header = unsafe { cluster.as_ref() };
    let (class, event) = (header.class(), header.freed_here());
    with_cache(header.store(), |cache| match cache {
        // SAFETY: as the caller says.
        Some(cache) => unsafe { cache.free(class, event, cluster) },
        // SAFETY: as the caller says.
        None => unsafe { free_without_cache(class, cluster) },
    });
}

/// The count of frees at the calling thread's last refusal by this pool, for `wait_freed`.
pub(crate) fn refusal(store: &Arc<Store>) -> Option<u64> {
    with_cache(Arc::as_ptr(store), |cache| cache.and_then(|cache| cache.refused.get()))
}

/// Empties the calling thread's cache for this pool into the system.
pub(crate) fn flush(store: &Arc<Store>) {
    with_cache(Arc::as_ptr(store), |cache| {
        if let Some(cache) = cache {
            cache.give_back_all();
        }
    });
}

/// Drops the calling thread's caches of closed pools, with their content.
pub(crate) fn forget_closed() {
    set_current(ptr::null());
    // The thread may be past its thread-local destructors; then it has no caches.
    let _ = CACHES.try_with(|caches| {
        let is_closed = |(_, cache): &mut (*const Store, Box<ThreadCache>)| {
            cache.store.quota.control() & CLOSED != 0 && !cache.store.is_lost()
        };
        // Taken out first: dropping caches frees memory, and must not find the list borrowed.
        let closed: Vec<_> = caches.0.borrow_mut().extract_if(.., is_closed).collect();
        drop(closed);
    });
}

/// Calls `f` with the calling thread's cache for the pool, which is made if need be. There is none
/// while the thread ends, and none is made for a closed pool.
///
/// `f` must not call back into this module. A caller has a handle or a cluster, which keeps `store`
/// alive.
#[inline]
pub(crate) fn with_cache<R>(store: *const Store, f: impl FnOnce(Option<&ThreadCache>) -> R) -> R {
    let current = current();
    // SAFETY: `CURRENT` is null or points to a cache of this thread, which only this thread drops,
    // and not while `f` runs.
    let cache = unsafe { current.as_ref() };
    f(match cache {
        Some(cache) if Arc::as_ptr(&cache.store) == store => Some(cache),
        Some(_) | None => find_cache(store),
    })
}

/// The way of [`with_cache`] when the thread used another pool last, or none.
#[cold]
fn find_cache<'a>(store: *const Store) -> Option<&'a ThreadCache> {
    // Before the look, so that a pool which closes during it is looked for again. Pairs with the Release in `note_closing`.
    let closings = CLOSINGS.load(Ordering::Acquire);
    if LOOKED_AT.try_with(|looked_at| looked_at.replace(closings)).ok() != Some(closings) {
        forget_closed();
    }
    CACHES
        .try_with(|caches| {
            let mut caches = caches.0.borrow_mut();
            let known = caches.iter().position(|(of, _)| *of == store);
            let at = match known {
                Some(at) => at,
                None => {
                    // SAFETY: the caller of `with_cache` keeps the store alive.
                    let counted = unsafe { count_store(store) };
                    if counted.quota.control() & CLOSED != 0 || counted.is_lost() {
                        return None;
                    }
                    caches.push((store, Box::new(ThreadCache::new(counted))));
                    caches.len() - 1
                }
            };
            let cache = ptr::from_ref::<ThreadCache>(&caches[at].1);
            set_current(cache);
            Some(cache)
        })
        .ok()
        .flatten()
        // SAFETY: the cache is boxed, so it stays in place, and is dropped by this thread only and
        // not before the caller is done.
        .map(|cache| unsafe { &*cache })
}

/// One more count of a store that is known by its pointer.
///
/// # Safety
/// `store` came from an `Arc` that a caller holds meanwhile.
pub(crate) unsafe fn count_store(store: *const Store) -> Arc<Store> {
    // SAFETY: as the caller says.
    unsafe { Arc::increment_strong_count(store) };
    // SAFETY: the count taken just now is handed over.
    unsafe { Arc::from_raw(store) }
}

#[cold]
fn alloc_without_cache(store: &Arc<Store>, class: Class) -> Option<NonNull<Cluster>> {
    if store.is_lost() {
        return None;
    }
    let (cluster, event) = match store.depot.load_one(class) {
        Some(cluster) => (Some(cluster), Event::DepotLoad),
        None => (Store::obtain(store, class), Event::Fresh),
    };
    let Some(cluster) = cluster else {
        store.count(class, Event::Refusal);
        return None;
    };
    store.count(class, event);
    // SAFETY: the cluster is free and ours, so the header is valid.
    unsafe { cluster.as_ref() }.publish(cpu::current());
    Some(cluster)
}

/// # Safety
/// As [`free`].
#[cold]
unsafe fn free_without_cache(class: Class, cluster: NonNull<Cluster>) {
    // SAFETY: the caller owns the cluster, so the header is valid.
    let header = unsafe { cluster.as_ref() };
    // SAFETY: the cluster holds a count of the store. Ours keeps the store until the end of this
    // function, which the cluster's does not.
    let store = unsafe { count_store(header.store()) };
    store.count(class, header.freed_here());
    // SAFETY: as the caller says.
    unsafe { store.put_one(class, cluster) };
}

impl ThreadCache {
    fn new(store: Arc<Store>) -> ThreadCache {
        let shard = store.open_shard();
        let granted = store.quota.grant_cache(CACHE_BYTES);
        ThreadCache {
            shard,
            seen: Cell::new(store.quota.control() & !FLAGS),
            refused: Cell::new(None),
            granted,
            bins: std::array::from_fn(|_| Bin {
                loaded: Cell::new(Magazine::new()),
                spare: Cell::new(Magazine::new()),
            }),
            homebound: Cell::new(Magazine::new()),
            store,
        }
    }

    #[inline]
    fn is_current(&self) -> bool {
        self.store.quota.control() == self.seen.get()
    }

    #[inline]
    fn alloc(&self, class: Class) -> Option<NonNull<Cluster>> {
        if self.is_current()
            && let Some(cluster) = self.bins[class.index()].pop()
        {
            self.shard.count(class, Event::Hit);
            return Some(cluster);
        }
        self.alloc_slow(class)
    }

    #[cold]
    fn alloc_slow(&self, class: Class) -> Option<NonNull<Cluster>> {
        if self.store.is_lost() {
            return None;
        }
        self.catch_up();
        Chosen::collect(self);
        let bin = &self.bins[class.index()];
        if let Some(cluster) = bin.pop() {
            self.shard.count(class, Event::Hit);
            return Some(cluster);
        }
        if let Some(cluster) = self.stay(class) {
            self.shard.count(class, Event::Hit);
            return Some(cluster);
        }
        if let Some(cluster) = self.load(class) {
            self.shard.count(class, Event::DepotLoad);
            return Some(cluster);
        }
        let cluster = Store::obtain(&self.store, class).or_else(|| self.obtain_at_cap(class));
        let event = if cluster.is_some() { Event::Fresh } else { Event::Refusal };
        self.shard.count(class, event);
        cluster
    }

    /// One of the clusters that would have gone home; the rest go into the cache.
    fn stay(&self, class: Class) -> Option<NonNull<Cluster>> {
        if class != HOMEBOUND {
            return None;
        }
        let bin = &self.bins[class.index()];
        bin.loaded.set(self.homebound.replace(Magazine::new()));
        bin.pop()
    }

    /// One cluster from the depot; the rest of its magazine goes into the cache.
    fn load(&self, class: Class) -> Option<NonNull<Cluster>> {
        if !self.granted {
            return self.store.depot.load_one(class);
        }
        let magazine = self.store.depot.load(class)?;
        let bin = &self.bins[class.index()];
        // Both magazines are empty here, or the allocation would not have come this far.
        bin.loaded.set(magazine);
        bin.pop()
    }

    /// The system was not asked because of the cap, or has nothing: cached clusters of other classes go back,
    /// then one more try.
    fn obtain_at_cap(&self, class: Class) -> Option<NonNull<Cluster>> {
        let seen = self.store.quota.refuse();
        self.give_back_all();
        self.store.drain();
        let cluster = Store::obtain(&self.store, class);
        if cluster.is_none() {
            self.refused.set(Some(seen));
        }
        cluster
    }

    /// # Safety
    /// `cluster` is free, of this store and class, and the caller owns it and hands it over.
    #[inline]
    pub(crate) unsafe fn free(&self, class: Class, event: Event, cluster: NonNull<Cluster>) {
        self.shard.count(class, event);
        if self.granted && self.is_current() {
            if class == HOMEBOUND && matches!(event, Event::FreeRemote) {
                // SAFETY: as the caller says.
                return unsafe { self.send_home(cluster) };
            }
            // SAFETY: as the caller says.
            if unsafe { self.bins[class.index()].push(class, cluster) } {
                return;
            }
        }
        // SAFETY: as the caller says; the bin did not take it.
        unsafe { self.free_slow(class, cluster) };
    }

    /// # Safety
    /// As [`ThreadCache::free`], and the cluster is of [`HOMEBOUND`].
    unsafe fn send_home(&self, cluster: NonNull<Cluster>) {
        let mut homebound = self.homebound.replace(Magazine::new());
        // SAFETY: as the caller says.
        unsafe { homebound.push(cluster) };
        if homebound.count() < HOMEBOUND_ROUNDS {
            self.homebound.set(homebound);
        } else if self.store.put(HOMEBOUND, homebound) {
            self.shard.count(HOMEBOUND, Event::DepotStore);
        }
    }

    /// # Safety
    /// As [`ThreadCache::free`].
    #[cold]
    unsafe fn free_slow(&self, class: Class, cluster: NonNull<Cluster>) {
        if self.store.is_lost() {
            return;
        }
        self.catch_up();
        if !self.store.quota.keeps() {
            // SAFETY: as the caller says. Our own count keeps the store.
            unsafe { Store::give_back(cluster) };
            return;
        }
        if !self.granted {
            // SAFETY: as the caller says.
            if unsafe { self.store.put_one(class, cluster) } {
                self.shard.count(class, Event::DepotStore);
            }
            return;
        }
        let bin = &self.bins[class.index()];
        // SAFETY: as the caller says.
        if unsafe { bin.push(class, cluster) } {
            return;
        }
        // Both are full: one goes to the depot, and makes room.
        let full = bin.spare.replace(bin.loaded.replace(Magazine::new()));
        if self.store.put(class, full) {
            self.shard.count(class, Event::DepotStore);
        }
        // SAFETY: as the caller says; the bin did not take it above.
        let taken = unsafe { bin.push(class, cluster) };
        assert!(taken, "an empty magazine has room");
    }

    /// Acts on changes of the control word.
    fn catch_up(&self) {
        let control = self.store.quota.control();
        if control & !FLAGS != self.seen.get() || control & CLOSED != 0 {
            self.give_back_all();
        }
        self.seen.set(control & !FLAGS);
    }

    /// Empties the cache into the system.
    fn give_back_all(&self) {
        if self.store.is_lost() {
            return;
        }
        for bin in &self.bins {
            Store::give_back_all(bin.loaded.replace(Magazine::new()));
            Store::give_back_all(bin.spare.replace(Magazine::new()));
        }
        Store::give_back_all(self.homebound.replace(Magazine::new()));
    }
}

impl Drop for ThreadCache {
    fn drop(&mut self) {
        if self.store.is_lost() {
            // The store may be half changed, so it must not go with the last count of it.
            std::mem::forget(Arc::clone(&self.store));
            return;
        }
        // Clusters that were to be trimmed do not go to the depot.
        self.catch_up();
        for class in Class::ALL {
            let bin = &self.bins[class.index()];
            for magazine in [bin.loaded.replace(Magazine::new()), bin.spare.replace(Magazine::new())] {
                self.store.put(class, magazine);
            }
        }
        self.store.put(HOMEBOUND, self.homebound.replace(Magazine::new()));
        if self.granted {
            self.store.quota.return_cache(CACHE_BYTES);
        }
        self.store.close_shard(&self.shard);
    }
}

impl Bin {
    #[inline]
    fn pop(&self) -> Option<NonNull<Cluster>> {
        let mut loaded = self.loaded.replace(Magazine::new());
        let mut cluster = loaded.pop();
        if cluster.is_none() {
            loaded = self.spare.replace(loaded);
            cluster = loaded.pop();
        }
        self.loaded.set(loaded);
        cluster
    }

    /// Takes the cluster if there is room: true.
    ///
    /// # Safety
    /// `cluster` is free, of this bin's class, and the caller owns it and hands it over if taken.
    #[inline]
    unsafe fn push(&self, class: Class, cluster: NonNull<Cluster>) -> bool {
        let mut loaded = self.loaded.replace(Magazine::new());
        if loaded.count() >= class.rounds() {
            loaded = self.spare.replace(loaded);
        }
        let room = loaded.count() < class.rounds();
        if room {
            // SAFETY: as the caller says.
            unsafe { loaded.push(cluster) };
        }
        self.loaded.set(loaded);
        room
    }
}
