//! A connection's protocol code: input, output, timers; and the ways in.
//!
//! Work is brought to a connection by [`Discipline::enter`], and goes to its socket lock ([`serve`](super::serve)): if that is free, the
//! calling thread runs the work, and whatever others have left meanwhile; if not, the work is left to the thread that runs the connection's
//! items. No thread waits for protocol code.
//!
//! Segments for a connection in this process are handed to the receiver *while the sender's lock is still held* ([`emit`](super::emit)): two
//! threads that send for one connection, one after the other, thereby deliver in the order in which they sent. The receiver is run after
//! that.
//!
//! Output runs once per run of items of one connection ([`finish`]), under the same hold of the lock as the items themselves.

use std::hint::cold_path;
use std::time::Duration;

use sockeye_proto::tcp::closed;
use sockeye_proto::tcp::events::Events;
use sockeye_proto::tcp::meter::Tally;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::{Flags, Header, Payload, PlainHeader};
use sockeye_proto::tcp::state::State;
use sockeye_sync::facade::{Arc, Ordering};

use super::emit::{emit, emit_bare};
use super::error::failure;
use super::outbox::{Context, Gone, Wake};
use super::sockbuf::{Buffers, SendBuf};
use super::{Conn, Work, fast_open, notsent, rcvd, reason, reports, transmit};
use crate::base::payload::Data;
use crate::rt::counter;
use crate::rt::failpoints::{self, Point};
use crate::rt::poll::Ready;
use crate::rt::timers::TimerKey;
use crate::tcp::discipline::{Chosen, Discipline};

/// Most items that one thread runs before it hands the connection to a worker: a caller must not be kept for ever by the work of others.
pub(crate) const BATCH_MAX: usize = 256;
/// Most items of one connection that are run under one hold of its socket lock: its reader and writer wait
/// meanwhile.
pub(crate) const RUN_MAX: usize = 16;
/// Bytes from which on a piece of received text keeps its cluster: a frame's, which is a few times as long.
const GATHERED_MAX: usize = 512;
/// Acknowledged bytes whose views are given up under the socket lock: they are a cluster or two.
const FEW_BYTES_MAX: u32 = 4096;

/// Posts `reasons` and brings them to the connection, unless it is already on its way.
pub(crate) fn notify(cx: &mut Context<'_>, conn: &Arc<Conn>, reasons: u32) {
    // Posting first keeps the requests of several callers in one item.
    match conn.notify.post(reasons) {
        sockeye_sync::Post::Fire => Chosen::enter(cx, conn, Work::Notify),
        sockeye_sync::Post::Coalesced => cx.core.count(counter::COALESCED),
        sockeye_sync::Post::Dead => {}
    }
}

/// One item.
pub(crate) fn step(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    work: Work,
) {
    failpoints::hit(Point::Step, failpoints::of_conn(conn));
    // This thread may have read the clock before another one that was here first: effects come after causes.
    cx.now = pcb.clock(cx.now);
    match work {
        Work::Segment(header, payload) => plain_input(cx, pcb, conn, so, &header, payload),
        Work::Rare(header, payload) => {
            cold_path();
            input(cx, pcb, conn, so, &header, payload);
        }
        Work::Undelivered(seq, error) => {
            cold_path();
            failpoints::hit(Point::Undelivered, failpoints::of_conn(conn));
            let is_accepted = so.fast_open.as_ref().is_none_or(|place| !place.is_waiting(conn));
            let remote = conn.tuple.remote.addr;
            let before = pcb.state();
            let events = super::undelivered::apply(cx.core, pcb, remote, (seq, error), is_accepted, cx.now);
            if let sockeye_proto::icmp::Error::PacketTooBig(_) = error {
                conn.options.path.note(cx.core.ip.path_mtus.get(&cx.core.key, remote, cx.now));
            }
            on_events(cx, pcb, conn, so, (before, events));
        }
        Work::Uncork(other) => {
            cold_path();
            cx.outbox.uncorked.push(other);
        }
        Work::Notify => {
            // Re-armed before anything is looked at: anything posted from here on comes again.
            let reasons = conn.notify.take();
            failpoints::hit(Point::Notified, failpoints::of_conn(conn));
            notified(cx, pcb, conn, so, reasons);
        }
    }
}

