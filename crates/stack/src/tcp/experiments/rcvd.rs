//! How a reader reports to the protocol that it has taken bytes from `so_rcv` (BSD's `pru_rcvd`): the older settings of
//! `rcvd`.
//!
//! | setting | after a receive that took bytes | waits |
//! |---|---|---|
//! | `sync` | the connection is put into its queue, and a worker is woken | for the protocol's reply |
//! | `async` | the connection's one message is posted, if it is not on its way already | never |
//! | `precheck`, the product's | as `async`, but only if something is due: `tcp/conn/rcvd.rs` | never |
//!
//! Where a message is run follows `Entry`: by a worker with `fill`, as on DragonFly, else by the reader itself if its squeue is free. A
//! message of `sync` is always a worker's, unless another thread that is inside comes first.
//!
//! # Why no reply is lost, and no thread waits for itself
//! The protocol of requests and replies is `sync/src/experiments/replies.rs`.
//!
//! A worker, and the thread that drives a stack without workers, never asks for a reply: it would have to give it itself. (A waker may
//! run anything on a worker, a receive too.) No other thread is needed for a reply: the reader holds a handle of the stack, so its workers
//! live; and if the squeue is poisoned, which ends all answers, the reader notices within [`REPLY_LOOK`]. The wait is not for data, so
//! neither a timeout of the socket nor O_NONBLOCK ends it.
//!
//! Tests: `tests/experiments/rcvd.rs`; the order in `crates/sync/tests/loom/reply.rs`.

use std::time::{Duration, Instant};

use sockeye_sync::facade::Arc;
use sockeye_sync::{Replies, Spin};

use super::{Configured, squeue};
use crate::experiments::Rcvd;
use crate::rt::counter;
use crate::rt::threads;
use crate::tcp::Core;
use crate::tcp::conn::outbox::{Context, Wake};
use crate::tcp::conn::sockbuf::Buffers;
use crate::tcp::conn::user::Ends;
use crate::tcp::conn::{Conn, Work, rcvd, reason};
use crate::tcp::discipline::Discipline;

/// Whether a reader owes a message for the bytes that it has just unlinked.
#[inline]
pub(super) fn owes_message(core: &Core, so: &Buffers) -> bool {
    match core.config.experiments.rcvd {
        Rcvd::Precheck => so.rcv.ack_due() || so.rcv.update_due(),
        Rcvd::Async | Rcvd::Sync => true,
    }
}

/// Whether the calling thread waits for a reply to its message.
fn awaits_reply(core: &Core) -> bool {
    core.config.experiments.rcvd == Rcvd::Sync && core.config.workers > 0 && !threads::is_worker()
}

/// Whether a reader runs its message with the lock that it has.
#[inline]
pub(super) fn runs_own_message(core: &Core, conn: &Conn) -> bool {
    squeue::of(conn).is_none() && !awaits_reply(core)
}

/// Brings a message. Blocks only for a reply.
#[inline]
pub(super) fn bring_message(core: &Core, ends: &Ends<'_>) {
    if awaits_reply(core) {
        return ask(core, ends.conn);
    }
    Context::run(core, |cx| {
        cx.ends = ends.both();
        if let Some(work) = rcvd::message(core, ends.conn) {
            Configured::enter(cx, ends.conn, work);
        }
    });
}

/// Sends the protocol a message and sleeps for the reply.
#[cold]
fn ask(core: &Core, conn: &Arc<Conn>) {
    // With another setting no reply is owed.
    let Some(replies) = replies(conn) else { return };
    let request = replies.ask();
    if rcvd::is_posted(core, conn, reason::RCVD | reason::REPLY) {
        squeue::fill(core, conn, Work::Notify);
    }
    core.count(counter::RCVD_SLEEPS);
    while let Some(ticket) = replies.ticket(request) {
        let deadline = Some(Instant::now() + REPLY_LOOK);
        replies.queue().wait(ticket, deadline, Spin::up_to(core.config.spin_max));
        // The thread that ended the connection has replied to all readers that had asked by then.
        if conn.is_dead() || squeue::is_poisoned(conn) {
            return;
        }
    }
}

/// The reply to all readers that have asked, after the bits were taken.
#[cold]
pub(super) fn reply(cx: &mut Context<'_>, conn: &Conn) {
    let Some(replies) = replies(conn) else { return };
    if replies.reply() {
        cx.outbox.wakes.push(Wake::Threads(Arc::clone(replies.queue())));
    }
}

fn replies(conn: &Conn) -> Option<&Replies> {
    conn.discipline.rare.as_deref().map(|rare| &rare.replies)
}

/// How long a reader sleeps for a reply before it looks whether there can still be one.
const REPLY_LOOK: Duration = Duration::from_millis(100);
