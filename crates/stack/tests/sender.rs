//! Segments of a sender, one by one, of a stack with simulated time and a peer that the test controls.
#![forbid(unsafe_code)]

#[path = "common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tests of the Internet layer use the rest of it")]
#[path = "ip/host.rs"]
mod host;
#[allow(dead_code, reason = "the tests of waiting use the rest of it")]
#[path = "common/peer.rs"]
mod peer;

use std::io::Write;
use std::time::Duration;

use sockeye::{Config, TcpSocket, TcpStream};
use sockeye_proto::ip;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire::{self, ChecksumIn};

use crate::host::{Host, THEIRS};
use crate::peer::{ack_with, syn_ack_with};

const MSS: usize = 1460;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A connection, and the last segment that it has sent.
struct Sender {
    host: Host,
    stream: TcpStream,
    last: Vec<u8>,
}

impl Sender {
    /// To a peer that offers this window.
    fn new(window: u16) -> Self {
        Self::with(window, |_| {}, |_| {})
    }

    fn with(window: u16, config: impl FnOnce(&mut Config), socket: impl FnOnce(&mut TcpSocket)) -> Self {
        let mut host = Host::with(config);
        let mut opening = TcpSocket::new_v4(&host.stack);
        opening.set_nonblocking(true);
        socket(&mut opening);
        let stream = opening.connect(format!("{}:9", THEIRS[0]).parse().unwrap()).unwrap();
        let syn = host.turn().remove(0);
        host.pass(ms(20));
        syn_ack_with(&mut host, &syn, window);
        Self { host, stream, last: Vec::new() }
    }

    /// What has left: length, and whether it has PSH.
    fn seen(&mut self, sent: Vec<Vec<u8>>) -> Vec<(usize, bool)> {
        let seen = sent.iter().map(|packet| segment(packet)).map(|(header, len)| (len, is_pushed(&header)));
        let seen = seen.collect();
        self.last = sent.into_iter().last().unwrap_or(std::mem::take(&mut self.last));
        seen
    }

    fn write(&mut self, len: usize) -> Vec<(usize, bool)> {
        (&self.stream).write_all(&vec![7; len]).unwrap();
        self.turn()
    }

    fn turn(&mut self) -> Vec<(usize, bool)> {
        let sent = self.host.turn();
        self.seen(sent)
    }

    /// The peer acknowledges all that was sent, and offers this window. What leaves in turn.
    fn ack(&mut self, window: u16) -> Vec<(usize, bool)> {
        let sent = ack_with(&mut self.host, &self.last, window);
        self.seen(sent)
    }
}

/// A packet's header of TCP, and how much text it has.
fn segment(packet: &[u8]) -> (Header, usize) {
    let (_, range) = ip::parse(packet, ip::HeaderChecksum::Verify).unwrap();
    let (_, header, text) = wire::parse(&packet[range], ChecksumIn::Trusted).unwrap();
    (header, text.len())
}

fn is_pushed(header: &Header) -> bool {
    header.flags.has(Flags::PSH)
}

#[test]
fn psh_stands_at_the_end_of_a_write_and_after_half_of_the_largest_window() {
    let mut sender = Sender::new(20_000);
    // Runs of six segments, 8,760 bytes: two of them are more than half of the window.
    assert_eq!(sender.write(20_000), [(MSS, false); 10]);
    let rest = sender.ack(20_000);
    assert_eq!(rest, [(MSS, false), (MSS, true), (MSS, false), (1_020, true)]);
}

#[test]
fn writes_that_wait_together_have_one_psh() {
    let mut sender = Sender::new(u16::MAX);
    assert_eq!(sender.write(10), [(10, true)]);
    for _ in 0..3 {
        assert_eq!(sender.write(100), [], "Nagle's algorithm");
    }
    assert_eq!(sender.ack(u16::MAX), [(300, true)]);
}

#[test]
fn a_segment_that_is_sent_again_has_its_psh_again() {
    let mut sender = Sender::with(u16::MAX, |_| {}, |socket| socket.set_nodelay(true));
    assert_eq!(sender.write(MSS), [(MSS, true)]);
    assert_eq!(sender.write(2 * MSS), [(MSS, false), (MSS, true)]);
    let again = sender.host.pass(ms(400));
    assert_eq!(sender.seen(again)[0], (MSS, true));
}
