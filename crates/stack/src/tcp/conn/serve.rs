//! Running a connection's items under its socket lock.
//!
//! A thread that has work for a connection gets its lock by trying and runs the work, or leaves it in the backlog ([`bring`]). A call of
//! the application waits for the lock; a write goes on with it to run output ([`output`]), and any call runs the backlog before it lets go
//! ([`release`]). A thread that has the lock in these ways is the connection's *runner*: it runs at most [`RUN_MAX`] items and one output
//! under one hold ([`run_held`]), and lets go by one of the two policies of `sync/src/socket_lock.rs` ([`let_go`]).
//!
//! | it lets go | policy |
//! |---|---|
//! | with nothing held besides | *run*: the backlog comes first; between two runs waiting callers are let in |
//! | while the other end's lock waits beside | *leave*: the backlog is put off until the other end was run |
//! | after [`BATCH_MAX`] items | *leave*: the rest is a worker's, or the driver's in a stack without workers |
//!
//! Short sections (options, pollers, wakers, snapshots) name no policy: a thread that leaves the first item meanwhile waits for their end.
//!
//! # Loopback
//! A runner hands its segments over under its lock (`emit.rs`). A short segment whose receiver can be locked by trying waits *beside* that
//! lock; then the own lock is let go and the receiver is run, at once and with one output for all segments ([`answer`]). Its own segments
//! are handed over in the same way, in a loop and not in recursion. So one thread holds two locks at most, the second one got by trying, and
//! waits for none meanwhile.
//!
//! Segments of one connection are made under its lock, so those of two threads one after the other, and each is in the receiver's
//! backlog, or run first under a lock that is held all the time, before the second thread has the sender's lock. The backlog
//! keeps the order from there.
//!
//! Tests: at the end, `emit.rs`, `tests/suite`; the order in `crates/sync/tests/loom/socket_lock.rs`.

use std::hint::cold_path;

use sockeye_sync::facade::Arc;
use sockeye_sync::socket_lock::{HandedOff, Left, Turn};

use super::engine::{BATCH_MAX, RUN_MAX, finish, step};
use super::outbox::{Beside, Context};
use super::user::Ends;
use super::{Conn, Locked, Work, contain};
use crate::rt::counter;
use crate::tcp::Core;

/// Items in the backlog of a connection from which on none from outside is left there, while another thread has the lock. They are not bounded
/// otherwise: not all have a payload, which packet memory would bound.
const BACKLOG_MAX: usize = 4096;

/// Runs `work`, or leaves it to the thread that runs the connection's items. With no lock held. What has come from outside is dropped where that
/// thread is far behind: the peer sends it again. What this process sends itself is not.
pub(crate) fn bring(cx: &mut Context<'_>, conn: &Arc<Conn>, work: Work) {
    if conn.so.backlog_len() >= BACKLOG_MAX && conn.so.looks_held() && is_dropped(conn, &work) {
        cold_path();
        return cx.core.count(counter::BACKLOG_DROPS);
    }
    match conn.so.try_run(work) {
        Turn::Mine(locked, work) => {
            cx.core.count(counter::ENTERED);
            serve(cx, conn, locked, work);
        }
        Turn::Left(Left::First) => {
            cx.core.count(counter::QUEUED);
            look(cx, conn);
        }
        Turn::Left(Left::Behind) => cx.core.count(counter::QUEUED),
        Turn::Left(Left::Dead(_)) => cx.core.count(counter::SEGMENTS_LOST),
    }
}

/// Whether it may be dropped.
fn is_dropped(conn: &Conn, work: &Work) -> bool {
    match work {
        Work::Segment(..) | Work::Rare(..) | Work::Undelivered(..) => conn.via.last().is_wire(),
        Work::Notify | Work::Uncork(_) => false,
    }
}

/// Goes on with the lock of a writer, and runs output. For a caller that settles at once.
#[inline]
pub(crate) fn output(cx: &mut Context<'_>, conn: &Arc<Conn>, so: Locked<'_>) {
    cx.core.count(counter::ENTERED);
    serve(cx, conn, so, None);
}

/// Does the duty of a thread that leaves the first item in a connection's backlog.
pub(crate) fn look(cx: &mut Context<'_>, conn: &Arc<Conn>) {
    if let Some(locked) = conn.so.look() {
        cx.core.count(counter::ENTERED);
        serve(cx, conn, locked, None);
    }
}

/// Runs a connection that was handed over while no thread ran it.
pub(crate) fn take_over(cx: &mut Context<'_>, conn: &Arc<Conn>) {
    if let Some(locked) = conn.so.take_over() {
        cx.core.count(counter::ENTERED);
        serve(cx, conn, locked, None);
    }
}

/// Lets go of the lock that a call has, and runs the backlog. With no other lock held.
#[inline]
pub(super) fn release(core: &Core, ends: &Ends<'_>, so: Locked<'_>) {
    if let Err(locked) = so.run() {
        run_left(core, ends, locked, None);
    }
}

/// Runs `first` and the backlog, for a call that has the lock.
pub(super) fn run_left(core: &Core, ends: &Ends<'_>, locked: Locked<'_>, first: Option<Work>) {
    Context::run(core, |cx| {
        cx.ends = ends.both();
        cx.core.count(counter::ENTERED);
        serve(cx, ends.conn, locked, first);
    });
}

