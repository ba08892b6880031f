//! Segments from an interface, run by run: the way of input threads to a connection's lock.
//!
//! The lock is taken once for a run and let go by the one way out ([`serve::let_go`]); between the two only
//! this one is held. It is held for at most [`HOLD_MAX`] segments (or some [`HOLD_BYTES_MAX`]
//! bytes) at a time, since the
//! connection's reader and writer wait for it and are let in between, and each such part ends with one output: one acknowledgment for all
//! of it. If the lock is held, the segments go into its backlog one by one, in their order.
//!
//! Under a hold, segments that continue one another are one step of the protocol (`proto/src/tcp/gro.rs`, `TcpConfig::gro`):
//! their text goes to `so_rcv` as it comes, and the pcb hears of them once. Which segments join is decided
//! here and not as frames are parsed, since only the pcb knows whether a segment is the expected one; any other is its own
//! step.
//!
//! The states and the reason why nothing is stranded are those of the lock; a run adds none: it is over when
//! this function returns. Tests: `tests/wire/transfers.rs`.

use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::gro::Joined;
use sockeye_proto::tcp::meter::Tally;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::{Header, Payload};
use sockeye_proto::tcp::state::State;
use sockeye_proto::time::Instant;
use sockeye_sync::facade::{Arc, AtomicU32, Ordering};

use super::outbox::Context;
use super::sockbuf::{Buffers, Socket};
use super::{Conn, Locked, Work, contain, engine, reports, serve, tune};
use crate::base::payload::Data;
use crate::inet::input::{Packet, count};
use crate::rt::counter;
use crate::rt::failpoints::{self, Point};
use crate::tcp::discipline::{Chosen, Discipline};

/// Most segments under one hold of the socket lock.
const HOLD_MAX: usize = 16;
/// Bytes of payload from which on no further segment comes under the same hold: a sender whose window is a few
/// times this must not wait for the acknowledgment of all of it.
const HOLD_BYTES_MAX: usize = 64 << 10;

/// Runs `first` and those items from `next` that are for the same connection. True if the connection has
/// ended on the way, so that its effects in the outbox should be carried out; `next` may then have more.
pub(crate) fn input(
    cx: &mut Context<'_>,
    conn: &Arc<Conn>,
    first: Packet,
    next: impl FnMut() -> Option<Packet>,
) -> bool {
    let mut rest = std::iter::once(first).chain(std::iter::from_fn(next)).map(|p| (p.header, p.payload));
    while let Some(first) = rest.next() {
        // The thread that runs the connection's items may let go at any moment: the next segment tries again.
        let Some((mut locked, first)) = lock(cx, conn, first) else { continue };
        let mut stay = Stay { waiting: Some(first), ..Stay::default() };
        loop {
            stay.hold(cx, conn, locked.parts().0, &mut || rest.next());
            if stay.waiting.is_none() {
                break;
            }
            // The connection's reader and writer wait meanwhile.
            match locked.give_way() {
                Some(again) => locked = again,
                None => return true,
            }
        }
        cx.core.input.count(count::run_of(stay.ran), 1);
        serve::let_go(cx, conn, locked, stay.ran);
        serve::answer(cx);
        if stay.has_ended {
            return true;
        }
    }
    false
}

/// Locks for a segment, or leaves it to the thread that runs the connection's items. Earlier items in the backlog are
/// run before.
fn lock<'c>(
    cx: &mut Context<'_>,
    conn: &'c Arc<Conn>,
    segment: (Header, Data),
) -> Option<(Locked<'c>, (Header, Data))> {
    let core = cx.core;
    if let Some(locked) = conn.so.try_enter() {
        core.input.count(count::ACQUISITIONS, 1);
        core.count(counter::ENTERED);
        if !locked.has_backlog() {
            return Some((locked, segment));
        }
        let mut locked = locked;
        locked.push(Work::segment(segment.0.into(), segment.1));
        serve::let_go(cx, conn, locked, 0);
        serve::answer(cx);
        return None;
    }
    core.input.count(count::CONTENDED, 1);
    serve::bring(cx, conn, Work::segment(segment.0.into(), segment.1));
    None
}

/// A run of segments, over several holds.
#[derive(Default)]
pub(crate) struct Stay {
    pub ran: usize,
    /// The segment that was looked at and comes first under the next hold.
    pub waiting: Option<(Header, Data)>,
    /// The connection has ended.
    pub has_ended: bool,
}

impl Stay {
    /// Runs the items in `waiting` and from `next`, as far as one hold goes.
    pub fn hold(
        &mut self,
        cx: &mut Context<'_>,
        conn: &Arc<Conn>,
        so: &mut Socket,
        next: &mut impl FnMut() -> Option<(Header, Data)>,
    ) {
        let (mut hold, waiting) = (Hold::default(), &mut self.waiting);
        let ended = contain::guarded(cx, conn, so, "input", |cx, pcb, conn, so| {
            self::hold(cx, pcb, conn, so, &mut hold, waiting, next)
        });
        self.ran += hold.segments;
        self.has_ended = ended.unwrap_or(true);
    }
}

