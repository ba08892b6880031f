//! `one-way`: small messages in one direction, each on its own.
//!
//! Purpose: how soon a message arrives that is not answered. One thread writes a message and waits until the other has read all
//! of it, which it learns through memory, not through the connection; then it writes the next. With Nagle's algorithm, a
//! receiver that delays acknowledgments holds each message but the first back.
//!
//! Does not depend on the provider.
//!
//! Invariants: one message is under way. The writer looks at the stop flag while it waits, and then closes; the reader ends at
//! the end of the stream. A thread that fails drops its end, which ends the other one.
//!
//! Tests: below.

use std::hint;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::meter::{Meter, Reading, Timing, Window};
use crate::pin::Placement;
use crate::provider::{Provider, Stream};
use crate::workloads::{Pairs, pairs};

/// Its parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Bytes of a message.
    pub size: usize,
    /// TCP_NODELAY at the writer.
    pub nodelay: bool,
}

/// Bytes of a message unless said otherwise.
pub const SIZE: usize = 64;

/// Times that the writer looks for the reader's news before it lets other threads run in between.
const LOOKS: u32 = 1000;

/// Messages read in the window.
pub fn sample<P: Provider>(
    provider: &P,
    spec: &Spec,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let Pairs { mut clients, mut servers } = pairs(provider, 1)?;
    let (Some(client), Some(server)) = (clients.pop(), servers.pop()) else {
        return Err(io::Error::other("no connection was made"));
    };
    client.set_nodelay(spec.nodelay)?;
    let meter = Meter::new(1, 2);
    let read_count = AtomicU64::new(0);
    let window = thread::scope(|scope| {
        let (meter, read_count) = (&meter, &read_count);
        scope.spawn(move || {
            meter.guard(|| {
                placement.client(0)?;
                meter.arrive();
                write_until_stopped(&client, spec.size, meter, read_count)
            });
        });
        scope.spawn(move || {
            meter.guard(|| {
                placement.server(0)?;
                meter.arrive();
                read_to_the_end(&server, spec.size, meter, read_count)
            });
        });
        meter.observe(timing, || Ok(Reading::now(provider.counters())))
    });
    meter.into_result()?;
    window
}

fn write_until_stopped(
    stream: &impl Stream,
    size: usize,
    meter: &Meter,
    read_count: &AtomicU64,
) -> io::Result<()> {
    let message = vec![0x4D; size];
    for written in 1.. {
        stream.write_all(&message)?;
        let mut looks = 0;
        while read_count.load(Ordering::Acquire) < written {
            if meter.stopped() {
                return Ok(());
            }
            looks += 1;
            if looks % LOOKS == 0 { thread::yield_now() } else { hint::spin_loop() }
        }
    }
    Ok(())
}

fn read_to_the_end(
    stream: &impl Stream,
    size: usize,
    meter: &Meter,
    read_count: &AtomicU64,
) -> io::Result<()> {
    let tally = meter.tally(0);
    let mut message = vec![0; size];
    loop {
        match stream.read_exact(&mut message) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return meter.end_of_stream(),
            Err(error) => return Err(error),
        }
        tally.add(1);
        read_count.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pin::Pin;
    use crate::plan::Spin;
    use crate::providers::kernel::Kernel;
    use crate::providers::sockeye::Sockeye;

    fn messages_arrive<P: Provider>(provider: &P) {
        let timing = Timing { warm_up: Duration::from_millis(5), timed: Duration::from_millis(40) };
        for (size, nodelay, pin) in
            [(1, true, Pin::Same), (SIZE, false, Pin::Split), (100_000, false, Pin::None)]
        {
            let placement = Placement::new(pin).unwrap();
            let window = sample(provider, &Spec { size, nodelay }, &placement, timing).unwrap();
            assert!(window.count > 0, "{size} {pin:?}: {window:?}");
        }
    }

    #[test]
    fn messages_arrive_on_the_kernel() {
        messages_arrive(&Kernel::new().unwrap());
    }

    #[test]
    fn messages_arrive_on_sockeye() {
        messages_arrive(&Sockeye::new(Spin::On).unwrap());
        messages_arrive(&Sockeye::new(Spin::Off).unwrap());
    }
}
