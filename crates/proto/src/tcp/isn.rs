//! Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323 section 7.1): the starting points of a
//! connection's two clocks, which no host off the path can guess.
//!
//! Both are a keyed hash of the 4-tuple. Since the timestamp offset depends only on the 4-tuple, it is the same for
//! every incarnation of a connection, and the sequence number grows with the clock from one incarnation to the next; so
//! TIME-WAIT can end early (see [`time_wait`](super::time_wait)). This module does not depend on where secrets come
//! from, or on the shape of an address. Invariant: without the secret, the two values of a 4-tuple reveal nothing about
//! each other or about those of another 4-tuple. Tests stand at the end.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::seq::SeqNum;
use crate::time::Instant;

/// Microseconds in one tick of the clock M of RFC 9293 section 3.4.1.
const ISN_TICK_MICROS: u64 = 4;

/// Domain separator of the two hashes.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Domain {
    SequenceNumber = 1,
    TimestampOffset = 2,
    CookieWhole = 3,
    CookieData = 4,
}

/// One of the two hashes in a SYN cookie: see [`cookie`](super::syncache::cookie).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CookiePart {
    /// The hash that covers the whole number.
    Whole,
    /// The hash that covers the low bits and depends on the time.
    Data,
}

/// The key behind a stack's sequence numbers, drawn from a good random source once per stack.
///
/// An attacker who knows it can forge segments into any connection, so `Debug` does not print it.
#[derive(Clone, Copy)]
pub struct Secret([u8; 16]);

impl Secret {
    /// Takes 16 random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The ISN for a connection opened at `now`: M + F(4-tuple, secret) of RFC 6528 section 3.
    ///
    /// `local` and `remote` are the bytes of address and port, in any form that distinguishes endpoints and is always
    /// the same for the same endpoint. Does not block; takes some tens of nanoseconds.
    pub fn isn(&self, now: Instant, local: &[u8], remote: &[u8]) -> SeqNum {
        let ticks = now.as_micros() / ISN_TICK_MICROS;
        SeqNum::new(low_half(ticks)) + self.hash(Domain::SequenceNumber, local, remote)
    }

    /// The offset that a connection adds to its millisecond clock in every TSval.
    ///
    /// Arguments as for [`isn`](Self::isn).
    pub fn ts_offset(&self, local: &[u8], remote: &[u8]) -> u32 {
        self.hash(Domain::TimestampOffset, local, remote)
    }

    /// A part of a SYN cookie made in the period `count` for the SYN numbered `irs`. Arguments otherwise as for
    /// [`isn`](Self::isn).
    pub fn cookie(&self, part: CookiePart, count: u32, irs: u32, local: &[u8], remote: &[u8]) -> u32 {
        let domain = match part {
            CookiePart::Whole => Domain::CookieWhole,
            CookiePart::Data => Domain::CookieData,
        };
        let mut hasher = self.hasher(domain, local, remote);
        hasher.write_u32(count);
        hasher.write_u32(irs);
        low_half(hasher.finish())
    }

    fn hash(&self, domain: Domain, local: &[u8], remote: &[u8]) -> u32 {
        low_half(self.hasher(domain, local, remote).finish())
    }

    fn hasher(&self, domain: Domain, local: &[u8], remote: &[u8]) -> SipHasher24 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        // The length of the first endpoint distinguishes two pairs whose concatenated bytes are equal.
        hasher.write_u64(((local.len() as u64) << 8) | domain as u64);
        hasher.write(local);
        hasher.write(remote);
        hasher
    }
}

/// The lower 32 bits: these numbers wrap at that size.
const fn low_half(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use std::collections::HashSet;

    const SECRET: Secret = Secret::new(*b"sixteen bytes ok");
    const LOCAL: &[u8] = &[10, 0, 0, 1, 0x01, 0xbb];
    const REMOTE: &[u8] = &[10, 0, 0, 2, 0x9c, 0x40];

    #[test]
    fn isn_advances_by_one_every_four_microseconds() {
        let start = Instant::from_micros(1000);
        let isn = SECRET.isn(start, LOCAL, REMOTE);
        let after = |micros| SECRET.isn(start + Duration::from_micros(micros), LOCAL, REMOTE);
        assert_eq!(after(3), isn);
        assert_eq!(after(4), isn + 1);
        assert_eq!(after(4_000_000), isn + 1_000_000);
        // It wraps after 4.77 hours, and does not stop.
        assert_eq!(after(4 << 32), isn);
    }

    #[test]
    fn every_part_of_the_tuple_and_the_secret_matter() {
        let now = Instant::ZERO;
        let other = Secret::new([7; 16]);
        let all = [
            SECRET.isn(now, LOCAL, REMOTE),
            SECRET.isn(now, REMOTE, LOCAL),
            SECRET.isn(now, &LOCAL[..5], &[&LOCAL[5..], REMOTE].concat()),
            SECRET.isn(now, LOCAL, &[10, 0, 0, 2, 0x9c, 0x41]),
            other.isn(now, LOCAL, REMOTE),
            SeqNum::new(SECRET.ts_offset(LOCAL, REMOTE)),
            SeqNum::new(other.ts_offset(LOCAL, REMOTE)),
        ];
        let distinct: HashSet<SeqNum> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn isns_of_neighbouring_ports_are_spread_over_the_circle() {
        let mut quarters = [0u32; 4];
        for port in 0u16..4096 {
            let [a, b] = port.to_be_bytes();
            let isn = SECRET.isn(Instant::ZERO, LOCAL, &[10, 0, 0, 2, a, b]);
            quarters[usize::try_from(isn.raw() >> 30).unwrap()] += 1;
        }
        // A fair coin gives 1024 +- 28 in each; ten deviations do not happen by chance.
        assert!(quarters.iter().all(|count| (744..1304).contains(count)), "{quarters:?}");
    }

    #[test]
    fn ts_offset_outlives_an_incarnation() {
        assert_eq!(SECRET.ts_offset(LOCAL, REMOTE), SECRET.ts_offset(LOCAL, REMOTE));
    }

    #[test]
    fn the_secret_does_not_print_itself() {
        assert_eq!(format!("{SECRET:?}"), "Secret(..)");
    }

    /// RFC 6528 section 3: ISN = M + F.
    #[test]
    fn at_the_beginning_of_time_an_isn_is_the_hash() {
        let hash = SECRET.hash(Domain::SequenceNumber, LOCAL, REMOTE);
        assert_eq!(SECRET.isn(Instant::ZERO, LOCAL, REMOTE), SeqNum::new(hash));
        assert_eq!(SECRET.isn(Instant::from_micros(40), LOCAL, REMOTE), SeqNum::new(hash) + 10);
    }
}
