//! The listeners as SYNs find them: a copy of the list for each of several cores.
//!
//! Every SYN asks which listener it is for, and its half-open entry keeps that listener until the handshake is
//! over. With one list and one count of references all cores would write the same two lines for each SYN to
//! one listener, though none has to wait for another. So there are [`COPIES`] lists, each under a read-write lock of
//! its own, and each listener has a [`Replica`] in each: an `Arc` whose count lies on lines of its own. A core uses
//! its copy (cores beyond [`COPIES`] share), so two of them write no line together.
//!
//! A thread that adds or removes one holds the bind table's lock and changes the copies one after the other: all have the same
//! order, by which SO_REUSEPORT shares out, and at the end the same contents. In between a SYN may find a listener
//! on one core and not on another, as if it had come earlier or later.
//!
//! Rank: after the bind table, before the shards of the demux table. Tests: below, `tests/wire/transfers.rs`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Deref;

use sockeye_sync::RwLock;
use sockeye_sync::facade::Arc;

use crate::base::addr::Endpoint;
use crate::base::bind::ANY_PORT;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};
use crate::tcp::handshake::listen::Listener;
use crate::tcp::handshake::values::{Carried, Value};

/// Copies of the list.
const COPIES: usize = 16;

/// See the module's head.
pub(crate) struct Listeners {
    copies: Box<[List]>,
}

/// One copy, on lines of its own.
#[repr(align(128))]
struct List(RwLock<HashMap<u16, Vec<Entry>>>);

struct Entry {
    v6_only: bool,
    replica: Arc<Replica>,
}

/// A core's reference to a listener. The alignment keeps the counts of two cores apart.
#[repr(align(128))]
pub(crate) struct Replica {
    listener: Arc<Listener>,
    /// What goes along with the one handshake for which this replica was made.
    carried: Option<Carried>,
}

impl Replica {
    /// One that is in no list: for one handshake, with what goes along with it.
    pub fn carrying(listener: &Arc<Listener>, carried: Carried) -> Arc<Self> {
        Arc::new(Self { listener: Arc::clone(listener), carried: Some(carried) })
    }

    /// Whether something goes along with the handshake.
    pub fn carries(&self) -> bool {
        self.carried.is_some()
    }

    /// Takes out what goes along with the handshake.
    pub fn take_value(&self) -> Option<Value> {
        self.carried.as_ref()?.take()
    }
}

impl Deref for Replica {
    type Target = Arc<Listener>;

    fn deref(&self) -> &Arc<Listener> {
        &self.listener
    }
}

impl Listeners {
    pub fn new() -> Self {
        Self { copies: (0..COPIES).map(|_| List(RwLock::new(HashMap::new()))).collect() }
    }

    /// Adds a listener. Under the bind table's lock. If that panics it is in no copy.
    pub fn add(&self, listener: &Arc<Listener>, v6_only: bool) {
        let added = panics::catch(PanicSource::Protocol, "adding a listener", || {
            for List(list) in &self.copies {
                let replica = Arc::new(Replica { listener: Arc::clone(listener), carried: None });
                list.write().entry(listener.local.port).or_default().push(Entry { v6_only, replica });
                failpoints::hit(Point::Listen, u64::from(listener.local.port));
            }
        });
        if let Err(caught) = added {
            self.remove(listener.bind_id, listener.local.port);
            caught.resume();
        }
    }

    /// Removes the listener of a bind, if it is one. Under the bind table's lock.
    pub fn remove(&self, bind_id: u64, port: u16) {
        for List(list) in &self.copies {
            let mut list = list.write();
            let Some(entries) = list.get_mut(&port) else { continue };
            entries.retain(|entry| entry.replica.bind_id != bind_id);
            if entries.is_empty() {
                list.remove(&port);
            }
        }
    }

    /// All listeners.
    pub fn all(&self) -> Vec<Arc<Listener>> {
        let list = self.copies[0].0.read();
        list.values().flatten().map(|entry| Arc::clone(&entry.replica.listener)).collect()
    }

    /// The listener that a SYN to `local` is for, as the core `cpu` refers to it. Several with SO_REUSEPORT share by
    /// the flow's hash.
    pub fn find(&self, local: &Endpoint, hash: u64, cpu: u32) -> Option<Arc<Replica>> {
        let list = self.copies[cpu as usize % COPIES].0.read();
        [local.port, ANY_PORT].into_iter().find_map(|port| pick(list.get(&port)?, local.addr, hash))
    }
}

