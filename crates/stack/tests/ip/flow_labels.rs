//! Flow labels of IPv6 packets (RFC 6437).

use std::io::{IoSlice, Write};
use std::time::Duration;

use sockeye::{Config, SendMeta, TcpListener, UdpSocket};
use sockeye_proto::icmp::{Family, Message};
use sockeye_proto::ip;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header, Options};
use sockeye_proto::tcp::wire::Ports;

use crate::host::{Host, OURS, THEIRS, icmp, inwards};
use crate::segments::{connecting, segment_of, syn_ack};

fn labels(packets: &[Vec<u8>]) -> Vec<u32> {
    let label = |packet: &Vec<u8>| ip::parse(packet, ip::HeaderChecksum::Verify).unwrap().0.flow_label;
    packets.iter().map(label).collect()
}

/// The labels of a connection's packets: its SYN, the acknowledgment that ends the handshake, text, and that text by three timeouts.
fn of_a_connection(change: impl FnOnce(&mut Config), to: &str) -> Vec<u32> {
    let mut host = Host::with(change);
    let (mut stream, syn) = connecting(&mut host, to);
    let mut sent = labels(std::slice::from_ref(&syn));
    sent.extend(labels(&host.send(&syn_ack(&syn))));
    stream.write_all(b"text").unwrap();
    sent.extend(labels(&host.turn()));
    sent.extend(labels(&host.pass(Duration::from_millis(2_000))));
    sent
}

#[test]
fn the_packets_of_a_connection_have_one_label_until_a_timeout() {
    let sent = of_a_connection(|_| {}, "[fd09::2]:9");
    assert!(sent.len() >= 6, "{sent:?}");
    let (before, after) = sent.split_at(3);
    assert!(before.iter().all(|label| *label == before[0] && *label != 0), "{sent:?}");
    assert_ne!(after[0], before[0], "{sent:?}");
    assert_ne!(after[1], after[0], "{sent:?}");
}

#[test]
fn labels_stay_without_txrehash_and_are_none_without_auto_flowlabels_or_over_ipv4() {
    let sent = of_a_connection(|config| config.tcp.txrehash = false, "[fd09::2]:9");
    assert!(sent.iter().all(|label| *label == sent[0] && *label != 0), "{sent:?}");
    let none = |sent: Vec<u32>| assert!(sent.len() >= 6 && sent.iter().all(|label| *label == 0), "{sent:?}");
    none(of_a_connection(|config| config.auto_flowlabels = false, "[fd09::2]:9"));
    none(of_a_connection(|_| {}, "10.9.0.2:9"));
}

#[test]
fn a_syn_that_is_repeated_asks_for_another_path() {
    let mut host = Host::new();
    let (_stream, syn) = connecting(&mut host, "[fd09::2]:9");
    let mut sent = labels(&[syn]);
    sent.extend(labels(&host.pass(Duration::from_millis(3_500))));
    assert_eq!(sent.len(), 3);
    assert!(sent[0] != sent[1] && sent[1] != sent[2], "{sent:?}");
}

#[test]
fn a_connection_goes_on_with_the_label_of_the_syn_ack_that_has_arrived() {
    let mut host = Host::new();
    let listener = TcpListener::bind_on(&host.stack, format!("[{}]:80", OURS[1])).unwrap();
    let ports = Ports { src: 9, dst: 80 };
    let options = Options { mss: Some(1400), ..Options::default() };
    let syn = Header { seq: SeqNum::new(7), flags: Flags::SYN, window: 9000, options, ..Header::default() };
    let syn_acks = host.send(&segment_of(inwards(Family::V6), ports, &syn));
    let again = host.pass(Duration::from_millis(1_200));
    let (first, second) = (labels(&syn_acks), labels(&again));
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
    let (_, range) = ip::parse(&again[0], ip::HeaderChecksum::Verify).unwrap();
    let iss = SeqNum::new(u32::from_be_bytes(again[0][range.start + 4..range.start + 8].try_into().unwrap()));
    let ack =
        Header { seq: SeqNum::new(8), ack: iss + 1, flags: Flags::ACK, window: 9000, ..Header::default() };
    // What is not acceptable is answered by the same path.
    let reset = Header { seq: SeqNum::new(9), flags: Flags::RST.with(Flags::ACK), ..ack };
    assert_eq!(labels(&host.send(&segment_of(inwards(Family::V6), ports, &reset))), second);
    assert!(host.send(&segment_of(inwards(Family::V6), ports, &ack)).is_empty());
    listener.set_nonblocking(true).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"text").unwrap();
    assert_eq!(labels(&host.turn()), second);
}

#[test]
fn datagrams_and_echoes_of_one_flow_have_one_label() {
    let mut host = Host::new();
    let socket = UdpSocket::bind_on(&host.stack, "[::]:0").unwrap();
    let mut send = |port: u16| {
        let to = format!("[{}]:{port}", THEIRS[1]).parse().unwrap();
        socket.send_msg(&[IoSlice::new(b"text")], &SendMeta::to(to)).unwrap();
        labels(&host.turn())
    };
    let (first, again, other) = (send(9), send(9), send(10));
    assert!(first == again && first != other && first != [0], "{first:?} {again:?} {other:?}");
    let mut echo = |seq| {
        let answers = host.send(&icmp(inwards(Family::V6), Message::EchoRequest { id: 3, seq }, b"data"));
        labels(&answers)
    };
    let (first, again) = (echo(1), echo(2));
    assert!(first == again && first != [0], "{first:?} {again:?}");
}
