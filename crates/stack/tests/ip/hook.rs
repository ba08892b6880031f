//! The hook for what the stack would answer in a host's name: echo requests, and protocols that it does not serve.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use sockeye::{IpPacket, IpSend, PanicSource, Stack, UdpSocket, Unsent};
use sockeye_proto::icmp::{Error, Family, Message, Problem, Unreachable};
use sockeye_proto::ip::{self, Addresses};

use crate::host::{Host, between, icmp, inwards, packet, read_icmp};

const ASK: Message = Message::EchoRequest { id: 7, seq: 9 };
/// A protocol that no stack serves (RFC 3692).
const UNKNOWN: u8 = 253;
/// Hosts that are not there, as the other side asks for them.
const DEAD: [(&str, &str); 2] = [("10.9.0.2", "198.51.100.7"), ("fd09::2", "2001:db8::7")];

/// A host that takes packets to every address, and asks.
fn gateway(hook: impl Fn(IpPacket) + Send + Sync + 'static) -> Host {
    let host = Host::new();
    host.stack.set_any_address(host.netif, true).unwrap();
    for network in ["0.0.0.0/0", "::/0"] {
        host.stack.add_route(network.parse().unwrap(), host.netif).unwrap();
    }
    host.stack.set_ip_hook(Some(Box::new(hook)));
    host
}

fn dead(index: usize) -> Addresses {
    between(DEAD[index].0, DEAD[index].1)
}

#[test]
fn a_dead_host_is_silent_or_not_as_the_hook_says() {
    for index in [0, 1] {
        let request = icmp(dead(index), ASK, b"data");
        let mut host = gateway(IpPacket::answer);
        let (addresses, message, data) = read_icmp(&host.send(&request)[0]);
        assert_eq!(addresses, dead(index).reversed());
        assert_eq!((message, &data[..]), (Message::EchoReply { id: 7, seq: 9 }, &b"data"[..]));
        host.stack.set_ip_hook(Some(Box::new(IpPacket::ignore)));
        assert!(host.send(&request).is_empty());
        host.stack.set_ip_hook(Some(Box::new(drop)));
        assert!(host.send(&request).is_empty());
        host.stack.set_ip_hook(Some(Box::new(|packet: IpPacket| packet.reject(Unsent::HostUnreachable))));
        let (addresses, message, quoted) = read_icmp(&host.send(&request)[0]);
        assert_eq!(addresses, dead(index).reversed());
        assert_eq!(message, Message::Error(Error::Unreachable(Unreachable::Host)));
        assert_eq!(quoted, request);
        // Without a hook, every host looks alive.
        host.stack.set_ip_hook(None);
        assert_eq!(host.send(&request).len(), 1);
        assert_eq!(host.stack.memory_in_use(), 0);
    }
}

#[test]
fn a_packet_says_what_it_is() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let mut host = gateway(move |packet| noted.lock().unwrap().push(packet));
    for (index, protocol) in [(0, ip::PROTOCOL_ICMP), (1, ip::PROTOCOL_ICMPV6)] {
        let request = icmp(dead(index), ASK, b"ping");
        let other = packet(dead(index), UNKNOWN, b"whatever");
        host.send(&request);
        host.send(&other);
        let packets: Vec<IpPacket> = std::mem::take(&mut *seen.lock().unwrap());
        let [echo, unknown] = &packets[..] else { panic!("{packets:?}") };
        assert_eq!((echo.protocol(), echo.echo()), (protocol, Some((7, 9))));
        assert_eq!((unknown.protocol(), unknown.echo()), (UNKNOWN, None));
        for (packet, sent) in [(echo, &request), (unknown, &other)] {
            assert_eq!((packet.src(), packet.dst()), (dead(index).src(), dead(index).dst()));
            assert_eq!((packet.hop_limit(), packet.traffic_class()), (64, 0));
            assert_eq!(packet.interface(), host.netif);
            assert_eq!(packet.to_bytes(), *sent);
        }
        let mut data = [0; 16];
        assert_eq!((echo.payload_len(), echo.copy_payload(8, &mut data)), (12, 4));
        assert_eq!(&data[..4], b"ping");
        assert_eq!((echo.copy_payload(12, &mut data), echo.copy_payload(99, &mut data)), (0, 0));
        assert!(host.stack.memory_in_use() > 0, "undecided packets are in packet memory");
        drop(packets);
        assert_eq!(host.stack.memory_in_use(), 0);
    }
}

