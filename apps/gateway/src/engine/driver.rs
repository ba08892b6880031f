//! The task that drives the stack.
//!
//! The stack has no threads: [`sockeye::Stack::poll`] reads the device, runs the protocol and due timers, and wakes tasks. It is called when the device has
//! packets, when a call of a task has left work (the stack's wake), and at the time that it named. Two orders make this right: the device's readiness is
//! cleared *before* `poll` reads it, so a packet that comes meanwhile is noticed; and the wake stores a permit, so that one between `poll`
//! and the wait is not lost.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::port::Port;
use super::{Cx, task};

/// For a stack that has nothing to do at any time.
const LONG: Duration = Duration::from_secs(3600);

/// Starts the task.
pub fn start(cx: &Rc<Cx>, mut port: Port) {
    let start = Instant::now();
    let wanted = Arc::new(Notify::new());
    let bell = Arc::clone(&wanted);
    cx.stack.set_driver_wake(Some(move || bell.notify_one()));
    let cx = Rc::clone(cx);
    task(async move {
        let timer = sleep_until(start);
        tokio::pin!(timer);
        loop {
            let next = cx.stack.poll(start.elapsed());
            if port.is_down() {
                return cx.shared.device_gone.notify_one();
            }
            let at = start + next.unwrap_or_else(|| start.elapsed() + LONG);
            if at <= Instant::now() {
                // There is more to do; the tasks that `poll` has woken come first.
                yield_now().await;
                continue;
            }
            timer.as_mut().reset(at);
            tokio::select! {
                biased;
                () = wanted.notified() => {}
                ready = port.ready(&cx.shared) => if ready.is_err() {
                    // The runtime ends.
                    return;
                },
                () = &mut timer => {}
            }
        }
    });
}
