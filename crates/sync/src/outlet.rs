//! An outlet: items of many threads leave in order, by one thread at a time, and no thread waits for it.
//!
//! For items that are made under a lock and handed to code that must not be called under one: frames for a device. It is
//! how Linux runs the queue of a device (`__qdisc_run`): a thread that has items and finds none at the outlet becomes its
//! *carrier*, and hands over its own items after it has released its locks, and then those that others have left
//! meanwhile. A thread that finds a carrier leaves its items in the queue and goes on.
//!
//! # States, all under one brief mutex
//!
//! | carrier | queue | from there |
//! |---|---|---|
//! | none | empty | [`offer`](Outlet::offer): the caller becomes the carrier and keeps its items |
//! | one | any | `offer`: queued, or refused beyond the bounds; [`next`](Outlet::next): the carrier takes the whole queue, and is none any more if it is empty |
//! | none | items | the carrier has had enough ([`put_down`](Outlet::put_down)), or the thread that queued them [may not carry](Claim::No) yet: `offer` and [`pick_up`](Outlet::pick_up) make a carrier |
//!
//! # Why no item is stranded
//! A carrier ceases to be one in two ways. In `next` it finds the queue empty, in the section in which an `offer` would have
//! put something: a later offer finds no carrier. `put_down` tells it whether anything is left; then it has to see to it
//! that a thread picks it up. So does a thread whose `offer` says that it may not carry: it picks up later.
//!
//! # Why order is kept
//! Among items whose makers exclude each other (the frames of a connection, under its lock). A carrier keeps items back only while
//! the queue is empty, and no other thread can be the carrier then, so the items that it keeps are older than all that will be
//! queued; it hands them over first. One that has kept items and makes more may keep these too, as long as the queue is still empty:
//! if its predecessor under the lock had queued any, it would see them.
//!
//! # Cost
//! Two locked instructions for the items that a thread keeps, however many: one for each section, since the mutex is
//! unlocked by a store.
//!
//! Does not depend on the items, or on when they leave. Bounds: the caller's, of items and of their weight,
//! for the queue; a carrier bounds the items that it keeps itself. Tests: below, `tests/loom/outlet.rs`.

use std::collections::VecDeque;

use crate::brief::BriefMutex;

/// See the module's head.
#[derive(Debug)]
pub struct Outlet<T> {
    state: BriefMutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    has_carrier: bool,
    queue: VecDeque<T>,
    /// Weight of the queued items.
    weight: usize,
}

/// Role of a thread that has items for an outlet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Its carrier.
    Carrier,
    /// Would be its carrier.
    Wanted,
    /// Not now: it carries something else, and will pick up afterwards.
    No,
}

/// Result of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a carrier has to carry"]
pub enum Offer {
    /// They are still in the list: the caller is the carrier and hands them over first.
    Keep,
    /// They are queued, and the caller has become the carrier.
    Carry,
    /// They are queued; another thread carries, or the caller is the carrier already.
    Left,
    /// They are queued, and no thread carries: the caller has to [pick up](Outlet::pick_up) later.
    Later,
}

/// How much a queue may hold.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Items.
    pub count: usize,
    /// Their weight, in whatever unit.
    pub weight: usize,
}

impl<T> Outlet<T> {
    /// Without items or carrier.
    pub fn new() -> Self {
        let state = State { has_carrier: false, queue: VecDeque::new(), weight: 0 };
        Self { state: BriefMutex::new(state) }
    }

    /// Offers items, each with its weight as `of` makes one of it. Unless they are to be kept, those that fit are taken out
    /// of the list from the front on. Never blocks but for the brief mutex.
    pub fn offer<U>(
        &self,
        items: &mut Vec<U>,
        claim: Claim,
        bounds: Bounds,
        of: impl Fn(U) -> T,
        weigh: impl Fn(&U) -> usize,
    ) -> Offer {
        let mut state = self.state.lock();
        let may_keep = match claim {
            Claim::Carrier => true,
            Claim::Wanted => !state.has_carrier,
            Claim::No => false,
        };
        if may_keep && state.queue.is_empty() {
            state.has_carrier = true;
            return Offer::Keep;
        }
        let mut weight = state.weight;
        let room = bounds.count.saturating_sub(state.queue.len());
        let fitting = items.iter().take(room).take_while(|item| {
            weight = weight.saturating_add(weigh(item));
            weight <= bounds.weight
        });
        let count = fitting.count();
        state.weight += items.iter().take(count).map(&weigh).sum::<usize>();
        state.queue.extend(items.drain(..count).map(of));
        match (state.has_carrier, claim) {
            (true, _) => Offer::Left,
            (false, Claim::No) => Offer::Later,
            (false, Claim::Carrier | Claim::Wanted) => {
                state.has_carrier = true;
                Offer::Carry
            }
        }
    }

