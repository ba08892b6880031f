//! The protocols with real threads, on real memory, for a moment each: they cover the recycling of nodes,
//! the kernel's futex, and counts beyond two, which the models cannot show.
//!
//! The machine decides the schedule, so a failure here does not replay; the counts below are chosen
//! so that a broken protocol fails nearly every time within a second.
#![cfg(not(loom))]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sockeye_sync::{
    Entry, Filled, Inside, Mutex, Notify, Outcome, Post, RunQueue, Sleeper, Spin, Squeue, WaitQueue, Woken,
};
use support::Guarded;

const THREADS_COUNT: usize = 4;
/// Of each thread. Miri is some thousand times slower.
const ITEMS_COUNT: usize = if cfg!(miri) { 30 } else { 200_000 };
/// Longer than any wait in here can take unless a wake-up was lost.
const LOST: Duration = Duration::from_secs(60);

/// An item: its maker and its number.
type Item = (usize, usize);

/// The next number expected of each producer: checks order, and that no item is run twice.
struct Ran {
    next: [usize; THREADS_COUNT],
}

impl Ran {
    fn record(&mut self, (producer, number): Item) {
        assert_eq!(self.next[producer], number);
        self.next[producer] += 1;
    }
}

struct Connection {
    squeue: Squeue<Item>,
    ran: Guarded<Ran>,
    scheduled: RunQueue<Arc<Connection>>,
    sleeper: Sleeper,
}

impl Connection {
    fn new() -> Arc<Self> {
        let squeue = Squeue::new();
        let ran = Guarded::new(Ran { next: [0; THREADS_COUNT] });
        Arc::new(Self { squeue, ran, scheduled: RunQueue::new(), sleeper: Sleeper::new() })
    }

    fn record(&self, inside: &mut Inside<'_, Item>, item: Item) {
        self.ran.with(inside, |ran| ran.record(item));
    }

    fn conclude(self: &Arc<Self>, outcome: Outcome) {
        match outcome {
            Outcome::Left => {}
            Outcome::HandOffNeeded => self.tell_worker(),
        }
    }

    fn tell_worker(self: &Arc<Self>) {
        self.scheduled.push(self.clone());
        self.sleeper.wake_if_sleeping();
    }

    /// Runs `item` and up to `bound` others, or leaves it to the thread inside.
    fn process(self: &Arc<Self>, item: Item, bound: usize) {
        match self.squeue.enter(item) {
            Entry::Inside(mut inside, item) => {
                self.record(&mut inside, item);
                self.conclude(inside.drain(bound, |inside, item| self.record(inside, item)));
            }
            Entry::Queued => {}
            Entry::Poisoned(_) => panic!("no thread panicked"),
        }
    }

    /// Leaves `item` to another thread.
    fn fill(self: &Arc<Self>, item: Item) {
        match self.squeue.fill(item) {
            Filled::WakeWorker => self.tell_worker(),
            Filled::Queued => {}
            Filled::Poisoned => panic!("no thread panicked"),
        }
    }

    fn assert_all_ran(&self) {
        let mut inside = self.squeue.try_enter().expect("all threads have left");
        assert!(inside.peek().is_none());
        self.ran.with(&mut inside, |ran| assert_eq!(ran.next, [ITEMS_COUNT; THREADS_COUNT]));
        assert!(inside.leave().is_ok());
    }
}

