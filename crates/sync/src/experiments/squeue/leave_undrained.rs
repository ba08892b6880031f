//! Leaving without draining: the way out of a thread that came for one connection only.
//!
//! Such a thread runs its own item and goes. Items queued by then belong to a worker, and waking a worker
//! costs more than most items do. So before it hands the squeue over it looks at the head of the queue:
//!
//! * The head is for the *other end* of the connection served, to which it has just delivered: it is run, once after
//!   each own item. It is part of the thread's own work.
//! * It is for the *connection served*, and no more than [`ELIDE_MAX`] items are queued: with `elide` it is run here, and
//!   the wake is saved.
//! * It is for another connection: it is a worker's.
//!
//! Identity is asked of the item itself each time, never of an earlier answer, because a connection may have moved to
//! another squeue since its item was queued: [`Served`] says so, and an item that has moved is not the thread's own.
//! A thread that sleeps until it is given the squeue is no item (`inside.rs` keeps such nodes apart), so it is never
//! popped here, and is granted the squeue by the same [`Inside::leave`] or [`Inside::hand_off`] as anywhere else.
//! Those two remain the only ways out; this file adds none, so the argument of `squeue.rs` that no item is stranded
//! covers it.
//!
//! Bounded: at most `ELIDE_MAX` own items and `1 + ELIDE_MAX` runs of the other end.
//!
//! Does not depend on the types of items and connections. Tests: below, `tests/loom/leave_undrained.rs`.

use super::Inside;
use super::drain::Outcome;

/// Most items of its own connection that a thread runs on its way out instead of waking a worker.
pub const ELIDE_MAX: usize = 2;

/// How far the queue's depth is counted: [`Found`] says this for anything deeper.
pub const DEPTH_MAX: usize = 4;

/// The connection that a thread has just served, as its exit sees it.
pub trait Served<T> {
    /// Whether `item` is for the connection served, and this squeue is still its home.
    fn is_own(&self, item: &T) -> bool;

    /// Whether `item` is for the other end of the connection served, and this squeue is its home.
    fn is_other_end(&self, item: &T) -> bool;

    /// Pops the head of the queue and runs it, with the items behind it that are for the same connection, at most `max` in
    /// all. Returns how many it ran, at least 1.
    fn run(&mut self, inside: &mut Inside<'_, T>, max: usize) -> usize;
}

/// The queue as the thread found it after its own work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// So many items, at most [`DEPTH_MAX`]; the first is its own connection's.
    Own(usize),
    /// So many items, at most [`DEPTH_MAX`]; the first is another's.
    Other(usize),
}

/// How a thread left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    /// [`Outcome::Left`] or [`Outcome::HandOffNeeded`].
    pub outcome: Outcome,
    /// The first item that it found.
    pub found: Found,
    /// The items that it left to a worker.
    pub left: Found,
}

