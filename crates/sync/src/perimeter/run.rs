//! The usual round: enter, run one's own item, drain what arrived meanwhile, leave.
//!
//! Invariant: whatever happens in between, the round ends in `leave`, `hand_off` or, on a panic of
//! the handler, poison. The bound is the caller's, so a thread that only wanted to send one
//! segment is never kept inside by others.

use super::{Entry, Filled, Inside, Perimeter};

/// How much a thread that enters is willing to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Run the own item, then what arrived meanwhile, up to the bound.
    Process,
    /// Run the own item if the perimeter is free, and nothing of others.
    NoDrain,
    /// Only queue the item: somebody else runs it.
    Fill,
}

/// What came of [`Perimeter::run`].
#[must_use = "a perimeter that was handed off waits for its worker: tell it"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Everything found was run, and the perimeter is left.
    Left,
    /// The perimeter is owned on paper: the caller tells a worker to resume it.
    HandOffNeeded,
    /// Somebody else is inside, or about to be, and will run the item.
    Queued,
    /// The perimeter is poisoned; the item was dropped.
    Poisoned,
}

impl<T> Perimeter<T> {
    /// Enters with `item` in the given mode and runs it and up to `bound` others by calling `f`.
    /// Never blocks, unless `f` does.
    ///
    /// If `f` panics the perimeter is poisoned and the panic goes on.
    #[inline]
    pub fn run<F>(&self, item: T, mode: Mode, bound: usize, mut f: F) -> Outcome
    where
        F: FnMut(&mut Inside<'_, T>, T),
    {
        let bound = match mode {
            Mode::Process => bound,
            Mode::NoDrain => 0,
            Mode::Fill => {
                return match self.fill(item) {
                    Filled::WakeWorker => Outcome::HandOffNeeded,
                    Filled::Queued => Outcome::Queued,
                    Filled::Poisoned => Outcome::Poisoned,
                };
            }
        };
        match self.enter(item) {
            Entry::Inside(mut inside, item) => {
                f(&mut inside, item);
                inside.drain(bound, f)
            }
            Entry::Queued => Outcome::Queued,
            Entry::Poisoned(_item) => Outcome::Poisoned,
        }
    }
}

impl<T> Inside<'_, T> {
    /// Runs up to `bound` queued items by calling `f`, then leaves, or hands off if there are more.
    /// Gives [`Outcome::Left`] or [`Outcome::HandOffNeeded`]. Never blocks, unless `f` does.
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
