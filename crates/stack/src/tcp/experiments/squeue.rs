//! A squeue before the socket locks of its connections: the settings `grain` and `entry`.
//!
//! A *squeue* (illumos' word) is a queue of the items of one or several connections, with one thread inside that takes each connection's
//! socket lock in turn. Connections share one with `grain = global` and `per_core`; with `per_socket` and an older `entry` each has its
//! own; with the defaults there is none, and everything here goes on to the socket lock ([`serve`]).
//!
//! A thread leaves a squeue only through `Inside::leave`, which refuses while items are queued; after [`BATCH_MAX`] items it leaves the rest
//! to a worker ([`leave`]). With `Entry::Process` a thread runs the queue. With `Entry::NoDrain` it runs its own item only and leaves at
//! once. With `Entry::Fill` it never enters: every item is put into the queue, and a free squeue is a worker's. Workers always run
//! everything. A connect may wait for its turn ([`connect`]).
//!
//! Order of locks: a squeue before the socket locks. A writer that has the lock only tries to enter, which never waits.
//!
//! The states, and the argument against lost work, are at the head of `sync/src/experiments/squeue.rs`. Tests: `tests/suite`, `tests/experiments/wake.rs`;
//! at the end.

use std::ops::Deref;

use sockeye_sync::facade::Arc;
use sockeye_sync::socket_lock::Left;
use sockeye_sync::{Entry as Entered, Filled, Inside};

use super::deferred_output;
use super::leave::{self, At};
use crate::config::Config;
use crate::experiments::{Entry, Grain, Input};
use crate::inet::netif::table::Via;
use crate::rt::counter;
use crate::tcp::Core;
use crate::tcp::conn::engine::{BATCH_MAX, RUN_MAX, finish, notify, step};
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::sockbuf::Socket;
use crate::tcp::conn::{Conn, Locked, Work, contain, reason, serve};

/// See the module's head.
pub(super) struct Squeue {
    queue: sockeye_sync::Squeue<Item>,
    /// Several connections have it.
    pub is_shared: bool,
}

impl Squeue {
    pub fn new(is_shared: bool) -> Self {
        Self { queue: sockeye_sync::Squeue::new(), is_shared }
    }
}

impl Deref for Squeue {
    type Target = sockeye_sync::Squeue<Item>;
    #[inline]
    fn deref(&self) -> &sockeye_sync::Squeue<Item> {
        &self.queue
    }
}

/// Work that waits in a squeue.
pub(super) struct Item {
    /// The connection that it is for; `None` in a connection's own squeue, where that is clear. (It would only be counted up and down: the thread that runs
    /// the queue holds the connection anyway.)
    pub conn: Option<Arc<Conn>>,
    pub work: Work,
}

impl Item {
    pub fn new(squeue: &Squeue, conn: &Arc<Conn>, work: Work) -> Self {
        Self { conn: squeue.is_shared.then(|| Arc::clone(conn)), work }
    }
}

pub(super) type In<'p> = Inside<'p, Item>;

/// Those that connections share, and how applications' threads enter.
pub(super) struct Squeues {
    shared: Box<[Arc<Squeue>]>,
    /// The setting, or `Process` where there is no worker.
    pub entry: Entry,
}

impl Squeues {
    pub fn new(config: &Config) -> Self {
        let shared = match config.experiments.grain {
            Grain::Global => 1,
            Grain::PerCore => sockeye_sync::cpu::count(),
            Grain::PerSocket => 0,
        };
        Self {
            shared: (0..shared).map(|_| Arc::new(Squeue::new(true))).collect(),
            entry: if config.workers == 0 { Entry::Process } else { config.experiments.entry },
        }
    }
}

/// The squeue of a new connection: that of its other end, where they are shared, so that one stay serves both.
pub(super) fn of_conn(core: &Core, hash: u64, via: Via, other: Option<&Conn>) -> Option<Arc<Squeue>> {
    let others = other.and_then(|other| other.discipline.squeue.as_ref()).filter(|squeue| squeue.is_shared);
    if let Some(squeue) = others {
        return Some(Arc::clone(squeue));
    }
    if via.is_wire() && core.config.experiments.input == Input::Exclusive {
        return Some(Arc::clone(&core.discipline.input.squeue));
    }
    let Squeues { shared, entry } = &core.discipline.squeues;
    match (shared.len(), entry) {
        (0, Entry::Process) => None,
        (0, Entry::NoDrain | Entry::Fill) => Some(Arc::new(Squeue::new(false))),
        (count, _) => Some(Arc::clone(&shared[hash as usize % count])),
    }
}

