//! Passive opens: from a SYN that a listener is asked for to a connection in its accept queue.
//!
//! Most handshakes are an entry of the shard's SYN cache until their third segment comes. Where the cache is full, or
//! [`SynCookies`] says so, the answer carries a cookie and no state is kept: the acknowledgment is then checked
//! against the cookie. Either way a finished handshake is an [`Accepted`], from which [`establish`] makes the
//! connection.
//!
//! Runs with no socket lock held; of the tables, the connection's shard is locked while handshake and connection are
//! exchanged for each other, so that there is never both. Tests: `tests/suite/limits.rs`, `tests/tcp/syn_flood.rs`.

use sockeye_proto::icmp::Error;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::accepted::Accepted;
use sockeye_proto::tcp::closed::{self, ListenAction};
use sockeye_proto::tcp::fast_open::Cookie;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::{Flags, Header, Payload};
use sockeye_proto::tcp::settings::Settings;
use sockeye_proto::tcp::syncache::{self, AckOutcome, InitialNumbers, RstOutcome};
use sockeye_sync::MutexGuard;
use sockeye_sync::facade::{Arc, Ordering};

use crate::base::addr::FourTuple;
use crate::base::payload::Data;
use crate::config::SynCookies;
use crate::inet::input::count;
use crate::rt::counter;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};
use crate::tcp::Core;
use crate::tcp::conn::init::{self, Name};
use crate::tcp::conn::outbox::{Context, Routed, Unowned};
use crate::tcp::conn::undelivered::ends_handshake;
use crate::tcp::conn::{Conn, Work, engine, reason};
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::handshake::fastopen::{self, Place};
use crate::tcp::handshake::listen::{Child, Listener};
use crate::tcp::handshake::values;
use crate::tcp::route::{acquaint, answer, answer_by};
use crate::tcp::tables::demux::{Demux, HalfOpen, Shard};
use crate::tcp::tables::listeners::Replica;

/// A SYN for a listener. `iss_floor` is set if it reopens a name in TIME-WAIT.
pub(crate) fn on_syn(
    cx: &mut Context<'_>,
    mut shard: MutexGuard<'_, Shard>,
    hash: u64,
    segment: Routed,
    listener: &Arc<Replica>,
    iss_floor: Option<SeqNum>,
) {
    let core = cx.core;
    let (tuple, header) = (segment.to, segment.header);
    if listener.is_full() {
        // Linux's answer: the SYN is dropped, the client tries again in a second.
        core.count(counter::LISTEN_OVERFLOWS);
        return;
    }
    let Some(via) = core.netifs.via_from(tuple.local.addr, tuple.remote.addr) else {
        // There is no way back: the handshake could not be answered.
        return core.input.count(count::UNSENDABLE, 1);
    };
    let params = core.listen_params(tuple.local.addr, via, &listener.child_settings());
    // A cookie is a number that we do not choose: where the name's last life asks for a later one, it cannot serve.
    // Nor is there room in it for what the application sends along.
    if iss_floor.is_none()
        && !listener.carries()
        && wants_cookie(core.tcp_config().syn_cookies, &shard, &tuple)
    {
        shard.half_open.note_cookie(cx.now);
        core.count(counter::SYNCOOKIES_SENT);
        let syn_ack = core.cookie(&tuple, listener, &header, &params, cx.now);
        let unowned = Unowned { tos_ttl: listener.tos_ttl(), rehashes: 0 };
        return answer_by(cx, tuple, syn_ack, unowned);
    }
    let isn = core.isn(&tuple, cx.now);
    let iss = iss_floor.map_or(isn, |floor| isn.max(floor));
    let numbers = InitialNumbers { iss, ts_offset: core.ts_offset(&tuple) };
    let offered = match fast_open(cx, &shard, &segment, listener) {
        FastOpen::No => None,
        FastOpen::Offer(cookie) => cookie,
        FastOpen::Take(cookie) => {
            let accepted = syncache::accepted_at_syn(&header, &params, numbers, cx.now);
            return open_early(cx, shard, Name { tuple, hash, via }, segment, listener, &accepted, cookie);
        }
    };
    let now = cx.now;
    let reply = handshake(cx, &mut shard, &tuple, |half_open| {
        let reply = half_open.on_syn(tuple, Arc::clone(listener), &header, &params, numbers, now);
        // IPv4 has no flow label.
        let is_labelled = tuple.local.addr.is_ipv6();
        reply.map(|reply| (reply, if is_labelled { half_open.rehashes(&tuple) } else { 0 }))
    });
    shard.arm(core, Demux::index(hash), cx.now);
    if let Some((mut reply, rehashes)) = reply.flatten() {
        reply.options.fast_open = offered;
        // A challenge ACK is sent with the defaults, as for segments other than SYNs.
        let is_syn_ack = reply.flags.has(Flags::SYN);
        let tos_ttl = if is_syn_ack { listener.tos_ttl() } else { Unowned::default().tos_ttl };
        answer_by(cx, tuple, reply, Unowned { tos_ttl, rehashes });
    }
}

