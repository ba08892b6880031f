//! Remote frees: the handling of clusters that were freed on another core than the one that allocated them.
//!
//! Only clusters that this pool handed out, and that were allocated on another core than the calling thread's, go to a
//! remote-free list; a reader on the allocator's core keeps its buffers, whatever the setting. A pool that is closed, near its
//! cap or has refused an allocation puts nothing on a list (the head of `remote_list.rs` shows why none slips past).
//!
//! It does not depend on connections, or which thread receives a kick. Nothing here blocks, but for a depot lock
//! in the flushes.
//!
//! `announce` and `kick` are foreign code. If one panics nothing is lost: clusters that `announce` was to report are taken back, those that a kick
//! was to report stay on their list if they may, and the rest goes to the cache of the thread. The second look is taken all the same. Tests:
//! `tests/remote_free.rs`; models in `remote_list.rs` and `remote_free/models.rs`.

#[cfg(all(test, loom))]
mod models;

use sockeye_sync::facade::unmodelled::Arc;

use super::remote_list::{Fill, RemoteFreeList, RemoteFreeSlot, Reserved};
use super::stats::{self, RemoteEvent};
use super::{RemoteFree, core_lists};
use crate::class::{CLASS_COUNT, Class};
use crate::cluster::Cluster;
use crate::cpu;
use crate::discipline::Discipline;
use crate::facade::{Ordering, fence};
use crate::freed::{FreeList, Freed};
use crate::magazine::Magazine;
use crate::pool::Pool;
use crate::quota::{FLAGS, NO_REUSE};

/// State from one look at the lists of the cores to the next ([`Pool::flush_stale`]).
#[derive(Default, Debug)]
pub struct Seen {
    tops: Vec<usize>,
}

impl Pool {
    /// Puts one of `freed` into `slot`, if the slot is empty and one was allocated on another core. The rest stays.
    ///
    /// `announce` is called after a cluster was put, and after a sequentially consistent fence: the place for
    /// telling the thread that empties slots. If it says no, the slot's content is taken back into `freed`.
    pub fn remote_free_to_slot(
        &self,
        freed: &mut Freed,
        slot: &RemoteFreeSlot,
        announce: impl FnOnce() -> bool,
    ) {
        if freed.is_empty() || !self.lists_remote_frees() {
            return;
        }
        let mut foreign = self.take_foreign(freed);
        let Some(cluster) = foreign.pop() else { return };
        stats::count_list(&foreign, RemoteEvent::ListFull);
        freed.list.append(foreign);
        let mut one = FreeList::new();
        // SAFETY: the list owned it and handed it over.
        unsafe { one.push(cluster) };
        // SAFETY: it is ours still, so the header is valid.
        let class = unsafe { cluster.as_ref() }.class();
        // Asked first, because a failed exchange takes the line away from the others too.
        match if slot.is_empty() { slot.put(one) } else { Err(one) } {
            Ok(()) => stats::count(self.store(), class, RemoteEvent::Listed),
            Err(one) => {
                stats::count(self.store(), class, RemoteEvent::ListFull);
                freed.list.append(one);
                return;
            }
        }
        self.look_again(announce, || freed.append(slot.take()));
    }

    /// Puts those of `freed` on `list` that were allocated on another core, as long as the list holds no more than
    /// `bytes_max` bytes. The rest stays. `announce`: as in [`Pool::remote_free_to_slot`].
    pub fn remote_free_to_list(
        &self,
        freed: &mut Freed,
        list: &RemoteFreeList,
        bytes_max: usize,
        announce: impl FnOnce() -> bool,
    ) {
        if freed.is_empty() || !self.lists_remote_frees() {
            return;
        }
        let foreign = self.take_foreign(freed);
        if foreign.is_empty() {
            return;
        }
        if self.put(foreign, list, bytes_max, freed).is_some() {
            self.look_again(announce, || freed.append(list.take()));
        }
    }

