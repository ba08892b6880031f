//! Passing a socket through a pair and closing what arrives, in one thread.
//!
//! Purpose: what SCM_RIGHTS costs: another handle made, put in flight, taken out and closed.
//!
//! Invariants: nothing blocks, and one message is in flight at most.
//!
//! Tests: below.

use std::io;
use std::thread;

use crate::meter::{Meter, Timing, Window};
use crate::pin::Placement;
use crate::workloads::unix::provider::{UnixEnd, UnixProvider};
use crate::workloads::unix::reading;

/// Sockets passed in the window, by all tasks together.
pub fn sample<P: UnixProvider>(
    provider: &P,
    tasks: usize,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let meter = Meter::new(tasks, tasks);
    let window = thread::scope(|scope| {
        for index in 0..tasks {
            let meter = &meter;
            scope.spawn(move || {
                meter.guard(|| {
                    placement.client(index)?;
                    let (left, right) = provider.pair()?;
                    let (carried, _other) = provider.pair()?;
                    meter.arrive();
                    while !meter.stopped() {
                        left.pass(&carried)?;
                        drop(right.take()?);
                        meter.tally(index).add(1);
                    }
                    Ok(())
                });
            });
        }
        meter.observe(timing, || reading(provider))
    });
    meter.into_result()?;
    window
}
