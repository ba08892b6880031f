//! The socket lock: one holder, each item run once and in order, nothing stranded, no thread asleep for ever.
//!
//! A forgotten sleeper is a deadlock, which the checker reports, and so is a receiver of a hand-off that never comes. No thread spins
//! in a model: one that does not get the lock at once goes to sleep, and a debtor insists at once.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sockeye_sync::socket_lock::{HandedOff, Left, Locked, SocketLock, Turn};

use crate::{check, check_bounded, check_three};

/// An item: which thread made it, and its number.
type Item = (usize, usize);
type Lock = SocketLock<Vec<Item>, Item>;
type Held<'a> = Locked<'a, Vec<Item>, Item>;

fn new() -> Arc<Lock> {
    Arc::new(Lock::new(Vec::new()))
}

/// The policy *run*.
fn run(mut locked: Held<'_>) {
    loop {
        locked = match locked.run() {
            Ok(()) => return,
            Err(locked) => locked,
        };
        let (ran, mut backlog) = locked.parts();
        while let Some(item) = backlog.pop() {
            ran.push(item);
        }
    }
}

/// Has an item run, by this thread or another.
fn bring(lock: &Lock, item: Item) {
    match lock.try_run(item) {
        Turn::Mine(mut locked, item) => {
            locked.extend(item);
            run(locked);
        }
        Turn::Left(Left::First) => lock.look().into_iter().for_each(run),
        Turn::Left(Left::Behind) => {}
        Turn::Left(Left::Dead(_)) => panic!("no thread panicked"),
    }
}