/// Runs the items in `waiting` and from `next`, as far as one hold of the socket lock goes, and output. True if the connection
/// has ended.
fn hold(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    hold: &mut Hold,
    waiting: &mut Option<(Header, Data)>,
    next: &mut impl FnMut() -> Option<(Header, Data)>,
) -> bool {
    let snd_una = pcb.snd_una();
    while !hold.is_full()
        && let Some(segment) = waiting.take()
    {
        *waiting = arrive(cx, pcb, conn, so, hold, segment, next);
        if waiting.is_none() && !is_over(pcb) {
            *waiting = next();
        }
    }
    // At most HOLD_MAX.
    let segments = u32::try_from(hold.segments).unwrap_or(u32::MAX);
    let came = Tally { segments, with_text: hold.with_text, text_bytes: 0 };
    pcb.meter(came, Tally::default(), cx.now);
    tune::after_run(cx, pcb, conn, so, hold.text);
    engine::finish(cx, pcb, conn, so);
    confirm(cx, pcb, conn, snd_una);
    is_over(pcb)
}

/// The items of one hold of the socket lock.
#[derive(Default)]
struct Hold {
    segments: usize,
    bytes: usize,
    with_text: u32,
    /// The TSecr of the latest segment with text in order; the outer `None`: there was none. Others may be forged.
    text: Option<Option<u32>>,
}

impl Hold {
    fn note(&mut self, payload: &Data) {
        (self.segments, self.bytes) = (self.segments + 1, self.bytes + payload.len());
        self.with_text += u32::from(!payload.is_empty());
    }

    /// Text of the segment was taken in order.
    fn note_text(&mut self, header: &Header) {
        self.text = Some(header.options.timestamps.map(|ts| ts.ecr));
    }

    fn is_full(&self) -> bool {
        self.segments >= HOLD_MAX || self.bytes >= HOLD_BYTES_MAX
    }
}

/// Takes in a segment, and as one with it those after it that continue it and nothing else (`TcpConfig::gro`). Returns the one
/// that was looked at and does not.
fn arrive(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    hold: &mut Hold,
    (header, payload): (Header, Data),
    next: &mut impl FnMut() -> Option<(Header, Data)>,
) -> Option<(Header, Data)> {
    hold.note(&payload);
    let joined = if cx.core.config.tcp.gro && !so.rcv.closed {
        pcb.join_from(&header, text_len(&payload))
    } else {
        None
    };
    let Some(mut joined) = joined else {
        let (rcv_nxt, has_text) = (pcb.rcv_nxt(), !payload.is_empty());
        engine::arrive(cx, pcb, conn, so, &header, payload);
        if has_text && pcb.rcv_nxt() != rcv_nxt {
            hold.note_text(&header);
        }
        return None;
    };
    hold.note_text(&header);
    engine::append(cx, conn, so, payload);
    let mut refused = None;
    while !hold.is_full()
        && let Some((header, payload)) = next()
    {
        if !joined.add(&header, text_len(&payload)) {
            refused = Some((header, payload));
            break;
        }
        hold.note(&payload);
        hold.note_text(&header);
        engine::append(cx, conn, so, payload);
    }
    arrive_joined(cx, pcb, conn, so, &joined);
    refused
}

/// Segments that the pcb has joined, with their text in `so_rcv` already.
fn arrive_joined(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    joined: &Joined,
) {
    cx.now = pcb.clock(cx.now);
    cx.core.count_many(counter::SEGMENTS_IN, joined.count());
    Chosen::take_remote_listed(cx, conn);
    cx.core.input.count(count::JOINED, u64::from(joined.count() - 1));
    let acked_len = pcb.on_joined(joined, cx.now);
    failpoints::hit(Point::Joined, failpoints::of_conn(conn));
    if acked_len > 0 {
        engine::acked(cx, conn, so, acked_len);
    }
    so.rcv.nxt += joined.text_len();
    reports::arrived(cx, so);
    so.rcv.set_cpu(cx.cpu);
    engine::wake_readers(cx, conn, so);
}

fn text_len(payload: &Data) -> u32 {
    u32::try_from(payload.len()).unwrap_or(u32::MAX)
}

/// If data of `conn` was acknowledged since `snd_una`, the way there works.
fn confirm(cx: &mut Context<'_>, pcb: &Pcb<Data>, conn: &Conn, snd_una: SeqNum) {
    if pcb.snd_una() != snd_una && conn.confirmed.is_due(cx.now) {
        let via = conn.via.last();
        cx.core.netifs.confirm(via, cx.now);
        crate::inet::link::confirm(cx, via, conn.tuple.remote.addr);
    }
}

/// When the way of a connection was last told that it works: it wants to know each second, and to look for it costs as much as
/// a short segment does elsewhere.
#[derive(Default)]
pub(crate) struct Confirmed(AtomicU32);

impl Confirmed {
    /// Whether it is time to report it again. Under the lock.
    fn is_due(&self, now: Instant) -> bool {
        // Relaxed: only the thread that has the lock looks. Truncated, as only a difference counts; 0 is never.
        let tick = ((now.as_micros() >> TICK_SHIFT) as u32).wrapping_add(1);
        let is_due = self.0.load(Ordering::Relaxed) != tick;
        if is_due {
            self.0.store(tick, Ordering::Relaxed);
        }
        is_due
    }
}

/// A fourth of a second, about, in microseconds.
const TICK_SHIFT: u32 = 18;

/// Whether the rest of a run would be for another connection of this name, or for none.
fn is_over(pcb: &Pcb<Data>) -> bool {
    matches!(pcb.state(), State::Closed | State::TimeWait)
}
