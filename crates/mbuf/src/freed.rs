//! Clusters whose last view is gone, on their way to a cache.
//!
//! The cache of a thread that drops an [`Mbuf`] gets the cluster at once. A thread that releases the mbuf into a [`Freed`] gives the
//! cluster back later, after its locks. With the feature `experiments` it may put the cluster on a remote-free list then, for the core that
//! allocated it (`experiments/`).
//!
//! It does not depend on sockets, or which lists there are. A cluster in here references nothing but its pool: no view,
//! no data, no quota. Invariants: it owns its clusters, all of them free; `tail` is the last of the list, or null with
//! `head`; `bytes` is the sum of their footprints; a list is moved, never copied. Tests: `tests/accounting.rs`.

use std::fmt;
use std::ptr::{self, NonNull};

use crate::cache;
use crate::chain::Chain;
use crate::class::Class;
use crate::cluster::Cluster;
use crate::facade::memory_written;
use crate::mbuf::Mbuf;

/// A list of free clusters of any class, linked through their headers. Dropping one that is not empty would leak.
pub(crate) struct FreeList {
    pub(crate) head: *mut Cluster,
    pub(crate) tail: *mut Cluster,
    /// Of memory, headers included.
    pub(crate) bytes: usize,
}

// SAFETY: a list owns its clusters, and free clusters are not tied to a thread.
unsafe impl Send for FreeList {}

impl FreeList {
    pub(crate) const fn new() -> FreeList {
        FreeList { head: ptr::null_mut(), tail: ptr::null_mut(), bytes: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Bytes of memory, headers included.
    #[inline]
    pub(crate) fn footprint(&self) -> usize {
        self.bytes
    }

    /// The class of each cluster.
    pub(crate) fn classes(&self) -> impl Iterator<Item = Class> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            // SAFETY: the list owns its clusters, so the header is valid.
            let header = unsafe { NonNull::new(at)?.as_ref() };
            at = header.next().get();
            Some(header.class())
        })
    }

    /// Takes over `cluster`.
    ///
    /// # Safety
    /// `cluster` is free, and the caller owns it and hands it over.
    #[inline]
    pub(crate) unsafe fn push(&mut self, cluster: NonNull<Cluster>) {
        // SAFETY: the caller owns the cluster, so the header is valid.
        let header = unsafe { cluster.as_ref() };
        memory_written(header);
        header.next().set(self.head);
        self.bytes += Cluster::footprint(header.class());
        if self.head.is_null() {
            self.tail = cluster.as_ptr();
        }
        self.head = cluster.as_ptr();
    }

    /// The cluster pushed last, which now is the caller's.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<NonNull<Cluster>> {
        let cluster = NonNull::new(self.head)?;
        // SAFETY: the list owns the cluster, so the header is valid.
        let header = unsafe { cluster.as_ref() };
        self.head = header.next().get();
        self.bytes -= Cluster::footprint(header.class());
        if self.head.is_null() {
            self.tail = ptr::null_mut();
        }
        Some(cluster)
    }

    /// Puts all of `other` at the front.
    #[cfg(feature = "experiments")]
    pub(crate) fn append(&mut self, other: FreeList) {
        let Some(tail) = NonNull::new(other.tail) else { return };
        // SAFETY: `other` owned the cluster, so the header is valid.
        unsafe { tail.as_ref() }.next().set(self.head);
        if self.head.is_null() {
            self.tail = other.tail;
        }
        self.head = other.head;
        self.bytes += other.bytes;
    }
}

/// Clusters whose last view is gone, in no cache yet: see the module's head. Clusters left in it when it is dropped go
/// to the dropping thread's cache, as if the views had simply been dropped.
///
/// A cluster in here still counts as in use ([`crate::Pool::in_use`]). Nothing here blocks or allocates.
pub struct Freed {
    pub(crate) list: FreeList,
}

impl Freed {
    /// No clusters.
    pub const fn new() -> Freed {
        Freed { list: FreeList::new() }
    }

    /// Whether there are no clusters.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Clusters in here.
    pub fn count(&self) -> usize {
        self.list.classes().count()
    }

    /// Bytes of memory, headers included.
    pub fn footprint(&self) -> usize {
        self.list.footprint()
    }

    /// Drops a view, and keeps the cluster if it was the last.
    #[inline]
    pub fn release(&mut self, mbuf: Mbuf) {
        if let Some(cluster) = mbuf.into_free() {
            // SAFETY: it was the last view, so the cluster is free and ours.
            unsafe { self.list.push(cluster) };
        }
    }

    /// Drops the views of a chain, and keeps the clusters of which they were the last.
    pub fn release_chain(&mut self, chain: Chain) {
        for mbuf in chain {
            self.release(mbuf);
        }
    }

    /// Takes over all of `other`. Only with the feature `experiments`, as the lists that need it.
    #[cfg(feature = "experiments")]
    pub fn append(&mut self, mut other: Freed) {
        self.list.append(std::mem::replace(&mut other.list, FreeList::new()));
    }
}

impl Default for Freed {
    fn default() -> Freed {
        Freed::new()
    }
}

impl Drop for Freed {
    #[inline]
    fn drop(&mut self) {
        while let Some(cluster) = self.list.pop() {
            // SAFETY: the list owned it and handed it over.
            unsafe { cache::free(cluster) };
        }
    }
}

impl fmt::Debug for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freed").field("count", &self.count()).field("footprint", &self.footprint()).finish()
    }
}