    /// Puts those of `freed` that were allocated on another core on the lists of their cores; the rest goes to this thread's
    /// cache. `kick` is called with a core whose list has become half full: once for each fill. True if a cluster
    /// was put on a list; a sequentially consistent fence follows.
    ///
    /// A thread that allocates on a core takes the core's list when its own cache is empty.
    pub fn remote_free_to_cores(&self, mut freed: Freed, mut kick: impl FnMut(u32)) -> bool {
        if freed.is_empty() || !self.lists_remote_frees() {
            return false;
        }
        let here = cpu::current();
        // Dropped, they go to this thread's cache, also if `kick` panics.
        let (mut own, mut group, mut core) = (Freed::new(), Freed::new(), here);
        let mut groups = CoreGroups { pool: self, is_any: false };
        // Mostly all of it is one core's, and goes in one push.
        while let Some(cluster) = freed.list.pop() {
            // SAFETY: the list owned the cluster, so the header is valid.
            let header = unsafe { cluster.as_ref() };
            let of = if self.is_ours(header) { header.alloc_core() } else { here };
            if of == here {
                // SAFETY: the list handed the cluster over.
                unsafe { own.list.push(cluster) };
                continue;
            }
            let before = if of == core { Freed::new() } else { std::mem::take(&mut group) };
            // SAFETY: the list handed the cluster over.
            unsafe { group.list.push(cluster) };
            groups.put_group(before, core, &mut own, &mut kick);
            core = of;
        }
        groups.put_group(group, core, &mut own, &mut kick);
        groups.is_any
    }

    /// Takes the list of `core` into the depot's rack of that core. Returns the bytes taken.
    pub fn flush_core(&self, core: u32) -> usize {
        let mut list = core_lists(self.store()).of(core).take_if_any();
        let bytes = list.footprint();
        if bytes == 0 {
            return 0;
        }
        stats::count_list(&list, RemoteEvent::Taken);
        let mut magazines: [Magazine; CLASS_COUNT] = std::array::from_fn(|_| Magazine::new());
        while let Some(cluster) = list.pop() {
            // SAFETY: the list owned the cluster, so the header is valid.
            let header = unsafe { cluster.as_ref() };
            let class = header.class();
            stats::count(self.store(), class, header.freed_here());
            let magazine = &mut magazines[class.index()];
            // SAFETY: the list handed the cluster over.
            unsafe { magazine.push(cluster) };
            if magazine.count() >= class.rounds() {
                self.store().put_for(core, class, std::mem::replace(magazine, Magazine::new()));
            }
        }
        for (class, magazine) in Class::ALL.into_iter().zip(magazines) {
            self.store().put_for(core, class, magazine);
        }
        bytes
    }

    /// Flushes the lists of cores whose top is the same as at the last look: no thread empties them. True if others
    /// hold something: look again in a while. `seen` belongs to the caller.
    pub fn flush_stale(&self, seen: &mut Seen) -> bool {
        let lists = core_lists(self.store());
        seen.tops.resize(lists.count(), 0);
        let mut is_left = false;
        for (core, (list, seen)) in lists.iter().zip(&mut seen.tops).enumerate() {
            let top = list.top();
            if top != 0 && top == *seen {
                self.flush_core(core as u32);
            }
            *seen = list.top();
            is_left |= *seen != 0;
        }
        is_left
    }

    /// Whether any core's list has a cluster.
    pub fn has_core_lists(&self) -> bool {
        core_lists(self.store()).iter().any(|list| !list.is_empty())
    }

    /// Bytes on the list of `core`, or about to be.
    pub fn listed_for(&self, core: u32) -> usize {
        core_lists(self.store()).of(core).bytes()
    }

    /// How many lists of cores there are: a core's number modulo this is its list, for [`Pool::flush_core`].
    pub fn core_list_count(&self) -> usize {
        core_lists(self.store()).count()
    }

    /// Whether freed memory may go to a remote-free list: the pool is neither closed nor short of memory.
    #[inline]
    pub fn lists_remote_frees(&self) -> bool {
        // A pool that keeps nothing for reuse has lists all the same: experiments measure them.
        self.store().quota.control() & (FLAGS & !NO_REUSE) == 0
    }

