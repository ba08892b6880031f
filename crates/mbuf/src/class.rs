//! The sizes clusters come in.
//!
//! It does not depend on where memory comes from. Invariants: capacities ascend; the largest is
//! [`CLUSTER_MAX`]; two magazines of any class hold at most [`CACHE_CLASS_BYTES`] of data. Tests: at the end.

/// How many size classes there are.
pub const CLASS_COUNT: usize = 4;

/// The most bytes of data one cluster can take: the largest IP payload, so that a segment made by
/// segmentation offload fits into one or two clusters.
pub const CLUSTER_MAX: usize = 64 * 1024;

/// The most bytes of one class that a thread keeps for itself.
const CACHE_CLASS_BYTES: usize = 128 * 1024;

/// A size class. Each holds a power of two of data, because applications write in such sizes; the header
/// comes on top, in a cache line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// 256 bytes: requests, small answers, control data.
    B256,
    /// 2 KiB: an Ethernet frame.
    K2,
    /// 16 KiB: for many small writes together, or a TLS record.
    K16,
    /// 64 KiB: bulk data.
    K64,
}

impl Class {
    /// All classes, ascending.
    pub const ALL: [Class; CLASS_COUNT] = [Class::B256, Class::K2, Class::K16, Class::K64];

    /// The smallest class that takes `want` bytes; the largest class if none does.
    #[inline]
    pub const fn for_len(want: usize) -> Class {
        if want <= Class::B256.capacity() {
            Class::B256
        } else if want <= Class::K2.capacity() {
            Class::K2
        } else if want <= Class::K16.capacity() {
            Class::K16
        } else {
            Class::K64
        }
    }

    /// Bytes of data that a cluster of this class takes.
    #[inline]
    pub const fn capacity(self) -> usize {
        match self {
            Class::B256 => 256,
            Class::K2 => 2 * 1024,
            Class::K16 => 16 * 1024,
            Class::K64 => CLUSTER_MAX,
        }
    }

    /// The place of this class in [`Class::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Clusters in a full magazine. A thread holds at most two magazines of each class.
    #[inline]
    pub(crate) const fn rounds(self) -> u32 {
        match self {
            Class::B256 => 32,
            Class::K2 => 16,
            Class::K16 => 4,
            Class::K64 => 1,
        }
    }
}

const _: () = {
    let mut i = 0;
    while i < CLASS_COUNT {
        let class = Class::ALL[i];
        assert!(class.index() == i);
        assert!(2 * class.rounds() as usize * class.capacity() <= CACHE_CLASS_BYTES);
        i += 1;
    }
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_class_that_fits_is_chosen() {
        for (want, class) in [
            (0, Class::B256),
            (256, Class::B256),
            (257, Class::K2),
            (2048, Class::K2),
            (2049, Class::K16),
            (16 * 1024, Class::K16),
            (16 * 1024 + 1, Class::K64),
            (CLUSTER_MAX, Class::K64),
            (CLUSTER_MAX + 1, Class::K64),
            (usize::MAX, Class::K64),
        ] {
            assert_eq!(Class::for_len(want), class, "{want}");
        }
    }
}
