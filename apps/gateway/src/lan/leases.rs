//! Which machine on the link has which address.
//!
//! A machine is identified by its Ethernet address and has one number in the pool, the same for both families. A lease lasts for [`LEASE`] and is
//! extended by each request. Bound: [`LEASES_MAX`] machines; another machine gets no answer until a lease ends. Does not depend on messages. Tests: below.

use std::time::{Duration, Instant};

use sockeye::netif::MacAddr;

/// Machines with an address, at most: they fit behind the first one in the smallest network.
pub const LEASES_MAX: u8 = 24;
/// How long a machine may keep its address without asking.
pub const LEASE: Duration = Duration::from_secs(3600);
/// How long an address is kept that was offered and not asked for.
const OFFER: Duration = Duration::from_secs(60);

/// The pool.
#[derive(Debug)]
pub struct Leases {
    /// The first place that machines get: those before are others'.
    first: u8,
    taken: Vec<Lease>,
}

#[derive(Debug)]
struct Lease {
    /// `None`: the address is somebody else's, as a machine has said.
    mac: Option<MacAddr>,
    place: u8,
    until: Instant,
}

impl Leases {
    /// A pool whose places begin at `first`.
    pub fn from(first: u8) -> Self {
        Self { first, taken: Vec::new() }
    }

    /// The place that the machine would get, and may ask for within a minute. `None` if there is no room.
    pub fn offer(&mut self, mac: MacAddr, now: Instant) -> Option<u8> {
        self.take(mac, now, OFFER)
    }

    /// The place that the machine has from now on. `None` if there is no room.
    pub fn lease(&mut self, mac: MacAddr, now: Instant) -> Option<u8> {
        self.take(mac, now, LEASE)
    }

    fn take(&mut self, mac: MacAddr, now: Instant, time: Duration) -> Option<u8> {
        let until = now + time;
        if let Some(lease) = self.taken.iter_mut().find(|lease| lease.mac == Some(mac)) {
            lease.until = lease.until.max(until);
            return Some(lease.place);
        }
        self.taken.retain(|lease| lease.until > now);
        let is_free = |place: &u8| self.taken.iter().all(|lease| lease.place != *place);
        let place = (self.first..LEASES_MAX).find(is_free)?;
        self.taken.push(Lease { mac: Some(mac), place, until });
        Some(place)
    }

    /// The machine does not need its address any more.
    pub fn release(&mut self, mac: MacAddr) {
        self.taken.retain(|lease| lease.mac != Some(mac));
    }

    /// The machine says that its address is in use by another: nobody gets it for a time.
    pub fn decline(&mut self, mac: MacAddr, now: Instant) {
        if let Some(lease) = self.taken.iter_mut().find(|lease| lease.mac == Some(mac)) {
            (lease.mac, lease.until) = (None, now + LEASE);
        }
    }

    /// All machines have gone.
    pub fn clear(&mut self) {
        self.taken.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    #[test]
    fn a_machine_keeps_its_place_and_a_released_one_is_free() {
        let (mut leases, now) = (Leases::from(0), Instant::now());
        assert_eq!((leases.offer(mac(1), now), leases.lease(mac(2), now)), (Some(0), Some(1)));
        assert_eq!(leases.lease(mac(1), now), Some(0));
        leases.release(mac(1));
        assert_eq!(leases.lease(mac(3), now), Some(0));
        leases.decline(mac(3), now);
        assert_eq!(leases.lease(mac(3), now), Some(2), "nobody gets one that is in use");
    }

    #[test]
    fn the_pool_is_bounded_and_its_places_come_back() {
        let (mut leases, now) = (Leases::from(1), Instant::now());
        for number in 1..LEASES_MAX {
            assert_eq!(leases.lease(mac(number), now), Some(number));
        }
        assert_eq!(leases.lease(mac(200), now), None);
        assert_eq!(leases.offer(mac(201), now + LEASE), Some(1));
        assert_eq!(leases.lease(mac(202), now + LEASE), Some(2));
        // The offer was not taken up, the lease goes on.
        assert_eq!(leases.lease(mac(203), now + LEASE + OFFER), Some(1));
        assert_eq!(leases.lease(mac(202), now + LEASE + OFFER), Some(2));
    }
}
