//! A panic in a connection's protocol code ends that connection and nothing else.
//!
//! Protocol code runs under the connection's socket lock ([`Socket`]), on whichever thread, so each section that runs some goes through
//! [`guarded`]: it catches the panic while the lock is still locked and ends the connection there and then ([`end`]). So no thread ever
//! locks a connection and finds it half changed, and nothing outside the section learns of the panic: the lock is let go as ever, the
//! backlog is run and finds a closed state machine.
//!
//! # States
//!
//! | from → to | by |
//! |---|---|
//! | running → running | `guarded`: the section ends |
//! | running → ended | a panic: [`end`], in the same section |
//! | ended → out of the table | the thread that empties the outbox, as with any connection that has closed |
//!
//! *Ended* is final. The state machine is a new one that is closed, the half-changed one was only asked for the reset that the
//! peer is due. Both buffers are empty. [`SockError::Panicked`] stays: each call from then on reports it, so that each of several waiting
//! threads hears of it.
//!
//! # Why no thread waits for ever
//! `end` marks the end of both streams and notifies the waiters in the section that it holds, as the end of any connection does. A reader that
//! waits for a reply (`Experiments::rcvd`) is given it. The peer gets a reset; should that be lost, or have a number that the peer cannot
//! believe, its next segment finds no connection and is answered with another. Each step of `end` is caught by itself: should telling the
//! readers panic, too, the rest is still done.
//!
//! # Calls of applications
//! A call of an application changes the buffers in sections of its own, which go through [`section`]: it ends the connection while the panic
//! unwinds, before it unlocks. The panic goes on to the beginning of the call ([`call`]), which reports it and returns the error.
//! A panic between two sections, with nothing locked, is one that `call` ends the connection for.
//!
//! Cost where nothing panics: no instruction, only longer tables for unwinding. Tests: `tests/contained`.

use std::io;

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::Header;
use sockeye_proto::tcp::state::State;
use sockeye_sync::facade::{Arc, Ordering};

use super::emit::emit_bare;
use super::error::SockError;
use super::outbox::{Context, Gone};
use super::sockbuf::{Buffers, Socket};
use super::{Conn, Locked, engine, serve, transmit};
use crate::base::payload::Data;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, Caught, PanicSource};
use crate::rt::poll::Ready;
use crate::tcp::Core;
use crate::tcp::discipline::{Chosen, Discipline};

/// Runs protocol code for `conn` in a section of its socket lock. `None` if it panicked: the connection has ended.
#[inline(always)]
pub(crate) fn guarded<'s, R>(
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
            cx.due.caught.push(caught);
            end(cx, conn, so);
            None
        }
    }
}

/// Runs a section of an application's call on `conn`, whose socket lock is held, and gives that back. If it panics the connection ends under the
/// same hold, and the panic goes on. `work` calls nothing that runs protocol code: that is [`guarded`] by itself.
#[inline(always)]
pub(super) fn section<'c, R>(
    core: &'c Core,
    conn: &'c Arc<Conn>,
    so: Locked<'c>,
    work: impl FnOnce(&mut Socket) -> R,
) -> (R, Locked<'c>) {
    let mut held = Held { core, conn, so: Some(so) };
    let Some(so) = &mut held.so else { unreachable!("it is locked") };
    let result = work(so);
    let Some(so) = held.so.take() else { unreachable!("it is locked") };
    (result, so)
}

/// A section that runs. It is dropped with the lock held only if that panics.
struct Held<'c> {
    core: &'c Core,
    conn: &'c Arc<Conn>,
    so: Option<Locked<'c>>,
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(so) = self.so.take() {
            end_held(self.core, self.conn, so);
        }
    }
}

