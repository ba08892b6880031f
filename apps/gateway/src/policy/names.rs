//! Records for which names the name server has returned an address.
//!
//! Bounds: [`ADDRS_MAX`] addresses with [`NAMES_MAX`] names each. When the table is full, the entry that expires first is removed. Lock: one mutex, a leaf.
//! Tests: below.

use std::collections::HashMap;
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
    pinned: Mutex<HashMap<IpAddr, Vec<(String, Instant)>>>,
}

impl Names {
    /// Remembers that `name` has the address `addr` for `ttl`.
    pub fn pin(&self, name: &str, addr: IpAddr, ttl: Duration) {
        let now = Instant::now();
        let until = now + ttl.clamp(TTL_MIN, TTL_MAX);
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let mut pinned = self.lock();
        if pinned.len() >= ADDRS_MAX && !pinned.contains_key(&addr.to_canonical()) {
            pinned.retain(|_, names| names.iter().any(|(_, end)| *end > now));
            let last = |names: &Vec<(String, Instant)>| names.iter().map(|(_, end)| *end).max();
            let first_to_end = pinned.iter().min_by_key(|(_, names)| last(names)).map(|(addr, _)| *addr);
            if let Some(addr) = first_to_end.filter(|_| pinned.len() >= ADDRS_MAX) {
                pinned.remove(&addr);
            }
        }
        let names = pinned.entry(addr.to_canonical()).or_default();
        names.retain(|(known, end)| *known != name && *end > now);
        if names.len() >= NAMES_MAX {
            names.remove(0);
        }
        names.push((name, until));
    }

    /// The names of an address that still hold.
    pub fn of(&self, addr: IpAddr) -> Vec<String> {
        let now = Instant::now();
        let pinned = self.lock();
        let names = pinned.get(&addr.to_canonical()).map(Vec::as_slice).unwrap_or_default();
        names.iter().filter(|(_, end)| *end > now).map(|(name, _)| name.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Vec<(String, Instant)>>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_bounded_and_keeps_what_lasts_longest() {
        let names = Names::default();
        let kept: IpAddr = "192.0.2.1".parse().unwrap();
        names.pin("kept", kept, TTL_MAX);
        for number in 0..ADDRS_MAX as u32 + 10 {
            names.pin("other", std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into(), TTL_MIN);
        }
        assert_eq!(names.lock().len(), ADDRS_MAX);
        assert_eq!(names.of(kept), ["kept"]);
        for number in 0..NAMES_MAX * 2 {
            names.pin(&format!("n{number}"), kept, TTL_MIN);
        }
        assert_eq!(names.of(kept).len(), NAMES_MAX);
    }
}
