//! CPUs that other work keeps: a thread that yields there waits for a time slice.
//!
//! `sched_yield` is cheap as long as the other threads of the CPU are about to sleep. Where one of them computes, it goes on until the
//! end of its slice: 3 ms and more on Linux with EEVDF, which since 6.18 also charges a thread that yields for the slice that it gave away. A thread
//! that sleeps instead and is woken runs at once as a rule. So each yield is timed, and after one that took [`LOST_MIN`] or longer nothing yields on that CPU
//! for [`HOLD_FACTOR`] times as long: other work costs spinning threads a small part of the time at most, however many they are.
//!
//! Does not depend on what is waited for. Everything here is a hint, and nothing is ordered by it: an old value costs a yield, or a sleep.
//! Invariant: a hold ends, [`HOLD_MAX_MICROS`] after it began at the latest. Tests: below.

use core::time::Duration;

use crate::facade::unmodelled::{AtomicU64, Ordering};

/// A yield this long was no turn of a thread that had only something to hand over.
pub(super) const LOST_MIN: Duration = Duration::from_millis(1);
/// How many times as long as it lost a CPU is left alone.
const HOLD_FACTOR: u64 = 64;
/// The longest hold, microseconds.
const HOLD_MAX_MICROS: u64 = 1_000_000;
/// CPUs that are told apart; of more, some share a slot.
const SLOTS: usize = 64;

/// When the hold of each CPU ends, in microseconds of the monotonic clock; 0: it has none.
pub(super) struct Kept([AtomicU64; SLOTS]);

impl Kept {
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS])
    }

    /// A yield on `cpu` took `lost`, until `now`.
    pub fn note(&self, cpu: u32, lost: Duration, now: u64) {
        let hold = u64::try_from(lost.as_micros()).unwrap_or(u64::MAX).saturating_mul(HOLD_FACTOR);
        self.slot(cpu).store(now + hold.min(HOLD_MAX_MICROS), Ordering::Relaxed);
    }

    /// Whether `cpu` is not to be offered to others. The clock is read only if there was a hold.
    #[inline]
    pub fn is_held(&self, cpu: u32, now: impl FnOnce() -> u64) -> bool {
        let slot = self.slot(cpu);
        let end = slot.load(Ordering::Relaxed);
        if end == 0 {
            return false;
        }
        let is_held = now() < end;
        if !is_held {
            // Another thread's new hold may be lost by it, which costs one more yield.
            slot.store(0, Ordering::Relaxed);
        }
        is_held
    }

    fn slot(&self, cpu: u32) -> &AtomicU64 {
        &self.0[cpu as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_left_alone_in_proportion_to_what_it_cost() {
        let kept = Kept::new();
        assert!(!kept.is_held(3, || unreachable!("there is no hold")));
        kept.note(3, Duration::from_millis(2), 1_000);
        assert!(kept.is_held(3, || 1_000) && kept.is_held(3, || 128_999));
        assert!(!kept.is_held(4, || 1_000));
        assert!(!kept.is_held(3, || 129_000));
        assert!(!kept.is_held(3, || unreachable!("the hold is over")));
    }

    #[test]
    fn a_hold_is_bounded() {
        let kept = Kept::new();
        kept.note(0, Duration::MAX, 5);
        assert!(kept.is_held(0, || HOLD_MAX_MICROS + 4));
        assert!(!kept.is_held(0, || HOLD_MAX_MICROS + 5));
    }
}
