//! How a reader tells the protocol that it has taken bytes from `so_rcv` (BSD's `pru_rcvd`): the switch `rcvd`.
//!
//! | setting | after a receive that took bytes | waits |
//! |---|---|---|
//! | `sync` | the connection is put into its owner's queue, and a worker is woken | for the owner's reply |
//! | `async` | the connection's one message is posted, if it is not on its way already | never |
//! | `precheck` | as `async`, but only if a window update is due, or an acknowledgment now that `so_rcv` is empty | never |
//!
//! Whether emptying `so_rcv` makes an acknowledgment due is the pcb's decision (`proto/src/tcp/delack.rs`); it stands in
//! `RecvBuf::acks_when_emptied`. When the message is run and bytes have come meanwhile, the receive that takes those decides.
//!
//! The message is [`Conn::notify`](super::Conn): the owner re-arms it *before* it looks at the buffers, so space that
//! is freed while he looks sends it again. Where it is run follows `Entry`: by a worker with `fill`, as on DragonFly,
//! else by the reader itself if the perimeter is free. A message of `sync` is always a worker's, unless somebody else
//! who is inside comes first.
//!
//! # Why no update is lost
//!
//! With `async` and `sync` by the order of re-arming and looking (head of `sockeye_sync`'s `notify.rs`). With
//! `precheck` besides by the section: bytes are unlinked and "due" is decided in one hold of the buffers' mutex, the
//! window is computed and its edge stored in one hold of the same (`sockbuf.rs`). So a reader may go to sleep for
//! more than the buffer can hold: the message for what he took was sent, or was not due, before he waits.
//!
//! The same holds for the acknowledgment: `acks_when_emptied` is stored in the hold that appended the bytes, and read in the hold
//! that unlinks the last of them. If bytes come between that and the message, the buffer is not empty when it is run; the flag is
//! still set then, and the read that takes them decides again.
//!
//! # Why no reply is lost, and nobody waits for himself
//!
//! A reader counts his request under the mutex of [`Replies`], then posts. The owner takes the bits, then that mutex,
//! so the requests whose bit he took are counted, and he answers all that are. A reader's ticket is taken in the
//! section that found his request unanswered. Replies are owed to no order: one answers all. The mutex is a leaf,
//! taken under the buffers' by the owner.
//!
//! A worker, and whoever drives a stack without workers, never asks for a reply: it would be himself who has to give
//! it. (A waker may run anything on a worker, a receive too.) Nobody else is needed for a reply: the reader holds a
//! handle of the stack, so its workers live; and if the perimeter is poisoned, which ends all answers, he notices within
//! [`REPLY_LOOK`]. The wait is not for data, so neither a timeout of the socket nor O_NONBLOCK ends it.
//!
//! Tests: `tests/rcvd.rs`; the orders in `crates/sync/tests/loom/{notify,precheck,reply}.rs`.

use std::time::{Duration, Instant};

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_sync::facade::Arc;
use sockeye_sync::{Mutex, Post, Spin, WaitQueue};

use super::outbox::{Context, Wake};
use super::sockbuf::Buffers;
use super::user::Ends;
use super::{Conn, Work, engine, reason};
use crate::base::payload::Data;
use crate::experiments::Rcvd;
use crate::rt::counter;
use crate::rt::threads;
use crate::tcp::Core;

/// What a reader owes the protocol for the bytes that he took.
#[derive(Clone, Copy)]
pub(super) enum Owed {
    /// Neither an update nor an acknowledgment is due.
    Nothing,
    /// The message.
    Message,
    /// The message, and to wait for the reply.
    Reply,
    /// It was run already.
    Paid,
}

/// The replies to a connection's readers, and where they wait for them; they take no room where no setting owes any.
pub(crate) struct Replies(Option<Box<Desk>>);

#[derive(Default)]
struct Desk {
    counts: Mutex<Counts>,
    /// Guarded by `counts`.
    wait: WaitQueue,
}

impl Replies {
    pub fn new(setting: Rcvd) -> Self {
        match setting {
            Rcvd::Sync => Self(Some(Box::default())),
            Rcvd::Async | Rcvd::Precheck => Self(None),
        }
    }

