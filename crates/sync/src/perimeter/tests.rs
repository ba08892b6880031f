//! What one thread can show of a perimeter, and what needs a second one but no interleaving.
//! The interleavings are in `tests/loom`.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::*;

fn free<T>(perimeter: &Perimeter<T>) -> Inside<'_, T> {
    perimeter.try_enter().expect("the perimeter is free")
}

/// Leaves a perimeter that is expected to have nothing queued.
fn leave<T>(inside: Inside<'_, T>) {
    if let Err(inside) = inside.leave() {
        let _on_paper = inside.hand_off();
        panic!("something was queued");
    }
}

fn fill<T>(perimeter: &Perimeter<T>, items: impl IntoIterator<Item = T>) {
    for item in items {
        assert_eq!(perimeter.fill(item), Filled::Queued);
    }
}

#[test]
fn is_small_enough_for_every_connection() {
    assert!(size_of::<Perimeter<Arc<()>>>() <= 24);
    assert!(size_of::<Inside<'_, Arc<()>>>() <= 16);
}

#[test]
fn names_are_unique_across_types_and_threads() {
    let here = (0..100).map(|_| Perimeter::<u8>::new().id());
    let there = std::thread::spawn(|| (0..100).map(|_| Perimeter::<u16>::new().id()).collect::<Vec<_>>());
    let mut ids: Vec<_> = here.collect();
    ids.extend(there.join().expect("no panic"));
    let different: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(different.len(), 200);
}

#[test]
fn one_is_inside_at_a_time() {
    let perimeter = Perimeter::<u8>::new();
    assert!(!perimeter.is_occupied());
    let inside = free(&perimeter);
    assert!(perimeter.is_occupied());
    assert!(perimeter.try_enter().is_none());
    assert!(perimeter.resume().is_none());
    assert_eq!(inside.id(), perimeter.id());
    leave(inside);
    assert!(!perimeter.is_occupied());
    leave(free(&perimeter));
}

#[test]
fn a_free_perimeter_gives_the_item_back_to_run() {
    let perimeter = Perimeter::new();
    let Entry::Inside(mut inside, item) = perimeter.enter(7) else {
        panic!("the perimeter is free");
    };
    assert_eq!(item, 7);
    assert_eq!(inside.pop(), None);
    leave(inside);
}

#[test]
fn an_occupied_one_keeps_items_in_order_and_is_not_left_with_any() {
    let perimeter = Perimeter::new();
    let mut inside = free(&perimeter);
    for item in 1..=3 {
        assert!(matches!(perimeter.enter(item), Entry::Queued));
    }
    inside = inside.leave().expect_err("three items are queued");
    assert_eq!(inside.peek(), Some(&1));
    assert_eq!(inside.take().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(inside.take().count(), 0);
    leave(inside);
}

#[test]
fn pop_goes_on_with_what_arrives_later() {
    let perimeter = Perimeter::new();
    let mut inside = free(&perimeter);
    fill(&perimeter, [1, 2]);
    assert_eq!(inside.pop(), Some(1));
    fill(&perimeter, [3]);
    inside = inside.leave().expect_err("two items are queued");
    assert_eq!(inside.pop(), Some(2));
    inside = inside.leave().expect_err("one item is queued");
    assert_eq!(inside.pop(), Some(3));
    assert_eq!(inside.pop(), None);
    leave(inside);
}

#[test]
fn the_rest_of_a_batch_goes_back_to_the_front() {
    let perimeter = Perimeter::new();
    let mut inside = free(&perimeter);
    fill(&perimeter, 1..=4);
    let mut batch = inside.take();
    assert_eq!(batch.next(), Some(1));
    fill(&perimeter, [5]);
    assert_eq!(inside.peek(), Some(&5));
    inside.put_back(batch);
    assert_eq!(inside.take().collect::<Vec<_>>(), [2, 3, 4, 5]);

    fill(&perimeter, [6]);
    let mut batch = inside.take();
    assert_eq!(batch.next(), Some(6));
    assert!(batch.is_empty());
    inside.put_back(batch);
    leave(inside);
}

#[test]
fn what_is_handed_off_is_resumed_once_with_all_that_was_queued() {
    let perimeter = Perimeter::new();
    let mut inside = free(&perimeter);
    fill(&perimeter, [1, 2]);
    assert_eq!(inside.pop(), Some(1));
    let HandedOff = inside.hand_off();
    assert!(perimeter.is_occupied());
    assert!(perimeter.try_enter().is_none());
    fill(&perimeter, [3]);

    let mut resumed = perimeter.resume().expect("it is on paper");
    assert!(perimeter.resume().is_none());
    assert_eq!(resumed.take().collect::<Vec<_>>(), [2, 3]);
    leave(resumed);
    assert!(perimeter.resume().is_none());
}

#[test]
fn filling_a_free_perimeter_asks_for_the_worker_once() {
    let perimeter = Perimeter::new();
    assert_eq!(perimeter.fill(1), Filled::WakeWorker);
    assert_eq!(perimeter.fill(2), Filled::Queued);
    assert!(matches!(perimeter.enter(3), Entry::Queued));
    let mut inside = perimeter.resume().expect("it is on paper");
    assert_eq!(inside.take().collect::<Vec<_>>(), [1, 2, 3]);
    leave(inside);
}

#[test]
fn dropping_a_perimeter_or_a_batch_drops_the_items() {
    let item = Arc::new(());
    let perimeter = Perimeter::new();
    let mut inside = free(&perimeter);
    fill(&perimeter, vec![item.clone(); 3]);
    assert!(inside.pop().is_some());
    drop(inside.take());
    fill(&perimeter, vec![item.clone(); 3]);
    assert!(inside.peek().is_some());
    fill(&perimeter, [item.clone()]);
    assert_eq!(Arc::strong_count(&item), 5);
    let HandedOff = inside.hand_off();
    drop(perimeter);
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn process_runs_its_own_item_then_what_came_meanwhile() {
    let perimeter = Perimeter::new();
    let ran = RefCell::new(Vec::new());
    let outcome = perimeter.run(1, Mode::Process, 8, |_inside, item| {
        if item == 1 {
            fill(&perimeter, [2, 3]);
        }
        ran.borrow_mut().push(item);
    });
    assert_eq!(outcome, Outcome::Left);
    assert_eq!(*ran.borrow(), [1, 2, 3]);
    assert!(!perimeter.is_occupied());
}

#[test]
fn process_hands_off_what_is_beyond_its_bound() {
    // Just enough, and one too many.
    for (bound, outcome) in [(2, Outcome::Left), (1, Outcome::HandOffNeeded)] {
        let perimeter = Perimeter::new();
        let mut ran_count = 0;
        let came_of = perimeter.run(1, Mode::Process, bound, |_inside, item| {
            if item == 1 {
                fill(&perimeter, [2, 3]);
            }
            ran_count += 1;
        });
        assert_eq!((came_of, ran_count), (outcome, bound + 1));
        let mut ran = Vec::new();
        if let Some(inside) = perimeter.resume() {
            let came_of = inside.drain(8, |_inside, item| ran.push(item));
            assert_eq!(came_of, Outcome::Left);
        }
        assert_eq!(ran.len(), 2 - bound);
        assert!(!perimeter.is_occupied());
    }
}

#[test]
fn no_drain_runs_nothing_of_others() {
    let perimeter = Perimeter::new();
    let mut ran = Vec::new();
    let outcome = perimeter.run(1, Mode::NoDrain, 8, |_inside, item| {
        fill(&perimeter, [2]);
        ran.push(item);
    });
    assert_eq!((outcome, &ran[..]), (Outcome::HandOffNeeded, &[1][..]));
    let inside = perimeter.resume().expect("it is on paper");
    assert_eq!(inside.drain(1, |_inside, item| ran.push(item)), Outcome::Left);
    assert_eq!(ran, [1, 2]);
    let outcome = perimeter.run(3, Mode::NoDrain, 0, |_inside, item| ran.push(item));
    assert_eq!((outcome, &ran[..]), (Outcome::Left, &[1, 2, 3][..]));
}

#[test]
fn fill_mode_runs_nothing() {
    let perimeter = Perimeter::new();
    let run = |item| perimeter.run(item, Mode::Fill, 8, |_inside, _item| panic!("not here"));
    assert_eq!(run(1), Outcome::HandOffNeeded);
    assert_eq!(run(2), Outcome::Queued);
    let inside = perimeter.resume().expect("it is on paper");
    assert_eq!(perimeter.run(3, Mode::Process, 8, |_, _| panic!("not here")), Outcome::Queued);
    assert_eq!(inside.drain(3, |_inside, _item| ()), Outcome::Left);
}

#[test]
fn a_panic_inside_poisons_and_strands_nobody() {
    let item = Arc::new(());
    let perimeter = Perimeter::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        perimeter.run(item.clone(), Mode::Process, 8, |inside, _item| {
            fill(&perimeter, vec![item.clone(); 2]);
            assert!(inside.peek().is_some());
            fill(&perimeter, vec![item.clone(); 2]);
            panic!("protocol code has a bug");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(Arc::strong_count(&item), 1);
    assert!(perimeter.is_poisoned());
    assert!(perimeter.try_enter().is_none());
    assert!(perimeter.resume().is_none());
    assert!(matches!(perimeter.enter(item.clone()), Entry::Poisoned(_)));
    assert_eq!(perimeter.fill(item.clone()), Filled::Poisoned);
    let outcome = perimeter.run(item.clone(), Mode::Process, 8, |_, _| panic!("not here"));
    assert_eq!(outcome, Outcome::Poisoned);
    assert_eq!(perimeter.enter_blocking().expect_err("poisoned"), Poisoned);
    assert_eq!(Arc::strong_count(&item), 1);
}

/// Waits until `count` threads are queued behind `inside`.
fn await_waiters<T>(inside: &mut Inside<'_, T>, count: usize) {
    while inside.waiters_count() < count {
        std::thread::yield_now();
    }
}

#[test]
fn a_sleeper_is_given_the_perimeter_after_the_items_that_came_before() {
    let perimeter = Perimeter::new();
    let mut inside = free(&perimeter);
    std::thread::scope(|scope| {
        fill(&perimeter, [1]);
        let sleeper = scope.spawn(|| {
            let mut inside = perimeter.enter_blocking().expect("not poisoned");
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
    assert!(!perimeter.is_occupied());
}

#[test]
fn handing_off_gives_a_sleeper_the_perimeter_and_the_queue() {
    let perimeter = Perimeter::new();
    let mut inside = free(&perimeter);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut inside = perimeter.enter_blocking().expect("not poisoned");
            let found = inside.take().collect::<Vec<_>>();
            leave(inside);
            found
        });
        await_waiters(&mut inside, 1);
        fill(&perimeter, [1, 2]);
        let HandedOff = inside.hand_off();
        assert_eq!(sleeper.join().expect("no panic"), [1, 2]);
    });
    assert!(perimeter.resume().is_none());
    assert!(!perimeter.is_occupied());
}

#[test]
fn several_sleepers_get_it_one_after_the_other() {
    let perimeter = Perimeter::<u8>::new();
    let entries_count = RefCell::new(0);
    let cell = crate::PerimeterCell::new(perimeter.id(), 0);
    let mut inside = free(&perimeter);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut inside = perimeter.enter_blocking().expect("not poisoned");
                *cell.get(&mut inside) += 1;
                leave(inside);
            });
        }
        await_waiters(&mut inside, 4);
        *entries_count.borrow_mut() = *cell.get(&mut inside);
        leave(inside);
    });
    assert_eq!((entries_count.into_inner(), cell.into_inner()), (0, 4));
    assert!(!perimeter.is_occupied());
}

