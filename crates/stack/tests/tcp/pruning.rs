//! Data behind holes is discarded for any caller that is refused packet memory, for every use of the memory.
//!
//! A server without threads receives its frames from another stack through a channel. The channel's frames occupy packet
//! memory of the server before it processes them, so no frame that has arrived is ever refused memory.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::common::counter;
use sockeye::netif::{ChannelConfig, ChannelPort, FrameBytes, SendError, TxFrame, channel};
use sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream, UdpBuilder};

const MS: Duration = Duration::from_millis(1);
/// Parallel streams. Each has some hundred kilobytes in flight behind its hole.
const STREAMS: usize = 8;
/// Bytes of each before its hole, in which the windows grow, and in all.
const BEFORE: usize = 256 << 10;
const LEN: usize = 2 << 20;

/// A client's streams to a server, and the code that carries their frames.
struct Carrier {
    client: (Stack, ChannelPort),
    server: (Stack, ChannelPort),
    streams: Vec<(TcpStream, TcpStream)>,
    written: Vec<usize>,
    read: Vec<usize>,
    now: Duration,
    /// By the client's port: the number behind all that it has sent, and the number that never arrives.
    next: HashMap<u16, u32>,
    holes: HashMap<u16, u32>,
    /// The channel into the server has refused a frame.
    was_refused: bool,
}

/// A stack without threads, and the port into it.
fn driven(addr: &str, memory_max: usize) -> (Stack, ChannelPort) {
    let (netif, mut ports) = channel(&ChannelConfig::default()).unwrap();
    let config = Config { workers: 0, memory_max, rcvbuf: 4 << 20, sndbuf: 4 << 20, ..Config::default() };
    let stack = Stack::new(config).unwrap();
    stack.attach(netif, &[addr.parse().unwrap()]).unwrap();
    (stack, ports.remove(0))
}

/// Source port, number and text length of a segment over IPv4.
fn segment(frame: &[u8]) -> (u16, u32, u32) {
    let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let header_len = 20 + usize::from(frame[32] >> 4) * 4;
    ((word(20) >> 16) as u16, word(24), (frame.len() - header_len) as u32)
}

impl Carrier {
    /// Streams on which [`BEFORE`] bytes have arrived.
    fn new() -> Self {
        let mut carrier = Self {
            client: driven("10.9.0.1/24", 256 << 20),
            server: driven("10.9.0.2/24", 2 << 20),
            streams: Vec::new(),
            written: vec![0; STREAMS],
            read: vec![0; STREAMS],
            now: MS,
            next: HashMap::new(),
            holes: HashMap::new(),
            was_refused: false,
        };
        let listener = TcpListener::bind_on(&carrier.server.0, "10.9.0.2:7").unwrap();
        listener.set_nonblocking(true).unwrap();
        for _ in 0..STREAMS {
            let mut socket = TcpSocket::new_v4(&carrier.client.0);
            socket.set_nonblocking(true);
            let client = socket.connect("10.9.0.2:7".parse().unwrap()).unwrap();
            let server = loop {
                carrier.step(usize::MAX);
                if let Ok((server, _)) = listener.accept() {
                    break server;
                }
            };
            server.set_nonblocking(true).unwrap();
            carrier.streams.push((client, server));
        }
        carrier.transfer(BEFORE);
        carrier
    }

