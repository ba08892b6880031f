//! Where threads exchange magazines.
//!
//! There is a rack of magazines for each core. A thread uses the rack of the core it runs on, and another one's
//! only if its own is empty. So buffers that are written and read on one core stay in that core's cache, however
//! many threads take and free them there; with one rack for all, independent connections on two cores
//! would swap their buffers, and with them their cache lines.
//!
//! It does not depend on threads, and does not return memory to the system itself: the caller does so,
//! without holding the depot's lock.
//!
//! Invariants: a bay's `held` is the footprint of its clusters, and is written under its lock, beside which it lies: so cores
//! that use their own racks write no line together. A rack holds an equal part of the depot's bound, and exceeds it never by
//! more than the magazines being stored at one moment. Nothing stays in a depot that should be empty: "keep nothing" is
//! decided by a flag (in `quota`) that is *read under the lock of the rack and class*. The thread that sets it drains all
//! racks afterwards, under the same locks: a store is either before the drain of its rack, which takes it, or after, and then
//! it sees the flag. Tests: loom models at the end; `tests/`.

use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use crate::class::{CLASS_COUNT, Class};
use crate::cluster::Cluster;
use crate::cpu;
use crate::facade::{AtomicUsize, Mutex, Ordering};
use crate::magazine::Magazine;

pub(crate) struct Depot {
    /// (c) Bytes in a rack.
    held_max: usize,
    /// (c) One for each core, a power of two.
    racks: Box<[Rack]>,
}

/// The magazines of each class, last in first out, so that the warmest come back first.
type Rack = [CachePadded<Bay>; CLASS_COUNT];

/// The magazines of a rack of one class.
struct Bay {
    magazines: Mutex<Vec<Magazine>>,
    /// (a) Bytes of them. Written under the lock; counts, orders nothing.
    held: AtomicUsize,
}

/// Most racks; cores beyond that share. If one is empty, all of them are searched.
const RACKS_MAX: usize = 64;

impl Depot {
    pub(crate) fn new(held_max: usize) -> Depot {
        let racks = cpu::count().next_power_of_two().min(RACKS_MAX);
        Depot::with_racks(held_max / racks, racks)
    }

    /// So many racks, a power of two, of `held_max` bytes each.
    fn with_racks(held_max: usize, racks: usize) -> Depot {
        let bay = || CachePadded::new(Bay { magazines: Mutex::new(Vec::new()), held: AtomicUsize::new(0) });
        Depot { held_max, racks: (0..racks).map(|_| std::array::from_fn(|_| bay())).collect() }
    }

    /// A magazine with at least one cluster, or nothing.
    pub(crate) fn load(&self, class: Class) -> Option<Magazine> {
        self.search(|rack| {
            let bay = &rack[class.index()];
            let mut magazines = bay.magazines.lock();
            let magazine = magazines.pop()?;
            bay.count_out(class, magazine.count());
            Some(magazine)
        })
    }

    /// One cluster, for a thread without a cache.
    pub(crate) fn load_one(&self, class: Class) -> Option<NonNull<Cluster>> {
        self.search(|rack| {
            let bay = &rack[class.index()];
            let mut magazines = bay.magazines.lock();
            let top = magazines.last_mut()?;
            let cluster = top.pop();
            if top.count() == 0 {
                magazines.pop();
            }
            bay.count_out(class, u32::from(cluster.is_some()));
            cluster
        })
    }

    /// The first find: in this core's rack, else in the next ones.
    fn search<T>(&self, find: impl Fn(&Rack) -> Option<T>) -> Option<T> {
        let own = self.index(cpu::current());
        if let found @ Some(_) = find(&self.racks[own]) {
            return found;
        }
        if self.held() == 0 {
            return None;
        }
        (1..self.racks.len()).find_map(|step| find(&self.racks[(own + step) & (self.racks.len() - 1)]))
    }

    fn index(&self, core: u32) -> usize {
        core as usize & (self.racks.len() - 1)
    }

    fn rack(&self, core: u32) -> &Rack {
        &self.racks[self.index(core)]
    }

