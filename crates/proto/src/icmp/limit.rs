//! How often one may answer: token buckets for a stack and for each destination (RFC 4443 section 2.4 (f),
//! RFC 1812 section 4.3.2.8).
//!
//! A bucket fills at a rate and never above its burst; who takes a token may send. Destinations share a fixed number
//! of buckets by a keyed hash, so a flood of forged sources costs no memory and evicts nobody: it takes from at most
//! the buckets that it hits. This module must not know what is sent. Tests: below.

use core::time::Duration;

use crate::time::Instant;

/// Buckets that destinations share. A power of two.
const DESTINATIONS: usize = 256;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// What it held at `at`, in microseconds of filling: a token is `every`.
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
    /// That of the whole stack.
    Global,
    /// That of the destination.
    Destination,
}

/// A bucket for all, and one for each destination.
#[derive(Clone, Debug)]
pub struct Limits {
    all: Bucket,
    each: Box<[Bucket]>,
}

impl Limits {
    /// Full buckets: `all` for the stack, copies of `each` for destinations.
    pub fn new(all: Bucket, each: Bucket) -> Self {
        Self { all, each: vec![each; DESTINATIONS].into() }
    }

    /// Takes a token of both, or of neither.
    ///
    /// # Errors
    /// Which of the two was empty.
    pub fn take(&mut self, destination_hash: u64, now: Instant) -> Result<(), Refused> {
        // Less than DESTINATIONS, so the narrowing keeps it.
        let index = (destination_hash % DESTINATIONS as u64) as usize;
        let Some(each) = self.each.get_mut(index) else { return Err(Refused::Destination) };
        if !each.has_token(now) {
            return Err(Refused::Destination);
        }
        if !self.all.take(now) {
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
    fn one_destination_cannot_use_up_what_is_for_all_and_all_bound_each() {
        let mut limits = Limits::new(Bucket::new(MS, 10, at(0)), Bucket::new(100 * MS, 3, at(0)));
        let mut take = |hash, ms| (0..20).take_while(|_| limits.take(hash, at(ms)).is_ok()).count();
        assert_eq!([take(1, 0), take(2, 0), take(3, 0), take(4, 0), take(5, 0)], [3, 3, 3, 1, 0]);
        assert_eq!(limits.take(5, at(0)), Err(Refused::Global));
        assert_eq!(limits.take(1, at(50)), Err(Refused::Destination));
        assert_eq!(limits.take(1 + DESTINATIONS as u64, at(50)), Err(Refused::Destination));
        assert_eq!(limits.take(1, at(100)), Ok(()));
    }
}
