//! A worker that goes to sleep against producers that push.

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::{RunQueue, Sleeper, Spin, Woken};

use crate::{check, check_bounded};

struct Worker {
    queue: RunQueue<usize>,
    sleeper: Sleeper,
}

impl Worker {
    fn new() -> Arc<Self> {
        Arc::new(Self { queue: RunQueue::new(), sleeper: Sleeper::new() })
    }

    fn push(&self, item: usize) {
        self.queue.push(item);
        self.sleeper.wake_if_sleeping();
    }

    /// Runs until `count` items have arrived; returns them in order.
    fn run(&self, count: usize) -> Vec<usize> {
        let mut ran = Vec::new();
        while ran.len() < count {
            ran.extend(self.queue.take_all());
            if ran.len() == count {
                break;
            }
            let drowsy = self.sleeper.prepare_sleep();
            if self.queue.is_empty() {
                assert_ne!(drowsy.sleep(None, Spin::OFF), Woken::TimedOut);
            } else {
                drowsy.cancel();
            }
        }
        ran
    }
}

#[test]
fn no_item_is_missed_by_a_sleeping_worker() {
    check(|| {
        let worker = Worker::new();
        let other = worker.clone();
        let thread = thread::spawn(move || other.run(2));
        worker.push(1);
        worker.push(2);
        assert_eq!(thread.join().unwrap(), [1, 2]);
        assert!(!worker.sleeper.is_sleeping());
    });
}

#[test]
fn two_producers_and_a_worker() {
    check_bounded(|| {
        let worker = Worker::new();
        let producers: Vec<_> = (0..2)
            .map(|item| {
                let other = worker.clone();
                thread::spawn(move || other.push(item))
            })
            .collect();
        let mut ran = worker.run(2);
        ran.sort_unstable();
        assert_eq!(ran, [0, 1]);
        for producer in producers {
            producer.join().unwrap();
        }
    });
}
