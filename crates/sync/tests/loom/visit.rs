//! Visits: who holds a connection's mutex and sees its perimeter vacant does not enter it. Nothing is lost, and what was made
//! first is run first, whichever of the ways each took.
//!
//! The protocol is `conn/visit.rs` of the crate above; of this one it needs `is_vacant`, and the mutex.

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::{BriefMutex, Filled, Inside, Perimeter};

use crate::{check, check_bounded};

/// A connection that sends, and the one that receives.
struct Pair {
    /// The number of the next segment, under the sender's mutex.
    next: BriefMutex<usize>,
    perimeter: Perimeter<usize>,
    /// What has arrived, under the receiver's.
    arrived: BriefMutex<Vec<usize>>,
}

impl Pair {
    fn new() -> Arc<Self> {
        let (next, arrived) = (BriefMutex::new(0), BriefMutex::new(Vec::new()));
        Arc::new(Self { next, perimeter: Perimeter::new(), arrived })
    }

    /// Makes a segment and brings it to the receiver. True if that was on a visit.
    fn send(&self) -> bool {
        let mut next = self.next.lock();
        let number = *next;
        *next += 1;
        if self.perimeter.is_vacant()
            && let Some(mut arrived) = self.arrived.try_lock()
        {
            drop(next);
            arrived.push(number);
            return true;
        }
        if let Some(claim) = self.perimeter.claim() {
            drop(next);
            self.arrived.lock().push(number);
            self.drain(self.perimeter.redeem(claim));
            return false;
        }
        let filled = self.perimeter.fill(number);
        drop(next);
        match filled {
            Filled::Queued => {}
            Filled::WakeWorker => self.perimeter.resume().into_iter().for_each(|inside| self.drain(inside)),
            Filled::Poisoned => panic!("nobody panicked"),
        }
        false
    }

    fn drain(&self, mut inside: Inside<'_, usize>) {
        loop {
            inside = match inside.leave() {
                Ok(()) => return,
                Err(inside) => inside,
            };
            let batch = inside.take();
            self.arrived.lock().extend(batch);
        }
    }

    fn assert_in_order(&self, count: usize) {
        assert!(!self.perimeter.is_occupied(), "somebody has left an item behind");
        assert_eq!(*self.arrived.lock(), (0..count).collect::<Vec<_>>());
    }
}

#[test]
fn two_senders_one_after_the_other_in_every_interleaving() {
    check(|| {
        let pair = Pair::new();
        let other = pair.clone();
        let thread = thread::spawn(move || other.send());
        pair.send();
        thread.join().unwrap();
        pair.assert_in_order(2);
    });
}

/// A reader has the mutex at times, so a sender enters, and the next may come while he is inside.
#[test]
fn two_senders_of_two_beside_a_reader() {
    check_bounded(|| {
        let pair = Pair::new();
        let (sender, reader) = (pair.clone(), pair.clone());
        let sends = thread::spawn(move || {
            sender.send();
            sender.send();
        });
        let reads = thread::spawn(move || reader.arrived.lock().len());
        pair.send();
        sends.join().unwrap();
        assert!(reads.join().unwrap() <= 3);
        pair.assert_in_order(3);
    });
}

#[test]
fn nobody_else_there_it_is_a_visit() {
    check(|| {
        let pair = Pair::new();
        assert!(pair.send() && pair.send());
        pair.assert_in_order(2);
    });
}
