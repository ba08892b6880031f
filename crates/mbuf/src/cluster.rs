//! A cluster: one piece of packet memory and the header in front of it.
//!
//! It does not depend on how clusters are cached. States, and the threads that may move them:
//! * *free*: `refs` means nothing. One owner (a cache, the depot, a thread between them, or a list that `discipline.rs` adds)
//!   holds the only pointer and may write any field. `next` links it into a magazine or a list.
//! * *live*: `refs` views exist. [`Cluster::publish`] makes it live with one view; the thread that
//!   drops the last view ([`Cluster::release`] says so) becomes the owner of a free cluster.
//!
//! The fill mark separates the bytes that may be read from those that may be written. While the cluster is live
//! it only rises, room apart that was reserved, not used and given back (`spare.rs`). Two rules make reading and writing
//! the data race-free without a lock:
//! 1. A view covers only bytes below the fill mark that have been written, by the thread that holds
//!    the view or by one that handed it over with synchronisation.
//! 2. Bytes are written only by the thread whose [`Cluster::reserve`] moved the mark over them. It
//!    moves each byte from above to below exactly once, or back as long as no other thread has seen it, so no other
//!    thread writes there, and by rule 1 no view covers them before the writer lengthens its own view, after writing.
//!
//! Tests: loom models at the end; `mbuf.rs`, `tests/`.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::{self, NonNull};

use crate::class::Class;
use crate::cpu;
use crate::facade::{AtomicU32, Ordering, alloc, dealloc, fence};
use crate::stats::Event;
use crate::store::Store;

/// The header. The data follows directly; the header fills its cache lines, so that the data starts
/// on one of its own.
#[repr(C, align(64))]
pub(crate) struct Cluster {
    /// (a) Views that exist. Relaxed up, release down; the last one down acquires.
    refs: AtomicU32,
    /// (a) Bytes of data handed out for writing so far.
    fill: AtomicU32,
    /// (a) The core on which it was allocated last. Written by `publish`, read by views and the thread that frees;
    /// passing the view to its reader orders the two.
    alloc_core: AtomicU32,
    /// (c)
    class: Class,
    /// (c) The pool, as `Arc::into_raw` gave it: each cluster owns one count of it.
    store: *const Store,
    /// (owner) The cluster below this one in its magazine or list, while free.
    next: Cell<*mut Cluster>,
}

/// Bytes between the start of an allocation and its data.
pub(crate) const HEADER_LEN: usize = size_of::<Cluster>();

#[cfg(not(loom))]
const _: () = assert!(HEADER_LEN == 64);

/// More views of one cluster than this are a leak, and near to where the count would wrap.
const REFS_MAX: u32 = i32::MAX as u32;

impl Cluster {
    /// Bytes that a cluster of `class` takes from the system.
    pub(crate) const fn footprint(class: Class) -> usize {
        HEADER_LEN + class.capacity()
    }

    const fn layout(class: Class) -> Layout {
        match Layout::from_size_align(Cluster::footprint(class), align_of::<Cluster>()) {
            Ok(layout) => layout,
            Err(_) => panic!("every class has a size that fits a layout"),
        }
    }

    /// Obtains a free cluster from the system; `None` if it has no memory. Takes over the count of
    /// the pool that `store` stands for, unless it returns `None`.
    pub(crate) fn obtain(class: Class, store: *const Store) -> Option<NonNull<Cluster>> {
        // SAFETY: the layout's size is not zero, it contains the header.
        let raw = unsafe { alloc(Cluster::layout(class)) };
        let cluster = NonNull::new(raw)?.cast::<Cluster>();
        let header = Cluster {
            refs: AtomicU32::new(0),
            fill: AtomicU32::new(0),
            alloc_core: AtomicU32::new(0),
            class,
            store,
            next: Cell::new(ptr::null_mut()),
        };
        // SAFETY: the allocation is fresh, aligned for `Cluster` and at least as large.
        unsafe { cluster.write(header) };
        Some(cluster)
    }

    /// Returns a free cluster to the system, and with it hands the count of the pool to the caller.
    ///
    /// # Safety
    /// `cluster` came from [`Cluster::obtain`], is free, and the caller is its owner.
    pub(crate) unsafe fn give_back(cluster: NonNull<Cluster>) -> *const Store {
        // SAFETY: the caller owns the cluster, so the header is valid and no thread writes to it.
        let header = unsafe { cluster.as_ref() };
        let (class, store) = (header.class, header.store);
        // SAFETY: the header was initialised by `obtain` and is not used again.
        unsafe { cluster.drop_in_place() };
        // SAFETY: `obtain` allocated this pointer with the layout of the same class.
        unsafe { dealloc(cluster.as_ptr().cast(), Cluster::layout(class)) };
        store
    }

