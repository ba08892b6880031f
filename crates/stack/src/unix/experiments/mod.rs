//! The older settings of `unix_locking`: a mutex for each pcb, and before that one lock for the stack.
//!
//! `unix/locking.rs` has the table of the locks that each takes, and their order. Tests: `tests/unix/stress.rs` in all
//! settings.

use sockeye_sync::RwLock;
use sockeye_sync::facade::Arc;
use sockeye_sync::pair::{self, PairCost};

use super::locking::{Direct, Locking, count};
use super::pcb::Pcb;
use crate::experiments::UnixLocking;
use crate::rt::counter;
use crate::rt::env::Env;

/// The locks of the setting that the stack was made with.
pub(crate) struct Configured;

/// The lock around everything, of the setting `global`.
#[derive(Default)]
pub(crate) struct Linkage(RwLock<()>);

impl Linkage {
    /// Runs `f` while no thread changes which sockets are connected.
    fn shared<R>(core: &Env, f: impl FnOnce() -> R) -> R {
        core.count(counter::UNIX_GLOBAL_LOCKS);
        let _linkage = super::shared(core).locking.0.read();
        f()
    }

    /// Runs `f`, which changes that, alone.
    fn alone<R>(core: &Env, f: impl FnOnce() -> R) -> R {
        core.count(counter::UNIX_GLOBAL_LOCKS);
        let _linkage = super::shared(core).locking.0.write();
        f()
    }
}

impl Locking for Configured {
    type OfStack = Linkage;

    #[inline]
    fn sending<R>(core: &Env, pcb: &Pcb, peer: &Arc<Pcb>, f: impl FnOnce() -> R) -> Option<R> {
        match core.config.experiments.unix_locking {
            UnixLocking::Direct => Direct::sending(core, pcb, peer, f),
            UnixLocking::Pair => {
                let (result, cost) = pair::with_peer(pcb, Some(peer), |_| f());
                count(core, cost);
                result
            }
            UnixLocking::Global => Linkage::shared(core, || {
                core.count(counter::UNIX_PCB_LOCKS);
                Some(peer.link.locked(f))
            }),
        }
    }

    #[inline]
    fn receiving<R>(core: &Env, pcb: &Pcb, f: impl FnOnce() -> R) -> R {
        match core.config.experiments.unix_locking {
            UnixLocking::Direct => Direct::receiving(core, pcb, f),
            UnixLocking::Pair | UnixLocking::Global => {
                core.count(counter::UNIX_PCB_LOCKS);
                pcb.link.locked(f)
            }
        }
    }

    #[inline]
    fn with_datagram_peer<R>(
        core: &Env,
        pcb: &Pcb,
        known: Option<&Arc<Pcb>>,
        f: impl FnOnce(&Arc<Pcb>) -> R,
    ) -> Option<R> {
        match core.config.experiments.unix_locking {
            UnixLocking::Direct => Direct::with_datagram_peer(core, pcb, known, f),
            UnixLocking::Pair => with_linked_peer(core, pcb, known, f),
            UnixLocking::Global => Linkage::shared(core, || with_linked_peer(core, pcb, known, f)),
        }
    }

    fn sending_to<R>(core: &Env, to: &Pcb, f: impl FnOnce() -> R) -> R {
        match core.config.experiments.unix_locking {
            UnixLocking::Direct => Direct::sending_to(core, to, f),
            UnixLocking::Pair => {
                core.count(counter::UNIX_PCB_LOCKS);
                to.link.locked(f)
            }
            UnixLocking::Global => Linkage::alone(core, f),
        }
    }

    fn exclusive<R>(core: &Env, pcb: &Pcb, peer: Option<&Pcb>, f: impl FnOnce() -> R) -> R {
        match core.config.experiments.unix_locking {
            UnixLocking::Direct => Direct::exclusive(core, pcb, peer, f),
            UnixLocking::Pair => {
                let (result, cost) = pair::with_both(pcb, peer.unwrap_or(pcb), f);
                count(core, cost);
                result
            }
            UnixLocking::Global => Linkage::alone(core, f),
        }
    }

    fn link(core: &Env, a: &Arc<Pcb>, b: &Arc<Pcb>) {
        match core.config.experiments.unix_locking {
            UnixLocking::Direct => Direct::link(core, a, b),
            UnixLocking::Pair => count(core, pair::link_both(a, b)),
            UnixLocking::Global => Linkage::alone(core, || count(core, pair::link_both(a, b))),
        }
    }

    fn unlink(core: &Env, pcb: &Pcb, peer: &Pcb) {
        match core.config.experiments.unix_locking {
            UnixLocking::Direct => Direct::unlink(core, pcb, peer),
            UnixLocking::Pair | UnixLocking::Global => count(core, pair::unlink_both(pcb, peer)),
        }
    }

    fn relinking<R>(core: &Env, f: impl FnOnce() -> (R, PairCost)) -> R {
        match core.config.experiments.unix_locking {
            UnixLocking::Direct | UnixLocking::Pair => Direct::relinking(core, f),
            UnixLocking::Global => {
                let (result, cost) = Linkage::alone(core, f);
                count(core, cost);
                result
            }
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
