//! Items handed to waiting threads, their own core's first (`handout.rs`): no item is left behind while somebody waits.
//!
//! Loom reports a taker who sleeps for ever as a deadlock. Time is a number that a watcher's deadline moves on. Without the
//! telling of who takes one item and leaves another, [`whoever_leaves_items_tells_another`] finds a deadlock; without
//! the watcher's deadline [`an_item_of_a_busy_core_is_taken_by_another`] does.

use std::time::Instant;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use sockeye_sync::handout::{Here, Look, PATIENCE, Turn};
use sockeye_sync::{Handout, Mutex, Spin, WaitQueue, Woken};

use crate::check_bounded;

struct World {
    queue: Mutex<Handout<u8>>,
    /// Microseconds.
    now: AtomicU64,
}

impl World {
    /// With CPU 0 served a moment ago: its items are left to its takers for a while.
    fn new() -> Arc<Self> {
        let mut queue = Handout::new();
        assert!(queue.push(0, 0, 0).is_none());
        assert_eq!(queue.take(Here { cpu: 0, who: None }, || 0), Some(0));
        Arc::new(Self { queue: Mutex::new(queue), now: AtomicU64::new(0) })
    }

    fn push(&self, item: u8, cpu: u32) {
        let owed = self.queue.lock().push(item, cpu, self.now.load(Ordering::Relaxed));
        if let Some(thread) = owed {
            thread.wake();
        }
    }

    fn take(&self, cpu: u32) -> u8 {
        let here = Here { cpu, who: Some(cpu as usize) };
        let (thread, mut turn) = (Arc::new(WaitQueue::new()), Turn::default());
        loop {
            let now = || self.now.load(Ordering::Relaxed);
            let look = self.queue.lock().take_or_wait(&mut turn, &thread, here, now);
            match look {
                Look::Item(item, owed) => {
                    if let Some(thread) = owed {
                        thread.wake();
                    }
                    return item;
                }
                Look::Wait(ticket, patience, _) => {
                    let deadline = patience.map(|_| Instant::now());
                    if thread.wait(ticket, deadline, Spin::OFF) == Woken::TimedOut {
                        self.now.fetch_add(PATIENCE.as_micros() as u64, Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

/// Two items of CPU 0, for a taker on each of these CPUs.
fn each_gets_one(cpus: [u32; 2]) {
    check_bounded(move || {
        let world = World::new();
        let takers = cpus.map(|cpu| {
            let other = world.clone();
            thread::spawn(move || other.take(cpu))
        });
        world.push(1, 0);
        world.push(2, 0);
        let sum: u8 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(sum, 3);
    });
}

#[test]
fn two_takers_of_one_core_get_an_item_each() {
    each_gets_one([0, 0]);
}

#[test]
fn whoever_leaves_items_tells_another() {
    // Who brings the second item finds the taker of its core coming, and wakes nobody.
    each_gets_one([0, 1]);
}

#[test]
fn an_item_of_a_busy_core_is_taken_by_another() {
    check_bounded(|| {
        let world = World::new();
        let other = world.clone();
        let taker = thread::spawn(move || other.take(1));
        world.push(1, 0);
        assert_eq!(taker.join().unwrap(), 1);
    });
}

#[test]
fn an_item_that_comes_while_another_is_watched_is_taken() {
    check_bounded(|| {
        let world = World::new();
        let other = world.clone();
        let taker = thread::spawn(move || {
            other.take(1);
            other.take(1)
        });
        world.push(1, 0);
        world.push(2, 1);
        let last = taker.join().unwrap();
        assert!(last == 1 || last == 2);
        assert!(world.queue.lock().is_empty());
    });
}
