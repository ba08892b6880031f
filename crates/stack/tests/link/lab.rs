//! A hub, stacks on it, and everything that was ever on the wire.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sockeye::netif::{LinkOptions, MacAddr, Medium, Neighbor, Netif, NetifId, RxFrame, Sent, TxFrame};
use sockeye::{Stack, TcpListener, TcpSocket, TcpStream};
use sockeye_mbuf::Chain;

use crate::common;

/// The state that all ports share.
#[derive(Default)]
struct Hub {
    /// Frames on their way to each port.
    queues: Vec<VecDeque<Vec<u8>>>,
    unplugged: Vec<bool>,
    /// Every frame, by its sender.
    log: Vec<(usize, Vec<u8>)>,
}

/// The end of one host.
struct Port {
    hub: Arc<Mutex<Hub>>,
    index: usize,
}

pub fn mac(index: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, index as u8 + 1])
}

impl Netif for Port {
    fn mtu(&self) -> u32 {
        1500
    }
    fn queue_count(&self) -> usize {
        1
    }
    fn medium(&self) -> Medium {
        Medium::Ethernet(mac(self.index))
    }
    fn offloads_checksum(&self) -> bool {
        false
    }
    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let mut hub = self.hub.lock().unwrap();
        for frame in frames.drain(..) {
            let mut bytes = frame.head().to_vec();
            frame.payload.iter().for_each(|piece| bytes.extend_from_slice(piece));
            assert_eq!(frame.link_len(), 14, "a frame without a link header");
            hub.log.push((self.index, bytes.clone()));
            if hub.unplugged[self.index] {
                continue;
            }
            for port in (0..hub.queues.len()).filter(|port| *port != self.index) {
                if !hub.unplugged[port] {
                    hub.queues[port].push_back(bytes.clone());
                }
            }
        }
        Sent { queue: 0, dropped_count: 0 }
    }
    fn ring(&self, _queue: usize) {}
    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut hub = self.hub.lock().unwrap();
        let count = hub.queues[self.index].len().min(max);
        let taken: Vec<_> = hub.queues[self.index].drain(..count).collect();
        drop(hub);
        let rest = Chain::new();
        taken.iter().for_each(|frame| sink(RxFrame::new(frame, &rest)));
        count
    }
    fn wait(&self, _queue: usize, _spin: Duration) {}
    fn interrupt(&self, _queue: usize) {}
}

/// See the module's head.
pub struct Lab {
    pub stacks: Vec<Stack>,
    pub ids: Vec<NetifId>,
    pub now: Duration,
    /// Whether the test makes its stacks panic.
    pub may_panic: bool,
    hub: Arc<Mutex<Hub>>,
}

impl Lab {
    /// Stacks with these addresses, the first at port 0.
    pub fn new(hosts: &[&[&str]]) -> Self {
        Self::with(hosts, &LinkOptions::default())
    }

    pub fn with(hosts: &[&[&str]], options: &LinkOptions) -> Self {
        let hub = Arc::new(Mutex::new(Hub::default()));
        let mut lab =
            Self { stacks: Vec::new(), ids: Vec::new(), now: Duration::from_secs(1), may_panic: false, hub };
        for (index, addrs) in hosts.iter().enumerate() {
            {
                let mut hub = lab.hub.lock().unwrap();
                hub.queues.push(VecDeque::new());
                hub.unplugged.push(false);
            }
            let stack = common::stack_with(|config| config.workers = 0);
            stack.poll(lab.now);
            let prefixes: Vec<_> = addrs.iter().map(|addr| addr.parse().unwrap()).collect();
            let port = Port { hub: Arc::clone(&lab.hub), index };
            lab.ids.push(stack.attach_with(port, &prefixes, options).unwrap());
            lab.stacks.push(stack);
        }
        lab
    }

    /// Two hosts with an address of each family, which have found that these are theirs.
    pub fn pair() -> Self {
        let mut lab = Self::new(&[&["10.0.0.1/24", "fd00::1/64"], &["10.0.0.2/24", "fd00::2/64"]]);
        lab.pass(Duration::from_secs(15));
        lab
    }

