//! The stack's clock: microseconds since the stack was made, or whatever its driver says.
//!
//! A stack with workers reads the system's monotonic clock (no system call: the vDSO). A stack that
//! is driven by `poll(now)` has the time that the last `poll` named, and it only goes forward. If the driver has said which
//! moment its time counts from ([`Clock::follow`]), each look reads the driver's clock, too: calls that come between two polls are
//! made at their own time, and not at that of the poll before.
//!
//! Does not depend on drivers. Tests: below, `tests/tcp/driven.rs`, `tests/tokio/driver.rs`.

use std::time::{Duration, Instant as StdInstant};

use sockeye_proto::time::Instant;
use sockeye_sync::cpu::monotonic_micros;
use sockeye_sync::facade::{AtomicU64, Ordering};

pub(crate) enum Clock {
    System {
        epoch: StdInstant,
        /// The same moment, as `monotonic_micros` counts.
        epoch_micros: u64,
    },
    Driven {
        /// (a) The latest time that was said or read.
        micros: AtomicU64,
        /// (c)
        epoch: StdInstant,
        /// (a) What the followed clock has said at `epoch`, modulo 2^64; [`NOT_FOLLOWED`].
        at_epoch: AtomicU64,
    },
}

/// Time zero of a stack: not 0, so that no stored instant is mistaken for "never".
const START_MICROS: u64 = 1_000_000;
/// No time: 292,000 years before the epoch.
const NOT_FOLLOWED: u64 = 1 << 63;

impl Clock {
    pub fn system() -> Self {
        Self::System { epoch: StdInstant::now(), epoch_micros: monotonic_micros() }
    }

    pub fn driven() -> Self {
        Self::Driven {
            micros: AtomicU64::new(START_MICROS),
            epoch: StdInstant::now(),
            at_epoch: AtomicU64::new(NOT_FOLLOWED),
        }
    }

    pub fn now(&self) -> Instant {
        match self {
            Self::System { epoch_micros, .. } => {
                let elapsed = monotonic_micros().saturating_sub(*epoch_micros);
                Instant::from_micros(elapsed.saturating_add(START_MICROS))
            }
            // Relaxed, here and below: the time is a value of its own, nothing is published through it.
            Self::Driven { micros, epoch, at_epoch } => match at_epoch.load(Ordering::Relaxed) {
                NOT_FOLLOWED => Instant::from_micros(micros.load(Ordering::Relaxed)),
                at_epoch => {
                    let read = at_epoch.wrapping_add(micros_from(*epoch, reading()));
                    // A clock that was followed from a later moment than the stack's first one says less than 0 at first.
                    let read = u64::try_from(read.cast_signed()).unwrap_or(0);
                    Instant::from_micros(micros.fetch_max(read, Ordering::Relaxed).max(read))
                }
            },
        }
    }

    /// Moves a driven clock forward to `since_start`; a system clock moves by itself.
    pub fn advance_to(&self, since_start: Duration) {
        match self {
            Self::System { .. } => {}
            Self::Driven { micros, .. } => {
                micros.fetch_max(Self::at(since_start).as_micros(), Ordering::Relaxed);
            }
        }
    }

    /// From now on a driven clock moves by itself, and says `since_start` when the driver's clock, which is [`reading`], shows `at`.
    /// `None`: it stands still from its latest reading on.
    pub fn follow(&self, driver: Option<(StdInstant, Duration)>) {
        match self {
            Self::System { .. } => {}
            Self::Driven { epoch, at_epoch, .. } => {
                let says = driver.map_or(NOT_FOLLOWED, |(at, since_start)| {
                    Self::at(since_start).as_micros().wrapping_sub(micros_from(*epoch, at))
                });
                at_epoch.store(says, Ordering::Relaxed);
            }
        }
    }

    /// The point of this clock that `poll` speaks of as the time since the start.
    pub fn at(since_start: Duration) -> Instant {
        let micros = u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX);
        Instant::from_micros(micros.saturating_add(START_MICROS))
    }

    /// A point of this clock as the time since the start that `poll` speaks in.
    pub fn since_start(at: Instant) -> Duration {
        Duration::from_micros(at.as_micros().saturating_sub(START_MICROS))
    }

    /// A point of this clock as a point of the system's; `None` for a driven clock.
    pub fn to_std(&self, at: Instant) -> Option<StdInstant> {
        match self {
            Self::System { epoch, .. } => Some(*epoch + Self::since_start(at)),
            Self::Driven { .. } => None,
        }
    }
}

/// The clock of drivers: the system's, or tokio's, which is the same one unless a program has paused it.
fn reading() -> StdInstant {
    #[cfg(all(feature = "tokio", unix))]
    return ::tokio::time::Instant::now().into_std();
    #[cfg(not(all(feature = "tokio", unix)))]
    StdInstant::now()
}

/// Microseconds from `epoch` to `at`, modulo 2^64: `at` may be the earlier one.
fn micros_from(epoch: StdInstant, at: StdInstant) -> u64 {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    match at.checked_duration_since(epoch) {
        Some(later) => micros(later),
        None => micros(epoch.duration_since(at)).wrapping_neg(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driven_clock_moves_only_when_set_and_never_backwards() {
        let clock = Clock::driven();
        let start = clock.now();
        clock.advance_to(Duration::from_millis(5));
        assert_eq!(clock.now().since(start), Duration::from_millis(5));
        clock.advance_to(Duration::from_millis(1));
        assert_eq!(clock.now().since(start), Duration::from_millis(5));
        assert_eq!(Clock::since_start(clock.now()), Duration::from_millis(5));
    }

    #[test]
    fn a_driven_clock_that_follows_its_drivers_moves_by_itself_from_where_it_is() {
        const HOUR: Duration = Duration::from_secs(3600);
        let clock = Clock::driven();
        let now = || Clock::since_start(clock.now());
        // The driver counts from a moment before the stack's first, or from a later one.
        let begun = StdInstant::now();
        clock.follow(Some((begun + HOUR, HOUR + HOUR)));
        assert!((HOUR..HOUR + HOUR).contains(&now()), "{:?}", now());
        clock.follow(Some((begun + HOUR, Duration::ZERO)));
        let before = now();
        assert!(before >= HOUR, "it does not go back");
        clock.follow(Some((begun, HOUR + HOUR)));
        let first = now();
        assert!((HOUR + HOUR..HOUR + HOUR + HOUR).contains(&first), "{first:?}");
        while now() == first {}
        clock.follow(None);
        let last = now();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(now(), last, "nobody moves it");
        clock.advance_to(last + HOUR);
        assert_eq!(now(), last + HOUR);
    }
}
