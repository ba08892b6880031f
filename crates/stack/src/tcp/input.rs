//! From packets to connections, run by run.
//!
//! A run is packets in a row for one connection, at most [`RUN_MAX`]. Its connection is looked up once, before its
//! lock is taken, and no other connection's is held meanwhile: there is no order among connections to be kept. A
//! connection that ends on the way (reset, TIME-WAIT) ends the run, and its effects in the outbox are carried out
//! before the next packet is looked at, so that a SYN that reuses its name finds the name free. Packets without a
//! connection (handshakes, strays) are routed with no lock held. A listener has none: its SYNs share a shard of the
//! demux table, chosen by the hash of the 4-tuple; so SYNs to one listener run in parallel, and nothing is nested
//! when a child is made. The child is in the table before its third segment has been run; another thread that finds
//! it there runs it as any other.
//!
//! Below TCP is `inet/input/`, which takes the frames and sorts them. Tests: `tests/wire/transfers.rs`.

use sockeye_sync::facade::Arc;

use crate::inet::input::{self, BATCH_MAX, Batch, Packet, Place, Transport};
use crate::inet::netif::{NetifId, departures};
use crate::tcp::Core;
use crate::tcp::conn::error::SockError;
use crate::tcp::conn::outbox::{Context, Routed, Unowned};
use crate::tcp::conn::{Conn, engine, reason};
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::route;

/// Most packets of a run.
const RUN_MAX: usize = BATCH_MAX;

impl Transport for Core {
    fn input(&self, at: Place, batch: &mut Batch) {
        Context::run_as_worker(self, |cx| {
            input::before(cx, at, batch);
            Chosen::batch(cx, at, &mut batch.packets);
            input::after(cx, batch);
        });
    }

    fn interface_gone(&self, netif: NetifId) {
        let mut ended: Vec<Arc<Conn>> = Vec::new();
        self.demux.each_shard(|shard| {
            ended.extend(shard.conns().filter(|conn| conn.via.last().netif() == netif).cloned());
        });
        Context::run_as_worker(self, |cx| {
            for conn in &ended {
                conn.set_error(SockError::NetDown);
                engine::notify(cx, conn, reason::ABORT);
            }
        });
    }
}

/// Handles all of `packets`, in order within each flow.
pub(crate) fn in_runs(cx: &mut Context<'_>, at: Place, packets: &mut Vec<Packet>) {
    runs(cx, at, packets, RUN_MAX, |cx| departures::depart(cx));
}

/// Each run of at most `run_max` packets is brought to its connection, and `after` it come the effects that need not wait for
/// the others.
pub(crate) fn runs(
    cx: &mut Context<'_>,
    at: Place,
    packets: &mut Vec<Packet>,
    run_max: usize,
    after: impl Fn(&mut Context<'_>),
) {
    let mut packets = packets.drain(..).peekable();
    cx.drain("segment input", |cx| {
        while let Some(first) = packets.next() {
            let Some(conn) = lookup(cx, &first) else {
                route(cx, first);
                continue;
            };
            conn.input_at.store(at);
            let mut left = run_max - 1;
            let next = || {
                let packet = packets.next_if(|packet| left > 0 && packet.to == conn.tuple)?;
                left -= 1;
                Some(packet)
            };
            if Chosen::input(cx, &conn, first, next) {
                cx.settle();
            }
            after(cx);
        }
    });
}

/// The connection that a packet is for.
pub(crate) fn lookup(cx: &Context<'_>, packet: &Packet) -> Option<Arc<Conn>> {
    let hash = packet.to.hash(&cx.core.key);
    cx.core.demux.shard(hash).conn(hash, &packet.to).cloned()
}

/// A packet without a connection: a handshake or a stray.
pub(crate) fn route(cx: &mut Context<'_>, packet: Packet) {
    let Packet { to, header, payload } = packet;
    route::deliver(cx, Routed { from: None, to, header, payload, unowned: Unowned::default() });
}
