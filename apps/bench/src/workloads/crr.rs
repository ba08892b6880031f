//! `crr`: connect, request, response, close.
//!
//! Purpose: the cost of a connection's life. Each client thread connects, sends `size` bytes, reads as many as the
//! response has, reads the end of the stream, closes, and begins again. Each acceptor thread accepts, answers in place
//! and closes; closing first, it keeps the TIME-WAIT state, as servers that close do. The acceptors share one listener
//! and serve in place, which is the fastest that the kernel does here: handing connections to other threads costs a
//! wake-up each.
//!
//! Does not depend on the provider.
//!
//! Invariants: clients look at the stop flag between connections, so every request gets its answer.
//! Only when all of them have ended is `closing` set and one connection made for each acceptor, which
//! wakes it to see the flag; each acceptor takes exactly one, so none is left in the accept queue. An
//! accept or a connection that fails fails the sample and the acceptor goes on, or the clients would
//! wait forever; and a connection for waking that fails is tried again, or the acceptors would.
//!
//! Tests: below.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::meter::{Meter, Reading, Tally, Timing, Window};
use crate::pin::Placement;
use crate::provider::{Listener, Provider, Stream};

/// Its parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Client threads.
    pub clients: usize,
    /// Acceptor threads.
    pub acceptors: usize,
    /// Bytes of a request.
    pub size: usize,
    /// Bytes of a response.
    pub response: usize,
}

/// Connections completed in the window.
pub fn sample<P: Provider>(
    provider: &P,
    spec: &Spec,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let listener = provider.listen()?;
    let address = listener.local_addr()?;
    let listeners: Vec<P::Listener> =
        (0..spec.acceptors).map(|_| listener.try_clone()).collect::<io::Result<_>>()?;
    let (meter, closing) = (Meter::new(spec.clients, spec.clients + spec.acceptors), AtomicBool::new(false));
    let window = thread::scope(|scope| {
        let (meter, closing) = (&meter, &closing);
        for (index, listener) in listeners.into_iter().enumerate() {
            scope.spawn(move || {
                meter.guard(|| {
                    placement.server(index)?;
                    meter.arrive();
                    serve(&listener, spec, meter, closing)
                });
            });
        }
        let clients: Vec<_> = (0..spec.clients)
            .map(|index| {
                scope.spawn(move || {
                    meter.guard(|| {
                        placement.client(index)?;
                        meter.arrive();
                        connect_until_stopped(provider, address, spec, meter, meter.tally(index))
                    });
                })
            })
            .collect();
        let window = meter.observe(timing, || Ok(Reading::now(provider.counters())));
        for client in clients {
            // A panic of a client is passed on by the scope itself.
            let _ = client.join();
        }
        closing.store(true, Ordering::Release);
        for _ in 0..spec.acceptors {
            meter.note(wake_acceptor(provider, address));
        }
        window
    });
    meter.into_result()?;
    window
}

fn connect_until_stopped<P: Provider>(
    provider: &P,
    address: SocketAddr,
    spec: &Spec,
    meter: &Meter,
    tally: &Tally,
) -> io::Result<()> {
    let request = vec![0x52; spec.size];
    let mut response = vec![0; spec.response];
    while !meter.stopped() {
        let stream = provider.connect(address)?;
        stream.write_all(&request)?;
        stream.read_exact(&mut response)?;
        if stream.read(&mut [0])? != 0 {
            return Err(io::Error::other("the server sent more than the response"));
        }
        drop(stream);
        tally.add(1);
    }
    Ok(())
}

fn serve<L: Listener>(listener: &L, spec: &Spec, meter: &Meter, closing: &AtomicBool) -> io::Result<()> {
    let mut request = vec![0; spec.size];
    let response = vec![0x41; spec.response];
    loop {
        let accepted = listener.accept();
        // Partner: the store after the clients have ended.
        if closing.load(Ordering::Acquire) {
            return Ok(());
        }
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                meter.note(Err(error));
                thread::sleep(RETRY_PAUSE);
                continue;
            }
        };
        meter.guard(|| {
            stream.read_exact(&mut request)?;
            stream.write_all(&response)
        });
    }
}

/// Makes a connection for an acceptor to see that it is over.
fn wake_acceptor<P: Provider>(provider: &P, address: SocketAddr) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..WAKE_TRIES {
        match provider.connect(address) {
            Ok(_) => return Ok(()),
            Err(error) => last = Err(error),
        }
        thread::sleep(RETRY_PAUSE);
    }
    last
}

const WAKE_TRIES: usize = 500;
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Client threads at most.
pub const CLIENTS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin::Pin;
    use crate::plan::Spin;
    use crate::providers::kernel::Kernel;
    use crate::providers::sockeye::Sockeye;

    const TIMING: Timing = Timing { warm_up: Duration::from_millis(5), timed: Duration::from_millis(40) };

    fn connections_complete<P: Provider>(provider: &P) {
        for (clients, acceptors, size, response) in
            [(1, 1, 1, 1), (8, 2, 100, 512), (2, 4, 1, 1), (1, 1, 200_000, 200_000)]
        {
            let placement = Placement::new(Pin::None).unwrap();
            let spec = Spec { clients, acceptors, size, response };
            let window = sample(provider, &spec, &placement, TIMING).unwrap();
            assert!(window.count > 0, "{spec:?}: {window:?}");
        }
    }

    #[test]
    fn connections_complete_on_the_kernel_and_none_is_left_for_the_next_sample() {
        let kernel = Kernel::for_short_connections().unwrap();
        connections_complete(&kernel);
        let listener = kernel.listen().unwrap();
        listener.set_nonblocking(true).unwrap();
        let left = Listener::accept(&listener).err().map(|error| error.kind());
        assert_eq!(left, Some(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn connections_complete_on_sockeye_and_none_is_left_for_the_next_sample() {
        let sockeye = Sockeye::new(Spin::On).unwrap();
        connections_complete(&sockeye);
        let listener = sockeye.listen().unwrap();
        listener.set_nonblocking(true).unwrap();
        let left = Listener::accept(&listener).err().map(|error| error.kind());
        assert_eq!(left, Some(io::ErrorKind::WouldBlock));
    }
}
