//! Local ports: which socket is bound to which, which of them listens, and which port a connect gets.
//!
//! The conflicts are Linux's (`docs/bind.md` has the table, a test holds it beside the kernel):
//! two sockets on one port conflict if their addresses overlap, unless both have SO_REUSEADDR and
//! neither listens, or both have SO_REUSEPORT. Connections count as bound to their local endpoint, in
//! TIME-WAIT too.
//!
//! Bound sockets and listeners stand in a table under a read-write lock, which ranks before the
//! shards of the demux table; SYNs find listeners in copies of their own (`listeners.rs`). Connections do not stand there,
//! or every one would write a line that all share. A bit for each port says whether there may be some;
//! `sockeye_sync::claims` describes how a bind and a connect on another thread agree about it. Only a bind to such a port looks at the connections
//! themselves, and where no port is left that has not been used, all these bits are made anew ([`Ports::look_again`]).

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;
use sockeye_proto::tcp::port_choice::{PortChoice, PortRange};
use sockeye_sync::claims::Claims;
use sockeye_sync::facade::{Arc, AtomicU64, Ordering};
use sockeye_sync::{Mutex, RwLock};

use crate::base::addr::{Endpoint, FourTuple, HashKey, octets};
use crate::base::bind::{ANY_PORT, Bind, BindOptions, no_port, overlap};
use crate::rt::failpoints::{self, Point};
use crate::tcp::handshake::listen::Listener;
use crate::tcp::tables::demux::Demux;
use crate::tcp::tables::listeners::{Listeners, Replica};

/// What is bound to each port.
type Table = HashMap<u16, Vec<Bind>>;

/// See the module's head.
pub(crate) struct Ports {
    table: RwLock<Table>,
    /// Those of them that listen, as SYNs look them up.
    listeners: Listeners,
    /// The table claims the ports that it knows, so that a connect need not lock it. Connections use them, those in TIME-WAIT included.
    claims: Claims,
    /// Choosers of ephemeral ports, spread over cores.
    choosers: Box<[Mutex<PortChoice>]>,
    next_id: AtomicU64,
}

/// Choosers of ephemeral ports.
const CHOOSERS: usize = 8;
/// Ports that a connect passes over because another is wanted.
const CHOOSY_MAX: usize = 64;
/// Ports, and so the length of the tables by port.
const PORT_COUNT: usize = 1 << 16;

impl Ports {
    pub fn new(range: PortRange, mut secret: impl FnMut() -> [u8; 16]) -> Self {
        Self {
            table: RwLock::new(HashMap::new()),
            listeners: Listeners::new(),
            claims: Claims::new(PORT_COUNT),
            choosers: (0..CHOOSERS).map(|_| Mutex::new(PortChoice::new(range, secret()))).collect(),
            next_id: AtomicU64::new(1),
        }
    }

    /// Has free ports chosen by other secrets from now on.
    pub fn rekey(&self, range: PortRange, mut secret: impl FnMut() -> [u8; 16]) {
        for chooser in &self.choosers {
            *chooser.lock() = PortChoice::new(range, secret());
        }
    }

