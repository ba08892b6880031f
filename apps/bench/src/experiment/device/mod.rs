//! `bench input --dev tun`: the kernel's TCP sends through a TUN device to a stack with one or more input threads.
//!
//! Purpose: features that the wire between two stacks lacks: real frames, which the kernel makes and spreads over the queues,
//! and a sender that shares only the cores with the receiver. The reader counts the bytes that it reads.
//!
//! Does not depend on which setting is compared.
//!
//! Invariants: everything is created in a network namespace of this process and is deleted with it; a sending program is
//! ended by its id when its sample is over, however that ends.
//!
//! Tests: below, where devices may be made.

mod senders;

use std::io;
use std::thread;

use sockeye::{Stack, TcpListener, TcpSocket};
use sockeye_drivers::testing::unavailable;
use sockeye_drivers::{Namespace, Tun, TunConfig};
use sockeye_shared::end::UsageError;

use crate::experiment::model::{On, Taken, Testbed, Work};
use crate::meter::{Meter, Reading, Timing};
use crate::provider::Counters;
use crate::record;
use crate::tun::ends;
use crate::workloads::stream::{READ_SIZE, Reader, read_to_the_end, write_until_stopped};
pub use senders::{STREAMS_MAX, Sender};

/// Some bulk streams from the kernel.
#[derive(Clone, Copy, Debug)]
pub struct OverTun {
    /// How many.
    pub streams: usize,
    /// The device's queues, each with an input thread.
    pub queues: usize,
    /// Whether a frame may hold 64 KiB of a stream, or else is a packet.
    pub offload: bool,
    /// The sender.
    pub sender: Sender,
}

impl Work for OverTun {
    fn open(&self, on: &On<'_>) -> io::Result<Box<dyn Testbed>> {
        let config = match on {
            On::Sockeye(config) => *config,
            // The kernel receives from no device of ours.
            On::Kernel => return Err(io::ErrorKind::Unsupported.into()),
        };
        let tun_config = TunConfig { queues: self.queues, offload: self.offload, ..TunConfig::default() };
        let (client, tun) = ends::device(&tun_config)?;
        let stack = Stack::new(config.clone())?;
        let far = ends::far()?;
        record::attach(&stack, tun.clone(), &[far])?;
        let mut socket = TcpSocket::new_v4(&stack);
        socket.bind((far.addr(), PORT).into())?;
        let listener = socket.listen(STREAMS_MAX + 1)?;
        listener.set_nonblocking(true)?;
        Ok(Box::new(Receiver { spec: *self, client, tun, stack, listener }))
    }
}

/// A stack on a device, and the namespace of its senders.
struct Receiver {
    spec: OverTun,
    client: Namespace,
    tun: Tun,
    stack: Stack,
    listener: TcpListener,
}

impl Receiver {
    fn counters(&self) -> Counters {
        let stack = self.stack.counters().into_iter().map(|(name, value)| (name.to_owned(), value));
        let queues = self.tun.counts().into_iter().enumerate();
        stack
            .chain(queues.map(|(queue, counts)| (format!("queue_{queue}_frames_in"), counts.frames_in)))
            .collect()
    }
}

impl Testbed for Receiver {
    fn sample(&self, timing: Timing) -> io::Result<Taken> {
        let to = self.listener.local_addr()?;
        let sending = senders::start(self.spec.sender, &self.client, &self.listener, to, self.spec.streams)?;
        let meter = Meter::new(sending.servers.len(), sending.servers.len());
        let window = thread::scope(|scope| {
            let meter = &meter;
            for (index, server) in sending.servers.into_iter().enumerate() {
                scope.spawn(move || {
                    meter.guard(|| {
                        meter.arrive();
                        read_to_the_end(&server, Reader::PLAIN, index, meter)
                    });
                });
            }
            for client in sending.clients {
                scope.spawn(move || meter.guard(|| write_until_stopped(&client, BLOCK, meter)));
            }
            let window = meter.observe(timing, || Ok(Reading::now(self.counters())));
            // The streams of a program end with it, and the readers with them.
            drop(sending.program);
            window
        });
        meter.into_result()?;
        Ok(Taken::of(window?, BITS_PER_BYTE / GIGA, READ_SIZE as f64))
    }
}

/// That devices may be made here.
///
/// # Errors
/// The reason, and a remedy.
pub fn check_rights() -> Result<(), UsageError> {
    unavailable().map_or(Ok(()), |reason| {
        Err(UsageError(format!(
            "--dev tun makes network namespaces and TUN devices, for which there is no right here: {reason}; run as \
             root, or leave it out for a wire between two stacks"
        )))
    })
}

/// iperf3's.
const PORT: u16 = 5201;
/// Bytes of a write, as iperf3 has it.
const BLOCK: usize = 128 << 10;
const BITS_PER_BYTE: f64 = 8.0;
const GIGA: f64 = 1e9;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sockeye::Config;

    use super::*;

    const TIMING: Timing = Timing { warm_up: Duration::from_millis(20), timed: Duration::from_millis(100) };

    #[test]
    fn each_sender_fills_each_kind_of_device_and_again() {
        if let Err(reason) = check_rights() {
            println!("skipped: {reason}");
            return;
        }
        let config = Config::default();
        for sender in [Sender::Own, Sender::here()] {
            for (streams, queues, offload) in [(1, 1, true), (3, 2, false)] {
                let work = OverTun { streams, queues, offload, sender };
                assert!(work.open(&On::Kernel).is_err());
                let testbed = work.open(&On::Sockeye(&config)).unwrap();
                for _ in 0..2 {
                    let taken = testbed.sample(TIMING).unwrap();
                    assert!(taken.value > 0.0 && taken.operations > 0.0, "{work:?}: {taken:?}");
                    assert!(taken.counters["input_packets"] > 0, "{work:?}: {taken:?}");
                    let frames = |queue: usize| taken.counters.get(&format!("queue_{queue}_frames_in"));
                    assert!(frames(queues - 1).is_some() && frames(queues).is_none());
                }
            }
        }
    }
}