    /// Wakes who waits for one. Outside all locks.
    pub fn wake(&self) {
        self.0.iter().for_each(|desk| desk.wait.wake());
    }
}

/// Requests since the connection began. Both wrap; fewer than 2^31 are open at a time.
#[derive(Default)]
struct Counts {
    asked: u32,
    given: u32,
}

/// Decides, in the section of the buffers' mutex that unlinked the bytes.
#[inline]
pub(super) fn owed(core: &Core, so: &Buffers) -> Owed {
    match core.config.experiments.rcvd {
        Rcvd::Precheck if so.rcv.ack_due() || so.rcv.update_due() => Owed::Message,
        Rcvd::Precheck => Owed::Nothing,
        Rcvd::Async => Owed::Message,
        Rcvd::Sync if threads::is_worker() || core.config.workers == 0 => Owed::Message,
        Rcvd::Sync => Owed::Reply,
    }
}

/// Pays it, outside all locks. Blocks only for a reply.
#[inline]
pub(super) fn pay(core: &Core, ends: &Ends<'_>, owed: Owed) {
    let conn = ends.conn;
    match owed {
        Owed::Nothing => core.count(counter::RCVD_SKIPPED),
        Owed::Message => Context::run(core, |cx| {
            cx.ends = ends.both();
            if is_fired(core, conn, reason::RCVD) {
                engine::enter(cx, conn, Work::Notify);
            }
        }),
        Owed::Reply => ask(core, conn),
        Owed::Paid => {}
    }
}

/// The message of a reader that has the lock, if it is to run it itself. `None`: nothing is owed, or not here.
#[inline]
pub(super) fn pay_here(core: &Core, conn: &Conn, owed: &mut Owed) -> Option<Work> {
    if !matches!(owed, Owed::Message) || conn.perimeter().is_some() {
        return None;
    }
    *owed = Owed::Paid;
    is_fired(core, conn, reason::RCVD).then_some(Work::Notify)
}

/// Posts the message and counts what came of it. True if the caller has to bring it to its perimeter.
fn is_fired(core: &Core, conn: &Conn, reasons: u32) -> bool {
    let posted = conn.notify.post(reasons);
    core.count(match posted {
        Post::Fire => counter::RCVD_SENT,
        Post::Coalesced | Post::Dead => counter::RCVD_COALESCED,
    });
    posted == Post::Fire
}

/// Sends the owner a message and sleeps for the reply.
#[cold]
fn ask(core: &Core, conn: &Arc<Conn>) {
    // With another setting nothing is owed.
    let Some(replies) = &conn.replies.0 else { return };
    let request = {
        let mut counts = replies.counts.lock();
        counts.asked = counts.asked.wrapping_add(1);
        counts.asked
    };
    if is_fired(core, conn, reason::RCVD | reason::REPLY) {
        engine::fill(core, conn, Work::Notify);
    }
    core.count(counter::RCVD_SLEEPS);
    loop {
        let counts = replies.counts.lock();
        if counts.given.wrapping_sub(request).cast_signed() >= 0 {
            return;
        }
        let ticket = replies.wait.prepare();
        drop(counts);
        replies.wait.wait(ticket, Some(Instant::now() + REPLY_LOOK), Spin::up_to(core.config.spin_max));
        // Whoever ended the connection has replied to all who had asked by then.
        if conn.is_dead() || conn.is_poisoned() {
            return;
        }
    }
}

/// The owner has got the message: the reader may have emptied the buffer. The window is a matter of output.
pub(super) fn heard(pcb: &mut Pcb<Data>, so: &Buffers, reasons: u32) {
    if reasons & reason::RCVD != 0 && so.rcv.chain.is_empty() {
        pcb.on_emptied();
    }
}

/// The owner's reply to all who have asked, after it has taken the bits.
#[cold]
pub(super) fn reply(cx: &mut Context<'_>, conn: &Arc<Conn>) {
    let Some(replies) = &conn.replies.0 else { return };
    let mut counts = replies.counts.lock();
    counts.given = counts.asked;
    if replies.wait.notify().is_wake_owed() {
        cx.outbox.wakes.push(Wake::Replied(Arc::clone(conn)));
    }
}

/// How long a reader sleeps for a reply before he looks whether there can still be one.
const REPLY_LOOK: Duration = Duration::from_millis(100);
