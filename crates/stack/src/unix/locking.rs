//! The locks of UNIX-domain sockets, and which a call takes.
//!
//! [`Locking`] has a function for each kind of call; its default is the product's, which is the setting `direct` of `unix_locking`. The older
//! settings are other implementations, in `experiments/`, with the feature of that name. Callers use [`Chosen`].
//!
//! # Three kinds of lock, and their order
//!
//! ```text
//! linkage (one for the stack; `global` only)  →  pcb mutexes, in address order (`sockeye_sync::pair`)
//!     →  `so`, the mutex of one receive buffer  →  inbox of a Poll · flows' wait queues · pool
//! leaves, taken alone: a shard of the names · a shard of the list of all sockets
//! ```
//!
//! * The **linkage** lock is the old scheme's: shared by every send, exclusive for calls that change which
//!   sockets are connected (connect, accept, shutdown, close, a datagram with an address). Even a shared
//!   acquisition writes one line that all cores share.
//! * A **pcb mutex** guards the pcb's pointer to its peer. While it is held the pointer may be followed. A thread that has
//!   to let go of it first takes a hold on the peer, and the busy count makes one look at the
//!   pointer enough afterwards: see `sockeye_sync::pair`.
//! * **`so`** guards a receive buffer and everything that a sender must know of the receiver. No two are held at
//!   once (but by the collector of rights, in address order).
//!
//! # What a call takes
//!
//! | call | `global` | `pair` | `direct` |
//! |---|---|---|---|
//! | send on a connection | linkage shared, the peer's mutex, its `so` | own mutex, the peer's, its `so` | the peer's `so` |
//! | receive | own mutex, own `so` | own mutex, own `so` | own `so` |
//! | send a datagram to the peer | linkage shared, both mutexes, its `so` | both mutexes, its `so` | own mutex (none for a pair that was never reconnected), its `so` |
//! | send a datagram to a name | linkage exclusive, its `so` | the receiver's mutex, its `so` | its `so` |
//! | connect, close, shut down | linkage exclusive, then both `so` one by one | both mutexes, then both `so` | both `so` one by one; datagrams both mutexes |
//!
//! # When the peer may be followed in `direct`
//!
//! A connected socket has one peer for life, and each handle holds it: following it takes no lock. Only
//! whether the peer takes anything can change, which is in its `so`. A datagram socket can be connected anew:
//! the sender takes a hold on the peer under its own mutex and lets go; a datagram whose send began before a
//! reconnect may reach the old peer, as if it had been sent before.
//!
//! Copies are made before any of these locks, but for small ones, which are shorter than taking `so`
//! twice. Nothing is woken, dropped or waited for under them.
//!
//! Tests: `crates/sync/tests/loom/pair.rs`, `tests/unix/stress.rs` in all settings.

use sockeye_sync::facade::Arc;
use sockeye_sync::pair::PairCost;

use super::pcb::Pcb;
use crate::rt::counter;
use crate::rt::env::Env;

/// The locking of calls on UNIX-domain sockets. The defaults are the product's.
pub(crate) trait Locking {
    /// The setting's state of a stack.
    type OfStack: Default + Send + Sync;

    /// Runs one attempt of a send on a connection. `None`: the peer has closed.
    #[inline]
    fn sending<R>(core: &Env, pcb: &Pcb, peer: &Arc<Pcb>, f: impl FnOnce() -> R) -> Option<R> {
        let (_, _, _) = (core, pcb, peer);
        Some(f())
    }

    /// Runs one attempt of a receive.
    #[inline]
    fn receiving<R>(core: &Env, pcb: &Pcb, f: impl FnOnce() -> R) -> R {
        let (_, _) = (core, pcb);
        f()
    }

    /// Runs `f` with the peer of a datagram socket; `known` is the peer that it was created with.
    #[inline]
    fn with_datagram_peer<R>(
        core: &Env,
        pcb: &Pcb,
        known: Option<&Arc<Pcb>>,
        f: impl FnOnce(&Arc<Pcb>) -> R,
    ) -> Option<R> {
        if let Some(peer) = pcb.remembered.peer(known) {
            return Some(f(peer));
        }
        core.count(counter::UNIX_PCB_LOCKS);
        pcb.link.peer().map(|peer| f(&peer))
    }

    /// Runs `f` while no other thread sends to `to`, which was found by its name.
    fn sending_to<R>(core: &Env, to: &Pcb, f: impl FnOnce() -> R) -> R {
        let (_, _) = (core, to);
        f()
    }

    /// Runs `f`, which changes the link between `pcb` and `peer`.
    fn exclusive<R>(core: &Env, pcb: &Pcb, peer: Option<&Pcb>, f: impl FnOnce() -> R) -> R {
        let (_, _, _) = (core, pcb, peer);
        f()
    }

    /// Points the ends of a new connection at each other, where the setting follows such pointers.
    fn link(core: &Env, a: &Arc<Pcb>, b: &Arc<Pcb>) {
        let (_, _, _) = (core, a, b);
    }

    /// Ends the effect of [`link`](Self::link).
    fn unlink(core: &Env, pcb: &Pcb, peer: &Pcb) {
        let (_, _, _) = (core, pcb, peer);
    }

    /// Runs `f`, which links datagram sockets.
    fn relinking<R>(core: &Env, f: impl FnOnce() -> (R, PairCost)) -> R {
        let (result, cost) = f();
        count(core, cost);
        result
    }
}

/// The product's locks.
#[cfg_attr(feature = "experiments", allow(dead_code, reason = "the settings choose"))]
pub(crate) struct Direct;

impl Locking for Direct {
    type OfStack = ();
}

/// The locks that calls take.
#[cfg(not(feature = "experiments"))]
pub(crate) type Chosen = Direct;
#[cfg(feature = "experiments")]
pub(crate) type Chosen = super::experiments::Configured;

/// Counts the cost of a pair.
pub(super) fn count(core: &Env, cost: PairCost) {
    core.count_many(counter::UNIX_PCB_LOCKS, cost.locks);
    if cost.slow > 0 {
        core.count_many(counter::UNIX_PAIR_SLOW_PATHS, cost.slow);
    }
    if cost.busy_waits > 0 {
        core.count_many(counter::UNIX_BUSY_WAITS, cost.busy_waits);
    }
}