/// A segment that has arrived, as an item of its own.
pub(super) fn arrive(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    header: &Header,
    payload: Data,
) {
    cx.now = pcb.clock(cx.now);
    input(cx, pcb, conn, so, header, payload);
}

/// A segment for this connection with a short header; the expected one, as nearly all are, needs no other.
#[inline]
fn plain_input(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    header: &PlainHeader,
    payload: Data,
) {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let Some(acked_len) = pcb.on_expected_plain(header, len, cx.now) else {
        cold_path();
        return input(cx, pcb, conn, so, &(*header).into(), payload);
    };
    failpoints::hit(Point::Segment, failpoints::of_conn(conn));
    cx.core.count(counter::SEGMENTS_IN);
    Chosen::take_remote_listed(cx, conn);
    if acked_len > 0 {
        acked(cx, conn, so, acked_len);
    }
    if len > 0 {
        let _nothing_is_left_to_do = text(cx, pcb, conn, so, payload);
    }
}

/// Text in order, for its reader. False if there will be none, which has ended the connection.
#[inline]
fn text(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    payload: Data,
) -> bool {
    if so.rcv.closed {
        // The last handle went while this was on its way, and the pcb has not been told yet. No reader is left
        // for it, so the peer learns so at once; an acknowledgment would be a lie (RFC 2525 section 2.17).
        cold_path();
        cx.outbox.freed.push(payload.0);
        end(cx, pcb, conn, so, End::Abort);
        return false;
    }
    deliver(cx, conn, so, payload);
    true
}

/// A segment for this connection.
fn input(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    header: &Header,
    payload: Data,
) {
    cx.core.count(counter::SEGMENTS_IN);
    Chosen::take_remote_listed(cx, conn);
    if pcb.state() == State::Closed {
        // Between the end of a connection and its leaving the table it answers as if it did not exist (RFC 9293
        // section 3.10.7.1): a peer that could not use our reset asks once more and learns of it here.
        if let Some(reset) = closed::reset_for(header, payload.len()) {
            emit_bare(cx, conn, reset);
        }
        cx.outbox.freed.push(payload.0);
        return;
    }
    let before = pcb.state();
    let effect = pcb.on_segment(header, payload, cx.now);
    failpoints::hit(Point::Segment, failpoints::of_conn(conn));
    if let Some(reply) = effect.reply {
        emit_bare(cx, conn, reply);
    }
    if effect.acked > 0 {
        acked(cx, conn, so, effect.acked);
    }
    if !effect.deliver.is_empty() && !text(cx, pcb, conn, so, effect.deliver) {
        return;
    }
    if !effect.events.is_empty() {
        if effect.events.has(Events::URGENT) {
            urgent(cx, conn, so, header);
        }
        if effect.events.any(Events::CONNECTED.with(Events::SYN_ACKED).with(Events::CLOSED)) {
            fast_open::over(cx, pcb, conn, so, effect.events, header);
        }
        on_events(cx, pcb, conn, so, (before, effect.events));
    }
}

/// Drops acknowledged bytes and wakes writers if that made enough space.
pub(super) fn acked(cx: &mut Context<'_>, conn: &Arc<Conn>, so: &mut Buffers, bytes: u32) {
    Chosen::release_acked(cx, conn, so, bytes);
    if let Some(rare) = so.snd.rare.as_deref_mut() {
        rare.urgent = rare.urgent.saturating_sub(bytes);
        rare.mark.acked(bytes);
        if let Some(pushes) = &mut rare.pushes {
            pushes.acked(bytes);
        }
        if rare.reports.is_some() {
            reports::acked(cx, so, bytes);
        }
    }
    so.snd.cpu = cx.cpu;
    failpoints::hit(Point::Acked, failpoints::of_conn(conn));
    if so.snd.is_writable() {
        wake_writers(cx, conn, so);
    }
}

/// Unlinks acknowledged bytes. They are given back once outside.
#[inline]
pub(crate) fn release_acked(cx: &mut Context<'_>, so: &mut Buffers, bytes: u32) {
    if bytes <= FEW_BYTES_MAX {
        so.snd.chain.trim_front_releasing(bytes as usize, &mut cx.outbox.spares);
    } else {
        cx.outbox.freed.push(so.snd.chain.split_front(bytes as usize));
    }
}

