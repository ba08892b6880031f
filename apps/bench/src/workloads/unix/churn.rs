//! Making a pair and closing it.
//!
//! Purpose: what sockets cost that live shortly, and whether making and closing them scales.
//!
//! Tests: below.

use std::io;
use std::thread;

use crate::meter::{Meter, Timing, Window};
use crate::pin::Placement;
use crate::workloads::unix::provider::UnixProvider;
use crate::workloads::unix::reading;

/// Pairs made and closed in the window, by all tasks together.
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
                    meter.arrive();
                    while !meter.stopped() {
                        drop(provider.pair()?);
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
