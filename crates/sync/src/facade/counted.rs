//! The machine behind the same names as `host.rs`, with each access to shared memory reported to
//! `count.rs` before it is made.
//!
//! Before, so that the order of reports is the order of accesses wherever the accesses themselves order two threads: a
//! thread that has seen another one's write reports after it. Reported as writes are all accesses that take the cache
//! line for their core: stores, read-modify-writes, failed compare-exchanges too, the words of locks on the way in and
//! out, reference counts up and down.
//!
//! Does not depend on any protocol, or on the use of the reports. Invariants: a type has the size and alignment
//! of the machine's, so the layout of structures is that of a normal build; an operation has the effect of the
//! machine's. Tests: `facade.rs`, `apps/bench-counted/tests/words.rs`, and all tests of the crates above, which run with the
//! feature as without.

mod arc;
mod atomic;
mod cell;
mod lock;

pub use arc::{Arc, Weak, unsize};
pub(super) use atomic::raw;
pub use atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, LockWord, Ordering,
    ShortLockWord, fence,
};
pub use cell::{OnceLock, UnsafeCell};
// A type of its own for the model's sake: see there.
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use lock::{Mutex as TryMutex, MutexGuard as TryMutexGuard};
pub use std::hint::spin_loop;
pub use std::thread;
pub use std::thread_local;

use crate::count::{self, Site, What};

/// Says that memory that is handed round, of which `place` is the first byte, is being written.
#[track_caller]
pub fn memory_written<T: ?Sized>(place: *const T) {
    count::wrote(place, What::Memory, Site::here());
}

/// Says that memory that is handed round, of which `place` is the first byte, is being read.
#[track_caller]
pub fn memory_read<T: ?Sized>(place: *const T) {
    count::read(place, What::Memory, Site::here());
}
