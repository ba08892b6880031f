//! Leaving work behind: the switch `wake`.
//!
//! A thread that does not drain (`Entry::NoDrain`), or that has drained up to its bound, leaves what is queued
//! to a worker. The protocol of leaving, and what may be run on the way out instead, is
//! `sockeye_sync`'s `perimeter/exit.rs`; this file says which item is whose, counts, and calls the worker:
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
//! The home of a connection is constant (`Conn::home`), so an item in this perimeter's queue is always for
//! a connection that lives here. The question is asked all the same, because an answer of "mine" runs protocol
//! code on the strength of this perimeter.
//!
//! Tests: `tests/wake.rs`; the order of leaving in `crates/sync/tests/loom/exit.rs`.

use sockeye_sync::facade::Arc;
use sockeye_sync::{Exit, Found, Inside, Outcome, Perimeter, Served};

use super::outbox::Context;
use super::{Conn, Item, engine, rollup};
use crate::experiments::Wake;
use crate::rt::counter;

/// Where a thread leaves from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// After its own item.
    Item,
    /// The synchronous section of a connect.
    Connect,
}

/// Leaves; what is queued is somebody else's, but for the exceptions above.
pub(super) fn leave(cx: &mut Context<'_>, inside: Inside<'_, Item>, conn: &Arc<Conn>, at: At) {
    let elide = match cx.core.config.experiments.wake {
        Wake::Elide => true,
        Wake::Delayed | Wake::Immediate => false,
    };
    let home = inside.id();
    let mut served = One { cx, conn };
    debug_assert!(
        conn.perimeter().is_some_and(|it| it.id() == home),
        "one leaves the perimeter of the connection one has served"
    );
    let Exit { outcome, found, left } = inside.leave_without_draining(&mut served, elide, engine::RUN_MAX);
    cx.core.count(counter_of(at, found));
    match outcome {
        Outcome::Left => {}
        Outcome::HandOffNeeded => {
            cx.core.count(counter::HANDED_OFF);
            // What illumos' script counts as "possible to elide": one item, of the connection that is leaving.
            if cx.core.handed.leave(cx.core, conn) && left == Found::Own(1) {
                cx.core.count(counter::WORKER_WAKES_NEEDLESS);
            }
        }
    }
}

/// The connection served, and with what.
struct One<'c, 'a, 's> {
    cx: &'c mut Context<'s>,
    conn: &'a Arc<Conn>,
}

impl Served<Item> for One<'_, '_, '_> {
    fn is_own(&self, item: &Item) -> bool {
        // Without a name it is of this connection's own perimeter.
        item.conn.as_ref().is_none_or(|of| Arc::ptr_eq(of, self.conn)) && self.is_at_home(item)
    }

    fn is_other_end(&self, item: &Item) -> bool {
        let peer = self.conn.peer.get();
        let is_peers = |of: &Arc<Conn>| peer.is_some_and(|peer| peer.as_ptr() == Arc::as_ptr(of));
        item.conn.as_ref().is_some_and(is_peers) && self.is_at_home(item)
    }

    fn run(&mut self, inside: &mut Inside<'_, Item>, max: usize) -> usize {
        rollup::head(self.cx, inside, self.conn, max)
    }
}

impl One<'_, '_, '_> {
    /// Whether the item's connection lives in the perimeter that is being left.
    fn is_at_home(&self, item: &Item) -> bool {
        let here = self.conn.perimeter().map(Perimeter::id);
        item.conn.as_ref().is_none_or(|of| of.perimeter().map(Perimeter::id) == here)
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
