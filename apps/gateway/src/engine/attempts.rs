//! Limits the pending outbound connects of one loop.
//!
//! A host that does not answer keeps a connect pending for two minutes, and a SYN costs its sender nothing. With only a limit on their number, a few thousand SYNs would block
//! all new connections for that time. So a new attempt always gets a place, and if there is none, an older attempt is abandoned: its SYN counts as lost,
//! and its client repeats it if it still wants the connection, as when a host's queue of half-open connections overflows.
//!
//! ```text
//! place ─► the source has its share, or the table is full ─► of the oldest LOOKS, the one whose destination (address and port) has the most is abandoned
//!       └► otherwise ─► in
//! ```
//!
//! So attempts to one silent host displace each other. If sources and destinations are all forged, the oldest attempt is abandoned: an attempt then
//! lasts until as many further SYNs have arrived as there are places.
//!
//! Bounds: [`PLACES_MAX`], at most a quarter of `--flows-max`, and [`SHARE_MAX`] per source. Both are less than the stack's own limit for undecided SYNs, so the stack never drops one for lack of space.
//! Does not depend on sockets. Tests: below; `tests/gateway/floods.rs`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use tokio::sync::Notify;

/// Attempts of a loop, at most.
pub const PLACES_MAX: usize = 2048;
/// Those of one source. The stack keeps 1,024 undecided, those that wait for their task among them.
const SHARE_MAX: usize = 512;
/// How many of the oldest are compared.
const LOOKS: usize = 32;

/// See the module's head. Of one thread.
pub struct Attempts {
    places: usize,
    table: RefCell<Table>,
}

#[derive(Default)]
struct Table {
    /// By age.
    under_way: BTreeMap<u64, Entry>,
    sources: HashMap<IpAddr, BTreeSet<u64>>,
    /// How many are to each destination; none is 0.
    hosts: HashMap<SocketAddr, usize>,
    next: u64,
}

struct Entry {
    source: IpAddr,
    host: SocketAddr,
    displaced: Rc<Notify>,
}

/// A place in the table.
pub struct Attempt {
    attempts: Rc<Attempts>,
    number: u64,
    displaced: Rc<Notify>,
}

impl Attempts {
    /// A table for a loop that may have so many flows.
    pub fn new(flows_max: usize) -> Rc<Self> {
        let places = (flows_max / 4).clamp(1, PLACES_MAX);
        Rc::new(Self { places, table: RefCell::default() })
    }

    /// Takes a place, if need be another's.
    pub fn begin(self: &Rc<Self>, source: IpAddr, host: SocketAddr) -> Attempt {
        let mut table = self.table.borrow_mut();
        if table.sources.get(&source).is_some_and(|own| own.len() >= SHARE_MAX) {
            table.displace_of(source);
        }
        if table.under_way.len() >= self.places {
            table.displace();
        }
        let displaced = Rc::new(Notify::new());
        let number = table.insert(Entry { source, host, displaced: Rc::clone(&displaced) });
        Attempt { attempts: Rc::clone(self), number, displaced }
    }

    /// Whether there is little room, and most attempts are to this destination.
    pub fn is_crowded(&self, host: SocketAddr) -> bool {
        let table = self.table.borrow();
        let all = table.under_way.len();
        all * 2 > self.places && table.hosts.get(&host).is_some_and(|count| count * 2 > all)
    }

    /// How many are under way.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.table.borrow().under_way.len()
    }
}

impl Table {
    fn insert(&mut self, entry: Entry) -> u64 {
        let number = self.next;
        self.next += 1;
        self.sources.entry(entry.source).or_default().insert(number);
        *self.hosts.entry(entry.host).or_default() += 1;
        self.under_way.insert(number, entry);
        number
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.under_way.remove(&number)?;
        if let Some(own) = self.sources.get_mut(&entry.source) {
            own.remove(&number);
            if own.is_empty() {
                self.sources.remove(&entry.source);
            }
        }
        match self.hosts.get_mut(&entry.host) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.hosts.remove(&entry.host)),
        }
        Some(entry)
    }

    fn displace(&mut self) {
        let oldest: Vec<u64> = self.under_way.keys().copied().take(LOOKS).collect();
        self.displace_one(&oldest);
    }

    fn displace_of(&mut self, source: IpAddr) {
        let own = self.sources.get(&source).into_iter().flatten();
        let oldest: Vec<u64> = own.copied().take(LOOKS).collect();
        self.displace_one(&oldest);
    }

    /// Of these, the oldest of those whose destination has the most.
    fn displace_one(&mut self, oldest: &[u64]) {
        let count = |number: &&u64| {
            let host = self.under_way.get(number).map(|entry| entry.host);
            host.and_then(|host| self.hosts.get(&host)).copied()
        };
        // Of several that are equal, `max_by_key` returns the last.
        if let Some(number) = oldest.iter().rev().max_by_key(count).copied()
            && let Some(entry) = self.remove(number)
        {
            entry.displaced.notify_one();
        }
    }
}

impl Attempt {
    /// Returns when another has taken the place.
    pub async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.attempts.table.borrow_mut().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Whether a place was lost, without a runtime. What is told is told once.
    fn is_displaced(attempt: &Attempt) -> bool {
        pin!(attempt.displaced()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn addr(number: usize) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0xc000_0200 + number as u32).into()
    }

    fn host(number: usize) -> SocketAddr {
        (addr(number), 80).into()
    }

    #[test]
    fn attempts_to_a_silent_host_displace_each_other() {
        let attempts = Attempts::new(64 * 4);
        let honest = attempts.begin(addr(0), host(1));
        let silent: Vec<_> = (0..1000).map(|_| attempts.begin(addr(0), host(2))).collect();
        assert_eq!(attempts.len(), 64);
        assert!(attempts.is_crowded(host(2)) && !attempts.is_crowded(host(1)));
        assert!(!is_displaced(&honest), "it is the oldest, and goes on");
        let lost: Vec<bool> = silent.iter().map(is_displaced).collect();
        let first_kept = lost.iter().position(|is_lost| !is_lost);
        assert_eq!(first_kept, Some(1000 - 63), "the oldest first");
        assert!(!lost[1000 - 63..].contains(&true));
        drop((honest, silent));
        let table = attempts.table.borrow();
        assert!(table.under_way.is_empty() && table.sources.is_empty() && table.hosts.is_empty());
    }

    #[test]
    fn a_source_has_a_share_and_others_have_room() {
        let attempts = Attempts::new(1 << 20);
        let others: Vec<_> = (0..1000).map(|number| attempts.begin(addr(number + 9), host(1))).collect();
        let scan: Vec<_> = (0..9000).map(|number| attempts.begin(addr(0), host(number + 2))).collect();
        assert_eq!(attempts.len(), others.len() + SHARE_MAX);
        assert!(!others.iter().any(is_displaced));
        assert!(is_displaced(&scan[0]) && !is_displaced(&scan[9000 - SHARE_MAX]));
    }

    #[test]
    fn where_all_is_forged_the_oldest_gives_way() {
        let attempts = Attempts::new(1 << 20);
        let all: Vec<_> =
            (0..PLACES_MAX * 3).map(|number| attempts.begin(addr(number), host(number))).collect();
        assert_eq!(attempts.len(), PLACES_MAX);
        let first_kept = all.iter().position(|attempt| !is_displaced(attempt));
        assert_eq!(first_kept, Some(PLACES_MAX * 2));
    }
}
