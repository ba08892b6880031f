//! Direct data placement: segments whose text lies in a reader's buffer already, under the connection's lock, got by trying.
//!
//! A segment is accepted if it is the expected one (`Pcb::on_expected`) and `so_rcv` is empty, which is looked at under the
//! same hold of the socket lock: the reader returns its text, and nothing that comes before it is left behind. Text for
//! which there was no room goes to `so_rcv` as always, so it ends the accepting. An accepted segment is neither announced
//! to other readers nor reported as readable: there is nothing to read.
//!
//! If the lock is held, or something was left for it, nothing is accepted; the caller brings the segments as `conn/run.rs` does. The way out is
//! the one of all. It must not know frames. Tests: `tests/direct_placement.rs`.

use sockeye_proto::tcp::meter::Tally;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_sync::facade::Arc;

use super::outbox::Context;
use super::sockbuf::{Buffers, RecvBuf, Socket};
use super::{Conn, contain, engine, run, serve, tune};
use crate::base::payload::Data;
use crate::inet::input::DirectSegment;
use crate::inet::input::count;
use crate::rt::counter;
use crate::rt::failpoints::{self, Point};

/// Takes from `segments`, which are in a row for `conn`, those that can be accepted. Returns how many bytes of the
/// reader's buffer are received thereby.
pub(crate) fn input(
    cx: &mut Context<'_>,
    conn: &Arc<Conn>,
    segments: &mut std::iter::Peekable<impl Iterator<Item = DirectSegment>>,
) -> usize {
    if segments.peek().is_none() {
        return 0;
    }
    let core = cx.core;
    let mut accept = |cx: &mut Context<'_>, so: &mut Socket| {
        core.input.count(count::ACQUISITIONS, 1);
        core.count(counter::ENTERED);
        let came =
            contain::guarded(cx, conn, so, "input", |cx, pcb, conn, so| hold(cx, pcb, conn, so, segments));
        // After a panic the reader is told of that, and nothing in its buffer counts.
        came.unwrap_or_default()
    };
    let came = conn.so.try_enter().map(|mut locked| {
        // What was left before comes first, and then nothing is accepted.
        let came = if locked.has_backlog() { Came::default() } else { accept(cx, &mut locked) };
        serve::let_go(cx, conn, locked, came.ran());
        serve::answer(cx);
        came
    });
    if came.is_none() {
        core.input.count(count::CONTENDED, 1);
    }
    came.map_or(0, |came| came.bytes)
}

/// Accepts as many of `segments` as can be, under a hold of the socket lock, and runs output.
fn hold(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    segments: &mut std::iter::Peekable<impl Iterator<Item = DirectSegment>>,
) -> Came {
    let core = cx.core;
    let snd_una = pcb.snd_una();
    let mut came = Came::default();
    while takes_text(&so.rcv) && accept(cx, pcb, conn, so, segments, &mut came) {}
    let ran = came.tally.segments;
    if ran > 0 {
        failpoints::hit(Point::Direct, failpoints::of_conn(conn));
        core.count_many(counter::SEGMENTS_IN, ran);
        core.input.count(count::run_of(ran as usize), 1);
        core.input.count(count::DIRECT, u64::from(ran));
        pcb.meter(came.tally, Tally::default(), cx.now);
        tune::after_run(cx, pcb, conn, so, came.text);
        if came.bytes > 0 && so.rcv.chain.is_empty() {
            // The reader has taken everything, without a receive that could say so.
            pcb.on_emptied();
        }
        engine::finish(cx, pcb, conn, so);
        run::confirm(cx, pcb, conn, snd_una);
    }
    came
}

/// What was accepted.
#[derive(Default)]
struct Came {
    tally: Tally,
    /// Bytes of text in the reader's buffer.
    bytes: usize,
    /// The TSecr of the latest segment with text; the outer `None`: there was no text.
    text: Option<Option<u32>>,
}

impl Came {
    fn ran(&self) -> usize {
        self.tally.segments as usize
    }
}

/// Accepts the next of `segments`, and as one with it those after it that continue it and nothing else (`TcpConfig::gro`).
/// `false` if it is not the expected one, and is still the next.
fn accept(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    segments: &mut std::iter::Peekable<impl Iterator<Item = DirectSegment>>,
    came: &mut Came,
) -> bool {
    let Some(next) = segments.peek() else { return false };
    cx.now = pcb.clock(cx.now);
    if next.text_len() == 0 {
        let Some(acked) = pcb.on_expected(&next.header, 0, cx.now) else { return false };
        segments.next();
        came.tally.segments += 1;
        if acked > 0 {
            engine::acked(cx, conn, so, acked);
        }
        return true;
    }
    let Some(mut joined) = pcb.join_from(&next.header, next.text_len()) else { return false };
    let Some(mut last) = segments.next() else { return false };
    came.bytes += last.at.len();
    // Text that had no room is delivered, and what comes after it with it.
    while cx.core.config.tcp.gro
        && last.rest.is_empty()
        && let Some(direct) = segments.next_if(|next| joined.add(&next.header, next.text_len()))
    {
        came.bytes += direct.at.len();
        last = direct;
    }
    came.tally.segments += joined.count();
    came.tally.with_text += joined.count();
    came.text = Some(last.header.options.timestamps.map(|ts| ts.ecr));
    let rest_len = u32::try_from(last.rest.len()).unwrap_or(u32::MAX);
    run::take_joined(cx, pcb, conn, so, &joined, joined.text_len() - rest_len);
    if !last.rest.is_empty() {
        engine::deliver(cx, conn, so, Data(last.rest));
    }
    true
}

/// Whether text that comes next may be returned by a read at once.
fn takes_text(rcv: &RecvBuf) -> bool {
    rcv.chain.is_empty() && rcv.urgent.is_none() && !(rcv.eof || rcv.shut || rcv.closed)
}