/// Treatment of Fast Open at a SYN.
enum FastOpen {
    /// Nothing.
    No,
    /// The SYN-ACK carries this cookie.
    Offer(Option<Cookie>),
    /// The connection is made now, and a place in the listener's queue is taken. The client gets this cookie, if any.
    Take(Option<Cookie>),
}

/// Decides as RFC 7413 section 4.2 says. A listener that has no place answers no request for a cookie either, as on Linux.
fn fast_open(cx: &Context<'_>, shard: &Shard, segment: &Routed, listener: &Listener) -> FastOpen {
    let (core, queue) = (cx.core, &listener.fast_open);
    let asked = segment.header.options.fast_open;
    if asked.is_none() && segment.payload.is_empty() {
        return FastOpen::No;
    }
    let bits = core.tcp_config().fastopen;
    if asked.is_some_and(|cookie| cookie.is_request()) {
        core.count(counter::FASTOPEN_COOKIE_REQD);
    }
    if bits & fastopen::SERVER == 0 || queue.len_max() == 0 || !shard.half_open.is_new(&segment.to) {
        return FastOpen::No;
    }
    if !queue.has_room(cx.now) {
        core.count(counter::FASTOPEN_LISTEN_OVERFLOWS);
        return FastOpen::No;
    }
    // Relaxed: an option, which orders nothing.
    let needs_none = bits & fastopen::SERVER_WITHOUT_COOKIE != 0 || queue.no_cookie.load(Ordering::Relaxed);
    let new = match asked {
        _ if needs_none => None,
        None => return FastOpen::No,
        Some(asked) => match judge_cookie(core, listener, segment, asked) {
            Ok(new) => new,
            Err(offered) => return FastOpen::Offer(offered),
        },
    };
    if queue.reserve(cx.now) { FastOpen::Take(new) } else { FastOpen::No }
}

/// Whether the cookie is good; then a new one if the client should have that, else the right one for the SYN-ACK. Both in the
/// option in which the client asked.
fn judge_cookie(
    core: &Core,
    listener: &Listener,
    segment: &Routed,
    asked: Cookie,
) -> Result<Option<Cookie>, Option<Cookie>> {
    let (local, client) = (segment.to.local.addr, segment.to.remote.addr);
    let like_asked = |cookie: Cookie| if asked.is_experimental() { cookie.experimental() } else { cookie };
    let Some(keys) = listener.fast_open.keys.keys().or_else(|| core.fast_open_keys.keys()) else {
        return Err(None);
    };
    let offered = || Err(keys.cookie(local, client).map(like_asked));
    if asked.is_request() {
        return offered();
    }
    match keys.check(&asked, local, client) {
        Some(new) => Ok(new.map(like_asked)),
        None => {
            core.count(counter::FASTOPEN_PASSIVE_FAIL);
            offered()
        }
    }
}

/// Makes the connection at its SYN, with the SYN's text in `so_rcv`, and queues it to be accepted.
fn open_early(
    cx: &mut Context<'_>,
    mut shard: MutexGuard<'_, Shard>,
    name: Name,
    segment: Routed,
    listener: &Arc<Replica>,
    accepted: &Accepted,
    cookie: Option<Cookie>,
) {
    let core = cx.core;
    let place = Place::new(listener);
    let discipline = Chosen::of_conn(core, name.hash, name.via, segment.from.as_deref());
    let mut text = segment.payload;
    text.truncate(accepted.rcv_wnd.min(listener.settings.rcvbuf) as usize);
    let len = u32::try_from(text.len()).unwrap_or(0);
    let now = cx.now;
    // One more than of an ordinary SYN-ACK, as on Linux: the text is lost with the connection.
    let retries = listener.patience(core.tcp_config().synack_retries.saturating_add(1)).retries;
    let make = |settings: &Settings| {
        let settings = Settings { syn_retries: retries, ..settings.clone() };
        Pcb::accept_fast_open(&settings, accepted, len, cookie, now)
    };
    let Some(child) = establish(cx, &mut shard, name, listener, discipline, make) else {
        return place.give_back(None);
    };
    {
        let mut so = child.so.lock();
        so.rcv.chain = text.0;
        so.fast_open = Some(place);
    }
    drop(shard);
    core.count(counter::FASTOPEN_PASSIVE);
    acquaint(segment.from.as_ref(), &child);
    engine::notify(cx, &child, reason::OUTPUT);
    listener.push(Child { conn: child, value: listener.take_value() }, cx);
}