/// Wakes threads, tasks and pollers that wait for space or for the handshake, once outside.
pub(crate) fn wake_writers(cx: &mut Context<'_>, conn: &Arc<Conn>, so: &mut Buffers) {
    let sleepers = || Wake::Writer(Arc::clone(conn));
    let _threads = so.waiters.notify(&conn.snd_wait, sleepers, Ready::WRITABLE.bits(), &mut cx.outbox.wakes);
}

/// The peer has marked urgent data. Its readers are notified once the last byte of it has arrived.
#[cold]
fn urgent(cx: &mut Context<'_>, conn: &Arc<Conn>, so: &mut Buffers, header: &Header) {
    so.rcv.set_mark(header.urgent_mark());
    if so.rcv.has_urgent() {
        wake_readers(cx, conn, so);
    }
}

/// Appends in-order bytes and wakes readers.
pub(super) fn deliver(cx: &mut Context<'_>, conn: &Arc<Conn>, so: &mut Buffers, payload: Data) {
    let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    so.rcv.nxt += bytes;
    so.rcv.set_cpu(cx.cpu);
    append(cx, conn, so, payload);
    reports::arrived(cx, so);
    failpoints::hit(Point::Deliver, failpoints::of_conn(conn));
    wake_readers(cx, conn, so);
}

/// Puts text behind that which waits for a reader. The window counts bytes, so pieces of a few bytes from outside, of which each has a
/// cluster, are gathered. On loopback their writer has done that.
#[inline]
pub(super) fn append(cx: &mut Context<'_>, conn: &Conn, so: &mut Buffers, payload: Data) {
    let is_first = so.rcv.chain.is_empty() && payload.0.mbuf_count() <= 1;
    if is_first || !conn.via.last().is_wire() {
        so.rcv.chain.append(payload.0);
    } else {
        so.rcv.chain.gather(payload.0, GATHERED_MAX, &cx.core.pool, &mut cx.outbox.spares);
    }
}

/// Wakes threads, tasks and pollers that wait for bytes, once outside.
pub(crate) fn wake_readers(cx: &mut Context<'_>, conn: &Arc<Conn>, so: &mut Buffers) {
    let ready = Ready::READABLE.when(so.rcv.is_readable()).with(Ready::PRIORITY.when(so.rcv.has_urgent()));
    let sleepers = || Wake::Reader(Arc::clone(conn));
    let _threads = so.waiters.notify(&conn.rcv_wait, sleepers, ready.bits(), &mut cx.outbox.wakes);
}

/// The rare things: handshake done, end of stream, failure, end of life. `before` is the state in which the cause of the events found the connection.
fn on_events(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    (before, events): (State, Events),
) {
    if events.has(Events::CONNECTED) {
        so.snd.connected = true;
        so.snd.due_at = pcb.snd_due_at();
        so.rcv.on_connected(pcb);
        reports::connected(so);
        wake_writers(cx, conn, so);
    }
    if events.has(Events::SILENT) {
        crate::inet::link::suspect(cx, conn.via.last(), conn.tuple.remote.addr);
    }
    if events.has(Events::REHASH) {
        conn.options.path.rehash(cx.core.rehashes(1));
    }
    if events.has(Events::PEER_FIN) {
        (so.rcv.eof, so.rcv.fin) = (true, true);
        wake_readers(cx, conn, so);
        so.waiters.mark(Ready::READ_CLOSED.bits(), &mut cx.outbox.wakes);
    }
    if let Some(error) = failure(events, before == State::CloseWait, pcb.unreachable()) {
        if events.any(Events::TIMED_OUT.with(Events::UNREACHABLE)) {
            fast_open::failed(cx, pcb, conn, so);
            // The error says what the report says, so SO_ERROR does not return it again.
            let _ = pcb.take_unreachable();
        }
        conn.set_error(error);
        end_of_stream(cx, conn, so);
    }
    if events.has(Events::ENTER_TIME_WAIT) {
        let record = pcb.time_wait_record(cx.now);
        cx.outbox.gone.push(Gone::TimeWait(Arc::clone(conn), record));
    } else if events.has(Events::CLOSED) {
        end_of_stream(cx, conn, so);
        cx.outbox.gone.push(Gone::Closed(Arc::clone(conn)));
    }
}

