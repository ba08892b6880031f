//! A host on two links, each of which has a host `fe80::9`: which one is meant, and which link a packet uses.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use sockeye::netif::{ChannelConfig, ChannelPort, LinkOptions, MacAddr, Medium, NetifId, channel};
use sockeye::{IcmpSocket, SendMeta, Stack, TcpListener, TcpSocket, TcpStream, UdpSocket};
use sockeye_proto::icmp::{Error, Message, Unreachable};
use sockeye_proto::ip::{self, Addresses, PROTOCOL_UDP};
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire::Ports;

use crate::common;
use crate::host::{between, bytes_of, frame, icmp, packet};
use crate::segments::{segment_of, syn_ack};

const IPV6: u16 = 0x86dd;
/// Our addresses on the two links.
const OURS: [&str; 2] = ["fe80::a", "fe80::b"];
const OURS_V4: [&str; 2] = ["10.1.0.1", "10.2.0.1"];
/// A host on each of them.
const PEER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
/// ENODEV.
const NO_DEVICE: Option<i32> = Some(19);

struct Links {
    stack: Stack,
    ids: Vec<NetifId>,
    ports: Vec<ChannelPort>,
}

fn mac(link: usize, host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, link as u8, host])
}

impl Links {
    fn new() -> Self {
        let stack = common::stack_with(|config| config.workers = 0);
        let mut links = Self { stack, ids: Vec::new(), ports: Vec::new() };
        let quiet = LinkOptions {
            accept_ra: false,
            link_local: false,
            detect_duplicates: false,
            ..LinkOptions::default()
        };
        for link in 0..2 {
            let config = ChannelConfig { medium: Medium::Ethernet(mac(link, 1)), ..ChannelConfig::default() };
            let (channel, mut ports) = channel(&config).unwrap();
            let prefixes =
                [format!("{}/64", OURS[link]), format!("{}/24", OURS_V4[link])].map(|p| p.parse().unwrap());
            let id = links.stack.attach_with(channel, &prefixes, &quiet).unwrap();
            links.stack.set_neighbor(id, PEER.into(), mac(link, 9)).unwrap();
            links.ids.push(id);
            links.ports.append(&mut ports);
        }
        // Groups are reported, addresses announced.
        for second in 1..20 {
            links.stack.poll(Duration::from_secs(second));
        }
        links.sent();
        links
    }

    fn poll(&self) {
        for _ in 0..20 {
            self.stack.poll(Duration::from_secs(20));
        }
    }

    /// The packets that were sent since, without link header, with their link.
    fn sent(&self) -> Vec<(usize, Vec<u8>)> {
        self.poll();
        let of = |link: usize| {
            let frames = std::iter::from_fn(move || self.ports[link].try_recv());
            frames.map(move |frame| (link, bytes_of(&frame)))
        };
        let all = of(0).chain(of(1));
        all.map(|(link, bytes)| {
            assert!(bytes[0] & 1 == 1 || bytes[..6] == mac(link, 9).0, "to the host on this link");
            (link, bytes[14..].to_vec())
        })
        .collect()
    }

    fn receive(&self, link: usize, packet: &[u8]) {
        self.ports[link].try_send(&frame(mac(link, 1), mac(link, 9), IPV6, packet)[..]).unwrap();
        self.poll();
    }

    /// The number of a link.
    fn scope(&self, link: usize) -> u32 {
        self.ids[link].interface_index()
    }

    fn peer(&self, link: usize, port: u16) -> SocketAddr {
        SocketAddr::V6(SocketAddrV6::new(PEER, port, 0, self.scope(link)))
    }

    fn ours(&self, link: usize, port: u16) -> SocketAddr {
        SocketAddr::V6(SocketAddrV6::new(OURS[link].parse().unwrap(), port, 0, self.scope(link)))
    }
}

fn addresses(packet: &[u8]) -> Addresses {
    ip::parse(packet, ip::HeaderChecksum::Verify).unwrap().0.addresses
}

