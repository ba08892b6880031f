//! Which addresses a received packet may have: every class of address, as source and as destination, of both
//! families, on each kind of interface and medium, with TCP, UDP and ICMP inside.
//!
//! "Taken" means that the packet had an effect that an application or a peer can see: an answer of any kind, or a
//! datagram in a socket. A packet that is not taken must have none, not even a neighbor solicitation.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sockeye::netif::{ChannelConfig, ChannelPort, LinkOptions, MacAddr, Medium, NetifId, channel};
use sockeye::{IcmpSocket, Stack, TcpListener, TcpSocket, UdpBuilder, UdpSocket};
use sockeye_proto::icmp::{Error, Message, Unreachable};
use sockeye_proto::ip::{Addresses, PROTOCOL_UDP};
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire::Ports;

use crate::common;
use crate::host::{between, bytes_of, frame, icmp, packet};
use crate::segments::segment_of;

/// Which packets an interface accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Packets to the stack's own addresses.
    Wire,
    /// Packets to any host (`Stack::set_any_address`).
    Any,
}
use Kind::{Any, Wire};

/// The handling of a packet to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    /// It is taken in as one for a host.
    Host,
    /// TCP is dropped, datagrams are taken in, and no error is sent.
    Many,
    /// It is dropped.
    NoHost,
}

/// Our addresses on the interface where packets arrive, and on another.
const OURS: [[&str; 3]; 2] =
    [["10.9.0.1/24", "fd09::1/64", "fe80::a/64"], ["10.77.0.1/24", "fd77::1/64", "fe80::b/64"]];
/// The link-layer address of each of our two interfaces, and that of the sender.
const MACS: [MacAddr; 3] =
    [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 1, 1]), MacAddr([2, 0, 0, 0, 0, 9])];

/// Each class of address: an example, whether a packet from it is taken, and how one to it is handled, on an interface
/// that accepts packets to us, and on one that accepts packets to any host.
const TABLE: [(&str, bool, To, To); 55] = [
    // Hosts: on the link, elsewhere, on our other link, and of the link only.
    ("10.9.0.2", true, To::NoHost, To::Host),
    ("192.0.2.9", true, To::NoHost, To::Host),
    ("10.77.0.9", true, To::NoHost, To::Host),
    ("169.254.7.7", true, To::NoHost, To::NoHost),
    ("fd09::2", true, To::NoHost, To::Host),
    ("2001:db8::9", true, To::NoHost, To::Host),
    ("fd77::9", true, To::NoHost, To::Host),
    ("fe80::9", true, To::NoHost, To::NoHost),
    // IPv6 has neither broadcast nor network addresses.
    ("fd09::", true, To::NoHost, To::Host),
    ("fd09::ffff:ffff:ffff:ffff", true, To::NoHost, To::Host),
    // Our own: of this interface, of another, and of another link.
    ("10.9.0.1", false, To::Host, To::Host),
    ("10.77.0.1", false, To::Host, To::Host),
    ("fd09::1", false, To::Host, To::Host),
    ("fd77::1", false, To::Host, To::Host),
    ("fe80::a", false, To::Host, To::Host),
    ("fe80::b", false, To::NoHost, To::NoHost),
    // Unspecified, and "this network".
    ("0.0.0.0", false, To::NoHost, To::NoHost),
    ("::", false, To::NoHost, To::NoHost),
    ("0.0.0.1", false, To::NoHost, To::NoHost),
    ("0.1.2.3", false, To::NoHost, To::NoHost),
    ("0.255.255.255", false, To::NoHost, To::NoHost),
    // Loopback.
    ("127.0.0.0", false, To::NoHost, To::NoHost),
    ("127.0.0.1", false, To::NoHost, To::NoHost),
    ("127.255.255.255", false, To::NoHost, To::NoHost),
    ("::1", false, To::NoHost, To::NoHost),
    // IPv4 in IPv6's clothes, mapped and compatible.
    ("::ffff:127.0.0.1", false, To::NoHost, To::NoHost),
    ("::ffff:10.9.0.1", false, To::NoHost, To::NoHost),
    ("::ffff:10.9.0.2", false, To::NoHost, To::NoHost),
    ("::ffff:192.0.2.9", false, To::NoHost, To::NoHost),
    ("::ffff:0.0.0.0", false, To::NoHost, To::NoHost),
    ("::ffff:255.255.255.255", false, To::NoHost, To::NoHost),
    ("::127.0.0.1", false, To::NoHost, To::NoHost),
    ("::10.9.0.1", false, To::NoHost, To::NoHost),
    ("::192.0.2.9", false, To::NoHost, To::NoHost),
    ("::2", false, To::NoHost, To::NoHost),
    // Groups: that of all hosts, some that no socket has joined, and those that never leave an interface.
    ("224.0.0.1", false, To::Many, To::Many),
    ("224.0.0.9", false, To::NoHost, To::NoHost),
    ("239.255.255.255", false, To::NoHost, To::NoHost),
    ("ff02::1", false, To::Many, To::Many),
    ("ff02::77", false, To::NoHost, To::NoHost),
    ("ff0e::77", false, To::NoHost, To::NoHost),
    ("ff01::1", false, To::NoHost, To::NoHost),
    ("ff00::1", false, To::NoHost, To::NoHost),
    // Reserved.
    ("240.0.0.0", false, To::NoHost, To::NoHost),
    ("240.0.0.1", false, To::NoHost, To::NoHost),
    ("255.255.255.254", false, To::NoHost, To::NoHost),
    // Broadcast: limited, of this network, and of the other interface's.
    ("255.255.255.255", false, To::Many, To::Many),
    ("10.9.0.255", false, To::Many, To::Many),
    ("10.77.0.255", false, To::NoHost, To::NoHost),
    // Network addresses: of this network, and of the other interface's.
    ("10.9.0.0", false, To::NoHost, To::NoHost),
    ("10.77.0.0", false, To::NoHost, To::NoHost),
    // Beside those that mean something else.
    ("1.0.0.0", true, To::NoHost, To::Host),
    ("223.255.255.255", true, To::NoHost, To::Host),
    ("::1:0:0:0", true, To::NoHost, To::Host),
    ("::fffe:127.0.0.1", true, To::NoHost, To::Host),
];

