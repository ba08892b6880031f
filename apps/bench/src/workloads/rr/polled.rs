//! `rr` on many connections, with threads that wait for readiness.
//!
//! Purpose: the shape of an event-driven server and its clients. Each thread has a share of the
//! connections and a poller; it waits, and for each connection that is ready reads a message and
//! writes one. Both ends run the same loop; the client's counts, and begins by writing to all.
//!
//! Invariants: a message is [`Spec::size`] bytes, at most `POLLED_SIZE_MAX`; parts of it are put
//! together across rounds. Waiting is bounded by [`WAIT_MAX`], so the stop flag is seen even if nothing
//! becomes ready. An end that closes is dropped, which takes it out of its poller.
//!
//! Tests: below.

use std::io;
use std::thread;
use std::time::Duration;

use crate::meter::{Meter, Reading, Timing, Window};
use crate::pin::Placement;
use crate::provider::{Poller, Provider, Stream};
use crate::workloads::rr::Spec;
use crate::workloads::{Pairs, pairs};

/// Transactions of all connections in the window, both ends in this process.
pub fn sample<P: Provider>(
    provider: &P,
    spec: &Spec,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let Pairs { clients, servers } = pairs(provider, spec.connections)?;
    let client_sides = shares(provider, clients, spec)?;
    let server_sides = shares(provider, servers, spec)?;
    let meter = Meter::new(client_sides.len(), client_sides.len());
    let window = thread::scope(|scope| {
        for (index, (client, server)) in client_sides.into_iter().zip(server_sides).enumerate() {
            let meter = &meter;
            scope.spawn(move || {
                meter.guard(|| {
                    placement.server(index)?;
                    server.answer_until_stopped(meter)
                });
            });
            scope.spawn(move || {
                meter.guard(|| {
                    placement.client(index)?;
                    client.ask_until_stopped(meter, index)
                });
            });
        }
        meter.observe(timing, || Ok(Reading::now(provider.counters())))
    });
    meter.into_result()?;
    window
}

/// Deals `streams` out to the threads of one side, to each a range: as if each had opened its own, so that
/// neighbors in memory belong to one thread (on either side of the comparison).
pub fn shares<P: Provider>(provider: &P, streams: Vec<P::Stream>, spec: &Spec) -> io::Result<Vec<Share<P>>> {
    let count = spec.threads_a_side();
    let mut shares: Vec<Share<P>> =
        (0..count).map(|_| Share::new(provider, spec.size)).collect::<io::Result<_>>()?;
    let total = streams.len().max(1);
    for (index, stream) in streams.into_iter().enumerate() {
        stream.set_nodelay(spec.nodelay)?;
        shares[index * count / total].add(stream)?;
    }
    Ok(shares)
}

/// One thread's connections.
pub struct Share<P: Provider> {
    poller: P::Poller,
    /// By token; `None` once closed.
    ends: Vec<Option<End<P::Stream>>>,
    closed_count: usize,
    /// A message to send.
    message: Vec<u8>,
    /// Room for one to receive.
    buf: Vec<u8>,
}

impl<P: Provider> Share<P> {
    fn new(provider: &P, size: usize) -> io::Result<Self> {
        Ok(Self {
            poller: provider.poller()?,
            ends: Vec::new(),
            closed_count: 0,
            message: apart(size, 0x52),
            buf: apart(size, 0),
        })
    }

    fn add(&mut self, stream: P::Stream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.discard_on_close()?;
        self.poller.register(&stream, self.ends.len())?;
        self.ends.push(Some(End { stream, received_len: 0 }));
        Ok(())
    }

    /// The client's thread: asks on every connection, counts each response and asks again.
    pub fn ask_until_stopped(mut self, meter: &Meter, index: usize) -> io::Result<()> {
        for end in self.ends.iter().flatten() {
            send(&end.stream, &self.message, meter)?;
        }
        // With ten thousand connections the first requests alone take longer than a short warm-up.
        meter.arrive();
        let tally = meter.tally(index);
        while !meter.stopped() {
            self.round(meter, || tally.add(1))?;
            if self.closed_count > 0 && !meter.stopped() {
                return Err(io::Error::other("the server closed a connection"));
            }
        }
        Ok(())
    }

    /// The server's thread: answers each request, until stopped or all connections are closed.
    pub fn answer_until_stopped(mut self, meter: &Meter) -> io::Result<()> {
        while !meter.stopped() && self.closed_count < self.ends.len() {
            self.round(meter, || ())?;
        }
        Ok(())
    }

