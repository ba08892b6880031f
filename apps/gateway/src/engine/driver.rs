//! The future that drives the stack.
//!
//! It is the runtime's main future and not a task: tokio polls it before each round of tasks, and a round runs at most 61 of them. So the loop reads the device and answers packets even
//! while thousands of tasks are runnable, as when thousands of connections end at once. Otherwise the device's queue (8,192 packets) would overflow, and clients would repeat
//! their SYNs only after a second.
//!
//! The stack has no threads: [`sockeye::Stack::poll`] reads the device, runs the protocol and due timers, and wakes tasks. The driver calls it when the device has
//! packets, when a task's call has left work (the stack's wake), and when the stack's next timer is due. No wake-up is lost: the driver clears the device's readiness
//! *before* `poll` reads the device, so a packet that arrives meanwhile sets it again; and the stack's wake rings a bell, which stays rung, so a wake between `poll`
//! and the wait ends the wait.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::Cx;
use super::looks::Looks;
use super::port::Port;

/// How much later than it is due a timer of the stack may run, as in a kernel whose clock ticks 250 times a second. Connections that come and go leave timers for every
/// millisecond, and each waking costs as much as a packet.
const SLACK: Duration = Duration::from_millis(4);
/// For a stack that has nothing to do at any time.
pub const LONG: Duration = Duration::from_secs(3600);

/// Drives the stack until the device goes.
pub async fn run(cx: &Rc<Cx>, mut port: Port) {
    let start = Instant::now();
    let bell = port.bell();
    let wake = Arc::clone(&bell);
    cx.stack.set_driver_wake(Some(move || wake.ring()));
    // Tasks that something outside wakes use sockets before the loop is here again.
    cx.stack.set_driver_clock(Some(start.into_std()));
    let mut timer = pin!(sleep_until(start));
    let mut looks = Looks::new(cx.shared.busy);
    loop {
        let now = start.elapsed();
        let wait_max = port.turn(now);
        cx.credits.turn();
        let next = cx.stack.poll(now);
        if port.is_down() {
            return cx.shared.device_gone.notify_one();
        }
        if next.is_some_and(|next| next <= now) {
            // There is more to do; the tasks that `poll` has woken come first.
            yield_now().await;
            continue;
        }
        let wait = next.map_or(LONG, |next| (next - now).max(SLACK)).min(wait_max);
        timer.as_mut().reset(start + now + wait);
        if let Some(mut look) = looks.begin(Instant::now().into_std()) {
            let is_called = loop {
                // Tasks run, and the runtime looks at all that is waited for.
                yield_now().await;
                look.give_way();
                let called = poll_fn(|task| {
                    let is_woken = bell.poll_rung(task).is_ready();
                    let is_ready = pin!(port.ready(&cx.shared)).poll(task).is_ready();
                    Poll::Ready((is_woken, is_ready, timer.as_mut().poll(task).is_ready()))
                });
                let (is_woken, is_ready, is_due) = called.await;
                if is_woken || is_ready {
                    looks.found();
                    break true;
                }
                if is_due || !looks.goes_on(&mut look, Instant::now().into_std()) {
                    break is_due;
                }
            };
            port.looked(look.idle(Instant::now().into_std()));
            if is_called {
                continue;
            }
        }
        tokio::select! {
            biased;
            () = poll_fn(|task| bell.poll_rung(task)) => {}
            ready = port.ready(&cx.shared) => if ready.is_err() {
                // The runtime ends.
                return;
            },
            () = &mut timer => {}
        }
    }
}
