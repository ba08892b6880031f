//! Bulk data one way over N pairs, a writer and a reader thread each.
//!
//! Purpose: the throughput of a pair; with small buffers and a reader of small steps, the cost of a writer that is
//! blocked by a full buffer at every write. Only bytes read count.
//!
//! Invariants: the writer looks at the stop flag between writes and then closes; the reader ends at the end of the
//! stream. A thread that fails closes its end, which ends the other one.
//!
//! Tests: below.

use std::io;
use std::thread;

use crate::meter::{Meter, Timing, Window};
use crate::pin::Placement;
use crate::workloads::unix::provider::{UnixEnd, UnixProvider};
use crate::workloads::unix::reading;

/// Its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Pairs.
    pub pairs: usize,
    /// Bytes of a write.
    pub size: usize,
    /// Bytes of a read.
    pub room: usize,
    /// Bytes of both buffers, if not the default.
    pub buffers: Option<usize>,
}

/// Bytes read in the window.
pub fn sample<P: UnixProvider>(
    provider: &P,
    spec: &Spec,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let mut pairs = Vec::with_capacity(spec.pairs);
    for _ in 0..spec.pairs {
        let (writer, reader) = provider.pair()?;
        if let Some(bytes) = spec.buffers {
            writer.set_buffers(bytes)?;
            reader.set_buffers(bytes)?;
        }
        pairs.push((writer, reader));
    }
    let meter = Meter::new(spec.pairs, 2 * spec.pairs);
    let window = thread::scope(|scope| {
        for (index, (writer, reader)) in pairs.into_iter().enumerate() {
            let meter = &meter;
            scope.spawn(move || {
                meter.guard(|| {
                    placement.client(index)?;
                    meter.arrive();
                    write_until_stopped(&writer, spec.size, meter)
                });
            });
            scope.spawn(move || {
                meter.guard(|| {
                    placement.server(index)?;
                    meter.arrive();
                    read_to_the_end(&reader, spec.room, index, meter)
                });
            });
        }
        meter.observe(timing, || reading(provider))
    });
    meter.into_result()?;
    window
}

fn write_until_stopped<E: UnixEnd>(end: &E, size: usize, meter: &Meter) -> io::Result<()> {
    let data = vec![0x5A; size];
    while !meter.stopped() {
        end.send_all(&data)?;
    }
    Ok(())
}

fn read_to_the_end<E: UnixEnd>(end: &E, room: usize, index: usize, meter: &Meter) -> io::Result<()> {
    let tally = meter.tally(index);
    let mut buf = vec![0; room];
    loop {
        match end.receive(&mut buf)? {
            0 => return meter.end_of_stream(),
            n => tally.add(n as u64),
        }
    }
}
