//! A waiter at a socket is notified of every event that ends its wait, for every kind of waiter, and whatever the others do:
//! tasks that are cancelled, wakers that panic or use the socket when they are dropped, pollers that are dropped.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod connects;
mod errors;
#[allow(dead_code, reason = "the tests of the Internet layer use the rest of it")]
#[path = "../ip/host.rs"]
mod host;
#[path = "../common/lab.rs"]
mod lab;
mod lingers;
mod matrix;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../common/peer.rs"]
mod peer;
mod polls;
mod subjects;
mod tasks;
mod wakers;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// The time within which an expected event must have happened. Only a failing test waits so long.
const LONG: Duration = Duration::from_secs(60);

/// A waker that counts how often it was woken.
#[derive(Default)]
struct Count {
    woken: Mutex<usize>,
    changed: Condvar,
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

impl Count {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (count.clone(), Waker::from(count))
    }

    fn get(&self) -> usize {
        *self.woken.lock().unwrap()
    }

    /// Whether it has been woken, in the end.
    fn is_woken(&self) -> bool {
        let woken = self.woken.lock().unwrap();
        let waited = self.changed.wait_timeout_while(woken, LONG, |woken| *woken == 0);
        *waited.unwrap().0 > 0
    }
}

/// Polls a future once.
fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Runs `test` on a thread of its own: a deadlock fails it instead of hanging the binary.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match is_done.recv_timeout(LONG) {
        Ok(()) => thread.join().unwrap(),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("no end after {LONG:?}: a deadlock"),
    }
}