#[test]
fn every_item_runs_once_and_in_order_on_every_entry_path() {
    let connection = Connection::new();
    let is_done = AtomicUsize::new(0);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let deadline = Instant::now() + LOST;
            while is_done.load(Ordering::Acquire) == 0 || !connection.scheduled.is_empty() {
                for scheduled in connection.scheduled.take_all() {
                    if let Some(inside) = scheduled.squeue.resume() {
                        let outcome = inside.drain(32, |i, item| connection.record(i, item));
                        connection.conclude(outcome);
                    }
                }
                let drowsy = connection.sleeper.prepare_sleep();
                if connection.scheduled.is_empty() && is_done.load(Ordering::Acquire) == 0 {
                    assert_ne!(drowsy.sleep(Some(deadline), Spin::default()), Woken::TimedOut);
                }
            }
        });
        let producers: Vec<_> = (0..THREADS_COUNT)
            .map(|producer| {
                let connection = &connection;
                scope.spawn(move || {
                    for item in (0..ITEMS_COUNT).map(|number| (producer, number)) {
                        match producer {
                            1 => connection.process(item, 0),
                            2 => connection.fill(item),
                            _ => connection.process(item, 8),
                        }
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.join().expect("no panic");
        }
        is_done.store(1, Ordering::Release);
        connection.sleeper.wake_if_sleeping();
        worker.join().expect("no panic");
    });
    connection.assert_all_ran();
}

#[test]
fn threads_that_wait_to_enter_are_alone_inside_and_all_enter() {
    let connection = Connection::new();
    let items_count = ITEMS_COUNT / 10;
    thread::scope(|scope| {
        for producer in 0..THREADS_COUNT {
            let connection = &connection;
            scope.spawn(move || {
                for number in 0..items_count {
                    let item = (producer, number);
                    let inside = if number % 2 == 0 {
                        let mut inside = connection.squeue.enter_blocking().expect("no panic");
                        // Order: items that this thread queued before have to run first.
                        while let Some(item) = inside.pop() {
                            connection.record(&mut inside, item);
                        }
                        connection.record(&mut inside, item);
                        inside
                    } else {
                        match connection.squeue.enter(item) {
                            Entry::Inside(mut inside, item) => {
                                connection.record(&mut inside, item);
                                inside
                            }
                            Entry::Queued => continue,
                            Entry::Poisoned(_) => panic!("no thread panicked"),
                        }
                    };
                    let outcome = inside.drain(usize::MAX, |inside, item| connection.record(inside, item));
                    assert_eq!(outcome, Outcome::Left);
                }
            });
        }
    });
    let mut inside = connection.squeue.try_enter().expect("all threads have left");
    connection.ran.with(&mut inside, |ran| assert_eq!(ran.next, [items_count; THREADS_COUNT]));
    assert!(inside.leave().is_ok());
}

#[test]
fn the_last_change_before_a_post_is_always_seen() {
    let notify = Notify::new();
    let queue = RunQueue::new();
    let sleeper = Sleeper::new();
    // Without a lock, so only the post and the take provide the order.
    let freed: [AtomicUsize; THREADS_COUNT] = std::array::from_fn(|_| AtomicUsize::new(0));
    thread::scope(|scope| {
        for own in &freed {
            let (notify, queue, sleeper) = (&notify, &queue, &sleeper);
            scope.spawn(move || {
                for number in 1..=ITEMS_COUNT {
                    own.store(number, Ordering::Relaxed);
                    if notify.post(1) == Post::Fire {
                        queue.push(());
                        sleeper.wake_if_sleeping();
                    }
                }
            });
        }
        let deadline = Instant::now() + LOST;
        let mut seen = 0;
        while seen < THREADS_COUNT * ITEMS_COUNT {
            for () in queue.take_all() {
                notify.take();
                seen = freed.iter().map(|own| own.load(Ordering::Relaxed)).sum();
            }
            let drowsy = sleeper.prepare_sleep();
            if queue.is_empty() && seen < THREADS_COUNT * ITEMS_COUNT {
                assert_ne!(drowsy.sleep(Some(deadline), Spin::OFF), Woken::TimedOut);
            }
        }
    });
}

/// A bounded buffer of one byte between two threads.
struct Sockbuf {
    is_full: Mutex<bool>,
    readers: WaitQueue,
    writers: WaitQueue,
}

impl Sockbuf {
    /// Waits until the buffer is (not) full, and makes it the other.
    fn flip(&self, from: bool, spin: Spin) {
        let (own, others) =
            if from { (&self.readers, &self.writers) } else { (&self.writers, &self.readers) };
        let deadline = Some(Instant::now() + LOST);
        loop {
            let mut is_full = self.is_full.lock();
            if *is_full == from {
                *is_full = !from;
                let found = others.notify();
                drop(is_full);
                if found.is_wake_owed() {
                    others.wake();
                }
                return;
            }
            let ticket = own.prepare();
            drop(is_full);
            assert_ne!(own.wait(ticket, deadline, spin), Woken::TimedOut);
        }
    }
}

#[test]
fn readers_and_writers_of_a_full_buffer_never_miss_each_other() {
    for spin in [Spin::OFF, Spin::up_to(Duration::from_micros(20)), Spin::default()] {
        let sockbuf =
            Sockbuf { is_full: Mutex::new(false), readers: WaitQueue::new(), writers: WaitQueue::new() };
        thread::scope(|scope| {
            for from in [false, true, false, true] {
                let sockbuf = &sockbuf;
                scope.spawn(move || {
                    for _ in 0..ITEMS_COUNT / 40 {
                        sockbuf.flip(from, spin);
                    }
                });
            }
        });
        assert!(!*sockbuf.is_full.lock());
    }
}
