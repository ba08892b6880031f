//! The shelves of all connections: where `rx_free = slot` and `socket_list` park buffers, and who sweeps them.
//!
//! `rt/recycle.rs` has the settings, the lists of cores and the sweep's timer; `conn/shelf.rs` a connection's two shelves. A slot holds one
//! cluster, a socket's list [`SOCKET_BYTES_MAX`]. A thread that is refused memory has the shelves emptied first ([`Shelves::reclaim`]).
//!
//! Rank: the sweep's mutex before the lists of listed connections, a shard of the demux table and depots; it is taken
//! by nobody inside a perimeter. The lists of listed connections are leaves.
//!
//! Tests: `tests/rx_free.rs`.

use sockeye_mbuf::{Freed, Seen};
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, Ordering, fence};

use crate::rt::counter;
use crate::tcp::Core;
use crate::tcp::conn::Conn;
use crate::tcp::conn::shelf::Shelf;

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

    /// What a reader has used up. Outside all locks.
    pub fn read(&self, core: &Core, conn: &Conn, mut freed: Freed) {
        if core.discipline.by_core() {
            return core.discipline.give_back(core, freed);
        }
        if self.shelve(core, conn, &conn.shelves.rx, &mut freed) {
            core.discipline.arm(core);
        }
    }

    /// Parks what a core other than this one allocated on a shelf, and leaves the rest. True if the sweep has to be
    /// armed, outside all locks.
    pub fn shelve(&self, core: &Core, conn: &Conn, shelf: &Shelf, freed: &mut Freed) -> bool {
        let mut arm = false;
        let announce = || {
            if conn.shelves.mark_active() {
                let lists = &self.listed;
                let list = &lists[sockeye_sync::cpu::current() as usize & (lists.len() - 1)];
                list.lock().push(Listed { hash: conn.hash, serial: conn.serial });
            }
            arm = !core.discipline.is_armed();
            // A connection that has left the table is not found by the sweep, so its shelves stay empty.
            !conn.is_dead()
        };
        match shelf {
            Shelf::None => {}
            Shelf::Slot(slot) => core.pool.park_in_slot(freed, slot, announce),
            Shelf::List(list) => core.pool.park_in_list(freed, list, SOCKET_BYTES_MAX, announce),
        }
        arm
    }

    /// The wheel's call: gives back what nobody has touched since the last one.
    pub fn sweep(&self, core: &Core) {
        let is_left = self.look(core);
        core.discipline.swept(core, is_left, || self.listed.iter().any(|list| !list.lock().is_empty()));
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
            let stays = conn.shelves.visit();
            if !stays && !conn.shelves.take_all().is_empty() {
                core.count(counter::RX_FREE_FLUSHES);
            }
            visited.push(conn);
            stays
        });
        let is_left = core.discipline.flush_stale(core, seen);
        is_left || !known.is_empty()
    }

    /// Somebody was refused memory: everything that is parked goes back. True if there was something. (Lists of
    /// cores the pool has emptied before it refused.)
    #[cold]
    pub fn reclaim(&self, core: &Core) -> bool {
        if !core.discipline.shelves() {
            return false;
        }
        let (mut visited, mut reclaimed) = (Vec::new(), Freed::new());
        let mut sweep = self.sweep.lock();
        sweep.collect(&self.listed);
        for entry in &sweep.known {
            if let Some(conn) = core.demux.by_serial(entry.hash, entry.serial) {
                reclaimed.append(conn.shelves.take_all());
                visited.push(conn);
            }
        }
        !reclaimed.is_empty()
    }

    /// A connection has left the table: nobody will sweep its shelves, and nobody parks there any more.
    pub fn forget(&self, core: &Core, conn: &Arc<Conn>) {
        if core.discipline.shelves() {
            // Between `bury` and this, as in `shelve` between parking and `is_dead`.
            fence(Ordering::SeqCst);
            drop(conn.shelves.take_all());
        }
    }
}