impl<T> Inside<'_, T> {
    /// Leaves without draining; see the head of the file. `run_max` bounds a run of the other end's items. Never
    /// blocks, unless `served` does.
    pub fn leave_undrained<S>(self, served: &mut S, elide: bool, run_max: usize) -> Exit
    where
        S: Served<T>,
    {
        let mut inside = self;
        let mut found = Found::Nothing;
        let mut elided = 0;
        let mut is_other_ends_turn = true;
        loop {
            inside = match inside.leave() {
                Ok(()) => return Exit { outcome: Outcome::Left, found, left: Found::Nothing },
                Err(inside) => inside,
            };
            // Only threads that wait for the squeue: the next attempt to leave grants it.
            let Some(head) = inside.peek() else { continue };
            if is_other_ends_turn && served.is_other_end(head) {
                is_other_ends_turn = false;
                served.run(&mut inside, run_max);
                continue;
            }
            let is_own = served.is_own(head);
            let depth = inside.depth(DEPTH_MAX);
            let left = if is_own { Found::Own(depth) } else { Found::Other(depth) };
            if found == Found::Nothing {
                found = left;
                if depth > ELIDE_MAX {
                    elided = ELIDE_MAX;
                }
            }
            if !elide || !is_own || elided >= ELIDE_MAX {
                let _tell_worker = inside.hand_off();
                return Exit { outcome: Outcome::HandOffNeeded, found, left };
            }
            elided += served.run(&mut inside, ELIDE_MAX - elided);
            is_other_ends_turn = true;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Filled, Squeue};

    /// Items are the names of connections; number 1 is served, 2 is its other end.
    struct One {
        ran: Vec<u32>,
        /// The answer of the other end's first run, for number 1.
        answers: usize,
    }

    impl Served<u32> for One {
        fn is_own(&self, item: &u32) -> bool {
            *item == 1
        }

        fn is_other_end(&self, item: &u32) -> bool {
            *item == 2
        }

        fn run(&mut self, inside: &mut Inside<'_, u32>, max: usize) -> usize {
            let head = inside.pop().expect("there is a head");
            let mut ran = 1;
            self.ran.push(head);
            while ran < max
                && let Some(next) = inside.pop_if(|next| *next == head)
            {
                self.ran.push(next);
                ran += 1;
            }
            while head == 2 && self.answers > 0 {
                self.answers -= 1;
                assert_eq!(inside.squeue().fill(1), Filled::Queued);
            }
            ran
        }
    }

    /// The items that a thread that found `queued` ran, and how it left.
    fn leave(queued: &[u32], answers: usize, elide: bool) -> (Vec<u32>, Outcome, Found) {
        let squeue = Squeue::new();
        let inside = squeue.try_enter().expect("no thread is inside");
        for item in queued {
            assert_eq!(squeue.fill(*item), Filled::Queued);
        }
        let mut one = One { ran: Vec::new(), answers };
        let Exit { outcome, found, left } = inside.leave_undrained(&mut one, elide, 16);
        let is_left = outcome == Outcome::Left;
        assert_eq!(squeue.is_occupied(), !is_left);
        assert_eq!(left == Found::Nothing, is_left);
        assert_eq!(squeue.resume().map(|inside| inside.drain(99, |_, _| ())).is_some(), !is_left);
        (one.ran, outcome, found)
    }

    #[test]
    fn an_empty_queue_needs_no_worker() {
        assert_eq!(leave(&[], 0, true), (vec![], Outcome::Left, Found::Nothing));
    }

    #[test]
    fn an_own_head_item_is_run_only_with_elision() {
        assert_eq!(leave(&[1], 0, true), (vec![1], Outcome::Left, Found::Own(1)));
        assert_eq!(leave(&[1], 0, false), (vec![], Outcome::HandOffNeeded, Found::Own(1)));
        assert_eq!(leave(&[1, 1], 0, true), (vec![1, 1], Outcome::Left, Found::Own(2)));
    }

    #[test]
    fn deep_queues_and_other_threads_items_are_left_to_the_worker() {
        assert_eq!(leave(&[1, 1, 1], 0, true), (vec![], Outcome::HandOffNeeded, Found::Own(3)));
        assert_eq!(leave(&[3], 0, true), (vec![], Outcome::HandOffNeeded, Found::Other(1)));
        assert_eq!(leave(&[3, 1], 0, true), (vec![], Outcome::HandOffNeeded, Found::Other(2)));
        assert_eq!(leave(&[1, 3], 0, true), (vec![1], Outcome::HandOffNeeded, Found::Own(2)));
        assert_eq!(leave(&[3; 9], 0, true), (vec![], Outcome::HandOffNeeded, Found::Other(DEPTH_MAX)));
    }

    #[test]
    fn the_other_end_is_served_and_the_wake_for_its_answer_is_elided() {
        assert_eq!(leave(&[2, 2], 0, false), (vec![2, 2], Outcome::Left, Found::Nothing));
        assert_eq!(leave(&[2], 1, true), (vec![2, 1], Outcome::Left, Found::Own(1)));
        assert_eq!(leave(&[2], 1, false), (vec![2], Outcome::HandOffNeeded, Found::Own(1)));
        assert_eq!(leave(&[2, 3, 2], 0, true), (vec![2], Outcome::HandOffNeeded, Found::Other(2)));
    }
}
