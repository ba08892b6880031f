//! Visits: protocol code run for a connection from outside its perimeter, by whoever holds its buffers' mutex.
//!
//! Protocol code runs under that mutex ([`Socket`]), whoever runs it: the perimeter says whose turn it is and keeps what
//! others leave meanwhile. Where nobody is inside and nothing is queued, there is no turn to wait for and nothing to be kept.
//! So a writer who has the mutex and sees the perimeter *vacant* runs output there and then, and the segment that comes of it
//! is run in the same way for the other end. Entering and leaving are two locked instructions for each end of each
//! segment, which is more than the protocol costs.
//!
//! # States
//!
//! | from → to | by |
//! |---|---|
//! | no visit → visiting | who holds `so` of the connection and has seen its perimeter vacant: [`output`] |
//! | visiting → called on | the same thread, for the other end, by trying its `so`: [`call`]; it then holds both |
//! | called on → visiting | the same thread, which by then holds no other `so` and is in no perimeter: [`Context::settle`] |
//! | visiting → no visit | the unlock |
//! | visiting → no visit | a panic, which ends the connection ([`contain`]), and the unlock |
//!
//! # Why one thread at a time runs protocol code
//! The pcb stands under the mutex, so the compiler sees to it.
//!
//! # Why the order of segments is kept
//! Segments of one connection are made under its `so`, so those of two threads one after the other. Say the first was
//! 1. left in the receiver's queue, or beside a claim: until it has been run the receiver's perimeter is occupied, and the second
//!    thread, which had `so` later, sees that, and queues behind it;
//! 2. run and the perimeter left: whoever sees it vacant acquires that, so its attempt at the mutex comes after the section in which the
//!    segment was run;
//! 3. taken along on a visit: its thread has held the receiver's mutex since, or has run it. The second thread's attempt fails,
//!    and it claims the perimeter, or queues; whoever runs what is inside takes the mutex first, after the visit.
//!
//! # Why nobody waits in a circle
//! Two mutexes are held by one thread only between a [`call`] and its end, and the second one is only ever tried. In that time the
//! thread waits for no other connection's mutex and for no perimeter: it leaves the first section, and settles the
//! call before anything else. That is so because only a visit that nothing follows makes calls
//! ([`Context::is_visiting`]): a writer's, and the one that a call leads to. Leaves of the lock order are taken under them as under any `so`.
//!
//! # Why nothing is stranded
//! A visit takes nothing out of a queue and puts nothing in. Who enters or queues meanwhile does so as ever, and who is inside waits for
//! the mutex as he would for a reader.
//!
//! A perimeter of several connections gives turns to all of them, and with the older settings of `entry` turns are what is
//! measured: no visits there. Tests: below, `tests/suite`; the order in `crates/sync/tests/loom/visit.rs`.

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_sync::BriefGuard;
use sockeye_sync::cpu::Place;
use sockeye_sync::facade::Arc;

use super::emit::HOSTED_MAX;
use super::outbox::{Context, OtherEnd};
use super::sockbuf::{Buffers, Socket};
use super::{Conn, HOT_LEN, Work, contain, engine};
use crate::base::payload::Data;
use crate::stack::counter;
use crate::switches::Entry;

/// The other end of a visited connection, its buffers locked, and the segment for it.
pub(crate) struct Call<'s> {
    pub conn: &'s Arc<Conn>,
    pub so: BriefGuard<'s, Socket>,
    pub work: Work,
}

/// Whether who holds `so` of the connection may run protocol code for it.
#[inline]
pub(super) fn is_open(cx: &Context<'_>, conn: &Conn) -> bool {
    cx.entry == Entry::Process && !conn.is_home_shared() && conn.perimeter().is_vacant()
}

/// Runs output on a visit. For a caller who settles at once.
#[inline]
pub(super) fn output(cx: &mut Context<'_>, conn: &Arc<Conn>, so: BriefGuard<'_, Socket>) {
    if let Some((_, peer)) = cx.ends
        && so.rcv.cpu == cx.cpu
    {
        // Its lines are what the segment is about to touch; from another core they would be taken away.
        Place::of(&**peer, HOT_LEN).fetch_ahead();
    }
    run(cx, conn, so, engine::finish);
}

