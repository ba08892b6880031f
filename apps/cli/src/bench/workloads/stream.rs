//! `stream`: bulk data one way over N connections.
//!
//! Purpose: what a connection carries. Each connection has one thread that writes `size` bytes at a
//! time and one that reads into [`READ_SIZE`] bytes, both blocking. What counts is what was read.
//!
//! Must not know: which provider.
//!
//! Invariants: the writer owns the client end and the reader the server end. The writer looks at the
//! stop flag between writes and then closes; the reader ends at the FIN. A thread that fails drops its
//! end, which ends the other one.
//!
//! Tests: below.

use std::io;
use std::thread;

use crate::bench::meter::{Meter, Tally, Timing, Window, process_cpu};
use crate::bench::pin::Placement;
use crate::bench::provider::{Provider, Stream};
use crate::bench::workloads::{Pairs, pairs};

/// Its parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    /// How many connections, each with two threads.
    pub connections: usize,
    /// Bytes a write.
    pub size: usize,
    /// TCP_NODELAY at the writer.
    pub nodelay: bool,
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
                    read_to_the_end(&server, meter.tally(index))
                });
            });
        }
        meter.observe(timing, || Ok(process_cpu()))
    });
    meter.into_result()?;
    window
}

fn write_until_stopped(stream: &impl Stream, size: usize, meter: &Meter) -> io::Result<()> {
    let data = vec![0x5A; size];
    while !meter.stopped() {
        stream.write_all(&data)?;
    }
    stream.shutdown_write()
}

fn read_to_the_end(stream: &impl Stream, tally: &Tally) -> io::Result<()> {
    let mut buf = vec![0; READ_SIZE];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            n => tally.add(n as u64),
        }
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
    use std::time::Duration;

    use super::*;
    use crate::bench::pin::Pin;
    use crate::bench::plan::Spin;
    use crate::bench::providers::kernel::Kernel;
    use crate::bench::providers::sockeye::Sockeye;

    const TIMING: Timing = Timing { warm_up: Duration::from_millis(10), timed: Duration::from_millis(50) };

    fn every_placement_delivers_bytes_and_ends<P: Provider>(provider: &P) {
        for (pin, size) in [(Pin::None, 64 * 1024), (Pin::Same, 100), (Pin::Split, 1 << 20)] {
            let placement = Placement::new(pin).unwrap();
            let spec = Spec { connections: 3, size, nodelay: size == 100 };
            let window = sample(provider, &spec, &placement, TIMING).unwrap();
            assert!(window.count > spec.size as u64, "{pin:?}: {window:?}");
            assert!(window.cores() > 0.0);
        }
    }

    #[test]
    fn the_kernel_delivers() {
        every_placement_delivers_bytes_and_ends(&Kernel::new().unwrap());
    }

    #[test]
    fn sockeye_delivers() {
        every_placement_delivers_bytes_and_ends(&Sockeye::new(Spin::On).unwrap());
    }

    #[test]
    fn the_unit_follows_the_size() {
        let small = Spec { connections: 1, size: 128, nodelay: true };
        assert!(small.counts_writes());
        assert!((1280.0 * small.scale() - 10.0).abs() < 1e-12);
        let large = Spec { size: 1024, ..small };
        assert!(!large.counts_writes());
        assert!((1e9 * large.scale() - 8.0).abs() < 1e-12);
    }
}
