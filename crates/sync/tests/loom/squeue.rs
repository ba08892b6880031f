//! The squeue: exclusion, each item run once, none stranded, order per producer, taking over.

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::{Entry, Filled, Inside, Outcome, RunQueue, Squeue};

use crate::support::Guarded;
use crate::{check, check_bounded};

/// An item: its maker and its number.
type Item = (usize, usize);

/// A squeue and the items that were run in it. Loom checks the cell, so two threads inside at a time, or
/// one that does not see the last one's changes, fail the model.
struct Connection {
    squeue: Squeue<Item>,
    ran: Guarded<Vec<Item>>,
}

impl Connection {
    fn new() -> Arc<Self> {
        let squeue = Squeue::new();
        let ran = Guarded::new(Vec::new());
        Arc::new(Self { squeue, ran })
    }

    fn record(&self, inside: &mut Inside<'_, Item>, item: Item) {
        self.ran.with(inside, |ran| ran.push(item));
    }

    /// Enters with `item` and runs everything before leaving.
    fn process(&self, item: Item) {
        match self.squeue.enter(item) {
            Entry::Queued => {}
            Entry::Poisoned(_) => panic!("no thread panicked"),
            Entry::Inside(mut inside, item) => {
                self.record(&mut inside, item);
                self.drain(inside);
            }
        }
    }

    /// Takes over the squeue if it is scheduled, and runs everything. True if it was.
    fn resume(&self) -> bool {
        let Some(mut inside) = self.squeue.resume() else {
            return false;
        };
        // A check before anything is taken from the queue: the takeover alone has to make the last owner's
        // changes visible.
        let _seen = self.ran.with(&mut inside, |ran| ran.len());
        self.drain(inside);
        true
    }

    fn drain(&self, mut inside: Inside<'_, Item>) {
        loop {
            inside = match inside.leave() {
                Ok(()) => return,
                Err(inside) => inside,
            };
            for item in inside.take() {
                self.record(&mut inside, item);
            }
        }
    }

    /// The items that were run, when all threads are done: nothing may be queued any more.
    fn finish(&self) -> Vec<Item> {
        let mut inside = self.squeue.try_enter().expect("all threads have left");
        assert!(inside.take().is_empty());
        let ran = self.ran.with(&mut inside, std::mem::take);
        assert!(inside.leave().is_ok());
        ran
    }
}

fn assert_once_and_in_order(ran: &[Item], producers_count: usize, items_count: usize) {
    assert_eq!(ran.len(), producers_count * items_count);
    for producer in 0..producers_count {
        let own = ran.iter().filter(|item| item.0 == producer).map(|item| item.1);
        assert!(own.eq(0..items_count), "{ran:?}");
    }
}

#[test]
fn two_producers_run_every_item_once_and_in_order() {
    check(|| {
        let connection = Connection::new();
        let other = connection.clone();
        let thread = thread::spawn(move || (0..2).for_each(|n| other.process((1, n))));
        (0..2).for_each(|n| connection.process((0, n)));
        thread.join().unwrap();
        assert_once_and_in_order(&connection.finish(), 2, 2);
    });
}

#[test]
fn three_producers_run_every_item_once() {
    check_bounded(|| {
        let connection = Connection::new();
        let threads: Vec<_> = (1..3)
            .map(|producer| {
                let other = connection.clone();
                thread::spawn(move || other.process((producer, 0)))
            })
            .collect();
        connection.process((0, 0));
        for thread in threads {
            thread.join().unwrap();
        }
        assert_once_and_in_order(&connection.finish(), 3, 1);
    });
}

/// Runs its own item, and hands off at once when leaving fails; the worker is notified afterwards.
fn no_drain(connection: &Connection, scheduled: &RunQueue<()>, item: Item) {
    match connection.squeue.enter(item) {
        Entry::Queued => {}
        Entry::Poisoned(_) => panic!("no thread panicked"),
        Entry::Inside(mut inside, item) => {
            connection.record(&mut inside, item);
            let outcome = inside.drain(0, |_inside, _item| panic!("the bound is 0"));
            if outcome == Outcome::HandOffNeeded {
                scheduled.push(());
            }
        }
    }
}

/// One run of a worker: resumes once for each notification.
fn work(connection: &Connection, scheduled: &RunQueue<()>) {
    for () in scheduled.take_all() {
        connection.resume();
    }
}

#[test]
fn items_left_without_a_drain_reach_the_worker() {
    check(|| {
        let connection = Connection::new();
        let scheduled = Arc::new(RunQueue::new());
        let other = (connection.clone(), scheduled.clone());
        let thread = thread::spawn(move || {
            (0..2).for_each(|n| no_drain(&other.0, &other.1, (1, n)));
        });
        no_drain(&connection, &scheduled, (0, 0));
        work(&connection, &scheduled);
        thread.join().unwrap();
        // The worker checks once more because a notification may arrive after its first check.
        work(&connection, &scheduled);
        let ran = connection.finish();
        assert_eq!(ran.len(), 3);
        assert!(ran.iter().filter(|item| item.0 == 1).map(|item| item.1).eq(0..2));
    });
}

#[test]
fn a_scheduled_ownership_is_taken_over_by_one() {
    check_bounded(|| {
        let connection = Connection::new();
        assert_eq!(connection.squeue.fill((0, 0)), Filled::WakeWorker);
        let threads: Vec<_> = (1..3)
            .map(|producer| {
                let other = connection.clone();
                thread::spawn(move || {
                    // A push races with taking over.
                    other.process((producer, 0));
                    usize::from(other.resume())
                })
            })
            .collect();
        let resumed_count: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(resumed_count, 1);
        assert_once_and_in_order(&connection.finish(), 3, 1);
    });
}

#[test]
fn fill_against_leave_announces_exactly_the_items_that_are_not_run() {
    check(|| {
        let connection = Connection::new();
        let other = connection.clone();
        let thread = thread::spawn(move || match other.squeue.fill((1, 0)) {
            Filled::Queued => {}
            Filled::Poisoned => panic!("no thread panicked"),
            Filled::WakeWorker => {
                assert!(other.resume(), "no other thread resumes");
            }
        });
        connection.process((0, 0));
        thread.join().unwrap();
        assert_once_and_in_order(&connection.finish(), 2, 1);
    });
}

#[test]
fn filled_items_are_complete_for_the_thread_that_resumes() {
    check(|| {
        let connection = Connection::new();
        let other = connection.clone();
        let thread = thread::spawn(move || {
            // After a change inside, so the thread that resumes has to see that as well.
            other.process((1, 0));
            assert_eq!(other.squeue.fill((1, 1)), Filled::WakeWorker);
        });
        // A worker that polls: only the word shows the item.
        connection.resume();
        thread.join().unwrap();
        connection.resume();
        let ran = connection.finish();
        assert!(ran.into_iter().eq([(1, 0), (1, 1)]));
    });
}

#[test]
fn changes_before_a_hand_off_are_visible_to_the_thread_that_resumes() {
    check(|| {
        let connection = Connection::new();
        let other = connection.clone();
        let thread = thread::spawn(move || {
            let mut inside = other.squeue.try_enter().expect("no other thread enters");
            other.record(&mut inside, (1, 0));
            let _polled_for = inside.hand_off();
        });
        connection.resume();
        thread.join().unwrap();
        connection.resume();
        assert!(connection.finish().into_iter().eq([(1, 0)]));
    });
}
