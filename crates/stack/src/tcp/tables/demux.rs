//! From a 4-tuple to whatever answers for it: a connection, a TIME-WAIT record, a half-open entry.
//!
//! The table is cut into shards by a keyed hash of the 4-tuple; a shard is one mutex over three
//! tables, because the three answers exclude each other. It is off the path of data: a connection
//! whose peer is in this process remembers it. Rank: a shard's mutex is taken while no socket lock is
//! held inline and no buffer is locked; under it only the bind table is read.
//!
//! Bounds: connections by `Config::connections_max`, TIME-WAIT by `TcpConfig::time_wait_max` (beyond it a
//! connection ends without), half-open ones by `TcpConfig::syn_backlog` (beyond it, SYNs are
//! answered with cookies: `passive.rs`).

use std::collections::VecDeque;

use hashbrown::HashTable;
use sockeye_proto::tcp::syncache::SynCache;
use sockeye_proto::tcp::time_wait::TimeWait;
use sockeye_proto::time::Instant;
use sockeye_sync::facade::Arc;
use sockeye_sync::{Credits, Mutex, MutexGuard};

use crate::base::addr::{FourTuple, HashKey};
use crate::rt::counter;
use crate::rt::failpoints::{self, Point};
use crate::rt::timers::TimerKey;
use crate::tcp::Core;
use crate::tcp::conn::Conn;
use crate::tcp::conn::outbox::{Gone, Routed, Unowned};
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::socket::tos_ttl::TosTtl;
use crate::tcp::tables::listeners::Replica;

/// The table, see the module's head.
pub(crate) struct Demux {
    shards: Box<[Mutex<Shard>]>,
    /// The bound on connections.
    connections: Credits,
}

/// A connection's name that is resting.
pub(crate) struct Resting {
    pub tuple: FourTuple,
    hash: u64,
    /// SO_REUSEADDR of the connection, for bind conflicts.
    pub reuse_addr: bool,
    /// SO_REUSEPORT, likewise.
    pub reuse_port: bool,
    /// Of the IP headers of its acknowledgments.
    pub unowned: Unowned,
    pub record: TimeWait,
}

/// Handshakes, each with the listener that it is for.
pub(crate) type HalfOpen = SynCache<FourTuple, Arc<Replica>>;

/// One part of the table.
pub(crate) struct Shard {
    conns: HashTable<Arc<Conn>>,
    resting: HashTable<Resting>,
    /// TIME-WAIT records in the order in which they end; entries of records that are gone or were
    /// restarted stay until they come up, or until there are too many.
    ends: VecDeque<(Instant, u64, FourTuple)>,
    resting_max: usize,
    pub half_open: HalfOpen,
    /// When the wheel will call for this shard, microseconds; 0 for not at all.
    timer_at: u64,
}

/// Shards, a power of two: enough that two cores rarely meet in one.
pub(crate) const SHARDS: usize = 64;
/// Parts that the shards are divided into among cores.
const LANES_MAX: usize = 16;
/// Stale entries of `Shard::ends` that are tolerated beside as many live ones.
const STALE_ENDS_MAX: usize = 64;

impl Demux {
    pub fn new(connections_max: usize, time_wait_max: usize, syn_backlog: usize, key: HashKey) -> Self {
        let shard = |_| {
            Mutex::new(Shard {
                conns: HashTable::new(),
                resting: HashTable::new(),
                ends: VecDeque::new(),
                resting_max: time_wait_max.div_ceil(SHARDS),
                half_open: SynCache::new(syn_backlog.div_ceil(SHARDS), key.bytes()),
                timer_at: 0,
            })
        };
        Self { shards: (0..SHARDS).map(shard).collect(), connections: Credits::new(connections_max) }
    }

    /// The index of the shard of `hash`.
    pub fn index(hash: u64) -> usize {
        // The high bits: the tables inside a shard use the low ones.
        (hash >> 32) as usize % SHARDS
    }

    /// Whether the shard of `hash` is among those that connections made on `cpu` go to, if they can choose: then cores
    /// rarely meet in one. Of `cores`, of which those beyond [`LANES_MAX`] share.
    pub fn is_near(hash: u64, cpu: u32, cores: usize) -> bool {
        let lanes = cores.clamp(1, LANES_MAX);
        Self::index(hash) % lanes == cpu as usize % lanes
    }

    pub fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[Self::index(hash)].lock()
    }

    /// Counts one more connection in; `false` at the bound.
    pub fn reserve(&self) -> bool {
        self.connections.take(1)
    }

    /// Takes back a [`reserve`](Self::reserve).
    pub fn unreserve(&self) {
        self.connections.give(1);
    }

    /// Connections in the table; exact while none comes or goes.
    pub fn len(&self) -> usize {
        self.connections.in_use()
    }

    /// Calls `f` with every shard, one lock at a time.
    pub fn each_shard(&self, mut f: impl FnMut(&mut Shard)) {
        for shard in &self.shards {
            f(&mut shard.lock());
        }
    }

    /// The connection of this number, if it still exists.
    #[cfg(feature = "experiments")]
    pub fn by_serial(&self, hash: u64, serial: u64) -> Option<Arc<Conn>> {
        self.find(hash, |conn| conn.serial == serial)
    }

    /// The connection of this hash that is the wanted one, if it still exists.
    pub fn find(&self, hash: u64, is_wanted: impl Fn(&Conn) -> bool) -> Option<Arc<Conn>> {
        let shard = self.shard(hash);
        shard.conns.find(hash, |conn| is_wanted(conn)).cloned()
    }

    /// Takes a connection out of the table, and leaves its TIME-WAIT record behind if it has one.
    pub fn forget(&self, core: &Core, gone: Gone, now: Instant) {
        let (conn, record) = match gone {
            Gone::Closed(conn) => (conn, None),
            Gone::TimeWait(conn, params) => (conn, Some(params)),
        };
        let mut shard = self.shard(conn.hash);
        let found = shard.conns.find_entry(conn.hash, |c| Arc::ptr_eq(c, &conn));
        let Ok(entry) = found else { return };
        entry.remove();
        // Before the record stands: a thread that still sends to this connection then looks the name up.
        conn.bury();
        self.unreserve();
        Chosen::forgotten(core, &conn);
        if let Some(params) = record {
            shard.rest(core, &conn, TimeWait::new(&params, now), now);
        }
    }
}