#[test]
fn an_unknown_protocol_is_answered_rejected_and_dropped() {
    let unknown =
        [Error::Unreachable(Unreachable::Protocol), Error::ParameterProblem(Problem::NextHeader, 6)];
    for index in [0, 1] {
        let request = packet(dead(index), UNKNOWN, b"whatever");
        let mut host = gateway(IpPacket::answer);
        let (_, message, _) = read_icmp(&host.send(&request)[0]);
        assert_eq!(message, Message::Error(unknown[index]));
        let router = ["10.9.0.77", "fd09::77"][index].parse().unwrap();
        host.stack.set_ip_hook(Some(Box::new(move |packet: IpPacket| {
            packet.reject_from(Unsent::TimeExceeded, router);
        })));
        let (addresses, message, quoted) = read_icmp(&host.send(&request)[0]);
        assert_eq!((addresses.src(), addresses.dst()), (router, dead(index).src()));
        assert_eq!((message, quoted), (Message::Error(Error::HopLimitExceeded), request.clone()));
        // A router of the other family cannot have said so.
        let other = ["fd09::77", "10.9.0.77"][index].parse().unwrap();
        host.stack.set_ip_hook(Some(Box::new(move |packet: IpPacket| {
            packet.reject_from(Unsent::TimeExceeded, other);
        })));
        assert!(host.send(&request).is_empty());
        assert_eq!(host.count("ip_in_unknown_protos"), 3);
    }
}

#[test]
fn a_decision_may_come_later_from_another_thread_and_too_late() {
    let (give, given) = mpsc::channel();
    let give = Mutex::new(give);
    let mut host = gateway(move |packet| give.lock().unwrap().send(packet).unwrap());
    assert!(host.send(&icmp(dead(0), ASK, b"x")).is_empty());
    let packet = given.recv().unwrap();
    std::thread::spawn(move || packet.answer()).join().unwrap();
    assert_eq!(host.turn().len(), 1);
    host.send(&icmp(dead(0), ASK, b"x"));
    let late = given.recv().unwrap();
    drop(host);
    assert_eq!(late.dst(), dead(0).dst());
    late.answer();
}

#[test]
fn undecided_packets_are_bounded() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let mut host = gateway(move |packet| keep.lock().unwrap().push(packet));
    let request = icmp(dead(0), ASK, b"x");
    for _ in 0..1030 {
        host.send(&request);
    }
    assert_eq!((kept.lock().unwrap().len(), host.count("ip_hook_overflows")), (1024, 6));
    drop(kept.lock().unwrap().pop());
    host.send(&request);
    assert_eq!((kept.lock().unwrap().len(), host.count("ip_hook_overflows")), (1024, 6));
    let packets = std::mem::take(&mut *kept.lock().unwrap());
    packets.into_iter().for_each(IpPacket::answer);
    assert_eq!(host.turn().len(), 1024);
    assert_eq!(host.stack.memory_in_use(), 0);
}

#[test]
fn packets_to_many_and_to_the_loopback_are_not_asked_about() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let mut host = gateway(move |packet| {
        count.fetch_add(1, Ordering::Relaxed);
        packet.ignore();
    });
    let answers = host.send(&icmp(between("fd09::2", "ff02::1"), ASK, b"x"));
    assert_eq!(answers.len(), 1, "a request to all nodes");
    let ping = sockeye::IcmpSocket::bind_on(&host.stack, "127.0.0.1".parse().unwrap()).unwrap();
    ping.set_nonblocking(true).unwrap();
    ping.send_to(1, b"self", "127.0.0.1".parse().unwrap()).unwrap();
    assert_eq!(ping.recv(&mut [0; 8]).unwrap().len, 4);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    // An own address by an interface is asked about as any.
    assert!(host.send(&icmp(inwards(Family::V4), ASK, b"x")).is_empty());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn a_hook_may_panic_call_back_and_replace_itself() {
    let shared = Arc::new(Mutex::new(None::<Stack>));
    let own = Arc::clone(&shared);
    let calls = AtomicUsize::new(0);
    let mut host = gateway(move |packet| {
        let stack = own.lock().unwrap().clone().unwrap();
        // Sockets of the stack, within the call.
        let socket = UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 1);
        assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "the first packet");
        stack.set_ip_hook(Some(Box::new(IpPacket::ignore)));
        packet.answer();
    });
    *shared.lock().unwrap() = Some(host.stack.clone());
    let reports = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&reports);
    host.stack.set_panic_hook(Some(move |report: &sockeye::PanicReport| {
        noted.lock().unwrap().push((report.source, report.place));
    }));
    let request = icmp(dead(0), ASK, b"x");
    assert!(host.send(&request).is_empty(), "its packet is ignored");
    assert_eq!(*reports.lock().unwrap(), [(PanicSource::Hook, "an IP hook")]);
    assert_eq!(host.send(&request).len(), 1);
    assert!(host.send(&request).is_empty(), "the other hook");
    assert_eq!(host.stack.memory_in_use(), 0);
    shared.lock().unwrap().take();
}

