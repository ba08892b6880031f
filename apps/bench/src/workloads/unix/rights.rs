//! Passing a socket through a pair and closing the received handle, in one thread.
//!
//! Purpose: the cost of SCM_RIGHTS: another handle made, put in flight, taken out and closed.
//!
//! Invariants: nothing blocks, and one message is in flight at most.
//!
//! Tests: below.

use std::io;

use crate::meter::{Timing, Window};
use crate::pin::Placement;
use crate::workloads::unix::each_task;
use crate::workloads::unix::provider::{UnixEnd, UnixProvider};

/// Sockets passed in the window, by all tasks together.
pub fn sample<P: UnixProvider>(
    provider: &P,
    tasks: usize,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    each_task(provider, tasks, placement, timing, |meter, tally| {
        let (left, right) = provider.pair()?;
        let (carried, _other) = provider.pair()?;
        meter.arrive();
        while !meter.stopped() {
            left.pass(&carried)?;
            drop(right.take()?);
            tally.add(1);
        }
        Ok(())
    })
}
