//! Passive opens: from a SYN that a listener is asked for to a connection in its accept queue.
//!
//! Most handshakes are an entry of the shard's SYN cache until their third segment comes. Where the cache is full, or
//! [`SynCookies`] says so, the answer carries a cookie and nothing is remembered: what comes back is held against the
//! cookie then. Either way a finished handshake is an [`Accepted`], from which [`establish`] makes the connection.
//!
//! Runs outside every perimeter; of the tables, the connection's shard is locked while handshake and connection are
//! exchanged for each other, so that there is never both. Tests: `tests/suite/limits.rs`, `tests/syn_flood.rs`.

use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::accepted::Accepted;
use sockeye_proto::tcp::closed::{self, ListenAction};
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::{Flags, Header, Payload};
use sockeye_proto::tcp::syncache::{AckOutcome, InitialNumbers, RstOutcome};
use sockeye_sync::MutexGuard;
use sockeye_sync::facade::Arc;

use crate::base::addr::FourTuple;
use crate::config::SynCookies;
use crate::conn::birth::{self, Name};
use crate::conn::outbox::{Context, Routed};
use crate::conn::{Conn, Home, Work, engine};
use crate::demux::{Demux, Shard};
use crate::input::count;
use crate::listen::Listener;
use crate::listeners::Replica;
use crate::netif::table::Via;
use crate::route::{acquaint, answer};
use crate::stack::counter;

/// A SYN for a listener. `iss_floor` is set if it reopens a name in TIME-WAIT.
pub(crate) fn on_syn(
    cx: &mut Context<'_>,
    shard: &mut Shard,
    hash: u64,
    segment: &Routed,
    listener: &Arc<Replica>,
    iss_floor: Option<SeqNum>,
) {
    let core = cx.core;
    let (tuple, header) = (segment.to, &segment.header);
    if listener.is_full() {
        // Linux's answer: the SYN is dropped, the client tries again in a second.
        core.count(counter::LISTEN_OVERFLOWS);
        return;
    }
    let Some(via) = core.netifs.via(tuple.remote.addr) else {
        // There is no way back: the handshake could not be answered.
        return core.input.count(count::UNSENDABLE, 1);
    };
    let params = core.listen_params(tuple.local.addr, via, listener.settings.rcvbuf);
    // A cookie is a number that we do not choose: where the name's last life asks for a later one, it cannot serve.
    if iss_floor.is_none() && wants_cookie(core.config.syn_cookies, shard, &tuple) {
        shard.half_open.note_cookie(cx.now);
        core.count(counter::SYNCOOKIES_SENT);
        let syn_ack = core.cookie(&tuple, header, &params, cx.now);
        return answer(cx, tuple, syn_ack);
    }
    let isn = core.isn(&tuple, cx.now);
    let iss = iss_floor.map_or(isn, |floor| isn.max(floor));
    let numbers = InitialNumbers { iss, ts_offset: core.ts_offset(&tuple) };
    let reply = shard.half_open.on_syn(tuple, Arc::clone(listener), header, &params, numbers, cx.now);
    shard.arm(core, Demux::index(hash), cx.now);
    if let Some(reply) = reply {
        answer(cx, tuple, reply);
    }
}

/// Whether a new handshake is to be remembered by the peer instead of by us.
fn wants_cookie(setting: SynCookies, shard: &Shard, tuple: &FourTuple) -> bool {
    match setting {
        SynCookies::Off => false,
        SynCookies::Pressure => shard.half_open.is_full() && shard.half_open.is_new(tuple),
        SynCookies::Always => shard.half_open.is_new(tuple),
    }
}

/// No connection, no SYN: the third segment of a handshake, or a stray.
pub(crate) fn third_segment(
    cx: &mut Context<'_>,
    mut shard: MutexGuard<'_, Shard>,
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
            complete(cx, shard, hash, segment, &listener, &accepted);
        }
        AckOutcome::Reject(reply) | AckOutcome::Challenge(reply) => answer(cx, tuple, reply),
        AckOutcome::Ignore => {}
        AckOutcome::NoEntry => {
            let may_be_cookie = header.flags.has(Flags::ACK) && shard.half_open.expects_cookies(cx.now);
            drop(shard);
            stray(cx, hash, segment, may_be_cookie);
        }
    }
}

