//! Foreign code that panics, blocks, calls back or ends its stack, and does not disturb any other code.
//!
//! Wakers, hooks and interfaces are the application's. These tests use only public calls, and observe panics through the
//! hook of the stack and its counters.

#[path = "../common/lab.rs"]
mod lab;

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "experiments")]
mod ends;
mod hooks;
mod netifs;
mod wakers;
#[cfg(feature = "experiments")]
mod workers;

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use sockeye::{PanicReport, PanicSource, Stack};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// The reports of a stack, oldest first.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<(PanicSource, &'static str)>>>);

impl Reports {
    fn of(stack: &Stack) -> Self {
        let reports = Self::default();
        let noted = reports.clone();
        stack.set_panic_hook(Some(move |report: &PanicReport| {
            noted.0.lock().unwrap().push((report.source, report.place));
        }));
        reports
    }

    fn all(&self) -> Vec<(PanicSource, &'static str)> {
        self.0.lock().unwrap().clone()
    }
}

/// Runs `f` on a thread of its own. Panics if that takes too long; the thread is then left to itself.
fn in_time<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, over) = mpsc::channel();
    std::thread::spawn(move || done.send(f()));
    over.recv_timeout(LONG).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Calls a closure when it is woken.
struct Calls<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Calls(f)))
}

/// Panics when it is dropped.
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("a value of the application's panics in its drop");
    }
}
