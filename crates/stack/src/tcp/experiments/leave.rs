//! Leaving a squeue with work in it: the setting `wake`.
//!
//! A thread that does not drain (`Entry::NoDrain`), or that has drained up to its bound, leaves the queue to a
//! worker. The protocol of leaving, and of items that may be run on the way out instead, is `sockeye_sync`'s
//! `squeue/leave_undrained.rs`; this file says which item is whose, counts, and calls the worker:
//!
//! | setting | |
//! |---|---|
//! | `delayed` | the worker is not woken: it looks every [`LOOK_INTERVAL`](crate::rt::experiments::LOOK_INTERVAL) |
//! | `immediate` | the worker is woken |
//! | `elide` | the head of the queue is run here if it is the same connection's; else the worker is woken |
//!
//! There are two places where it happens: leaving after one's own item, and leaving the synchronous
//! section of a connect. They are counted apart ([`At`]).
//!
//! A connection's squeue is constant, so an item in this one is always for a connection that has it. The question is asked all the same,
//! because an answer of "mine" runs protocol code on the strength of this squeue.
//!
//! Tests: `tests/experiments/wake.rs`; the order of leaving in `crates/sync/tests/loom/leave_undrained.rs`.

use sockeye_sync::facade::Arc;
use sockeye_sync::{Exit, Found, Outcome, Served};

use super::deferred_output;
use super::squeue::{self, In, Item};
use crate::experiments::Wake;
use crate::rt::counter;
use crate::tcp::conn::Conn;
use crate::tcp::conn::engine::RUN_MAX;
use crate::tcp::conn::outbox::Context;

/// Where a thread leaves from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// After its own item.
    Item,
    /// The synchronous section of a connect.
    Connect,
}

/// Leaves; the queue is left to other threads, except as above.
pub(super) fn leave(cx: &mut Context<'_>, inside: In<'_>, conn: &Arc<Conn>, at: At) {
    let elide = match cx.core.config.experiments.wake {
        Wake::Elide => true,
        Wake::Delayed | Wake::Immediate => false,
    };
    let home = inside.id();
    let mut served = One { cx, conn };
    debug_assert!(
        squeue::of(conn).is_some_and(|it| it.id() == home),
        "a thread leaves the squeue of the connection that it has served"
    );
    let Exit { outcome, found, left } = inside.leave_undrained(&mut served, elide, RUN_MAX);
    cx.core.count(counter_of(at, found));
    match outcome {
        Outcome::Left => {}
        Outcome::HandOffNeeded => {
            cx.core.count(counter::HANDED_OFF);
            // Case that illumos' script counts as "possible to elide": one item, of the connection that is
            // leaving.
            if cx.core.handed.leave(cx.core, conn) && left == Found::Own(1) {
                cx.core.count(counter::WORKER_WAKES_NEEDLESS);
            }
        }
    }
}

/// The connection served, and the item.
struct One<'c, 'a, 's> {
    cx: &'c mut Context<'s>,
    conn: &'a Arc<Conn>,
}

impl Served<Item> for One<'_, '_, '_> {
    fn is_own(&self, item: &Item) -> bool {
        // Without a name it is of this connection's own squeue.
        item.conn.as_ref().is_none_or(|of| Arc::ptr_eq(of, self.conn)) && self.is_at_home(item)
    }

    fn is_other_end(&self, item: &Item) -> bool {
        let peer = self.conn.peer.get();
        let is_peers = |of: &Arc<Conn>| peer.is_some_and(|peer| peer.as_ptr() == Arc::as_ptr(of));
        item.conn.as_ref().is_some_and(is_peers) && self.is_at_home(item)
    }

    fn run(&mut self, inside: &mut In<'_>, max: usize) -> usize {
        deferred_output::head(self.cx, inside, self.conn, max)
    }
}

impl One<'_, '_, '_> {
    /// Whether the item's connection has the squeue that is being left.
    fn is_at_home(&self, item: &Item) -> bool {
        let here = squeue::of(self.conn).map(|squeue| squeue.id());
        item.conn.as_ref().is_none_or(|of| squeue::of(of).map(|squeue| squeue.id()) == here)
    }
}

/// The counter of an exit.
fn counter_of(at: At, found: Found) -> usize {
    let base = match at {
        At::Item => counter::LEFT,
        At::Connect => counter::LEFT_CONNECT,
    };
    base + match found {
        Found::Nothing => 0,
        Found::Own(depth) => depth.clamp(1, DEPTHS),
        Found::Other(depth) => DEPTHS + depth.clamp(1, DEPTHS),
    }
}

/// Depths that are counted apart; the last one means that or more.
const DEPTHS: usize = 3;
