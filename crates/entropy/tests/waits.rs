//! Waits of simulated threads: for other threads, with limits, and those that an armed thread skips.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
))]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sockeye_entropy::{Machine, SkippedWait, arm_wait, disarm_wait, take_wait};

const MS: Duration = Duration::from_millis(1);

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One wait for a condition variable.
fn wait_once(limit: Option<Duration>) -> bool {
    let (mutex, moved) = (Mutex::new(()), Condvar::new());
    let held = mutex.lock().unwrap();
    match limit {
        Some(limit) => moved.wait_timeout(held, limit).unwrap().1.timed_out(),
        None => {
            drop(moved.wait(held).unwrap());
            false
        }
    }
}

/// Each wait of an armed thread is skipped, and its limit is kept; the clock shows the right time afterwards.
fn waits_are_skipped(count: &Arc<Count>, limits: [Duration; 3], mut wait: impl FnMut(Duration)) {
    let before = count.0.load(Ordering::Relaxed);
    for limit in limits {
        let start = Instant::now();
        arm_wait(Waker::from(Arc::clone(count)));
        assert_eq!(take_wait(), None);
        wait(limit);
        assert_eq!(start.elapsed(), Duration::ZERO);
        let until = Duration::from_secs(100_000) + limit;
        assert_eq!((take_wait(), take_wait()), (Some(SkippedWait { until }), None));
    }
    assert_eq!(count.0.load(Ordering::Relaxed), before + 3);
}

#[test]
fn an_armed_thread_skips_the_wait_and_keeps_its_limit() {
    let machine = Arc::new(Machine::new(1));
    let _scope = machine.enter().unwrap();
    machine.set_elapsed(Duration::from_secs(100_000));
    let count = Arc::new(Count::default());
    let limits = [MS, Duration::from_secs(3600), Duration::from_secs(86_400)];
    waits_are_skipped(&count, limits, |limit| assert!(!wait_once(Some(limit))));
    arm_wait(Waker::from(Arc::clone(&count)));
    disarm_wait();
    assert!(wait_once(Some(MS)), "not armed any more: it waits");
    assert_eq!((take_wait(), count.0.load(Ordering::Relaxed), Arc::strong_count(&count)), (None, 3, 1));
}

/// tokio waits with these condition variables if it has its feature `parking_lot`, which `full` includes.
#[test]
fn an_armed_thread_skips_a_wait_of_parking_lots_too() {
    let machine = Arc::new(Machine::new(1));
    let _scope = machine.enter().unwrap();
    machine.set_elapsed(Duration::from_secs(100_000));
    let count = Arc::new(Count::default());
    let (mutex, moved) = (parking_lot::Mutex::new(()), parking_lot::Condvar::new());
    let limits = [MS, Duration::from_secs(3600), Duration::from_secs(86_400 * 365 * 2)];
    waits_are_skipped(&count, limits, |limit| {
        assert!(moved.wait_for(&mut mutex.lock(), limit).timed_out());
    });
}

#[test]
fn an_armed_thread_waits_for_a_lock_that_another_holds() {
    let machine = Arc::new(Machine::new(1));
    let count = Arc::new(Count::default());
    let mutex = Mutex::new(0);
    thread::scope(|threads| {
        let mut held = mutex.lock().unwrap();
        let waiter = threads.spawn(|| {
            let _scope = machine.enter().unwrap();
            arm_wait(Waker::from(Arc::clone(&count)));
            let seen = *mutex.lock().unwrap();
            assert!(!wait_once(Some(MS)), "still armed");
            (seen, take_wait().is_some())
        });
        thread::sleep(20 * MS);
        *held = 7;
        drop(held);
        assert_eq!(waiter.join().unwrap(), (7, true));
    });
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_limit_that_has_come_ends_the_wait_which_is_not_skipped() {
    let machine = Arc::new(Machine::new(1));
    let _scope = machine.enter().unwrap();
    let count = Arc::new(Count::default());
    arm_wait(Waker::from(Arc::clone(&count)));
    assert!(wait_once(Some(Duration::ZERO)));
    assert_eq!((take_wait(), count.0.load(Ordering::Relaxed)), (None, 0));
    disarm_wait();
}

/// The machine's clock may be before the kernel's or behind it.
#[test]
fn a_simulated_thread_waits_for_another_in_real_time_and_no_longer_than_its_limit() {
    for elapsed in [0, 1_000_000_000] {
        let machine = Arc::new(Machine::new(1));
        let _scope = machine.enter().unwrap();
        machine.set_elapsed(Duration::from_secs(elapsed));
        let start = Instant::now();
        assert!(wait_once(Some(2 * MS)), "virtual time stands still, and the wait is over");
        let (sender, receiver) = mpsc::channel();
        let other = thread::spawn(move || {
            thread::sleep(2 * MS);
            sender.send(7).unwrap();
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(600)), Ok(7));
        other.join().unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