#[test]
fn a_packet_of_any_protocol_is_sent_in_any_hosts_name() {
    let mut host = gateway(IpPacket::ignore);
    let send = |host: &Host, (src, dst): (&str, &str), protocol, payload: &[u8]| {
        let packet = IpSend::new(src.parse().unwrap(), dst.parse().unwrap(), protocol, payload);
        host.stack.send_ip(&IpSend { traffic_class: 3, hop_limit: Some(9), ..packet })
    };
    for (index, family) in [Family::V4, Family::V6].into_iter().enumerate() {
        let back = (DEAD[index].1, DEAD[index].0);
        let protocol = [ip::PROTOCOL_ICMP, ip::PROTOCOL_ICMPV6][index];
        let mut reply = Message::EchoReply { id: 7, seq: 9 }.emit(family).unwrap().to_vec();
        // What stands in the place of the checksum does not count.
        reply[2..4].fill(0xee);
        reply.extend(vec![b'd'; 1000]);
        send(&host, back, protocol, &reply).unwrap();
        let sent = host.turn();
        let (addresses, message, data) = read_icmp(&sent[0]);
        assert_eq!(addresses, dead(index).reversed());
        assert_eq!((message, data.len()), (Message::EchoReply { id: 7, seq: 9 }, 1000));
        let (header, _) = ip::parse(&sent[0], ip::HeaderChecksum::Verify).unwrap();
        assert_eq!((header.hop_limit, header.traffic_class), (9, 3));
        send(&host, back, UNKNOWN, b"whatever").unwrap();
        let (header, range) = ip::parse(&host.turn()[0], ip::HeaderChecksum::Verify).unwrap();
        assert_eq!((header.protocol, range.len()), (UNKNOWN, 8));
        // TCP and UDP have their checksums with the pseudo header.
        for (protocol, len) in [(ip::PROTOCOL_TCP, 24), (ip::PROTOCOL_UDP, 11)] {
            send(&host, back, protocol, &vec![1; len]).unwrap();
            let sent = &host.turn()[0];
            let (header, range) = ip::parse(sent, ip::HeaderChecksum::Verify).unwrap();
            let sum = header.addresses.pseudo_header(protocol, len as u32);
            assert!(sum.add_bytes(&sent[range]).is_valid(), "{protocol}");
        }
        // Longer than the link takes: in fragments.
        send(&host, back, UNKNOWN, &[5; 4000]).unwrap();
        assert_eq!(host.turn().len(), 3);
        for (protocol, len) in [(protocol, 7), (ip::PROTOCOL_UDP, 7), (ip::PROTOCOL_TCP, 19)] {
            let refused = send(&host, back, protocol, &vec![0; len]).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        }
        let long = send(&host, back, UNKNOWN, &[0; 70_000]).unwrap_err();
        assert_eq!(long.raw_os_error(), Some(libc_emsgsize()));
    }
    let mixed = send(&host, ("10.9.0.1", "fd09::2"), UNKNOWN, b"").unwrap_err();
    assert_eq!(mixed.kind(), std::io::ErrorKind::InvalidInput);
    let other = Stack::new(sockeye::Config { workers: 0, ..Default::default() }).unwrap();
    let packet = IpSend::new("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap(), UNKNOWN, b"");
    assert_eq!(other.send_ip(&packet).unwrap_err().kind(), std::io::ErrorKind::NetworkUnreachable);
    assert_eq!(host.stack.memory_in_use(), 0);
}

fn libc_emsgsize() -> i32 {
    rustix::io::Errno::MSGSIZE.raw_os_error()
}