/// Runs the segment of a call, and output. For a caller who settles at once.
#[inline]
pub(super) fn answer(cx: &mut Context<'_>, call: Call<'_>) {
    let Call { conn, so, work } = call;
    run(cx, conn, so, |cx, pcb, conn, so| {
        engine::step(cx, pcb, conn, so, work);
        engine::finish(cx, pcb, conn, so);
    });
}

/// Tries to lock the other end for a call, with a segment of `text_len` bytes. More than one segment is better left in the queue, to be
/// run with one output; so it is if another call is due.
#[inline]
pub(super) fn call<'s>(
    cx: &Context<'s>,
    to: &OtherEnd<'s>,
    text_len: usize,
) -> Option<(&'s Arc<Conn>, BriefGuard<'s, Socket>)> {
    match to {
        OtherEnd::Lent(conn) if cx.is_visiting && cx.call.is_none() && text_len <= HOSTED_MAX => {
            if is_open(cx, conn) { Some((conn, conn.so.try_lock()?)) } else { None }
        }
        OtherEnd::Lent(_) | OtherEnd::Own(_) => None,
    }
}

#[inline(always)]
fn run(
    cx: &mut Context<'_>,
    conn: &Arc<Conn>,
    mut so: BriefGuard<'_, Socket>,
    work: impl FnOnce(&mut Context<'_>, &mut Pcb<Data>, &Arc<Conn>, &mut Buffers),
) {
    cx.core.count(counter::ENTERED);
    cx.is_visiting = true;
    contain::guarded(cx, conn, &mut so, "a visit", work);
    cx.is_visiting = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::Grain;
    use crate::Stack;
    use crate::TcpListener;
    use crate::TcpStream;

    fn pair(config: Config) -> (Stack, TcpStream, TcpStream) {
        let stack = Stack::new(config).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        (stack, client, server)
    }

    /// No thread but the test's.
    fn driven() -> Config {
        Config { workers: 0, ..Config::default() }
    }

    /// Output of the client on a visit, as far as the call that comes of it. True if there is one.
    fn calls(stack: &Stack, client: &TcpStream, server: &TcpStream) -> bool {
        Context::run(stack.core().unwrap(), |cx| {
            cx.ends = Some((client.conn().unwrap(), server.conn().unwrap()));
            let mut so = client.conn().unwrap().so.lock();
            so.snd.chain.extend_from_slice(&stack.core().unwrap().pool, b"x").unwrap();
            output(cx, client.conn().unwrap(), so);
            cx.call.is_some()
        })
    }

    #[test]
    fn what_is_sent_on_a_visit_is_run_on_a_call() {
        let (stack, client, server) = pair(driven());
        assert!(calls(&stack, &client, &server));
        assert_eq!(server.available().unwrap(), 1);
        assert!(server.conn().unwrap().so.try_lock().is_some(), "the call is over");
    }

    #[test]
    fn who_is_inside_or_has_the_mutex_is_not_called_on() {
        let (stack, client, server) = pair(driven());
        let inside = server.conn().unwrap().perimeter().try_enter().unwrap();
        assert!(!calls(&stack, &client, &server));
        Context::run(stack.core().unwrap(), |cx| engine::drive(cx, inside, server.conn().unwrap(), 0));
        assert_eq!(server.available().unwrap(), 1, "left in the queue, it was run by who was inside");
        let so = server.conn().unwrap().so.lock();
        let is_called = |cx: &mut Context<'_>| {
            cx.is_visiting = true;
            call(cx, &OtherEnd::Lent(server.conn().unwrap()), 1).is_some()
        };
        assert!(!Context::run(stack.core().unwrap(), is_called));
        drop(so);
        assert!(Context::run(stack.core().unwrap(), is_called));
    }

    #[test]
    fn a_shared_perimeter_and_older_settings_are_not_open() {
        let open = |config| {
            let (stack, client, _server) = pair(config);
            Context::run(stack.core().unwrap(), |cx| is_open(cx, client.conn().unwrap()))
        };
        assert!(open(driven()));
        assert!(!open(Config { grain: Grain::Global, ..driven() }));
        // Without workers everybody drains.
        assert!(!open(Config { entry: Entry::NoDrain, workers: 1, ..Config::default() }));
    }
}
