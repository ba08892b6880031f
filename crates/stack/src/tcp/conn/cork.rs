//! Small writes are held back while the other end is busy, and sent together.
//!
//! A segment for an end whose lock is held, or whose backlog has items, waits there. A small write behind it wins nothing by becoming a
//! segment of its own: it is left in `so_snd`, and an item in the other end's backlog ([`Work::Uncork`]) has it sent once earlier items were
//! run. Until then further small writes are appended and nothing else. (Linux holds them back while an earlier packet is in a queue of the
//! device: `tcp_autocorking`.) No write waits longer than its segment would have.
//!
//! # Why nothing stays behind
//! The item is left under the sender's lock, in the hold that appended the bytes. The thread that takes it out of the backlog notes the sender in
//! the outbox, and output runs there once no lock is held. If the item was the first, this thread looks after it as after a segment
//! (`sync/src/socket_lock.rs`). Any output in between sends everything, and sets [`SendBuf::due_at`](super::sockbuf::SendBuf::due_at) anew;
//! the item then finds nothing to do.
//!
//! At most [`HELD_MAX`] bytes are held back for one item. Tests: below.

use sockeye_sync::facade::Arc;
use sockeye_sync::socket_lock::Left;

use super::outbox::Context;
use super::user::Ends;
use super::{Conn, Locked, Work, serve};
use crate::rt::counter;
use crate::tcp::Core;
use crate::tcp::discipline::{Chosen, Discipline};

/// Bytes of a write that may be held back, and bytes of which no more are held back.
const HELD_MAX: usize = 4096;

/// Holds back a write of `bytes` bytes that were appended, and lets go, if the other end is busy. Else the lock comes back, and the bytes are
/// to be sent.
#[inline]
pub(super) fn hold_back<'c>(
    core: &Core,
    ends: &Ends<'_>,
    so: Locked<'c>,
    bytes: usize,
) -> Option<Locked<'c>> {
    match ends.both() {
        Some((_, peer)) if bytes <= HELD_MAX && is_busy(peer) => hold_back_from(core, ends, peer, so),
        Some(_) | None => Some(so),
    }
}

/// Whether a segment for `peer` would have to wait. A hint.
#[inline]
fn is_busy(peer: &Conn) -> bool {
    (peer.so.looks_held() || peer.so.looks_left()) && !Chosen::is_queued_before_lock(peer) && !peer.is_dead()
}

fn hold_back_from<'c>(
    core: &Core,
    ends: &Ends<'_>,
    peer: &Arc<Conn>,
    mut so: Locked<'c>,
) -> Option<Locked<'c>> {
    let is_first = match peer.so.leave(Work::Uncork(Arc::clone(ends.conn))) {
        Left::First => true,
        Left::Behind => false,
        Left::Dead(_) => return Some(so),
    };
    core.count(counter::CORKED);
    // More than that is worth a segment.
    so.snd.due_at = so.snd.len().saturating_add(HELD_MAX as u32);
    serve::release(core, ends, so);
    if is_first {
        Context::run(core, |cx| {
            cx.ends = ends.both();
            serve::look(cx, peer);
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::{Config, Stack, TcpListener, TcpStream};

    fn pair() -> (Stack, TcpStream, TcpStream) {
        let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        client.set_nodelay(true).unwrap();
        server.set_nonblocking(true).unwrap();
        // The writer knows the other end from its second write on.
        (&client).write_all(b"12").unwrap();
        (&client).write_all(b"3").unwrap();
        (&server).read_exact(&mut [0; 3]).unwrap();
        (stack, client, server)
    }

    fn count(stack: &Stack, name: &str) -> u64 {
        stack.counters().into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Writes each of `writes` while the server is busy. Returns segments that were sent for it until it is not any more.
    fn write_while_busy(stack: &Stack, client: &mut TcpStream, server: &TcpStream, writes: &[&[u8]]) -> u64 {
        let before = count(stack, "segments_out");
        let conn = server.conn().unwrap();
        let locked = conn.so.enter();
        for write in writes {
            client.write_all(write).unwrap();
        }
        Context::run(stack.core().unwrap(), |cx| {
            serve::let_go(cx, conn, locked, 0);
            serve::answer(cx);
        });
        count(stack, "segments_out") - before
    }

    #[test]
    fn small_writes_to_a_busy_end_leave_together() {
        let (stack, mut client, mut server) = pair();
        let corked = count(&stack, "writes_corked");
        let alone = write_while_busy(&stack, &mut client, &server, &[b"x"]);
        server.read_exact(&mut [0]).unwrap();
        assert_eq!(write_while_busy(&stack, &mut client, &server, &[b"a", b"b", b"c"]), alone);
        assert_eq!(count(&stack, "writes_corked") - corked, 2);
        let mut got = [0; 4];
        assert_eq!(server.read(&mut got).unwrap(), 3);
        assert_eq!(&got[..3], b"abc");
    }

    #[test]
    fn held_back_bytes_are_bounded_and_large_writes_are_not_held_back() {
        let (stack, mut client, mut server) = pair();
        let (small, large) = ([b's'; 1000], vec![b'l'; 40_000]);
        let corked = count(&stack, "writes_corked");
        write_while_busy(&stack, &mut client, &server, &[&small[..]; 12]);
        assert_eq!(
            count(&stack, "writes_corked") - corked,
            3,
            "one for each 4,096 bytes and one for the rest"
        );
        server.read_exact(&mut [0; 12_000]).unwrap();
        write_while_busy(&stack, &mut client, &server, &[&large[..]]);
        assert_eq!(count(&stack, "writes_corked") - corked, 3);
        server.read_exact(&mut vec![0; 40_000]).unwrap();
    }

    #[test]
    fn a_close_sends_the_bytes_that_are_held_back() {
        let (stack, mut client, mut server) = pair();
        let conn = server.conn().unwrap();
        let locked = conn.so.enter();
        client.write_all(b"last").unwrap();
        drop(client);
        Context::run(stack.core().unwrap(), |cx| {
            serve::let_go(cx, conn, locked, 0);
            serve::answer(cx);
        });
        let mut got = Vec::new();
        assert_eq!(server.read_to_end(&mut got).unwrap(), 4);
        assert_eq!(got, b"last");
    }
}