    /// Makes a free cluster live: one view, no data.
    #[inline]
    pub(crate) fn publish(&self, core: u32) {
        // Relaxed: the owner is alone; a thread that sees the view later was handed it with synchronisation.
        self.refs.store(1, Ordering::Relaxed);
        self.fill.store(0, Ordering::Relaxed);
        self.alloc_core.store(core, Ordering::Relaxed);
    }

    /// Counts one more view. The caller holds a view, so the count cannot be zero.
    #[inline]
    pub(crate) fn retain(&self) {
        // Relaxed: the new view is made from an existing one, which keeps the cluster live; nothing
        // that happened before needs to be seen through this count.
        let before = self.refs.fetch_add(1, Ordering::Relaxed);
        if before > REFS_MAX {
            // Unwinding would drop views and could run the count down again meanwhile.
            std::process::abort();
        }
    }

    /// [`Cluster::retain`] by a caller that holds a view that no other thread can reach meanwhile. If it is the only one, only the caller
    /// can make views, so the count is written without a locked instruction.
    #[inline]
    pub(crate) fn retain_alone(&self) {
        // Acquire: with the release of views that are gone, whose holders' accesses come before the free by the thread
        // that ends the count that is written here.
        if self.refs.load(Ordering::Acquire) == 1 {
            // Relaxed: as in `retain`.
            self.refs.store(2, Ordering::Relaxed);
        } else {
            self.retain();
        }
    }

