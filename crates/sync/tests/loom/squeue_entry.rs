//! Entering by waiting, and the effect of a panic inside on waiting threads.

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::{Entry, Inside, Outcome, Squeue};

use crate::support::Guarded;
use crate::{check, check_bounded};

struct Connection {
    squeue: Squeue<usize>,
    sum: Guarded<usize>,
}

impl Connection {
    fn new() -> Arc<Self> {
        let squeue = Squeue::new();
        let sum = Guarded::new(0);
        Arc::new(Self { squeue, sum })
    }

    fn add(&self, inside: &mut Inside<'_, usize>, amount: usize) {
        self.sum.with(inside, |sum| *sum += amount);
    }

    fn drain(&self, inside: Inside<'_, usize>) {
        let outcome = inside.drain(usize::MAX, |inside, amount| self.add(inside, amount));
        assert_eq!(outcome, Outcome::Left);
    }

    fn process(&self, amount: usize) {
        match self.squeue.enter(amount) {
            Entry::Queued => {}
            Entry::Poisoned(_) => panic!("no thread panicked"),
            Entry::Inside(mut inside, amount) => {
                self.add(&mut inside, amount);
                self.drain(inside);
            }
        }
    }

    fn process_blocking(&self, amount: usize) {
        let mut inside = self.squeue.enter_blocking().expect("no thread panicked");
        self.add(&mut inside, amount);
        self.drain(inside);
    }

    fn finish(&self) -> usize {
        let mut inside = self.squeue.try_enter().expect("all threads have left");
        assert!(inside.take().is_empty());
        let sum = self.sum.with(&mut inside, |sum| *sum);
        assert!(inside.leave().is_ok());
        sum
    }
}

#[test]
fn a_sleeper_is_granted_by_the_thread_that_leaves() {
    check(|| {
        let connection = Connection::new();
        let other = connection.clone();
        let thread = thread::spawn(move || other.process_blocking(1));
        connection.process(10);
        connection.process(100);
        thread.join().unwrap();
        assert_eq!(connection.finish(), 111);
    });
}

#[test]
fn two_sleepers_are_both_granted() {
    check_bounded(|| {
        let connection = Connection::new();
        let threads: Vec<_> = [1, 10]
            .map(|amount| {
                let other = connection.clone();
                thread::spawn(move || other.process_blocking(amount))
            })
            .into();
        connection.process(100);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(connection.finish(), 111);
    });
}

#[test]
fn a_sleeper_and_a_producer_behind_the_same_owner() {
    check_bounded(|| {
        let connection = Connection::new();
        let mut inside = connection.squeue.try_enter().expect("no other thread is here yet");
        let (sleeper, producer) = (connection.clone(), connection.clone());
        let sleeper = thread::spawn(move || sleeper.process_blocking(1));
        let producer = thread::spawn(move || producer.process(10));
        connection.add(&mut inside, 100);
        connection.drain(inside);
        sleeper.join().unwrap();
        producer.join().unwrap();
        assert_eq!(connection.finish(), 111);
    });
}

#[test]
fn handing_off_reaches_a_worker_or_a_sleeper() {
    check_bounded(|| {
        let connection = Connection::new();
        let inside = connection.squeue.try_enter().expect("no other thread is here yet");
        let other = connection.clone();
        let sleeper = thread::spawn(move || other.process_blocking(1));
        let _tell_worker = inside.hand_off();
        let other = connection.clone();
        let worker = thread::spawn(move || {
            if let Some(inside) = other.squeue.resume() {
                other.drain(inside);
            }
        });
        connection.process(10);
        sleeper.join().unwrap();
        worker.join().unwrap();
        assert_eq!(connection.finish(), 11);
    });
}

#[test]
fn a_panic_inside_strands_neither_sleeper_nor_item() {
    check_bounded(|| {
        let squeue = Arc::new(Squeue::new());
        let item = Arc::new(());
        let inside = squeue.try_enter().expect("no other thread is here yet");
        let (other, queued) = (squeue.clone(), item.clone());
        let producer = thread::spawn(move || match other.enter(queued) {
            Entry::Queued | Entry::Poisoned(_) => {}
            Entry::Inside(..) => panic!("a poisoned squeue was entered"),
        });
        let other = squeue.clone();
        let sleeper = thread::spawn(move || assert!(other.enter_blocking().is_err()));
        // As unwinding does.
        drop(inside);
        producer.join().unwrap();
        sleeper.join().unwrap();
        assert!(squeue.is_poisoned());
        assert_eq!(Arc::strong_count(&item), 1);
    });
}