    /// For the carrier, which has handed over its items: all that is queued, in exchange for `into`, which is empty. False if
    /// there is nothing: the caller is the carrier no longer.
    pub fn next(&self, into: &mut VecDeque<T>) -> bool {
        let mut state = self.state.lock();
        state.has_carrier = !state.queue.is_empty();
        state.weight = 0;
        std::mem::swap(&mut state.queue, into);
        state.has_carrier
    }

    /// For the carrier, which has had enough and is the carrier no longer. True if something is queued, which a thread has to
    /// [pick up](Self::pick_up).
    #[must_use = "what is queued would be stranded"]
    pub fn put_down(&self) -> bool {
        let mut state = self.state.lock();
        state.has_carrier = false;
        !state.queue.is_empty()
    }

    /// Makes the caller the carrier of the queue, if it is not empty and no thread is the carrier.
    pub fn pick_up(&self) -> bool {
        let mut state = self.state.lock();
        let is_wanted = !state.has_carrier && !state.queue.is_empty();
        state.has_carrier |= is_wanted;
        is_wanted
    }
}

impl<T> Default for Outlet<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { count: 4, weight: 100 };

    fn offer(outlet: &Outlet<u32>, claim: Claim, items: &mut Vec<u32>) -> Offer {
        outlet.offer(items, claim, BOUNDS, |item| item, |item| *item as usize)
    }

    fn next(outlet: &Outlet<u32>) -> Option<Vec<u32>> {
        let mut taken = VecDeque::new();
        outlet.next(&mut taken).then(|| taken.into())
    }

    #[test]
    fn a_thread_that_finds_no_carrier_sends_its_items_and_those_that_others_leave() {
        let outlet = Outlet::new();
        let mut own = vec![1, 2];
        assert_eq!((offer(&outlet, Claim::Wanted, &mut own), own.len()), (Offer::Keep, 2));
        // Nothing was left in between: the carrier keeps more.
        assert_eq!((offer(&outlet, Claim::Carrier, &mut own), own.len()), (Offer::Keep, 2));
        assert_eq!(offer(&outlet, Claim::Wanted, &mut vec![3]), Offer::Left);
        // Its next items are queued behind those.
        assert_eq!((offer(&outlet, Claim::Carrier, &mut own), own.len()), (Offer::Left, 0));
        assert_eq!(next(&outlet), Some(vec![3, 1, 2]));
        assert_eq!(next(&outlet), None);
        assert_eq!(offer(&outlet, Claim::Wanted, &mut vec![4]), Offer::Keep);
        assert_eq!(next(&outlet), None);
    }

    #[test]
    fn the_queue_is_bounded_by_number_and_by_weight_from_the_front_on() {
        let outlet = Outlet::new();
        assert_eq!(offer(&outlet, Claim::Wanted, &mut vec![0]), Offer::Keep);
        for (items, left) in [(vec![40, 50, 11, 5], 2), (vec![10, 0, 0], 1), (vec![0], 1)] {
            let mut items = items;
            assert_eq!((offer(&outlet, Claim::Wanted, &mut items), items.len()), (Offer::Left, left));
        }
        assert_eq!(next(&outlet), Some(vec![40, 50, 10, 0]));
        let mut items = vec![100, 1];
        assert_eq!((offer(&outlet, Claim::Wanted, &mut items), items.len()), (Offer::Left, 1));
    }

    #[test]
    fn items_that_a_carrier_leaves_are_taken_once() {
        let outlet = Outlet::new();
        assert!(!outlet.pick_up());
        assert_eq!(offer(&outlet, Claim::Wanted, &mut vec![1]), Offer::Keep);
        assert_eq!(offer(&outlet, Claim::Wanted, &mut vec![2]), Offer::Left);
        assert!(outlet.put_down());
        assert!(outlet.pick_up() && !outlet.pick_up());
        assert!(outlet.put_down());
        // A thread that arrives before that does it, behind the queued items.
        assert_eq!(offer(&outlet, Claim::Wanted, &mut vec![3]), Offer::Carry);
        assert_eq!((next(&outlet), next(&outlet)), (Some(vec![2, 3]), None));
        assert_eq!(offer(&outlet, Claim::No, &mut vec![4]), Offer::Later);
        assert!(outlet.pick_up());
        assert_eq!(next(&outlet), Some(vec![4]));
        assert!(!outlet.put_down());
    }
}