#[test]
fn a_connection_uses_the_link_of_its_scope_and_reports_it() {
    let (links, mut kept) = (Links::new(), Vec::new());
    for link in [0, 1] {
        let mut socket = TcpSocket::new_v6(&links.stack);
        socket.set_nonblocking(true);
        let stream = socket.connect(links.peer(link, 80)).unwrap();
        let sent = links.sent();
        assert_eq!((sent.len(), sent[0].0), (1, link));
        assert_eq!(addresses(&sent[0].1), between(OURS[link], "fe80::9"));
        links.receive(link, &syn_ack(&sent[0].1));
        assert_eq!(links.sent()[0].0, link, "the acknowledgment");
        assert_eq!(stream.peer_addr().unwrap(), links.peer(link, 80));
        let local = stream.local_addr().unwrap();
        assert_eq!(local, links.ours(link, local.port()));
        // Routes that change do not take it elsewhere.
        links.stack.add_route("2001:db8::/32".parse().unwrap(), links.ids[1 - link]).unwrap();
        std::io::Write::write_all(&mut &stream, b"text").unwrap();
        assert_eq!(links.sent()[0].0, link);
        links
            .stack
            .remove_route(&links.stack.routes().into_iter().find(|r| r.destination.len() == 32).unwrap())
            .unwrap();
        kept.push(stream);
    }
}

#[test]
fn a_client_is_answered_over_the_link_it_came_from() {
    let (links, mut kept) = (Links::new(), Vec::new());
    let listener = TcpListener::bind_on(&links.stack, "[::]:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    for link in [1, 0] {
        let from = between("fe80::9", OURS[link]);
        let ports = Ports { src: 4000, dst: 80 };
        let syn = Header { flags: Flags::SYN, window: 1000, ..Header::default() };
        links.receive(link, &segment_of(from, ports, &syn));
        let sent = links.sent();
        assert_eq!((sent.len(), sent[0].0, addresses(&sent[0].1)), (1, link, from.reversed()));
        let (_, header, _) = parse(&sent[0].1);
        let ack = Header {
            flags: Flags::ACK,
            seq: header.ack,
            ack: header.seq + 1,
            window: 1000,
            ..Header::default()
        };
        links.receive(link, &segment_of(from, ports, &ack));
        let (stream, peer): (TcpStream, _) = listener.accept().unwrap();
        assert_eq!((peer, stream.local_addr().unwrap()), (links.peer(link, 4000), links.ours(link, 80)));
        // A port without a listener: the reset, too.
        links.receive(link, &segment_of(from, Ports { src: 4000, dst: 81 }, &syn));
        let sent = links.sent();
        assert_eq!((sent.len(), sent[0].0), (1, link));
        kept.push(stream);
    }
}

fn parse(packet: &[u8]) -> (Ports, Header, std::ops::Range<usize>) {
    let (_, range) = ip::parse(packet, ip::HeaderChecksum::Verify).unwrap();
    sockeye_proto::tcp::wire::parse(&packet[range], sockeye_proto::tcp::wire::ChecksumIn::Trusted).unwrap()
}

#[test]
fn datagrams_use_the_link_of_their_scope_and_answers_return_over_it() {
    let links = Links::new();
    let socket = UdpSocket::bind_on(&links.stack, "[::]:7").unwrap();
    socket.set_nonblocking(true).unwrap();
    for link in [0, 1] {
        socket.send_to(b"to whom?", links.peer(link, 9)).unwrap();
        let sent = links.sent();
        assert_eq!((sent.len(), sent[0].0), (1, link));
        assert_eq!(addresses(&sent[0].1), between(OURS[link], "fe80::9"));
        // By number of the interface, without a scope.
        let meta =
            SendMeta { interface: Some(links.scope(link)), ..SendMeta::to(SocketAddr::from((PEER, 9))) };
        socket.send_msg(&[std::io::IoSlice::new(b"x")], &meta).unwrap();
        assert_eq!(links.sent()[0].0, link);

        let from = between("fe80::9", OURS[link]);
        let mut udp = vec![0, 9, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4];
        let sum = from.pseudo_header(PROTOCOL_UDP, 12).add_bytes(&udp).checksum();
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        links.receive(link, &packet(from, PROTOCOL_UDP, &udp));
        let (len, peer) = socket.recv_from(&mut [0; 16]).unwrap();
        assert_eq!((len, peer), (4, links.peer(link, 9)));

        let connected = UdpSocket::bind_on(&links.stack, "[::]:0").unwrap();
        connected.connect(peer).unwrap();
        assert_eq!(connected.peer_addr().unwrap(), peer);
        assert_eq!(connected.local_addr().unwrap(), links.ours(link, connected.local_addr().unwrap().port()));
        connected.send(b"x").unwrap();
        assert_eq!(links.sent()[0].0, link);
        // An address of the other link is not ours on this one.
        let before = common::counter(&links.stack, "frames_not_for_us");
        links.receive(1 - link, &packet(from, PROTOCOL_UDP, &udp));
        assert_eq!(common::counter(&links.stack, "frames_not_for_us"), before + 1);
    }
}