/// The best match of `entries`; of equal ones that of the hash.
fn pick(entries: &[Entry], addr: IpAddr, hash: u64) -> Option<Arc<Replica>> {
    let rank = |entry: &Entry| entry.replica.matches(addr, entry.v6_only);
    let best = entries.iter().filter_map(rank).max()?;
    let group = || entries.iter().filter(|entry| rank(entry) == Some(best));
    let pick = (hash % group().count() as u64) as usize;
    group().nth(pick).map(|entry| Arc::clone(&entry.replica))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::socket::SocketSettings;

    fn listener(at: &str, bind_id: u64) -> Arc<Listener> {
        let settings = SocketSettings {
            reuse_addr: false,
            reuse_port: true,
            v6_only: false,
            nodelay: false,
            quickack: true,
            tos_ttl: crate::tcp::socket::tos_ttl::TosTtl::DEFAULT,
            congestion_control: sockeye_proto::tcp::cc::Algorithm::default(),
            nonblocking: false,
            transparent: false,
            canonical: false,
            sndbuf: 4096,
            rcvbuf: 4096,
            sndbuf_set: false,
            rcvbuf_set: false,
            rcvlowat: 1,
            window_clamp: u32::MAX,
            keepalive: Default::default(),
            user_timeout_ms: 0,
            syn_retries: 0,
            defers: 0,
            fin_timeout_ms: 0,
            rto_max_ms: 120_000,
            linger_ms: crate::tcp::conn::LINGER_OFF,
            notsent_lowat: crate::tcp::conn::notsent::NONE,
            maxseg: 0,
            zerocopy: false,
            timestamping: Default::default(),
        };
        let at: std::net::SocketAddr = at.parse().unwrap();
        Listener::new(Endpoint::from(at), &settings, at.is_ipv6(), bind_id, 1)
    }

    fn found(listeners: &Listeners, to: &str, hash: u64, cpu: u32) -> Option<u64> {
        let to: std::net::SocketAddr = to.parse().unwrap();
        listeners.find(&Endpoint::from(to), hash, cpu).map(|replica| replica.bind_id)
    }

    #[test]
    fn every_core_finds_the_same_listener_and_none_when_it_is_gone() {
        let listeners = Listeners::new();
        for (at, id) in [("10.0.0.1:80", 1), ("0.0.0.0:80", 2), ("[::]:80", 3), ("0.0.0.0:80", 4)] {
            listeners.add(&listener(at, id), false);
        }
        for cpu in 0..40 {
            assert_eq!(found(&listeners, "10.0.0.1:80", 0, cpu), Some(1), "an address beats the wildcard");
            assert_eq!(found(&listeners, "10.0.0.2:80", 0, cpu), Some(2));
            assert_eq!(found(&listeners, "10.0.0.2:80", 1, cpu), Some(4), "two share by hash");
            assert_eq!(found(&listeners, "[fd00::1]:80", 9, cpu), Some(3));
            assert_eq!(found(&listeners, "10.0.0.1:81", 0, cpu), None);
        }
        listeners.remove(2, 80);
        listeners.remove(1, 80);
        for cpu in 0..40 {
            assert_eq!(found(&listeners, "10.0.0.1:80", 0, cpu), Some(4));
        }
        (3..=4).for_each(|id| listeners.remove(id, 80));
        assert!(listeners.copies.iter().all(|List(list)| list.read().is_empty()));
    }

    #[test]
    fn a_core_in_its_list_keeps_no_other_core_waiting() {
        let listeners = Listeners::new();
        listeners.add(&listener("10.0.0.1:80", 1), false);
        let _busy = listeners.copies[0].0.write();
        for cpu in 1..COPIES as u32 {
            assert_eq!(found(&listeners, "10.0.0.1:80", 0, cpu), Some(1));
        }
    }

    #[test]
    fn references_of_different_cores_are_counted_on_different_lines() {
        let listeners = Listeners::new();
        let one = listener("10.0.0.1:80", 1);
        listeners.add(&one, false);
        let before = Arc::strong_count(&one);
        let replicas: Vec<_> =
            (0..COPIES as u32).map(|cpu| listeners.find(&one.local, 5, cpu).unwrap()).collect();
        assert_eq!(Arc::strong_count(&one), before, "no SYN touches the listener's own count");
        let mut lines: Vec<usize> = replicas.iter().map(|r| Arc::as_ptr(r).addr() / 128).collect();
        lines.dedup();
        assert_eq!(lines.len(), COPIES);
    }
}
