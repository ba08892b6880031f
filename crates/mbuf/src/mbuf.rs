//! A view of part of a cluster.
//!
//! It does not depend on which pool a cluster belongs to, or where it goes when freed. Invariants: a view
//! counts in its cluster's `refs`; `off + len` is at most the fill mark; the bytes it covers are written and
//! do not change (`cluster.rs`, rules 1 and 2). Tests: at the end, `tests/chain_model.rs`,
//! `tests/threads.rs`.

use std::fmt;
use std::ops::{Bound, Deref, RangeBounds};
use std::ptr::NonNull;

use crate::cache;
use crate::cluster::{Cluster, HEADER_LEN};
use crate::facade::{memory_read, memory_written};

/// A view of part of a reference-counted cluster: 16 bytes (12 on 32-bit machines). Cloning makes another view of the same
/// memory; the bytes under a view never change.
///
/// Nothing here blocks. Dropping the last view of a cluster gives it to the dropping thread's cache.
pub struct Mbuf {
    cluster: NonNull<Cluster>,
    off: u32,
    len: u32,
}

const _: () = assert!(size_of::<Mbuf>() == 8 + size_of::<usize>());
const _: () = assert!(size_of::<Option<Mbuf>>() == 8 + size_of::<usize>());

// SAFETY: the header's shared fields are atomics or constant; `next` is used only when no view exists. The
// data under a view does not change, and changes happen only above the fill mark, where exactly one thread
// may write.
unsafe impl Send for Mbuf {}
// SAFETY: as above; `&Mbuf` gives reading and cloning only.
unsafe impl Sync for Mbuf {}

impl Mbuf {
    /// The one view of a cluster that was just published.
    #[inline]
    pub(crate) fn of(cluster: NonNull<Cluster>) -> Mbuf {
        Mbuf { cluster, off: 0, len: 0 }
    }

    #[inline]
    fn header(&self) -> &Cluster {
        // SAFETY: this view keeps the cluster live, so the header is valid and only shared.
        unsafe { self.cluster.as_ref() }
    }

    #[inline]
    pub(crate) fn data(&self, at: u32) -> *mut u8 {
        let start = self.cluster.cast::<u8>();
        // SAFETY: `at` is at most the capacity, so the place is inside or one past the allocation.
        unsafe { start.add(HEADER_LEN + at as usize) }.as_ptr()
    }

    #[inline]
    fn end(&self) -> u32 {
        self.off + self.len
    }

    /// Bytes in view.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no byte is in view.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of data the whole cluster can take.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.header().class().capacity()
    }

    /// Bytes of memory that this view keeps from being used otherwise: cluster and header.
    #[inline]
    pub fn footprint(&self) -> usize {
        Cluster::footprint(self.header().class())
    }

    /// The core on which the cluster was allocated, as the system numbers cores.
    #[inline]
    pub fn alloc_core(&self) -> u32 {
        self.header().alloc_core()
    }

    /// Drops the view without freeing the cluster: if it was the last, the cluster is the caller's.
    #[inline]
    pub(crate) fn into_free(self) -> Option<NonNull<Cluster>> {
        let cluster = self.cluster;
        // The view's count is given up here and not in `drop`.
        let is_last = self.header().release();
        std::mem::forget(self);
        is_last.then_some(cluster)
    }

    /// The bytes in view.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        memory_read(self.data(0));
        // SAFETY: the bytes in view are initialised, and unchanging as long as the view exists.
        unsafe { std::slice::from_raw_parts(self.data(self.off), self.len()) }
    }

    /// Takes the first `n` bytes out of view.
    ///
    /// # Panics
    /// If fewer than `n` bytes are in view.
    #[inline]
    pub fn trim_front(&mut self, n: usize) {
        assert!(n <= self.len(), "trimming {n} of {} bytes", self.len);
        self.off += n as u32;
        self.len -= n as u32;
    }

    /// Keeps the first `n` bytes in view. Does nothing if no more than those are.
    #[inline]
    pub fn truncate(&mut self, n: usize) {
        if n < self.len() {
            self.len = n as u32;
        }
    }

    /// A new view of part of this one, counted from its start.
    ///
    /// # Panics
    /// If the range does not lie inside this view.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Mbuf {
        // No view is that long: it is refused below.
        let from = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&at) => at.saturating_add(1),
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len(),
        };
        assert!(from <= to && to <= self.len(), "{from}..{to} of {} bytes", self.len);
        self.header().retain();
        Mbuf { cluster: self.cluster, off: self.off + from as u32, len: (to - from) as u32 }
    }

    /// [`Mbuf::slice`] of `from..from + len`, by the only thread that can reach this view: without a locked instruction if there is
    /// no other.
    ///
    /// # Panics
    /// If the range does not lie inside this view.
    #[inline]
    pub(crate) fn slice_alone(&mut self, from: usize, len: usize) -> Mbuf {
        assert!(from <= self.len() && len <= self.len() - from, "{len} bytes at {from} of {}", self.len);
        self.header().retain_alone();
        Mbuf { cluster: self.cluster, off: self.off + from as u32, len: len as u32 }
    }

    /// Appends bytes behind the view, in the cluster's free room. Returns how many were taken: none
    /// if other data stands behind the view already, fewer than all if the cluster is full.
    #[inline]
    pub fn try_extend(&mut self, bytes: &[u8]) -> usize {
        let end = self.end();
        let taken = self.header().reserve(end, bytes.len());
        if taken == 0 {
            return 0;
        }
        // The buffer counts as one line, its first, wherever in it is written.
        memory_written(self.data(0));
        let to = self.data(end);
        // SAFETY: `end + taken` is at most the capacity. The reservation made these bytes ours alone
        // to write; no view covers them (rule 2), so neither does `bytes`, and no thread reads them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, taken) };
        // Only now do the bytes come into view.
        self.len += taken as u32;
        taken
    }

    /// Whether no other view of the cluster was there a moment ago.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.header().is_viewed_once()
    }

    /// Where the cluster's data would go on behind the view.
    #[inline]
    pub(crate) fn data_behind(&self) -> *mut u8 {
        self.data(self.end())
    }

    /// Reserves up to `want` bytes behind the view; see `Cluster::reserve`.
    #[inline]
    pub(crate) fn reserve_behind(&self, want: usize) -> usize {
        self.header().reserve(self.end(), want)
    }

    /// Takes `n` bytes of room into view that were reserved and written.
    #[inline]
    pub(crate) fn grow(&mut self, n: usize) {
        self.len += n as u32;
    }

    /// Gives back the reserved bytes behind the view.
    #[inline]
    pub(crate) fn give_back_room(&self) {
        self.header().give_back_room(self.end());
    }

    /// Takes `next` into this view if it continues it in the same cluster; false if it does not.
    /// The caller then drops `next`.
    #[inline]
    pub fn try_merge(&mut self, next: &Mbuf) -> bool {
        if self.cluster != next.cluster || self.end() != next.off {
            return false;
        }
        self.len += next.len;
        true
    }
}

impl Clone for Mbuf {
    #[inline]
    fn clone(&self) -> Mbuf {
        self.header().retain();
        Mbuf { cluster: self.cluster, off: self.off, len: self.len }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        if self.header().release() {
            // SAFETY: it was the last view, so the cluster is free and ours.
            unsafe { cache::free(self.cluster) };
        }
    }
}

impl Deref for Mbuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Mbuf {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payload is the users' business, not a log's.
        f.debug_struct("Mbuf")
            .field("off", &self.off)
            .field("len", &self.len)
            .field("class", &self.header().class())
            .finish()
    }
}
