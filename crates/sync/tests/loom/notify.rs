//! Claim against re-arm: freed space is never left unseen.
//!
//! The second model is the counter-example: it shows that the first one would notice, because with
//! a post that looks before it writes the very same model fails.

use std::sync::atomic::{AtomicBool as PlainBool, Ordering as PlainOrdering};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::thread;
use sockeye_sync::{Notify, Post};

use crate::{check, check_bounded};

const RCVD: u32 = 1;

/// The user frees space and posts; the owner, whose item is queued already, takes and checks. Returns
/// whether a thread has seen the space or is about to.
fn freed_space_is_seen(post: impl Fn(&Notify) -> Post + Copy + Send + 'static) -> bool {
    let notify = Arc::new(Notify::new());
    let space = Arc::new(AtomicUsize::new(0));
    assert_eq!(notify.post(RCVD), Post::Fire);
    let user = {
        let (notify, space) = (notify.clone(), space.clone());
        thread::spawn(move || {
            // U1, without a lock: only the post provides the ordering.
            space.store(1, Ordering::Relaxed);
            // U2
            post(&notify)
        })
    };
    // O1, O2
    notify.take();
    let seen = space.load(Ordering::Relaxed);
    let posted = user.join().unwrap();
    // A post that fired queues the item again, so the owner will look again.
    seen == 1 || posted == Post::Fire
}

#[test]
fn freed_space_is_always_noticed() {
    check(|| assert!(freed_space_is_seen(|notify| notify.post(RCVD))));
}

#[test]
fn a_post_that_only_loads_first_would_lose_an_update() {
    let lost = std::sync::Arc::new(PlainBool::new(false));
    let found = lost.clone();
    check(move || {
        let seen = freed_space_is_seen(
            |notify| {
                if notify.is_queued() { Post::Coalesced } else { notify.post(RCVD) }
            },
        );
        if !seen {
            found.store(true, PlainOrdering::Relaxed);
        }
    });
    assert!(lost.load(PlainOrdering::Relaxed), "the model would not notice a lost wake-up");
}

#[test]
fn two_posters_fire_once_and_no_bit_is_lost() {
    check_bounded(|| {
        let notify = Arc::new(Notify::new());
        let queued = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = [1, 2]
            .map(|bit| {
                let (notify, queued) = (notify.clone(), queued.clone());
                thread::spawn(move || {
                    if notify.post(bit) == Post::Fire {
                        queued.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .into();
        // The owner runs the items in its queue.
        let mut taken = 0;
        let mut runs_count = 0;
        if queued.load(Ordering::Relaxed) > 0 {
            taken |= notify.take();
            runs_count += 1;
        }
        for thread in threads {
            thread.join().unwrap();
        }
        while runs_count < queued.load(Ordering::Relaxed) {
            taken |= notify.take();
            runs_count += 1;
        }
        assert_eq!(taken, 3);
        assert!(!notify.is_queued());
    });
}

#[test]
fn the_thread_that_fires_sees_the_owners_changes_before_its_take() {
    check(|| {
        let notify = Arc::new(Notify::new());
        let done = Arc::new(AtomicUsize::new(0));
        assert_eq!(notify.post(RCVD), Post::Fire);
        let user = {
            let (notify, done) = (notify.clone(), done.clone());
            thread::spawn(move || {
                let posted = notify.post(RCVD);
                assert!(posted != Post::Fire || done.load(Ordering::Relaxed) == 1);
            })
        };
        done.store(1, Ordering::Relaxed);
        notify.take();
        user.join().unwrap();
    });
}

#[test]
fn a_post_against_kill_queues_only_items_that_the_owner_drops() {
    check(|| {
        let notify = Arc::new(Notify::new());
        let gone = Arc::new(AtomicUsize::new(0));
        let user = {
            let (notify, gone) = (notify.clone(), gone.clone());
            thread::spawn(move || {
                let posted = notify.post(RCVD);
                // A thread that finds it dead sees the reason.
                assert!(posted != Post::Dead || gone.load(Ordering::Relaxed) == 1);
                posted
            })
        };
        gone.store(1, Ordering::Relaxed);
        assert!(notify.kill());
        let posted = user.join().unwrap();
        assert_ne!(posted, Post::Coalesced);
        // Popped later, the item is found to be dead.
        notify.take();
        assert!(notify.is_dead());
    });
}
