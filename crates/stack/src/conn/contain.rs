//! A panic in a connection's protocol code ends that connection and nothing else.
//!
//! Protocol code runs under the connection's mutex ([`Socket`]), whoever runs it, so each section that runs some goes through
//! [`guarded`]: it catches the panic while the mutex is still locked and ends the connection there and then ([`end`]). So nobody ever
//! locks a connection and finds it half changed, and nothing outside the section learns of the panic: the perimeter is left as ever,
//! what is queued behind is run and finds a closed state machine.
//!
//! # States
//!
//! | from → to | by |
//! |---|---|
//! | running → running | `guarded`: the section ends |
//! | running → ended | a panic: [`end`], in the same section |
//! | ended → out of the table | whoever empties the outbox, as with any connection that has closed |
//!
//! *Ended* is final. The state machine is a new one that is closed, the half-changed one was only asked for the reset that the
//! peer is due. Both buffers are empty. [`SockError::Panicked`] stays: each call from then on reports it, so that each of several waiting
//! threads hears of it, whoever reads it first.
//!
//! # Why nobody waits for ever
//! `end` marks the end of both streams and tells the waiters in the section that it holds, as the end of any connection does. A reader
//! who waits for a reply (`Config::rcvd`) is given it. The peer gets a reset; should that be lost, or have a number that the peer cannot
//! believe, its next segment finds no connection and is answered with another. Each step of `end` is caught by itself: should telling the
//! readers panic, too, the rest is still done.
//!
//! # Calls of applications
//! A call of an application changes only the buffers, in sections of its own. A panic in one unwinds to the beginning of the
//! call ([`call`]), which then ends the connection and returns the error. In between the mutex is free, because the section's guard
//! is dropped while the panic unwinds: until the connection has ended, another thread may see the buffers as the panic has left them.
//!
//! What it costs where nothing panics: nothing is executed, the tables for unwinding are longer. Tests: `tests/contained`.

use std::io;

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::Header;
use sockeye_proto::tcp::state::State;
use sockeye_sync::facade::{Arc, Ordering};

use super::emit::emit_bare;
use super::error::SockError;
use super::outbox::{Context, Gone};
use super::sockbuf::{Buffers, Socket};
use super::{Conn, engine, rcvd};
use crate::base::payload::Data;
use crate::failpoints::{self, Point};
use crate::netif::output;
use crate::panics::{self, Caught, PanicSource};
use crate::poll::Ready;
use crate::stack::Core;

/// Runs protocol code for `conn` in a section of its mutex. `None` if it panicked: the connection has ended.
#[inline(always)]
pub(super) fn guarded<'s, R>(
    cx: &mut Context<'s>,
    conn: &Arc<Conn>,
    so: &mut Socket,
    place: &'static str,
    work: impl FnOnce(&mut Context<'s>, &mut Pcb<Data>, &Arc<Conn>, &mut Buffers) -> R,
) -> Option<R> {
    let (pcb, buffers) = so.parts();
    match panics::catch(PanicSource::Protocol, place, || work(cx, pcb, conn, buffers)) {
        Ok(result) => Some(result),
        Err(caught) => {
            end(cx, conn, so, caught);
            None
        }
    }
}

/// Runs a call of an application on `conn`, with no lock held. If it panics the connection ends, and the call fails.
#[inline]
pub(crate) fn call<R>(
    core: &Core,
    conn: &Arc<Conn>,
    place: &'static str,
    call: impl FnOnce() -> io::Result<R>,
) -> io::Result<R> {
    match panics::catch(PanicSource::Protocol, place, call) {
        Ok(result) => result,
        Err(caught) => Err(abort(core, conn, caught)),
    }
}

/// Ends a connection because of a panic, with no lock held. Returns what its calls report from now on.
#[cold]
#[inline(never)]
fn abort(core: &Core, conn: &Arc<Conn>, caught: Caught) -> io::Error {
    panics::contain(core, PanicSource::Protocol, "the end of a connection", || {
        Context::run(core, |cx| end_outside(cx, conn, caught));
    });
    SockError::Panicked.into()
}

/// Ends a connection because of a panic. Outside all locks and perimeters.
#[cold]
pub(super) fn end_outside(cx: &mut Context<'_>, conn: &Arc<Conn>, caught: Caught) {
    end(cx, conn, &mut conn.so.lock(), caught);
}

/// Ends a connection whose protocol code has panicked.
#[cold]
#[inline(never)]
fn end(cx: &mut Context<'_>, conn: &Arc<Conn>, so: &mut Socket, caught: Caught) {
    cx.outbox.caught.push(caught);
    let reset = attempt(cx, |_| reset_due(conn, &so.pcb)).flatten();
    let half_changed = std::mem::replace(&mut so.pcb, Pcb::closed());
    attempt(cx, |_| drop(half_changed));
    let (pcb, buffers) = so.parts();
    conn.set_error(SockError::Panicked);
    conn.timer_at.store(0, Ordering::Relaxed);
    // Whatever was posted is for a state machine that is no more. What is still queued for it finds nothing to do.
    let _reasons = conn.notify.take();
    conn.publish_state(pcb.state(), false);
    cx.outbox.gone.push(Gone::Closed(Arc::clone(conn)));
    cx.outbox.freed.push(std::mem::take(&mut buffers.rcv.chain));
    // Bytes that the peer has sent are lost, so its FIN does not stand for the end of all it has sent any more.
    (buffers.rcv.fin, buffers.rcv.urgent, buffers.snd.rare) = (false, None, None);
    attempt(cx, |cx| rcvd::reply(cx, conn));
    attempt(cx, |cx| {
        failpoints::hit(Point::Tell, failpoints::of_conn(conn));
        buffers.waiters.mark(Ready::ERROR.bits(), &mut cx.outbox.wakes);
    });
    attempt(cx, |cx| engine::end_of_stream(cx, conn, buffers));
    attempt(cx, |cx| {
        if let Some(reset) = reset {
            emit_bare(cx, conn, reset);
        }
        // What was sent before the panic goes first.
        output::flush(cx);
    });
}

/// One step of the end; what the next one needs does not depend on it.
fn attempt<'s, R>(cx: &mut Context<'s>, step: impl FnOnce(&mut Context<'s>) -> R) -> Option<R> {
    match panics::catch(PanicSource::Protocol, "the end of a connection", || step(cx)) {
        Ok(result) => Some(result),
        Err(caught) => {
            cx.outbox.caught.push(caught);
            None
        }
    }
}

/// The reset that the peer is due, read from a state machine that may be half changed: it is due if there was a peer before the section,
/// or is one now.
fn reset_due(conn: &Conn, pcb: &Pcb<Data>) -> Option<Header> {
    failpoints::hit(Point::Reset, failpoints::of_conn(conn));
    let has_peer = |state| !matches!(state, State::Closed | State::SynSent | State::TimeWait);
    (has_peer(conn.state()) || has_peer(pcb.state())).then(|| pcb.reset_header())
}