/// A stack with two interfaces, with a listener and a receiver for everything that is taken in.
struct Testbed {
    stack: Stack,
    ids: Vec<NetifId>,
    ports: Vec<ChannelPort>,
    medium: Medium,
    receivers: Vec<UdpSocket>,
    _listener: TcpListener,
}

impl Testbed {
    fn new(kind: Kind, is_ethernet: bool) -> Self {
        let stack = common::stack_with(|config| config.workers = 0);
        let (mut ids, mut ports) = (Vec::new(), Vec::new());
        let medium = |link: usize| if is_ethernet { Medium::Ethernet(MACS[link]) } else { Medium::Ip };
        let quiet = LinkOptions {
            accept_ra: false,
            link_local: false,
            detect_duplicates: false,
            ..LinkOptions::default()
        };
        for (link, ours) in OURS.iter().enumerate() {
            let config = ChannelConfig { medium: medium(link), ..ChannelConfig::default() };
            let (channel, mut port) = channel(&config).unwrap();
            let prefixes = ours.map(|prefix| prefix.parse().unwrap());
            ids.push(stack.attach_with(channel, &prefixes, &quiet).unwrap());
            ports.append(&mut port);
        }
        // Every packet that may be answered can be.
        for network in ["0.0.0.0/0", "::/0"] {
            stack.add_route(network.parse().unwrap(), ids[0]).unwrap();
        }
        stack.set_any_address(ids[0], kind == Any).unwrap();
        let mut socket = TcpSocket::new_v6(&stack);
        let receiver = UdpBuilder::new_v6(&stack);
        let (listener, any) = match kind {
            Wire => {
                socket.bind("[::]:80".parse().unwrap()).unwrap();
                (socket.listen(16).unwrap(), None)
            }
            Any => {
                socket.set_transparent(true);
                (socket.listen_any(16).unwrap(), Some(receiver.transparent(true).bind_any().unwrap()))
            }
        };
        let v6 = UdpBuilder::new_v6(&stack).only_v6(true).bind("[::]:7".parse().unwrap()).unwrap();
        let v4 = UdpSocket::bind_on(&stack, "0.0.0.0:7").unwrap();
        v6.join_multicast_v6(&"ff02::1".parse().unwrap(), ids[0].interface_index()).unwrap();
        v4.join_multicast_v4(&"224.0.0.1".parse().unwrap(), &"10.9.0.1".parse().unwrap()).unwrap();
        let receivers: Vec<_> = [v6, v4].into_iter().chain(any).collect();
        receivers.iter().for_each(|receiver| receiver.set_nonblocking(true).unwrap());
        let testbed = Self { stack, ids, ports, medium: medium(0), receivers, _listener: listener };
        if is_ethernet {
            // Groups are reported, addresses announced.
            for second in 1..20 {
                testbed.stack.poll(Duration::from_secs(second));
            }
        }
        testbed.effects();
        testbed
    }

