//! Sockeye's concurrency: synchronization between cores.
//!
//! | module | content | its argument |
//! |---|---|---|
//! | `squeue` | (feature `experiments`) the right to run protocol code, its queue, its ways in and out | head of `experiments/squeue.rs` |
//! | `socket_lock` | a lock for each socket, with a backlog of work that others leave meanwhile | head of `socket_lock.rs` |
//! | `notify` | the embedded, coalescing work item | head of `notify.rs` |
//! | `wait`, `spin` | threads blocked on a condition under a mutex | head of `wait.rs` |
//! | `wait_list` | all that wait for one buffer: threads, tasks, pollers | head of `wait_list.rs` |
//! | `tasks` | how a task comes onto that list, and looks at state elsewhere | head of `tasks.rs` |
//! | `reserved` | room in a buffer that a writer has reserved for a copy outside of its mutex | head of `reserved.rs` |
//! | `readiness` | a poller's registration: a socket's readiness, and which thread has to look | head of `readiness.rs` |
//! | `polled` | a poller's and a socket's use of that word | head of `polled.rs` |
//! | `slots`, `poll_queue` | a poller's registrations by number, and its lists of those that are ready | heads of `slots.rs`, `poll_queue.rs` |
//! | `sleeper`, `run_queue` | a worker, its sleeper and its queue | head of `sleeper.rs` |
//! | `busy_poll` | a queue that callers take from while they are busy waiting, and a thread otherwise | head of `busy_poll.rs` |
//! | `leader` | leader and follower at a device: a caller that waits there, and the thread that does so otherwise | head of `leader.rs` |
//! | `claims` | numbers that one side claims as a whole and another uses in parts | head of `claims.rs` |
//! | `counters`, `slot` | statistics, one shard per thread | head of `counters.rs` |
//! | `credits` | bounds, one stripe per thread | head of `credits.rs` |
//! | `serials` | numbers that no two objects have, one count per core | head of `serials.rs` |
//! | `take_queue` | a queue whose takers wait in a list: an item wakes one | head of `take_queue.rs` |
//! | `bell` | a bell that wakes one task, and stays rung until that looks | head of `bell.rs` |
//! | `exchange` | loops that read packets of each other's flows, and hand them over | head of `exchange.rs` |
//! | `outlet` | items that many threads make and one at a time hands over, outside of their locks | head of `outlet.rs` |
//! | `brief` | a mutex for short sections, whose unlock is a store | head of `brief.rs` |
//! | `seq_cell` | a value that is read without a lock | head of `seq_cell.rs` |
//! | `pair` | two linked control blocks, locked alone or in pairs | head of `pair.rs` |
//! | `admission` | writers that wait in a crowd: a few at a time go on, and fill their buffers again and again | head of `admission.rs` |
//! | `fork` | which process this is: a child of fork(2) or the one that made something | head of `fork.rs` |
//! | `node`, `block` | queue links and the memory they live in | head of `node.rs` |
//! | `facade` | the only source of atomics, locks, futexes: the machine, a model of it, or the machine counted | head of `facade.rs` |
//! | `count` (feature of that name) | how often a shared cache line is written by another thread than before | head of `count.rs` |
//!
//! This crate does not depend on connections, packets, sockets or the time of day. Everything is generic over
//! the item that travels.
//!
//! # Lock rank
//!
//! Nothing here holds a lock while it calls the user's code, except a squeue: that *is* the user's
//! code. `Notify`, `WaitQueue::notify`, `RunQueue::push` and `Sleeper::wake_if_sleeping` take no lock
//! and may be called under any; the last one and `WaitQueue::wake` make a system call, so they
//! belong after all locks.
//!
//! # Tests
//!
//! ```text
//! cargo test -p sockeye-sync
//! RUSTFLAGS="--cfg loom" cargo test -p sockeye-sync --release --test loom
//! MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p sockeye-sync
//! cargo run -p sockeye-sync --release --example sync_costs
//! ```
//!
//! The second runs every interleaving of a few threads in each protocol (`tests/loom`), under the
//! C++ memory model as far as loom knows it; the third looks for undefined behaviour.
#![warn(missing_docs)]
#![deny(clippy::multiple_unsafe_ops_per_block)]

pub mod admission;
mod bell;
mod block;
mod brief;
pub mod busy_poll;
pub mod claims;
#[cfg(not(loom))]
pub mod coop;
#[cfg(all(feature = "count", not(loom)))]
pub mod count;
mod counters;
pub mod cpu;
mod credits;
pub mod exchange;
#[doc(hidden)]
#[cfg(feature = "experiments")]
mod experiments;
pub mod facade;
pub mod fork;
mod leader;
#[cfg(not(loom))]
mod local;
mod node;
mod notify;
mod once_arc;
pub mod outlet;
pub mod pair;
mod parts;
mod payload;
pub mod poll_queue;
pub mod polled;
mod readiness;
pub mod reserved;
mod run_queue;
mod seq_cell;
mod serials;
mod sleeper;
pub mod slot;
pub mod slots;
pub mod socket_lock;
mod spin;
mod take_queue;
pub mod tasks;
mod wait;
mod wait_list;

pub use bell::Bell;
pub use brief::{BriefGuard, BriefMutex};
pub use counters::Counters;
pub use credits::Credits;
#[cfg(feature = "experiments")]
pub use experiments::{
    DEPTH_MAX, ELIDE_MAX, Entry, Exit, Filled, Found, HandedOff, Inside, Items, Outcome, Poisoned, Replies,
    Request, Served, Squeue, SqueueId,
};
pub use facade::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use leader::{Leader, LeaderSlot, Seen};
#[cfg(not(loom))]
pub use local::Local;
pub use node::Batch;
pub use notify::{Notify, Post};
pub use once_arc::{Lent, OnceArc};
pub use outlet::Outlet;
pub use parts::Parts;
pub use payload::discard_payload;
pub use readiness::{Generation, Look, Readiness};
pub use run_queue::RunQueue;
pub use seq_cell::SeqCell;
pub use serials::Serials;
pub use sleeper::{Drowsy, Sleeper};
pub use socket_lock::SocketLock;
pub use spin::{SPIN_MAX_DEFAULT, Spin};
pub use take_queue::TakeQueue;
pub use wait::{Awaited, Notified, Ticket, WaitQueue, Woken};
pub use wait_list::{Key, NoPollers, Poller, Pollers, WaitList};
