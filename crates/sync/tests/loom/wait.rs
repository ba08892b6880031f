//! Waiters against wakers. A lost wake-up shows as a deadlock, which loom reports.

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::{Awaited, Mutex, Notified, Spin, WaitQueue, Woken};

use crate::{check, check_bounded, check_three};

struct SoRcv {
    bytes: Mutex<usize>,
    readers: WaitQueue,
}

impl SoRcv {
    fn new() -> Arc<Self> {
        Arc::new(Self { bytes: Mutex::new(0), readers: WaitQueue::new() })
    }

    /// Takes a byte; sleeps while there is none.
    fn recv(&self, spin: Spin) {
        loop {
            let mut bytes = self.bytes.lock();
            if *bytes > 0 {
                *bytes -= 1;
                return;
            }
            let ticket = self.readers.prepare();
            drop(bytes);
            assert_ne!(self.readers.wait(ticket, None, spin), Woken::TimedOut);
        }
    }

    /// Waits for a byte until the time is over, which is when it has just said that it sleeps.
    fn give_up(&self) {
        let bytes = self.bytes.lock();
        if *bytes == 0 {
            let ticket = self.readers.prepare();
            drop(bytes);
            let _was_told_before = !self.readers.announce(ticket);
        }
    }

    fn append(&self, count: usize) {
        let mut bytes = self.bytes.lock();
        *bytes += count;
        let found = self.readers.notify();
        drop(bytes);
        if found.is_wake_owed() {
            self.readers.wake();
        }
    }
}

#[test]
fn a_sleeping_reader_is_woken() {
    check(|| {
        let so_rcv = SoRcv::new();
        let other = so_rcv.clone();
        let reader = thread::spawn(move || other.recv(Spin::OFF));
        so_rcv.append(1);
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_that_sleeps_twice_is_woken_twice() {
    check(|| {
        let so_rcv = SoRcv::new();
        let other = so_rcv.clone();
        let reader = thread::spawn(move || (0..2).for_each(|_| other.recv(Spin::OFF)));
        so_rcv.append(1);
        so_rcv.append(1);
        reader.join().unwrap();
    });
}

#[test]
fn two_readers_are_both_woken_by_one_notify() {
    check_bounded(|| {
        let so_rcv = SoRcv::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let other = so_rcv.clone();
                thread::spawn(move || other.recv(Spin::OFF))
            })
            .collect();
        so_rcv.append(2);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn a_reader_whose_time_is_over_is_woken_when_it_waits_again() {
    check(|| {
        let so_rcv = SoRcv::new();
        let other = so_rcv.clone();
        let reader = thread::spawn(move || {
            other.give_up();
            other.recv(Spin::OFF);
        });
        so_rcv.append(1);
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_whose_time_is_over_takes_no_wake_up_from_another() {
    check_three(|| {
        let so_rcv = SoRcv::new();
        let (one, other) = (so_rcv.clone(), so_rcv.clone());
        let gives_up = thread::spawn(move || one.give_up());
        let reader = thread::spawn(move || other.recv(Spin::OFF));
        so_rcv.append(1);
        gives_up.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn two_wakers_and_one_reader() {
    check_bounded(|| {
        let so_rcv = SoRcv::new();
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let other = so_rcv.clone();
                thread::spawn(move || other.append(1))
            })
            .collect();
        (0..2).for_each(|_| so_rcv.recv(Spin::OFF));
        for waker in wakers {
            waker.join().unwrap();
        }
        assert_eq!(so_rcv.readers.notify(), Notified::NoWaiter);
    });
}

#[test]
fn a_spinning_reader_sees_the_notify() {
    check(|| {
        let so_rcv = SoRcv::new();
        let other = so_rcv.clone();
        // One pause: a spin that fails, and one that succeeds, are both reached with it.
        let reader = thread::spawn(move || other.recv(Spin::up_to(std::time::Duration::from_micros(1))));
        so_rcv.append(1);
        reader.join().unwrap();
    });
}

/// The same with the announcement kept under the mutex.
#[derive(Default)]
struct Guarded {
    bytes: usize,
    awaited: Awaited,
}

#[test]
fn a_reader_that_announces_itself_under_the_mutex_is_woken_each_time() {
    check(|| {
        let so = Arc::new((Mutex::new(Guarded::default()), WaitQueue::new()));
        let other = so.clone();
        let reader = thread::spawn(move || {
            let (guarded, readers) = &*other;
            let mut left = 2;
            while left > 0 {
                let mut so = guarded.lock();
                if so.bytes > 0 {
                    so.bytes -= 1;
                    left -= 1;
                    continue;
                }
                let ticket = readers.prepare_in(&mut so.awaited);
                drop(so);
                assert_ne!(readers.wait(ticket, None, Spin::OFF), Woken::TimedOut);
            }
        });
        let (guarded, readers) = &*so;
        for _ in 0..2 {
            let mut so = guarded.lock();
            so.bytes += 1;
            let found = readers.notify_in(&mut so.awaited);
            drop(so);
            if found.is_wake_owed() {
                readers.wake();
            }
        }
        reader.join().unwrap();
    });
}
