//! The inside of a connection's perimeter: input, output, timers, and the one way in and out.
//!
//! [`enter`] brings work to a connection. If its perimeter is free, the calling thread runs the work
//! and whatever else has gathered in the meantime; if not, the work is queued and whoever is inside
//! runs it. Nobody waits. A thread leaves only through `Inside::leave`, which refuses while items are
//! queued; after [`BATCH_MAX`] items it hands the perimeter to a worker instead.
//!
//! Segments for a connection in this process are put into the *receiver's queue while the sender's
//! perimeter is still held*: two threads that send for one connection, one after the other, thereby
//! deliver in the order in which they sent. The receiver is run after leaving.
//!
//! Output runs once per connection and batch ([`finish`]), however many segments the batch had.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sockeye_proto::tcp::segment::{Flags, Header, Payload};
use sockeye_proto::tcp::events::Events;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::settings::KeepaliveSettings;
use sockeye_proto::tcp::state::State;
use sockeye_sync::{Entry, Filled, HandedOff, Inside};

use super::error::SockError;
use super::outbox::{Context, Gone, Routed, Wake};
use super::{Conn, Item, Work, reason};
use crate::base::payload::Data;
use crate::poll::Ready;
use crate::stack::counter;
use crate::timers::TimerKey;

/// Most items that one thread runs in one stay, before it hands the perimeter to a worker: a caller
/// must not be kept for ever by the work of others.
const BATCH_MAX: usize = 256;

type In<'p> = Inside<'p, Item>;

/// Brings `work` to `conn`: runs it now, or leaves it to whoever is inside.
pub(crate) fn enter(cx: &mut Context<'_>, conn: &Arc<Conn>, work: Work) {
    let perimeter = conn.perimeter();
    if let Some(mut inside) = perimeter.try_enter() {
        cx.core.count(counter::ENTERED);
        step(cx, &mut inside, conn, work);
        finish(cx, &mut inside, conn);
        drive(cx, inside, conn, 1);
        return;
    }
    match perimeter.enter(Item { conn: Arc::clone(conn), work }) {
        Entry::Queued => cx.core.count(counter::QUEUED),
        // Protocol code panicked in there: this connection's work is lost, the others go on.
        Entry::Poisoned(_) => cx.core.count(counter::SEGMENTS_LOST),
        Entry::Inside(mut inside, item) => {
            cx.core.count(counter::ENTERED);
            step(cx, &mut inside, conn, item.work);
            finish(cx, &mut inside, conn);
            drive(cx, inside, conn, 1);
        }
    }
}

/// Posts `reasons` and brings them to the connection, unless it is already on its way.
pub(crate) fn notify(cx: &mut Context<'_>, conn: &Arc<Conn>, reasons: u32) {
    // Posting first keeps what several callers want in one item.
    match conn.notify.post(reasons) {
        sockeye_sync::Post::Fire => enter(cx, conn, Work::Notify),
        sockeye_sync::Post::Coalesced => cx.core.count(counter::COALESCED),
        sockeye_sync::Post::Dead => {}
    }
}

/// Runs a perimeter that was filled or handed over while nobody was inside.
pub(crate) fn resume(cx: &mut Context<'_>, conn: &Arc<Conn>) {
    if let Some(inside) = conn.perimeter().resume() {
        cx.core.count(counter::ENTERED);
        drive(cx, inside, conn, 0);
    }
}

/// Runs the queue and leaves.
fn drive(cx: &mut Context<'_>, mut inside: In<'_>, conn: &Arc<Conn>, mut ran: usize) {
    loop {
        inside = match inside.leave() {
            Ok(()) => return,
            Err(inside) => inside,
        };
        if ran >= BATCH_MAX {
            cx.core.count(counter::HANDED_OFF);
            let HandedOff = inside.hand_off();
            cx.core.workers.adopt(conn);
            return;
        }
        ran += batch(cx, &mut inside);
    }
}

/// Runs what is queued now, keeping the last connection so that output runs once per run of items.
fn batch(cx: &mut Context<'_>, inside: &mut In<'_>) -> usize {
    let mut ran = 0;
    let mut held: Option<Arc<Conn>> = None;
    for item in inside.take() {
        ran += 1;
        if let Some(last) = held.take_if(|last| !Arc::ptr_eq(last, &item.conn)) {
            finish(cx, inside, &last);
        }
        step(cx, inside, &item.conn, item.work);
        held = Some(item.conn);
    }
    if let Some(last) = held {
        finish(cx, inside, &last);
    }
    ran
}

/// One item.
fn step(cx: &mut Context<'_>, inside: &mut In<'_>, conn: &Arc<Conn>, work: Work) {
    let pcb = conn.pcb.get(inside);
    match work {
        Work::Segment(header, payload) => input(cx, pcb, conn, &header, payload),
        Work::Notify => {
            // Re-armed before anything is looked at: what is posted from here on comes again.
            let reasons = conn.notify.take();
            notified(cx, pcb, conn, reasons);
        }
    }
}

