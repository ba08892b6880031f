//! Where `rx_free` parks buffers of connections, and the sweep that gives back what stays parked.
//!
//! `rt/experiments/recycle.rs` has the settings, the lists of cores and the sweep's timer; `shelf.rs` a connection's two shelves. A slot
//! holds one cluster, a socket's list [`SOCKET_BYTES_MAX`]. A thread that is refused memory has the shelves emptied first
//! ([`Shelves::reclaim`]).
//!
//! Rank: the sweep's mutex before the lists of listed connections, a shard of the demux table and depots; no thread takes it inside a
//! squeue. The lists of listed connections are leaves.
//!
//! Tests: `tests/rx_free.rs`.

use sockeye_mbuf::{Freed, Seen};
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Ordering, fence};

use super::shelf::{self, Shelf};
use crate::rt::counter;
use crate::rt::experiments::recycler;
use crate::tcp::Core;
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::sockbuf::Buffers;
use crate::tcp::conn::{Conn, engine};

/// See the module's head.
pub(crate) struct Shelves {
    /// Connections that have parked something since the sweep last looked, by the core of who parked.
    listed: Box<[Mutex<Vec<Listed>>]>,
    sweep: Mutex<Sweep>,
}

/// A connection's name, as timers have it: it may be gone when it is looked up.
struct Listed {
    hash: u64,
    serial: u64,
}

/// What the sweep remembers.
#[derive(Default)]
struct Sweep {
    known: Vec<Listed>,
    seen: Seen,
}

impl Sweep {
    /// Takes over what was listed since.
    fn collect(&mut self, listed: &[Mutex<Vec<Listed>>]) {
        for list in listed {
            self.known.append(&mut list.lock());
        }
    }
}

/// Bytes on one shelf of a connection, with `socket_list`: four clusters of bulk data.
const SOCKET_BYTES_MAX: usize = 4 * ((64 << 10) + 64);

impl Shelves {
    pub fn new() -> Self {
        let lists = sockeye_sync::cpu::count().next_power_of_two();
        Self {
            listed: (0..lists).map(|_| Mutex::new(Vec::new())).collect(),
            sweep: Mutex::new(Sweep::default()),
        }
    }

    /// Parks what a core other than this one allocated on a shelf, and leaves the rest. True if the sweep has to be
    /// armed, outside all locks.
    fn shelve(
        &self,
        core: &Core,
        conn: &Conn,
        pick: impl FnOnce(&shelf::Shelves) -> &Shelf,
        freed: &mut Freed,
    ) -> bool {
        let Some(both) = of(conn) else { return false };
        let mut arm = false;
        let announce = || {
            if both.mark_active() {
                let lists = &self.listed;
                let list = &lists[sockeye_sync::cpu::current() as usize & (lists.len() - 1)];
                list.lock().push(Listed { hash: conn.hash, serial: conn.serial });
            }
            arm = !recycler(core).is_armed();
            // A connection that has left the table is not found by the sweep, so its shelves stay empty.
            !conn.is_dead()
        };
        match pick(both) {
            Shelf::None => {}
            Shelf::Slot(slot) => core.pool.park_in_slot(freed, slot, announce),
            Shelf::List(list) => core.pool.park_in_list(freed, list, SOCKET_BYTES_MAX, announce),
        }
        arm
    }

    /// The wheel's call: gives back what nobody has touched since the last one.
    pub fn sweep(&self, core: &Core) {
        let is_left = self.look(core);
        recycler(core).swept(core, is_left, || self.has_listed());
    }

    /// Whether a connection has parked something since the sweep looked. A thread that was refused memory has moved what was listed to what
    /// the sweep knows ([`reclaim`](Self::reclaim)), and a connection that parks again is not listed anew.
    fn has_listed(&self) -> bool {
        let sweep = self.sweep.lock();
        !sweep.known.is_empty() || self.listed.iter().any(|list| !list.lock().is_empty())
    }

