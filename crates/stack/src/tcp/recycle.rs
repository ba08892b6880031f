//! Receive-buffer recycling: what becomes of a buffer that a core has used up and another one allocated
//! (`Config::rx_free`, technique 3).
//!
//! * `inline`: it goes to the cache of the thread that freed it.
//! * `slot`, `socket_list`: it waits on a shelf of its connection (`conn/shelf.rs`) for whoever allocates next.
//! * `core_list`: it waits in the list of the core that allocated it, which a thread on that core takes when its own
//!   cache is empty, and a worker when the list is half full (the *kick*). This needs no connection, and does not
//!   care whether input and allocation run on the same core.
//!
//! In all of them a buffer that was allocated on the freeing thread's own core goes to its cache. A buffer is parked
//! after the last reference to it is gone, after its bytes left the socket buffer, and outside the buffers' mutex.
//!
//! # Parked memory is bounded, and none is left behind
//! A slot holds one cluster, a socket's list [`SOCKET_BYTES_MAX`], a core's list a share of the memory cap, 4 MiB at
//! most; near the cap the pool parks nothing. Who is refused memory has everything reclaimed before he is told
//! ([`Recycler::reclaim`]). Lists of cores are emptied by threads before they wait and by workers before they sleep. For
//! the rest there is the *sweep*: while anything is parked the timer wheel calls every [`PERIOD`], and what nobody
//! has touched since the last call is given back. So an idle stack holds nothing after two periods, and no timer.
//!
//! `is_armed` is that call. Who parks does so, then (a fence between) reads it and arms if it is clear. The sweep that
//! finds nothing left clears it, then (a fence between) looks again. Either it sees what was parked, or the other sees
//! that it is clear.
//!
//! Rank: the sweep's mutex before the lists of listed connections, a shard of the demux table and depots; it is taken
//! by nobody inside a perimeter. The lists of listed connections are leaves.
//!
//! Tests: `tests/rx_free.rs`; for the lists themselves `sockeye-mbuf`.

use std::time::Duration;

use sockeye_mbuf::{Freed, Seen};
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, Ordering, fence};

use crate::rt::timers::TimerKey;
use crate::stack::{Core, counter};
use crate::switches::RxFree;
use crate::tcp::conn::Conn;
use crate::tcp::conn::shelf::Shelf;

/// See the module's head.
pub(crate) struct Recycler {
    /// (c)
    setting: RxFree,
    /// (a) The timer wheel will call [`Recycler::sweep`].
    is_armed: AtomicBool,
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

/// Time between two sweeps. Long against the time between two packets of a busy connection.
const PERIOD: Duration = Duration::from_millis(100);
/// Bytes on one shelf of a connection, with `socket_list`: four clusters of bulk data.
const SOCKET_BYTES_MAX: usize = 4 * ((64 << 10) + 64);

impl Recycler {
    pub fn new(setting: RxFree) -> Self {
        let lists = sockeye_sync::cpu::count().next_power_of_two();
        Self {
            setting,
            is_armed: AtomicBool::new(false),
            listed: (0..lists).map(|_| Mutex::new(Vec::new())).collect(),
            sweep: Mutex::new(Sweep::default()),
        }
    }

    /// Whether used-up buffers go to the cache of whoever frees them.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.setting == RxFree::Inline
    }

    /// Whether they lie on shelves of their connections.
    #[inline]
    pub fn shelves(&self) -> bool {
        match self.setting {
            RxFree::Slot | RxFree::SocketList => true,
            RxFree::Inline | RxFree::CoreList => false,
        }
    }

    /// Whether they lie in lists of the cores.
    #[inline]
    pub fn by_core(&self) -> bool {
        self.setting == RxFree::CoreList
    }

    /// What a reader has used up. Outside all locks.
    pub fn read(&self, core: &Core, conn: &Conn, mut freed: Freed) {
        if self.by_core() {
            return self.give_back(core, freed);
        }
        if self.shelve(core, conn, &conn.shelves.rx, &mut freed) {
            self.arm(core);
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
            arm = !self.is_armed.load(Ordering::Relaxed);
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

    /// Gives buffers back to the cores that allocated them, or to this thread's cache. Outside all locks.
    pub fn give_back(&self, core: &Core, freed: Freed) {
        if freed.is_empty() || !self.by_core() {
            return;
        }
        let kick = |of: u32| {
            core.count(counter::RX_FREE_KICKS);
            core.workers.kick(of as usize % core.pool.core_list_count());
        };
        if core.pool.park_by_core(freed, kick) && !self.is_armed.load(Ordering::Relaxed) {
            self.arm(core);
        }
    }

    /// Asks for a sweep in a while, if none is coming. Outside all locks.
    #[cold]
    pub fn arm(&self, core: &Core) {
        if !self.is_armed.swap(true, Ordering::Relaxed) {
            core.workers.arm(0, (core.clock.now() + PERIOD).as_micros(), TimerKey::Parked);
            core.workers.tell_driver(core);
        }
    }

    /// A thread is about to wait: what is parked for its core would wait with it.
    #[inline]
    pub fn before_wait(&self, core: &Core) {
        if self.by_core() {
            self.flush(core, sockeye_sync::cpu::current() as usize);
        }
    }

    /// Gives what is parked for one core back to the pool.
    pub fn flush(&self, core: &Core, of: usize) {
        if core.pool.flush_core(of as u32) > 0 {
            core.count(counter::RX_FREE_FLUSHES);
        }
    }

    /// Flushes the lists of the cores that one lane looks after.
    pub fn flush_lane(&self, core: &Core, lane: usize) {
        if self.by_core() {
            for of in (lane..core.pool.core_list_count()).step_by(core.workers.lane_count()) {
                self.flush(core, of);
            }
        }
    }

    /// The wheel's call: gives back what nobody has touched since the last one.
    pub fn sweep(&self, core: &Core) {
        if self.look(core) {
            core.workers.arm(0, (core.clock.now() + PERIOD).as_micros(), TimerKey::Parked);
            return;
        }
        self.is_armed.store(false, Ordering::Relaxed);
        // Pairs with the fence between parking and reading `is_armed`.
        fence(Ordering::SeqCst);
        if core.pool.has_parked_by_core() || self.listed.iter().any(|list| !list.lock().is_empty()) {
            self.arm(core);
        }
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
        let is_left = self.by_core() && core.pool.flush_stale(seen);
        is_left || !known.is_empty()
    }

    /// Somebody was refused memory: everything that is parked goes back. True if there was something. (Lists of
    /// cores the pool has emptied before it refused.)
    #[cold]
    pub fn reclaim(&self, core: &Core) -> bool {
        if !self.shelves() {
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
    pub fn forget(&self, conn: &Arc<Conn>) {
        if self.shelves() {
            // Between `bury` and this, as in `shelve` between parking and `is_dead`.
            fence(Ordering::SeqCst);
            drop(conn.shelves.take_all());
        }
    }
}
