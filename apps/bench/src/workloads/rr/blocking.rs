//! `rr` on one connection, with a blocking thread at each end.
//!
//! Purpose: the round trip that is made of waking the other thread.
//!
//! Invariants: the client looks at the stop flag between transactions and then closes; the server ends
//! at the end of the stream. A thread that fails drops its end, which ends the other one.
//!
//! Tests: below.

use std::io;
use std::thread;

use crate::meter::{Meter, Reading, Tally, Timing, Window};
use crate::pin::Placement;
use crate::provider::{Provider, Stream};
use crate::workloads::rr::Spec;
use crate::workloads::{Pairs, pairs};

/// One connection's transactions in the window; `spec.connections` is 1 here.
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
    server.set_nodelay(spec.nodelay)?;
    let meter = Meter::new(1, 2);
    let window = thread::scope(|scope| {
        let meter = &meter;
        scope.spawn(move || {
            meter.guard(|| {
                placement.client(0)?;
                meter.arrive();
                ask_until_stopped(&client, spec.size, meter, meter.tally(0))
            });
        });
        scope.spawn(move || {
            meter.guard(|| {
                placement.server(0)?;
                meter.arrive();
                answer_to_the_end(&server, spec.size)
            });
        });
        meter.observe(timing, || Ok(Reading::now(provider.counters())))
    });
    meter.into_result()?;
    window
}

fn ask_until_stopped(stream: &impl Stream, size: usize, meter: &Meter, tally: &Tally) -> io::Result<()> {
    let request = vec![0x52; size];
    let mut response = vec![0; size];
    while !meter.stopped() {
        stream.write_all(&request)?;
        stream.read_exact(&mut response)?;
        tally.add(1);
    }
    Ok(())
}

fn answer_to_the_end(stream: &impl Stream, size: usize) -> io::Result<()> {
    let mut buf = vec![0; size];
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                stream.read_exact(&mut buf[n..])?;
                stream.write_all(&buf)?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
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

    fn transactions_complete<P: Provider>(provider: &P) {
        let timing = Timing { warm_up: Duration::from_millis(5), timed: Duration::from_millis(40) };
        for (size, pin) in [(1, Pin::Split), (1, Pin::Same), (300_000, Pin::None)] {
            let spec = Spec { connections: 1, threads: None, size, nodelay: true };
            let placement = Placement::new(pin).unwrap();
            let window = sample(provider, &spec, &placement, timing).unwrap();
            assert!(window.count > 0, "{spec:?} {pin:?}: {window:?}");
        }
    }

    #[test]
    fn transactions_of_one_byte_and_of_many_complete_on_the_kernel() {
        transactions_complete(&Kernel::new().unwrap());
    }

    #[test]
    fn transactions_of_one_byte_and_of_many_complete_on_sockeye() {
        transactions_complete(&Sockeye::new(Spin::On).unwrap());
        transactions_complete(&Sockeye::new(Spin::Off).unwrap());
    }
}
