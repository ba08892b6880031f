//! What lies behind holes goes first when packet memory has run out.
//!
//! Text behind a hole is the only memory whose loss costs nobody anything but time: it was not acknowledged, so its
//! sender still has it (RFC 2018 section 8 lets a receiver throw away what it has reported). And it is the memory that
//! can hold itself: where it has taken all there is, the segments that would fill the holes find no room, and nothing
//! moves any more. So whoever is refused memory [asks](Pruner::ask): a frame that has arrived, a writer of any protocol, a
//! program that puts frames into a channel. Soon afterwards a worker, or whoever drives the stack, posts [`reason::PRUNE`] to every connection that has a hole. Linux prunes a socket's own queue where
//! it runs short itself (`tcp_prune_ofo_queue`); here the memory is everybody's.
//!
//! Bound: once in [`PAUSE`], a look at a word of each connection and an item for each that has a hole.
//!
//! The sweep takes no memory, so it asks for none. No request is lost: `is_asked` is cleared before the connections are looked
//! at, so whoever finds it set has all of them looked at afterwards. Rank: asking takes the leaf of a timer wheel and may wake
//! a worker, so nobody asks with a lock held, and inside a perimeter the request is [left](ask_later) with the outbox's
//! timers. The sweep takes the demux table's shards one by one, and enters perimeters when it has let go of them. Tests:
//! `crates/sim/tests/memory.rs`, `crates/stack/tests/pruning.rs`.

use std::time::Duration;

use sockeye_sync::facade::{Arc, AtomicBool, Ordering};

use crate::rt::timers::TimerKey;
use crate::stack::Core;
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::{Conn, engine, reason};

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

    /// Packet memory was refused. Not to be called with a lock held, nor inside a perimeter.
    #[cold]
    pub fn ask(&self, core: &Core) {
        if self.is_first() {
            core.workers.arm(0, (core.clock.now() + PAUSE).as_micros(), TimerKey::Prune);
            core.workers.tell_driver(core);
        }
    }

    /// True if nobody has asked since the latest sweep began.
    fn is_first(&self) -> bool {
        !self.is_asked.swap(true, Ordering::AcqRel)
    }
}

/// Packet memory was refused to somebody who may hold locks or be inside a perimeter: the wheel is asked when his outbox is
/// emptied.
#[cold]
pub(crate) fn ask_later(cx: &mut Context<'_>) {
    if cx.core.pruner.is_first() {
        cx.outbox.timers.push(((cx.core.clock.now() + PAUSE).as_micros(), TimerKey::Prune));
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
