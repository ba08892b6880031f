//! Records for which names the name server has returned an address.
//!
//! Bounds: [`ADDRS_MAX`] addresses with [`NAMES_MAX`] names each. When the table is full, the address that expires first is removed; when an address has all its names, the one that was pinned longest ago. It is the first of an ordered set, so an address costs
//! no look at the others: whoever has a zone decides how many addresses come, and they come on a loop's thread. Lock: one mutex, a leaf.
//! Tests: below.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Addresses that are remembered.
const ADDRS_MAX: usize = 16_384;
/// Names of one address.
const NAMES_MAX: usize = 16;
/// A program may keep an address a while after its time: the shortest that it is remembered.
const TTL_MIN: Duration = Duration::from_secs(300);
/// And the longest.
const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// See the module's head.
#[derive(Debug, Default)]
pub struct Names {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    pinned: HashMap<IpAddr, Vec<Pinned>>,
    /// The same addresses, each with the end of its last name.
    ends: BTreeSet<(Instant, IpAddr)>,
}

/// A name of an address, and when it ends.
type Pinned = (String, Instant);

/// When the last of an address's names ends.
fn last(names: &[Pinned]) -> Option<Instant> {
    names.iter().map(|(_, end)| *end).max()
}

impl Names {
    /// Remembers that `name` has the address `addr` for `ttl`.
    pub fn pin(&self, name: &str, addr: IpAddr, ttl: Duration) {
        let (now, addr) = (Instant::now(), addr.to_canonical());
        let until = now + ttl.clamp(TTL_MIN, TTL_MAX);
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let mut table = self.lock();
        let Table { pinned, ends } = &mut *table;
        if pinned.len() >= ADDRS_MAX
            && !pinned.contains_key(&addr)
            && let Some((_, first_to_end)) = ends.pop_first()
        {
            pinned.remove(&first_to_end);
        }
        let names = pinned.entry(addr).or_default();
        if let Some(end) = last(names) {
            ends.remove(&(end, addr));
        }
        names.retain(|(known, end)| *known != name && *end > now);
        if names.len() >= NAMES_MAX {
            names.remove(0);
        }
        names.push((name, until));
        ends.extend(last(names).map(|end| (end, addr)));
    }

    /// The names of an address that still hold.
    pub fn of(&self, addr: IpAddr) -> Vec<String> {
        let now = Instant::now();
        let table = self.lock();
        let names = table.pinned.get(&addr.to_canonical()).map(Vec::as_slice).unwrap_or_default();
        names.iter().filter(|(_, end)| *end > now).map(|(name, _)| name.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Addresses of a flood.
    fn addr(number: usize) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number as u32).into()
    }

    fn ends_are_those_of_the_addresses(names: &Names) {
        let table = names.lock();
        assert_eq!(table.ends.len(), table.pinned.len());
        assert!(table.ends.iter().all(|(end, addr)| last(&table.pinned[addr]) == Some(*end)));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_lasts_longest() {
        let names = Names::default();
        let kept: IpAddr = "192.0.2.1".parse().unwrap();
        names.pin("kept", kept, TTL_MAX);
        for number in 0..ADDRS_MAX + 10 {
            names.pin("other", addr(number), TTL_MIN);
        }
        assert_eq!(names.lock().pinned.len(), ADDRS_MAX);
        assert_eq!(names.of(kept), ["kept"]);
        for number in 0..NAMES_MAX * 2 {
            names.pin(&format!("n{number}"), kept, TTL_MIN);
        }
        assert_eq!(names.of(kept).len(), NAMES_MAX);
        ends_are_those_of_the_addresses(&names);
    }

    #[test]
    fn an_address_that_finds_a_full_table_displaces_the_one_that_ends_first() {
        let names = Names::default();
        (0..ADDRS_MAX).for_each(|number| names.pin("old", addr(number), TTL_MIN));
        // The first one ends last from now on, and is pinned by two names.
        names.pin("again", addr(0), TTL_MAX);
        for number in 0..4096 {
            names.pin("new", addr(ADDRS_MAX + number), TTL_MIN);
            let first = names.lock().ends.first().map(|(_, addr)| *addr);
            assert_eq!(first, Some(addr(number + 2)), "one has gone, and the next is known without a look");
        }
        assert_eq!(names.of(addr(0)), ["old", "again"]);
        assert!(names.of(addr(4096)).is_empty() && !names.of(addr(4097)).is_empty());
        ends_are_those_of_the_addresses(&names);
    }
}
