//! The stack's clock: microseconds since the stack was made, or whatever its driver says.
//!
//! A stack with workers reads the system's monotonic clock (no system call: the vDSO). A stack that
//! is driven by `poll(now)` has the time that the last `poll` named, and it only goes forward.

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
        micros: AtomicU64,
    },
}

/// Time zero of a stack: not 0, so that no stored instant is mistaken for "never".
const START_MICROS: u64 = 1_000_000;

impl Clock {
    pub fn system() -> Self {
        Self::System { epoch: StdInstant::now(), epoch_micros: monotonic_micros() }
    }

    pub fn driven() -> Self {
        Self::Driven { micros: AtomicU64::new(START_MICROS) }
    }

    pub fn now(&self) -> Instant {
        match self {
            Self::System { epoch_micros, .. } => {
                let elapsed = monotonic_micros().saturating_sub(*epoch_micros);
                Instant::from_micros(elapsed.saturating_add(START_MICROS))
            }
            // Relaxed: the time is a value of its own, nothing is published through it.
            Self::Driven { micros } => Instant::from_micros(micros.load(Ordering::Relaxed)),
        }
    }

    /// Moves a driven clock forward to `since_start`; a system clock moves by itself.
    pub fn advance_to(&self, since_start: Duration) {
        match self {
            Self::System { .. } => {}
            Self::Driven { micros } => {
                let to = u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX);
                micros.fetch_max(to.saturating_add(START_MICROS), Ordering::Relaxed);
            }
        }
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
}
