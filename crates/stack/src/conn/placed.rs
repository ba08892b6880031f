//! Segments whose text lies in a reader's buffer already: into the connection's perimeter and out again.
//!
//! A segment is accepted if it is the expected one (`Pcb::on_expected`) and `so_rcv` is empty, which is looked at under the
//! same hold of the buffers' mutex: the reader returns its text, and nothing that comes before it is left behind. Text for
//! which there was no room goes to `so_rcv` as always, so it ends the accepting. An accepted segment is neither announced
//! to other readers nor reported as readable: there is nothing to read.
//!
//! If the perimeter is occupied nothing is accepted; the caller brings the segments as `conn/run.rs` does. The way out is
//! the one of all. It must not know frames. Tests: `tests/placed.rs`.

use sockeye_proto::tcp::meter::Tally;
use sockeye_sync::facade::Arc;

use super::outbox::Context;
use super::sockbuf::RecvBuf;
use super::{Conn, engine, run, tune};
use crate::base::payload::Data;
use crate::input::count;
use crate::input::placed::Placed;
use crate::stack::counter;

/// Takes from `segments`, which are in a row for `conn`, those that can be accepted. Returns how many bytes of the
/// reader's buffer are received thereby.
pub(crate) fn input(
    cx: &mut Context<'_>,
    conn: &Arc<Conn>,
    segments: &mut std::iter::Peekable<impl Iterator<Item = Placed>>,
) -> usize {
    if segments.peek().is_none() {
        return 0;
    }
    let core = cx.core;
    let Some(mut inside) = conn.perimeter().try_enter() else {
        core.input.count(count::CONTENDED, 1);
        return 0;
    };
    core.input.count(count::ACQUISITIONS, 1);
    core.count(counter::ENTERED);
    let pcb = conn.pcb.get(&mut inside);
    let snd_una = pcb.snd_una();
    let (mut ran, mut bytes, mut text, mut came) = (0, 0, None, Tally::default());
    let mut so = conn.so.lock();
    while takes_text(&so.rcv)
        && let Some(next) = segments.peek()
    {
        cx.now = pcb.clock(cx.now);
        let len = next.at.len() + next.rest.len();
        let expected = u32::try_from(len).ok().and_then(|len| pcb.on_expected(&next.header, len, cx.now));
        let Some((effect, placed)) = expected.and_then(|effect| Some((effect, segments.next()?))) else {
            break;
        };
        core.count(counter::SEGMENTS_IN);
        if effect.acked > 0 {
            engine::acked(cx, conn, &mut so, effect.acked);
        }
        so.rcv.nxt += u32::try_from(placed.at.len()).unwrap_or(u32::MAX);
        so.rcv.cpu = cx.cpu;
        if len > 0 {
            text = Some(placed.header.options.timestamps.map(|ts| ts.ecr));
            came.with_text += 1;
        }
        if !placed.rest.is_empty() {
            engine::deliver(cx, conn, &mut so, Data(placed.rest));
        }
        came.segments += 1;
        (ran, bytes) = (ran + 1, bytes + placed.at.len());
    }
    if ran > 0 {
        core.input.count(count::run_of(ran), 1);
        core.input.count(count::PLACED, ran as u64);
        pcb.meter(came, Tally::default(), engine::is_full(&so), cx.now);
        tune::after_run(cx, pcb, conn, &mut so, text);
        engine::finish(cx, pcb, conn, &mut so);
        run::confirm(cx, pcb, conn, snd_una);
    }
    drop(so);
    engine::drive(cx, inside, conn, ran);
    bytes
}

/// Whether text that comes next may be returned by a read at once.
fn takes_text(rcv: &RecvBuf) -> bool {
    rcv.chain.is_empty() && rcv.urgent.is_none() && !(rcv.eof || rcv.shut || rcv.closed)
}