    /// Takes one view away; true if it was the last, and the caller now owns a free cluster.
    #[inline]
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        // With one view left it is the caller's, and only views make views: no thread can raise the count, so it need
        // not be written at all, which saves the locked instruction of most frees. Acquire: pairs with the release
        // below in other threads, so that their last accesses to the data come before the memory is used again.
        if self.refs.load(Ordering::Acquire) == 1 {
            return true;
        }
        // Release: our accesses come before the free by the thread that ends the count (its acquire).
        if self.refs.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        fence(Ordering::Acquire);
        true
    }

    /// Whether the caller's view is the only one. It stays so until the caller makes another; where it is not, it may be so by now.
    #[inline]
    pub(crate) fn is_viewed_once(&self) -> bool {
        // Relaxed: nothing is touched for it.
        self.refs.load(Ordering::Relaxed) == 1
    }

    /// Reserves up to `want` bytes of data from `end` on, if `end` is the fill mark. Returns how many
    /// were reserved: they are the caller's to write, once. The caller holds a view.
    #[inline]
    #[must_use]
    pub(crate) fn reserve(&self, end: u32, want: usize) -> usize {
        let room = self.class.capacity() - end as usize;
        let take = want.min(room);
        if take == 0 {
            return 0;
        }
        // `take` is at most CLUSTER_MAX, so it fits.
        let mark = end + take as u32;
        // With one view, the caller's, no other thread can move the mark. Acquire: pairs with the release of views that
        // are gone, whose marks must be seen.
        if self.refs.load(Ordering::Acquire) == 1 {
            if self.fill.load(Ordering::Relaxed) != end {
                return 0;
            }
            self.fill.store(mark, Ordering::Relaxed);
            return take;
        }
        // Acquire: pairs with the release of `give_back_room`, whose thread may have written the bytes that are reserved here.
        // Relaxed if it fails: then nothing is touched. Bytes reach others with the view that covers them.
        let won = self.fill.compare_exchange(end, mark, Ordering::Acquire, Ordering::Relaxed);
        if won.is_ok() { take } else { 0 }
    }

    /// Takes a reservation back from `end` on. The caller has reserved the bytes between `end` and the fill mark, which
    /// has not been written into view.
    #[inline]
    pub(crate) fn give_back_room(&self, end: u32) {
        // No exchange: all other views end at or before the place where the reservation began, so while
        // it stands no other thread's `reserve` finds the mark at its end, and no other thread moves it.
        // Release: what the caller has written there comes before the bytes of whoever reserves them next (`reserve`).
        self.fill.store(end, Ordering::Release);
    }

    /// The core on which this cluster was allocated last.
    #[inline]
    pub(crate) fn alloc_core(&self) -> u32 {
        self.alloc_core.load(Ordering::Relaxed)
    }

    /// How a free by the calling thread counts.
    #[inline]
    pub(crate) fn freed_here(&self) -> Event {
        if self.alloc_core() == cpu::current() { Event::FreeLocal } else { Event::FreeRemote }
    }

    #[inline]
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    #[inline]
    pub(crate) fn store(&self) -> *const Store {
        self.store
    }

    /// The link of a free cluster; only its owner may use it.
    #[inline]
    pub(crate) fn next(&self) -> &Cell<*mut Cluster> {
        &self.next
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A live cluster whose views are counted by hand. Two cells stand for its data: loom reports
    /// accesses to them that race.
    struct Model {
        cluster: NonNull<Cluster>,
        data: [UnsafeCell<u32>; 2],
    }

    // SAFETY: as for `Mbuf`; the cells are watched by loom.
    unsafe impl Send for Model {}
    // SAFETY: as for `Mbuf`; the cells are watched by loom.
    unsafe impl Sync for Model {}

    impl Model {
        fn with_views(count: u32) -> Arc<Model> {
            let cluster = Cluster::obtain(Class::B256, ptr::null()).expect("memory for a test");
            let data = [UnsafeCell::new(0), UnsafeCell::new(0)];
            let model = Model { cluster, data };
            model.header().publish(1);
            for _ in 1..count {
                model.header().retain();
            }
            Arc::new(model)
        }

        fn header(&self) -> &Cluster {
            // SAFETY: given back in `drop` only.
            unsafe { self.cluster.as_ref() }
        }

        fn read(&self, at: usize) -> u32 {
            // SAFETY: loom reports it if a thread writes meanwhile.
            self.data[at].with(|value| unsafe { *value })
        }

        fn write(&self, at: usize, to: u32) {
            // SAFETY: loom reports it if a thread reads or writes meanwhile.
            self.data[at].with_mut(|value| unsafe { *value = to });
        }

        /// As the pool does with a cluster that became free: overwrites it. True if it did.
        fn release(&self) -> bool {
            let last = self.header().release();
            if last {
                self.write(0, 7);
                self.write(1, 7);
            }
            last
        }

        /// Does as `Mbuf::try_extend` with one byte. True if it was taken.
        fn extend(&self, end: u32, value: u32) -> bool {
            let taken = self.header().reserve(end, 1) == 1;
            if taken {
                self.write(end as usize, value);
            }
            taken
        }
    }

    impl Drop for Model {
        fn drop(&mut self) {
            // SAFETY: all views are gone, the model is the owner.
            unsafe { Cluster::give_back(self.cluster) };
        }
    }

    #[test]
    fn exactly_one_drop_is_the_last_and_comes_after_all_reading() {
        loom::model(|| {
            let model = Model::with_views(2);
            let other = Arc::clone(&model);
            let reader = thread::spawn(move || {
                // A view is cloned, read through, and both are dropped.
                other.header().retain();
                other.read(0);
                let first = other.release();
                other.read(1);
                let second = other.release();
                u32::from(first) + u32::from(second)
            });
            model.read(1);
            let here = u32::from(model.release());
            assert_eq!(here + reader.join().unwrap(), 1);
        });
    }

    #[test]
    fn a_view_cloned_from_the_only_one_counts_while_another_is_dropped() {
        loom::model(|| {
            let model = Model::with_views(2);
            let other = Arc::clone(&model);
            let dropper = thread::spawn(move || {
                other.read(0);
                u32::from(other.release())
            });
            // Of the one view that is left here, or of the other's too.
            model.header().retain_alone();
            let given = Arc::clone(&model);
            let reader = thread::spawn(move || {
                given.read(1);
                u32::from(given.release())
            });
            let here = u32::from(model.release());
            assert_eq!(here + dropper.join().unwrap() + reader.join().unwrap(), 1);
        });
    }

    #[test]
    fn the_same_room_is_never_given_twice() {
        loom::model(|| {
            let model = Model::with_views(2);
            let other = Arc::clone(&model);
            let extender = thread::spawn(move || {
                let taken = other.extend(0, 1);
                let last = other.release();
                (taken, last)
            });
            // The other view may be gone by now, with its bytes: then the short way of `reserve`,
            // for a single view, must see how far it came.
            let taken = model.extend(0, 2);
            let last = model.release();
            let (other_taken, other_last) = extender.join().unwrap();
            assert!(taken != other_taken, "one of the two gets the room");
            assert!(last != other_last);
        });
    }

    #[test]
    fn room_that_is_given_back_is_written_by_the_next_only_after_the_first() {
        loom::model(|| {
            let model = Model::with_views(2);
            let other = Arc::clone(&model);
            let extender = thread::spawn(move || {
                let taken = other.extend(0, 1);
                let last = other.release();
                (taken, last)
            });
            // As `Spare` does with room that it has no use for; the byte may have been written.
            if model.extend(0, 2) {
                model.header().give_back_room(0);
            }
            let last = model.release();
            let (_, other_last) = extender.join().unwrap();
            assert!(last != other_last);
        });
    }

    #[test]
    fn views_that_end_at_different_places_extend_only_at_the_mark() {
        loom::model(|| {
            let model = Model::with_views(2);
            assert!(model.extend(0, 5));
            let other = Arc::clone(&model);
            // This view ends at 0, before the mark: it must get nothing, and may read nothing.
            let behind = thread::spawn(move || {
                let taken = other.extend(0, 1);
                other.release();
                taken
            });
            assert!(model.extend(1, 6));
            assert_eq!((model.read(0), model.read(1)), (5, 6));
            assert!(!behind.join().unwrap());
            assert!(model.release());
        });
    }
}
