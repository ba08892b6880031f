//! Draining: running the queued items, then leaving.
//!
//! Invariant: a round ends in `leave`, `hand_off` or, on a panic of the handler, poison. The bound is the caller's, so a thread
//! that only wanted to send one segment is never kept inside by others.

use super::Inside;

/// How a thread that was inside went out.
#[must_use = "a squeue that was handed off waits for its worker: tell it"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Everything found was run, and the squeue is left.
    Left,
    /// The squeue is owned and scheduled: the caller tells a worker to resume it.
    HandOffNeeded,
}

impl<T> Inside<'_, T> {
    /// Runs up to `bound` queued items by calling `f`, then leaves, or hands off if there are more.
    /// Never blocks, unless `f` does. If `f` panics, the squeue is poisoned and the panic goes on.
    #[inline]
    pub fn drain<F>(mut self, bound: usize, mut f: F) -> Outcome
    where
        F: FnMut(&mut Inside<'_, T>, T),
    {
        let mut left_to_run = bound;
        loop {
            self = match self.leave() {
                Ok(()) => return Outcome::Left,
                Err(inside) => inside,
            };
            // A queue that holds nothing but waiters makes the first attempt to leave fail and
            // the second one grant, so a turn that pops nothing is not counted.
            while left_to_run > 0 {
                let Some(item) = self.pop() else { break };
                f(&mut self, item);
                left_to_run -= 1;
            }
            if left_to_run == 0 && self.peek().is_some() {
                let _tell_worker = self.hand_off();
                return Outcome::HandOffNeeded;
            }
        }
    }
}
