//! A task is a thread here, which parks until its waker is called.

use std::task::{Wake, Waker};

use loom::sync::{Arc, Condvar, Mutex as LoomMutex};

/// Parks and wakes a task.
pub struct Parker {
    is_woken: LoomMutex<bool>,
    changed: Condvar,
}

/// Wakers are `std`'s, so they count references of their own.
struct ParkerWaker(Arc<Parker>);

impl Wake for ParkerWaker {
    fn wake(self: std::sync::Arc<Self>) {
        *self.0.is_woken.lock().unwrap() = true;
        self.0.changed.notify_one();
    }
}

impl Parker {
    pub fn new() -> (Arc<Self>, Waker) {
        let parker = Arc::new(Self { is_woken: LoomMutex::new(false), changed: Condvar::new() });
        let waker = Waker::from(std::sync::Arc::new(ParkerWaker(parker.clone())));
        (parker, waker)
    }

    pub fn sleep(&self) {
        let mut is_woken = self.is_woken.lock().unwrap();
        while !*is_woken {
            is_woken = self.changed.wait(is_woken).unwrap();
        }
        *is_woken = false;
    }
}