/// The squeue before a connection's lock, if there is one.
#[inline]
pub(super) fn of(conn: &Conn) -> Option<&Squeue> {
    conn.discipline.squeue.as_deref()
}

/// Whether protocol code has panicked where it could not be restored: work for the connection is dropped.
pub(super) fn is_poisoned(conn: &Conn) -> bool {
    conn.so.is_dead() || of(conn).is_some_and(|squeue| squeue.is_poisoned())
}

/// Brings `work` to `conn`.
pub(super) fn enter(cx: &mut Context<'_>, conn: &Arc<Conn>, work: Work) {
    let Some(squeue) = of(conn) else { return serve::bring(cx, conn, work) };
    if cx.outbox.discipline.entry == Entry::Fill {
        return fill(cx.core, conn, work);
    }
    let (inside, work) = match squeue.try_enter() {
        Some(inside) => (inside, work),
        None => match squeue.enter(Item::new(squeue, conn, work)) {
            Entered::Queued => return cx.core.count(counter::QUEUED),
            // Protocol code panicked in there: this connection's work is lost, the others go on.
            Entered::Poisoned(_) => return cx.core.count(counter::SEGMENTS_LOST),
            Entered::Inside(inside, item) => (inside, item.work),
        },
    };
    cx.core.count(counter::ENTERED);
    contain::guarded(cx, conn, &mut conn.so.lock(), "input", |cx, pcb, conn, so| {
        step(cx, pcb, conn, so, work);
        finish(cx, pcb, conn, so);
    });
    drive(cx, inside, conn, 1);
}

/// Leaves `work` to a worker, or to the thread that runs the connection's items.
#[cold]
pub(super) fn fill(core: &Core, conn: &Arc<Conn>, work: Work) {
    let filled = match of(conn) {
        Some(squeue) => squeue.fill(Item::new(squeue, conn, work)),
        None => match conn.so.leave(work) {
            Left::First => Filled::WakeWorker,
            Left::Behind => Filled::Queued,
            Left::Dead(_) => Filled::Poisoned,
        },
    };
    match filled {
        Filled::WakeWorker => core.handed.call(core, conn),
        Filled::Queued => core.count(counter::QUEUED),
        Filled::Poisoned => core.count(counter::SEGMENTS_LOST),
    }
}

/// Sends the SYN. With `Entry::NoDrain` a caller that may sleep waits until it is inside (the synchronous section of a connect), sends, and
/// leaves.
pub(super) fn connect(cx: &mut Context<'_>, conn: &Arc<Conn>, may_sleep: bool) {
    let Some(squeue) = of(conn).filter(|_| may_sleep && cx.outbox.discipline.entry == Entry::NoDrain) else {
        return notify(cx, conn, reason::OUTPUT);
    };
    let Ok(inside) = squeue.enter_blocking() else {
        return cx.core.count(counter::SEGMENTS_LOST);
    };
    // It may have been a while.
    cx.now = cx.core.clock.now();
    cx.core.count(counter::ENTERED);
    contain::guarded(cx, conn, &mut conn.so.lock(), "output", finish);
    leave::leave(cx, inside, conn, At::Connect);
}

/// Runs output with the lock that a writer has. The squeue is tried, which never waits, so the order of locks is kept.
pub(super) fn output(cx: &mut Context<'_>, conn: &Arc<Conn>, mut so: Locked<'_>) {
    let Some(squeue) = of(conn) else { return serve::output(cx, conn, so) };
    let inside = if cx.outbox.discipline.entry == Entry::Fill { None } else { squeue.try_enter() };
    let Some(inside) = inside else {
        serve::let_go(cx, conn, so, 0);
        return notify(cx, conn, reason::OUTPUT);
    };
    cx.core.count(counter::ENTERED);
    contain::guarded(cx, conn, &mut so, "output", finish);
    serve::let_go(cx, conn, so, 0);
    drive(cx, inside, conn, 1);
}

/// Runs items that this thread has left: in a squeue that was free, or in a backlog.
pub(super) fn resume(cx: &mut Context<'_>, conn: &Arc<Conn>) {
    match of(conn) {
        Some(squeue) => resume_in(cx, squeue, conn),
        None => serve::look(cx, conn),
    }
}

/// Runs a squeue that was handed over while no thread ran it.
pub(super) fn take_over(cx: &mut Context<'_>, conn: &Arc<Conn>) {
    match of(conn) {
        Some(squeue) => resume_in(cx, squeue, conn),
        None => serve::take_over(cx, conn),
    }
}