#[test]
fn sleepers_are_told_of_a_panic() {
    let perimeter = Perimeter::<u8>::new();
    let mut inside = free(&perimeter);
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = (0..2).map(|_| scope.spawn(|| perimeter.enter_blocking().is_err())).collect();
        await_waiters(&mut inside, 2);
        drop(inside);
        for sleeper in sleepers {
            assert!(sleeper.join().expect("no panic"));
        }
    });
    assert!(perimeter.is_poisoned());
}

#[test]
fn a_claim_is_being_inside_for_everybody_else() {
    let perimeter = Perimeter::new();
    let claim = perimeter.claim().expect("the perimeter is free");
    assert!(perimeter.is_occupied());
    assert!(perimeter.claim().is_none() && perimeter.try_enter().is_none() && perimeter.resume().is_none());
    fill(&perimeter, [1, 2]);
    let mut inside = perimeter.redeem(claim);
    assert!(inside.take().eq([1, 2]));
    leave(inside);
    assert!(!perimeter.is_occupied());
}

#[test]
fn a_claim_is_redeemed_where_it_was_made() {
    let (perimeter, other) = (Perimeter::<u8>::new(), Perimeter::<u8>::new());
    let claim = perimeter.claim().expect("the perimeter is free");
    let redeemed = catch_unwind(AssertUnwindSafe(|| drop(other.redeem(claim))));
    assert!(redeemed.is_err());
    assert!(!other.is_occupied(), "nothing happened to the other one");
}

