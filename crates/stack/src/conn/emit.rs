//! Where a segment of a connection goes: to its receiver in this process, to a device, or to whoever a lookup finds.
//!
//! Called inside the sender's perimeter: what has to be run or woken for it goes into the outbox, in order. Must not know
//! why the segment is sent. Tests: the socket layer's.

use sockeye_proto::tcp::segment::{Flags, Head, Header};
use sockeye_sync::Filled;
use sockeye_sync::facade::Arc;

use super::outbox::{Context, Routed};
use super::{Conn, Work};
use crate::base::payload::Data;
use crate::netif::output;
use crate::stack::counter;

/// Sends one segment without payload.
pub(super) fn emit_bare(cx: &mut Context<'_>, conn: &Arc<Conn>, header: Header) {
    emit(cx, conn, header.into(), Data::default(), 0);
}

/// Sends one segment: into the queue of a receiver that is known; as a frame, if it leaves the stack; else by
/// lookup after leaving. `mss` is what a device is to cut it into.
pub(super) fn emit(cx: &mut Context<'_>, conn: &Arc<Conn>, head: Head, payload: Data, mss: u16) {
    cx.core.count(counter::SEGMENTS_OUT);
    if head.flags().has(Flags::RST) {
        cx.core.count(counter::RESETS_OUT);
    }
    if !cx.core.loopback.encodes()
        && let Some(peer) = cx.other_end(conn)
    {
        let work = Work::segment(head, payload);
        // Free: it is ours from here on, and is run once we have left our own. The segment needs no queue then.
        if let Some(claim) = peer.perimeter().claim() {
            return cx.claimed(peer, claim, work);
        }
        match peer.perimeter().fill(Conn::item(&peer, work)) {
            // It was left in between: ours to run all the same.
            Filled::WakeWorker => cx.outbox.filled.push_back(Arc::clone(&peer)),
            Filled::Queued => cx.core.count(counter::QUEUED),
            Filled::Poisoned => cx.core.count(counter::SEGMENTS_LOST),
        }
        return;
    }
    let header = Header::from(head);
    if conn.via.last().is_wire() {
        return output::push(cx, conn, &header, payload, mss);
    }
    let to = conn.tuple.reversed();
    cx.outbox.routed.push_back(Routed { from: Some(Arc::clone(conn)), to, header, payload });
}