/// Nothing more will come or go: unsent bytes are dropped, all waiters are woken.
pub(super) fn end_of_stream(cx: &mut Context<'_>, conn: &Arc<Conn>, so: &mut Buffers) {
    cx.outbox.freed.push(std::mem::take(&mut so.snd.chain));
    so.snd.shut = true;
    so.snd.due_at = u32::MAX;
    so.rcv.eof = true;
    reports::ended(cx, so);
    if let Some(place) = so.fast_open.take() {
        cx.core.count(counter::FASTOPEN_PASSIVE_FAIL);
        place.give_back(None);
    }
    wake_writers(cx, conn, so);
    wake_readers(cx, conn, so);
    let closed = Ready::READ_CLOSED.with(Ready::WRITE_CLOSED);
    so.waiters.mark(closed.with(Ready::ERROR.when(conn.has_error())).bits(), &mut cx.outbox.wakes);
}

/// The application, a timer or an option has something for the connection.
fn notified(cx: &mut Context<'_>, pcb: &mut Pcb<Data>, conn: &Arc<Conn>, so: &mut Buffers, reasons: u32) {
    // OUTPUT asks for nothing but the output that every stay ends with.
    rcvd::heard(pcb, so, reasons);
    if reasons & reason::TIMER != 0 {
        conn.timer_at.store(0, Ordering::Relaxed);
        let before = pcb.state();
        let outcome = pcb.on_timer(cx.now);
        failpoints::hit(Point::Timer, failpoints::of_conn(conn));
        if let Some(reply) = outcome.reply {
            emit_bare(cx, conn, reply);
        }
        if !outcome.events.is_empty() {
            on_events(cx, pcb, conn, so, (before, outcome.events));
        }
    }
    if reasons & reason::OPTION != 0 {
        pcb.set_nodelay(conn.options.nodelay.load(Ordering::Relaxed), so.snd.len());
        pcb.set_keepalive(conn.options.keepalive_settings(), reasons & reason::KEEPIDLE != 0, cx.now);
        pcb.set_syn_retries(conn.options.syn_retries.load(Ordering::Relaxed));
        let fin_timeout_ms = conn.options.fin_timeout_ms.load(Ordering::Relaxed);
        pcb.set_fin_wait_2(Duration::from_millis(u64::from(fin_timeout_ms)));
        let user_timeout_ms = conn.options.user_timeout_ms.load(Ordering::Relaxed);
        pcb.set_user_timeout(Duration::from_millis(u64::from(user_timeout_ms)));
        pcb.set_rcv_hiwat(so.rcv.hiwat);
        pcb.set_rcv_lowat(so.rcv.lowat);
    }
    if reasons & reason::PRUNE != 0 && pcb.has_hole() {
        cx.core.count(counter::OFO_PRUNED);
        cx.outbox.freed.push(pcb.prune().0);
    }
    if reasons & reason::SHUTDOWN != 0 {
        if so.rcv.shut {
            // With both directions shut, further data from the peer is answered with a reset, as on Linux.
            end(cx, pcb, conn, so, End::Shutdown);
        } else {
            pcb.shutdown_write();
        }
    }
    if reasons & (reason::CLOSE | reason::ABORT) != 0 {
        end(cx, pcb, conn, so, if reasons & reason::ABORT != 0 { End::Abort } else { End::Close });
    }
    if reasons & reason::REPLY != 0 {
        Chosen::reply(cx, conn);
    }
}

/// How the application ends a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It has shut both directions, and holds a handle.
    Shutdown,
    /// The last handle is gone.
    Close,
    /// It wants a reset, or the last handle is gone while bytes were unread, which was looked at under the socket lock.
    Abort,
}