/// A segment that nothing in the tables answers for: it brings a cookie back, or it is a stray.
fn stray(cx: &mut Context<'_>, hash: u64, segment: Routed, may_be_cookie: bool) {
    let core = cx.core;
    let (tuple, header) = (segment.to, segment.header);
    let is_ignored = closed::listen(&header) == ListenAction::Ignore;
    if may_be_cookie || is_ignored {
        // The listener is looked up before the shard is locked: the bind table ranks above it.
        let listener = core.ports.listener(&tuple.local, hash, cx.cpu);
        match listener {
            // A listener drops what is neither SYN nor ACK; where nobody listens it is answered.
            Some(_) if is_ignored => return,
            Some(listener) => {
                if let Some(accepted) = bring_back(cx, &tuple, &header, &listener) {
                    return resurrect(cx, hash, segment, &listener, &accepted);
                }
            }
            None => {}
        }
    }
    if let Some(reset) = closed::reset_for(&header, segment.payload.len()) {
        core.count(counter::RESETS_OUT);
        answer(cx, tuple, reset);
    }
}

/// What the cookie in an acknowledgment says, if it is one of ours and still good.
fn bring_back(cx: &Context<'_>, tuple: &FourTuple, header: &Header, listener: &Listener) -> Option<Accepted> {
    let core = cx.core;
    let via = core.netifs.via(tuple.remote.addr)?;
    let params = core.listen_params(tuple.local.addr, via, listener.settings.rcvbuf);
    let accepted = core.check_cookie(tuple, header, &params, cx.now);
    core.count(if accepted.is_some() { counter::SYNCOOKIES_RECV } else { counter::SYNCOOKIES_FAILED });
    accepted
}

/// The cookie was good: makes the connection, unless somebody has done so while the shard was not locked.
fn resurrect(cx: &mut Context<'_>, hash: u64, segment: Routed, listener: &Arc<Replica>, accepted: &Accepted) {
    let shard = cx.core.demux.shard(hash);
    if let Some(conn) = shard.conn(hash, &segment.to).cloned() {
        drop(shard);
        return engine::enter(cx, &conn, Work::Segment(segment.header, segment.payload));
    }
    complete(cx, shard, hash, segment, listener, accepted);
}

/// The handshake is over: makes the connection, feeds it the segment, and queues it to be accepted.
fn complete(
    cx: &mut Context<'_>,
    mut shard: MutexGuard<'_, Shard>,
    hash: u64,
    segment: Routed,
    listener: &Arc<Replica>,
    accepted: &Accepted,
) {
    let tuple = segment.to;
    let via = cx.core.netifs.via(tuple.remote.addr).unwrap_or(Via::LOOPBACK);
    let home = segment.from.as_ref().and_then(|from| from.shared_home());
    let home = home.unwrap_or_else(|| cx.core.home(hash, via));
    let child = establish(cx, &mut shard, Name { tuple, hash, via }, listener, accepted, home);
    drop(shard);
    let Some(child) = child else { return };
    acquaint(segment.from.as_ref(), &child);
    engine::enter(cx, &child, Work::Segment(segment.header, segment.payload));
    listener.push(child, &mut cx.outbox);
}

/// Makes the connection of a finished handshake, if the listener has room for it; otherwise the half-open entry stays,
/// and its SYN-ACK is repeated (Linux's answer); what a cookie began is as good as lost.
fn establish(
    cx: &mut Context<'_>,
    shard: &mut Shard,
    name: Name,
    listener: &Arc<Listener>,
    accepted: &Accepted,
    home: Home,
) -> Option<Arc<Conn>> {
    let core = cx.core;
    let tuple = name.tuple;
    core.netifs.via(tuple.remote.addr)?;
    if !listener.reserve() {
        core.count(counter::LISTEN_OVERFLOWS);
        return None;
    }
    if !core.demux.reserve() {
        listener.unreserve();
        return None;
    }
    let settings = birth::tcp_settings(core, &name, &listener.settings, core.ts_offset(&tuple));
    let pcb = Pcb::accept(&settings, accepted, cx.now);
    let conn = birth::make(core, name, home, pcb, &listener.settings, listener.is_v6);
    shard.half_open.remove(&tuple);
    shard.insert(Arc::clone(&conn));
    core.ports.conn_joined(tuple.local.port);
    core.count(counter::PASSIVE_OPENS);
    Some(conn)
}
