//! Packet memory that small segments hold while no reader takes them: a small multiple of the window, however a peer sends.

use std::io::Read;

use sockeye::{TcpSocket, TcpStream};
use sockeye_proto::ip;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header, Options};
use sockeye_proto::tcp::wire::{self, ChecksumIn, ChecksumOut, Ports};

use crate::host::{Host, OURS, THEIRS, between, packet};

/// Bytes of each stream. The window has room for them.
const LEN: u32 = 100_000;

/// A connection whose peer is the test.
struct Peer {
    host: Host,
    stream: TcpStream,
    ports: Ports,
    ack: SeqNum,
    /// Memory in use before the first byte.
    idle: usize,
}

/// The number of the peer's first byte.
const FIRST: u32 = 8;

impl Peer {
    fn new() -> Self {
        let mut host = Host::new();
        let mut socket = TcpSocket::new_v4(&host.stack);
        socket.set_nonblocking(true);
        let stream = socket.connect(format!("{}:80", THEIRS[0]).parse().unwrap()).unwrap();
        let syn = host.turn().remove(0);
        let (_, range) = ip::parse(&syn, ip::HeaderChecksum::Verify).unwrap();
        let (ports, syn, _) = wire::parse(&syn[range], ChecksumIn::Trusted).unwrap();
        let ports = Ports { src: ports.dst, dst: ports.src };
        let mut peer = Self { host, stream, ports, ack: syn.seq + 1, idle: 0 };
        let options = Options { mss: Some(1460), window_scale: Some(0), ..Options::default() };
        peer.send(Header { flags: Flags::SYN, options, ..peer.header(FIRST - 1) }, &[], 0);
        peer.idle = peer.host.stack.memory_in_use();
        peer
    }

    fn header(&self, seq: u32) -> Header {
        Header { seq: SeqNum::new(seq), ack: self.ack, window: u16::MAX, ..Header::default() }
    }

    /// Sends a segment in a frame that is longer by `padding`.
    fn send(&mut self, header: Header, text: &[u8], padding: usize) {
        let header = Header { flags: header.flags.with(Flags::ACK), ..header };
        let mut bytes = vec![0; wire::header_len(&header)];
        let addresses = between(THEIRS[0], OURS[0]);
        let sum = addresses.pseudo_header(ip::PROTOCOL_TCP, (bytes.len() + text.len()) as u32);
        wire::emit(self.ports, &header, ChecksumOut::Full(sum.add_bytes(text)), &mut bytes).unwrap();
        bytes.extend(text);
        let mut frame = packet(addresses, ip::PROTOCOL_TCP, &bytes);
        frame.resize(frame.len() + padding, 0xee);
        self.host.send(&frame);
    }

    /// Sends the bytes from `at` to `end` of the stream.
    fn send_text(&mut self, at: u32, end: u32, padding: usize) {
        let text: Vec<u8> = (at..end).map(byte).collect();
        self.send(self.header(FIRST + at), &text, padding);
    }

    /// The stream has arrived, holds at most `most` bytes of memory, and is read.
    fn holds(mut self, most: usize) {
        let held = self.host.stack.memory_in_use() - self.idle;
        let mut text = vec![0; LEN as usize + 1];
        assert_eq!(self.stream.read(&mut text).unwrap(), LEN as usize);
        assert!((0..LEN).all(|at| text[at as usize] == byte(at)));
        assert!(held <= most, "{held} bytes are held by {LEN}");
        assert_eq!(self.host.stack.memory_in_use(), self.idle);
    }
}

fn byte(at: u32) -> u8 {
    (at % 251) as u8
}

#[test]
fn single_bytes_hold_little_more_memory_than_their_number() {
    for padding in [0, 5, 120] {
        let mut peer = Peer::new();
        (0..LEN).for_each(|at| peer.send_text(at, at + 1, padding));
        peer.holds(2 * LEN as usize);
    }
}

#[test]
fn single_bytes_that_waited_for_others_do_so_too() {
    const GROUP: u32 = 1000;
    let mut peer = Peer::new();
    for start in (0..LEN).step_by(GROUP as usize) {
        (start + 1..start + GROUP).for_each(|at| peer.send_text(at, at + 1, 5));
        peer.send_text(start, start + 1, 5);
    }
    peer.holds(2 * LEN as usize);
}

#[test]
fn pieces_between_long_segments_do_so_too() {
    // A segment of 512 bytes fills a fourth of its cluster, and the byte behind it has one of its own.
    let mut peer = Peer::new();
    let mut at = 0;
    while at < LEN {
        for len in [512, 1] {
            let end = LEN.min(at + len);
            peer.send_text(at, end, 5);
            at = end;
        }
    }
    peer.holds(5 * LEN as usize);
}
