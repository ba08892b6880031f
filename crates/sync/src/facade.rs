//! The one door to shared memory: every atomic word, lock, reference count, cell and thread call of this
//! crate, and every atomic word, lock and reference count of the crates above, comes from here.
//!
//! Behind the door stands one of two houses. `host` is the machine: `std`, `parking_lot` and Linux
//! futexes. `model` (`--cfg loom`) is the loom model checker, which runs every interleaving that
//! the memory model allows. A third one that counts the traffic of each shared word fits behind the
//! same names.
//!
//! The door knows nothing of the protocols built on it. Two things pass it by on purpose, because
//! no protocol's correctness rests on them and modelling them would only multiply interleavings:
//! the counters (relaxed, never used to order anything) and the recycling of memory (a lock and
//! thread-local lists). They take `host` types by name through [`unmodelled`].
//!
//! Tests: everything else in the crate.

#[cfg(not(loom))]
mod host;
#[cfg(loom)]
mod model;

#[cfg(not(loom))]
pub use host::*;
#[cfg(loom)]
pub use model::*;

/// Types that are the machine's own even under the model checker; see the head of the file.
pub mod unmodelled {
    pub use parking_lot::Mutex;
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub use std::sync::{Arc, OnceLock};
    pub use std::thread_local;
}
