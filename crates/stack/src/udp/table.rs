//! From a datagram's addresses to the sockets that receive it: a copy of the table for each of several cores.
//!
//! Every datagram is looked up, and binds, connects and closes are rare. So there are up to [`COPIES_MAX`] tables, each
//! under a read-write lock of its own on lines of its own: a core reads its copy (cores beyond them share), and senders
//! on different cores write no line together before they come to their receiver's queue. A datagram is
//! delivered while the copy is held for reading, so no socket's count of references is touched.
//!
//! A thread that changes the table holds the lock of the bind table, and changes the copies one after the other. In between a
//! datagram may find a socket on one core and not on another, as if it had come earlier or later. A socket that has
//! been removed from all copies receives nothing more.
//!
//! # Which socket receives
//! A datagram to one host goes to the socket that names most of it, as on Linux: one that is connected to its sender,
//! then one bound to its address, then to the wildcard of its family, then to the IPv6 wildcard that takes IPv4 too, and
//! last to one for every port. Of equals with SO_REUSEPORT the hash of the 4-tuple chooses; of others (SO_REUSEADDR) the
//! last one that was bound gets all. One to a group or a broadcast address goes to all that match.
//!
//! Rank: after the bind table, before a receiver's `so`. Tests: below, `tests/udp/`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use hashbrown::HashTable;
use smallvec::SmallVec;
use sockeye_sync::RwLock;
use sockeye_sync::facade::Arc;

use super::groups::Membership;
use super::name::Name;
use super::pcb::Pcb;
use crate::base::addr::{FourTuple, HashKey};
use crate::base::bind::ANY_PORT;
use crate::rt::failpoints::{self, Point};

/// Most copies.
const COPIES_MAX: usize = 16;

/// See the module's head.
pub(crate) struct Table {
    copies: Box<[Lines]>,
    key: HashKey,
}

/// One copy, on lines of its own.
#[repr(align(128))]
struct Lines(RwLock<Copy>);

/// The table of one core.
#[derive(Default)]
pub(crate) struct Copy {
    /// Sockets without a peer, by port, the last one bound at the end; those for every port at [`ANY_PORT`].
    bound: HashMap<u16, SmallVec<[Entry; 1]>>,
    /// Sockets with one, by 4-tuple; several of one name only with SO_REUSEADDR or SO_REUSEPORT.
    connected: HashTable<(FourTuple, Entry)>,
    /// Groups of which some socket is a member.
    groups: HashSet<Membership>,
}

struct Entry {
    pcb: Arc<Pcb>,
    addr: IpAddr,
}

impl Entry {
    /// How much of a datagram to `dst` the socket names; `None` if it is not for it.
    fn rank(&self, dst: IpAddr) -> Option<u8> {
        if self.addr == dst {
            return Some(2);
        }
        match (self.addr, dst) {
            _ if !self.addr.is_unspecified() => None,
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => Some(1),
            (IpAddr::V6(_), IpAddr::V4(_)) => (!self.pcb.v6_only).then_some(0),
            (IpAddr::V4(_), IpAddr::V6(_)) => None,
        }
    }
}

impl Table {
    pub fn new(key: HashKey, cores: usize) -> Self {
        let copies = (0..cores.clamp(1, COPIES_MAX)).map(|_| Lines(RwLock::default())).collect();
        Self { copies, key }
    }

    /// Calls `f` with the copy of the core `cpu`, which stays as it is meanwhile. `f` must not come here again.
    #[inline]
    pub fn with<R>(&self, cpu: u32, f: impl FnOnce(&Copy) -> R) -> R {
        f(&self.copies[cpu as usize % self.copies.len()].0.read())
    }

    /// The hash of a name, by which [`Copy::of_hash`] finds it.
    pub fn hash(&self, tuple: &FourTuple) -> u64 {
        tuple.hash(&self.key)
    }

    /// The socket goes by `to` instead of by `from`; `None` for none. Under the bind table's lock.
    pub fn rename(&self, pcb: &Arc<Pcb>, from: Option<&Name>, to: Option<&Name>) {
        for Lines(copy) in &self.copies {
            let mut copy = copy.write();
            // Dropped after the lock.
            let gone = from.and_then(|name| copy.remove(pcb, name, &self.key));
            if let Some(name) = to {
                copy.insert(pcb, name, &self.key);
                failpoints::hit(Point::UdpName, u64::from(name.local.port));
            }
            drop(copy);
            drop(gone);
        }
    }

    /// Some socket is a member of a group, or none is any more. Under the lock of `Groups`.
    pub fn set_member(&self, membership: Membership, is_member: bool) {
        for Lines(copy) in &self.copies {
            let groups = &mut copy.write().groups;
            if is_member {
                groups.insert(membership)
            } else {
                groups.remove(&membership)
            };
        }
    }