/// A segment for this connection.
fn input(cx: &mut Context<'_>, pcb: &mut Pcb<Data>, conn: &Arc<Conn>, header: &Header, payload: Data) {
    cx.core.count(counter::SEGMENTS_IN);
    let effect = pcb.on_segment(header, payload, cx.now);
    if let Some(reply) = effect.reply {
        emit(cx, conn, reply, Data::default());
    }
    if effect.acked > 0 {
        acked(cx, conn, effect.acked);
    }
    if !effect.deliver.is_empty() {
        deliver(cx, conn, effect.deliver);
    }
    if !effect.events.is_empty() {
        on_events(cx, pcb, conn, effect.events);
    }
}

/// Drops acknowledged bytes and wakes writers if that made enough space.
fn acked(cx: &mut Context<'_>, conn: &Arc<Conn>, bytes: u32) {
    let mut snd = conn.snd.lock();
    let freed = snd.chain.split_front(bytes as usize);
    snd.cpu = cx.cpu;
    if snd.is_writable() {
        wake_writers(cx, conn, snd);
    } else {
        drop(snd);
    }
    // The buffers go back outside the lock.
    drop(freed);
}

pub(crate) fn wake_writers(
    cx: &mut Context<'_>,
    conn: &Arc<Conn>,
    mut snd: sockeye_sync::MutexGuard<'_, super::sockbuf::SendBuf>,
) {
    let owed = conn.snd_wait.notify().is_wake_owed();
    let waker = snd.waker.take();
    drop(snd);
    if owed {
        cx.outbox.wakes.push(Wake::Writer(Arc::clone(conn)));
    }
    cx.outbox.wakes.extend(waker.map(Wake::Task));
    conn.watch.mark(Ready::WRITABLE, &mut cx.outbox.wakes);
}

/// Appends in-order bytes and wakes readers.
fn deliver(cx: &mut Context<'_>, conn: &Arc<Conn>, payload: Data) {
    let mut rcv = conn.rcv.lock();
    let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    rcv.nxt += bytes;
    rcv.cpu = cx.cpu;
    if rcv.closed {
        drop(rcv);
        return;
    }
    rcv.chain.append(payload.0);
    wake_readers(cx, conn, rcv);
}

pub(super) fn wake_readers(
    cx: &mut Context<'_>,
    conn: &Arc<Conn>,
    mut rcv: sockeye_sync::MutexGuard<'_, super::sockbuf::RecvBuf>,
) {
    let owed = conn.rcv_wait.notify().is_wake_owed();
    let waker = rcv.waker.take();
    drop(rcv);
    if owed {
        cx.outbox.wakes.push(Wake::Reader(Arc::clone(conn)));
    }
    cx.outbox.wakes.extend(waker.map(Wake::Task));
    conn.watch.mark(Ready::READABLE, &mut cx.outbox.wakes);
}

/// The rare things: handshake done, end of stream, failure, end of life.
fn on_events(cx: &mut Context<'_>, pcb: &mut Pcb<Data>, conn: &Arc<Conn>, events: Events) {
    if events.has(Events::CONNECTED) {
        let mut snd = conn.snd.lock();
        snd.connected = true;
        snd.due_at = pcb.snd_due_at();
        let mut rcv = conn.rcv.lock();
        rcv.nxt = pcb.rcv_nxt();
        rcv.adv = pcb.rcv_adv();
        rcv.unit = pcb.window_unit();
        drop(rcv);
        wake_writers(cx, conn, snd);
    }
    if events.has(Events::PEER_FIN) {
        let mut rcv = conn.rcv.lock();
        rcv.eof = true;
        wake_readers(cx, conn, rcv);
        conn.watch.mark(Ready::READ_CLOSED, &mut cx.outbox.wakes);
    }
    if let Some(error) = failure(events, conn.state() == State::CloseWait) {
        fail(cx, conn, error);
    }
    if events.has(Events::ENTER_TIME_WAIT) {
        let record = pcb.time_wait_record(cx.now);
        cx.outbox.gone.push(Gone::TimeWait(Arc::clone(conn), record));
    } else if events.has(Events::CLOSED) {
        end_of_stream(cx, conn);
        cx.outbox.gone.push(Gone::Closed(Arc::clone(conn)));
    }
}

/// The error that the events mean. A reset after the peer's FIN is a broken pipe, as on Linux.
fn failure(events: Events, peer_was_done: bool) -> Option<SockError> {
    let reset = if peer_was_done { SockError::BrokenPipe } else { SockError::Reset };
    [
        (Events::REFUSED, SockError::Refused),
        (Events::RESET, reset),
        (Events::TIMED_OUT, SockError::TimedOut),
    ]
    .into_iter()
    .find_map(|(event, error)| events.has(event).then_some(error))
}

/// The connection has failed: the error is pending, and both directions are at their end.
fn fail(cx: &mut Context<'_>, conn: &Arc<Conn>, error: SockError) {
    conn.set_error(error);
    end_of_stream(cx, conn);
    conn.watch.mark(Ready::ERROR, &mut cx.outbox.wakes);
}

