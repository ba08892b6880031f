//! Puts buffers on the remote-free lists of connections (`rx_free`), and sweeps: gives back those that stay
//! there.
//!
//! `rt/experiments/recycle.rs` has the settings, the lists of cores and the sweep's timer; `remote_lists.rs` a connection's two lists. A slot
//! holds one cluster, a socket's list [`SOCKET_BYTES_MAX`]. A thread that is refused memory has the lists emptied first
//! ([`RemoteSweep::reclaim`]).
//!
//! Rank: the sweep's mutex before the lists of listed connections, a shard of the demux table and depots; no thread takes it inside a
//! squeue. The lists of listed connections are leaves.
//!
//! Tests: `tests/experiments/rx_free.rs`.

use sockeye_mbuf::{Freed, Seen};
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Ordering, fence};

use super::remote_lists::{self, RemoteList};
use crate::rt::counter;
use crate::rt::experiments::recycler;
use crate::tcp::Core;
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::sockbuf::Buffers;
use crate::tcp::conn::{Conn, engine};

/// See the module's head.
pub(crate) struct RemoteSweep {
    /// Connections of which a list was filled since the sweep last looked, by the core of the thread that did it.
    listed: Box<[Mutex<Vec<Listed>>]>,
    sweep: Mutex<Sweep>,
}

/// A connection's name, as timers have it: it may be gone when it is looked up.
struct Listed {
    hash: u64,
    serial: u64,
}

/// State of the sweep.
#[derive(Default)]
struct Sweep {
    known: Vec<Listed>,
    seen: Seen,
}

impl Sweep {
    /// Takes over connections listed since.
    fn collect(&mut self, listed: &[Mutex<Vec<Listed>>]) {
        for list in listed {
            self.known.append(&mut list.lock());
        }
    }
}

/// Bytes on one list of a connection, with `socket_list`: four clusters of bulk data.
const SOCKET_BYTES_MAX: usize = 4 * ((64 << 10) + 64);

impl RemoteSweep {
    pub fn new() -> Self {
        let lists = sockeye_sync::cpu::count().next_power_of_two();
        Self {
            listed: (0..lists).map(|_| Mutex::new(Vec::new())).collect(),
            sweep: Mutex::new(Sweep::default()),
        }
    }

    /// Puts buffers that another core allocated on a list, and leaves the rest. True if the sweep has to be
    /// armed, outside all locks.
    fn put(
        &self,
        core: &Core,
        conn: &Conn,
        pick: impl FnOnce(&remote_lists::RemoteLists) -> &RemoteList,
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
            // A connection that has left the table is not found by the sweep, so its lists stay empty.
            !conn.is_dead()
        };
        match pick(both) {
            RemoteList::None => {}
            RemoteList::Slot(slot) => core.pool.remote_free_to_slot(freed, slot, announce),
            RemoteList::List(list) => core.pool.remote_free_to_list(freed, list, SOCKET_BYTES_MAX, announce),
        }
        arm
    }

    /// The wheel's call: gives back lists that no thread has touched since the last one.
    pub fn sweep(&self, core: &Core) {
        let is_left = self.look(core);
        recycler(core).swept(core, is_left, || self.has_listed());
    }

    /// Whether a list of a connection was filled since the sweep looked. A thread that was refused memory has moved the listed connections
    /// to the sweep's own ([`reclaim`](Self::reclaim)), and a connection whose list is filled again is not listed anew.
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
            let stays = both.sweep();
            if !stays && !both.take_all().is_empty() {
                core.count(counter::RX_FREE_FLUSHES);
            }
            visited.push(conn);
            stays
        });
        let is_left = recycler(core).flush_stale(core, seen);
        is_left || !known.is_empty()
    }

    /// A thread was refused memory: everything on these lists goes back. True if there was something. (The pool has emptied
    /// the lists of cores before it refused.)
    #[cold]
    pub fn reclaim(&self, core: &Core) -> bool {
        if !recycler(core).by_connection() {
            return false;
        }
        let (mut visited, mut reclaimed): (Vec<_>, Vec<Freed>) = (Vec::new(), Vec::new());
        let mut sweep = self.sweep.lock();
        sweep.collect(&self.listed);
        for entry in &sweep.known {
            if let Some(conn) = core.demux.by_serial(entry.hash, entry.serial) {
                reclaimed.extend(of(&conn).map(remote_lists::RemoteLists::take_all));
                visited.push(conn);
            }
        }
        reclaimed.iter().any(|freed| !freed.is_empty())
    }
}

/// The lists of a connection, if the setting has any.
#[inline]
fn of(conn: &Conn) -> Option<&remote_lists::RemoteLists> {
    conn.discipline.rare.as_deref().map(|rare| &rare.remote_lists)
}

/// A packet is brought: buffers that the reader used up are for the thread that brings it.
#[inline]
pub(super) fn take_remote_listed(cx: &mut Context<'_>, conn: &Conn) {
    if let Some(both) = of(conn).filter(|both| !both.rx.is_empty()) {
        cx.outbox.spares.append(both.rx.take());
    }
}

/// A write allocates next: acknowledged buffers go to this thread's cache, from which it allocates.
#[inline]
pub(super) fn before_write(conn: &Conn) {
    if let Some(both) = of(conn).filter(|both| !both.tx.is_empty()) {
        drop(both.tx.take());
    }
}

/// Unlinks acknowledged bytes: onto the list, if there is one.
#[inline]
pub(super) fn release_acked(cx: &mut Context<'_>, conn: &Conn, so: &mut Buffers, bytes: u32) {
    if !recycler(cx.core).by_connection() || so.rcv.closed {
        return engine::release_acked(cx, so, bytes);
    }
    let mut freed = Freed::new();
    so.snd.chain.trim_front_releasing(bytes as usize, &mut freed);
    let arms = cx.core.discipline.remote_sweep.put(cx.core, conn, |both| &both.tx, &mut freed);
    cx.outbox.discipline.arms_sweep |= arms;
    cx.outbox.spares.append(freed);
}

/// Puts buffers that a reader has used up on a list, or gives them back.
#[inline]
pub(super) fn release_read(core: &Core, conn: &Conn, mut freed: Freed) {
    let recycler = recycler(core);
    if freed.is_empty() || recycler.is_inline() {
        return;
    }
    if recycler.by_core() {
        return recycler.give_back(core, freed);
    }
    if core.discipline.remote_sweep.put(core, conn, |both| &both.rx, &mut freed) {
        recycler.arm(core);
    }
}

/// Gives back buffers that a call has unlinked under locks.
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

/// The application has closed a connection: no thread reads or writes any more.
pub(super) fn closed(conn: &Conn) {
    drop(of(conn).map(remote_lists::RemoteLists::take_all));
}

/// A connection has left the table: no sweep finds its lists, and no thread puts anything there any more.
pub(super) fn forgotten(conn: &Conn) {
    if let Some(both) = of(conn) {
        // Between `bury` and this, as in `put` between the push and `is_dead`.
        fence(Ordering::SeqCst);
        drop(both.take_all());
    }
}