fn end(cx: &mut Context<'_>, pcb: &mut Pcb<Data>, conn: &Arc<Conn>, so: &mut Buffers, how: End) {
    let before = pcb.state();
    if before == State::Closed {
        return;
    }
    fast_open::given_up(cx, pcb, conn, so);
    let reset = match how {
        End::Shutdown => {
            pcb.shutdown();
            None
        }
        End::Close => pcb.close(0, cx.now),
        End::Abort => pcb.abort(),
    };
    if let Some(reset) = reset {
        emit_bare(cx, conn, reset);
    }
    if pcb.state() == State::Closed {
        on_events(cx, pcb, conn, so, (before, Events::CLOSED));
    }
}

/// The end of a run of items: everything that may be sent is sent, the agreements with writer and reader
/// are settled, and the timer is set.
pub(crate) fn finish(cx: &mut Context<'_>, pcb: &mut Pcb<Data>, conn: &Arc<Conn>, so: &mut Buffers) {
    if so.snd.rare.is_some() {
        tell_rare(pcb, &mut so.snd);
    }
    let mut next = None;
    // Sending takes nothing out of either buffer.
    let (snd_len, rcv_space) = (so.snd.len(), so.rcv.space());
    loop {
        pcb.transmit_into(&mut next, snd_len, rcv_space, cx.now);
        let Some(segment) = &mut next else { break };
        // As it was cut: to send changes neither the window nor the holes that this rests on.
        let mss = pcb.send_mss();
        failpoints::hit(Point::Transmit, failpoints::of_conn(conn));
        let mut payload = if segment.len == 0 {
            if segment.is_window_update {
                cx.core.count(counter::WINDOW_UPDATES);
            }
            Data::default()
        } else {
            let end = segment.offset + segment.len;
            if segment.head.flags().has(Flags::PSH) {
                so.snd.note_probe(end);
            }
            segment.push_if(so.snd.is_pushed(segment.len, end, mss, pcb));
            Data(so.snd.chain.slice_alone(segment.offset as usize, segment.len as usize))
        };
        // Nor is a SYN with text cut: its length does not rest on what the peer has said.
        let is_whole = segment.is_mtu_probe || !so.snd.connected;
        let mss = if is_whole { u16::MAX } else { mss };
        // To a device it means what RFC 3168 says, and is the first packet's alone. In accurate ECN it is a bit of a number, which each packet has.
        let is_ours = segment.head.flags().has(Flags::CWR) && pcb.has_accurate_ecn();
        emit(cx, conn, &mut segment.head, &mut payload, transmit::Cut { mss, is_ours });
        failpoints::hit(Point::Emitted, failpoints::of_conn(conn));
        if pcb.has_sent_all(snd_len) {
            break;
        }
    }
    if !cx.outbox.pending.is_empty() {
        pcb.meter(Tally::default(), transmit::pushed(cx), cx.now);
        transmit::flush(cx);
    }
    if pcb.is_metered() {
        cold_path();
        pcb.meter_time(so.snd.is_writable(), cx.now);
    }
    so.rcv.settle(pcb);
    so.snd.due_at = pcb.snd_due_at();
    if so.snd.rare.is_some() {
        notsent::settle(cx, pcb, conn, so);
    }
    conn.publish_state(pcb.state(), pcb.has_hole());
    let Some(deadline) = pcb.next_deadline() else {
        return;
    };
    let (at, armed) = (deadline.as_micros(), conn.timer_at.load(Ordering::Relaxed));
    if armed == 0 || at < armed {
        cold_path();
        conn.timer_at.store(at, Ordering::Relaxed);
        cx.due.timers.push((at, TimerKey::Conn { hash: conn.hash, serial: conn.serial as u32 }));
    }
}

/// The pcb learns up to where the written data is urgent, and whether a short segment waits for more.
#[inline(never)]
fn tell_rare(pcb: &mut Pcb<Data>, snd: &mut SendBuf) {
    let len = snd.len();
    let Some(rare) = snd.rare.as_deref_mut() else { return };
    let (urgent, more) = (std::mem::take(&mut rare.urgent), std::mem::take(&mut rare.more));
    if urgent != 0 {
        pcb.set_urgent(urgent);
    }
    if more {
        pcb.hold_small(len);
    }
    if urgent != 0 || more {
        snd.drop_idle_rare();
    }
}

/// Whether a writer has to wait for space.
pub(crate) fn is_full(so: &Buffers) -> bool {
    so.snd.connected && !so.snd.shut && !so.snd.has_space()
}
