//! A stack of free clusters, linked through their headers.
//!
//! It does not depend on its size limits or whose it is. Invariants: it owns its clusters (all free, all of
//! one class); `count` is the length of the list; a magazine is moved, never copied. Tests: `depot.rs` and
//! `tests/`.

use std::ptr::{self, NonNull};

use crate::cluster::Cluster;
use crate::facade::memory_written;

/// A last-in first-out list of free clusters. Dropping one that is not empty would leak.
pub(crate) struct Magazine {
    head: *mut Cluster,
    count: u32,
}

// SAFETY: a magazine owns its clusters, and free clusters are not tied to a thread.
unsafe impl Send for Magazine {}

impl Magazine {
    pub(crate) const fn new() -> Magazine {
        Magazine { head: ptr::null_mut(), count: 0 }
    }

    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
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
        self.head = cluster.as_ptr();
        self.count += 1;
    }

    /// The cluster pushed last, which now is the caller's.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<NonNull<Cluster>> {
        let cluster = NonNull::new(self.head)?;
        // SAFETY: the magazine owns the cluster, so the header is valid.
        let header = unsafe { cluster.as_ref() };
        self.head = header.next().get();
        self.count -= 1;
        Some(cluster)
    }
}