impl Shard {
    pub fn conn(&self, hash: u64, tuple: &FourTuple) -> Option<&Arc<Conn>> {
        self.conns.find(hash, |c| c.tuple == *tuple)
    }

    pub fn conns(&self) -> impl Iterator<Item = &Arc<Conn>> {
        self.conns.iter()
    }

    pub fn resting(&self) -> impl Iterator<Item = &Resting> {
        self.resting.iter()
    }

    /// Adds a connection whose name is free.
    pub fn insert(&mut self, conn: Arc<Conn>) {
        self.conns.insert_unique(conn.hash, conn, |c| c.hash);
    }

    pub fn resting_mut(&mut self, hash: u64, tuple: &FourTuple) -> Option<&mut Resting> {
        self.resting.find_mut(hash, |r| r.tuple == *tuple)
    }

    /// Ends the TIME-WAIT of a name.
    pub fn wake_resting(&mut self, hash: u64, tuple: &FourTuple) -> Option<TimeWait> {
        let entry = self.resting.find_entry(hash, |r| r.tuple == *tuple).ok()?;
        Some(entry.remove().0.record)
    }

    /// Puts a name to rest, unless there are too many already.
    fn rest(&mut self, core: &Core, conn: &Conn, record: TimeWait, now: Instant) {
        if self.resting.len() >= self.resting_max {
            core.count(counter::TIME_WAIT_OVERFLOW);
            return;
        }
        self.drop_stale_ends();
        self.ends.push_back((record.deadline(), conn.hash, conn.tuple));
        let (tuple, hash) = (conn.tuple, conn.hash);
        let resting = Resting {
            tuple,
            hash,
            reuse_addr: conn.options.reuse_addr,
            reuse_port: conn.options.reuse_port,
            unowned: Unowned {
                tos_ttl: TosTtl { tos: TosTtl::of(&conn.options).tos, ..TosTtl::DEFAULT },
                rehashes: conn.options.path.rehashes(),
            },
            record,
        };
        self.resting.insert_unique(hash, resting, |r| r.hash);
        self.arm(core, Demux::index(hash), now);
    }

    /// Names that were reopened leave stale entries behind; they may not outgrow the live ones.
    fn drop_stale_ends(&mut self) {
        if self.ends.len() < 2 * self.resting.len() + STALE_ENDS_MAX {
            return;
        }
        let resting = &self.resting;
        self.ends.retain(|(at, hash, tuple)| {
            resting.find(*hash, |r| r.tuple == *tuple).is_some_and(|r| r.record.deadline() == *at)
        });
    }

    /// Asks the wheel for a call at this shard's next deadline, if it has an earlier one than before.
    pub fn arm(&mut self, core: &Core, index: usize, now: Instant) {
        let rest = self.ends.front().map(|(at, ..)| *at);
        let half_open = self.half_open.next_deadline();
        let Some(next) = rest.into_iter().chain(half_open).min() else {
            return;
        };
        // A millisecond at least, so that a late call is one call and not many.
        let at = next.as_micros().max(now.as_micros() + 1000);
        if self.timer_at == 0 || at < self.timer_at {
            core.workers.arm(core.cpu(), at, TimerKey::Shard { index });
            self.timer_at = at;
        }
    }

    /// Everything that is due: TIME-WAIT that ends. Half-open entries are the caller's, since they
    /// send segments.
    fn expire(&mut self, now: Instant) {
        while let Some((at, hash, tuple)) = self.ends.front().copied() {
            if at > now {
                break;
            }
            self.ends.pop_front();
            let Ok(entry) = self.resting.find_entry(hash, |r| r.tuple == tuple) else {
                continue;
            };
            let ends = entry.get().record.deadline();
            if ends > now {
                // Restarted by a late FIN: it comes up again, out of order by at most 2MSL.
                if ends != at {
                    self.ends.push_back((ends, hash, tuple));
                }
                continue;
            }
            entry.remove();
        }
    }
}

/// The wheel's call for a shard: expires TIME-WAIT, repeats SYN-ACKs.
pub(crate) fn on_timer(cx: &mut crate::tcp::conn::outbox::Context<'_>, index: usize) {
    let core = cx.core;
    let Some(shard) = core.demux.shards.get(index) else {
        return;
    };
    let mut shard = shard.lock();
    shard.timer_at = 0;
    shard.expire(cx.now);
    // A SYN-ACK that cannot be repeated takes its entry with it (`SynCache::on_timer`); the others are repeated all the same.
    cx.drain("the timer of handshakes", |cx| {
        let (now, routed) = (cx.now, &mut cx.outbox.routed);
        let retries = core.tcp_config().synack_retries;
        let patience = |listener: &Arc<Replica>| listener.patience(retries);
        shard.half_open.on_timer(now, patience, |tuple, listener, header, rehashes| {
            failpoints::hit(Point::Repeat, u64::from(tuple.local.port));
            routed.push_back(Routed {
                from: None,
                to: tuple.reversed(),
                header,
                payload: crate::base::payload::Data::default(),
                unowned: Unowned { tos_ttl: listener.tos_ttl(), rehashes },
            });
        });
    });
    shard.arm(core, index, cx.now);
}
