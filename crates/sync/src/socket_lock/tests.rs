//! Properties of a socket lock that one thread can show, and those that need a second one but no interleaving. The
//! interleavings are in `tests/loom`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::*;

/// A lock around the list of items that were run, and items.
type Lock = SocketLock<Vec<u32>, u32>;

fn lock() -> Lock {
    Lock::new(Vec::new())
}

/// Runs the waiting items, and unlocks.
fn drain(mut locked: Locked<'_, Vec<u32>, u32>) {
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

fn ran(lock: &Lock) -> Vec<u32> {
    lock.lock().clone()
}

#[test]
fn one_thread_holds_the_lock_at_a_time() {
    let lock = lock();
    let section = lock.lock();
    assert!(lock.try_lock().is_none() && lock.try_enter().is_none());
    assert!(lock.try_lock().is_none(), "an attempt in vain has unlocked it");
    drop(section);
    let locked = lock.enter();
    assert!(lock.try_lock().is_none() && lock.try_enter().is_none());
    assert!(lock.look().is_none() && lock.take_over().is_none());
    assert!(locked.run().is_ok());
    drain(lock.try_enter().unwrap());
    assert!(lock.try_lock().is_some());
    assert!(lock.try_lock().is_some(), "a section ends when it is dropped");
}

#[test]
fn a_free_lock_gives_the_item_back_to_run() {
    let lock = lock();
    let Turn::Mine(mut locked, Some(7)) = lock.try_run(7) else { panic!("it was free") };
    locked.push(8);
    drain(locked);
    assert_eq!(ran(&lock), [8]);
}

#[test]
fn items_left_with_a_holder_are_run_before_it_unlocks() {
    let lock = lock();
    let locked = lock.try_enter().unwrap();
    assert!(!locked.has_backlog());
    assert!(matches!(lock.try_run(1), Turn::Left(Left::First)));
    assert!(matches!(lock.try_run(2), Turn::Left(Left::Behind)));
    assert_eq!(lock.leave(3), Left::Behind);
    assert!(locked.has_backlog());
    drain(locked);
    assert_eq!(ran(&lock), [1, 2, 3]);
    assert!(lock.look().is_none_or(|locked| locked.run().is_ok()), "nothing is left to look for");
}

#[test]
fn items_left_during_a_section_are_run_by_the_next_runner_or_the_debtor() {
    let lock = lock();
    let section = lock.lock();
    assert!(matches!(lock.try_run(1), Turn::Left(Left::First)));
    drop(section);
    drain(lock.enter());
    let section = lock.lock();
    assert!(matches!(lock.try_run(2), Turn::Left(Left::First)));
    drop(section);
    drain(lock.look().unwrap());
    assert_eq!(ran(&lock), [1, 2]);
}

#[test]
fn a_threads_own_item_is_queued_behind_waiting_items() {
    let lock = lock();
    assert_eq!(lock.leave(1), Left::First);
    let Turn::Mine(locked, None) = lock.try_run(2) else { panic!("there was one before") };
    drain(locked);
    assert_eq!(ran(&lock), [1, 2]);
}

#[test]
fn a_debtor_runs_items_left_on_a_free_lock() {
    let lock = lock();
    assert_eq!(lock.leave(1), Left::First);
    assert_eq!(lock.leave(2), Left::Behind);
    drain(lock.look().unwrap());
    assert_eq!(ran(&lock), [1, 2]);
}

#[test]
fn items_that_a_runner_leaves_are_taken_over() {
    let lock = lock();
    let locked = lock.try_enter().unwrap();
    (1..=3).for_each(|item| _ = lock.leave(item));
    assert_eq!(locked.leave(), Some(HandedOff));
    let mut locked = lock.take_over().unwrap();
    assert_eq!(locked.pop(), Some(1));
    // Items that were taken and not run wait, too.
    assert!(locked.has_backlog());
    assert_eq!(locked.leave(), Some(HandedOff));
    assert_eq!(lock.leave(4), Left::First);
    drain(lock.take_over().unwrap());
    assert_eq!(ran(&lock), [2, 3, 4]);
    assert_eq!(lock.try_enter().unwrap().leave(), None);
}

#[test]
fn items_that_were_never_run_are_dropped_with_the_lock() {
    let item = Arc::new(());
    let lock = SocketLock::<(), _>::new(());
    (0..3).for_each(|_| _ = lock.leave(item.clone()));
    let mut locked = lock.try_enter().unwrap();
    assert!(locked.pop().is_some());
    assert_eq!(locked.leave(), Some(HandedOff));
    assert_eq!(lock.leave(item.clone()), Left::First);
    assert_eq!(Arc::strong_count(&item), 4);
    drop(lock);
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn a_panic_kills_the_lock_and_drops_its_backlog() {
    let (lock, item) = (SocketLock::<u8, Arc<()>>::new(1), Arc::new(()));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut locked = lock.try_enter().unwrap();
        (0..3).for_each(|_| _ = lock.leave(item.clone()));
        drop(locked.pop());
        panic!("on purpose");
    }));
    assert!(panicked.is_err() && lock.is_dead());
    assert_eq!(Arc::strong_count(&item), 1);
    assert!(lock.try_enter().is_none() && lock.look().is_none() && lock.take_over().is_none());
    assert!(matches!(lock.leave(item.clone()), Left::Dead(_)));
    assert!(matches!(lock.try_run(item), Turn::Left(Left::Dead(_))));
    // A thread that returns an object of the value still reaches it.
    assert_eq!(*lock.lock(), 1);
    let locked = lock.enter();
    assert!(*locked == 1 && !locked.has_backlog());
    assert!(locked.run().is_ok() && lock.is_dead());
    // A runner of a dead lock ends it once more.
    drop(lock.enter());
    assert!(lock.is_dead() && matches!(lock.leave(Arc::new(())), Left::Dead(_)));
    assert!(lock.try_lock().is_some());
}

