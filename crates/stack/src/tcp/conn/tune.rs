//! Buffers that follow the path: `so_rcv` and `so_snd` of connections over an interface grow with their
//! throughput.
//!
//! Called under the socket lock after a run of packets, before output: the larger window leaves with the next
//! acknowledgment. A buffer whose size the application has set stays as it is (`SO_RCVBUF`, `SO_SNDBUF`, as on Linux),
//! nothing grows while half of the packet memory is taken, and nothing beyond an eighth of it: data behind a hole must
//! leave room for the data that fills it. Nothing shrinks either: a window that was advertised is not taken back.
//! Loopback does not come here; its buffers are as large as is fastest there.
//!
//! The pcb recommends sizes (`proto/src/tcp/rcv_tune.rs`), this file bounds them. Tests:
//! `crates/sim/tests/net/autotune.rs`.

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_sync::facade::Arc;

use super::outbox::Context;
use super::sockbuf::Buffers;
use super::{Conn, engine};
use crate::base::payload::Data;

/// Grows the buffers that should grow. `echo` is the TSecr of the latest segment with text, if there was one.
pub(super) fn after_run(
    cx: &mut Context<'_>,
    pcb: &mut Pcb<Data>,
    conn: &Arc<Conn>,
    so: &mut Buffers,
    text: Option<Option<u32>>,
) {
    let (config, share) = (&cx.core.config, share(cx));
    let (rcv_max, snd_max) = (config.rcvbuf_max.min(share), config.sndbuf_max.min(share));
    if so.rcv.auto
        && so.rcv.hiwat < rcv_max
        && let Some(echo) = text
    {
        let buffered = u32::try_from(so.rcv.chain.len()).unwrap_or(u32::MAX);
        let wanted = pcb.wanted_rcv_hiwat(buffered, echo, cx.now).map(|wanted| wanted.min(rcv_max));
        if let Some(wanted) = wanted.filter(|wanted| *wanted > so.rcv.hiwat && has_memory(cx)) {
            so.rcv.hiwat = wanted;
            pcb.set_rcv_hiwat(wanted);
        }
    }
    if so.snd.auto && so.snd.hiwat < snd_max && pcb.wanted_snd_hiwat() > so.snd.hiwat {
        let wanted = pcb.wanted_snd_hiwat().min(snd_max);
        if has_memory(cx) {
            so.snd.hiwat = wanted;
            if so.snd.is_writable() {
                engine::wake_writers(cx, conn, so);
            }
        }
    }
}

/// The most that one buffer grows to, as a share of the packet memory, bytes.
fn share(cx: &Context<'_>) -> u32 {
    u32::try_from(cx.core.pool.memory_max() / 8).unwrap_or(u32::MAX)
}

/// Whether there is memory for larger buffers.
fn has_memory(cx: &Context<'_>) -> bool {
    cx.core.pool.allocated() < cx.core.pool.memory_max() / 2
}
