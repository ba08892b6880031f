//! Limits the clients of a loop's published UDP ports.
//!
//! One datagram from any source makes a client, which has a flow until it has been idle for a time. So anybody outside could fill the table of flows, and nothing from inside would begin any
//! more. Clients therefore have a quarter of the table: half is for UDP flows from inside (`udp.rs`), and the rest for connections and pings. A new client always gets a place; if there is
//! none, the client that has been idle longest ends.
//!
//! The table is ordered by when each client was last used, as of when it was last looked at. A datagram only leaves its number with its client. Whoever needs a place takes the first client, and puts it where it belongs if it
//! was used since, so each datagram costs one move at most.
//!
//! Of one thread. Does not depend on sockets. Tests: below; `tests/gateway/floods.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

/// See the module's head.
pub struct Clients {
    places: usize,
    /// The number of the last use.
    last: Cell<u64>,
    /// By the use that was the last when the client was put here.
    table: RefCell<BTreeMap<u64, Rc<Entry>>>,
}

struct Entry {
    /// Where it stands in the table.
    stands: Cell<u64>,
    /// Its last use, which may be later.
    used: Cell<u64>,
    ended: Notify,
}

/// A client's place in the table.
pub struct Place {
    clients: Rc<Clients>,
    entry: Rc<Entry>,
}

impl Clients {
    /// A table for a loop that may have so many flows.
    pub fn new(flows_max: usize) -> Rc<Self> {
        let places = (flows_max / 4).max(1);
        Rc::new(Self { places, last: Cell::new(0), table: RefCell::default() })
    }

    /// Takes a place, if need be that of the client that has been idle longest.
    pub fn begin(self: &Rc<Self>) -> Place {
        let mut table = self.table.borrow_mut();
        if table.len() >= self.places {
            displace(&mut table);
        }
        let number = self.next();
        let (stands, used) = (Cell::new(number), Cell::new(number));
        let entry = Rc::new(Entry { stands, used, ended: Notify::new() });
        table.insert(number, Rc::clone(&entry));
        Place { clients: Rc::clone(self), entry }
    }

    /// The number of a use. No two have the same.
    fn next(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }
}

fn displace(table: &mut BTreeMap<u64, Rc<Entry>>) {
    while let Some((stood, entry)) = table.pop_first() {
        let used = entry.used.get();
        if used == stood {
            return entry.ended.notify_one();
        }
        entry.stands.set(used);
        table.insert(used, entry);
    }
}

impl Place {
    /// A datagram of the client's has passed, either way.
    pub fn used(&self) {
        self.entry.used.set(self.clients.next());
    }

    /// The client is to end.
    pub fn end(&self) {
        self.entry.ended.notify_one();
    }

    /// Returns when the client is to end, or another one has its place.
    pub async fn ended(&self) {
        self.entry.ended.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Nobody else stands there, also if this one was displaced.
        self.clients.table.borrow_mut().remove(&self.entry.stands.get());
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Whether it is to end, without a runtime. What is told is told once.
    fn has_ended(place: &Place) -> bool {
        pin!(place.ended()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_client_that_was_idle_longest_gives_way() {
        let clients = Clients::new(4 * 4);
        let first: Vec<Place> = (0..4).map(|_| clients.begin()).collect();
        assert!(!first.iter().any(has_ended));
        first[0].used();
        first[2].used();
        first[0].used();
        let mut new = Vec::new();
        for expected in [1, 3, 2, 0] {
            new.push(clients.begin());
            let ended: Vec<usize> = (0..4).filter(|number| has_ended(&first[*number])).collect();
            assert_eq!((ended, clients.table.borrow().len()), (vec![expected], 4));
        }
        drop(first);
        assert_eq!(clients.table.borrow().len(), 4, "a displaced client leaves nobody else's place");
        drop(new);
        assert!(clients.table.borrow().is_empty());
    }

    #[test]
    fn a_flood_of_new_clients_leaves_those_that_are_used() {
        let clients = Clients::new(4 * 64);
        let busy: Vec<Place> = (0..8).map(|_| clients.begin()).collect();
        let mut flood = Vec::new();
        for number in 0..1000 {
            flood.push(clients.begin());
            busy[number % 8].used();
        }
        assert!(!busy.iter().any(has_ended));
        let left = flood.iter().filter(|place| !has_ended(place)).count();
        assert_eq!(left, 64 - 8);
    }
}
