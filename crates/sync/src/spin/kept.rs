//! CPUs that other work keeps: a thread that yields there waits for a time slice.
//!
//! `sched_yield` is cheap as long as the other threads of the CPU are about to sleep. Where one of them computes, it goes on until the
//! end of its slice: 3 ms and more on Linux with EEVDF, which since 6.18 also charges a thread that yields for the slice that it gave away. A thread
//! that sleeps instead and is woken runs at once as a rule. So each yield is timed, and after one that took [`LOST_MIN`] or longer nothing yields on that CPU
//! for [`HOLD_FACTOR`] times as long. A yield that is lost soon after that doubles the time, up to [`HOLD_MAX_MICROS`]: work that goes on costs
//! a slice in a second, and a single interruption little.
//!
//! Does not depend on what is waited for. Everything here is a hint, and nothing is ordered by it: an old value costs a yield, or a sleep.
//! Invariant: a hold ends, [`HOLD_MAX_MICROS`] after it began at the latest. Tests: below.

use core::time::Duration;

use crate::facade::unmodelled::{AtomicU64, Ordering};

/// A yield this long was no turn of a thread that had only something to hand over.
pub(super) const LOST_MIN: Duration = Duration::from_millis(1);
/// How many times as long as it lost a CPU is left alone the first time.
const HOLD_FACTOR: u64 = 8;
/// The longest hold, microseconds.
const HOLD_MAX_MICROS: u64 = 1_000_000;
/// CPUs that are told apart; of more, some share a slot.
const SLOTS: usize = 64;

/// The hold of a CPU, in microseconds of the monotonic clock.
struct Hold {
    /// When it ends, or ended lately; 0: there is none, and was none lately.
    end: AtomicU64,
    /// How long it lasts. It ended lately if that is less than this ago.
    length: AtomicU64,
}

/// The holds of all CPUs.
pub(super) struct Kept([Hold; SLOTS]);

impl Kept {
    pub const fn new() -> Self {
        Self([const { Hold { end: AtomicU64::new(0), length: AtomicU64::new(0) } }; SLOTS])
    }

    /// A yield on `cpu` took `lost`, until `now`.
    pub fn note(&self, cpu: u32, lost: Duration, now: u64) {
        let hold = self.hold(cpu);
        let (end, length) = (hold.end.load(Ordering::Relaxed), hold.length.load(Ordering::Relaxed));
        // Threads that lose a yield at the same time begin one hold.
        if now < end {
            return;
        }
        let first = u64::try_from(lost.as_micros()).unwrap_or(u64::MAX).saturating_mul(HOLD_FACTOR);
        let is_again = end > 0 && now < end + length;
        let length = if is_again { first.max(2 * length) } else { first }.min(HOLD_MAX_MICROS);
        hold.length.store(length, Ordering::Relaxed);
        hold.end.store(now + length, Ordering::Relaxed);
    }

    /// Whether `cpu` is not to be offered to others. The clock is read only if there is a hold or was one lately.
    #[inline]
    pub fn is_held(&self, cpu: u32, now: impl FnOnce() -> u64) -> bool {
        let hold = self.hold(cpu);
        let end = hold.end.load(Ordering::Relaxed);
        if end == 0 {
            return false;
        }
        let now = now();
        if now >= end + hold.length.load(Ordering::Relaxed) {
            // Another thread's new hold may be lost by it, which costs one more yield.
            hold.end.store(0, Ordering::Relaxed);
        }
        now < end
    }

    fn hold(&self, cpu: u32) -> &Hold {
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
        assert!(kept.is_held(3, || 1_000) && kept.is_held(3, || 16_999));
        assert!(!kept.is_held(4, || 1_000));
        assert!(!kept.is_held(3, || 17_000) && !kept.is_held(3, || 33_000));
        assert!(!kept.is_held(3, || unreachable!("the hold is long over")));
    }

    #[test]
    fn work_that_goes_on_doubles_the_time_and_a_later_one_does_not() {
        let kept = Kept::new();
        kept.note(3, Duration::from_millis(2), 1_000);
        // Another thread had yielded at the same time.
        kept.note(3, Duration::from_millis(4), 3_000);
        assert!(!kept.is_held(3, || 17_000));
        kept.note(3, Duration::from_millis(2), 19_000);
        assert!(kept.is_held(3, || 50_999) && !kept.is_held(3, || 51_000));
        kept.note(3, Duration::from_millis(2), 90_000);
        assert!(kept.is_held(3, || 105_999) && !kept.is_held(3, || 106_000));
    }

    #[test]
    fn a_hold_is_bounded() {
        let kept = Kept::new();
        kept.note(0, Duration::MAX, 5);
        assert!(kept.is_held(0, || HOLD_MAX_MICROS + 4));
        assert!(!kept.is_held(0, || HOLD_MAX_MICROS + 5));
        kept.note(0, Duration::MAX, HOLD_MAX_MICROS + 5);
        assert!(!kept.is_held(0, || 2 * HOLD_MAX_MICROS + 5));
    }
}