/// The condition that a worker sleeps for.
#[derive(Default)]
struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn wait(&self) {
        let mut is_set = self.is_set.lock().unwrap();
        while !*is_set {
            is_set = self.changed.wait(is_set).unwrap();
        }
    }

    fn set(&self) {
        *self.is_set.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// When all are done: checks that nothing waits, and returns the items that were run, each thread's in order.
fn assert_ran(lock: &Lock, threads_count: usize, items_count: usize) {
    let locked = lock.try_enter().expect("all threads have let go");
    assert!(!locked.has_backlog(), "an item was left behind");
    assert_eq!(lock.backlog_len(), 0);
    assert_eq!(locked.len(), threads_count * items_count);
    for own in 0..threads_count {
        let numbers = locked.iter().filter(|item| item.0 == own).map(|item| item.1);
        assert!(numbers.eq(0..items_count), "{:?}", *locked);
    }
    assert!(locked.run().is_ok());
}

#[test]
fn two_threads_bring_two_items_each() {
    check_bounded(|| {
        let lock = new();
        let other = lock.clone();
        let thread = thread::spawn(move || (0..2).for_each(|n| bring(&other, (1, n))));
        (0..2).for_each(|n| bring(&lock, (0, n)));
        thread.join().unwrap();
        assert_ran(&lock, 2, 2);
    });
}

#[test]
fn two_threads_bring_an_item_in_every_interleaving() {
    check(|| {
        let lock = new();
        let other = lock.clone();
        let thread = thread::spawn(move || bring(&other, (1, 0)));
        bring(&lock, (0, 0));
        thread.join().unwrap();
        assert_ran(&lock, 2, 1);
    });
}

#[test]
fn three_threads_bring_an_item() {
    check_three(|| {
        let lock = new();
        let threads: Vec<_> = (1..3)
            .map(|own| {
                let lock = lock.clone();
                thread::spawn(move || bring(&lock, (own, 0)))
            })
            .collect();
        bring(&lock, (0, 0));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_ran(&lock, 3, 1);
    });
}

/// A section has nothing to look for: the debtor waits for its end, and it may become a runner meanwhile.
#[test]
fn a_debtor_waits_for_sections_and_not_for_runners() {
    check_bounded(|| {
        let lock = new();
        let other = lock.clone();
        let thread = thread::spawn(move || {
            assert!(matches!(other.leave((1, 0)), Left::First));
            assert!(matches!(other.leave((1, 1)), Left::Behind | Left::First));
            other.look().into_iter().for_each(run);
        });
        let section = lock.lock();
        if section.is_empty() {
            drop(section);
            run(lock.enter());
        } else {
            drop(section);
        }
        thread.join().unwrap();
        let ran = lock.try_enter().unwrap();
        assert!(!ran.has_backlog(), "an item was left behind");
        assert_eq!(*ran, [(1, 0), (1, 1)]);
        assert!(ran.run().is_ok());
    });
}

/// The runner lets go just as an item is left, and a section begins.
#[test]
fn a_runner_and_a_section_beside_a_debtor() {
    check_three(|| {
        let lock = new();
        let (brings, reads) = (lock.clone(), lock.clone());
        let brings = thread::spawn(move || bring(&brings, (0, 0)));
        let reads = thread::spawn(move || reads.lock().len());
        bring(&lock, (1, 0));
        brings.join().unwrap();
        assert!(reads.join().unwrap() <= 2);
        assert_ran(&lock, 2, 1);
    });
}

/// Sleepers of both kinds: each is woken, whichever thread lets go.
#[test]
fn two_sections_and_a_debtor() {
    check_three(|| {
        let lock = new();
        let (reads, brings) = (lock.clone(), lock.clone());
        let reads = thread::spawn(move || reads.lock().len());
        let brings = thread::spawn(move || bring(&brings, (0, 0)));
        assert!(lock.lock().len() <= 1);
        reads.join().unwrap();
        brings.join().unwrap();
        assert_ran(&lock, 1, 1);
    });
}

#[test]
fn two_sections_in_every_interleaving() {
    check(|| {
        let lock = new();
        let other = lock.clone();
        let thread = thread::spawn(move || other.lock().push((1, 0)));
        lock.lock().push((0, 0));
        thread.join().unwrap();
        assert_ran(&lock, 2, 1);
    });
}

/// A runner takes two items, runs one, and hands off; the worker sleeps until it is notified.
#[test]
fn a_worker_takes_over_items_that_a_runner_leaves() {
    check_three(|| {
        let lock = new();
        let works = lock.clone();
        let signal = Arc::new(Signal::default());
        let awaited = signal.clone();
        let worker = thread::spawn(move || {
            awaited.wait();
            works.take_over().into_iter().for_each(run);
        });
        let brings = lock.clone();
        let brings = thread::spawn(move || bring(&brings, (1, 0)));
        let Turn::Mine(mut locked, item) = lock.try_run((0, 0)) else {
            // The other is the runner, or about to be: nothing is handed off.
            signal.set();
            worker.join().unwrap();
            brings.join().unwrap();
            lock.look().into_iter().for_each(run);
            return assert_eq!(lock.lock().len(), 2);
        };
        locked.extend(item);
        locked.push((0, 1));
        locked.push((0, 2));
        let next = locked.pop();
        locked.extend(next);
        assert_eq!(locked.leave(), Some(HandedOff));
        signal.set();
        worker.join().unwrap();
        brings.join().unwrap();
        let locked = lock.try_enter().unwrap();
        assert!(!locked.has_backlog(), "an item was left behind");
        assert!(locked.iter().filter(|item| item.0 == 0).map(|item| item.1).eq(0..3));
        assert_eq!(locked.len(), 4);
        assert!(locked.run().is_ok());
    });
}

/// Without workers, handed-off items wait for the next thread that brings an item, or that drives the stack.
#[test]
fn a_hand_off_without_a_worker_is_run_by_the_next_holder() {
    check_bounded(|| {
        let lock = new();
        let other = lock.clone();
        let mut locked = lock.try_enter().unwrap();
        locked.push((0, 0));
        let thread = thread::spawn(move || {
            let _count = other.lock().len();
            bring(&other, (1, 0));
        });
        assert_eq!(locked.leave(), Some(HandedOff));
        let _count = lock.lock().len();
        thread.join().unwrap();
        // The next call that drives.
        lock.take_over().into_iter().for_each(run);
        assert_ran(&lock, 2, 1);
    });
}

#[test]
fn a_runner_that_yields_is_the_runner_again() {
    check_three(|| {
        let lock = new();
        let (reads, brings) = (lock.clone(), lock.clone());
        let mut locked = lock.try_enter().unwrap();
        let reads = thread::spawn(move || reads.lock().len());
        let brings = thread::spawn(move || bring(&brings, (1, 0)));
        locked.push((0, 0));
        run(locked.give_way().unwrap());
        reads.join().unwrap();
        brings.join().unwrap();
        assert_ran(&lock, 2, 1);
    });
}

/// A runner panics while one thread leaves an item and another waits: the item is returned or dropped, the sleeper continues.
#[test]
fn a_dead_lock_keeps_no_waiter_and_no_item() {
    check_three(|| {
        let lock = Arc::new(SocketLock::<usize, Box<usize>>::new(7));
        let (leaves, waits) = (lock.clone(), lock.clone());
        let locked = lock.try_enter().unwrap();
        let leaves = thread::spawn(move || {
            if leaves.leave(Box::new(1)) == Left::First {
                assert!(leaves.look().is_none(), "no thread runs it any more");
            }
        });
        let waits = thread::spawn(move || *waits.lock());
        drop(locked);
        leaves.join().unwrap();
        assert_eq!(waits.join().unwrap(), 7);
        assert!(lock.is_dead() && lock.try_enter().is_none());
        assert!(lock.enter().run().is_ok(), "nothing waits, and nothing ever will");
    });
}

/// Two ends of a connection in one process: segments are numbered under the lock of the sender, and handed over while it is
/// held.
struct End {
    /// The number of the next segment, and the segments that have arrived.
    lock: SocketLock<(usize, Vec<usize>), usize>,
}

impl End {
    fn new() -> Arc<Self> {
        Arc::new(Self { lock: SocketLock::new((0, Vec::new())) })
    }

    /// Sends a segment to `peer`. While both are held no thread waits.
    fn send_to(&self, peer: &Self) {
        let mut own = self.lock.enter();
        let number = own.0;
        own.0 += 1;
        match peer.lock.try_run(number) {
            Turn::Mine(mut held, number) => {
                self.let_go_first(own);
                held.1.extend(number);
                peer.let_go(held);
            }
            Turn::Left(left) => {
                self.let_go_first(own);
                if left == Left::First {
                    peer.lock.look().into_iter().for_each(|held| peer.let_go(held));
                }
            }
        }
        // The segments that had to wait for that.
        self.lock.take_over().into_iter().for_each(|own| self.let_go(own));
    }

    /// The policy *leave*: this thread runs the waiting items later.
    fn let_go_first(&self, own: Locked<'_, (usize, Vec<usize>), usize>) {
        let _later = own.leave();
    }

    /// The policy *run*. Running a segment sends nothing here.
    fn let_go(&self, mut locked: Locked<'_, (usize, Vec<usize>), usize>) {
        loop {
            locked = match locked.run() {
                Ok(()) => return,
                Err(locked) => locked,
            };
            let ((_, arrived), mut backlog) = locked.parts();
            while let Some(number) = backlog.pop() {
                arrived.push(number);
            }
        }
    }

    fn assert_arrived(&self, count: usize) {
        let locked = self.lock.try_enter().expect("all threads have let go");
        assert!(!locked.has_backlog(), "an item was left behind");
        assert_eq!(locked.1, (0..count).collect::<Vec<_>>());
        assert!(locked.run().is_ok());
    }
}

/// In the order in which they were made, whichever way each took.
#[test]
fn two_senders_one_after_the_other() {
    check_bounded(|| {
        let (from, to) = (End::new(), End::new());
        let other = (from.clone(), to.clone());
        let thread = thread::spawn(move || other.0.send_to(&other.1));
        from.send_to(&to);
        thread.join().unwrap();
        to.assert_arrived(2);
    });
}

/// The reader of the second end is in its way at times.
#[test]
fn two_senders_beside_a_reader() {
    check_three(|| {
        let (from, to) = (End::new(), End::new());
        let (other, reader) = ((from.clone(), to.clone()), to.clone());
        let sends = thread::spawn(move || other.0.send_to(&other.1));
        let reads = thread::spawn(move || reader.lock.lock().1.len());
        from.send_to(&to);
        sends.join().unwrap();
        assert!(reads.join().unwrap() <= 2);
        to.assert_arrived(2);
    });
}

#[test]
fn two_ends_send_to_each_other() {
    check_bounded(|| {
        let (one, two) = (End::new(), End::new());
        let ends = (one.clone(), two.clone());
        let thread = thread::spawn(move || ends.1.send_to(&ends.0));
        one.send_to(&two);
        thread.join().unwrap();
        one.assert_arrived(1);
        two.assert_arrived(1);
    });
}

#[test]
fn an_end_sends_to_itself() {
    check_bounded(|| {
        let end = End::new();
        let other = end.clone();
        let thread = thread::spawn(move || other.send_to(&other));
        end.send_to(&end);
        thread.join().unwrap();
        end.assert_arrived(2);
    });
}
