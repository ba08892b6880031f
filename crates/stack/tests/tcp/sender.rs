//! Segments of a sender, one by one, of a stack with simulated time and a peer that the test controls.

use std::io::{IoSlice, Write};
use std::time::Duration;

use sockeye::netif::Medium;
use sockeye::{Config, CongestionControl, MbufChain, SendFlags, TcpSocket, TcpStream};
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
        let mut host = Host::on(Medium::Ip, true, config);
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

    fn send(&mut self, len: usize, flags: SendFlags) -> Vec<(usize, bool)> {
        assert_eq!(self.stream.send_with(&[IoSlice::new(&vec![7; len])], flags).unwrap(), len);
        self.turn()
    }

    fn pass(&mut self, time: Duration) -> Vec<(usize, bool)> {
        let sent = self.host.pass(time);
        self.seen(sent)
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
fn psh_stands_at_the_end_of_a_write_and_after_half_of_the_largest_window_and_behind_two_segments() {
    let mut sender = Sender::new(20_000);
    // Two segments leave together: more than a millisecond's worth of a window in 20 ms.
    assert_eq!(sender.write(20_000), [(MSS, false), (MSS, true)].repeat(5));
    // Runs of six segments, 8,760 bytes: two of them are more than half of the window.
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
    assert_eq!(sender.write(3 * MSS), [(MSS, false), (MSS, true), (MSS, true)]);
    assert_eq!(sender.pass(ms(400))[0], (MSS, true));
}

#[test]
fn a_packet_that_is_sent_again_whole_has_psh_at_its_end_and_a_part_of_one_segment_has_none() {
    let mut sender = Sender::new(u16::MAX);
    assert_eq!(sender.write(9 * MSS)[..8], [(MSS, false), (MSS, true)].repeat(4));
    // The window is one segment then, and grows by each that is acknowledged.
    assert_eq!(sender.pass(ms(400)), [(MSS, false)]);
    assert_eq!(sender.ack(u16::MAX), [(MSS, false); 2]);
    let rest = sender.ack(u16::MAX);
    assert_eq!(rest[..3], [(MSS, false), (MSS, false), (MSS, true)], "the fifth and sixth: {rest:?}");
}

#[test]
fn a_corked_connection_sends_full_segments_and_the_rest_when_it_is_uncorked_or_after_a_timeout() {
    let mut sender = Sender::with(u16::MAX, |_| {}, |socket| socket.set_nodelay(true));
    sender.stream.set_cork(true).unwrap();
    assert!(sender.stream.cork().unwrap());
    assert_eq!(sender.write(100), []);
    assert_eq!(sender.write(MSS), [(MSS, false)]);
    assert_eq!(sender.ack(u16::MAX), []);
    sender.stream.set_cork(false).unwrap();
    assert_eq!(sender.turn(), [(100, true)]);
    sender.ack(u16::MAX);
    sender.stream.set_cork(true).unwrap();
    assert_eq!(sender.write(50), []);
    assert_eq!(sender.pass(ms(150)), []);
    assert_eq!(sender.pass(ms(150)), [(50, true)], "as Linux does after a timeout");
    sender.ack(u16::MAX);
    sender.stream.set_nodelay(false).unwrap();
    assert_eq!(sender.write(60), []);
    sender.stream.set_nodelay(true).unwrap();
    assert_eq!(sender.turn(), [(60, true)], "what is there is pushed");
    assert_eq!(sender.write(70), [], "and the cork stays");
}

#[test]
fn more_to_come_holds_a_short_segment_until_the_next_send() {
    let mut sender = Sender::with(u16::MAX, |_| {}, |socket| socket.set_nodelay(true));
    assert_eq!(sender.send(100, SendFlags::MORE), []);
    assert_eq!(sender.send(160, SendFlags::MORE), []);
    assert_eq!(sender.send(5, SendFlags::NONE), [(265, true)]);
    assert_eq!(sender.send(MSS + 40, SendFlags::MORE), [(MSS, false)]);
    assert_eq!(sender.ack(u16::MAX), [(40, false)], "an acknowledgment lets it go");
    sender.ack(u16::MAX);
    assert_eq!(sender.send(40, SendFlags::MORE), []);
    assert_eq!(sender.pass(ms(300)), [(40, true)], "or a timeout");
}

#[test]
fn no_segment_crosses_the_end_of_a_record() {
    let mut sender = Sender::new(u16::MAX);
    assert_eq!(sender.write(10 * MSS), [(MSS, false), (MSS, true)].repeat(5));
    for len in [400, 300] {
        assert_eq!(sender.send(len, SendFlags::EOR), []);
    }
    assert_eq!(sender.write(500), []);
    assert_eq!(sender.ack(u16::MAX), [(400, true), (300, true)], "the last waits for company");
    let again = sender.pass(ms(2_000));
    assert!(again.contains(&(400, true)) && !again.contains(&(700, true)), "{again:?}");
}

#[test]
fn a_packet_of_a_zero_copy_send_has_at_most_seventeen_parts() {
    let mut sender = Sender::new(u16::MAX);
    sender.stream.set_zerocopy(true).unwrap();
    let slices = [IoSlice::new(&[7]); 40];
    let zerocopy = SendFlags::ZEROCOPY;
    assert_eq!(sender.stream.send_with(&slices, zerocopy).unwrap(), 40);
    // The last waits for the others by Nagle's algorithm, as a record does not.
    assert_eq!(sender.turn(), [(17, true), (17, true)]);
    assert_eq!(sender.ack(u16::MAX), [(6, true)]);
    sender.ack(u16::MAX);
    let mut chain = MbufChain::new();
    for _ in 0..18 {
        chain.append(MbufChain::copied(&sender.host.stack, &[7; 10]).unwrap());
    }
    assert_eq!(sender.stream.send_mbufs_with(&mut chain, zerocopy).unwrap(), 180);
    assert_eq!((sender.turn(), sender.ack(u16::MAX)), (vec![(170, true)], vec![(10, true)]));
    sender.ack(u16::MAX);
    // Without the flag or the option parts do not matter.
    assert_eq!(sender.stream.send_with(&slices, SendFlags::NONE).unwrap(), 40);
    assert_eq!(sender.turn(), [(40, true)]);
    sender.ack(u16::MAX);
    sender.stream.set_zerocopy(false).unwrap();
    assert_eq!(sender.stream.send_with(&slices, zerocopy).unwrap(), 40);
    assert_eq!(sender.turn(), [(40, true)]);
}

#[test]
fn maxseg_bounds_what_is_announced_and_sent() {
    let mut sender = Sender::with(u16::MAX, |_| {}, |socket| socket.set_maxseg(1_000).unwrap());
    assert_eq!(sender.stream.maxseg().unwrap(), 1_000);
    assert_eq!(sender.write(1_500), [(1_000, false), (500, true)]);
    let stack = Host::new().stack.clone();
    let mut socket = TcpSocket::new_v4(&stack);
    for wrong in [1, 87, 32_768] {
        let invalid = rustix::io::Errno::INVAL.raw_os_error();
        assert_eq!(socket.set_maxseg(wrong).unwrap_err().raw_os_error(), Some(invalid));
    }
}

#[test]
fn congestion_control_changes_under_a_connection_and_keeps_the_window() {
    let mut sender = Sender::with(
        u16::MAX,
        |_| {},
        |socket| {
            socket.set_congestion_control(CongestionControl::NewReno);
        },
    );
    sender.write(20 * MSS);
    sender.ack(u16::MAX);
    let cwnd = sender.stream.info().unwrap().cwnd;
    sender.stream.set_congestion_control(CongestionControl::Cubic).unwrap();
    assert_eq!(sender.stream.congestion_control().unwrap(), CongestionControl::Cubic);
    assert_eq!(sender.stream.info().unwrap().cwnd, cwnd);
    // The peer has no SACK, which BBR needs.
    sender.stream.set_congestion_control(CongestionControl::Bbr).unwrap();
    assert_eq!(sender.stream.congestion_control().unwrap(), CongestionControl::Cubic);
}

#[test]
fn a_pacing_rate_is_read_back_and_refused_at_zero() {
    let sender = Sender::new(u16::MAX);
    assert_eq!(sender.stream.max_pacing_rate().unwrap(), None);
    sender.stream.set_max_pacing_rate(Some(100_000)).unwrap();
    assert_eq!(sender.stream.max_pacing_rate().unwrap(), Some(100_000));
    assert!(sender.stream.set_max_pacing_rate(Some(0)).is_err());
    sender.stream.set_max_pacing_rate(None).unwrap();
    assert_eq!(sender.stream.max_pacing_rate().unwrap(), None);
}