/// Whether a new handshake is to be remembered by the peer instead of by us.
fn wants_cookie(setting: SynCookies, shard: &Shard, tuple: &FourTuple) -> bool {
    match setting {
        SynCookies::Off => false,
        SynCookies::Pressure => shard.half_open.is_full() && shard.half_open.is_new(tuple),
        SynCookies::Always => shard.half_open.is_new(tuple),
    }
}

/// The network reports that a segment with sequence number `seq` of a name without a connection did not arrive. If it is the SYN-ACK of a
/// handshake and the report says that there is no way, the handshake is over; the client's acknowledgment, should it come, is a stray.
pub(crate) fn undelivered(
    cx: &mut Context<'_>,
    mut shard: MutexGuard<'_, Shard>,
    tuple: &FourTuple,
    seq: SeqNum,
    error: Error,
) {
    if ends_handshake(error, tuple.local.addr.is_ipv4()) {
        let gone = handshake(cx, &mut shard, tuple, |half_open| half_open.on_unreachable(tuple, seq));
        drop(shard);
        drop(gone);
        values::bury(cx);
    }
}

/// No connection, no SYN: the third segment of a handshake, or a stray.
pub(crate) fn third_segment(
    cx: &mut Context<'_>,
    mut shard: MutexGuard<'_, Shard>,
    hash: u64,
    segment: Routed,
) {
    let (tuple, header, now) = (segment.to, segment.header, cx.now);
    if header.flags.has(Flags::RST) {
        let outcome = handshake(cx, &mut shard, &tuple, |half_open| {
            (half_open.on_rst(&tuple, &header, now), half_open.rehashes(&tuple))
        });
        drop(shard);
        match outcome {
            Some((RstOutcome::Challenge(ack), rehashes)) => challenge(cx, tuple, ack, rehashes),
            Some((RstOutcome::Removed(_) | RstOutcome::Ignore | RstOutcome::NoEntry, _)) | None => {}
        }
        return;
    }
    let len = segment.payload.len();
    let core = cx.core;
    let outcome = handshake(cx, &mut shard, &tuple, |half_open| {
        half_open
            .on_ack(&tuple, &header, len, now, |listener| listener.patience(core.tcp_config().synack_retries))
    });
    let Some(outcome) = outcome else { return };
    match outcome {
        AckOutcome::Accept { listener, accepted } => {
            complete(cx, shard, hash, segment, &listener, &accepted);
        }
        AckOutcome::Challenge(reply) => challenge(cx, tuple, reply, shard.half_open.rehashes(&tuple)),
        AckOutcome::Reject(reply) => answer(cx, tuple, reply),
        AckOutcome::Ignore => {}
        AckOutcome::NoEntry => {
            let may_be_cookie = header.flags.has(Flags::ACK) && shard.half_open.expects_cookies(cx.now);
            drop(shard);
            stray(cx, hash, segment, may_be_cookie);
        }
    }
}

/// Sends the challenge ACK of a handshake by the path of its latest SYN-ACK.
fn challenge(cx: &mut Context<'_>, tuple: FourTuple, ack: Header, rehashes: u8) {
    answer_by(cx, tuple, ack, Unowned { rehashes, ..Unowned::default() });
}

/// Has the SYN cache do something about the handshake of `tuple`. If that panics the handshake is forgotten, and the segment
/// dropped.
#[inline]
fn handshake<R>(
    cx: &mut Context<'_>,
    shard: &mut Shard,
    tuple: &FourTuple,
    step: impl FnOnce(&mut HalfOpen) -> R,
) -> Option<R> {
    let stepped = panics::catch(PanicSource::Protocol, "a handshake", || {
        let result = step(&mut shard.half_open);
        failpoints::hit(Point::Handshake, u64::from(tuple.local.port));
        result
    });
    match stepped {
        Ok(result) => Some(result),
        Err(caught) => {
            cx.due.caught.push(caught);
            give_up(cx, shard, tuple);
            None
        }
    }
}

