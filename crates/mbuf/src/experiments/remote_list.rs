//! Remote-free lists (mimalloc's term), where free clusters wait for the core that allocated them: lock-free places that any
//! thread may put them into, and any thread may empty.
//!
//! * [`RemoteFreeSlot`] holds one cluster. Putting is a compare-exchange from empty, taking is a swap.
//! * [`RemoteFreeList`] holds as many as its bound in bytes allows. Putting reserves the bytes, then pushes; taking swaps
//!   the whole list out, then gives the bytes back.
//! * [`CoreLists`] is a [`RemoteFreeList`] for each core that allocates.
//!
//! It does not depend on which thread allocates, which one reads, or when a place is emptied.
//!
//! # What holds
//! * *Nothing is lost or given twice.* A place is only ever emptied as a whole, so a pusher whose exchange succeeds
//!   has linked to the current head (no ABA: it does not look into the clusters that it links to).
//! * *The bound holds at every moment, to the byte.* `bytes` counts a cluster from before it is pushed until after
//!   it is taken. Of the clusters that are in the list, look at the one that was counted last: the bytes of all
//!   others were in the count that it found, and with its own they were within the bound. (A count that is set to
//!   zero before the list is taken, as kernels do it, lets a few more in.)
//! * *A kick for each fill.* The thread that brings the count from below half of the bound to half or more is told to
//!   kick, after it has pushed. The count falls only when clusters were taken. A cluster that another thread has
//!   counted and not pushed yet may be missed by the flush that the kick causes; such a cluster then waits for the next
//!   one, or for the stack's look at lists that no thread empties.
//! * *Nothing stays on a list that is wanted.* Before and after a push the pool's flags are read (`Pool::remote_free_to_*`): a
//!   pool that is closed, near its cap or has refused a caller keeps nothing. The thread that sets such a flag empties the
//!   lists afterwards. Between the push and the second look, and between flag and emptying, stand sequentially consistent
//!   fences: either the pusher sees the flag and takes back its cluster, or the emptying sees it.
//!
//! Tests: loom models at the end, and of the threads that free in `remote_free/models.rs`; `tests/remote_free.rs`.

use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use super::stats::{self, RemoteEvent};
use crate::cluster::Cluster;
use crate::cpu;
use crate::facade::{AtomicPtr, AtomicUsize, Ordering};
use crate::freed::{FreeList, Freed};

impl FreeList {
    /// The clusters from `head` on, counted one by one.
    ///
    /// # Safety
    /// `head` is null or the first of a linked list of free clusters that the caller owns and hands over.
    unsafe fn from_head(head: *mut Cluster) -> FreeList {
        let mut list = FreeList { head, ..FreeList::new() };
        let mut at = head;
        while let Some(cluster) = NonNull::new(at) {
            // SAFETY: the caller owns each cluster of the list, so the header is valid.
            let header = unsafe { cluster.as_ref() };
            list.bytes += Cluster::footprint(header.class());
            list.tail = at;
            at = header.next().get();
        }
        list
    }
}

impl Freed {
    /// A list taken from a remote-free list.
    pub(super) fn of_remote_list(list: FreeList) -> Freed {
        stats::count_list(&list, RemoteEvent::Taken);
        Freed { list }
    }
}

/// A place for one free cluster. 8 bytes. Dropping it gives the cluster to the dropping thread's cache.
pub struct RemoteFreeSlot {
    /// (a) The cluster. Put with release, taken with acquire: its header's link and class come along.
    cluster: AtomicPtr<Cluster>,
}