    /// Packets that were sent, by whichever interface, and datagrams that sockets have.
    fn effects(&self) -> (usize, usize) {
        for _ in 0..20 {
            self.stack.poll(Duration::from_secs(20));
        }
        let sent = self.ports.iter().map(|port| std::iter::from_fn(|| port.try_recv()).count()).sum();
        let of = |receiver: &UdpSocket| std::iter::from_fn(|| receiver.recv_from(&mut [0; 64]).ok()).count();
        (sent, self.receivers.iter().map(of).sum())
    }

    /// The effect of a packet that arrives at the first interface.
    fn give(&self, packet: &[u8]) -> (usize, usize) {
        let ethertype = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let bytes = match self.medium {
            Medium::Ip => packet.to_vec(),
            Medium::Ethernet(_) => frame(MACS[0], MACS[2], ethertype, packet),
        };
        self.ports[0].try_send(&bytes[..]).unwrap();
        self.effects()
    }

    fn count(&self, name: &str) -> u64 {
        common::counter(&self.stack, name)
    }
}

fn datagram(addresses: Addresses, ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes(), &[0, 10, 0, 0], b"hi"].concat();
    let sum = addresses.pseudo_header(PROTOCOL_UDP, 10).add_bytes(&bytes).checksum();
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    packet(addresses, PROTOCOL_UDP, &bytes)
}

/// TCP and UDP to a port that is open and to one that is not, and an echo request.
fn packets(addresses: Addresses) -> [Vec<u8>; 5] {
    let syn = |dst| {
        let header = Header { flags: Flags::SYN, window: 1000, ..Header::default() };
        segment_of(addresses, Ports { src: 4000, dst }, &header)
    };
    let ask = icmp(addresses, Message::EchoRequest { id: 1, seq: 1 }, b"hi");
    [syn(80), syn(81), datagram(addresses, (4000, 7)), datagram(addresses, (4000, 8)), ask]
}