/// Nothing more will come or go: unsent bytes are dropped, everybody is woken.
fn end_of_stream(cx: &mut Context<'_>, conn: &Arc<Conn>) {
    let mut snd = conn.snd.lock();
    let unsent = std::mem::take(&mut snd.chain);
    snd.shut = true;
    snd.due_at = u32::MAX;
    wake_writers(cx, conn, snd);
    drop(unsent);
    let mut rcv = conn.rcv.lock();
    rcv.eof = true;
    wake_readers(cx, conn, rcv);
    let closed = Ready::READ_CLOSED.with(Ready::WRITE_CLOSED);
    conn.watch.mark(closed, &mut cx.outbox.wakes);
}

/// The application, a timer or an option has something for the connection.
fn notified(cx: &mut Context<'_>, pcb: &mut Pcb<Data>, conn: &Arc<Conn>, reasons: u32) {
    // OUTPUT and RCVD ask for nothing but the output that every stay ends with.
    if reasons & reason::TIMER != 0 {
        conn.timer_at.store(0, Ordering::Relaxed);
        let outcome = pcb.on_timer(cx.now);
        if let Some(reply) = outcome.reply {
            emit(cx, conn, reply, Data::default());
        }
        if !outcome.events.is_empty() {
            on_events(cx, pcb, conn, outcome.events);
        }
    }
    if reasons & reason::OPTION != 0 {
        pcb.set_nodelay(conn.options.nodelay.load(Ordering::Relaxed));
        let enabled = conn.options.keepalive.load(Ordering::Relaxed);
        pcb.set_keepalive(KeepaliveSettings { enabled, ..KeepaliveSettings::default() }, cx.now);
        pcb.set_rcv_hiwat(conn.rcv.lock().hiwat);
    }
    if reasons & reason::SHUTDOWN != 0 {
        pcb.shutdown_write();
    }
    if reasons & (reason::CLOSE | reason::ABORT) != 0 {
        close(cx, pcb, conn, reasons & reason::ABORT != 0);
    }
}

/// The last handle is gone, or the application wants a reset.
fn close(cx: &mut Context<'_>, pcb: &mut Pcb<Data>, conn: &Arc<Conn>, abort: bool) {
    if !abort {
        // Whether bytes were unread was looked at under the buffer's mutex: then `abort` is set.
        let reset = pcb.close(0, cx.now);
        if let Some(reset) = reset {
            emit(cx, conn, reset, Data::default());
        }
        if pcb.state() == State::Closed {
            on_events(cx, pcb, conn, Events::CLOSED);
        }
        return;
    }
    if pcb.state() == State::Closed {
        return;
    }
    if let Some(reset) = pcb.abort() {
        emit(cx, conn, reset, Data::default());
    }
    on_events(cx, pcb, conn, Events::CLOSED);
}

/// The end of a run of items: everything that may be sent is sent, and the timer is set.
fn finish(cx: &mut Context<'_>, inside: &mut In<'_>, conn: &Arc<Conn>) {
    let pcb = conn.pcb.get(inside);
    output(cx, pcb, conn);
    conn.publish_state(pcb.state());
    let Some(deadline) = pcb.next_deadline() else { return };
    let (at, armed) = (deadline.as_micros(), conn.timer_at.load(Ordering::Relaxed));
    if armed == 0 || at < armed {
        conn.timer_at.store(at, Ordering::Relaxed);
        cx.core.workers.arm(at, TimerKey::Conn { hash: conn.hash, serial: conn.serial });
    }
}

/// Sends what the pcb wants to send, and settles the agreements with writer and reader.
fn output(cx: &mut Context<'_>, pcb: &mut Pcb<Data>, conn: &Arc<Conn>) {
    // Both mutexes for the whole of it: see the agreements in `sockbuf`.
    let mut snd = conn.snd.lock();
    let mut rcv = conn.rcv.lock();
    while let Some(segment) = pcb.poll_transmit(snd.len(), rcv.space(), cx.now) {
        let payload = if segment.len == 0 {
            Data::default()
        } else {
            Data(snd.chain.slice(segment.offset as usize, segment.len as usize))
        };
        emit(cx, conn, segment.header, payload);
    }
    rcv.adv = pcb.rcv_adv();
    snd.due_at = pcb.snd_due_at();
}

/// Sends one segment: into the queue of a receiver that is known, else by lookup after leaving.
fn emit(cx: &mut Context<'_>, conn: &Arc<Conn>, header: Header, payload: Data) {
    cx.core.count(counter::SEGMENTS_OUT);
    if header.flags.has(Flags::RST) {
        cx.core.count(counter::RESETS_OUT);
    }
    if !cx.core.loopback.encodes()
        && let Some(peer) = conn.live_peer()
    {
        let item = Item { conn: Arc::clone(&peer), work: Work::Segment(header, payload) };
        match peer.perimeter().fill(item) {
            Filled::WakeWorker => cx.outbox.claims.push_back(peer),
            Filled::Queued => cx.core.count(counter::QUEUED),
            Filled::Poisoned => cx.core.count(counter::SEGMENTS_LOST),
        }
        return;
    }
    let to = conn.tuple.reversed();
    cx.outbox.routed.push_back(Routed { from: Some(Arc::clone(conn)), to, header, payload });
}
