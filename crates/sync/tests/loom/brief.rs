//! The mutex whose unlock is a store: one holder at a time, no sleeper forgotten.
//!
//! A forgotten sleeper is a deadlock, which the checker reports. No thread spins in a model, so a thread that does not get
//! the mutex at once goes to sleep, or yields until it is free if it is refused the fence. The model's `membarrier` is one fence of the sleeper; see
//! `facade/model.rs`.

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::BriefMutex;
use sockeye_sync::facade::refuse_heavy_fence;

use crate::{check, check_bounded};

fn add_one(mutex: &BriefMutex<usize>) {
    let mut value = mutex.lock();
    *value += 1;
}

#[test]
fn two_threads_that_lock_twice_exclude_each_other() {
    check_bounded(|| {
        let mutex = Arc::new(BriefMutex::new(0));
        let other = mutex.clone();
        let thread = thread::spawn(move || {
            add_one(&other);
            add_one(&other);
        });
        add_one(&mutex);
        add_one(&mutex);
        thread.join().unwrap();
        assert_eq!(*mutex.lock(), 4);
    });
}

#[test]
fn two_threads_that_lock_once_in_every_interleaving() {
    check(|| {
        let mutex = Arc::new(BriefMutex::new(0));
        let other = mutex.clone();
        let thread = thread::spawn(move || add_one(&other));
        add_one(&mutex);
        thread.join().unwrap();
        assert_eq!(*mutex.lock(), 2);
    });
}

#[test]
fn an_owner_wakes_two_sleepers_one_after_the_other() {
    check_bounded(|| {
        let mutex = Arc::new(BriefMutex::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let other = mutex.clone();
                thread::spawn(move || add_one(&other))
            })
            .collect();
        add_one(&mutex);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*mutex.lock(), 3);
    });
}

#[test]
fn a_thread_that_only_tries_wakes_the_waiters() {
    check(|| {
        let mutex = Arc::new(BriefMutex::new(0));
        let other = mutex.clone();
        let thread = thread::spawn(move || add_one(&other));
        if let Some(mut value) = mutex.try_lock() {
            *value += 10;
        }
        thread.join().unwrap();
        assert!([1, 11].contains(&*mutex.lock()));
    });
}

#[test]
fn three_threads_one_of_which_locks_twice() {
    check_bounded(|| {
        let mutex = Arc::new(BriefMutex::new(0));
        let (once, twice) = (mutex.clone(), mutex.clone());
        let once = thread::spawn(move || add_one(&once));
        let twice = thread::spawn(move || {
            add_one(&twice);
            add_one(&twice);
        });
        add_one(&mutex);
        once.join().unwrap();
        twice.join().unwrap();
        assert_eq!(*mutex.lock(), 4);
    });
}

/// The kernel's answer may change while the program runs, when a sandbox closes: then some threads poll while others sleep.
#[test]
fn an_owner_a_sleeper_and_a_thread_that_is_refused_the_fence() {
    check_bounded(|| {
        let mutex = Arc::new(BriefMutex::new(0));
        let (sleeps, polls) = (mutex.clone(), mutex.clone());
        let sleeper = thread::spawn(move || add_one(&sleeps));
        let poller = thread::spawn(move || {
            refuse_heavy_fence();
            add_one(&polls);
        });
        add_one(&mutex);
        sleeper.join().unwrap();
        poller.join().unwrap();
        assert_eq!(*mutex.lock(), 3);
    });
}

#[test]
fn two_threads_that_are_refused_the_fence() {
    check_bounded(|| {
        let mutex = Arc::new(BriefMutex::new(0));
        let other = mutex.clone();
        let thread = thread::spawn(move || {
            refuse_heavy_fence();
            add_one(&other);
        });
        refuse_heavy_fence();
        add_one(&mutex);
        thread.join().unwrap();
        assert_eq!(*mutex.lock(), 2);
    });
}