/// A peer, and an address of ours, for the other end of a packet. Both are of the link if `addr` is, on which it is talked to.
fn other_end(addr: &str, ends: [&'static str; 3]) -> &'static str {
    let parsed: IpAddr = addr.parse().unwrap();
    match parsed {
        IpAddr::V4(_) => ends[0],
        IpAddr::V6(v6) if v6.is_unicast_link_local() => ends[2],
        IpAddr::V6(_) => ends[1],
    }
}

fn is_taken(testbed: &Testbed, addresses: Addresses) -> Vec<bool> {
    packets(addresses).iter().map(|packet| testbed.give(packet) != (0, 0)).collect()
}

#[test]
fn packets_from_addresses_of_no_host_are_neither_answered_nor_delivered() {
    let mut wrong = Vec::new();
    for (src, taken, ..) in TABLE {
        for (kind, is_ethernet) in [(Wire, false), (Any, false), (Wire, true), (Any, true)] {
            let testbed = Testbed::new(kind, is_ethernet);
            let addresses = between(src, other_end(src, ["10.9.0.1", "fd09::1", "fe80::a"]));
            let found = is_taken(&testbed, addresses);
            // On Ethernet the first answer asks for the neighbor, and the others wait with it.
            let expected = if is_ethernet && taken { found.contains(&taken) } else { found == [taken; 5] };
            if !expected {
                wrong.push(format!("from {src}, {kind:?}, Ethernet {is_ethernet}: {found:?}"));
            }
            let martians = testbed.count("frames_martian");
            if !taken && martians != 5 {
                wrong.push(format!("from {src}, {kind:?}: {martians} of 5 are counted"));
            }
        }
    }
    assert!(wrong.is_empty(), "TCP open, TCP closed, UDP open, UDP closed, echo:\n{}", wrong.join("\n"));
}

#[test]
fn packets_to_addresses_of_no_host_are_neither_answered_nor_delivered() {
    let mut wrong = Vec::new();
    for (dst, _, wire, any) in TABLE {
        for (kind, is_ethernet) in [(Wire, false), (Any, false), (Wire, true), (Any, true)] {
            let testbed = Testbed::new(kind, is_ethernet);
            let addresses = between(other_end(dst, ["10.9.0.2", "fd09::2", "fe80::9"]), dst);
            let found: Vec<_> = packets(addresses).iter().map(|packet| testbed.give(packet)).collect();
            let taken: Vec<_> = found.iter().map(|found| *found != (0, 0)).collect();
            let expected = match if kind == Wire { wire } else { any } {
                To::NoHost => taken == [false; 5],
                To::Host => taken == [true; 5] || is_ethernet && taken.contains(&true),
                // A question to many is answered in IPv6 only (RFC 4443 section 4.2).
                To::Many => {
                    let echo = usize::from(dst.contains(':'));
                    found[..4] == [(0, 0), (0, 0), (0, 1), (0, 0)] && found[4].0 >= echo
                }
            };
            if !expected {
                wrong.push(format!("to {dst}, {kind:?}, Ethernet {is_ethernet}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "TCP open, TCP closed, UDP open, UDP closed, echo:\n{}", wrong.join("\n"));
}

/// Packets with these addresses claim to be of a link that they do not come from.
#[test]
fn a_link_local_source_reaches_only_hosts_on_that_link() {
    for (dst, taken) in [("fe80::a", true), ("fd09::1", true), ("fd77::1", false), ("2001:db8::1", false)] {
        let testbed = Testbed::new(Any, false);
        assert_eq!(is_taken(&testbed, between("fe80::9", dst)), [taken; 5], "{dst}");
    }
}

/// The whole loopback network, reached from outside through services that answer.
#[test]
fn no_answer_is_routed_into_the_loopback() {
    for (name, kind) in [("wire", Wire), ("any", Any)] {
        let testbed = Testbed::new(kind, false);
        let inside: Vec<_> = ["127.0.0.1:99", "[::1]:99"]
            .map(|addr| UdpSocket::bind_on(&testbed.stack, addr).unwrap())
            .into_iter()
            .inspect(|socket| socket.set_nonblocking(true).unwrap())
            .collect();
        let echo = UdpSocket::bind_on(&testbed.stack, "[::]:53").unwrap();
        let echo_v4 = UdpSocket::bind_on(&testbed.stack, "0.0.0.0:54").unwrap();
        for socket in [&echo, &echo_v4] {
            socket.set_nonblocking(true).unwrap();
        }
        for (src, ..) in TABLE {
            for (dst, port) in [
                ("10.9.0.1", 53),
                ("10.9.0.1", 54),
                ("255.255.255.255", 54),
                ("224.0.0.1", 54),
                ("10.9.0.255", 54),
                ("fd09::1", 53),
                ("fe80::a", 53),
                ("ff02::1", 53),
            ] {
                if src.contains(':') != dst.contains(':') {
                    continue;
                }
                testbed.ports[0].try_send(&datagram(between(src, dst), (99, port))[..]).unwrap();
                testbed.stack.poll(Duration::from_secs(20));
                for socket in [&echo, &echo_v4] {
                    let mut bytes = [0; 64];
                    while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                        let _ = socket.send_to(&bytes[..len], from);
                    }
                }
                testbed.stack.poll(Duration::from_secs(20));
                for socket in &inside {
                    let got = socket.recv_from(&mut [0; 64]).map(|(_, from)| from);
                    assert!(got.is_err(), "{name}, from {src} to {dst}: the loopback got one of {got:?}");
                }
            }
        }
    }
}

/// A packet from a host without an address is delivered to sockets that can answer it, as DHCP does (RFC 2131 section 4.1).
#[test]
fn a_host_without_an_address_reaches_sockets_that_may_answer_by_broadcast() {
    let testbed = Testbed::new(Wire, false);
    let server = UdpSocket::bind_on(&testbed.stack, "0.0.0.0:67").unwrap();
    server.set_nonblocking(true).unwrap();
    let discover = datagram(between("0.0.0.0", "255.255.255.255"), (68, 67));
    assert_eq!(testbed.give(&discover), (0, 0));
    assert!(server.recv_from(&mut [0; 64]).is_err(), "an answer to 0.0.0.0 would be routed to the loopback");
    server.set_broadcast(true).unwrap();
    assert_eq!(testbed.give(&discover), (0, 0));
    let (_, from) = server.recv_from(&mut [0; 64]).unwrap();
    assert_eq!(from, SocketAddr::from(([0, 0, 0, 0], 68)));
    // No host sends to one host, or to a network's broadcast address, without an address.
    for dst in ["10.9.0.1", "10.9.0.255"] {
        testbed.give(&datagram(between("0.0.0.0", dst), (68, 67)));
        assert!(server.recv_from(&mut [0; 64]).is_err(), "{dst}");
    }
}

#[test]
fn a_broadcast_request_without_a_source_is_not_answered() {
    let testbed = Testbed::new(Wire, false);
    for (src, dst, answers) in [("::", "ff02::1", 0), ("fe80::9", "ff02::1", 1), ("0.0.0.0", "224.0.0.1", 0)]
    {
        let ask = icmp(between(src, dst), Message::EchoRequest { id: 1, seq: 1 }, b"data");
        assert_eq!(testbed.give(&ask), (answers, 0), "{src} {dst}");
    }
    // A packet that may be neighbor discovery, by its hop limit, is accepted also from an address of ours; a request is not
    // answered.
    for src in ["fd09::1", "fd77::1", "fe80::a", "fe80::b"] {
        let mut ask = icmp(between(src, "ff02::1"), Message::EchoRequest { id: 1, seq: 1 }, b"data");
        ask[7] = 255;
        assert_eq!(testbed.give(&ask), (0, 0), "{src}");
        assert_eq!(testbed.count("icmp_out_echo_reps"), 1, "{src}");
    }
}

/// An error of ICMP about a packet from `src` to `dst`.
fn error_about(quoted: &[u8], from: &str, to: &str, error: Error) -> Vec<u8> {
    icmp(between(from, to), Message::Error(error), quoted)
}

#[test]
fn an_error_from_outside_reaches_no_loopback_connection() {
    for (near, far, own, router) in [
        ("127.0.0.1", "127.0.0.1", "10.9.0.1", "10.9.0.2"),
        ("::1", "::1", "fd09::1", "fd09::2"),
        ("10.9.0.1", "10.9.0.1", "10.9.0.1", "10.9.0.2"),
        ("fd77::1", "fd09::1", "fd77::1", "fd77::2"),
    ] {
        for error in [Error::Unreachable(Unreachable::Port), Error::PacketTooBig(1280)] {
            let testbed = Testbed::new(Wire, false);
            let socket =
                UdpSocket::bind_on(&testbed.stack, SocketAddr::new(near.parse().unwrap(), 1000)).unwrap();
            let _peer =
                UdpSocket::bind_on(&testbed.stack, SocketAddr::new(far.parse().unwrap(), 2000)).unwrap();
            socket.connect(SocketAddr::new(far.parse().unwrap(), 2000)).unwrap();
            socket.set_recv_err(true).unwrap();
            let quoted = datagram(between(near, far), (1000, 2000));
            testbed.give(&error_about(&quoted, router, own, error));
            assert!(socket.take_error().unwrap().is_none(), "{near} {error:?}");
            assert!(socket.recv_err(&mut [0; 16]).is_none(), "{near} {error:?}");
            assert_eq!(testbed.count("ip_path_mtu_learned"), 0, "{near} {error:?}");

            let ping = IcmpSocket::bind_on(&testbed.stack, near.parse().unwrap()).unwrap();
            ping.connect(far.parse().unwrap()).unwrap();
            let request = Message::EchoRequest { id: ping.id(), seq: 1 };
            let quoted = icmp(between(near, far), request, b"data");
            testbed.give(&error_about(&quoted, router, own, error));
            assert!(ping.recv_err(&mut [0; 16]).is_none(), "{near} {error:?}");
            assert_eq!(testbed.count("ip_path_mtu_learned"), 0, "{near} {error:?}");
        }
    }
}

/// The first segment that left by an interface, without its link header.
fn first_sent(port: &ChannelPort) -> Vec<u8> {
    bytes_of(&port.try_recv().expect("a segment"))
}

#[test]
fn an_error_reaches_a_connection_only_through_its_outgoing_interface() {
    for (far, own, router) in [("10.77.0.9", "10.77.0.1", "10.9.0.2"), ("fd77::9", "fd77::1", "fd09::2")] {
        let testbed = Testbed::new(Wire, false);
        let refused = Error::Unreachable(Unreachable::Port);
        let far = SocketAddr::new(far.parse().unwrap(), 2000);
        // A datagram's.
        let socket = UdpSocket::bind_on(&testbed.stack, SocketAddr::new(own.parse().unwrap(), 1000)).unwrap();
        socket.connect(far).unwrap();
        let quoted = datagram(between(own, &far.ip().to_string()), (1000, 2000));
        let by = |link: usize, error| {
            testbed.ports[link].try_send(&error_about(&quoted, router, own, error)[..]).unwrap();
            testbed.effects();
            socket.take_error().unwrap().is_some()
        };
        assert!(!by(0, refused), "it did not go out there");
        assert!(!by(0, Error::PacketTooBig(1300)), "nor so");
        assert_eq!(testbed.count("ip_path_mtu_learned"), 0);
        assert!(by(1, refused), "it did");
        by(1, Error::PacketTooBig(1300));
        assert_eq!(testbed.count("ip_path_mtu_learned"), 1);

        // An error about a handshake whose sequence number is known.
        let mut socket =
            if far.is_ipv4() { TcpSocket::new_v4(&testbed.stack) } else { TcpSocket::new_v6(&testbed.stack) };
        socket.set_nonblocking(true);
        let stream = socket.connect(far).unwrap();
        let syn = first_sent(&testbed.ports[1]);
        let errors: Vec<bool> = [0, 1]
            .map(|link: usize| {
                testbed.ports[link].try_send(&error_about(&syn, router, own, refused)[..]).unwrap();
                testbed.effects();
                stream.take_error().unwrap().is_some()
            })
            .into();
        assert_eq!(errors, [false, true], "{far}");
    }
}

#[test]
fn errors_and_redirects_do_not_affect_a_half_open_connection() {
    let testbed = Testbed::new(Wire, false);
    let addresses = between("10.9.0.2", "10.9.0.1");
    let syn = Header { flags: Flags::SYN, window: 1000, ..Header::default() };
    testbed.ports[0].try_send(&segment_of(addresses, Ports { src: 4000, dst: 80 }, &syn)[..]).unwrap();
    testbed.stack.poll(Duration::from_secs(20));
    let syn_ack = first_sent(&testbed.ports[0]);
    let error = Error::Unreachable(Unreachable::Port);
    for link in [0, 1] {
        testbed.ports[link].try_send(&error_about(&syn_ack, "10.9.0.9", "10.9.0.1", error)[..]).unwrap();
        // Redirects of both families: to another router (RFC 792 type 5, RFC 4861 type 137).
        let mut redirect = vec![5, 1, 0, 0, 10, 9, 0, 66];
        redirect.extend(&syn_ack[..28]);
        let sum = sockeye_proto::ip::Sum::ZERO.add_bytes(&redirect).checksum();
        redirect[2..4].copy_from_slice(&sum.to_be_bytes());
        testbed.ports[link].try_send(&packet(between("10.9.0.9", "10.9.0.1"), 1, &redirect)[..]).unwrap();
    }
    assert_eq!(testbed.effects(), (0, 0));
    let routes = testbed.stack.routes();
    // The handshake continues as if there had been no error.
    let (_, range) = sockeye_proto::ip::parse(&syn_ack, sockeye_proto::ip::HeaderChecksum::Verify).unwrap();
    let checked = sockeye_proto::tcp::wire::ChecksumIn::Trusted;
    let (_, answer, _) = sockeye_proto::tcp::wire::parse(&syn_ack[range], checked).unwrap();
    let ack =
        Header { flags: Flags::ACK, seq: answer.ack, ack: answer.seq + 1, window: 1000, ..Header::default() };
    testbed.give(&segment_of(addresses, Ports { src: 4000, dst: 80 }, &ack));
    assert_eq!((testbed.stack.connection_count(), testbed.stack.routes()), (1, routes));
    assert_eq!(testbed.ids.len(), 2);
}