    /// Binds to `local`, or to a free port of the range if its port is 0. Returns the bind's number
    /// and the port.
    pub fn bind(&self, demux: &Demux, local: Endpoint, options: BindOptions) -> io::Result<(u64, u16)> {
        let mut table = self.table.write();
        failpoints::hit(Point::Bind, u64::from(local.port));
        let port = if local.port == 0 {
            self.claim_free(&table, demux, local.addr)?
        } else {
            self.claim_at(&table, demux, local, options)?
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        table.entry(port).or_default().push(Bind::new(id, local.addr, options));
        Ok((id, port))
    }

    /// Claims a port that neither a socket nor a connection has. SO_REUSEADDR does not make two sockets share a port that neither asked for.
    fn claim_free(&self, table: &Table, demux: &Demux, addr: IpAddr) -> io::Result<u16> {
        let mut chooser = self.choosers[0].lock();
        let mut claim = || {
            let mut candidates = chooser.candidates(&octets(addr), &[], 0);
            candidates.find(|port| {
                !table.contains_key(port)
                    && !self.claims.may_be_used((*port).into())
                    && self.claim(demux, *port, || !self.claims.may_be_used((*port).into()))
            })
        };
        claim()
            .or_else(|| {
                self.look_again(demux);
                claim()
            })
            .ok_or_else(no_port)
    }

    /// Claims the port of `local`, if nothing stands in the way of a bind there.
    fn claim_at(
        &self,
        table: &Table,
        demux: &Demux,
        local: Endpoint,
        options: BindOptions,
    ) -> io::Result<u16> {
        let fits = || !self.conn_conflicts(demux, local.addr, local.port, options);
        let is_free = match table.get(&local.port) {
            // It is claimed already.
            Some(binds) => !binds.iter().any(|b| b.conflicts(local.addr, options)) && fits(),
            None => self.claim(demux, local.port, fits),
        };
        if is_free { Ok(local.port) } else { Err(Errno::ADDRINUSE.into()) }
    }

    /// Claims a port that the table does not know, if it `fits` once no new connection can get it.
    fn claim(&self, demux: &Demux, port: u16, fits: impl FnOnce() -> bool) -> bool {
        self.claims.claim(port.into(), || demux.each_shard(|_| ()));
        let fits = fits();
        if !fits {
            self.claims.release(port.into());
        }
        fits
    }

    /// Makes a bound socket a listener, which conflicts with more than a bound one does.
    pub fn listen(&self, demux: &Demux, local: Endpoint, listener: &Arc<Listener>) -> io::Result<()> {
        let mut table = self.table.write();
        let binds = table.get_mut(&local.port).map_or(&mut [][..], Vec::as_mut_slice);
        let Some(own) = binds.iter().position(|b| b.id == listener.bind_id) else {
            return Err(Errno::ADDRINUSE.into());
        };
        let options = binds[own].options;
        let others = binds.iter().filter(|b| b.id != listener.bind_id);
        // A socket that was bound beside us may stay, unless it listens.
        let taken = others.into_iter().any(|b| b.conflicts(local.addr, options));
        if taken || self.conn_conflicts(demux, local.addr, local.port, options) {
            return Err(Errno::ADDRINUSE.into());
        }
        self.listeners.add(listener, options.v6_only);
        binds[own].listens = true;
        Ok(())
    }

    /// Takes the place of a listener for every port, those of other listeners excepted. Returns the bind's number.
    pub fn bind_any(&self, addr: IpAddr, options: BindOptions) -> io::Result<u64> {
        let mut table = self.table.write();
        let binds = table.entry(ANY_PORT).or_default();
        if binds.iter().any(|b| b.conflicts(addr, options)) {
            return Err(Errno::ADDRINUSE.into());
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        binds.push(Bind::new(id, addr, options));
        Ok(id)
    }

    /// Gives a bound port back.
    pub fn unbind(&self, id: u64, port: u16) {
        let mut table = self.table.write();
        let Some(binds) = table.get_mut(&port) else { return };
        binds.retain(|b| b.id != id);
        self.listeners.remove(id, port);
        if binds.is_empty() {
            table.remove(&port);
            self.claims.release(port.into());
        }
    }

    /// The listener that a SYN to `local` is for, as the core `cpu` refers to it.
    pub fn listener(&self, local: &Endpoint, hash: u64, cpu: u32) -> Option<Arc<Replica>> {
        self.listeners.find(local, hash, cpu)
    }

    /// All listeners.
    pub fn listeners(&self) -> Vec<Arc<Listener>> {
        self.listeners.all()
    }

    /// A port for a connect from `local` to `remote`: the first candidate for which `take`, given the name and its hash,
    /// succeeds. A hash that `is_wanted` refuses is passed over for a while, and taken where nothing better is found. The
    /// name is never that of the connection's own other end: where no socket listens (any more) a connect would meet itself, by
    /// a simultaneous open (RFC 9293 section 3.5), and its caller would talk to itself.
    pub fn choose<T>(
        &self,
        (cpu, key): (u32, &HashKey),
        local: IpAddr,
        remote: Endpoint,
        is_wanted: impl Fn(u64) -> bool,
        mut take: impl FnMut(FourTuple, u64) -> Option<T>,
    ) -> io::Result<T> {
        let mut chooser = self.choosers[cpu as usize % CHOOSERS].lock();
        for mut choosy_for in [CHOOSY_MAX, 0] {
            let candidates = chooser.candidates(&octets(local), &octets(remote.addr), remote.port);
            for port in candidates.filter(|port| !self.is_bound(*port)) {
                let tuple = FourTuple { local: Endpoint::new(local, port), remote };
                if tuple.local == remote {
                    continue;
                }
                let hash = tuple.hash(key);
                if choosy_for > 0 && !is_wanted(hash) {
                    choosy_for -= 1;
                } else if let Some(taken) = take(tuple, hash) {
                    return Ok(taken);
                }
            }
        }
        Err(no_port())
    }

    /// Whether a socket is bound to a port. A hint, unless the caller holds the lock of the shard that its connection would stand in.
    pub fn is_bound(&self, port: u16) -> bool {
        self.claims.is_claimed(port.into())
    }

    /// Notes a connection at a local port. The caller adds it to its shard under the same hold of that shard's lock.
    pub fn note_conn(&self, port: u16) {
        self.claims.note_use(port.into());
    }

    /// Makes the notes of ports in use anew from the connections there are. Under the bind table's lock.
    fn look_again(&self, demux: &Demux) {
        self.claims.forget_uses();
        demux.each_shard(|shard| {
            let live = shard.conns().map(|conn| conn.tuple.local.port);
            live.chain(shard.resting().map(|resting| resting.tuple.local.port))
                .for_each(|port| self.note_conn(port));
        });
    }

    /// Whether a connection stands in the way of a bind.
    fn conn_conflicts(&self, demux: &Demux, addr: IpAddr, port: u16, options: BindOptions) -> bool {
        if !self.claims.may_be_used(port.into()) {
            return false;
        }
        let mut found = false;
        demux.each_shard(|shard| {
            let live = shard.conns().map(|c| (c.tuple.local, c.options.reuse_addr, c.options.reuse_port));
            let resting = shard.resting().map(|r| (r.tuple.local, r.reuse_addr, r.reuse_port));
            found |= live.chain(resting).any(|(local, reuse_addr, reuse_port)| {
                local.port == port
                    && overlap(addr, options.v6_only, local.addr, true)
                    && !(options.reuse_addr && reuse_addr || options.reuse_port && reuse_port)
            });
        });
        found
    }
}
