//! Where a segment of a connection goes: to its receiver in this process, to a device, or to whoever a lookup finds.
//!
//! Called inside the sender's perimeter: what has to be run or woken for it goes into the outbox, in order. Must not know
//! why the segment is sent. Tests: the socket layer's.

use sockeye_proto::tcp::segment::{Flags, Head, Header};
use sockeye_sync::Filled;
use sockeye_sync::facade::{Arc, Ordering};

use super::outbox::{Context, OtherEnd, Routed, Wake};
use super::visit::{self, Call};
use super::{Conn, Work};
use crate::base::payload::Data;
use crate::inet::netif::output;
use crate::stack::counter;

/// Text of a segment that may be left with a reader who waits. With more, what the reader copies costs so much more than to run
/// the segment that the two are better done side by side.
pub(super) const HOSTED_MAX: usize = 4096;

/// Leaves a segment for `peer` beside a claim, or in the queue of whoever is inside.
fn leave_to<'s>(cx: &mut Context<'s>, peer: OtherEnd<'s>, work: Work) {
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
}

/// Leaves a segment with the reader who waits for what comes (`user.rs`, `wait_hosting`), or as any other if he does not any
/// more.
fn leave_with_host<'s>(cx: &mut Context<'s>, peer: OtherEnd<'s>, work: Work) {
    if let Err(item) = peer.perimeter().fill_hosted(Conn::item(&peer, work)) {
        return leave_to(cx, peer, item.work);
    }
    cx.core.count(counter::HOSTED);
    // Relaxed: a hint. The line is ours anyway.
    peer.filled_from.store(cx.cpu as u8, Ordering::Relaxed);
    if peer.rcv_wait.nudge().is_wake_owed() {
        cx.outbox.wakes.push(Wake::Reader(Arc::clone(&peer)));
    }
}

/// Sends one segment without payload.
pub(super) fn emit_bare(cx: &mut Context<'_>, conn: &Arc<Conn>, header: Header) {
    emit(cx, conn, &mut header.into(), &mut Data::default(), 0);
}

/// Sends one segment: into the queue of a receiver that is known; as a frame, if it leaves the stack; else by
/// lookup after leaving. `mss` is what a device is to cut it into. Head and payload are taken, where they go: a copy right after
/// they were made waits until the stores that made them are through.
pub(super) fn emit(cx: &mut Context<'_>, conn: &Arc<Conn>, head: &mut Head, payload: &mut Data, mss: u16) {
    cx.core.count(counter::SEGMENTS_OUT);
    if head.flags().has(Flags::RST) {
        cx.core.count(counter::RESETS_OUT);
    }
    if !cx.core.loopback.encodes()
        && let Some(peer) = cx.other_end(conn)
    {
        // A segment without text brings a reader nothing: its end's writer waits for it, if anybody does.
        let text_len = payload.0.len();
        let is_for_readers = (1..=HOSTED_MAX).contains(&text_len);
        // A reader who waits on another core runs it there.
        if cx.hosts
            && is_for_readers
            && let Some(cpu) = peer.perimeter().hosted_on()
            && cpu != cx.cpu
        {
            return leave_with_host(cx, peer, Work::take_segment(head, payload));
        }
        // With nobody inside it is run on a call, and no perimeter is entered.
        if let Some((conn, so)) = visit::call(cx, &peer, text_len) {
            cx.call = Some(Call { conn, so, work: Work::take_segment(head, payload) });
            return;
        }
        return leave_to(cx, peer, Work::take_segment(head, payload));
    }
    let (header, payload) = match head.take_parts() {
        Ok(plain) => (Header::from(plain), std::mem::take(payload)),
        Err(full) => (*full, std::mem::take(payload)),
    };
    if conn.via.last().is_wire() {
        return output::push(cx, conn, &header, payload, mss);
    }
    let to = conn.tuple.reversed();
    cx.outbox.routed.push_back(Routed { from: Some(Arc::clone(conn)), to, header, payload });
}
