//! Parking: what a pool does with clusters that were freed on another core than the one that allocates.
//!
//! Only clusters that this pool handed out, and that were allocated on another core than the calling thread's, are
//! parked; a reader on the allocator's core keeps its buffers, whatever the setting. A pool that is closed, near its
//! cap or has refused an allocation parks nothing (`park.rs` tells why nothing slips past).
//!
//! It must not know connections, or who is told of a kick. Nothing here blocks, but for a depot lock in the flushes.
//! Tests: `tests/parking.rs`; models in `park.rs`.

use sockeye_sync::facade::unmodelled::Arc;

use crate::cache;
use crate::class::{CLASS_COUNT, Class};
use crate::cluster::Cluster;
use crate::cpu;
use crate::facade::{Ordering, fence};
use crate::freed::{FreeList, Freed};
use crate::magazine::Magazine;
use crate::park::{Fill, ParkList, ParkSlot, Reserved};
use crate::pool::Pool;
use crate::stats::Event;

/// What a look at the lists of the cores remembers for the next look ([`Pool::flush_stale`]).
#[derive(Default, Debug)]
pub struct Seen {
    tops: Vec<usize>,
}

impl Pool {
    /// Parks one of `freed` in `slot`, if the slot is empty and one was allocated on another core. The rest stays.
    ///
    /// `announce` is called after something was parked, and after a sequentially consistent fence: the place for
    /// telling whoever empties slots. If it says no, what is in the slot is taken back into `freed`.
    pub fn park_in_slot(&self, freed: &mut Freed, slot: &ParkSlot, announce: impl FnOnce() -> bool) {
        if freed.is_empty() || !self.parks() {
            return;
        }
        let mut foreign = self.take_foreign(freed);
        let Some(cluster) = foreign.pop() else { return };
        cache::count_list(&foreign, Event::ParkFull);
        freed.list.append(foreign);
        let mut one = FreeList::new();
        // SAFETY: the list owned it and handed it over.
        unsafe { one.push(cluster) };
        // SAFETY: it is ours still, so the header is valid.
        let class = unsafe { cluster.as_ref() }.class();
        // Asked first, because a failed exchange takes the line away from the others too.
        match if slot.is_empty() { slot.put(one) } else { Err(one) } {
            Ok(()) => cache::count(self.store(), class, Event::Parked),
            Err(one) => {
                cache::count(self.store(), class, Event::ParkFull);
                freed.list.append(one);
                return;
            }
        }
        if !self.is_welcome(announce) {
            freed.append(slot.take());
        }
    }

    /// Parks those of `freed` in `list` that were allocated on another core, as long as the list holds no more than
    /// `bytes_max` bytes. The rest stays. `announce`: as in [`Pool::park_in_slot`].
    pub fn park_in_list(
        &self,
        freed: &mut Freed,
        list: &ParkList,
        bytes_max: usize,
        announce: impl FnOnce() -> bool,
    ) {
        if freed.is_empty() || !self.parks() {
            return;
        }
        let foreign = self.take_foreign(freed);
        if foreign.is_empty() {
            return;
        }
        if self.put(foreign, list, bytes_max, freed).is_some() && !self.is_welcome(announce) {
            freed.append(list.take());
        }
    }