impl RemoteFreeSlot {
    /// An empty slot.
    pub fn new() -> RemoteFreeSlot {
        RemoteFreeSlot { cluster: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Whether it was empty just now.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.cluster.load(Ordering::Relaxed).is_null()
    }

    /// Puts a list of one cluster into the slot, or gives it back if the slot is taken.
    pub(crate) fn put(&self, one: FreeList) -> Result<(), FreeList> {
        debug_assert!(ptr::eq(one.head, one.tail), "a slot takes one");
        let empty = ptr::null_mut();
        match self.cluster.compare_exchange(empty, one.head, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(one),
        }
    }

    /// Empties the slot.
    pub(crate) fn take_list(&self) -> FreeList {
        let head = self.cluster.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: only lists of free clusters are put here, and the swap made it ours.
        unsafe { FreeList::from_head(head) }
    }
}

impl Drop for RemoteFreeSlot {
    fn drop(&mut self) {
        drop(Freed::of_remote_list(self.take_list()));
    }
}

impl Default for RemoteFreeSlot {
    fn default() -> RemoteFreeSlot {
        RemoteFreeSlot::new()
    }
}

/// A list of free clusters, bounded in bytes. 16 bytes. Dropping it gives them to the dropping thread's cache.
pub struct RemoteFreeList {
    /// (a) The first cluster. Pushed with release, taken with acquire.
    head: AtomicPtr<Cluster>,
    /// (a) Bytes reserved; see the module's head. Orders nothing.
    bytes: AtomicUsize,
}

/// Result of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reserved {
    /// There is no room.
    Refused,
    /// There is.
    Granted(Fill),
}

/// Fill of the list with a reservation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fill {
    /// Less than half full, or it was half full before.
    Same,
    /// Half full now: its owner should be told once the clusters are pushed.
    Half,
}

impl RemoteFreeList {
    /// An empty list.
    pub fn new() -> RemoteFreeList {
        RemoteFreeList { head: AtomicPtr::new(ptr::null_mut()), bytes: AtomicUsize::new(0) }
    }

    /// Whether it was empty just now.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Bytes in the list; those included that are just being pushed or taken.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The top now, for comparing only: the same twice means that probably nothing came or went.
    #[inline]
    pub(crate) fn top(&self) -> usize {
        self.head.load(Ordering::Relaxed).addr()
    }

