//! `unix1`: each thread writes one byte into its own pair and reads it at the other end.
//!
//! Purpose: will-it-scale's workload of that name. Nothing ever blocks and no thread touches another's
//! sockets, so all contention comes from state that the implementation shares between them.
//!
//! Invariants: threads are pinned round robin, and each counts on a cache line of its own.
//!
//! Tests: below.

use std::io;

use crate::meter::{Meter, Tally, Timing, Window};
use crate::pin::Placement;
use crate::workloads::unix::each_task;
use crate::workloads::unix::provider::{UnixEnd, UnixProvider};

/// Bytes written and read in the window, by all tasks together.
pub fn sample<P: UnixProvider>(
    provider: &P,
    tasks: usize,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    each_task(provider, tasks, placement, timing, |meter, tally| {
        // On its own core, as each task is a program of its own there.
        let (left, right) = provider.pair()?;
        meter.arrive();
        there_and_out(&left, &right, meter, tally)
    })
}

fn there_and_out<E: UnixEnd>(left: &E, right: &E, meter: &Meter, tally: &Tally) -> io::Result<()> {
    let mut byte = [0x5A];
    while !meter.stopped() {
        if left.send(&byte)? != 1 || right.receive(&mut byte)? != 1 {
            return Err(io::Error::other("one byte was written and not read"));
        }
        tally.add(1);
    }
    Ok(())
}