    /// Parks those of `freed` that were allocated on another core, each for its core; the rest goes to this thread's
    /// cache. `kick` is called with a core whose list has become half full: once for each fill. True if something
    /// was parked; a sequentially consistent fence follows the parking.
    ///
    /// Whoever allocates on a core takes its list when the thread's own cache is empty.
    pub fn park_by_core(&self, mut freed: Freed, mut kick: impl FnMut(u32)) -> bool {
        if freed.is_empty() || !self.parks() {
            return false;
        }
        let here = cpu::current();
        let (mut own, mut is_parked) = (Freed::new(), false);
        let (mut group, mut core) = (FreeList::new(), here);
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
            if of != core && !group.is_empty() {
                let group = std::mem::replace(&mut group, FreeList::new());
                is_parked |= self.park_group(group, core, &mut own, &mut kick);
            }
            core = of;
            // SAFETY: the list handed the cluster over.
            unsafe { group.push(cluster) };
        }
        if !group.is_empty() {
            is_parked |= self.park_group(group, core, &mut own, &mut kick);
        }
        if is_parked && !self.is_welcome(|| true) {
            self.store().drain_parked();
        }
        is_parked
    }

    /// Parks what one core allocated. True if there was room for any of it.
    fn park_group(&self, group: FreeList, core: u32, rest: &mut Freed, kick: &mut impl FnMut(u32)) -> bool {
        let lists = &self.store().parked;
        let put = self.put(group, lists.of(core), lists.bytes_max, rest);
        if put == Some(Fill::Half) {
            kick(core);
        }
        put.is_some()
    }

    /// Takes what is parked for `core` into the depot's rack of that core. Returns the bytes taken.
    pub fn flush_core(&self, core: u32) -> usize {
        let mut list = self.store().parked.of(core).take_if_any();
        let bytes = list.footprint();
        if bytes == 0 {
            return 0;
        }
        cache::count_list(&list, Event::Unparked);
        let mut magazines: [Magazine; CLASS_COUNT] = std::array::from_fn(|_| Magazine::new());
        while let Some(cluster) = list.pop() {
            // SAFETY: the list owned the cluster, so the header is valid.
            let header = unsafe { cluster.as_ref() };
            let class = header.class();
            cache::count(self.store(), class, header.freed_here());
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

    /// Flushes the lists of cores whose top is what it was at the last look: nobody empties them. True if others
    /// hold something: look again in a while. `seen` belongs to whoever looks.
    pub fn flush_stale(&self, seen: &mut Seen) -> bool {
        let lists = &self.store().parked;
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

    /// Whether anything is parked for any core.
    pub fn has_parked_by_core(&self) -> bool {
        self.store().parked.iter().any(|list| !list.is_empty())
    }

    /// Bytes that are parked for `core`, or about to be.
    pub fn parked_for(&self, core: u32) -> usize {
        self.store().parked.of(core).bytes()
    }

    /// How many lists of cores there are: a core's number modulo this is its list, for [`Pool::flush_core`].
    pub fn core_list_count(&self) -> usize {
        self.store().parked.count()
    }

    /// Whether freed memory may be parked: the pool is neither closed nor short of memory.
    #[inline]
    pub fn parks(&self) -> bool {
        self.store().quota.parks()
    }

    /// The second look, after a push.
    fn is_welcome(&self, announce: impl FnOnce() -> bool) -> bool {
        // Pairs with the fences in `Quota::refuse` and `Quota::close`: see `park.rs`.
        fence(Ordering::SeqCst);
        announce() && self.parks()
    }

    /// Whether this pool handed the cluster out.
    fn is_ours(&self, header: &Cluster) -> bool {
        header.store() == Arc::as_ptr(self.store())
    }

    /// Moves those out of `freed` that may be parked.
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

    /// Puts what fits of `foreign` into `list`, and the rest into `freed`. `None` if nothing fits.
    fn put(
        &self,
        mut foreign: FreeList,
        list: &ParkList,
        bytes_max: usize,
        freed: &mut Freed,
    ) -> Option<Fill> {
        match list.reserve(foreign.footprint(), bytes_max) {
            Reserved::Refused => {}
            Reserved::Granted(fill) => {
                cache::count_list(&foreign, Event::Parked);
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
                    cache::count_list(&one, Event::ParkFull);
                    freed.list.append(one);
                }
                Reserved::Granted(fill) => {
                    cache::count_list(&one, Event::Parked);
                    list.push(one);
                    filled = filled.max(Some(fill));
                }
            }
        }
        filled
    }
}

impl ParkSlot {
    /// Empties the slot. The caller decides where it goes: dropped, it goes to the caller's cache.
    pub fn take(&self) -> Freed {
        if self.is_empty() { Freed::new() } else { Freed::unparked(self.take_list()) }
    }
}

impl ParkList {
    /// Empties the list; as [`ParkSlot::take`].
    pub fn take(&self) -> Freed {
        Freed::unparked(self.take_if_any())
    }
}
