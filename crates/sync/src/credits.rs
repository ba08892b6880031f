//! A bound on how many of something there are, that cores need not agree about at each one.
//!
//! The rest of the bound are credits. A few lie in stripes, one of which a thread uses, so that taking one and
//! giving one back write a line that no other core writes; the rest lies in common, and goes to and fro in batches.
//!
//! Invariant: credits in stripes, in common and in use are together as many as at the beginning. A refusal near the
//! bound may be one too many: two threads that gather the stripes at once may both find too few. More than the
//! bound are never in use.
//!
//! Does not depend on the counted things; nothing is ordered by it. Tests: below.

use crate::facade::{AtomicUsize, Ordering};
use crate::slot;

/// See the module's head.
#[derive(Debug)]
pub struct Credits {
    max: usize,
    left: Line,
    stripes: Box<[Line]>,
}

#[derive(Default, Debug)]
#[repr(align(128))]
struct Line(AtomicUsize);

/// Stripes of credits.
const STRIPES: usize = 16;
/// Credits that go to a stripe, or come back from it, at once.
const BATCH: usize = 64;

impl Credits {
    /// `max` credits.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            left: Line(AtomicUsize::new(max)),
            stripes: (0..STRIPES).map(|_| Line::default()).collect(),
        }
    }

    fn stripe(&self) -> &AtomicUsize {
        &self.stripes[slot::current().unwrap_or(0) % STRIPES].0
    }

    /// Takes `count` credits; false if there are not so many. Does not block.
    pub fn take(&self, count: usize) -> bool {
        if count == 0 || subtract(self.stripe(), count) {
            return true;
        }
        if subtract(&self.left.0, count.saturating_add(BATCH)) {
            self.stripe().fetch_add(BATCH, Ordering::Relaxed);
            return true;
        }
        if subtract(&self.left.0, count) {
            return true;
        }
        let gathered: usize = self.stripes.iter().map(|stripe| stripe.0.swap(0, Ordering::Relaxed)).sum();
        self.left.0.fetch_add(gathered, Ordering::Relaxed);
        subtract(&self.left.0, count)
    }

    /// Gives `count` credits back. Does not block.
    pub fn give(&self, count: usize) {
        let stripe = self.stripe();
        let now = stripe.fetch_add(count, Ordering::Relaxed) + count;
        if now > 2 * BATCH && subtract(stripe, now - BATCH) {
            self.left.0.fetch_add(now - BATCH, Ordering::Relaxed);
        }
    }

    /// Credits in use; exact while nothing moves.
    pub fn in_use(&self) -> usize {
        let left: usize = self.stripes.iter().chain([&self.left]).map(|l| l.0.load(Ordering::Relaxed)).sum();
        self.max.saturating_sub(left)
    }
}

/// Relaxed: a count that orders nothing.
fn subtract(from: &AtomicUsize, count: usize) -> bool {
    from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| now.checked_sub(count)).is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_credits_are_used_before_one_is_refused_and_all_are_returned() {
        const MAX: usize = 16_384;
        let credits = Credits::new(MAX);
        let mut taken = 0;
        while credits.take(253) {
            taken += 253;
        }
        while credits.take(1) {
            taken += 1;
        }
        assert_eq!((taken, credits.in_use()), (MAX, MAX));
        credits.give(taken);
        assert_eq!(credits.in_use(), 0);
        assert!(credits.take(MAX));
        assert!(!credits.take(1));
    }

    #[test]
    fn credits_returned_by_one_thread_can_be_taken_by_another() {
        let credits = Credits::new(3);
        assert!((0..3).all(|_| credits.take(1)) && !credits.take(1));
        std::thread::scope(|scope| {
            scope.spawn(|| credits.give(2));
        });
        assert_eq!(credits.in_use(), 1);
        assert!(credits.take(2) && !credits.take(1));
    }

    #[test]
    fn no_more_credits_are_in_use_than_exist() {
        let (credits, in_use) = (Credits::new(100), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        if credits.take(30) {
                            assert!(in_use.fetch_add(30, Ordering::Relaxed) <= 70);
                            in_use.fetch_sub(30, Ordering::Relaxed);
                            credits.give(30);
                        }
                    }
                });
            }
        });
        assert_eq!(credits.in_use(), 0);
    }
}
