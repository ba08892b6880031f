//! The work on UDP sockets: back and forth, one way, many to one.
//!
//! Does not depend on the side. Invariants: the load is bounded in time; threads end when the sample does, whatever
//! is lost; only received datagrams count. Tests: below.

use std::io;
use std::thread;

use super::ends::{End, Source};
use crate::meter::{Meter, Reading, Tally, Timing, Window};
use crate::pin::Placement;

/// A shape with its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A datagram of so many bytes to and fro between two threads.
    PingPong { size: usize },
    /// Datagrams of `size` bytes from so many threads, a socket each, to one.
    OneWay { senders: usize, size: usize },
    /// Buffers of [`BUFFER`] bytes, sent as datagrams of `size`.
    Cut { size: u16 },
}

/// Bytes of a buffer that is cut: as many whole datagrams of 1,400 as one call takes.
pub const BUFFER: usize = 46 * 1400;

impl Shape {
    /// The rows of the table.
    pub const ALL: [Shape; 6] = [
        Shape::PingPong { size: 1 },
        Shape::OneWay { senders: 1, size: 64 },
        Shape::OneWay { senders: 1, size: 1400 },
        Shape::Cut { size: 1400 },
        Shape::OneWay { senders: 2, size: 64 },
        Shape::OneWay { senders: 8, size: 64 },
    ];

    /// As a person reads it.
    pub fn label(self) -> String {
        match self {
            Shape::PingPong { size } => format!("to and fro, {size} B"),
            Shape::OneWay { senders: 1, size } => format!("one way, {size} B"),
            Shape::OneWay { senders, size } => format!("{senders} to one, {size} B"),
            Shape::Cut { size } => format!("64 KiB as {size} B"),
        }
    }

    /// Unit of its values, and how many of them make one.
    pub fn unit(self) -> (&'static str, f64) {
        match self {
            Shape::PingPong { .. } => ("turns/s", 1.0),
            Shape::OneWay { .. } => ("datagrams/s", 1.0),
            Shape::Cut { .. } => ("Gbit/s", 8e-9),
        }
    }

    /// One sample. Blocks for its time.
    pub fn sample<S: Source>(self, source: &S, placement: &Placement, timing: Timing) -> io::Result<Window> {
        match self {
            Shape::PingPong { size } => ping_pong(source, size, placement, timing),
            Shape::OneWay { senders, size } => one_way(source, senders, size, None, placement, timing),
            Shape::Cut { size } => one_way(source, 1, BUFFER, Some(size), placement, timing),
        }
    }
}

fn ping_pong<S: Source>(
    source: &S,
    size: usize,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let (left, right) = (source.bind()?, source.bind()?);
    left.connect(right.addr()?)?;
    right.connect(left.addr()?)?;
    let meter = Meter::new(1, 2);
    let window = thread::scope(|scope| {
        let (meter, left, right) = (&meter, &left, &right);
        scope.spawn(move || {
            meter.guard(|| {
                placement.client(0)?;
                meter.arrive();
                ask(left, size, meter, meter.tally(0))
            });
        });
        scope.spawn(move || {
            meter.guard(|| {
                placement.server(0)?;
                meter.arrive();
                answer(right, size, meter)
            });
        });
        meter.observe(timing, || Ok(Reading::now(source.counters())))
    });
    meter.into_result()?;
    window
}

fn ask<E: End>(end: &E, size: usize, meter: &Meter, tally: &Tally) -> io::Result<()> {
    let mut buf = vec![0x5A; size];
    while !meter.stopped() {
        end.send(&buf)?;
        if end.recv(&mut buf)?.is_some() {
            tally.add(1);
        }
    }
    Ok(())
}

fn answer<E: End>(end: &E, size: usize, meter: &Meter) -> io::Result<()> {
    let mut buf = vec![0; size];
    while !meter.stopped() {
        if end.recv(&mut buf)?.is_some() {
            end.send(&buf)?;
        }
    }
    Ok(())
}

/// With `cut` bytes count, else datagrams.
fn one_way<S: Source>(
    source: &S,
    senders: usize,
    size: usize,
    cut: Option<u16>,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let receiver = source.bind()?;
    let to = receiver.addr()?;
    if cut.is_some() {
        receiver.take_joined()?;
    }
    let meter = Meter::new(1, senders + 1);
    let window = thread::scope(|scope| {
        let (meter, receiver) = (&meter, &receiver);
        scope.spawn(move || {
            meter.guard(|| {
                placement.server(0)?;
                meter.arrive();
                let mut buf = vec![0; BUFFER.max(size)];
                while !meter.stopped() {
                    if let Some(len) = receiver.recv(&mut buf)? {
                        meter.tally(0).add(if cut.is_some() { len as u64 } else { 1 });
                    }
                }
                Ok(())
            });
        });
        for index in 0..senders {
            scope.spawn(move || {
                meter.guard(|| {
                    placement.client(index)?;
                    let end = source.bind()?;
                    end.connect(to)?;
                    meter.arrive();
                    let bytes = vec![0x5A; size];
                    while !meter.stopped() {
                        match cut {
                            Some(size) => end.send_cut(&bytes, size)?,
                            None => end.send(&bytes)?,
                        }
                    }
                    Ok(())
                });
            });
        }
        meter.observe(timing, || Ok(Reading::now(source.counters())))
    });
    meter.into_result()?;
    window
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::ends::{Kernel, Ours};
    use super::*;
    use crate::pin::Pin;

    #[test]
    fn every_shape_counts_on_both_sides() {
        let placement = Placement::new(Pin::None).unwrap();
        let timing = Timing { warm_up: Duration::from_millis(5), timed: Duration::from_millis(30) };
        let ours = Ours::new().unwrap();
        for shape in Shape::ALL {
            // On a machine with other work a window may pass in which the receiver did not run.
            let counts = |sample: &dyn Fn() -> u64| (0..50).any(|_| sample() > 0);
            assert!(counts(&|| shape.sample(&Kernel, &placement, timing).unwrap().count), "{shape:?}");
            assert!(counts(&|| shape.sample(&ours, &placement, timing).unwrap().count), "{shape:?}");
        }
    }
}
