//! Out-of-order data goes first when packet memory has run out.
//!
//! Text behind a hole is the only memory whose loss costs only time: it was not acknowledged, so its sender still has it (RFC 2018 section 8 lets a
//! receiver throw away reported data). And it is the memory that can hold itself: where it has taken all there is, the segments that would fill the
//! holes find no room, and nothing moves any more. So code that is refused memory asks (`rt/memory.rs`): a frame that has arrived, a writer of any
//! protocol, a program that puts frames into a channel. Soon afterwards a worker, or the driver of the stack, posts [`reason::PRUNE`] to every
//! connection that has a hole. Linux prunes a socket's own queue where it runs short itself (`tcp_prune_ofo_queue`); here the memory is shared by all
//! sockets.
//!
//! Bound: once in ten milliseconds, a look at a word of each connection and an item for each that has a hole.
//!
//! The sweep takes no memory, so it asks for none. Rank: asking takes the leaf of a timer wheel and may wake
//! a worker, so no thread asks with a lock held, and under a socket lock the request is [left](crate::inet::context::Context::ask_for_memory)
//! with the outbox's timers. The sweep takes the demux table's shards one by one, and runs connections when it has let go of them. Tests:
//! `crates/sim/tests/net/memory.rs`, `crates/stack/tests/tcp/pruning.rs`.

use sockeye_sync::facade::Arc;

use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::{Conn, engine, reason};

/// The wheel's call.
pub(crate) fn on_timer(cx: &mut Context<'_>) {
    let core = cx.core;
    core.pruner.begin();
    let mut gapped: Vec<Arc<Conn>> = Vec::new();
    core.demux.each_shard(|shard| gapped.extend(shard.conns().filter(|conn| conn.has_hole()).cloned()));
    for conn in gapped {
        engine::notify(cx, &conn, reason::PRUNE);
    }
}