#[test]
fn a_host_is_left_what_comes_and_runs_it() {
    let perimeter = Perimeter::new();
    assert_eq!((perimeter.fill_hosted(1), perimeter.hosted_on()), (Err(1), None), "nobody waits");
    assert!(perimeter.host(7));
    assert!(!perimeter.host(8), "one at a time");
    assert_eq!((perimeter.hosted_on(), perimeter.is_occupied()), (Some(7), false));
    assert_eq!(perimeter.fill_hosted(1), Ok(()));
    assert_eq!(perimeter.fill_hosted(2), Err(2), "it is the host's now");
    assert_eq!(perimeter.fill(2), Filled::Queued);
    assert!(!perimeter.unhost());
    let mut inside = perimeter.resume().unwrap();
    assert_eq!(inside.take().collect::<Vec<_>>(), [1, 2]);
    inside.leave().unwrap();
    assert!(perimeter.resume().is_none() && !perimeter.unhost());
}

#[test]
fn a_hosted_perimeter_is_free_for_everybody_else() {
    let perimeter = Perimeter::new();
    let enter: [fn(&Perimeter<u32>) -> bool; 4] = [
        |perimeter| perimeter.try_enter().is_some_and(|inside| inside.leave().is_ok()),
        |perimeter| perimeter.claim().is_some_and(|claim| perimeter.redeem(claim).leave().is_ok()),
        |perimeter| perimeter.enter_blocking().is_ok_and(|inside| inside.leave().is_ok()),
        |perimeter| {
            let is_mine = perimeter.fill(3) == Filled::WakeWorker;
            let mut inside = perimeter.resume().unwrap();
            is_mine && inside.take().eq([3]) && inside.leave().is_ok()
        },
    ];
    for enter in enter {
        assert!(perimeter.host(u32::MAX));
        assert!(enter(&perimeter));
        assert!(!perimeter.unhost() && perimeter.resume().is_none(), "the mark went, and nothing was left");
    }
    assert!(perimeter.host(0));
    assert!(perimeter.unhost());
    assert!(!perimeter.is_occupied());
    // Dropped with the mark: the CPU in it is no list.
    assert!(perimeter.host(5));
}