    /// Stores a magazine in the rack of `core`. Gives it back if there is no room, or if `keep`, asked under the lock, says
    /// that nothing is to be kept.
    pub(crate) fn store(
        &self,
        core: u32,
        class: Class,
        magazine: Magazine,
        keep: impl FnOnce() -> bool,
    ) -> Result<(), Magazine> {
        if magazine.count() == 0 {
            return Ok(());
        }
        let rack = self.rack(core);
        let bay = &rack[class.index()];
        let mut magazines = bay.magazines.lock();
        if !keep() || !self.has_room(rack, class, magazine.count()) {
            return Err(magazine);
        }
        bay.count_in(class, magazine.count());
        magazines.push(magazine);
        Ok(())
    }

    /// Stores one cluster, for a thread without a cache; as [`Depot::store`].
    ///
    /// # Safety
    /// `cluster` is free, of this class, and the caller owns it. It is handed over with `Ok`.
    pub(crate) unsafe fn store_one(
        &self,
        class: Class,
        cluster: NonNull<Cluster>,
        keep: impl FnOnce() -> bool,
    ) -> Result<(), NonNull<Cluster>> {
        let rack = self.rack(cpu::current());
        let bay = &rack[class.index()];
        let mut magazines = bay.magazines.lock();
        if !keep() || !self.has_room(rack, class, 1) {
            return Err(cluster);
        }
        bay.count_in(class, 1);
        match magazines.last_mut() {
            // SAFETY: the caller hands the cluster over.
            Some(top) if top.count() < class.rounds() => unsafe { top.push(cluster) },
            Some(_) | None => {
                let mut magazine = Magazine::new();
                // SAFETY: the caller hands the cluster over.
                unsafe { magazine.push(cluster) };
                magazines.push(magazine);
            }
        }
        Ok(())
    }

    /// Takes everything of one class out, and the list's own memory with it.
    pub(crate) fn drain(&self, class: Class) -> Vec<Magazine> {
        let mut all = Vec::new();
        for rack in &self.racks {
            let bay = &rack[class.index()];
            let mut magazines = bay.magazines.lock();
            for magazine in magazines.iter() {
                bay.count_out(class, magazine.count());
            }
            all.extend(std::mem::take(&mut *magazines));
        }
        all
    }

    /// Bytes in the depot.
    pub(crate) fn held(&self) -> usize {
        self.racks.iter().map(held).sum()
    }

    fn has_room(&self, rack: &Rack, class: Class, count: u32) -> bool {
        held(rack) + bytes(class, count) <= self.held_max
    }
}

/// Bytes in a rack.
fn held(rack: &Rack) -> usize {
    rack.iter().map(|bay| bay.held.load(Ordering::Relaxed)).sum()
}

const fn bytes(class: Class, count: u32) -> usize {
    count as usize * Cluster::footprint(class)
}

impl Bay {
    /// Under the lock, so a load and a store are enough.
    fn count_in(&self, class: Class, count: u32) {
        self.held.store(self.held.load(Ordering::Relaxed) + bytes(class, count), Ordering::Relaxed);
    }

