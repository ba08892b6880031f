//! Future events: the queue that the clock jumps along.
//!
//! Events of one moment come in the order in which they were asked for, so that nothing but the program and the
//! seed decides. An event is never taken out: a void one is noticed when it comes up. Tests: below.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a moment. Indices are of the world's tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// A frame reaches the end of its pipe.
    Arrive { frame: usize },
    /// A frame that was held back to be overtaken has waited long enough.
    Release { pipe: usize, frame: usize, number: u64 },
    /// A host's stack has something to do.
    Poll { host: usize },
    /// A timer of a host's runtime of tokio has come.
    Turn { runtime: usize },
    /// The stack that is on no host has something to do.
    PollOutside,
    /// The rules have to be looked at.
    Check,
    /// A sleep is over.
    Wake { timer: usize, number: u64 },
}

/// The number of a host's runtime of tokio; 0 is the main program's.
pub(crate) fn runtime_of(host: Option<usize>) -> usize {
    host.map_or(0, |host| host + 1)
}

/// A point of virtual time, nanoseconds since the start.
pub(crate) type Nanos = u64;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    serial: u64,
}

impl Queue {
    pub fn push(&mut self, at: Nanos, event: Event) {
        self.serial += 1;
        self.heap.push(Reverse((at, self.serial, event)));
    }

    /// The next event and its moment.
    pub fn pop(&mut self) -> Option<(Nanos, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// The next event, if it is at `at`.
    pub fn pop_at(&mut self, at: Nanos) -> Option<Event> {
        let Reverse((next, ..)) = self.heap.peek()?;
        if *next == at { self.pop().map(|(_, event)| event) } else { None }
    }

    /// The moment of the next event.
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// A number that no other call gives, for telling a void event from a valid one.
    pub fn number(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_fire_by_time_and_then_in_the_order_of_their_requests() {
        let mut queue = Queue::default();
        let order = [(5, 9), (3, 8), (5, 1), (3, 2)];
        order.iter().for_each(|(at, host)| queue.push(*at, Event::Poll { host: *host }));
        let came: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let expected = [(3, 8), (3, 2), (5, 9), (5, 1)];
        assert_eq!(came, expected.map(|(at, host)| (at, Event::Poll { host })));
    }
}
