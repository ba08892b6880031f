//! A segment whose receiver is not known yet: from its 4-tuple to whatever answers for it.
//!
//! Runs outside every perimeter. The order of the questions is RFC 9293's: is there a connection
//! (section 3.10.7.4), one in TIME-WAIT, a half-open one, a listener (3.10.7.2), nothing (3.10.7.1)?
//! This is where a connection learns who its peer is, so its data segments do not come here.

use sockeye_proto::tcp::accepted::Accepted;
use sockeye_proto::tcp::closed::{self, ListenAction};
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::{Flags, Header, Payload};
use sockeye_proto::tcp::syncache::{AckOutcome, InitialNumbers, RstOutcome};
use sockeye_proto::tcp::time_wait::TimeWaitAction;
use sockeye_sync::facade::{Arc, Ordering};

use crate::base::addr::FourTuple;
use crate::base::payload::Data;
use crate::conn::outbox::{Context, Routed};
use crate::conn::{Birth, Conn, Home, SocketOptions, Work, engine, sockbuf};
use crate::demux::{Demux, Shard};
use crate::input::count;
use crate::listen::Listener;
use crate::listeners::Replica;
use crate::netif::output;
use crate::netif::table::Via;
use crate::stack::counter;

/// Brings the segment to whoever answers for it, here or outside.
pub(crate) fn route(cx: &mut Context<'_>, segment: Routed) {
    let core = cx.core;
    match core.netifs.via(segment.to.local.addr) {
        Some(Via::LOOPBACK) => {
            if let Some(segment) = core.loopback.carry(core, segment) {
                deliver(cx, segment);
            }
        }
        Some(via) => output::send(cx, via, &segment.to.reversed(), &segment.header, segment.payload),
        None => core.input.count(count::UNSENDABLE, 1),
    }
}

/// Finds out who answers for a segment that has arrived, and lets him.
pub(crate) fn deliver(cx: &mut Context<'_>, segment: Routed) {
    let core = cx.core;
    let (tuple, header) = (segment.to, segment.header);
    let hash = tuple.hash(&core.key);
    // A listener is looked up before the shard is locked: the bind table ranks above it.
    let is_syn = closed::listen(&header) == ListenAction::Syn;
    let listener = if is_syn { core.ports.listener(&tuple.local, hash, cx.cpu) } else { None };
    let mut shard = core.demux.shard(hash);
    if let Some(conn) = shard.conn(hash, &tuple).cloned() {
        drop(shard);
        acquaint(segment.from.as_ref(), &conn);
        engine::enter(cx, &conn, Work::Segment(header, segment.payload));
        return;
    }
    let mut iss = None;
    if let Some(record) = shard.resting_mut(hash, &tuple) {
        match record.on_segment(&header, segment.payload.len(), cx.now) {
            TimeWaitAction::Ignore => return,
            TimeWaitAction::Ack(ack) => return answer(cx, tuple, ack),
            TimeWaitAction::Reopen { iss_floor } => {
                if listener.is_none() {
                    let ack = record.ack(cx.now);
                    return answer(cx, tuple, ack);
                }
                iss = Some(iss_floor);
                shard.wake_resting(hash, &tuple);
                core.ports.conn_left(tuple.local.port);
            }
            TimeWaitAction::Closed => {
                shard.wake_resting(hash, &tuple);
                core.ports.conn_left(tuple.local.port);
            }
        }
    }
    match listener {
        Some(listener) => {
            let isn = core.isn(&tuple, cx.now);
            let iss = iss.map_or(isn, |floor| isn.max(floor));
            on_syn(cx, &mut shard, hash, tuple, &header, &listener, iss);
        }
        None => third_segment(cx, shard, hash, segment),
    }
}

/// Two ends in one process remember each other.
fn acquaint(from: Option<&Arc<Conn>>, to: &Arc<Conn>) {
    let Some(from) = from else { return };
    // Set once each; that somebody else was first is fine, it was the same connection.
    let _ = from.peer.set(Arc::downgrade(to));
    let _ = to.peer.set(Arc::downgrade(from));
}

fn answer(cx: &mut Context<'_>, receiver: FourTuple, header: Header) {
    cx.core.count(counter::SEGMENTS_OUT);
    let to = receiver.reversed();
    cx.outbox.routed.push_back(Routed { from: None, to, header, payload: Data::default() });
}

