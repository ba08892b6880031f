//! What lies behind holes goes first when packet memory has run out.
//!
//! Text behind a hole is the only memory whose loss costs nobody anything but time: it was not acknowledged, so its
//! sender still has it (RFC 2018 section 8 lets a receiver throw away what it has reported). And it is the memory that
//! can hold itself: where it has taken all there is, the segments that would fill the holes find no room, and nothing
//! moves any more. So who is refused memory for a frame [asks](Pruner::ask), and soon afterwards a worker, or whoever
//! drives the stack, posts [`reason::PRUNE`] to every connection that has a hole. Linux prunes a socket's own queue where
//! it runs short itself (`tcp_prune_ofo_queue`); here the memory is everybody's.
//!
//! Bound: once in [`PAUSE`], a look at a word of each connection and an item for each that has a hole.
//!
//! No request is lost: `is_asked` is cleared before the connections are looked at, so whoever finds it set has his frame's
//! connection looked at afterwards. Rank: the sweep takes the demux table's shards one by one, and enters perimeters when
//! it has let go of them. Tests: `crates/sim/tests/memory.rs`.

use std::time::Duration;

use sockeye_sync::facade::{Arc, AtomicBool, Ordering};

use crate::conn::outbox::Context;
use crate::conn::{Conn, engine, reason};
use crate::stack::Core;
use crate::timers::TimerKey;

/// See the module's head.
pub(crate) struct Pruner {
    /// (a) The timer wheel will call. Partner: the swaps in [`Pruner::ask`] and [`on_timer`].
    is_asked: AtomicBool,
}

/// From a request to its sweep: what many connections ask for together is done once.
const PAUSE: Duration = Duration::from_millis(10);

impl Pruner {
    pub fn new() -> Self {
        Self { is_asked: AtomicBool::new(false) }
    }

    /// Packet memory was refused to a frame that has arrived.
    #[cold]
    pub fn ask(&self, core: &Core) {
        if !self.is_asked.swap(true, Ordering::AcqRel) {
            core.workers.arm((core.clock.now() + PAUSE).as_micros(), TimerKey::Prune);
        }
    }
}

/// The wheel's call.
pub(crate) fn on_timer(cx: &mut Context<'_>) {
    let core = cx.core;
    core.pruner.is_asked.swap(false, Ordering::AcqRel);
    let mut gapped: Vec<Arc<Conn>> = Vec::new();
    core.demux.each_shard(|shard| gapped.extend(shard.conns().filter(|conn| conn.has_hole()).cloned()));
    for conn in gapped {
        engine::notify(cx, &conn, reason::PRUNE);
    }
}