    /// The socket that a datagram to one host is for. `tuple` is the conversation as the receiver names it.
    #[inline]
    pub fn find<'c>(&self, copy: &'c Copy, tuple: &FourTuple) -> Option<&'c Arc<Pcb>> {
        if !copy.connected.is_empty() {
            let hash = tuple.hash(&self.key);
            // SO_REUSEADDR makes two of them possible; the first found is as good as Linux's last.
            if let Some((_, entry)) = copy.connected.find(hash, |(name, _)| name == tuple) {
                return Some(&entry.pcb);
            }
        }
        // Sockets for every port come after all others; no socket has port 0.
        let ports = [tuple.local.port, ANY_PORT];
        let ports = if tuple.local.port == ANY_PORT { &[][..] } else { &ports[..] };
        ports.iter().find_map(|port| self.pick(copy.bound.get(port)?, tuple))
    }

    /// The one of a port's sockets that a datagram to one host is for.
    #[inline]
    fn pick<'c>(&self, entries: &'c [Entry], tuple: &FourTuple) -> Option<&'c Arc<Pcb>> {
        let rank = |entry: &&Entry| entry.rank(tuple.local.addr);
        if let [only] = entries {
            return rank(&only).map(|_| &only.pcb);
        }
        let best = entries.iter().filter_map(|entry| rank(&entry)).max()?;
        let equals = || entries.iter().filter(|entry| rank(entry) == Some(best));
        let last = equals().next_back()?;
        if !last.pcb.reuse_port {
            return Some(&last.pcb);
        }
        let group = || equals().filter(|entry| entry.pcb.reuse_port);
        let pick = (tuple.hash(&self.key) % group().count() as u64) as usize;
        group().nth(pick).map(|entry| &entry.pcb)
    }

    /// Calls `f` with every socket that a datagram to a group, or a broadcast address, may be for.
    pub fn each(&self, copy: &Copy, tuple: &FourTuple, mut f: impl FnMut(&Arc<Pcb>)) {
        let bound = copy.bound.get(&tuple.local.port).filter(|_| tuple.local.port != ANY_PORT);
        let entries = bound.map_or(&[][..], SmallVec::as_slice);
        entries.iter().filter(|entry| entry.rank(tuple.local.addr).is_some()).for_each(|entry| f(&entry.pcb));
        // A connected socket has an address, so it is for a group only if it is bound to that.
        if !copy.connected.is_empty() {
            let named = copy.connected.iter_hash(tuple.hash(&self.key));
            named.filter(|(name, _)| name == tuple).for_each(|(_, entry)| f(&entry.pcb));
        }
    }
}

impl Copy {
    /// All sockets that have a name.
    pub fn sockets(&self) -> impl Iterator<Item = &Arc<Pcb>> {
        let bound = self.bound.values().flatten();
        bound.chain(self.connected.iter().map(|(_, entry)| entry)).map(|entry| &entry.pcb)
    }

    /// The sockets with a peer whose name has this hash.
    pub fn of_hash(&self, hash: u64) -> impl Iterator<Item = &Arc<Pcb>> {
        self.connected.iter_hash(hash).map(|(_, entry)| &entry.pcb)
    }

    /// Whether datagrams to a group that come by an interface are taken in.
    pub fn is_member(&self, membership: &Membership) -> bool {
        self.groups.contains(membership)
    }

    fn insert(&mut self, pcb: &Arc<Pcb>, name: &Name, key: &HashKey) {
        let entry = Entry { pcb: Arc::clone(pcb), addr: name.local.addr };
        match name.tuple() {
            Some(tuple) => {
                let hash = |(tuple, _): &(FourTuple, Entry)| tuple.hash(key);
                self.connected.insert_unique(tuple.hash(key), (tuple, entry), hash);
            }
            None => self.bound.entry(name.local.port).or_default().push(entry),
        }
    }

    fn remove(&mut self, pcb: &Arc<Pcb>, name: &Name, key: &HashKey) -> Option<Entry> {
        let Some(tuple) = name.tuple() else {
            let entries = self.bound.get_mut(&name.local.port)?;
            let place = entries.iter().position(|entry| Arc::ptr_eq(&entry.pcb, pcb))?;
            let gone = entries.remove(place);
            if entries.is_empty() {
                self.bound.remove(&name.local.port);
            }
            return Some(gone);
        };
        let is_it = |(known, entry): &(FourTuple, Entry)| *known == tuple && Arc::ptr_eq(&entry.pcb, pcb);
        let found = self.connected.find_entry(tuple.hash(key), is_it).ok()?;
        Some(found.remove().0.1)
    }
}
