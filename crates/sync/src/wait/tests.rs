//! Waiting with one thread and a clock, and with two.

use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::*;

#[test]
fn is_small() {
    assert!(size_of::<WaitQueue>() <= 8);
}

#[test]
fn a_notify_without_waiters_costs_nothing_and_needs_no_wake() {
    let queue = WaitQueue::new();
    assert_eq!(queue.notify(), Notified::NoWaiter);
    assert!(!queue.notify().is_wake_owed());
    let before = queue.word.load(Ordering::Relaxed);
    let _found = queue.notify();
    assert_eq!(queue.word.load(Ordering::Relaxed), before);
}

#[test]
fn a_notify_after_the_ticket_ends_the_wait_at_once() {
    let queue = WaitQueue::new();
    let ticket = queue.prepare();
    assert_eq!(queue.notify(), Notified::Spinning);
    assert_eq!(queue.wait(ticket, None, Spin::OFF), Woken::Spinning);
    // The waiter is served, no other one is there.
    assert_eq!(queue.notify(), Notified::NoWaiter);
}

#[test]
fn a_notify_before_the_ticket_does_not_end_the_wait() {
    let queue = WaitQueue::new();
    let _earlier = queue.prepare();
    let _found = queue.notify();
    let ticket = queue.prepare();
    let deadline = Instant::now() + Duration::from_millis(5);
    assert_eq!(queue.wait(ticket, Some(deadline), Spin::OFF), Woken::TimedOut);
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_waiter_that_gave_up_costs_one_needless_wake() {
    let queue = WaitQueue::new();
    let ticket = queue.prepare();
    assert_eq!(queue.wait(ticket, Some(Instant::now()), Spin::OFF), Woken::TimedOut);
    assert_eq!(queue.notify(), Notified::Parked);
    queue.wake();
    assert_eq!(queue.notify(), Notified::NoWaiter);
}

#[test]
fn the_generation_wraps_without_touching_the_flags() {
    let queue = WaitQueue { word: Futex::new(GENERATION) };
    let ticket = queue.prepare();
    assert_eq!(queue.notify(), Notified::Spinning);
    assert_eq!(queue.word.load(Ordering::Relaxed), 0);
    assert_eq!(queue.wait(ticket, None, Spin::OFF), Woken::Spinning);
}

#[test]
fn all_waiters_are_woken() {
    let state = Arc::new((Mutex::new(false), WaitQueue::new()));
    let waiters: Vec<_> = (0..3)
        .map(|number| {
            let state = state.clone();
            // One of them spins first.
            let spin = if number == 0 { Spin::default() } else { Spin::OFF };
            thread::spawn(move || {
                let deadline = Some(Instant::now() + Duration::from_secs(60));
                let (ready, queue) = &*state;
                loop {
                    let ready = ready.lock().expect("no panic");
                    if *ready {
                        return;
                    }
                    let ticket = queue.prepare();
                    drop(ready);
                    assert_ne!(queue.wait(ticket, deadline, spin), Woken::TimedOut);
                }
            })
        })
        .collect();
    // Not needed for the outcome: it makes some of them sleep for real.
    thread::sleep(Duration::from_millis(2));
    let (ready, queue) = &*state;
    let mut ready = ready.lock().expect("no panic");
    *ready = true;
    let found = queue.notify();
    drop(ready);
    if found.is_wake_owed() {
        queue.wake();
    }
    for waiter in waiters {
        waiter.join().expect("woken in time");
    }
}