    /// As [`Bay::count_in`].
    fn count_out(&self, class: Class, count: u32) {
        self.held.store(self.held.load(Ordering::Relaxed) - bytes(class, count), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod support {
    use super::*;
    use std::ptr;

    pub(super) const CLASS: Class = Class::B256;

    pub(super) fn full(count: u32) -> Magazine {
        let mut magazine = Magazine::new();
        for _ in 0..count {
            let cluster = Cluster::obtain(CLASS, ptr::null()).expect("memory for a test");
            // SAFETY: the cluster is fresh and ours.
            unsafe { magazine.push(cluster) };
        }
        magazine
    }

    /// Returns the clusters to the system; how many there were.
    pub(super) fn scrap(magazines: impl IntoIterator<Item = Magazine>) -> u32 {
        let mut count = 0;
        for mut magazine in magazines {
            while let Some(cluster) = magazine.pop() {
                // SAFETY: the magazine owned it and handed it over.
                unsafe { Cluster::give_back(cluster) };
                count += 1;
            }
        }
        count
    }

    pub(super) fn scrap_one(cluster: NonNull<Cluster>) {
        // SAFETY: callers pass a magazine that the depot handed over.
        unsafe { Cluster::give_back(cluster) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::support::*;
    use super::*;

    const ROOM: usize = 4 * Cluster::footprint(CLASS);

    /// With one rack of so many bytes, so that a test finds what it put in wherever it runs meanwhile.
    fn with_room(room: usize) -> Depot {
        Depot::with_racks(room, 1)
    }

    #[test]
    fn the_magazine_stored_last_is_loaded_first() {
        let depot = with_room(ROOM);
        assert!(depot.store(0, CLASS, full(1), || true).is_ok());
        assert!(depot.store(0, CLASS, full(2), || true).is_ok());
        assert_eq!(depot.held(), 3 * Cluster::footprint(CLASS));
        assert_eq!(scrap(depot.load(CLASS)), 2);
        assert_eq!(scrap(depot.load(CLASS)), 1);
        assert!(depot.load(CLASS).is_none());
        assert_eq!(depot.held(), 0);
    }

    #[test]
    fn clusters_beyond_the_bound_or_not_to_be_kept_are_returned() {
        let depot = with_room(ROOM);
        assert!(depot.store(0, CLASS, full(3), || true).is_ok());
        let refused = depot.store(0, CLASS, full(2), || true);
        assert_eq!(scrap(refused.err()), 2);
        let unwanted = depot.store(0, CLASS, full(1), || false);
        assert_eq!(scrap(unwanted.err()), 1);
        assert_eq!(depot.held(), 3 * Cluster::footprint(CLASS));
        assert_eq!(scrap(depot.drain(CLASS)), 3);
        assert_eq!(depot.held(), 0);
    }

    #[test]
    fn single_clusters_fill_magazines_and_empty_them() {
        let depot = with_room(usize::MAX);
        let count = CLASS.rounds() + 1;
        for _ in 0..count {
            let cluster = full(1).pop().expect("a magazine of one");
            // SAFETY: the cluster is fresh and ours.
            assert!(unsafe { depot.store_one(CLASS, cluster, || true) }.is_ok());
        }
        assert_eq!(scrap(depot.load(CLASS)), 1, "the first magazine was full");
        for _ in 1..count {
            scrap_one(depot.load_one(CLASS).expect("one was stored"));
        }
        assert!(depot.load_one(CLASS).is_none());
        assert_eq!(depot.held(), 0);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::support::*;
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn exchanged_clusters_are_in_one_place() {
        loom::model(|| {
            let depot = Arc::new(Depot::new(usize::MAX));
            let other = Arc::clone(&depot);
            let reader = thread::spawn(move || {
                assert!(other.store(0, CLASS, full(2), || true).is_ok());
                scrap(other.load(CLASS))
            });
            let mut count = 0;
            if let Some(cluster) = depot.load_one(CLASS) {
                scrap_one(cluster);
                count += 1;
            }
            count += reader.join().unwrap();
            count += scrap(depot.drain(CLASS));
            assert_eq!(count, 2);
            assert_eq!(depot.held(), 0);
        });
    }

    #[test]
    fn a_store_that_races_with_a_drain_leaves_no_cluster_behind() {
        loom::model(|| {
            let depot = Arc::new(Depot::new(usize::MAX));
            let forbidden = Arc::new(AtomicUsize::new(0));
            let (other, flag) = (Arc::clone(&depot), Arc::clone(&forbidden));
            let storing = thread::spawn(move || {
                // Relaxed: the lock under which it is read decides.
                let refused = other.store(0, CLASS, full(1), || flag.load(Ordering::Relaxed) == 0);
                scrap(refused.err())
            });
            forbidden.store(1, Ordering::Relaxed);
            let drained = scrap(depot.drain(CLASS));
            assert_eq!(drained + storing.join().unwrap(), 1);
            assert_eq!(scrap(depot.drain(CLASS)), 0);
        });
    }
}
