//! Local ports: who is bound to which, who listens, and which one a connect gets.
//!
//! The conflicts are Linux's (`docs/bind.md` has the table, a test holds it beside the kernel):
//! two sockets on one port conflict if their addresses overlap, unless both have SO_REUSEADDR and
//! neither listens, or both have SO_REUSEPORT. Connections count as bound to their local endpoint, in
//! TIME-WAIT too.
//!
//! Bound sockets and listeners stand in a table under a read-write lock, which ranks before the
//! shards of the demux table; SYNs find listeners in copies of their own (`listeners.rs`). Connections do not: how many there are at each port is counted, and
//! only a bind to a port whose count is not 0 looks at the connections themselves.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use sockeye_proto::tcp::port_choice::{PortChoice, PortRange};
use sockeye_sync::facade::{Arc, AtomicU32, AtomicU64, Ordering};
use sockeye_sync::{Mutex, RwLock};

use crate::base::addr::{Endpoint, FourTuple, octets};
use crate::demux::Demux;
use crate::listen::Listener;
use crate::listeners::{ANY_PORT, Listeners, Replica};

/// See the module's head.
pub(crate) struct Ports {
    table: RwLock<HashMap<u16, Vec<Bind>>>,
    /// Those of them that listen, as SYNs look them up.
    listeners: Listeners,
    /// A bit for each port that the table knows, so that a connect need not lock it.
    bound: Box<[AtomicU64]>,
    /// Connections at each local port, TIME-WAIT included.
    conns: Box<[AtomicU32]>,
    /// Choosers of ephemeral ports, spread over cores.
    choosers: Box<[Mutex<PortChoice>]>,
    next_id: AtomicU64,
}

/// What of a socket decides conflicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BindOptions {
    pub reuse_addr: bool,
    pub reuse_port: bool,
    /// IPV6_V6ONLY: an IPv6 wildcard that does not take IPv4.
    pub v6_only: bool,
}

/// A place in a bind table, TCP's or UDP's.
pub(crate) struct Bind {
    id: u64,
    pub addr: IpAddr,
    options: BindOptions,
    listens: bool,
}

/// Choosers of ephemeral ports.
const CHOOSERS: usize = 8;
/// Ports, and so the length of the tables by port.
const PORT_COUNT: usize = 1 << 16;

impl Ports {
    pub fn new(range: PortRange, mut secret: impl FnMut() -> [u8; 16]) -> Self {
        Self {
            table: RwLock::new(HashMap::new()),
            listeners: Listeners::new(),
            bound: (0..PORT_COUNT / 64).map(|_| AtomicU64::new(0)).collect(),
            conns: (0..PORT_COUNT).map(|_| AtomicU32::new(0)).collect(),
            choosers: (0..CHOOSERS).map(|_| Mutex::new(PortChoice::new(range, secret()))).collect(),
            next_id: AtomicU64::new(1),
        }
    }

    /// Binds to `local`, or to a free port of the range if its port is 0. Returns the bind's number
    /// and the port.
    pub fn bind(&self, demux: &Demux, local: Endpoint, options: BindOptions) -> io::Result<(u64, u16)> {
        let mut table = self.table.write();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let fits = |port: u16| {
            let binds = table.get(&port).map_or(&[][..], Vec::as_slice);
            !binds.iter().any(|b| b.conflicts(local.addr, options))
                && !self.conn_conflicts(demux, local.addr, port, options)
        };
        let port = if local.port == 0 {
            let mut chooser = self.choosers[0].lock();
            // SO_REUSEADDR does not make two sockets share a port that neither asked for.
            let mut free = chooser.candidates(&octets(local.addr), &[], 0);
            free.find(|p| !table.contains_key(p) && self.conns_at(*p) == 0).ok_or_else(no_port)?
        } else if fits(local.port) {
            local.port
        } else {
            return Err(in_use(local));
        };
        table.entry(port).or_default().push(Bind::new(id, local.addr, options));
        self.bound[usize::from(port) / 64].fetch_or(1 << (port % 64), Ordering::Relaxed);
        Ok((id, port))
    }

