//! Floods of ICMP errors, and of packets that cause errors: sockets keep working, and answers keep their rate. Floods of
//! fragments: `fragments.rs`.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use sockeye::{IcmpSocket, TcpStream, UdpSocket};
use sockeye_proto::icmp::{Error, Family, Message, Unreachable};
use sockeye_proto::ip::{self, PROTOCOL_UDP};

use crate::host::{Host, THEIRS, between, icmp, inwards, packet};
use crate::segments::{connecting, syn_ack};

const FAMILIES: [(Family, &str, &str); 2] =
    [(Family::V4, "0.0.0.0:0", "10.9.0.2:9"), (Family::V6, "[::]:0", "[fd09::2]:9")];
/// Errors of each kind about each packet.
const ROUNDS: u32 = 200;
/// The kinds of errors.
const KINDS: [Error; 6] = [
    Error::Unreachable(Unreachable::Host),
    Error::Unreachable(Unreachable::Port),
    Error::PacketTooBig(600),
    Error::HopLimitExceeded,
    Error::ReassemblyTimeExceeded,
    Error::ParameterProblem(sockeye_proto::icmp::Problem::Field, 4),
];

/// A connection, a datagram socket and an echo socket, all with the other side as their peer; and a packet of each.
fn sockets(
    host: &mut Host,
    family: Family,
    any: &str,
    to: &str,
) -> (TcpStream, UdpSocket, IcmpSocket, [Vec<u8>; 3]) {
    let (mut stream, syn) = connecting(host, to);
    host.send(&syn_ack(&syn));
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"some text").unwrap();
    let segment = host.turn().remove(0);
    let udp = UdpSocket::bind_on(&host.stack, any).unwrap();
    udp.set_nonblocking(true).unwrap();
    udp.connect(to).unwrap();
    udp.send(b"datagram").unwrap();
    let datagram = host.turn().remove(0);
    let ping = IcmpSocket::bind_on(&host.stack, inwards(family).dst()).unwrap();
    ping.set_nonblocking(true).unwrap();
    ping.send_to(1, b"there?", inwards(family).src()).unwrap();
    let echo = host.turn().remove(0);
    (stream, udp, ping, [segment, datagram, echo])
}

/// The packet with a byte behind the IP header changed.
fn forged(packet: &[u8], at: usize, by: u8) -> Vec<u8> {
    let (_, range) = ip::parse(packet, ip::HeaderChecksum::Trusted).unwrap();
    let mut bytes = packet.to_vec();
    bytes[range.start + at] ^= by;
    bytes
}

#[test]
fn errors_that_quote_unsent_packets_change_nothing() {
    for (family, any, to) in FAMILIES {
        let mut host = Host::new();
        let (mut stream, udp, ping, [segment, datagram, echo]) = sockets(&mut host, family, any, to);
        let (mss, out) = (stream.info().unwrap().snd_mss, host.count("frames_out"));
        for round in 0..ROUNDS {
            let by = 1 + (round % 255) as u8;
            // Another number than is outstanding; other ports; another identifier.
            let quotes = [
                forged(&segment, 4, by),
                forged(&segment, 3, by),
                forged(&datagram, 3, by),
                forged(&echo, 5, by),
            ];
            for (kind, quote) in KINDS.iter().flat_map(|kind| quotes.iter().map(move |quote| (kind, quote))) {
                host.send(&icmp(inwards(family), Message::Error(*kind), quote));
            }
        }
        let errors =
            ["icmp_in_dest_unreachs", "icmp_in_pkt_too_bigs", "icmp_in_time_excds", "icmp_in_parm_probs"];
        let heard: u64 = errors.iter().map(|name| host.count(name)).sum();
        assert_eq!(heard, u64::from(ROUNDS) * 4 * KINDS.len() as u64);
        assert_eq!((host.count("ip_path_mtu_learned"), host.count("frames_out")), (0, out));
        let info = stream.info().unwrap();
        assert_eq!((info.state, info.snd_mss), ("ESTABLISHED", mss));
        stream.write_all(b"more").unwrap();
        assert!(udp.take_error().unwrap().is_none() && ping.take_error().unwrap().is_none());
        assert_eq!(udp.path_mtu().unwrap(), 1500);
        udp.send(b"again").unwrap();
        ping.send_to(2, b"again", inwards(family).src()).unwrap();
        assert_eq!(host.turn().len(), 3, "all three go on");
    }
}

#[test]
fn errors_for_a_socket_fill_only_its_error_queue_and_each_fails_one_operation() {
    for (family, any, to) in FAMILIES {
        let mut host = Host::new();
        let (_stream, udp, _ping, [_, datagram, _]) = sockets(&mut host, family, any, to);
        udp.set_recv_err(true).unwrap();
        let error = icmp(inwards(family), Message::Error(KINDS[1]), &datagram);
        let before = host.stack.memory_in_use();
        (0..5000).for_each(|_| drop(host.send(&error)));
        assert!(host.stack.memory_in_use() - before <= 64 * 4096, "{}", host.stack.memory_in_use());
        assert_eq!(udp.send(b"?").unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let kept = std::iter::from_fn(|| udp.recv_err(&mut [0; 64])).count();
        assert_eq!(kept, 64);
        assert_eq!(host.stack.memory_in_use(), before);
        let _ = udp.take_error();
        udp.send(b"again").unwrap();
    }
}

#[test]
fn datagrams_to_closed_ports_are_answered_at_the_error_rate() {
    let mut host = Host::new();
    host.stack.add_route("10.9.0.0/16".parse().unwrap(), host.netif).unwrap();
    let (mut stream, syn) = connecting(&mut host, "10.9.0.2:9");
    host.send(&syn_ack(&syn));
    let mut answers = 0;
    for number in 0..20_000u32 {
        let src = format!("10.9.{}.{}", 1 + number / 200 % 200, 1 + number % 200);
        let answered = host.send(&packet(between(&src, "10.9.0.1"), PROTOCOL_UDP, &[0, 9, 0, 9, 0, 8, 0, 0]));
        answers += answered.len();
        host.now += Duration::from_micros(50);
    }
    // A thousand in this second, and fifty at once before; each costs a token on average.
    assert!((900..=1180).contains(&answers), "{answers} answers");
    let refused = host.count("icmp_out_rate_limit_global") + host.count("icmp_out_rate_limit_host");
    assert_eq!(refused + answers as u64, 20_000);
    stream.write_all(b"text").unwrap();
    let sent = host.turn();
    assert_eq!(
        (sent.len(), &sent[0][16..20]),
        (1, &THEIRS[0].parse::<std::net::Ipv4Addr>().unwrap().octets()[..])
    );
}
