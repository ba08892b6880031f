//! Properties of a squeue that one thread can show, and those that need a second one but no interleaving.
//! The interleavings are in `tests/loom`.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::*;

fn free<T>(squeue: &Squeue<T>) -> Inside<'_, T> {
    squeue.try_enter().expect("the squeue is free")
}

/// Leaves a squeue that is expected to have nothing queued.
fn leave<T>(inside: Inside<'_, T>) {
    if let Err(inside) = inside.leave() {
        let _scheduled = inside.hand_off();
        panic!("something was queued");
    }
}

fn fill<T>(squeue: &Squeue<T>, items: impl IntoIterator<Item = T>) {
    for item in items {
        assert_eq!(squeue.fill(item), Filled::Queued);
    }
}

#[test]
fn is_small_enough_for_every_connection() {
    assert!(size_of::<Squeue<Arc<()>>>() <= 24);
    assert!(size_of::<Inside<'_, Arc<()>>>() <= 16);
}

#[test]
fn names_are_unique_across_types_and_threads() {
    let here = (0..100).map(|_| Squeue::<u8>::new().id());
    let there = std::thread::spawn(|| (0..100).map(|_| Squeue::<u16>::new().id()).collect::<Vec<_>>());
    let mut ids: Vec<_> = here.collect();
    ids.extend(there.join().expect("no panic"));
    let different: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(different.len(), 200);
}

#[test]
fn one_thread_is_inside_at_a_time() {
    let squeue = Squeue::<u8>::new();
    assert!(!squeue.is_occupied());
    let inside = free(&squeue);
    assert!(squeue.is_occupied());
    assert!(squeue.try_enter().is_none());
    assert!(squeue.resume().is_none());
    assert_eq!(inside.id(), squeue.id());
    leave(inside);
    assert!(!squeue.is_occupied());
    leave(free(&squeue));
}

#[test]
fn a_free_squeue_gives_the_item_back_to_run() {
    let squeue = Squeue::new();
    let Entry::Inside(mut inside, item) = squeue.enter(7) else {
        panic!("the squeue is free");
    };
    assert_eq!(item, 7);
    assert_eq!(inside.pop(), None);
    leave(inside);
}

#[test]
fn an_occupied_squeue_keeps_items_in_order_and_is_not_left_with_any() {
    let squeue = Squeue::new();
    let mut inside = free(&squeue);
    for item in 1..=3 {
        assert!(matches!(squeue.enter(item), Entry::Queued));
    }
    inside = inside.leave().expect_err("three items are queued");
    assert_eq!(inside.peek(), Some(&1));
    assert_eq!(inside.take().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(inside.take().count(), 0);
    leave(inside);
}

#[test]
fn pop_continues_with_items_that_arrive_later() {
    let squeue = Squeue::new();
    let mut inside = free(&squeue);
    fill(&squeue, [1, 2]);
    assert_eq!(inside.pop(), Some(1));
    fill(&squeue, [3]);
    inside = inside.leave().expect_err("two items are queued");
    assert_eq!(inside.pop(), Some(2));
    inside = inside.leave().expect_err("one item is queued");
    assert_eq!(inside.pop(), Some(3));
    assert_eq!(inside.pop(), None);
    leave(inside);
}

#[test]
fn a_handed_off_squeue_is_resumed_once_with_all_queued_items() {
    let squeue = Squeue::new();
    let mut inside = free(&squeue);
    fill(&squeue, [1, 2]);
    assert_eq!(inside.pop(), Some(1));
    let HandedOff = inside.hand_off();
    assert!(squeue.is_occupied());
    assert!(squeue.try_enter().is_none());
    fill(&squeue, [3]);

    let mut resumed = squeue.resume().expect("it is scheduled");
    assert!(squeue.resume().is_none());
    assert_eq!(resumed.take().collect::<Vec<_>>(), [2, 3]);
    leave(resumed);
    assert!(squeue.resume().is_none());
}

#[test]
fn filling_a_free_squeue_asks_for_the_worker_once() {
    let squeue = Squeue::new();
    assert_eq!(squeue.fill(1), Filled::WakeWorker);
    assert_eq!(squeue.fill(2), Filled::Queued);
    assert!(matches!(squeue.enter(3), Entry::Queued));
    let mut inside = squeue.resume().expect("it is scheduled");
    assert_eq!(inside.take().collect::<Vec<_>>(), [1, 2, 3]);
    leave(inside);
}

#[test]
fn dropping_a_squeue_or_a_batch_drops_the_items() {
    let item = Arc::new(());
    let squeue = Squeue::new();
    let mut inside = free(&squeue);
    fill(&squeue, vec![item.clone(); 3]);
    assert!(inside.pop().is_some());
    drop(inside.take());
    fill(&squeue, vec![item.clone(); 3]);
    assert!(inside.peek().is_some());
    fill(&squeue, [item.clone()]);
    assert_eq!(Arc::strong_count(&item), 5);
    let HandedOff = inside.hand_off();
    drop(squeue);
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn draining_runs_items_queued_before_and_during_it() {
    let squeue = Squeue::new();
    let ran = RefCell::new(Vec::new());
    let inside = free(&squeue);
    fill(&squeue, [1]);
    let outcome = inside.drain(8, |_inside, item| {
        if item == 1 {
            fill(&squeue, [2, 3]);
        }
        ran.borrow_mut().push(item);
    });
    assert_eq!(outcome, Outcome::Left);
    assert_eq!(*ran.borrow(), [1, 2, 3]);
    assert!(!squeue.is_occupied());
}

#[test]
fn draining_hands_off_items_beyond_its_bound() {
    // Nothing, just enough, and one too few.
    for (bound, outcome) in [(0, Outcome::HandOffNeeded), (2, Outcome::Left), (1, Outcome::HandOffNeeded)] {
        let squeue = Squeue::new();
        let inside = free(&squeue);
        fill(&squeue, [2, 3]);
        let mut ran = Vec::new();
        assert_eq!(inside.drain(bound, |_inside, item| ran.push(item)), outcome);
        assert_eq!(ran.len(), bound);
        if let Some(inside) = squeue.resume() {
            assert_eq!(inside.drain(8, |_inside, item| ran.push(item)), Outcome::Left);
        }
        assert_eq!(ran, [2, 3]);
        assert!(!squeue.is_occupied());
    }
}

#[test]
fn a_panic_inside_poisons_the_squeue_and_strands_no_thread() {
    let item = Arc::new(());
    let squeue = Squeue::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let inside = free(&squeue);
        fill(&squeue, [item.clone()]);
        inside.drain(8, |inside, _item| {
            fill(&squeue, vec![item.clone(); 2]);
            assert!(inside.peek().is_some());
            fill(&squeue, vec![item.clone(); 2]);
            panic!("protocol code has a bug");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(Arc::strong_count(&item), 1);
    assert!(squeue.is_poisoned());
    assert!(squeue.try_enter().is_none());
    assert!(squeue.resume().is_none());
    assert!(matches!(squeue.enter(item.clone()), Entry::Poisoned(_)));
    assert_eq!(squeue.fill(item.clone()), Filled::Poisoned);
    assert_eq!(squeue.enter_blocking().expect_err("poisoned"), Poisoned);
    assert_eq!(Arc::strong_count(&item), 1);
}

/// Waits until `count` threads are queued behind `inside`.
fn await_waiters<T>(inside: &mut Inside<'_, T>, count: usize) {
    while inside.waiters_count() < count {
        std::thread::yield_now();
    }
}

#[test]
fn a_sleeper_is_granted_the_squeue_after_the_earlier_items() {
    let squeue = Squeue::new();
    let mut inside = free(&squeue);
    std::thread::scope(|scope| {
        fill(&squeue, [1]);
        let sleeper = scope.spawn(|| {
            let mut inside = squeue.enter_blocking().expect("not poisoned");
            let found = inside.take().collect::<Vec<_>>();
            leave(inside);
            found
        });
        await_waiters(&mut inside, 1);
        inside = inside.leave().expect_err("items go first");
        assert_eq!(inside.pop(), Some(1));
        // The way out is the grant: nothing was queued, so it succeeds.
        leave(inside);
        assert_eq!(sleeper.join().expect("no panic"), []);
    });
    assert!(!squeue.is_occupied());
}

#[test]
fn handing_off_grants_a_sleeper_the_squeue_with_its_queue() {
    let squeue = Squeue::new();
    let mut inside = free(&squeue);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut inside = squeue.enter_blocking().expect("not poisoned");
            let found = inside.take().collect::<Vec<_>>();
            leave(inside);
            found
        });
        await_waiters(&mut inside, 1);
        fill(&squeue, [1, 2]);
        let HandedOff = inside.hand_off();
        assert_eq!(sleeper.join().expect("no panic"), [1, 2]);
    });
    assert!(squeue.resume().is_none());
    assert!(!squeue.is_occupied());
}

#[test]
fn several_sleepers_are_granted_the_squeue_one_after_the_other() {
    let squeue = Squeue::<u8>::new();
    let entered = std::sync::Mutex::new(0);
    let mut inside = free(&squeue);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let inside = squeue.enter_blocking().expect("not poisoned");
                *entered.try_lock().expect("one is inside at a time") += 1;
                leave(inside);
            });
        }
        await_waiters(&mut inside, 4);
        assert_eq!(*entered.lock().unwrap(), 0);
        leave(inside);
    });
    assert_eq!(entered.into_inner().unwrap(), 4);
    assert!(!squeue.is_occupied());
}

#[test]
fn sleepers_are_notified_of_a_panic() {
    let squeue = Squeue::<u8>::new();
    let mut inside = free(&squeue);
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = (0..2).map(|_| scope.spawn(|| squeue.enter_blocking().is_err())).collect();
        await_waiters(&mut inside, 2);
        drop(inside);
        for sleeper in sleepers {
            assert!(sleeper.join().expect("no panic"));
        }
    });
    assert!(squeue.is_poisoned());
}