/// Ends a connection because of a panic that unwinds.
#[cold]
#[inline(never)]
fn end_held(core: &Core, conn: &Arc<Conn>, mut so: Locked<'_>) {
    panics::contain(core, PanicSource::Protocol, "the end of a connection", || {
        Context::run(core, |cx| {
            end(cx, conn, &mut so);
            serve::let_go(cx, conn, so, 0);
        });
    });
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

/// Ends a connection because of a panic, with no lock held, unless the section that panicked has. Returns the error of its calls from now
/// on.
#[cold]
#[inline(never)]
fn abort(core: &Core, conn: &Arc<Conn>, caught: Caught) -> io::Error {
    panics::contain(core, PanicSource::Protocol, "the end of a connection", || {
        Context::run(core, |cx| match conn.panicked() {
            Some(_) => cx.due.caught.push(caught),
            None => end_outside(cx, conn, caught),
        });
    });
    SockError::Panicked.into()
}

/// Ends a connection because of a panic. Outside all locks and socket locks.
#[cold]
pub(super) fn end_outside(cx: &mut Context<'_>, conn: &Arc<Conn>, caught: Caught) {
    cx.due.caught.push(caught);
    end(cx, conn, &mut conn.so.lock());
}

/// Ends a connection whose protocol code has panicked.
#[cold]
#[inline(never)]
fn end(cx: &mut Context<'_>, conn: &Arc<Conn>, so: &mut Socket) {
    let reset = attempt(cx, |_| reset_due(conn, &so.pcb)).flatten();
    let half_changed = std::mem::replace(&mut so.pcb, Pcb::closed());
    attempt(cx, |_| drop(half_changed));
    let (pcb, buffers) = so.parts();
    conn.set_error(SockError::Panicked);
    conn.timer_at.store(0, Ordering::Relaxed);
    // Whatever was posted is for a state machine that is no more. Items still queued for it find nothing to do.
    let _reasons = conn.notify.take();
    conn.publish_state(pcb.state(), false);
    cx.outbox.gone.push(Gone::Closed(Arc::clone(conn)));
    cx.outbox.freed.push(std::mem::take(&mut buffers.rcv.chain));
    // Bytes that the peer has sent are lost, so its FIN does not stand for the end of all it has sent any more.
    (buffers.rcv.fin, buffers.rcv.urgent, buffers.snd.rare) = (false, None, None);
    attempt(cx, |cx| Chosen::reply(cx, conn));
    attempt(cx, |cx| {
        failpoints::hit(Point::Tell, failpoints::of_conn(conn));
        buffers.waiters.mark(Ready::ERROR.bits(), &mut cx.outbox.wakes);
    });
    attempt(cx, |cx| engine::end_of_stream(cx, conn, buffers));
    attempt(cx, |cx| {
        if let Some(reset) = reset {
            emit_bare(cx, conn, reset);
        }
        // Data sent before the panic goes first.
        transmit::flush(cx);
    });
}

/// One step of the end; the next one does not depend on it.
fn attempt<'s, R>(cx: &mut Context<'s>, step: impl FnOnce(&mut Context<'s>) -> R) -> Option<R> {
    match panics::catch(PanicSource::Protocol, "the end of a connection", || step(cx)) {
        Ok(result) => Some(result),
        Err(caught) => {
            cx.due.caught.push(caught);
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::ErrorKind;

    use sockeye_mbuf::{Chain, Exhausted, Freed, Pool};

    use super::super::transfer::{Sink, Source};
    use super::super::user::{Rest, append, recv_into};
    use super::*;
    use crate::Config;
    use crate::Stack;
    use crate::TcpListener;
    use crate::TcpStream;

    /// Panics with half of its bytes moved. Dropped by that panic's unwinding, it records the visible state of the
    /// connection: whether it has ended, and the bytes in its buffers.
    struct Breaks<'a> {
        conn: &'a Arc<Conn>,
        seen: &'a Cell<Option<(bool, usize, usize)>>,
    }

    impl Drop for Breaks<'_> {
        fn drop(&mut self) {
            let so = self.conn.so.lock();
            let has_ended = so.pcb.state() == State::Closed;
            self.seen.set(Some((has_ended, so.snd.chain.len(), so.rcv.chain.len())));
        }
    }

    impl Source for Breaks<'_> {
        const LOCKED_MAX: usize = usize::MAX;
        type Mark = ();
        fn len(&self) -> usize {
            8
        }
        fn take(&mut self, pool: &Pool, _: usize, into: &mut Chain) -> Result<(), Exhausted> {
            into.extend_from_slice(pool, b"half")?;
            panic!("in a copy");
        }
        fn mark(&self) {}
        fn reset(&mut self, (): ()) {}
    }

    impl Sink for Breaks<'_> {
        const LOCKED_MAX: usize = usize::MAX;
        fn fill(&mut self, from: &mut Chain, _: usize, _: &mut Freed) {
            from.trim_front(4);
            panic!("in a copy");
        }
    }

    fn pair() -> (Stack, TcpStream, TcpStream) {
        let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        (stack, client, server)
    }

    /// Runs a call that panics in its section, with 8 bytes to be read.
    fn breaks(run: impl Fn(&Core, &TcpStream, Breaks<'_>) -> io::Result<()>) {
        let (stack, client, server) = pair();
        std::io::Write::write_all(&mut &server, b"12345678").unwrap();
        let (core, conn, seen) = (stack.core::<Core>().unwrap(), client.conn().unwrap(), Cell::new(None));
        let called = call(core, conn, "a call", || run(core, &client, Breaks { conn, seen: &seen }));
        assert_eq!(called.unwrap_err().kind(), ErrorKind::ConnectionAborted);
        assert_eq!(seen.get(), Some((true, 0, 0)));
        let count = |name| stack.counters().into_iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(count("panics_protocol"), 1);
    }

    #[test]
    fn a_write_that_panics_leaves_no_half_changed_connection() {
        breaks(|core, client, source| {
            let mut rest = Rest::of(source);
            let _ = append(core, &client.sending()?.1, &mut rest);
            Ok(())
        });
    }

    #[test]
    fn a_read_that_panics_leaves_no_half_changed_connection() {
        breaks(|core, client, mut sink| recv_into(core, &client.sending()?.1, 8, &mut sink).map(|_| ()));
    }
}