/// Runs `first` and the backlog, lets the lock go, and does the same for the other end with the segments
/// sent.
fn serve(cx: &mut Context<'_>, conn: &Arc<Conn>, mut locked: Locked<'_>, first: Option<Work>) {
    let ran = run_held(cx, conn, &mut locked, first);
    let_go(cx, conn, locked, ran);
    answer(cx);
}

/// Runs the other end of the connection that was run last, then its other end, and so on, as long as there is something for it.
/// With no lock held but that.
pub(super) fn answer(cx: &mut Context<'_>) {
    while let Some(Beside { conn, mut locked, work }) = cx.beside.take() {
        cx.core.count(counter::ENTERED);
        let ran = run_held(cx, conn, &mut locked, work);
        let_go(cx, conn, locked, ran);
    }
}

/// Lets the lock go, after `ran` items. The backlog is run first, but for two cases: if the other end's lock is held, too, it
/// comes after that; and after [`BATCH_MAX`] items it is a worker's.
#[inline]
pub(crate) fn let_go(cx: &mut Context<'_>, conn: &Arc<Conn>, mut locked: Locked<'_>, ran: usize) {
    if cx.beside.is_none() {
        locked = match locked.run() {
            Ok(()) => return,
            Err(locked) => locked,
        };
    }
    let_go_busy(cx, conn, locked, ran);
}

/// [`let_go`] with items that wait, or another lock.
fn let_go_busy(cx: &mut Context<'_>, conn: &Arc<Conn>, mut locked: Locked<'_>, mut ran: usize) {
    loop {
        if cx.beside.is_some() {
            if let Some(HandedOff) = locked.leave() {
                cx.outbox.put_off.push_back(Arc::clone(conn));
            }
            return;
        }
        locked = match locked.run() {
            Ok(()) => return,
            Err(locked) => locked,
        };
        if ran >= BATCH_MAX {
            if let Some(HandedOff) = locked.leave() {
                cx.core.count(counter::HANDED_OFF);
                cx.core.handed.leave(cx.core, conn);
            }
            return;
        }
        // Readers and writers wait meanwhile.
        let Some(again) = locked.give_way() else { return };
        locked = again;
        ran += run_held(cx, conn, &mut locked, None);
    }
}

/// Runs `first` and the backlog, at most [`RUN_MAX`] items, and output. Returns how many items, and at least
/// 1.
fn run_held(cx: &mut Context<'_>, conn: &Arc<Conn>, locked: &mut Locked<'_>, first: Option<Work>) -> usize {
    let (socket, mut backlog) = locked.parts();
    let ran = contain::guarded(cx, conn, socket, "input", |cx, pcb, conn, so| {
        let mut ran = 0;
        let mut next = first.or_else(|| backlog.pop());
        while let Some(work) = next {
            step(cx, pcb, conn, so, work);
            ran += 1;
            next = if ran < RUN_MAX { backlog.pop() } else { None };
        }
        finish(cx, pcb, conn, so);
        ran
    });
    ran.unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use sockeye_netif::{WireConfig, wire};
    use sockeye_proto::tcp::segment::{Flags, Header};

    use super::*;
    use crate::base::payload::Data;
    use crate::inet::input::Packet;
    use crate::tcp::conn::run;
    use crate::{Config, Stack, TcpListener, TcpStream};

    fn stack() -> Stack {
        Stack::new(Config { workers: 1, ..Config::default() }).unwrap()
    }

    #[test]
    fn acknowledgments_that_a_busy_thread_leaves_waiting_are_dropped_from_a_number_on() {
        let (ours, theirs) = (stack(), stack());
        let (here, there) = wire(&WireConfig::default()).unwrap();
        ours.attach(here, &["10.9.0.1/24".parse().unwrap()]).unwrap();
        theirs.attach(there, &["10.9.0.2/24".parse().unwrap()]).unwrap();
        let listener = TcpListener::bind_on(&theirs, "10.9.0.2:80").unwrap();
        let mut client = TcpStream::connect_on(&ours, "10.9.0.2:80").unwrap();
        let mut server = listener.accept().unwrap().0;
        let (core, conn) = (ours.core::<Core>().unwrap(), client.conn().unwrap());
        let dropped = || {
            let counters = ours.counters();
            counters.into_iter().find(|(name, _)| *name == "backlog_drops").unwrap().1
        };
        let locked = conn.so.enter();
        let (seq, ack) = (locked.pcb.rcv_nxt(), locked.pcb.snd_una());
        let header = Header { seq, ack, flags: Flags::ACK, window: u16::MAX, ..Header::default() };
        let acks = || Packet { to: conn.tuple, header, payload: Data::default() };
        Context::run(core, |cx| {
            run::input(cx, conn, acks(), || None);
            let mut more = std::iter::repeat_with(acks).take(BACKLOG_MAX + 98);
            run::input(cx, conn, acks(), || more.next());
        });
        // Others may have left something of their own.
        let (waiting, lost) = (conn.so.backlog_len(), dropped());
        assert!(waiting.abs_diff(BACKLOG_MAX) < 10 && lost.abs_diff(100) < 10, "{waiting} {lost}");
        // A call of the application is not dropped.
        Context::run(core, |cx| bring(cx, conn, Work::Notify));
        assert!(conn.so.backlog_len() > waiting);
        Context::run(core, |cx| let_go(cx, conn, locked, 0));
        std::io::Write::write_all(&mut client, b"on").unwrap();
        let mut text = [0; 2];
        std::io::Read::read_exact(&mut server, &mut text).unwrap();
        assert_eq!(&text, b"on");
    }
}
