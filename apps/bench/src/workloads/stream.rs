//! `stream`: bulk data one way over N connections.
//!
//! Purpose: the throughput of a connection. Each connection has one thread that writes `size` bytes at a time
//! and one that reads as its [`Reader`] says, both blocking. Only bytes read count.
//!
//! Does not depend on the provider.
//!
//! Invariants: the writer owns the client end and the reader the server end. The writer looks at the
//! stop flag between writes and then closes; the reader ends at the FIN. A thread that fails drops its
//! end, which ends the other one.
//!
//! Tests: below.

use std::io;
use std::thread;
use std::time::Duration;

use crate::meter::{Meter, Reading, Timing, Window};
use crate::pin::Placement;
use crate::provider::{Provider, Stream};
use crate::workloads::{Pairs, pairs};

/// Its parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    /// How many connections, each with two threads.
    pub connections: usize,
    /// Bytes a write.
    pub size: usize,
    /// TCP_NODELAY at the writer.
    pub nodelay: bool,
    /// How the reader takes data.
    pub reading: Reader,
}

/// How a reader takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Bytes offered to each read.
    pub size: usize,
    /// Whether a read waits until all of them are there (`MSG_WAITALL`).
    pub whole: bool,
    /// How long it does something else after each read.
    pub pause: Duration,
}

impl Reader {
    /// Takes the bytes that are there, at once, up to [`READ_SIZE`].
    pub const PLAIN: Reader = Reader { size: READ_SIZE, whole: false, pause: Duration::ZERO };
}

impl Spec {
    /// Whether the unit is writes a second: below [`SMALL_WRITE`] it is the calls that cost.
    pub fn counts_writes(&self) -> bool {
        self.size < SMALL_WRITE
    }

    /// From bytes a second to the unit.
    pub fn scale(&self) -> f64 {
        if self.counts_writes() { 1.0 / self.size as f64 } else { BITS_PER_BYTE / GIGA }
    }
}

/// Bytes delivered in the window.
pub fn sample<P: Provider>(
    provider: &P,
    spec: &Spec,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let Pairs { clients, servers } = pairs(provider, spec.connections)?;
    for client in &clients {
        client.set_nodelay(spec.nodelay)?;
    }
    let meter = Meter::new(spec.connections, 2 * spec.connections);
    let window = thread::scope(|scope| {
        for (index, (client, server)) in clients.into_iter().zip(servers).enumerate() {
            let meter = &meter;
            scope.spawn(move || {
                meter.guard(|| {
                    placement.client(index)?;
                    meter.arrive();
                    write_until_stopped(&client, spec.size, meter)
                });
            });
            scope.spawn(move || {
                meter.guard(|| {
                    placement.server(index)?;
                    meter.arrive();
                    read_to_the_end(&server, spec.reading, index, meter)
                });
            });
        }
        meter.observe(timing, || Ok(Reading::now(provider.counters())))
    });
    meter.into_result()?;
    window
}

/// Writes `size` bytes at a time until the sample is over, and ends the stream.
pub fn write_until_stopped(stream: &impl Stream, size: usize, meter: &Meter) -> io::Result<()> {
    let data = vec![0x5A; size];
    while !meter.stopped() {
        stream.write_all(&data)?;
    }
    stream.shutdown_write()
}

/// Reads until the stream ends, counting for the reader `index`. An end before that of the sample is an error.
pub fn read_to_the_end(stream: &impl Stream, reader: Reader, index: usize, meter: &Meter) -> io::Result<()> {
    let tally = meter.tally(index);
    let mut buf = vec![0; reader.size];
    loop {
        let received = if reader.whole { read_whole(stream, &mut buf)? } else { stream.read(&mut buf)? };
        if received == 0 {
            return meter.end_of_stream();
        }
        tally.add(received as u64);
        if !reader.pause.is_zero() {
            thread::sleep(reader.pause);
        }
    }
}

/// Fills `buf`, or less at the end of the stream.
fn read_whole(stream: &impl Stream, buf: &mut [u8]) -> io::Result<usize> {
    match stream.read_exact(buf) {
        Ok(()) => Ok(buf.len()),
        // The last part of a stream that ended in between is not counted.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        Err(error) => Err(error),
    }
}

/// Bytes the reader offers to each read.
pub const READ_SIZE: usize = 128 * 1024;

/// Writes below this many bytes are counted instead of their bits.
pub const SMALL_WRITE: usize = 1024;

/// Two threads a connection: more than this and it is the scheduler that is measured.
pub const CONNECTIONS_MAX: usize = 1024;

const BITS_PER_BYTE: f64 = 8.0;
const GIGA: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin::Pin;
    use crate::plan::Spin;
    use crate::providers::kernel::Kernel;
    use crate::providers::sockeye::Sockeye;

    const TIMING: Timing = Timing { warm_up: Duration::from_millis(10), timed: Duration::from_millis(50) };

    fn every_placement_delivers_bytes_and_ends<P: Provider>(provider: &P) {
        for (pin, size) in [(Pin::None, 64 * 1024), (Pin::Same, 100), (Pin::Split, 1 << 20)] {
            let placement = Placement::new(pin).unwrap();
            let reading = Reader { whole: pin == Pin::Same, ..Reader::PLAIN };
            let spec = Spec { connections: 3, size, nodelay: size == 100, reading };
            let window = sample(provider, &spec, &placement, TIMING).unwrap();
            assert!(window.count > spec.size as u64, "{pin:?}: {window:?}");
            assert!(window.cores() > 0.0);
        }
    }

    #[test]
    fn the_kernel_delivers_the_stream() {
        every_placement_delivers_bytes_and_ends(&Kernel::new().unwrap());
    }

    #[test]
    fn sockeye_delivers_the_stream() {
        every_placement_delivers_bytes_and_ends(&Sockeye::new(Spin::On).unwrap());
    }

    #[test]
    fn the_unit_follows_the_size() {
        let small = Spec { connections: 1, size: 128, nodelay: true, reading: Reader::PLAIN };
        assert!(small.counts_writes());
        assert!((1280.0 * small.scale() - 10.0).abs() < 1e-12);
        let large = Spec { size: 1024, ..small };
        assert!(!large.counts_writes());
        assert!((1e9 * large.scale() - 8.0).abs() < 1e-12);
    }
}
