//! CPUs that other work keeps: a thread that yields there waits for a time slice.
//!
//! `sched_yield` is cheap as long as the other threads of the CPU are about to sleep. Where one of them computes, it goes on until the
//! end of its slice: 3 ms and more on Linux with EEVDF, which since 6.18 also charges a thread that yields for the slice that it gave away. A thread
//! that sleeps instead and is woken runs at once as a rule. So where a thread of ours yields and none of our threads is seen for [`LOST_MIN`], nothing yields on that CPU
//! for [`HOLD_FACTOR`] times as long. A yield to many threads of ours may take as long, but each of them is seen when it waits in its turn. A CPU that is lost again soon after doubles the time, up to [`HOLD_MAX_MICROS`]: work that
//! goes on costs a slice in a second, and a single interruption little.
//!
//! Does not depend on what is waited for. Everything here is a hint, and nothing is ordered by it: an old value costs a yield, or a sleep.
//! Invariant: a hold ends, [`HOLD_MAX_MICROS`] after it began at the latest. Tests: below.

use crossbeam_utils::CachePadded;

use crate::facade::unmodelled::{AtomicU64, Ordering};

/// No turn of a thread that has only something to hand over takes so long, microseconds, and no time slice is shorter. A thread that serves a thousand sockets
/// after one wait may take half of it.
const LOST_MIN: u64 = 2_000;
/// How many times as long as it lost a CPU is left alone the first time.
const HOLD_FACTOR: u64 = 8;
/// The longest hold, microseconds.
const HOLD_MAX_MICROS: u64 = 1_000_000;
/// CPUs that are told apart; of more, some share a slot.
const SLOTS: usize = 64;

/// The hold of a CPU, in microseconds of the monotonic clock.
struct Hold {
    /// When a thread of ours was seen there.
    seen: AtomicU64,
    /// How many threads of ours yield there now.
    offers: AtomicU64,
    /// When it ends, or ended lately; 0: there is none, and was none lately.
    end: AtomicU64,
    /// How long it lasts. It ended lately if that is less than this ago.
    length: AtomicU64,
}

impl Hold {
    /// Other work had the CPU for `lost`, until `now`.
    #[cold]
    fn lose(&self, lost: u64, now: u64) {
        let (end, length) = (self.end.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed));
        // Threads that lose a yield at the same time begin one hold.
        if now < end {
            return;
        }
        let first = lost.saturating_mul(HOLD_FACTOR);
        let is_again = end > 0 && now < end + length;
        let length = if is_again { first.max(2 * length) } else { first }.min(HOLD_MAX_MICROS);
        self.length.store(length, Ordering::Relaxed);
        self.end.store(now + length, Ordering::Relaxed);
    }
}

/// The holds of all CPUs, each on lines of its own: every wait on the CPU that outlasts the pauses writes it.
pub(super) struct Kept([CachePadded<Hold>; SLOTS]);

impl Kept {
    pub const fn new() -> Self {
        Self(
            [const {
                CachePadded::new(Hold {
                    seen: AtomicU64::new(0),
                    offers: AtomicU64::new(0),
                    end: AtomicU64::new(0),
                    length: AtomicU64::new(0),
                })
            }; SLOTS],
        )
    }

    /// A thread of ours is on `cpu`.
    #[inline]
    pub fn see(&self, cpu: u32, now: u64) {
        let hold = self.hold(cpu);
        let gap = now.saturating_sub(hold.seen.load(Ordering::Relaxed));
        hold.seen.store(now, Ordering::Relaxed);
        if gap >= LOST_MIN && hold.offers.load(Ordering::Relaxed) > 0 {
            hold.lose(gap, now);
        }
    }

    /// A thread on `cpu` lets others run: `yields` says when that is over.
    #[inline]
    pub fn offer(&self, cpu: u32, now: u64, yields: impl FnOnce() -> u64) -> u64 {
        self.see(cpu, now);
        let hold = self.hold(cpu);
        hold.offers.fetch_add(1, Ordering::Relaxed);
        let now = yields();
        self.see(cpu, now);
        hold.offers.fetch_sub(1, Ordering::Relaxed);
        now
    }

    /// In a child of fork(2), of whose parent's threads only one is left.
    pub fn forget_offers(&self) {
        self.0.iter().for_each(|hold| hold.offers.store(0, Ordering::Relaxed));
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

    const CPU: u32 = 3;

    /// A thread yields for `lost`, until `now`, and no other one is seen.
    fn lose(kept: &Kept, lost: u64, now: u64) {
        assert_eq!(kept.offer(CPU, now - lost, || now), now);
    }

    #[test]
    fn a_cpu_is_left_alone_in_proportion_to_what_it_cost() {
        let kept = Kept::new();
        assert!(!kept.is_held(CPU, || unreachable!("there is no hold")));
        lose(&kept, LOST_MIN - 1, 3_000);
        assert!(!kept.is_held(CPU, || unreachable!("that was short")));
        lose(&kept, 2_000, 11_000);
        assert!(kept.is_held(CPU, || 11_000) && kept.is_held(CPU, || 26_999));
        assert!(!kept.is_held(CPU + 1, || 11_000));
        assert!(!kept.is_held(CPU, || 27_000) && !kept.is_held(CPU, || 43_000));
        assert!(!kept.is_held(CPU, || unreachable!("the hold is long over")));
    }

    #[test]
    fn a_yield_to_threads_of_ours_is_no_loss() {
        let kept = Kept::new();
        kept.see(CPU, 1_000);
        kept.see(CPU, 9_000);
        assert!(!kept.is_held(CPU, || 9_000), "nobody wanted it");
        kept.offer(CPU, 10_000, || {
            (1..10).for_each(|turn| kept.see(CPU, 10_000 + turn * (LOST_MIN - 1)));
            10_000 + 10 * (LOST_MIN - 1)
        });
        assert!(!kept.is_held(CPU, || 20_000));
        // One of them is seen behind the other work.
        kept.offer(CPU, 30_000, || {
            kept.see(CPU, 32_000);
            32_001
        });
        assert!(kept.is_held(CPU, || 47_999) && !kept.is_held(CPU, || 48_000));
    }

    #[test]
    fn a_child_does_not_offer_what_its_parent_did() {
        let kept = Kept::new();
        kept.offer(CPU, 1_000, || {
            kept.forget_offers();
            kept.see(CPU, 9_000);
            assert!(!kept.is_held(CPU, || 9_000));
            kept.hold(CPU).offers.store(1, Ordering::Relaxed);
            9_000
        });
    }

    #[test]
    fn work_that_goes_on_doubles_the_time_and_a_later_one_does_not() {
        let kept = Kept::new();
        lose(&kept, 2_000, 11_000);
        // Another thread had yielded at the same time.
        lose(&kept, 4_000, 15_000);
        assert!(!kept.is_held(CPU, || 27_000));
        lose(&kept, 2_000, 29_000);
        assert!(kept.is_held(CPU, || 60_999) && !kept.is_held(CPU, || 61_000));
        lose(&kept, 2_000, 100_000);
        assert!(kept.is_held(CPU, || 115_999) && !kept.is_held(CPU, || 116_000));
    }

    #[test]
    fn a_hold_is_bounded() {
        let kept = Kept::new();
        let long = 2 * HOLD_MAX_MICROS;
        lose(&kept, long, long);
        assert!(kept.is_held(CPU, || long + HOLD_MAX_MICROS - 1));
        assert!(!kept.is_held(CPU, || long + HOLD_MAX_MICROS));
        lose(&kept, long, 2 * long);
        assert!(!kept.is_held(CPU, || 2 * long + HOLD_MAX_MICROS));
    }
}