    /// Makes a bound socket a listener, which conflicts with more than a bound one does.
    pub fn listen(&self, demux: &Demux, local: Endpoint, listener: &Arc<Listener>) -> io::Result<()> {
        let mut table = self.table.write();
        let binds = table.get_mut(&local.port).map_or(&mut [][..], Vec::as_mut_slice);
        let Some(own) = binds.iter().position(|b| b.id == listener.bind_id) else {
            return Err(in_use(local));
        };
        let options = binds[own].options;
        let others = binds.iter().filter(|b| b.id != listener.bind_id);
        // What was bound beside us may stay, unless it listens.
        let taken = others.into_iter().any(|b| b.conflicts(local.addr, options));
        if taken || self.conn_conflicts(demux, local.addr, local.port, options) {
            return Err(in_use(local));
        }
        binds[own].listens = true;
        self.listeners.add(listener, options.v6_only);
        Ok(())
    }

    /// Takes the place of a listener for every port, those of other listeners excepted. Returns the bind's number.
    pub fn bind_any(&self, addr: IpAddr, options: BindOptions) -> io::Result<u64> {
        let mut table = self.table.write();
        let binds = table.entry(ANY_PORT).or_default();
        if binds.iter().any(|b| b.conflicts(addr, options)) {
            return Err(in_use(Endpoint::new(addr, ANY_PORT)));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        binds.push(Bind { id, addr, options, listens: false });
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
            self.bound[usize::from(port) / 64].fetch_and(!(1 << (port % 64)), Ordering::Relaxed);
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

    /// A port for a connect from `local` to `remote`: the first candidate for which `take` succeeds.
    pub fn choose<T>(
        &self,
        cpu: u32,
        local: IpAddr,
        remote: Endpoint,
        mut take: impl FnMut(FourTuple) -> Option<T>,
    ) -> io::Result<T> {
        let mut chooser = self.choosers[cpu as usize % CHOOSERS].lock();
        let candidates = chooser.candidates(&octets(local), &octets(remote.addr), remote.port);
        for port in candidates {
            if self.is_bound(port) {
                continue;
            }
            let tuple = FourTuple { local: Endpoint::new(local, port), remote };
            if let Some(taken) = take(tuple) {
                return Ok(taken);
            }
        }
        Err(no_port())
    }

    /// Counts a connection at a local port.
    pub fn conn_joined(&self, port: u16) {
        self.conns[usize::from(port)].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts it out again.
    pub fn conn_left(&self, port: u16) {
        self.conns[usize::from(port)].fetch_sub(1, Ordering::Relaxed);
    }

    fn conns_at(&self, port: u16) -> u32 {
        self.conns[usize::from(port)].load(Ordering::Relaxed)
    }

    fn is_bound(&self, port: u16) -> bool {
        self.bound[usize::from(port) / 64].load(Ordering::Relaxed) & (1 << (port % 64)) != 0
    }

    /// Whether a connection stands in the way of a bind.
    fn conn_conflicts(&self, demux: &Demux, addr: IpAddr, port: u16, options: BindOptions) -> bool {
        if self.conns_at(port) == 0 {
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

impl Bind {
    /// A socket that does not listen.
    pub fn new(id: u64, addr: IpAddr, options: BindOptions) -> Self {
        Self { id, addr, options, listens: false }
    }

    /// Whether a socket that is to be bound to `addr` of the same port stands in its way.
    pub fn conflicts(&self, addr: IpAddr, options: BindOptions) -> bool {
        if !overlap(addr, options.v6_only, self.addr, self.options.v6_only) {
            return false;
        }
        let share_addr = options.reuse_addr && self.options.reuse_addr && !self.listens;
        let share_port = options.reuse_port && self.options.reuse_port;
        !(share_addr || share_port)
    }
}

/// Whether a segment could be for both addresses. An IPv6 wildcard takes IPv4 too unless `v6_only`.
fn overlap(a: IpAddr, a_v6_only: bool, b: IpAddr, b_v6_only: bool) -> bool {
    match (a, b) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
            a == b || a.is_unspecified() || b.is_unspecified()
        }
        (IpAddr::V6(_), IpAddr::V4(_)) => a.is_unspecified() && !a_v6_only,
        (IpAddr::V4(_), IpAddr::V6(_)) => b.is_unspecified() && !b_v6_only,
    }
}

pub(crate) fn in_use(local: Endpoint) -> io::Error {
    let addr = local.to_socket_addr(false);
    let message = format!("address {addr} is in use: choose another port, or set reuse_address first");
    io::Error::new(io::ErrorKind::AddrInUse, message)
}

pub(crate) fn no_port() -> io::Error {
    io::Error::new(
        io::ErrorKind::AddrNotAvailable,
        "no ephemeral port is free: widen Config::port_range, or use more local addresses",
    )
}