    /// Counts `bytes` if that keeps the count at `bytes_max` or below. The thread that is granted this pushes.
    pub(crate) fn reserve(&self, bytes: usize, bytes_max: usize) -> Reserved {
        let half = bytes_max.div_ceil(2);
        // An exchange and not an addition: one that is refused must not be seen by another, whose step over the
        // half it would hide.
        let mut before = self.bytes.load(Ordering::Relaxed);
        loop {
            let after = before.saturating_add(bytes);
            if after > bytes_max {
                return Reserved::Refused;
            }
            match self.bytes.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if before < half && after >= half => return Reserved::Granted(Fill::Half),
                Ok(_) => return Reserved::Granted(Fill::Same),
                Err(now) => before = now,
            }
        }
    }

    /// Adds clusters whose bytes were reserved.
    pub(crate) fn push(&self, list: FreeList) {
        let Some(tail) = NonNull::new(list.tail) else { return };
        // SAFETY: `list` owns the cluster until the exchange below succeeds.
        let link = unsafe { tail.as_ref() }.next();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.set(head);
            match self.head.compare_exchange_weak(head, list.head, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Empties the list, unless it looks empty: it is looked at far more often than it is found full, and must not
    /// be written then.
    #[inline]
    pub(crate) fn take_if_any(&self) -> FreeList {
        if self.is_empty() { FreeList::new() } else { self.take_list() }
    }

    /// Empties the list.
    pub(crate) fn take_list(&self) -> FreeList {
        let head = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: only lists of free clusters are pushed here, and the swap made them ours.
        let list = unsafe { FreeList::from_head(head) };
        self.bytes.fetch_sub(list.footprint(), Ordering::Relaxed);
        list
    }
}

impl Drop for RemoteFreeList {
    fn drop(&mut self) {
        drop(Freed::of_remote_list(self.take_list()));
    }
}

impl Default for RemoteFreeList {
    fn default() -> RemoteFreeList {
        RemoteFreeList::new()
    }
}

/// A [`RemoteFreeList`] for each core.
pub(crate) struct CoreLists {
    /// (c) One for each core, a power of two, so that a core's number can be cut to size.
    lists: Box<[CachePadded<RemoteFreeList>]>,
    /// (c) The bound of each, bytes.
    pub(crate) bytes_max: usize,
}

/// Bytes that wait for one core, at most: some 64 clusters of bulk data, or 13,000 small ones, which is a request of
/// each of ten thousand connections.
pub const CORE_BYTES_MAX: usize = 4 << 20;
/// At most one part in so many of the cap waits for all cores together.
const LISTED_SHARE: usize = 8;
/// Most lists; cores beyond that share.
const LISTS_MAX: usize = 64;

impl CoreLists {
    /// Empty lists for a pool of `memory_max` bytes.
    pub(crate) fn new(memory_max: usize) -> CoreLists {
        let count = cpu::count().next_power_of_two().min(LISTS_MAX);
        let bytes_max = CORE_BYTES_MAX.min(memory_max / LISTED_SHARE / count);
        CoreLists { lists: (0..count).map(|_| CachePadded::new(RemoteFreeList::new())).collect(), bytes_max }
    }

    #[inline]
    pub(crate) fn of(&self, core: u32) -> &RemoteFreeList {
        &self.lists[core as usize & (self.lists.len() - 1)]
    }

    pub(crate) fn count(&self) -> usize {
        self.lists.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RemoteFreeList> {
        self.lists.iter().map(|list| &**list)
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::class::Class;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    const CLASS: Class = Class::B256;
    const ONE: usize = Cluster::footprint(CLASS);

    // The models empty lists with `take_list` and not with `take_if_any`: of the accesses to a word that a later one
    // races with, the checker comes back to the last only, and that must not be a load.

    /// Places with clusters of their own. Each cluster has a cell that stands for its memory: the thread that owns the
    /// cluster writes it, and loom reports two that do so at a time. How many clusters there are is the models' `N`.
    struct Place<const N: usize> {
        list: RemoteFreeList,
        slot: RemoteFreeSlot,
        clusters: [NonNull<Cluster>; N],
        memory: [UnsafeCell<u32>; N],
    }

    // SAFETY: clusters are handed over through the places only, as the models check.
    unsafe impl<const N: usize> Send for Place<N> {}
    // SAFETY: as above; the cells are watched by loom.
    unsafe impl<const N: usize> Sync for Place<N> {}

    impl<const N: usize> Place<N> {
        fn new() -> Arc<Self> {
            let clusters =
                std::array::from_fn(|_| Cluster::obtain(CLASS, ptr::null()).expect("memory for a test"));
            Arc::new(Place {
                list: RemoteFreeList::new(),
                slot: RemoteFreeSlot::new(),
                clusters,
                memory: std::array::from_fn(|_| UnsafeCell::new(0)),
            })
        }

        /// An owner's use of a cluster.
        fn own(&self, index: usize) {
            // SAFETY: loom reports it if another thread owns it too.
            self.memory[index].with_mut(|memory| unsafe { *memory += 1 });
        }

        /// A list of one cluster, freed by this thread.
        fn freed(&self, index: usize) -> FreeList {
            self.own(index);
            let mut list = FreeList::new();
            // SAFETY: each model's thread frees clusters of its own.
            unsafe { list.push(self.clusters[index]) };
            list
        }

        /// Owns the clusters taken; returns how many there were.
        fn keep(&self, mut list: FreeList) -> usize {
            let mut count = 0;
            while let Some(cluster) = list.pop() {
                let index = self.clusters.iter().position(|one| *one == cluster).expect("one of ours");
                self.own(index);
                count += 1;
            }
            count
        }

        /// Puts a cluster on the list, or keeps it. Whether it was put, and whether that was a kick.
        fn put(&self, index: usize, max: usize) -> (bool, bool) {
            let one = self.freed(index);
            match self.list.reserve(ONE, max * ONE) {
                Reserved::Refused => {
                    self.keep(one);
                    (false, false)
                }
                Reserved::Granted(fill) => {
                    self.list.push(one);
                    (true, fill == Fill::Half)
                }
            }
        }
    }

    impl<const N: usize> Drop for Place<N> {
        fn drop(&mut self) {
            assert!(self.list.is_empty() && self.slot.is_empty(), "a model takes out what it put in");
            for cluster in self.clusters {
                // SAFETY: the model is over, and the places are empty.
                unsafe { Cluster::give_back(cluster) };
            }
        }
    }

    #[test]
    fn a_flush_between_two_adds_loses_nothing_and_gives_nothing_twice() {
        loom::model(|| {
            let place = Place::<2>::new();
            let adders = [0, 1].map(|index| {
                let place = Arc::clone(&place);
                thread::spawn(move || place.put(index, 2).0)
            });
            let mut taken = place.keep(place.list.take_list());
            let listed =
                adders.map(|adder| adder.join().unwrap()).into_iter().filter(|listed| *listed).count();
            assert_eq!(listed, 2, "there was room for both");
            taken += place.keep(place.list.take_list());
            assert_eq!(taken, 2);
            // Relaxed: all threads are done.
            assert_eq!(place.list.bytes.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn a_list_never_holds_more_than_its_bound() {
        let mut model = loom::model::Builder::new();
        // Three threads: two preemptions let a flush fall between the reservation and the push of both others.
        model.preemption_bound = Some(2);
        model.check(|| {
            let place = Place::<3>::new();
            // Room for one of the three.
            assert!(place.put(2, 1).0);
            let adders = [0, 1].map(|index| {
                let place = Arc::clone(&place);
                thread::spawn(move || place.put(index, 1).0)
            });
            let first = place.keep(place.list.take_list());
            let second = place.keep(place.list.take_list());
            assert!(first <= 1 && second <= 1, "{first} and {second} at a time");
            let listed =
                adders.map(|adder| adder.join().unwrap()).into_iter().filter(|listed| *listed).count();
            let left = place.keep(place.list.take_list());
            assert!(left <= 1);
            assert_eq!(first + second + left, 1 + listed);
            // Relaxed: all threads are done.
            assert_eq!(place.list.bytes.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn a_list_that_is_left_half_full_had_its_kick() {
        loom::model(|| {
            let place = Place::<2>::new();
            let adders = [0, 1].map(|index| {
                let place = Arc::clone(&place);
                // Room for four: two are half of it.
                thread::spawn(move || place.put(index, 4).1)
            });
            let flushed = place.keep(place.list.take_list());
            let kicks = adders.map(|adder| adder.join().unwrap()).into_iter().filter(|kick| *kick).count();
            let left = place.keep(place.list.take_list());
            assert_eq!(flushed + left, 2);
            assert!(kicks <= 1, "one for each fill");
            if left == 2 {
                assert_eq!(kicks, 1);
            }
        });
    }

    #[test]
    fn a_flush_that_a_kick_causes_finds_the_clusters_pushed_before_it() {
        loom::model(|| {
            let place = Place::<2>::new();
            let kicked = Arc::new(AtomicUsize::new(0));
            assert!(!place.put(0, 4).1);
            let (other, kick) = (Arc::clone(&place), Arc::clone(&kicked));
            let adder = thread::spawn(move || {
                assert!(other.put(1, 4).1);
                // Release: how a worker is woken.
                kick.store(1, Ordering::Release);
            });
            if kicked.load(Ordering::Acquire) == 1 {
                assert_eq!(place.keep(place.list.take_list()), 2);
            }
            adder.join().unwrap();
            place.keep(place.list.take_list());
        });
    }

    #[test]
    fn a_slot_takes_one_and_gives_it_once() {
        loom::model(|| {
            let place = Place::<2>::new();
            let adders = [0, 1].map(|index| {
                let place = Arc::clone(&place);
                thread::spawn(move || match place.slot.put(place.freed(index)) {
                    Ok(()) => true,
                    Err(one) => {
                        place.keep(one);
                        false
                    }
                })
            });
            let mut taken = place.keep(place.slot.take_list());
            assert!(taken <= 1);
            let put = adders.map(|adder| adder.join().unwrap()).into_iter().filter(|put| *put).count();
            assert!(put >= 1, "the first finds the slot empty");
            let rest = place.keep(place.slot.take_list());
            assert!(rest <= 1);
            taken += rest;
            assert_eq!(taken, put);
        });
    }
}