    /// A millisecond: applications, then frames in both directions; into the server only while it uses less than
    /// `memory_max`.
    fn step(&mut self, memory_max: usize) {
        self.now += MS;
        for (i, (_, server)) in self.streams.iter_mut().enumerate() {
            let mut buf = [0; 32 << 10];
            while let Ok(got @ 1..) = server.read(&mut buf) {
                self.read[i] += got;
            }
        }
        for _ in 0..2 {
            self.client.0.poll(self.now);
            self.server.0.poll(self.now);
            while let Some(frame) = self.server.1.try_recv() {
                assert_eq!(give(&self.client.1, &frame), Ok(()));
            }
            while let Some(frame) = self.client.1.try_recv() {
                let (port, seq, len) = segment(&bytes(&frame));
                let next = self.next.entry(port).or_insert(seq);
                *next = next.wrapping_add(
                    seq.wrapping_add(len).wrapping_sub(*next).cast_signed().max(0).cast_unsigned(),
                );
                let hole = self.holes.get(&port);
                let is_lost = hole.is_some_and(|hole| hole.wrapping_sub(seq) < len);
                if is_lost || self.server.0.memory_in_use() >= memory_max {
                    continue;
                }
                match give(&self.server.1, &frame) {
                    Ok(()) => {}
                    Err(SendError::Full) => self.was_refused = true,
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    }

    /// Lets `upto` bytes of each stream be written.
    fn write(&mut self, upto: usize) {
        for (written, (client, _)) in self.written.iter_mut().zip(&mut self.streams) {
            while *written < upto {
                match client.write(&vec![7; (upto - *written).min(32 << 10)]) {
                    Ok(taken) => *written += taken,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        break;
                    }
                }
            }
        }
    }

    /// Runs until `upto` bytes of each stream have been read.
    fn transfer(&mut self, upto: usize) {
        for _ in 0..200_000 {
            self.write(upto);
            self.step(usize::MAX);
            if self.read.iter().all(|read| *read == upto) {
                return;
            }
        }
        panic!("a transfer that does not end: {:?} of {upto}", self.read);
    }

    /// Drops the next byte of each stream, and delivers the bytes behind it until the server uses `memory_max`.
    fn fill(&mut self, memory_max: usize) {
        self.holes.clone_from(&self.next);
        self.write(LEN);
        for _ in 0..100 {
            self.step(memory_max);
        }
    }

    /// The holes are filled, and everything arrives after all.
    fn heal(mut self) {
        self.holes.clear();
        self.transfer(LEN);
        assert_eq!(counter(&self.server.0, "frames_no_memory"), 0);
    }

    fn pruned(&self) -> u64 {
        counter(&self.server.0, "ofo_pruned")
    }
}

fn bytes(frame: &TxFrame) -> Vec<u8> {
    let mut bytes = vec![0; frame.len()];
    frame.copy_to(&mut bytes);
    bytes
}

fn give(to: &ChannelPort, frame: &TxFrame) -> Result<(), SendError> {
    to.try_send(FrameBytes { bytes: &bytes(frame), checksum: frame.checksum, gso_size: frame.gso_size })
}

#[test]
fn a_channel_that_is_refused_memory_prunes_data_behind_holes() {
    let _guard = crate::common::watchdog("channel");
    let mut carrier = Carrier::new();
    carrier.fill(usize::MAX);
    assert!(carrier.was_refused && carrier.pruned() > 0, "{:?}", carrier.server.0.counters());
    carrier.heal();
}

/// Fills the server up to a little below its cap, then lets `take` take memory of it until it is refused some, and time pass.
fn refused_to(take: impl Fn(&Stack) -> std::io::Error) {
    let mut carrier = Carrier::new();
    carrier.fill(1_500_000);
    assert!(!carrier.was_refused && carrier.pruned() == 0);
    let error = take(&carrier.server.0);
    assert!(matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::WouldBlock), "{error}");
    for _ in 0..20 {
        carrier.step(0);
    }
    assert!(carrier.pruned() > 0, "{:?}", carrier.server.0.counters());
    carrier.heal();
}

/// Calls `write` until it fails, and returns the error.
fn until_refused(mut write: impl FnMut() -> std::io::Result<usize>) -> std::io::Error {
    (0..10_000).find_map(|_| write().err()).expect("memory that never runs out")
}

#[test]
fn a_loopback_writer_that_is_refused_memory_prunes_data_behind_holes() {
    let _guard = crate::common::watchdog("loopback");
    refused_to(|stack| {
        let listener = TcpListener::bind_on(stack, "127.0.0.1:9").unwrap();
        let mut socket = TcpSocket::new_v4(stack);
        socket.set_nonblocking(true);
        let mut client = socket.connect("127.0.0.1:9".parse().unwrap()).unwrap();
        let (_server, _) = listener.accept().unwrap();
        until_refused(|| client.write(&[0; 30_000]))
    });
}

#[test]
fn a_unix_socket_that_is_refused_memory_prunes_data_behind_holes() {
    let _guard = crate::common::watchdog("unix");
    refused_to(|stack| {
        let pairs: Vec<_> = (0..32).map(|_| sockeye::unix::UnixStream::pair_on(stack).unwrap()).collect();
        let fill = |stream: &sockeye::unix::UnixStream| {
            stream.set_nonblocking(true).unwrap();
            until_refused(|| {
                let mut stream = stream;
                stream.write(&[0; 30_000])
            })
        };
        let errors: Vec<_> = pairs.iter().map(|(stream, _)| fill(stream)).collect();
        errors.into_iter().find(|error| error.kind() == ErrorKind::OutOfMemory).expect("a full pool")
    });
}

#[test]
fn a_datagram_that_is_refused_memory_prunes_data_behind_holes() {
    let _guard = crate::common::watchdog("udp");
    refused_to(|stack| {
        let socket =
            UdpBuilder::new_v4(stack).recv_buffer_size(4 << 20).bind("127.0.0.1:9".parse().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        until_refused(|| socket.send_to(&[0; 30_000], "127.0.0.1:9"))
    });
}
