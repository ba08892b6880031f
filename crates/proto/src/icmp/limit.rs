//! How often errors may be sent: token buckets for an interface and for each destination behind it (RFC 4443
//! section 2.4 (f), RFC 1812 section 4.3.2.8).
//!
//! A bucket fills at a rate and never above its burst; a caller that takes a token may send. Destinations share a fixed
//! number of buckets by a keyed hash, so a flood of forged sources costs no memory and evicts no destination. Such a flood
//! does empty all of an interface's buckets, which is why each interface has its own: only its neighbors on the same link go
//! without errors.
//!
//! An exact common limit would also be an oracle: an attacker that makes a host send a known number of errors to forged sources and then asks for
//! one itself learns whether all of them were sent, and so which ports are open to others (CVE-2020-25705). So the price of a token of the common
//! bucket is random, as in Linux: nothing, one or two, and one on average. Limits per destination need no such thing, since they show a destination
//! only its own traffic.
//!
//! This module does not depend on what is sent. Tests: below.

use core::time::Duration;

use siphasher::sip::SipHasher24;

use crate::time::Instant;

/// Buckets that destinations share. A power of two.
const DESTINATIONS: usize = 256;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Its level at `at`, in microseconds of filling: a token is `every`.
    level: u64,
    at: Instant,
    every: u64,
    burst: u64,
}

impl Bucket {
    /// A full bucket of `burst` tokens into which one falls `every` so often.
    pub fn new(every: Duration, burst: u32, now: Instant) -> Self {
        let every = u64::try_from(every.as_micros()).unwrap_or(u64::MAX).max(1);
        let burst = every.saturating_mul(u64::from(burst));
        Self { level: burst, at: now, every, burst }
    }

    /// Whether there is a token. A clock that jumps ahead fills the bucket and does not overfill it; one that is
    /// read late by another thread finds it as it is.
    pub fn has_token(&mut self, now: Instant) -> bool {
        let fallen = u64::try_from(now.since(self.at).as_micros()).unwrap_or(u64::MAX);
        self.level = self.level.saturating_add(fallen).min(self.burst);
        self.at = self.at.max(now);
        self.level >= self.every
    }

    /// Takes `count` tokens if there is one. The missing part has to fall in first: filling begins later.
    fn take_about(&mut self, count: u64, now: Instant) -> bool {
        let has = self.has_token(now);
        if has {
            let cost = self.every.saturating_mul(count);
            self.at = self.at + Duration::from_micros(cost.saturating_sub(self.level));
            self.level = self.level.saturating_sub(cost);
        }
        has
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        let has = self.has_token(now);
        if has {
            self.level -= self.every;
        }
        has
    }
}

/// Which bound was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// That of the interface.
    Global,
    /// That of the destination.
    Destination,
}

/// The limits of an interface: a bucket for all, and one for each destination.
#[derive(Clone, Debug)]
pub struct Limits {
    all: Bucket,
    key: [u8; 16],
    /// Random numbers drawn so far.
    draws: u64,
    each: Box<[Bucket]>,
}

impl Limits {
    /// Full buckets: `all` for the interface, copies of `each` for destinations. `key` is a secret that nothing else is
    /// drawn from.
    pub fn new(all: Bucket, each: Bucket, key: [u8; 16]) -> Self {
        Self { all, key, draws: 0, each: vec![each; DESTINATIONS].into() }
    }

    /// 0, 1 or 2, not to be foretold.
    fn draw(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(1);
        SipHasher24::new_with_key(&self.key).hash(&self.draws.to_ne_bytes()) % 3
    }

    /// Takes a token of both, or of neither.
    ///
    /// # Errors
    /// Which of the two was empty.
    pub fn take(&mut self, destination_hash: u64, now: Instant) -> Result<(), Refused> {
        let cost = self.draw();
        // Less than DESTINATIONS, so the narrowing keeps it.
        let index = (destination_hash % DESTINATIONS as u64) as usize;
        let Some(each) = self.each.get_mut(index) else { return Err(Refused::Destination) };
        if !each.has_token(now) {
            return Err(Refused::Destination);
        }
        if !self.all.take_about(cost, now) {
            return Err(Refused::Global);
        }
        each.take(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant::from_micros(1_000_000_000 + ms * 1000)
    }

    fn taken(bucket: &mut Bucket, ms: u64) -> usize {
        (0..100).take_while(|_| bucket.take(at(ms))).count()
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate_however_the_clock_jumps() {
        let mut bucket = Bucket::new(10 * MS, 5, at(0));
        assert_eq!(taken(&mut bucket, 0), 5);
        assert_eq!(taken(&mut bucket, 9), 0);
        assert_eq!(taken(&mut bucket, 10), 1);
        assert_eq!(taken(&mut bucket, 35), 2);
        assert_eq!(taken(&mut bucket, 1_000_000), 5, "a year away is not a year's tokens");
        assert_eq!(taken(&mut bucket, 5), 0, "a clock read earlier");
        assert_eq!(taken(&mut bucket, 1_000_010), 1);
    }

    #[test]
    fn one_destination_cannot_exhaust_the_shared_bucket_which_bounds_each_destination() {
        let mut limits = Limits::new(Bucket::new(MS, 200, at(0)), Bucket::new(100 * MS, 3, at(0)), [7; 16]);
        let mut take = |hash, ms| (0..20).take_while(|_| limits.take(hash, at(ms)).is_ok()).count();
        assert_eq!([take(1, 0), take(2, 0)], [3, 3]);
        let taken: usize = (3..250).map(|hash| take(hash, 0)).sum();
        assert!((150..=250).contains(&taken), "{taken}");
        assert_eq!(limits.take(251, at(0)), Err(Refused::Global));
        assert_eq!(limits.take(1, at(50)), Err(Refused::Destination));
        assert_eq!(limits.take(1 + DESTINATIONS as u64, at(50)), Err(Refused::Destination));
        assert_eq!(limits.take(1, at(100)), Ok(()));
    }

    #[test]
    fn how_many_of_a_burst_are_sent_differs_and_is_the_burst_on_average() {
        let sent = |key: u8| {
            let each = Bucket::new(MS, 1000, at(0));
            let mut limits = Limits::new(Bucket::new(MS, 50, at(0)), each, [key; 16]);
            (0..1000).take_while(|hash| limits.take(*hash, at(0)).is_ok()).count()
        };
        let counts: Vec<usize> = (0..200).map(sent).collect();
        let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
        assert!((47.0..54.0).contains(&mean), "{mean}");
        let differ = counts.windows(2).filter(|two| two[0] != two[1]).count();
        assert!(differ > 150, "{differ} of 199 differ from the one before");
    }
}
