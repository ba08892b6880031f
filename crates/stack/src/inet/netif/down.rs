//! An interface that is gone: a device that was unplugged, a tunnel whose other side was closed.
//!
//! Its input thread finds out ([`Netif::is_down`](super::Netif::is_down)) and ends. The interface's addresses and routes
//! go, so that nothing new begins over it (ENETUNREACH), and its connections end with ENETDOWN: what they had not
//! sent cannot be sent any more, and whoever waits for them would wait for minutes. The number of the interface is not
//! used again. Tests: `tests/ip/routes.rs`.

use sockeye_sync::facade::Arc;

use super::NetifId;
use crate::tcp::Core;
use crate::tcp::conn::error::SockError;
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::{Conn, engine, reason};

/// Looks whether an interface is gone, and does what follows if that is new. True if it is gone.
pub(crate) fn is_gone(core: &Core, id: NetifId) -> bool {
    let gone = core.netifs.netif(id).is_none_or(|netif| netif.is_down(core));
    if gone && core.netifs.withdraw(id) {
        end_connections(core, id);
    }
    gone
}

fn end_connections(core: &Core, id: NetifId) {
    let mut ended: Vec<Arc<Conn>> = Vec::new();
    core.demux.each_shard(|shard| {
        ended.extend(shard.conns().filter(|conn| conn.via.last().netif() == id).cloned());
    });
    Context::run_as_worker(core, |cx| {
        for conn in &ended {
            conn.set_error(SockError::NetDown);
            engine::notify(cx, conn, reason::ABORT);
        }
    });
}
