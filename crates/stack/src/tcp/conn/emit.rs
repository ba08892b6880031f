//! Where a segment of a connection goes: to its receiver in this process, to a device, or to the result of a
//! lookup.
//!
//! Called under the sender's lock: runs and wake-ups for it go into the outbox, in order. Does not depend on
//! why the segment is sent. Tests: the socket layer's.

use std::hint::cold_path;

use sockeye_proto::tcp::segment::{Flags, Head, Header};
use sockeye_sync::facade::Arc;
use sockeye_sync::socket_lock::{Left, Turn};

use super::outbox::{Beside, Context, OtherEnd, Routed, Unowned};
use super::transmit::Cut;
use super::{Conn, Work, transmit};
use crate::base::payload::Data;
use crate::rt::counter;
use crate::tcp::discipline::{Chosen, Discipline};

/// Bytes of text, at most, of a segment that its sender runs for the receiver at once.
const AT_ONCE_MAX: usize = 4096;

/// Hands a segment to `peer`, while the lock of the connection that sends it is held. It is run once that is let go.
fn hand_over<'s>(cx: &mut Context<'s>, conn: &Conn, peer: OtherEnd<'s>, work: Work, text_len: usize) {
    let Some(work) = Chosen::hand_over(cx, &peer, work) else { return };
    if let Some(beside) = &mut cx.beside
        && Arc::ptr_eq(beside.conn, &peer)
    {
        return beside.locked.push(work);
    }
    let left = match peer {
        // Only a thread that runs items under a socket lock answers at once. Bulk is better left: the peer's reader need not wait for the rest of
        // our section.
        OtherEnd::Lent(peer)
            if text_len <= AT_ONCE_MAX && cx.beside.is_none() && !Chosen::is_queued_before_lock(conn) =>
        {
            match peer.so.try_run(work) {
                Turn::Mine(locked, work) => {
                    cx.beside = Some(Beside { conn: peer, locked, work });
                    return;
                }
                Turn::Left(left) => left,
            }
        }
        OtherEnd::Lent(_) | OtherEnd::Own(_) => peer.so.leave(work),
    };
    match left {
        // This thread runs it once it holds no lock, if no other thread has by then.
        Left::First => cx.outbox.filled.push_back(Arc::clone(&peer)),
        Left::Behind => cx.core.count(counter::QUEUED),
        Left::Dead(_) => cx.core.count(counter::SEGMENTS_LOST),
    }
}

/// Sends one segment without payload.
pub(super) fn emit_bare(cx: &mut Context<'_>, conn: &Arc<Conn>, header: Header) {
    emit(cx, conn, &mut header.into(), &mut Data::default(), Cut { mss: 0, is_ours: false });
}

/// Sends one segment: into the queue of a receiver that is known; as a frame, if it leaves the stack; else by lookup after
/// leaving. `cut` is for a device. Head and payload are taken, where they go: a copy right after they
/// were made waits until the stores that made them are through.
pub(super) fn emit(cx: &mut Context<'_>, conn: &Arc<Conn>, head: &mut Head, payload: &mut Data, cut: Cut) {
    cx.core.count(counter::SEGMENTS_OUT);
    if head.flags().has(Flags::RST) {
        cold_path();
        cx.core.count(counter::RESETS_OUT);
    }
    if !cx.core.loopback.encodes()
        && let Some(peer) = cx.other_end(conn)
    {
        let text_len = payload.0.len();
        return hand_over(cx, conn, peer, Work::take_segment(head, payload), text_len);
    }
    let (header, payload) = match head.take_parts() {
        Ok(plain) => (Header::from(plain), std::mem::take(payload)),
        Err(full) => (*full, std::mem::take(payload)),
    };
    if conn.via.last().is_wire() {
        return transmit::push(cx, conn, &header, payload, cut);
    }
    let to = conn.tuple.reversed();
    cx.outbox.routed.push_back(Routed {
        from: Some(Arc::clone(conn)),
        to,
        header,
        payload,
        unowned: Unowned::default(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::conn::serve;
    use crate::{Config, Stack, TcpListener, TcpStream};

    fn pair(config: Config) -> (Stack, TcpStream, TcpStream) {
        let stack = Stack::new(config).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        client.set_nodelay(true).unwrap();
        (stack, client, server)
    }

    /// No thread but the test's.
    fn driven() -> Config {
        Config { workers: 0, ..Config::default() }
    }

    /// Lets the client send a byte. Returns the result of `then` before this thread does anything else.
    fn send<R>(
        stack: &Stack,
        (client, server): (&TcpStream, &TcpStream),
        then: impl FnOnce(&mut Context<'_>) -> R,
    ) -> R {
        let (conn, peer) = (client.conn().unwrap(), server.conn().unwrap());
        Context::run(stack.core().unwrap(), |cx| {
            cx.ends = Some((conn, peer));
            conn.so
                .lock()
                .snd
                .chain
                .extend_from_slice(&stack.core::<crate::tcp::Core>().unwrap().pool, b"x")
                .unwrap();
            Chosen::enter(cx, conn, Work::Notify);
            then(cx)
        })
    }

    #[test]
    fn segments_for_a_free_receiver_are_run_at_once() {
        let (stack, client, server) = pair(driven());
        send(&stack, (&client, &server), |cx| {
            assert!(cx.beside.is_none() && cx.outbox.filled.is_empty());
            assert_eq!(server.available().unwrap(), 1);
        });
        assert!(server.conn().unwrap().so.try_lock().is_some(), "its lock is free again");
    }

    #[test]
    fn a_busy_receiver_runs_the_segments_when_it_unlocks() {
        let (stack, client, server) = pair(driven());
        let receiver = server.conn().unwrap();
        let locked = receiver.so.try_enter().unwrap();
        send(&stack, (&client, &server), |cx| assert_eq!(cx.outbox.filled.len(), 1));
        assert!(locked.has_backlog(), "the debtor has left");
        Context::run(stack.core().unwrap(), |cx| serve::let_go(cx, receiver, locked, 0));
        assert_eq!(server.available().unwrap(), 1);
    }

    #[test]
    fn segments_that_are_run_first_keep_their_place() {
        let (stack, client, server) = pair(driven());
        let receiver = server.conn().unwrap();
        let locked = receiver.so.try_enter().unwrap();
        send(&stack, (&client, &server), |_| ());
        // Left as by a thread that has to do something else first.
        assert!(locked.leave().is_some());
        send(&stack, (&client, &server), |_| ());
        assert_eq!(server.available().unwrap(), 2);
        let hole = receiver.so.lock().pcb.has_hole();
        assert!(!hole && !receiver.has_hole());
    }

    #[test]
    fn a_full_batch_is_left_to_a_worker_or_to_the_driver() {
        let (stack, client, _server) = pair(driven());
        let conn = client.conn().unwrap();
        let locked = conn.so.try_enter().unwrap();
        Context::run(stack.core().unwrap(), |cx| {
            for _ in 0..300 {
                // The runner finds it when it lets go.
                let _left = conn.so.leave(Work::Notify);
            }
            serve::let_go(cx, conn, locked, 0);
        });
        assert!(conn.so.try_enter().is_some_and(|locked| {
            let has_rest = locked.has_backlog();
            // As it was.
            let _left = locked.leave();
            has_rest
        }));
        let core: &crate::stack::Core = stack.core().unwrap();
        core.workers.turn(core, 0, &mut Vec::new());
        assert!(conn.so.try_enter().is_some_and(|locked| locked.run().is_ok()));
    }
}
