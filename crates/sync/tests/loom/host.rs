//! A waiting thread that lends itself to a perimeter (`sync/src/perimeter/host.rs`): whatever is left with it is run, and its
//! wait ends, though others enter, leave and wait meanwhile.
//!
//! Loom reports whoever sleeps for ever as a deadlock.

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::{Entry, Inside, Mutex, Perimeter, Spin, WaitQueue};

use crate::support::Guarded;
use crate::{check, check_bounded};

/// A connection: items are bytes that come in.
struct Connection {
    perimeter: Perimeter<usize>,
    /// What protocol code alone touches.
    ran: Guarded<Vec<usize>>,
    /// What the reader waits for: so many bytes.
    received: Mutex<usize>,
    wait: WaitQueue,
}

impl Connection {
    fn new() -> Arc<Self> {
        let perimeter = Perimeter::new();
        let ran = Guarded::new(Vec::new());
        Arc::new(Self { perimeter, ran, received: Mutex::new(0), wait: WaitQueue::new() })
    }

    fn run(&self, inside: &mut Inside<'_, usize>, bytes: usize) {
        self.ran.with(inside, |ran| ran.push(bytes));
        let mut received = self.received.lock();
        *received += bytes;
        let owed = self.wait.notify().is_wake_owed();
        drop(received);
        if owed {
            self.wait.wake();
        }
    }

    fn drain(&self, mut inside: Inside<'_, usize>) {
        loop {
            inside = match inside.leave() {
                Ok(()) => return,
                Err(inside) => inside,
            };
            for bytes in inside.take() {
                self.run(&mut inside, bytes);
            }
        }
    }

    /// A reader who waits for `wanted` bytes in all.
    fn read(&self, wanted: usize) {
        loop {
            let received = self.received.lock();
            if *received >= wanted {
                return;
            }
            let ticket = self.wait.prepare();
            drop(received);
            let hosts = self.perimeter.host(0);
            self.wait.wait(ticket, None, Spin::OFF);
            if hosts
                && !self.perimeter.unhost()
                && let Some(inside) = self.perimeter.resume()
            {
                self.drain(inside);
            }
        }
    }

    /// A sender who leaves them with a host, if there is one.
    fn send(&self, bytes: usize) {
        match self.perimeter.fill_hosted(bytes) {
            Ok(()) => {
                if self.wait.nudge().is_wake_owed() {
                    self.wait.wake();
                }
            }
            Err(bytes) => self.enter(bytes),
        }
    }

    /// One who does not care for hosts.
    fn enter(&self, bytes: usize) {
        match self.perimeter.enter(bytes) {
            Entry::Queued => {}
            Entry::Poisoned(_) => panic!("nobody panicked"),
            Entry::Inside(mut inside, bytes) => {
                self.run(&mut inside, bytes);
                self.drain(inside);
            }
        }
    }

    /// Nobody is inside, nothing is queued, and all has run.
    fn is_done(&self, items: usize) {
        let mut inside = self.perimeter.try_enter().expect("it was left");
        assert_eq!(self.ran.with(&mut inside, |ran| ran.len()), items);
        inside.leave().expect("nothing is queued");
    }
}

#[test]
fn what_is_left_with_a_host_is_run_and_ends_his_wait() {
    check_bounded(|| {
        let conn = Connection::new();
        let sender = {
            let conn = Arc::clone(&conn);
            thread::spawn(move || {
                conn.send(1);
                conn.send(1);
            })
        };
        conn.read(2);
        sender.join().unwrap();
        conn.is_done(2);
    });
}

#[test]
fn one_who_enters_takes_the_mark_away_and_the_host_waits_on() {
    check_bounded(|| {
        let conn = Connection::new();
        let sender = {
            let conn = Arc::clone(&conn);
            thread::spawn(move || conn.send(1))
        };
        let other = {
            let conn = Arc::clone(&conn);
            // Brings no bytes, as a timer does.
            thread::spawn(move || conn.enter(0))
        };
        conn.read(1);
        sender.join().unwrap();
        other.join().unwrap();
        conn.is_done(2);
    });
}

#[test]
fn two_hosts_one_after_the_other_both_come_back() {
    check_bounded(|| {
        let conn = Connection::new();
        let second = {
            let conn = Arc::clone(&conn);
            thread::spawn(move || conn.read(1))
        };
        let sender = {
            let conn = Arc::clone(&conn);
            thread::spawn(move || conn.send(1))
        };
        conn.read(1);
        second.join().unwrap();
        sender.join().unwrap();
        conn.is_done(1);
    });
}

#[test]
fn a_wait_that_ends_by_itself_strands_nothing() {
    check(|| {
        let conn = Connection::new();
        let sender = {
            let conn = Arc::clone(&conn);
            thread::spawn(move || conn.send(1))
        };
        // One who sets the mark and does not wait, as where the time is over at once.
        let received = conn.received.lock();
        let _ticket = conn.wait.prepare();
        drop(received);
        if conn.perimeter.host(0)
            && !conn.perimeter.unhost()
            && let Some(inside) = conn.perimeter.resume()
        {
            conn.drain(inside);
        }
        sender.join().unwrap();
        assert_eq!(*conn.received.lock(), 1);
        conn.is_done(1);
    });
}