#[test]
fn multicasts_and_echo_requests_leave_by_the_chosen_link() {
    let links = Links::new();
    for link in [0, 1] {
        let socket = UdpSocket::bind_on(&links.stack, "[::]:0").unwrap();
        let to_group = SocketAddrV6::new("ff02::77".parse().unwrap(), 9, 0, links.scope(link));
        socket.send_to(b"all", to_group).unwrap();
        socket.set_multicast_if_v6(links.scope(link)).unwrap();
        socket.send_to(b"all", "[ff05::77]:9").unwrap();
        let other = UdpSocket::bind_on(&links.stack, "[::]:0").unwrap();
        other.connect(to_group).unwrap();
        other.send(b"all").unwrap();
        let sent = links.sent();
        assert_eq!(sent.len(), 3);
        for (by, packet) in sent {
            assert_eq!((by, addresses(&packet).src()), (link, OURS[link].parse::<IpAddr>().unwrap()));
        }

        let socket = UdpSocket::bind_on(&links.stack, "0.0.0.0:0").unwrap();
        socket.set_multicast_if_v4(&OURS_V4[link].parse::<Ipv4Addr>().unwrap()).unwrap();
        socket.send_to(b"all", "239.1.2.3:9").unwrap();
        let sent = links.sent();
        assert_eq!((sent.len(), sent[0].0), (1, link));
        assert_eq!(addresses(&sent[0].1), between(OURS_V4[link], "239.1.2.3"));

        let ping = IcmpSocket::bind_on(&links.stack, OURS[link].parse().unwrap()).unwrap();
        ping.send_to(1, b"there?", PEER.into()).unwrap();
        assert_eq!(links.sent()[0].0, link);
    }
}

#[test]
fn an_echo_request_leaves_by_the_interface_that_its_scope_names() {
    let links = Links::new();
    let scoped = |addr: &str, scope| SocketAddrV6::new(addr.parse().unwrap(), 0, 0, scope);
    for (link, own) in OURS.into_iter().enumerate() {
        let ours: IpAddr = own.parse().unwrap();
        let any = || IcmpSocket::bind_on(&links.stack, "::".parse().unwrap()).unwrap();
        let peer: SocketAddrV6 = format!("[{PEER}%{}]:0", links.scope(link)).parse().unwrap();
        any().send_to_scoped(1, b"there?", peer).unwrap();
        any().send_to_scoped(2, b"all?", scoped("ff02::1", links.scope(link))).unwrap();
        let connected = any();
        connected.connect_scoped(peer).unwrap();
        assert_eq!((connected.local_addr(), connected.peer_addr()), (ours, Some(PEER.into())));
        connected.send(3, b"there?").unwrap();
        let bound = IcmpSocket::bind_scoped_on(&links.stack, scoped(own, links.scope(link))).unwrap();
        bound.send_to(4, b"there?", PEER.into()).unwrap();
        let sent = links.sent();
        assert_eq!(sent.len(), 4);
        for (by, packet) in &sent {
            assert_eq!((*by, addresses(packet).src()), (link, ours));
        }
    }
    let refusals = |scope: u32| {
        let bound = IcmpSocket::bind_scoped_on(&links.stack, scoped(OURS[0], links.scope(0))).unwrap();
        [
            bound.send_to_scoped(1, b"", scoped("fe80::9", scope)).unwrap_err(),
            bound.connect_scoped(scoped("fe80::9", scope)).unwrap_err(),
            IcmpSocket::bind_scoped_on(&links.stack, scoped(OURS[0], scope)).unwrap_err(),
        ]
    };
    assert_eq!(refusals(77).map(|error| error.raw_os_error()), [NO_DEVICE; 3]);
    let of_other = [ErrorKind::InvalidInput, ErrorKind::InvalidInput, ErrorKind::AddrNotAvailable];
    assert_eq!(refusals(links.scope(1)).map(|error| error.kind()), of_other);
    let v4 = IcmpSocket::bind_on(&links.stack, "0.0.0.0".parse().unwrap()).unwrap();
    assert!(v4.connect_scoped(scoped("fe80::9", links.scope(0))).is_err());
    assert!(v4.send_to_scoped(1, b"", scoped("fe80::9", links.scope(0))).is_err());
    assert!(links.sent().is_empty());
}

