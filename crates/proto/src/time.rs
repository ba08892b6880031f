//! The engine's clock: microseconds since a moment that the driver of the engine chose.
//!
//! The engine never reads a clock; its callers pass the time. A simulator may jump. Callers on several threads may be
//! a little late; a connection then counts with the latest time that it got (`Pcb::clock`).

use core::ops::Add;
use core::time::Duration;

/// A point in the driver's time, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant(u64);

impl Instant {
    /// The moment the driver calls zero.
    pub const ZERO: Self = Self(0);

    /// `micros` microseconds after zero.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since zero.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since zero.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    /// Saturates at the end of time, which is some 584,000 years away.
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}
