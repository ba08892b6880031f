//! One byte to and fro between two threads on two cores, both blocking.
//!
//! Purpose: the cost of waking the other thread.
//!
//! Invariants: each thread looks at the stop flag between its turns, and shuts both ends down when it ends, however
//! it ends: the end of one datagram socket is not felt at the other.
//!
//! Tests: below.

use std::io;
use std::thread;

use crate::meter::{Meter, Tally, Timing, Window};
use crate::pin::Placement;
use crate::workloads::unix::provider::{UnixEnd, UnixProvider};
use crate::workloads::unix::reading;

/// Round trips in the window.
pub fn sample<P: UnixProvider>(provider: &P, placement: &Placement, timing: Timing) -> io::Result<Window> {
    let (left, right) = provider.pair()?;
    let meter = Meter::new(1, 2);
    let window = thread::scope(|scope| {
        let (meter, left, right) = (&meter, &left, &right);
        scope.spawn(move || {
            meter.guard(|| {
                let done = placement.client(0).and_then(|()| {
                    meter.arrive();
                    ask_until_stopped(left, meter, meter.tally(0))
                });
                done.and(left.shutdown()).and(right.shutdown())
            });
        });
        scope.spawn(move || {
            meter.guard(|| {
                let done = placement.server(0).and_then(|()| {
                    meter.arrive();
                    answer_until_stopped(right, meter)
                });
                done.and(left.shutdown()).and(right.shutdown())
            });
        });
        meter.observe(timing, || reading(provider))
    });
    meter.into_result()?;
    window
}

fn ask_until_stopped<E: UnixEnd>(end: &E, meter: &Meter, tally: &Tally) -> io::Result<()> {
    let mut byte = [0x5A];
    while !meter.stopped() {
        end.send(&byte)?;
        if end.receive(&mut byte)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        tally.add(1);
    }
    Ok(())
}

fn answer_until_stopped<E: UnixEnd>(end: &E, meter: &Meter) -> io::Result<()> {
    let mut byte = [0];
    loop {
        // A shut datagram socket receives nothing for ever.
        if end.receive(&mut byte)? == 0 || meter.stopped() {
            return Ok(());
        }
        end.send(&byte)?;
    }
}
