//! Sockeye's packet memory: reference-counted clusters, views of them, chains of views, and the
//! pools they come from.
//!
//! * [`Pool`]: one per stack. Hands out clusters under a hard cap on the memory obtained from the
//!   system. Threads allocate from and free into caches of their own; the caches exchange whole
//!   magazines with a depot (Bonwick and Adams, "Magazines and Vmem", USENIX 2001).
//! * [`Mbuf`]: a view of part of a cluster, 16 bytes. Copying one copies a reference.
//! * [`Freed`]: clusters whose last view is gone, which their thread gives back after its locks.
//! * [`Spare`]: the room behind a view, for a system call to write into.
//! * [`Chain`]: a queue of mbufs that reads as one run of bytes: a socket buffer, a segment's payload.
//! * With the feature `experiments`: remote-free lists, where a freed cluster may wait for the core that allocated it (`RemoteFreeSlot`,
//!   `RemoteFreeList`, `Pool::remote_free_to_cores`). The feature adds these and changes nothing of a pool that does not use them.
//!
//! This crate does not depend on sockets, protocols, socket locks or drivers. Of ours it uses the facade of
//! `sockeye-sync` alone: atomics and locks.
//!
//! Invariants that hold across its files:
//! * A view covers only bytes that were written, and no byte is written while a view covers it
//!   (`cluster.rs` has the argument).
//! * A cluster is in exactly one place: behind its views, in one thread's cache, in the depot, or, with the feature
//!   `experiments`, on a remote-free list. In each of them it counts towards the cap; the count changes only when the
//!   system gives or takes.
//! * Lock order: a depot class lock, then nothing; the quota's lock, then nothing. Neither is held
//!   while memory is obtained from or returned to the system.
//!
//! Tests: beside the code for private parts, `tests/` for the API. The concurrency models run under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p sockeye-mbuf --release --lib --features experiments`. The unsafe code runs under
//! miri: `cargo +nightly miri test -p sockeye-mbuf --features experiments`. Costs: `cargo run --release -p sockeye-mbuf
//! --example mbuf_costs`.
#![warn(missing_docs)]

mod cache;
mod chain;
mod class;
mod cluster;
mod cpu;
mod depot;
mod discipline;
#[cfg(feature = "experiments")]
mod experiments;
mod facade;
mod freed;
mod links;
mod magazine;
mod mbuf;
mod pool;
mod quota;
mod spare;
mod stats;
mod store;

pub use chain::{Chain, IntoMbufs, Mbufs, Slices};
pub use class::{CLASS_COUNT, CLUSTER_MAX, Class};
#[cfg(feature = "experiments")]
pub use experiments::{CORE_BYTES_MAX, RemoteFreeList, RemoteFreeSlot, RemoteListStats, Seen};
pub use freed::Freed;
pub use mbuf::Mbuf;
pub use pool::{Exhausted, MEMORY_MIN, Pool, PoolConfig};
pub use spare::Spare;
pub use stats::{ClassStats, PoolStats};
