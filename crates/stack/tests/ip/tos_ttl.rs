//! DSCP and hop limit of a connection's segments.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use sockeye::TcpSocket;
use sockeye_proto::icmp::Family;
use sockeye_proto::ip;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire::Ports;

use crate::host::{Host, OURS, inwards};
use crate::segments::{connecting, connecting_with, segment_of, syn_ack};

fn tos_ttl(packet: &[u8]) -> (u8, u8) {
    let (header, _) = ip::parse(packet, ip::HeaderChecksum::Verify).unwrap();
    (header.traffic_class, header.hop_limit)
}

#[test]
fn tos_and_ttl_of_a_socket_are_on_the_syn_and_change_with_the_stream_s() {
    for to in ["10.9.0.2:9", "[fd09::2]:9"] {
        let mut host = Host::new();
        let to: SocketAddr = to.parse().unwrap();
        let mut socket =
            if to.is_ipv4() { TcpSocket::new_v4(&host.stack) } else { TcpSocket::new_v6(&host.stack) };
        // The bits of ECN are not the application's.
        socket.set_tos(0xbb);
        socket.set_ttl(3).unwrap();
        let (mut stream, syn) = connecting_with(&mut host, socket, to);
        assert_eq!(tos_ttl(&syn), (0xb8, 3));
        let answers = host.send(&syn_ack(&syn));
        assert_eq!(tos_ttl(&answers[0]), (0xb8, 3));
        assert_eq!((stream.tos().unwrap(), stream.ttl().unwrap()), (0xb8, 3));
        stream.set_tos(0x20).unwrap();
        stream.set_ttl(255).unwrap();
        stream.write_all(b"text").unwrap();
        assert_eq!(tos_ttl(&host.turn()[0]), (0x20, 255));
        for wrong in [0, 256, u32::MAX] {
            assert!(stream.set_ttl(wrong).is_err());
        }
        assert_eq!(stream.ttl().unwrap(), 255);
    }
}

#[test]
fn a_connection_without_settings_has_the_default_tos_and_ttl() {
    let mut host = Host::new();
    let (stream, syn) = connecting(&mut host, "10.9.0.2:9");
    assert_eq!((tos_ttl(&syn), stream.tos().unwrap(), stream.ttl().unwrap()), ((0, 64), 0, 64));
}

#[test]
fn syn_acks_have_the_listener_s_tos_and_ttl() {
    for (family, ours) in [(Family::V4, OURS[0]), (Family::V6, OURS[1])] {
        let mut host = Host::new();
        let mut socket = match family {
            Family::V4 => TcpSocket::new_v4(&host.stack),
            Family::V6 => TcpSocket::new_v6(&host.stack),
        };
        socket.set_tos(0xb8);
        socket.set_ttl(255).unwrap();
        socket.bind(SocketAddr::new(ours.parse().unwrap(), 80)).unwrap();
        let listener = socket.listen(5).unwrap();
        let header = Header { seq: SeqNum::new(7), flags: Flags::SYN, window: 9000, ..Header::default() };
        let mut answers = host.send(&segment_of(inwards(family), Ports { src: 9, dst: 80 }, &header));
        answers.extend(host.pass(Duration::from_millis(1_100)));
        let found: Vec<_> = answers.iter().map(|packet| tos_ttl(packet)).collect();
        assert_eq!(found, [(0xb8, 255); 2]);
        // Of those that are repeated from now on.
        listener.set_ttl(30).unwrap();
        let again = host.pass(Duration::from_millis(2_000));
        assert_eq!(again.iter().map(|packet| tos_ttl(packet)).collect::<Vec<_>>(), [(0xb8, 30)]);
    }
}
