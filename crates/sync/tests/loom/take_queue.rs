//! A queue whose takers wait in a list (`take_queue.rs`): no item is left behind while a taker waits.
//!
//! Loom reports a taker that sleeps for ever as a deadlock. Without the notification in `leave`,
//! [`a_taker_that_leaves_passes_the_item_on`] finds one.

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::{Mutex, Spin, TakeQueue, WaitQueue};

use crate::check_bounded;

type Queue = Mutex<TakeQueue<u8>>;

fn push(queue: &Queue, item: u8) {
    let owed = queue.lock().push(item);
    if let Some(taker) = owed {
        taker.wake();
    }
}

fn take(queue: &Queue) -> u8 {
    let taker = Arc::new(WaitQueue::new());
    loop {
        let looked = queue.lock().take_or_wait(&taker);
        match looked {
            Ok(item) => return item,
            Err(ticket) => _ = taker.wait(ticket, None, Spin::OFF),
        }
    }
}

/// A taker that waits once at most, and takes an available item.
fn take_once(queue: &Queue) -> Option<u8> {
    let taker = Arc::new(WaitQueue::new());
    let looked = queue.lock().take_or_wait(&taker);
    match looked {
        Ok(item) => Some(item),
        Err(ticket) => {
            taker.wait(ticket, None, Spin::OFF);
            let owed = queue.lock().leave(&taker);
            if let Some(taker) = owed {
                taker.wake();
            }
            None
        }
    }
}

#[test]
fn two_takers_get_an_item_each() {
    check_bounded(|| {
        let queue = Arc::new(Mutex::new(TakeQueue::new()));
        let takers = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || take(&queue))
        });
        push(&queue, 1);
        push(&queue, 2);
        let sum: u8 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(sum, 3);
    });
}

#[test]
fn a_taker_that_leaves_passes_the_item_on() {
    check_bounded(|| {
        let queue = Arc::new(Mutex::new(TakeQueue::new()));
        let (taking, leaving) = (queue.clone(), queue.clone());
        let taking = thread::spawn(move || take(&taking));
        let leaving = thread::spawn(move || take_once(&leaving));
        push(&queue, 1);
        // Which of the two gets it is open; another item is for the other one, if the first was taken.
        push(&queue, 2);
        let (taken, left) = (taking.join().unwrap(), leaving.join().unwrap());
        assert_eq!(queue.lock().len(), usize::from(left.is_none()));
        assert_ne!(Some(taken), left);
    });
}
