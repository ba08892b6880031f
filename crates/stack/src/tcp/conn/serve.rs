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
//! Tests: `emit.rs`, `tests/suite`; the order in `crates/sync/tests/loom/socket_lock.rs`.

use sockeye_sync::facade::Arc;
use sockeye_sync::socket_lock::{HandedOff, Left, Turn};

use super::engine::{BATCH_MAX, RUN_MAX, finish, step};
use super::outbox::{Beside, Context};
use super::user::Ends;
use super::{Conn, Locked, Work, contain};
use crate::rt::counter;
use crate::tcp::Core;

/// Runs `work`, or leaves it to the thread that runs the connection's items. With no lock held.
pub(crate) fn bring(cx: &mut Context<'_>, conn: &Arc<Conn>, work: Work) {
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