    /// One sweep. True if something may be left.
    fn look(&self, core: &Core) -> bool {
        // A connection's last reference may end here, and with it a waker, which may call anything: after the mutex.
        let mut visited = Vec::new();
        let mut sweep = self.sweep.lock();
        sweep.collect(&self.listed);
        let Sweep { known, seen } = &mut *sweep;
        known.retain(|entry| {
            let Some(conn) = core.demux.by_serial(entry.hash, entry.serial) else {
                return false;
            };
            let Some(both) = of(&conn) else { return false };
            let stays = both.visit();
            if !stays && !both.take_all().is_empty() {
                core.count(counter::RX_FREE_FLUSHES);
            }
            visited.push(conn);
            stays
        });
        let is_left = recycler(core).flush_stale(core, seen);
        is_left || !known.is_empty()
    }

    /// Somebody was refused memory: everything that is parked goes back. True if there was something. (Lists of
    /// cores the pool has emptied before it refused.)
    #[cold]
    pub fn reclaim(&self, core: &Core) -> bool {
        if !recycler(core).shelves() {
            return false;
        }
        let (mut visited, mut reclaimed): (Vec<_>, Vec<Freed>) = (Vec::new(), Vec::new());
        let mut sweep = self.sweep.lock();
        sweep.collect(&self.listed);
        for entry in &sweep.known {
            if let Some(conn) = core.demux.by_serial(entry.hash, entry.serial) {
                reclaimed.extend(of(&conn).map(shelf::Shelves::take_all));
                visited.push(conn);
            }
        }
        reclaimed.iter().any(|freed| !freed.is_empty())
    }
}

/// The shelves of a connection, if the setting has any.
#[inline]
fn of(conn: &Conn) -> Option<&shelf::Shelves> {
    conn.discipline.rare.as_deref().map(|rare| &rare.shelves)
}

/// A packet is brought: what the reader used up is for the thread that brings it.
#[inline]
pub(super) fn take_parked(cx: &mut Context<'_>, conn: &Conn) {
    if let Some(both) = of(conn).filter(|both| !both.rx.is_empty()) {
        cx.outbox.spares.append(both.rx.take());
    }
}

/// A write allocates next: what the peer has acknowledged goes to this thread's cache, from which it allocates.
#[inline]
pub(super) fn before_write(conn: &Conn) {
    if let Some(both) = of(conn).filter(|both| !both.tx.is_empty()) {
        drop(both.tx.take());
    }
}

/// Unlinks acknowledged bytes: onto the shelf, if there is one.
#[inline]
pub(super) fn release_acked(cx: &mut Context<'_>, conn: &Conn, so: &mut Buffers, bytes: u32) {
    if !recycler(cx.core).shelves() || so.rcv.closed {
        return engine::release_acked(cx, so, bytes);
    }
    let mut freed = Freed::new();
    so.snd.chain.trim_front_releasing(bytes as usize, &mut freed);
    let arms = cx.core.discipline.shelves.shelve(cx.core, conn, |both| &both.tx, &mut freed);
    cx.outbox.discipline.arms_sweep |= arms;
    cx.outbox.spares.append(freed);
}

/// Parks what a reader has used up, or gives it back.
#[inline]
pub(super) fn release_read(core: &Core, conn: &Conn, mut freed: Freed) {
    let recycler = recycler(core);
    if freed.is_empty() || recycler.is_inline() {
        return;
    }
    if recycler.by_core() {
        return recycler.give_back(core, freed);
    }
    if core.discipline.shelves.shelve(core, conn, |both| &both.rx, &mut freed) {
        recycler.arm(core);
    }
}

/// Gives back what a call has unlinked under locks.
pub(super) fn release_rest(cx: &mut Context<'_>) {
    let recycler = recycler(cx.core);
    let mut spares = std::mem::take(&mut cx.outbox.spares);
    if recycler.by_core() {
        for chain in cx.outbox.freed.drain(..) {
            spares.release_chain(chain);
        }
        recycler.give_back(cx.core, spares);
    } else {
        cx.outbox.freed.clear();
        drop(spares);
    }
    if std::mem::take(&mut cx.outbox.discipline.arms_sweep) {
        recycler.arm(cx.core);
    }
}

/// The application has closed a connection: nobody reads or writes any more.
pub(super) fn closed(conn: &Conn) {
    drop(of(conn).map(shelf::Shelves::take_all));
}

/// A connection has left the table: no sweep finds its shelves, and no thread parks there any more.
pub(super) fn forgotten(conn: &Conn) {
    if let Some(both) = of(conn) {
        // Between `bury` and this, as in `shelve` between parking and `is_dead`.
        fence(Ordering::SeqCst);
        drop(both.take_all());
    }
}
