//! Sockets for echo requests: over the loopback, over an interface, and the errors that they get.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sockeye::{IcmpSocket, UdpSocket, Unsent};
use sockeye_proto::icmp::{Error, Family, Message, Unreachable};

use crate::host::{Host, OURS, THEIRS, icmp, inwards, read_icmp};

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn socket(host: &Host, any: &str) -> IcmpSocket {
    let socket = IcmpSocket::bind_on(&host.stack, addr(any)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The family, its wildcard, and its place among the host's addresses.
const FAMILIES: [(Family, &str, usize); 2] = [(Family::V4, "0.0.0.0", 0), (Family::V6, "::", 1)];

#[test]
fn a_request_to_an_own_address_is_answered_over_the_loopback() {
    let host = Host::new();
    for (dst, any) in [("127.0.0.1", "0.0.0.0"), ("::1", "::"), (OURS[0], "0.0.0.0"), (OURS[1], "::")] {
        let ping = socket(&host, any);
        for (seq, len) in [(1, 0), (2, 56), (65_535, 60_000)] {
            let data: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            ping.send_to(seq, &data, addr(dst)).unwrap();
            let mut buf = vec![0; 65_536];
            let reply = ping.recv(&mut buf).unwrap();
            assert_eq!((reply.from, reply.dst, reply.seq), (addr(dst), addr(dst), seq));
            assert_eq!((&buf[..reply.len], reply.data_len), (&data[..], len));
        }
        assert_eq!(ping.recv(&mut []).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    assert_eq!((host.count("icmp_out_echos"), host.count("icmp_in_echo_reps")), (12, 12));
    assert_eq!((host.count("icmp_in_echo_drops"), host.stack.memory_in_use()), (0, 0));
}

#[test]
fn requests_to_an_own_address_are_all_answered() {
    let host = Host::new();
    let ping = socket(&host, "0.0.0.0");
    for seq in 0..2000 {
        ping.send_to(seq, b"x", addr("127.0.0.1")).unwrap();
        assert_eq!(ping.recv(&mut [0; 8]).unwrap().seq, seq);
    }
}

#[test]
fn answers_arrive_only_at_the_socket_that_sent_the_request() {
    for (family, any, at) in FAMILIES {
        let mut host = Host::new();
        let (one, other) = (socket(&host, any), socket(&host, any));
        assert_ne!(one.id(), other.id());
        one.set_ttl(7).unwrap();
        one.set_tos(0x20).unwrap();
        one.send_to(3, b"ask", addr(THEIRS[at])).unwrap();
        let sent = host.turn();
        let (addresses, message, data) = read_icmp(&sent[0]);
        assert_eq!(addresses, inwards(family).reversed());
        assert_eq!((message, &data[..]), (Message::EchoRequest { id: one.id(), seq: 3 }, &b"ask"[..]));
        let (hops, class) = match family {
            Family::V4 => (sent[0][8], sent[0][1]),
            Family::V6 => (sent[0][7], sent[0][0] << 4 | sent[0][1] >> 4),
        };
        assert_eq!((hops, class), (7, 0x20));

        let answer = Message::EchoReply { id: one.id(), seq: 3 };
        host.send(&icmp(inwards(family), answer, b"answer"));
        let mut buf = [0; 3];
        let reply = one.recv(&mut buf).unwrap();
        assert_eq!((reply.from, reply.seq, reply.len, reply.data_len), (addr(THEIRS[at]), 3, 3, 6));
        assert_eq!((&buf, reply.hop_limit), (b"ans", 64));
        assert_eq!(other.recv(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);

        // Of a socket that is closed, and of one with another peer.
        let id = one.id();
        drop(one);
        host.send(&icmp(inwards(family), Message::EchoReply { id, seq: 3 }, b""));
        other.connect(addr(OURS[at])).unwrap();
        host.send(&icmp(inwards(family), Message::EchoReply { id: other.id(), seq: 3 }, b""));
        assert_eq!(host.count("icmp_in_echo_drops"), 2);
        assert_eq!(other.recv(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn an_error_that_quotes_a_request_is_reported_with_its_sequence_number_and_data() {
    for (family, any, at) in FAMILIES {
        for (error, what) in [
            (Error::HopLimitExceeded, Unsent::TimeExceeded),
            (Error::Unreachable(Unreachable::Host), Unsent::HostUnreachable),
            (Error::PacketTooBig(1400), Unsent::TooBig { mtu: 1400 }),
        ] {
            let mut host = Host::new();
            let ping = socket(&host, any);
            ping.send_to(77, b"quoted", addr(THEIRS[at])).unwrap();
            let sent = host.turn().remove(0);
            host.send(&icmp(inwards(family), Message::Error(error), &sent));
            assert!(ping.recv(&mut []).is_err(), "{family:?} {error:?}");
            let mut buf = [0; 16];
            let report = ping.recv_err(&mut buf).unwrap();
            assert_eq!((report.what, report.seq, report.dst), (what, 77, addr(THEIRS[at])));
            assert_eq!((report.offender, &buf[..report.len]), (addr(THEIRS[at]), &b"quoted"[..]));
            assert_eq!(ping.recv_err(&mut buf), None);
            assert_eq!(ping.recv(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }
}

/// As on Linux.
#[test]
fn a_prohibition_has_an_error_of_its_own_only_over_ipv6() {
    let prohibited = Message::Error(Error::Unreachable(Unreachable::Prohibited));
    for (family, any, at) in FAMILIES {
        let errno = match family {
            Family::V4 => rustix::io::Errno::HOSTUNREACH,
            Family::V6 => rustix::io::Errno::ACCESS,
        };
        let mut host = Host::new();
        let ping = socket(&host, any);
        ping.send_to(1, b"", addr(THEIRS[at])).unwrap();
        let sent = host.turn().remove(0);
        host.send(&icmp(inwards(family), prohibited, &sent));
        assert_eq!(ping.recv(&mut []).unwrap_err().raw_os_error(), Some(errno.raw_os_error()));
        let report = ping.recv_err(&mut []).unwrap();
        assert_eq!((report.what, report.errno), (Unsent::Prohibited, errno.raw_os_error()));
        let udp = UdpSocket::bind_on(&host.stack, SocketAddr::new(addr(any), 0)).unwrap();
        udp.set_nonblocking(true).unwrap();
        udp.connect(SocketAddr::new(addr(THEIRS[at]), 9)).unwrap();
        udp.send(b"").unwrap();
        let sent = host.turn().remove(0);
        host.send(&icmp(inwards(family), prohibited, &sent));
        assert_eq!(udp.recv(&mut []).unwrap_err().raw_os_error(), Some(errno.raw_os_error()));
    }
}

#[test]
fn errors_that_quote_unsent_requests_change_nothing() {
    let mut host = Host::new();
    let ping = socket(&host, "0.0.0.0");
    let quote = |id, len: usize| {
        let whole = icmp(inwards(Family::V4).reversed(), Message::EchoRequest { id, seq: 1 }, b"data");
        whole[..len].to_vec()
    };
    let error = Message::Error(Error::HopLimitExceeded);
    for quoted in [quote(ping.id() ^ 1, 32), quote(ping.id(), 27), quote(ping.id(), 19), Vec::new()] {
        host.send(&icmp(inwards(Family::V4), error, &quoted));
    }
    assert_eq!(ping.recv_err(&mut []), None);
    assert_eq!(ping.recv(&mut []).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_refused_send_names_its_reason() {
    let host = Host::new();
    let ping = socket(&host, "0.0.0.0");
    assert_eq!(ping.send(1, b"").unwrap_err().raw_os_error(), Some(89), "no destination");
    let send = |to: &str| ping.send_to(1, b"", addr(to)).unwrap_err();
    assert_eq!(send("::1").raw_os_error(), Some(97), "another family");
    assert_eq!(send("10.9.0.255").kind(), ErrorKind::PermissionDenied);
    assert_eq!(send("198.51.100.1").kind(), ErrorKind::NetworkUnreachable);
    let long = ping.send_to(1, &vec![0; 65_508], addr("127.0.0.1"));
    assert_eq!(long.unwrap_err().raw_os_error(), Some(90));
    assert!(IcmpSocket::bind_on(&host.stack, addr("198.51.100.1")).is_err());
    assert!(ping.set_ttl(0).is_err() && ping.set_ttl(256).is_err());
}

#[test]
fn a_receiver_that_waits_is_woken_by_the_answer() {
    let _watch = crate::common::watchdog("a_receiver_that_waits_is_woken_by_the_answer");
    let stack = crate::common::stack_with(|_| {});
    let ping = IcmpSocket::bind_on(&stack, addr("::")).unwrap();
    ping.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    std::thread::scope(|scope| {
        let waits = ping.try_clone().unwrap();
        scope.spawn(move || {
            for seq in 0..100 {
                assert_eq!(waits.recv(&mut []).unwrap().seq, seq);
            }
        });
        (0..100).for_each(|seq| ping.send_to(seq, b"", addr("::1")).unwrap());
    });
}
