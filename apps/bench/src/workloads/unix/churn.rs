//! Making a pair and closing it.
//!
//! Purpose: the cost of short-lived sockets, and whether making and closing them scales.
//!
//! Tests: below.

use std::io;

use crate::meter::{Timing, Window};
use crate::pin::Placement;
use crate::workloads::unix::each_task;
use crate::workloads::unix::provider::UnixProvider;

/// Pairs made and closed in the window, by all tasks together.
pub fn sample<P: UnixProvider>(
    provider: &P,
    tasks: usize,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    each_task(provider, tasks, placement, timing, |meter, tally| {
        meter.arrive();
        while !meter.stopped() {
            drop(provider.pair()?);
            tally.add(1);
        }
        Ok(())
    })
}