/// Forgets a handshake over which the SYN cache, or a later step, has panicked.
#[cold]
fn give_up(cx: &mut Context<'_>, shard: &mut Shard, tuple: &FourTuple) {
    let forgot = panics::catch(PanicSource::Protocol, "a handshake", || drop(shard.half_open.remove(tuple)));
    cx.due.caught.extend(forgot.err());
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
            // A listener drops a segment that is neither SYN nor ACK; without a listener it is answered.
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

/// The content of the cookie in an acknowledgment, if it is one of ours and still good.
fn bring_back(cx: &Context<'_>, tuple: &FourTuple, header: &Header, listener: &Listener) -> Option<Accepted> {
    let core = cx.core;
    let via = core.netifs.via_from(tuple.local.addr, tuple.remote.addr)?;
    let params = core.listen_params(tuple.local.addr, via, &listener.child_settings());
    let accepted = core.check_cookie(tuple, listener, header, &params, cx.now);
    core.count(if accepted.is_some() { counter::SYNCOOKIES_RECV } else { counter::SYNCOOKIES_FAILED });
    accepted
}

/// The cookie was good: makes the connection, unless another thread has done so while the shard was not locked.
fn resurrect(cx: &mut Context<'_>, hash: u64, segment: Routed, listener: &Arc<Replica>, accepted: &Accepted) {
    let shard = cx.core.demux.shard(hash);
    if let Some(conn) = shard.conn(hash, &segment.to).cloned() {
        drop(shard);
        return Chosen::enter(cx, &conn, Work::segment(segment.header.into(), segment.payload));
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
    let Some(via) = cx.core.netifs.via_from(tuple.local.addr, tuple.remote.addr) else { return };
    let discipline = Chosen::of_conn(cx.core, hash, via, segment.from.as_deref());
    let now = cx.now;
    let make = |settings: &Settings| Pcb::accept(settings, accepted, now);
    let child = establish(cx, &mut shard, Name { tuple, hash, via }, listener, discipline, make);
    let aborts = child.is_none() && cx.core.tcp_config().abort_on_overflow;
    if aborts {
        let _listener = shard.half_open.remove(&tuple);
    }
    drop(shard);
    let Some(child) = child else {
        if aborts {
            let reset = closed::reset_for(&segment.header, segment.payload.len());
            reset.into_iter().for_each(|reset| answer(cx, tuple, reset));
        }
        return;
    };
    // The SYN-ACK that has arrived took this path.
    child.options.path.rehash(cx.core.rehashes(accepted.rehashes));
    acquaint(segment.from.as_ref(), &child);
    Chosen::enter(cx, &child, Work::segment(segment.header.into(), segment.payload));
    listener.push(Child { conn: child, value: listener.take_value() }, cx);
}

/// Makes a connection, if the listener has room for it; otherwise the half-open entry stays, and its SYN-ACK is
/// repeated (Linux's answer); a connection from a cookie is as good as lost.
fn establish(
    cx: &mut Context<'_>,
    shard: &mut Shard,
    name: Name,
    listener: &Arc<Listener>,
    discipline: <Chosen as Discipline>::OfConn,
    make: impl FnOnce(&Settings) -> Pcb<Data>,
) -> Option<Arc<Conn>> {
    let (core, tuple) = (cx.core, name.tuple);
    if !listener.reserve() {
        core.count(counter::LISTEN_OVERFLOWS);
        return None;
    }
    if !core.demux.reserve() {
        listener.unreserve();
        return None;
    }
    let made = panics::catch(PanicSource::Protocol, "a connection in the making", || {
        let child = listener.child_settings();
        let settings = init::tcp_settings(core, &name, &child, core.ts_offset(&tuple));
        let conn =
            init::make(core, name, discipline, (make(&settings), &settings), &child, listener.is_mapped);
        shard.half_open.remove(&tuple);
        failpoints::hit(Point::Establish, u64::from(tuple.local.port));
        core.ports.note_conn(tuple.local.port);
        // Last: from here on the connection stands for both reservations.
        shard.insert(Arc::clone(&conn));
        conn
    });
    match made {
        Ok(conn) => {
            core.count(counter::PASSIVE_OPENS);
            Some(conn)
        }
        Err(caught) => {
            cx.due.caught.push(caught);
            core.demux.unreserve();
            listener.unreserve();
            give_up(cx, shard, &tuple);
            None
        }
    }
}
