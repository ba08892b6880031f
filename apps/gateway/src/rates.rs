//! Rate limits: new flows per second, and bytes per second.
//!
//! Both are token buckets with a burst of one second. A flow that finds no token does not start. Bytes are moved first and charged afterwards: a relay that has moved
//! bytes waits until the common debt is paid, so flows take turns; a datagram that meets a debt is dropped. Without a limit, nothing is
//! locked or counted.
//!
//! Lock: each bucket's mutex, a leaf. Tests: below.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use sockeye_shared::parse;

/// `--rate` and `--rate-bytes`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct RateArgs {
    /// Most new connections, flows of datagrams and pings a second; as many may come at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// Most bytes a second of all flows together, each way
    #[arg(long, value_name = "BYTES", value_parser = parse::size)]
    pub rate_bytes: Option<usize>,
}

/// See the module's head. The default has no limits.
#[derive(Debug, Default)]
pub struct Rates {
    flows: Option<Bucket>,
    sent: Option<Bucket>,
    received: Option<Bucket>,
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From inside.
    Out,
    /// To the inside.
    In,
}

impl Rates {
    /// As the command line has them.
    pub fn new(args: RateArgs) -> Self {
        let bytes = || args.rate_bytes.map(|rate| Bucket::new(rate as f64));
        Self { flows: args.rate.map(|rate| Bucket::new(f64::from(rate))), sent: bytes(), received: bytes() }
    }

    /// Takes the token of a flow, if there is one.
    pub fn admits_flow(&self) -> bool {
        self.flows.as_ref().is_none_or(|bucket| bucket.take(1.0, Instant::now()))
    }

    /// Takes the tokens of a datagram, if nothing is owed.
    pub fn admits(&self, way: Way, bytes: usize) -> bool {
        self.of(way).is_none_or(|bucket| {
            bucket.owe(0.0, Instant::now()).is_zero() && {
                bucket.owe(bytes as f64, Instant::now());
                true
            }
        })
    }

    /// Bytes have been moved. Returns when their debt is paid: at once without a limit.
    pub async fn pay(&self, way: Way, bytes: usize) {
        let Some(bucket) = self.of(way) else { return };
        let wait = bucket.owe(bytes as f64, Instant::now());
        if !wait.is_zero() {
            // Apart: a flow that owes nothing, as most do, has no room for a timer.
            Box::pin(tokio::time::sleep(wait)).await;
        }
    }

    fn of(&self, way: Way) -> Option<&Bucket> {
        match way {
            Way::Out => self.sent.as_ref(),
            Way::In => self.received.as_ref(),
        }
    }
}

/// Tokens that come at a rate, as many as come in a second at most; below zero what is owed.
#[derive(Debug)]
struct Bucket {
    /// A second.
    rate: f64,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    fn new(rate: f64) -> Self {
        // A rate of zero would owe for ever.
        let rate = rate.max(1.0);
        Self { rate, state: Mutex::new((rate, Instant::now())) }
    }

    /// Takes `tokens`, if there are so many.
    fn take(&self, tokens: f64, now: Instant) -> bool {
        self.with(now, |left| {
            let has_enough = *left >= tokens;
            *left -= if has_enough { tokens } else { 0.0 };
            has_enough
        })
    }

    /// Takes `tokens`, be there so many or not. Returns the time until nothing is owed.
    fn owe(&self, tokens: f64, now: Instant) -> Duration {
        self.with(now, |left| {
            *left -= tokens;
            Duration::try_from_secs_f64(-*left / self.rate).unwrap_or_default()
        })
    }

    fn with<R>(&self, now: Instant, f: impl FnOnce(&mut f64) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = *state;
        let come = now.saturating_duration_since(at).as_secs_f64() * self.rate;
        *state = ((left + come).min(self.rate), now);
        f(&mut state.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_a_burst_and_then_tokens_come_at_the_rate() {
        let (bucket, start) = (Bucket::new(10.0), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let taken = |ms| (0..100).take_while(|_| bucket.take(1.0, at(ms))).count();
        assert_eq!([taken(1), taken(1), taken(501), taken(100_000)], [10, 0, 5, 10]);
    }

    #[test]
    fn what_is_owed_is_paid_in_turn() {
        let (bucket, start) = (Bucket::new(1000.0), Instant::now());
        assert_eq!(bucket.owe(1000.0, start), Duration::ZERO);
        assert_eq!(bucket.owe(500.0, start).as_millis(), 500);
        assert_eq!(bucket.owe(500.0, start).as_millis(), 1000, "after those that came first");
        assert_eq!(bucket.owe(0.0, start + Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn without_limits_everything_is_admitted() {
        let rates = Rates::default();
        assert!((0..100_000).all(|_| rates.admits_flow() && rates.admits(Way::Out, 1 << 20)));
        let one = Rates::new(RateArgs { rate: Some(1), rate_bytes: Some(10) });
        assert!(one.admits_flow() && !one.admits_flow());
        assert!(one.admits(Way::In, 100) && !one.admits(Way::In, 1) && one.admits(Way::Out, 1));
    }
}
