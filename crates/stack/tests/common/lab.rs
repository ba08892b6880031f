//! Two stacks with a wire between them, for the tests of interfaces.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::time::Duration;

use sockeye::netif::{Netif, Prefix, RxFrame, Sent, TxFrame, WireConfig, WireEnd, wire};
use sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream};

use crate::common;

/// The addresses of the two stacks.
pub const V4: [&str; 2] = ["10.9.0.1/24", "10.9.0.2/24"];
/// Likewise.
pub const V6: [&str; 2] = ["fd09::1/64", "fd09::2/64"];

/// Two stacks that are connected.
pub struct Lab {
    pub stacks: [Stack; 2],
    pub v6: bool,
}

impl Lab {
    pub fn new(config: &WireConfig, change: impl Fn(&mut Config)) -> Self {
        let (left, right) = wire(config).unwrap();
        Self::between(left, right, change)
    }

    pub fn between(left: impl Netif, right: impl Netif, change: impl Fn(&mut Config)) -> Self {
        let stacks = [common::stack_with(&change), common::stack_with(&change)];
        stacks[0].attach(left, &addrs(0)).unwrap();
        stacks[1].attach(right, &addrs(1)).unwrap();
        Self { stacks, v6: false }
    }

    /// The right stack's address.
    pub fn addr(&self, port: u16) -> SocketAddr {
        let prefix: Prefix = (if self.v6 { V6[1] } else { V4[1] }).parse().unwrap();
        SocketAddr::new(prefix.addr(), port)
    }

    pub fn listener(&self) -> TcpListener {
        TcpListener::bind_on(&self.stacks[1], self.addr(0)).unwrap()
    }

    pub fn connect(&self, listener: &TcpListener) -> TcpStream {
        TcpStream::connect_on(&self.stacks[0], listener.local_addr().unwrap()).unwrap()
    }

    /// A connect that does not wait.
    pub fn start(&self, listener: &TcpListener) -> TcpStream {
        let mut socket =
            if self.v6 { TcpSocket::new_v6(&self.stacks[0]) } else { TcpSocket::new_v4(&self.stacks[0]) };
        socket.set_nonblocking(true);
        socket.connect(listener.local_addr().unwrap()).unwrap()
    }

    /// Client and server.
    pub fn pair(&self) -> (TcpStream, TcpStream) {
        let listener = self.listener();
        let client = self.connect(&listener);
        (client, listener.accept().unwrap().0)
    }

    /// The sum of both stacks' counters.
    pub fn count(&self, name: &str) -> u64 {
        self.stacks.iter().map(|stack| common::counter(stack, name)).sum()
    }

    pub fn assert_empty(&self) {
        for stack in &self.stacks {
            common::assert_empty(stack);
        }
    }

    /// Drives both stacks, which have no threads, until neither has anything to do at `now`.
    pub fn drive(&self, now: Duration) {
        for _ in 0..10_000 {
            let before = self.count("frames_in");
            let due = self.stacks.iter().any(|stack| stack.poll(now).is_some_and(|next| next <= now));
            if !due && self.count("frames_in") == before {
                return;
            }
        }
        panic!("two stacks never become idle");
    }
}

/// The addresses of one of the two stacks.
pub fn addrs(side: usize) -> [Prefix; 2] {
    [V4[side].parse().unwrap(), V6[side].parse().unwrap()]
}

/// The methods of a `Netif` that an end of a wire, in the field `end`, answers for it.
macro_rules! as_its_end {
    () => {
        as_its_end!(without segment_max);
        fn segment_max(&self) -> u32 {
            self.end.segment_max()
        }
    };
    (without segment_max) => {
        fn mtu(&self) -> u32 {
            self.end.mtu()
        }
        fn queue_count(&self) -> usize {
            self.end.queue_count()
        }
        fn offloads_checksum(&self) -> bool {
            self.end.offloads_checksum()
        }
        fn udp_segment_max(&self) -> u32 {
            self.end.udp_segment_max()
        }
        fn ring(&self, queue: usize) {
            self.end.ring(queue);
        }
        fn interrupt(&self, queue: usize) {
            self.end.interrupt(queue);
        }
    };
}
#[allow(unused_imports)] // Not every test has an end of its own.
pub(crate) use as_its_end;

/// An end of a wire with an observer, which sees every frame that is sent and that arrives.
pub struct Tap<S, R> {
    pub end: WireEnd,
    /// Called with frames on their way out; may change, drop or add some.
    pub sending: S,
    /// Called with each frame that has arrived; `false` drops it.
    pub receiving: R,
}

impl<S, R> Netif for Tap<S, R>
where
    S: Fn(&mut Vec<TxFrame>) + Send + Sync + 'static,
    R: Fn(RxFrame<'_>) -> bool + Send + Sync + 'static,
{
    as_its_end!();
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        (self.sending)(frames);
        self.end.transmit(flow, frames)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.end.receive(queue, max, &mut |frame| {
            if (self.receiving)(frame) {
                sink(frame);
            }
        })
    }
    fn wait(&self, queue: usize, spin: Duration) {
        self.end.wait(queue, spin);
    }
}