    /// The second look, after a push: `take_back` if the clusters put may not stay, or if `announce` panics.
    fn look_again(&self, announce: impl FnOnce() -> bool, take_back: impl FnOnce()) {
        // Pairs with the fence in `RemoteFree::drain`: see `remote_list.rs`.
        fence(Ordering::SeqCst);
        let unwound = OnDrop(Some(take_back));
        if announce() && self.lists_remote_frees() {
            std::mem::forget(unwound);
        }
    }

    /// Whether this pool handed the cluster out.
    fn is_ours(&self, header: &Cluster) -> bool {
        header.store() == Arc::as_ptr(self.store())
    }

    /// Moves those out of `freed` that may go to a remote-free list.
    fn take_foreign(&self, freed: &mut Freed) -> FreeList {
        let here = cpu::current();
        let (mut own, mut foreign) = (FreeList::new(), FreeList::new());
        while let Some(cluster) = freed.list.pop() {
            // SAFETY: the list owned the cluster, so the header is valid.
            let header = unsafe { cluster.as_ref() };
            let is_foreign = header.alloc_core() != here && self.is_ours(header);
            let list = if is_foreign { &mut foreign } else { &mut own };
            // SAFETY: the list handed the cluster over.
            unsafe { list.push(cluster) };
        }
        freed.list = own;
        foreign
    }

    /// Puts as much of `foreign` as fits into `list`, and the rest into `freed`. `None` if nothing fits.
    fn put(
        &self,
        mut foreign: FreeList,
        list: &RemoteFreeList,
        bytes_max: usize,
        freed: &mut Freed,
    ) -> Option<Fill> {
        match list.reserve(foreign.footprint(), bytes_max) {
            Reserved::Refused => {}
            Reserved::Granted(fill) => {
                stats::count_list(&foreign, RemoteEvent::Listed);
                list.push(foreign);
                return Some(fill);
            }
        }
        let mut filled = None;
        while let Some(cluster) = foreign.pop() {
            let mut one = FreeList::new();
            // SAFETY: the list owned it and handed it over.
            unsafe { one.push(cluster) };
            match list.reserve(one.footprint(), bytes_max) {
                Reserved::Refused => {
                    stats::count_list(&one, RemoteEvent::ListFull);
                    freed.list.append(one);
                }
                Reserved::Granted(fill) => {
                    stats::count_list(&one, RemoteEvent::Listed);
                    list.push(one);
                    filled = filled.max(Some(fill));
                }
            }
        }
        filled
    }
}

/// The clusters that one call puts on the lists of cores. Dropped, at its end or because a kick panics, it takes the
/// second look.
struct CoreGroups<'a> {
    pool: &'a Pool,
    is_any: bool,
}

impl CoreGroups<'_> {
    /// Puts clusters that one core allocated on that core's list, as far as there is room.
    fn put_group(&mut self, mut group: Freed, core: u32, rest: &mut Freed, kick: &mut impl FnMut(u32)) {
        if group.is_empty() {
            return;
        }
        let group = std::mem::replace(&mut group.list, FreeList::new());
        let lists = core_lists(self.pool.store());
        let put = self.pool.put(group, lists.of(core), lists.bytes_max, rest);
        self.is_any |= put.is_some();
        if put == Some(Fill::Half) {
            kick(core);
        }
    }
}

impl Drop for CoreGroups<'_> {
    fn drop(&mut self) {
        if self.is_any {
            self.pool.look_again(|| true, || RemoteFree::drain(self.pool.store()));
        }
    }
}

/// Calls it when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

impl RemoteFreeSlot {
    /// Empties the slot. The caller decides where it goes: dropped, it goes to the caller's cache.
    pub fn take(&self) -> Freed {
        if self.is_empty() { Freed::new() } else { Freed::of_remote_list(self.take_list()) }
    }
}

impl RemoteFreeList {
    /// Empties the list; as [`RemoteFreeSlot::take`].
    pub fn take(&self) -> Freed {
        Freed::of_remote_list(self.take_if_any())
    }
}