    /// Runs due work, until nothing is due.
    pub fn turn(&mut self) {
        self.earliest();
    }

    /// Runs the due work; returns the next deadline.
    fn earliest(&mut self) -> Option<Duration> {
        for _ in 0..1000 {
            let next = self.stacks.iter().filter_map(|stack| stack.poll(self.now)).min();
            let quiet = self.hub.lock().unwrap().queues.iter().all(VecDeque::is_empty);
            if quiet && next.is_none_or(|next| next > self.now) {
                return next;
            }
        }
        panic!("the stacks never become idle");
    }

    /// Advances the time by `time` and runs everything that becomes due.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.earliest().filter(|next| *next <= end) {
            self.now = next.max(self.now + Duration::from_micros(1));
        }
        self.now = end;
        self.turn();
    }

    /// A frame for one port, from nowhere.
    pub fn inject(&mut self, port: usize, frame: Vec<u8>) {
        self.hub.lock().unwrap().queues[port].push_back(frame);
    }

    pub fn plug(&mut self, port: usize, plugged: bool) {
        self.hub.lock().unwrap().unplugged[port] = !plugged;
    }

    /// Frames sent since the last call, by their senders.
    pub fn take_log(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.hub.lock().unwrap().log)
    }

    pub fn count(&self, stack: usize, name: &str) -> u64 {
        common::counter(&self.stacks[stack], name)
    }

    pub fn neighbor(&self, stack: usize, addr: &str) -> Option<Neighbor> {
        let addr: IpAddr = addr.parse().unwrap();
        self.stacks[stack].neighbors().into_iter().find(|neighbor| neighbor.addr == addr)
    }

    /// Begins to connect, from stack 0.
    pub fn connect(&self, to: &str) -> TcpStream {
        let to: SocketAddr = to.parse().unwrap();
        let stack = &self.stacks[0];
        let mut socket = if to.is_ipv4() { TcpSocket::new_v4(stack) } else { TcpSocket::new_v6(stack) };
        socket.set_nonblocking(true);
        socket.connect(to).unwrap()
    }

    /// A connection from stack 0 to `addr` of stack 1.
    pub fn connected(&mut self, addr: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind_on(&self.stacks[1], addr).unwrap();
        listener.set_nonblocking(true).unwrap();
        let client = self.connect(addr);
        self.turn();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, server)
    }

    /// Sends a few bytes and lets `time` pass; whether they arrived.
    pub fn ping(&mut self, from: &mut TcpStream, to: &mut TcpStream, time: Duration) -> bool {
        from.write_all(b"hello").unwrap();
        self.pass(time);
        let mut bytes = [0; 64];
        match to.read(&mut bytes) {
            Ok(len) => bytes[..len].chunks(5).all(|word| word == b"hello"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }
}

/// Whatever else a test is about, no frame of it has made its stacks panic, and no assertion of a [`Port`] has failed.
impl Drop for Lab {
    fn drop(&mut self) {
        if !self.may_panic && !std::thread::panicking() {
            self.stacks.iter().for_each(common::assert_no_panics);
        }
    }
}

/// The type of a frame's payload.
pub fn ethertype(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[12], frame[13]])
}

/// A frame.
pub fn frame(to: MacAddr, from: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [to.0, from.0].concat();
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

/// The same packet of IPv6 behind the header of a fragment that is all of it.
pub fn in_a_fragment(mut frame: Vec<u8>) -> Vec<u8> {
    let (len_at, next_at) = (18, 20);
    let len = u16::from_be_bytes([frame[len_at], frame[len_at + 1]]) + 8;
    frame[len_at..next_at].copy_from_slice(&len.to_be_bytes());
    let next = std::mem::replace(&mut frame[next_at], 44);
    frame.splice(54..54, [next, 0, 0, 0, 0, 0, 0, 7]);
    frame
}

pub const ARP: u16 = 0x0806;
pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const ALL: MacAddr = MacAddr([0xff; 6]);
