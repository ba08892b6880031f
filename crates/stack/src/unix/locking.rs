//! The locks of UNIX-domain sockets, and what each setting of `unix_locking` takes of them.
//!
//! # Three kinds of lock, and their order
//!
//! ```text
//! linkage (one for the stack; `global` only)  →  pcb mutexes, in address order (`sockeye_sync::pair`)
//!     →  `so`, the mutex of one receive buffer  →  inbox of a Poll · flows' wait queues · pool
//! leaves, taken alone: a shard of the names · a shard of the list of all sockets
//! ```
//!
//! * The **linkage** lock is the old scheme's: shared by every send, exclusive for what changes who is
//!   connected to whom (connect, accept, shutdown, close, a datagram with an address). Even a shared
//!   acquisition writes one line that all cores share.
//! * A **pcb mutex** guards the pcb's pointer to its peer. While it is held the pointer may be followed. Who has
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
//! A connected socket has one peer for life, and each handle holds it: following it takes no lock. What can
//! change is whether the peer takes anything, which is in its `so`. A datagram socket can be
//! connected anew: the sender takes a hold on the peer under its own mutex and lets go; a datagram whose
//! send began before a reconnect may reach the old peer, as if it had been sent before.
//!
//! Copies are made before any of these locks, but for small ones, which are shorter than taking `so`
//! twice. Nothing is woken, dropped or waited for under them.
//!
//! Tests: `crates/sync/tests/loom/pair.rs`, `tests/unix_stress.rs` in all settings.

use sockeye_sync::facade::Arc;
use sockeye_sync::pair::{self, PairCost};

use super::pcb::Pcb;
use crate::experiments::UnixLocking;
use crate::rt::counter;
use crate::rt::env::Env;

/// Runs one attempt of a send on a connection. `None`: the peer has closed.
#[inline]
pub(crate) fn sending<R>(core: &Env, pcb: &Pcb, peer: &Arc<Pcb>, f: impl FnOnce() -> R) -> Option<R> {
    match core.config.experiments.unix_locking {
        UnixLocking::Direct => Some(f()),
        UnixLocking::Pair => {
            let (result, cost) = pair::with_peer(pcb, Some(peer), |_| f());
            count(core, cost);
            result
        }
        UnixLocking::Global => {
            core.count(counter::UNIX_GLOBAL_LOCKS);
            let _linkage = super::shared(core).linkage.read();
            core.count(counter::UNIX_PCB_LOCKS);
            Some(peer.link.locked(f))
        }
    }
}

/// Runs one attempt of a receive.
#[inline]
pub(crate) fn receiving<R>(core: &Env, pcb: &Pcb, f: impl FnOnce() -> R) -> R {
    match core.config.experiments.unix_locking {
        UnixLocking::Direct => f(),
        UnixLocking::Pair | UnixLocking::Global => {
            core.count(counter::UNIX_PCB_LOCKS);
            pcb.link.locked(f)
        }
    }
}

/// Runs `f` with the peer of a datagram socket; `known` is the one that it was made with.
#[inline]
pub(crate) fn with_datagram_peer<R>(
    core: &Env,
    pcb: &Pcb,
    known: Option<&Arc<Pcb>>,
    f: impl FnOnce(&Arc<Pcb>) -> R,
) -> Option<R> {
    match core.config.experiments.unix_locking {
        UnixLocking::Direct => {
            // Acquire, with the release in `datagram_link`: whoever sees the pcb linked anew looks under
            // its mutex.
            let is_relinked = pcb.is_relinked.load(sockeye_sync::facade::Ordering::Acquire);
            if let Some(peer) = known.filter(|_| !is_relinked) {
                return Some(f(peer));
            }
            core.count(counter::UNIX_PCB_LOCKS);
            pcb.link.peer().map(|peer| f(&peer))
        }
        UnixLocking::Pair => with_linked_peer(core, pcb, known, f),
        UnixLocking::Global => {
            core.count(counter::UNIX_GLOBAL_LOCKS);
            let _linkage = super::shared(core).linkage.read();
            with_linked_peer(core, pcb, known, f)
        }
    }
}

fn with_linked_peer<R>(
    core: &Env,
    pcb: &Pcb,
    known: Option<&Arc<Pcb>>,
    f: impl FnOnce(&Arc<Pcb>) -> R,
) -> Option<R> {
    let (result, cost) = pair::with_peer(pcb, known, f);
    count(core, cost);
    result
}

/// Runs `f` while nobody sends to `to`, which was found by its name.
pub(crate) fn sending_to<R>(core: &Env, to: &Pcb, f: impl FnOnce() -> R) -> R {
    match core.config.experiments.unix_locking {
        UnixLocking::Direct => f(),
        UnixLocking::Pair => {
            core.count(counter::UNIX_PCB_LOCKS);
            to.link.locked(f)
        }
        UnixLocking::Global => {
            core.count(counter::UNIX_GLOBAL_LOCKS);
            let _linkage = super::shared(core).linkage.write();
            f()
        }
    }
}

/// Runs `f`, which changes what is between `pcb` and `peer`.
pub(crate) fn exclusive<R>(core: &Env, pcb: &Pcb, peer: Option<&Pcb>, f: impl FnOnce() -> R) -> R {
    match core.config.experiments.unix_locking {
        UnixLocking::Direct => f(),
        UnixLocking::Pair => {
            let (result, cost) = pair::with_both(pcb, peer.unwrap_or(pcb), f);
            count(core, cost);
            result
        }
        UnixLocking::Global => {
            core.count(counter::UNIX_GLOBAL_LOCKS);
            let _linkage = super::shared(core).linkage.write();
            f()
        }
    }
}

/// Points the ends of a new connection at each other, where the setting follows such pointers.
pub(crate) fn link(core: &Env, a: &Arc<Pcb>, b: &Arc<Pcb>) {
    match core.config.experiments.unix_locking {
        UnixLocking::Direct => {}
        UnixLocking::Pair => count(core, pair::link_both(a, b)),
        UnixLocking::Global => {
            core.count(counter::UNIX_GLOBAL_LOCKS);
            let _linkage = super::shared(core).linkage.write();
            count(core, pair::link_both(a, b));
        }
    }
}

/// Ends what [`link`] did.
pub(crate) fn unlink(core: &Env, pcb: &Pcb, peer: &Pcb) {
    match core.config.experiments.unix_locking {
        UnixLocking::Direct => {}
        UnixLocking::Pair | UnixLocking::Global => count(core, pair::unlink_both(pcb, peer)),
    }
}

/// Runs `f`, which links datagram sockets.
pub(crate) fn relinking<R>(core: &Env, f: impl FnOnce() -> (R, PairCost)) -> R {
    let linkage = match core.config.experiments.unix_locking {
        UnixLocking::Direct | UnixLocking::Pair => None,
        UnixLocking::Global => {
            core.count(counter::UNIX_GLOBAL_LOCKS);
            Some(super::shared(core).linkage.write())
        }
    };
    let (result, cost) = f();
    drop(linkage);
    count(core, cost);
    result
}

fn count(core: &Env, cost: PairCost) {
    core.count_many(counter::UNIX_PCB_LOCKS, cost.locks);
    if cost.slow > 0 {
        core.count_many(counter::UNIX_PAIR_SLOW_PATHS, cost.slow);
    }
    if cost.busy_waits > 0 {
        core.count_many(counter::UNIX_BUSY_WAITS, cost.busy_waits);
    }
}
