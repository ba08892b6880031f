//! A waiting thread that lends itself to a socket lock (`sync/src/socket_lock/delegate.rs`): whatever is left with it is run, and its
//! wait ends, though others bring items, and wait, meanwhile.
//!
//! Loom reports a thread that sleeps for ever as a deadlock.

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::socket_lock::{Delegate, Left, Locked, SocketLock, Turn};
use sockeye_sync::{Spin, WaitQueue};

use crate::{check, check_bounded, check_three};

/// A connection: items are bytes that come in, and the value is what has come.
struct Connection {
    lock: SocketLock<Vec<usize>, usize>,
    delegate: Delegate,
    wait: WaitQueue,
}

impl Connection {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: SocketLock::new(Vec::new()),
            delegate: Delegate::new(),
            wait: WaitQueue::new(),
        })
    }

    fn run(&self, mut locked: Locked<'_, Vec<usize>, usize>, first: Option<usize>) {
        let mut is_wake_owed = false;
        let mut next = first;
        loop {
            let (received, mut backlog) = locked.parts();
            while let Some(bytes) = next.take().or_else(|| backlog.pop()) {
                received.push(bytes);
                is_wake_owed |= self.wait.notify().is_wake_owed();
            }
            locked = match locked.run() {
                Ok(()) => break,
                Err(locked) => locked,
            };
        }
        if is_wake_owed {
            self.wait.wake();
        }
    }

    fn look(&self) {
        self.lock.look().into_iter().for_each(|locked| self.run(locked, None));
    }

    /// A reader that waits for `wanted` bytes in all.
    fn read(&self, wanted: usize) {
        loop {
            let received = self.lock.lock();
            if received.iter().sum::<usize>() >= wanted {
                return;
            }
            let ticket = self.wait.prepare();
            drop(received);
            self.delegate.offer(0);
            self.wait.wait(ticket, None, Spin::OFF);
            self.come_back();
        }
    }

    fn come_back(&self) {
        self.delegate.withdraw();
        if self.lock.looks_left() {
            self.look();
        }
    }

    /// A sender that leaves them with a waiting thread, if there is one.
    fn send(&self, bytes: usize) {
        if self.delegate.cpu().is_none() {
            return self.bring(bytes);
        }
        match self.lock.leave(bytes) {
            Left::First if self.delegate.takes_over() => {
                if self.wait.nudge().is_wake_owed() {
                    self.wait.wake();
                }
            }
            Left::First => self.look(),
            Left::Behind => {}
            Left::Dead(_) => panic!("no thread panicked"),
        }
    }

    /// One that does not care for offers.
    fn bring(&self, bytes: usize) {
        match self.lock.try_run(bytes) {
            Turn::Mine(locked, first) => self.run(locked, first),
            Turn::Left(Left::First) => self.look(),
            Turn::Left(Left::Behind) => {}
            Turn::Left(Left::Dead(_)) => panic!("no thread panicked"),
        }
    }

    fn assert_done(&self, items: usize) {
        let locked = self.lock.try_enter().expect("all threads have let go");
        assert!(!locked.has_backlog(), "an item was left behind");
        assert_eq!(locked.len(), items);
        assert!(locked.run().is_ok());
    }
}

#[test]
fn what_is_left_with_a_waiting_thread_is_run_and_ends_its_wait() {
    check_bounded(|| {
        let conn = Connection::new();
        let other = conn.clone();
        let sender = thread::spawn(move || {
            other.send(1);
            other.send(1);
        });
        conn.read(2);
        sender.join().unwrap();
        conn.assert_done(2);
    });
}

#[test]
fn others_bring_items_meanwhile() {
    check_three(|| {
        let conn = Connection::new();
        let (sends, brings) = (conn.clone(), conn.clone());
        let sends = thread::spawn(move || sends.send(1));
        // Brings no bytes, as a timer does.
        let brings = thread::spawn(move || brings.bring(0));
        conn.read(1);
        sends.join().unwrap();
        brings.join().unwrap();
        conn.assert_done(2);
    });
}

#[test]
fn two_threads_offer_and_both_come_back() {
    check_three(|| {
        let conn = Connection::new();
        let (reads, sends) = (conn.clone(), conn.clone());
        let reads = thread::spawn(move || reads.read(1));
        let sends = thread::spawn(move || sends.send(1));
        conn.read(1);
        reads.join().unwrap();
        sends.join().unwrap();
        conn.assert_done(1);
    });
}

#[test]
fn a_wait_that_ends_by_itself_strands_nothing() {
    check(|| {
        let conn = Connection::new();
        let other = conn.clone();
        let sender = thread::spawn(move || other.send(1));
        // Offers and does not wait, as where the time is over at once.
        let received = conn.lock.lock();
        let _ticket = conn.wait.prepare();
        drop(received);
        conn.delegate.offer(0);
        conn.come_back();
        sender.join().unwrap();
        conn.assert_done(1);
    });
}