#[test]
fn a_scope_that_does_not_fit_is_refused() {
    let links = Links::new();
    let with = |addr: &str, scope| SocketAddr::V6(SocketAddrV6::new(addr.parse().unwrap(), 9, 0, scope));
    let tcp = || TcpSocket::new_v6(&links.stack);
    let udp = UdpSocket::bind_on(&links.stack, "[::]:0").unwrap();
    assert_eq!(tcp().connect(with("fe80::9", 77)).unwrap_err().raw_os_error(), NO_DEVICE);
    assert_eq!(udp.send_to(b"x", with("fe80::9", 77)).unwrap_err().raw_os_error(), NO_DEVICE);
    assert_eq!(udp.connect(with("fe80::9", 77)).unwrap_err().raw_os_error(), NO_DEVICE);
    assert_eq!(tcp().bind(with(OURS[0], 77)).unwrap_err().raw_os_error(), NO_DEVICE);
    assert_eq!(tcp().bind(with(OURS[0], links.scope(1))).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    let other = UdpSocket::bind_on(&links.stack, with(OURS[0], links.scope(1)));
    assert_eq!(other.unwrap_err().kind(), ErrorKind::AddrNotAvailable);

    let mut bound = tcp();
    bound.bind(links.ours(0, 0)).unwrap();
    assert_eq!(bound.connect(links.peer(1, 9)).unwrap_err().kind(), ErrorKind::InvalidInput);
    let bound = UdpSocket::bind_on(&links.stack, links.ours(0, 0)).unwrap();
    assert_eq!(bound.connect(links.peer(1, 9)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(bound.send_to(b"x", links.peer(1, 9)).unwrap_err().kind(), ErrorKind::InvalidInput);
    bound.send_to(b"x", links.peer(0, 9)).unwrap();
    // Without a scope, a bound socket still has its link; a scope is ignored for an address that is not link-local.
    bound.send_to(b"x", with("fe80::9", 0)).unwrap();
    assert_eq!(links.sent().iter().map(|(link, _)| *link).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(udp.send_to(b"x", with("2001:db8::9", 77)).unwrap_err().kind(), ErrorKind::NetworkUnreachable);
}

#[test]
fn an_error_names_the_link_on_which_its_datagram_was_lost() {
    let links = Links::new();
    for (link, own) in OURS.into_iter().enumerate() {
        let lose = || {
            let sent = links.sent();
            let error = Message::Error(Error::Unreachable(Unreachable::Host));
            links.receive(link, &icmp(between("fe80::9", own), error, &sent[0].1));
        };
        let ping = IcmpSocket::bind_on(&links.stack, "::".parse().unwrap()).unwrap();
        let peer = SocketAddrV6::new(PEER, 0, 0, links.scope(link));
        ping.send_to_scoped(1, b"there?", peer).unwrap();
        lose();
        let error = ping.recv_err(&mut []).unwrap();
        assert_eq!((error.dst, error.scope_id), (PEER.into(), links.scope(link)));
        let udp = UdpSocket::bind_on(&links.stack, "[::]:0").unwrap();
        udp.set_recv_err(true).unwrap();
        udp.send_to(b"there?", links.peer(link, 9)).unwrap();
        lose();
        let error = udp.recv_err(&mut []).unwrap();
        assert_eq!((error.dst, error.offender), (links.peer(link, 9), links.peer(link, 0)));
    }
}

#[test]
fn what_is_for_members_on_this_host_leaves_by_no_link() {
    let (links, iface) = (Links::new(), OURS_V4[0].parse::<Ipv4Addr>().unwrap());
    for (group, leaves) in
        [("239.1.2.3", 0u8), ("ff05::77", 0), ("ff01::77", 0), ("239.1.2.3", 1), ("ff05::77", 1)]
    {
        let group: IpAddr = group.parse().unwrap();
        let socket = UdpSocket::bind_on(&links.stack, if group.is_ipv4() { "0.0.0.0:7" } else { "[::]:7" });
        let socket = socket.unwrap();
        socket.set_nonblocking(true).unwrap();
        match group {
            IpAddr::V4(group) => {
                socket.join_multicast_v4(&group, &iface).unwrap();
                socket.set_multicast_if_v4(&iface).unwrap();
                socket.set_multicast_ttl_v4(u32::from(leaves)).unwrap();
            }
            IpAddr::V6(group) => {
                socket.join_multicast_v6(&group, links.scope(0)).unwrap();
                socket.set_multicast_if_v6(links.scope(0)).unwrap();
                let of_host = group.octets()[1] == 1;
                socket.set_multicast_hops_v6(if of_host { 9 } else { leaves }).unwrap();
            }
        }
        links.sent();
        socket.send_to(b"all", SocketAddr::new(group, 7)).unwrap();
        let datagrams = links.sent().into_iter().filter(|(_, packet)| addresses(packet).dst() == group);
        assert_eq!(datagrams.count(), usize::from(leaves), "{group}");
        assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 3, "{group}");
        drop(socket);
    }
    let ping = IcmpSocket::bind_on(&links.stack, "::".parse().unwrap()).unwrap();
    links.sent();
    let of_host = SocketAddrV6::new("ff01::1".parse().unwrap(), 0, 0, links.scope(0));
    ping.send_to_scoped(1, b"all?", of_host).unwrap();
    assert!(links.sent().is_empty());
}

#[test]
fn a_datagram_by_no_link_or_over_no_hop_is_refused() {
    let links = Links::new();
    let send = |own: &str, meta: SendMeta| {
        let socket = UdpSocket::bind_on(&links.stack, own).unwrap();
        socket.set_broadcast(true).unwrap();
        let sent = socket.send_msg(&[std::io::IoSlice::new(b"x")], &meta);
        sent.err().map(|error| error.raw_os_error().unwrap())
    };
    let bound = [format!("{}:0", OURS_V4[0]), format!("[{}%{}]:0", OURS[0], links.scope(0))];
    for (own, to) in [
        ("0.0.0.0:0", "239.1.2.3:9"),
        (&bound[0], "239.1.2.3:9"),
        (&bound[0], "255.255.255.255:9"),
        ("[::]:0", "[ff02::77]:9"),
        (&bound[1], "[ff05::77]:9"),
        (&bound[1], "[fe80::9]:9"),
    ] {
        let meta = SendMeta { interface: Some(77), ..SendMeta::to(to.parse().unwrap()) };
        assert_eq!(send(own, meta), NO_DEVICE, "{own} {to}");
        let meta = SendMeta { interface: Some(links.scope(0)), ..meta };
        assert_eq!(send(own, meta), None, "{own} {to}");
    }
    for to in ["10.1.0.9:9", "239.1.2.3:9", "127.0.0.1:9"] {
        let meta = SendMeta { hop_limit: Some(0), ..SendMeta::to(to.parse().unwrap()) };
        assert_eq!(send("0.0.0.0:0", meta), Some(rustix::io::Errno::INVAL.raw_os_error()), "{to}");
    }
}
