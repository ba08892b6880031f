//! Deferred output: one output for each connection of a batch, however its items are mixed with those of others.
//!
//! In a squeue that several connections share, the items of one come between those of others. Output after each item
//! would send an acknowledgment for each; so the connections of a batch are *marked* as their items are run, and output
//! runs once for each at the end (DragonFly's `tcp_willblock`). A batch is at most [`BATCH_MAX`] items long, so that
//! the effects of the first one do not wait for ever.
//!
//! Between its last item and its output a connection's buffers are unlocked, and the agreements in them
//! ([`sockbuf`](crate::tcp::conn::sockbuf)) are of the output before. That is safe: the output that is still to come looks at
//! whatever the buffers hold by then, and no thread leaves the squeue before it. A writer or reader that acts on the
//! older value at worst posts a message too many.
//!
//! A connection's own squeue has no use for this: all its items are one run. Tests: at the end.

use sockeye_sync::facade::Arc;

use super::squeue::{self, In, Item};
use crate::tcp::conn::engine::{self, RUN_MAX};
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::{Conn, Work, contain};

/// Most items of a batch, and therefore most connections marked at a time.
pub(super) const BATCH_MAX: usize = 32;

/// Runs `first`, which is for `own`, and at most a batch of the items in a shared squeue. `own` is the connection that
/// items without a name are for. Returns how many items it ran.
pub(super) fn batch(
    cx: &mut Context<'_>,
    inside: &mut In<'_>,
    own: &Arc<Conn>,
    first: Option<Work>,
) -> usize {
    let mut ran = 0;
    let mut next = first.map(|work| Item { conn: None, work });
    while ran < BATCH_MAX
        && let Some(Item { conn: of, work }) = next.take().or_else(|| inside.pop())
    {
        let conn = of.unwrap_or_else(|| Arc::clone(own));
        let run_max = RUN_MAX.min(BATCH_MAX - ran);
        ran += squeue::run(cx, inside, &conn, &mut conn.so.lock(), work, run_max);
        mark(cx, conn);
    }
    settle(cx);
    ran
}

/// Runs the head of the queue and the following items for the same connection, at most `max` items, and its
/// output.
pub(super) fn head(cx: &mut Context<'_>, inside: &mut In<'_>, own: &Arc<Conn>, max: usize) -> usize {
    let Some(Item { conn: of, work }) = inside.pop() else {
        return 0;
    };
    item(cx, inside, of.as_ref().unwrap_or(own), work, max)
}

/// Runs `work` for `conn` and the next queued items for the same connection, at most `max` items in all, and the
/// output.
pub(super) fn item(
    cx: &mut Context<'_>,
    inside: &mut In<'_>,
    conn: &Arc<Conn>,
    work: Work,
    max: usize,
) -> usize {
    let mut so = conn.so.lock();
    let ran = squeue::run(cx, inside, conn, &mut so, work, max);
    contain::guarded(cx, conn, &mut so, "output", engine::finish);
    ran
}

fn mark(cx: &mut Context<'_>, conn: Arc<Conn>) {
    // From the end: the same connection comes again soon or not at all.
    if !cx.outbox.discipline.marked.iter().rev().any(|known| Arc::ptr_eq(known, &conn)) {
        cx.outbox.discipline.marked.push(conn);
    }
}

/// The output of every marked connection.
fn settle(cx: &mut Context<'_>) {
    while let Some(conn) = cx.outbox.discipline.marked.pop() {
        contain::guarded(cx, &conn, &mut conn.so.lock(), "output", engine::finish);
    }
}

#[cfg(test)]
mod tests {
    use sockeye_mbuf::Chain;
    use sockeye_proto::tcp::segment::{Flags, Header, Options};
    use sockeye_sync::Outcome;

    use super::*;
    use crate::Config;
    use crate::Stack;
    use crate::TcpConfig;
    use crate::TcpListener;
    use crate::TcpStream;
    use crate::base::payload::Data;
    use crate::experiments::Experiments;
    use crate::experiments::Grain;
    use crate::rt::counter;

    /// A segment of ten bytes, the `number`th that the connection has not seen yet.
    fn segment(stack: &Stack, conn: &Arc<Conn>, number: u32) -> Work {
        let so = conn.so.lock();
        let (ack, seq) = (so.pcb.snd_una(), so.rcv.nxt + number * 10);
        let flags = Flags::ACK.with(Flags::PSH);
        let header =
            Header { seq, ack, flags, window: u16::MAX, urgent: 0, gso_size: 0, options: Options::default() };
        let mut payload = Chain::new();
        payload.extend_from_slice(&stack.core::<crate::rt::env::Env>().unwrap().pool, &[0; 10]).unwrap();
        Work::segment(header.into(), Data(payload))
    }

    #[test]
    fn each_connection_of_a_mixed_batch_has_one_output() {
        let config = Config {
            workers: 0,
            tcp: TcpConfig { timestamps: false, ..TcpConfig::default() },
            experiments: Experiments { grain: Grain::Global, ..Experiments::default() },
            ..Config::default()
        };
        let stack = Stack::new(config).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let pairs: Vec<_> = (0..2)
            .map(|_| {
                let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
                (client, listener.accept().unwrap().0)
            })
            .collect();
        let first = Arc::clone(pairs[0].1.conn().unwrap());
        let squeue = squeue::of(&first).unwrap();
        let mut inside = squeue.try_enter().unwrap();
        // Four segments for each, in turn. Every second one asks for an acknowledgment at once.
        for number in 0..4 {
            for (_, server) in &pairs {
                let work = segment(&stack, server.conn().unwrap(), number);
                let _owned_by_us = squeue.fill(Item::new(squeue, server.conn().unwrap(), work));
            }
        }
        let sent = |stack: &Stack| {
            let counters = stack.counters();
            counters[counter::SEGMENTS_OUT].1
        };
        let before = sent(&stack);
        Context::run(stack.core().unwrap(), |cx| {
            assert_eq!(batch(cx, &mut inside, &first, None), 8);
            assert_eq!(sent(&stack) - before, 2, "one acknowledgment for each connection");
            assert!(cx.outbox.discipline.marked.is_empty());
            // The acknowledgments are in the same squeue, and mean nothing to ends that sent nothing.
            assert_eq!(inside.drain(usize::MAX, |_, _| ()), Outcome::Left);
        });
        assert!(pairs.iter().all(|(_, server)| server.available().unwrap() == 40));
    }
}