fn resume_in(cx: &mut Context<'_>, squeue: &Squeue, conn: &Arc<Conn>) {
    if let Some(mut inside) = squeue.resume() {
        cx.core.count(counter::ENTERED);
        if cx.outbox.discipline.entry == Entry::NoDrain {
            // The own item is the one that it was filled with.
            deferred_output::head(cx, &mut inside, conn, RUN_MAX);
        }
        drive(cx, inside, conn, 0);
    }
}

/// Puts a segment into the squeue of `peer`, if there is one. It is run once the sender's lock is let go.
#[inline]
pub(super) fn hand_over(cx: &mut Context<'_>, peer: &Arc<Conn>, work: Work) -> Option<Work> {
    let Some(squeue) = of(peer) else { return Some(work) };
    match squeue.fill(Item::new(squeue, peer, work)) {
        Filled::WakeWorker => cx.outbox.filled.push_back(Arc::clone(peer)),
        Filled::Queued => cx.core.count(counter::QUEUED),
        Filled::Poisoned => cx.core.count(counter::SEGMENTS_LOST),
    }
    None
}

/// Runs the queue and leaves.
pub(super) fn drive(cx: &mut Context<'_>, mut inside: In<'_>, conn: &Arc<Conn>, mut ran: usize) {
    if cx.outbox.discipline.entry == Entry::NoDrain {
        return leave::leave(cx, inside, conn, At::Item);
    }
    loop {
        inside = match inside.leave() {
            Ok(()) => return,
            Err(inside) => inside,
        };
        if ran >= BATCH_MAX {
            return leave::leave(cx, inside, conn, At::Item);
        }
        ran += batch(cx, &mut inside, conn);
    }
}

/// Runs the items queued now. A run of items for one connection takes its lock once and is followed by one
/// output.
fn batch(cx: &mut Context<'_>, inside: &mut In<'_>, own: &Arc<Conn>) -> usize {
    if of(own).is_some_and(|squeue| squeue.is_shared) {
        return deferred_output::batch(cx, inside, own, None);
    }
    let mut ran = 0;
    let mut works = inside.take().map(|item| item.work);
    while let Some(work) = works.next() {
        let run = contain::guarded(cx, own, &mut own.so.lock(), "input", |cx, pcb, own, so| {
            step(cx, pcb, own, so, work);
            let mut run = 1;
            while run < RUN_MAX
                && let Some(next) = works.next()
            {
                step(cx, pcb, own, so, next);
                run += 1;
            }
            finish(cx, pcb, own, so);
            run
        });
        ran += run.unwrap_or(1);
    }
    ran
}

/// Runs `work` and the items behind it for the same connection, at most `max` items in all, under one hold of its lock and without
/// output. Returns how many.
pub(super) fn run(
    cx: &mut Context<'_>,
    inside: &mut In<'_>,
    conn: &Arc<Conn>,
    so: &mut Socket,
    work: Work,
    max: usize,
) -> usize {
    let ran = contain::guarded(cx, conn, so, "input", |cx, pcb, conn, so| {
        step(cx, pcb, conn, so, work);
        let mut ran = 1;
        let same = |next: &Item| next.conn.as_ref().is_none_or(|of| Arc::ptr_eq(of, conn));
        while ran < max
            && let Some(next) = inside.pop_if(same)
        {
            step(cx, pcb, conn, so, next.work);
            ran += 1;
        }
        ran
    });
    ran.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Experiments;
    use crate::{Stack, TcpListener, TcpStream};

    #[test]
    fn older_settings_have_a_squeue_in_front_of_the_lock() {
        let driven = || Config { workers: 0, ..Config::default() };
        let has_squeue = |config| {
            let stack = Stack::new(config).unwrap();
            let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
            let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
            of(client.conn().unwrap()).is_some()
        };
        assert!(!has_squeue(driven()));
        assert!(has_squeue(Config {
            experiments: Experiments { grain: Grain::Global, ..Experiments::default() },
            ..driven()
        }));
        assert!(has_squeue(Config {
            workers: 1,
            experiments: Experiments { entry: Entry::NoDrain, ..Experiments::default() },
            ..Config::default()
        }));
        // Without workers every caller runs all waiting items.
        assert!(!has_squeue(Config {
            experiments: Experiments { entry: Entry::NoDrain, ..Experiments::default() },
            ..driven()
        }));
    }
}