#[test]
fn a_panic_kills_no_other_lock_and_no_section() {
    let (own, other) = (lock(), lock());
    let held = other.try_enter().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _own = own.try_enter().unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err() && own.is_dead());
    drain(held);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _section = other.lock();
        panic!("on purpose");
    }));
    assert!(panicked.is_err() && !other.is_dead());
    drain(other.try_enter().unwrap());
}

/// Each holder sleeps, so that the others run out of spins and yields. Every other one is a runner, and one is a debtor.
#[test]
fn sleepers_are_woken_one_after_the_other() {
    let lock = Arc::new(SocketLock::<u32, u32>::new(0));
    let section = lock.lock();
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let lock = lock.clone();
            thread::spawn(move || {
                if number % 2 == 0 {
                    let mut locked = lock.enter();
                    thread::sleep(Duration::from_millis(2));
                    *locked += 1 + locked.pop().unwrap_or_default();
                    while let Err(mut more) = locked.run() {
                        *more += more.pop().unwrap_or_default();
                        locked = more;
                    }
                } else {
                    let mut section = lock.lock();
                    thread::sleep(Duration::from_millis(2));
                    *section += 1;
                }
            })
        })
        .collect();
    let debtor = {
        let lock = lock.clone();
        thread::spawn(move || {
            assert_eq!(lock.leave(10), Left::First);
            if let Some(mut locked) = lock.look() {
                *locked += locked.pop().unwrap_or_default();
                assert!(locked.run().is_ok());
            }
        })
    };
    while lock.parked.load(Ordering::Relaxed) == NO_SLEEPER {
        thread::yield_now();
    }
    drop(section);
    threads.into_iter().chain([debtor]).for_each(|thread| thread.join().unwrap());
    assert_eq!(*lock.lock(), 14);
}

/// The runner yields until the sleeper has held the lock.
#[test]
fn a_holder_that_yields_admits_a_sleeper() {
    let lock = Arc::new(SocketLock::<u32, ()>::new(0));
    let mut locked = lock.try_enter().unwrap();
    let other = lock.clone();
    let thread = thread::spawn(move || *other.lock() += 1);
    while *locked == 0 {
        locked = locked.give_way().unwrap();
    }
    assert!(locked.run().is_ok());
    thread.join().unwrap();
}

/// Four threads bring items to one lock, which a fifth one reads: each is run once, each thread's in its order.
#[test]
fn items_of_many_threads_run_once_under_the_lock() {
    let lock = Arc::new(SocketLock::<Vec<(usize, usize)>, (usize, usize)>::new(Vec::new()));
    let count = if cfg!(miri) { 20 } else { 5_000 };
    let threads: Vec<_> = (0..4)
        .map(|own| {
            let lock = lock.clone();
            thread::spawn(move || {
                for number in 0..count {
                    let mut locked = match lock.try_run((own, number)) {
                        Turn::Mine(mut locked, item) => {
                            locked.extend(item);
                            locked
                        }
                        Turn::Left(Left::First) => match lock.look() {
                            Some(locked) => locked,
                            None => continue,
                        },
                        Turn::Left(Left::Behind) => continue,
                        Turn::Left(Left::Dead(_)) => panic!("no thread panicked"),
                    };
                    while let Err(mut more) = locked.run() {
                        let (ran, mut backlog) = more.parts();
                        while let Some(item) = backlog.pop() {
                            ran.push(item);
                        }
                        locked = more.give_way().unwrap();
                    }
                }
            })
        })
        .collect();
    while lock.lock().len() < count {
        thread::yield_now();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let locked = lock.try_enter().unwrap();
    assert!(!locked.has_backlog(), "an item was left behind");
    assert_eq!(locked.len(), 4 * count);
    for own in 0..4 {
        let numbers = locked.iter().filter(|item| item.0 == own).map(|item| item.1);
        assert!(numbers.eq(0..count));
    }
    assert!(locked.run().is_ok());
}

#[test]
fn items_count_until_a_runner_takes_them() {
    let lock: SocketLock<(), u32> = SocketLock::new(());
    let section = lock.lock();
    assert_eq!((0..5).map(|item| lock.leave(item)).filter(|left| *left == Left::First).count(), 1);
    drop(section);
    assert_eq!(lock.backlog_len(), 5);
    let mut locked = lock.look().unwrap();
    assert_eq!(
        (lock.backlog_len(), locked.pop(), lock.backlog_len()),
        (5, Some(0), 0),
        "all are taken at once"
    );
    locked.push(5);
    assert_eq!(lock.backlog_len(), 1);
    assert_eq!(std::iter::from_fn(|| locked.pop()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(lock.backlog_len(), 0);
    assert!(locked.run().is_ok());
}

#[test]
fn a_socket_lock_adds_24_bytes() {
    assert_eq!(size_of::<SocketLock<u64, Arc<()>>>(), 32);
    assert_eq!(size_of::<Locked<'_, u64, Arc<()>>>(), 8);
}