/// A SYN for a listener: half-open from here on.
fn on_syn(
    cx: &mut Context<'_>,
    shard: &mut Shard,
    hash: u64,
    tuple: FourTuple,
    header: &Header,
    listener: &Arc<Replica>,
    iss: sockeye_proto::seq::SeqNum,
) {
    let core = cx.core;
    if listener.is_full() {
        // Linux's answer: the SYN is dropped, the client tries again in a second.
        core.count(counter::LISTEN_OVERFLOWS);
        return;
    }
    let Some(via) = core.netifs.via(tuple.remote.addr) else {
        // There is no way back: the handshake could not be answered.
        return core.input.count(count::UNSENDABLE, 1);
    };
    let params = core.listen_params(tuple.local.addr, via, listener.rcvbuf());
    let numbers = InitialNumbers { iss, ts_offset: core.ts_offset(&tuple) };
    let syn_ack = shard.half_open.on_syn(tuple, Arc::clone(listener), header, &params, numbers, cx.now);
    shard.arm(core, Demux::index(hash), cx.now);
    answer(cx, tuple, syn_ack);
}

/// No connection, no SYN: the third segment of a handshake, or a stray.
fn third_segment(
    cx: &mut Context<'_>,
    mut shard: sockeye_sync::MutexGuard<'_, Shard>,
    hash: u64,
    segment: Routed,
) {
    let (tuple, header) = (segment.to, segment.header);
    if header.flags.has(Flags::RST) {
        let outcome = shard.half_open.on_rst(&tuple, &header, cx.now);
        drop(shard);
        match outcome {
            RstOutcome::Challenge(ack) => answer(cx, tuple, ack),
            RstOutcome::Removed(_) | RstOutcome::Ignore | RstOutcome::NoEntry => {}
        }
        return;
    }
    let outcome = if header.flags.has(Flags::ACK) {
        shard.half_open.on_ack(&tuple, &header, segment.payload.len(), cx.now)
    } else {
        AckOutcome::NoEntry
    };
    match outcome {
        AckOutcome::Accept { listener, accepted } => {
            let home = segment.from.as_ref().and_then(|from| from.shared_home());
            let via = cx.core.netifs.via(tuple.remote.addr).unwrap_or(Via::LOOPBACK);
            let home = home.unwrap_or_else(|| cx.core.home(hash, via));
            let child = establish(cx, &mut shard, hash, tuple, &listener, &accepted, home);
            drop(shard);
            let Some(child) = child else { return };
            acquaint(segment.from.as_ref(), &child);
            engine::enter(cx, &child, Work::Segment(header, segment.payload));
            listener.push(child, &mut cx.outbox);
        }
        AckOutcome::Reject(reply) | AckOutcome::Challenge(reply) => answer(cx, tuple, reply),
        AckOutcome::Ignore => {}
        AckOutcome::NoEntry => {
            drop(shard);
            // A listener drops what is neither SYN nor ACK; where nobody listens it is answered.
            if closed::listen(&header) == ListenAction::Ignore
                && cx.core.ports.listener(&tuple.local, hash, cx.cpu).is_some()
            {
                return;
            }
            if let Some(reset) = closed::reset_for(&header, segment.payload.len()) {
                cx.core.count(counter::RESETS_OUT);
                answer(cx, tuple, reset);
            }
        }
    }
}

/// Makes the connection of a finished handshake, if the listener has room for it; otherwise the
/// half-open entry stays, and its SYN-ACK is repeated (Linux's answer).
fn establish(
    cx: &mut Context<'_>,
    shard: &mut Shard,
    hash: u64,
    tuple: FourTuple,
    listener: &Arc<Listener>,
    accepted: &Accepted,
    home: Home,
) -> Option<Arc<Conn>> {
    let core = cx.core;
    let via = core.netifs.via(tuple.remote.addr)?;
    if !listener.reserve() {
        core.count(counter::LISTEN_OVERFLOWS);
        return None;
    }
    if !core.demux.reserve() {
        listener.unreserve();
        return None;
    }
    let options = SocketOptions::new(listener.reuse_addr, listener.reuse_port, listener.is_v6);
    let nodelay = listener.nodelay();
    options.nodelay.store(nodelay, Ordering::Relaxed);
    let mut settings = core.tcp_settings(tuple.local.addr, via, listener.rcvbuf(), core.ts_offset(&tuple));
    settings.nodelay = nodelay;
    let pcb = Pcb::accept(&settings, accepted, cx.now);
    let mut rcv = sockbuf::RecvBuf::new(listener.rcvbuf());
    rcv.on_connected(&pcb);
    let conn = Conn::new(
        &core.conns,
        Birth {
            home,
            pcb,
            tuple,
            hash,
            serial: core.next_serial(),
            via,
            snd: sockbuf::SendBuf::new(listener.sndbuf(), true),
            rcv,
            options,
            rx_free: core.config.rx_free,
        },
    );
    shard.half_open.remove(&tuple);
    shard.insert(Arc::clone(&conn));
    core.ports.conn_joined(tuple.local.port);
    core.count(counter::PASSIVE_OPENS);
    Some(conn)
}