    /// Waits once and serves the ready streams; `received` is called for each message that is whole.
    fn round(&mut self, meter: &Meter, mut received: impl FnMut()) -> io::Result<()> {
        let Self { poller, ends, closed_count, message, buf } = self;
        poller.wait(WAIT_MAX, |token| {
            let Some(slot) = ends.get_mut(token) else {
                return Err(io::Error::other("the poller returned a token it was not given"));
            };
            let Some(end) = slot else { return Ok(()) };
            let served = match end.receive(buf) {
                Ok(Received::Whole) => {
                    received();
                    send(&end.stream, message, meter)
                }
                Ok(Received::Part) => Ok(()),
                Err(error) => Err(error),
            };
            match served {
                Err(error) if is_end(&error) => {
                    *slot = None;
                    *closed_count += 1;
                    Ok(())
                }
                served => served,
            }
        })
    }
}

/// `size` times `byte`, not on a cache line that other threads write: they get their buffers from the same thread.
fn apart(size: usize, byte: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size.max(PAGE_BYTES));
    bytes.resize(size, byte);
    bytes
}

/// One connection's end.
struct End<S> {
    stream: S,
    /// Bytes of the message under way.
    received_len: usize,
}

enum Received {
    Part,
    Whole,
}

impl<S: Stream> End<S> {
    fn receive(&mut self, buf: &mut [u8]) -> io::Result<Received> {
        match self.stream.read(&mut buf[self.received_len..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) if self.received_len + n == buf.len() => {
                self.received_len = 0;
                Ok(Received::Whole)
            }
            Ok(n) => {
                self.received_len += n;
                Ok(Received::Part)
            }
            Err(e) => match e.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Received::Part),
                _ => Err(e),
            },
        }
    }
}

/// Whether an error says that the other end has closed, as clients do when a sample is over.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// Writes a whole message. The buffer it goes into is empty, so running into a full one is rare enough
/// to yield until there is room.
fn send(stream: &impl Stream, message: &[u8], meter: &Meter) -> io::Result<()> {
    let mut rest = message;
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(n) => rest = &rest[n..],
            Err(e) => match e.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock if meter.stopped() => return Ok(()),
                io::ErrorKind::WouldBlock => thread::yield_now(),
                _ => return Err(e),
            },
        }
    }
    Ok(())
}

/// Room of a thread's buffer at least: the region of a prefetcher.
const PAGE_BYTES: usize = 4096;
/// How long a thread waits for readiness before it looks at the stop flag again.
const WAIT_MAX: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin::Pin;
    use crate::plan::Spin;
    use crate::providers::kernel::Kernel;
    use crate::providers::sockeye::Sockeye;

    const TIMING: Timing = Timing { warm_up: Duration::from_millis(10), timed: Duration::from_millis(60) };

    fn all_threads_make_transactions<P: Provider>(provider: &P) {
        let placement = Placement::new(Pin::None).unwrap();
        for (connections, threads, size) in [(1, 1, 1), (3, 2, 1), (50, 2, 4096), (2, 8, 100)] {
            let spec = Spec { connections, threads: Some(threads), size, nodelay: false };
            let window = sample(provider, &spec, &placement, TIMING).unwrap();
            assert!(window.count > connections as u64, "{spec:?}: {window:?}");
        }
    }

    fn a_server_whose_clients_have_closed_ends_by_itself<P: Provider>(provider: &P) {
        let spec = Spec { connections: 4, threads: Some(1), size: 1, nodelay: false };
        let Pairs { clients, servers } = pairs(provider, 4).unwrap();
        let server = shares(provider, servers, &spec).unwrap().pop().unwrap();
        drop(clients);
        server.answer_until_stopped(&Meter::new(0, 0)).unwrap();
    }

    fn a_client_whose_server_has_closed_fails<P: Provider>(provider: &P) {
        let spec = Spec { connections: 2, threads: Some(1), size: 1, nodelay: false };
        let Pairs { clients, servers } = pairs(provider, 2).unwrap();
        let client = shares(provider, clients, &spec).unwrap().pop().unwrap();
        drop(servers);
        assert!(client.ask_until_stopped(&Meter::new(1, 1), 0).is_err());
    }

    #[test]
    fn the_kernel_is_served_by_readiness() {
        let kernel = Kernel::new().unwrap();
        all_threads_make_transactions(&kernel);
        a_server_whose_clients_have_closed_ends_by_itself(&kernel);
        a_client_whose_server_has_closed_fails(&kernel);
    }

    #[test]
    fn sockeye_is_served_by_readiness() {
        let sockeye = Sockeye::new(Spin::On).unwrap();
        all_threads_make_transactions(&sockeye);
        a_server_whose_clients_have_closed_ends_by_itself(&sockeye);
        a_client_whose_server_has_closed_fails(&sockeye);
    }
}
