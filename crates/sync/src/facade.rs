//! The facade of shared memory: every atomic word, lock, reference count, cell and thread call of this
//! crate, and every atomic word, lock and reference count of the crates above, comes from here.
//!
//! It has three implementations with the same names:
//!
//! | implementation | when | content |
//! |---|---|---|
//! | `host` | normally | the machine: `std` |
//! | `counted` | feature `count` | the machine, and each write is reported to `count.rs` |
//! | `model` | `--cfg loom` | the loom model checker, which runs every interleaving of the memory model |
//!
//! Futexes (`futex.rs`) and process-wide fences (`membarrier.rs`) belong to the first two. What only Linux has for them is in `system/linux.rs`, and what other
//! systems have instead in `system/portable.rs`. A test (`crates/tidy/src/facades.rs`) fails where a crate of the
//! stack bypasses the facade, so a new shared word is counted without any effort by its author.
//!
//! The facade knows nothing of the protocols built on it. Two things are kept from the model on
//! purpose, because no protocol's correctness rests on them and modelling them would only multiply interleavings:
//! the counters (relaxed, never used to order anything) and the recycling of memory (a lock
//! and thread-local lists). They take their types from [`unmodelled`], which are counted all the same.
//!
//! Tests: below, and everything else in the crate.

#[cfg(all(feature = "count", not(loom)))]
mod counted;
#[cfg(not(loom))]
mod futex;
#[cfg(all(not(feature = "count"), not(loom)))]
mod host;
mod lock;
#[cfg(not(loom))]
mod membarrier;
#[cfg(loom)]
mod model;
mod snapshot;
#[cfg_attr(
    all(any(target_os = "linux", target_os = "android"), not(sockeye_portable)),
    path = "facade/system/linux.rs"
)]
#[cfg_attr(
    not(all(any(target_os = "linux", target_os = "android"), not(sockeye_portable))),
    path = "facade/system/portable.rs"
)]
#[cfg_attr(loom, expect(dead_code, reason = "models have futexes and fences of their own"))]
pub(crate) mod system;

#[cfg(all(feature = "count", not(loom)))]
pub use counted::*;
#[cfg(not(loom))]
pub use futex::Futex;
#[cfg(all(not(feature = "count"), not(loom)))]
pub use host::*;
#[cfg(not(loom))]
pub use membarrier::{heavy_fence, light_fence};
#[cfg(loom)]
pub use model::*;
pub use snapshot::{Read, Snapshot};

#[cfg(all(feature = "count", not(loom)))]
use counted::raw;
#[cfg(all(not(feature = "count"), not(loom)))]
use host::raw;

/// Types that no model checker sees; see the head of the file.
pub mod unmodelled {
    #[cfg(loom)]
    pub use super::lock::Mutex;
    #[cfg(not(loom))]
    pub use super::{
        Arc, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Mutex, OnceLock, Ordering,
    };
    #[cfg(loom)]
    pub use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    #[cfg(loom)]
    pub use std::sync::{Arc, OnceLock};
    pub use std::thread_local;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::any::TypeId;
    use std::sync::atomic;

    /// Whether the facade's type is the machine's.
    macro_rules! same {
        ($($ours:ty, $machine:ty;)*) => {
            [$((TypeId::of::<$ours>() == TypeId::of::<$machine>(), size_of::<$ours>() == size_of::<$machine>()),)*]
        };
    }

    /// For each type: whether it is the machine's own, and whether it has its size.
    fn types() -> [(bool, bool); 12] {
        same![
            super::AtomicBool, atomic::AtomicBool;
            super::AtomicU8, atomic::AtomicU8;
            super::AtomicU16, atomic::AtomicU16;
            super::AtomicU32, atomic::AtomicU32;
            super::AtomicU64, atomic::AtomicU64;
            super::AtomicUsize, atomic::AtomicUsize;
            super::AtomicPtr<u8>, atomic::AtomicPtr<u8>;
            super::Mutex<[u64; 3]>, super::lock::Mutex<[u64; 3]>;
            super::RwLock<[u64; 3]>, super::lock::RwLock<[u64; 3]>;
            super::Condvar, super::lock::Condvar;
            super::OnceLock<u64>, std::sync::OnceLock<u64>;
            super::Arc<u64>, std::sync::Arc<u64>;
        ]
    }

    #[test]
    fn a_normal_build_uses_the_standard_types_and_a_counting_build_their_sizes() {
        for (index, (is_the_machine_s, is_as_large)) in types().into_iter().enumerate() {
            assert_eq!(is_the_machine_s, cfg!(not(feature = "count")), "type {index}");
            assert!(is_as_large, "type {index}");
        }
        assert_eq!(size_of::<super::lock::Mutex<[u64; 3]>>(), size_of::<std::sync::Mutex<[u64; 3]>>());
        assert_eq!(size_of::<super::UnsafeCell<u64>>(), size_of::<u64>());
        assert_eq!(size_of::<super::Futex>(), size_of::<u32>());
    }
}
