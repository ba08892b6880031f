//! Datagrams between two stacks: addresses and ancillary data, returned errors, joining, malformed datagrams.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{counter, watchdog};
use crate::lab::{Lab, Tap};
use rustix::io::Errno;
use sockeye::netif::{RxFrame, WireConfig, wire};
use sockeye::{MtuDiscover, Outgoing, RecvMeta, SendMeta, UdpSocket, Unsent};

fn socket(lab: &Lab, side: usize, addr: &str) -> UdpSocket {
    let socket = UdpSocket::bind_on(&lab.stacks[side], addr).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

fn at(addr: &str, of: &UdpSocket) -> SocketAddr {
    SocketAddr::new(addr.parse().unwrap(), of.local_addr().unwrap().port())
}

#[test]
fn a_datagram_arrives_with_its_addresses_class_and_hops() {
    let _guard = watchdog("a_datagram_arrives_with_its_addresses_class_and_hops");
    for offload in [false, true] {
        let lab = Lab::new(&WireConfig { offload, ..WireConfig::default() }, |_| {});
        for (from, to) in [("0.0.0.0:0", "10.9.0.2"), ("[::]:0", "fd09::2")] {
            let (a, b) = (socket(&lab, 0, from), socket(&lab, 1, from));
            let meta = SendMeta { traffic_class: Some(0x2a), hop_limit: Some(9), ..SendMeta::to(at(to, &b)) };
            for len in [0, 1, 1000, 1400] {
                let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
                a.send_msg(&[IoSlice::new(&bytes)], &meta).unwrap();
                let mut buf = [0; 2000];
                let got = b.recv_msg(&mut [IoSliceMut::new(&mut buf)]).unwrap();
                assert_eq!(&buf[..got.len], &bytes);
                assert_eq!((got.traffic_class, got.hop_limit, got.dst), (0x2a, 9, to.parse().unwrap()));
                assert_eq!(got.interface, 2);
                b.send_to(b"back", got.from).unwrap();
                assert_eq!(a.recv_from(&mut buf).unwrap(), (4, at(to, &b)));
            }
        }
        assert_eq!(lab.count("udp_in_csum_errors") + lab.count("udp_in_errors"), 0);
        lab.assert_empty();
    }
}

#[test]
fn a_connected_socket_gets_an_error_if_the_remote_port_is_closed() {
    let _guard = watchdog("a_connected_socket_gets_an_error_if_the_remote_port_is_closed");
    let lab = Lab::new(&WireConfig::default(), |_| {});
    for (own, peer) in [("10.9.0.1:0", "10.9.0.2:9"), ("[fd09::1]:0", "[fd09::2]:9")] {
        let a = socket(&lab, 0, own);
        a.set_recv_err(true).unwrap();
        a.connect(peer).unwrap();
        a.send(b"anybody?").unwrap();
        assert_eq!(a.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let mut quoted = [0; 16];
        let error = a.recv_err(&mut quoted).unwrap();
        assert_eq!((error.what, error.dst), (Unsent::PortUnreachable, peer.parse().unwrap()));
        assert_eq!(error.offender.ip(), peer.parse::<SocketAddr>().unwrap().ip());
        assert_eq!(&quoted[..error.len], b"anybody?");
    }
    assert_eq!(counter(&lab.stacks[1], "udp_no_ports"), 2);
}

#[test]
fn datagrams_without_a_route_or_longer_than_the_path_mtu_are_refused() {
    let _guard = watchdog("datagrams_without_a_route_or_longer_than_the_path_mtu_are_refused");
    let lab = Lab::new(&WireConfig::default(), |_| {});
    let a = socket(&lab, 0, "0.0.0.0:0");
    assert_eq!(a.send_to(b"x", "192.0.2.1:9").unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    let own = socket(&lab, 0, "127.0.0.1:0");
    let invalid = own.send_to(b"x", "10.9.0.2:9").unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::InvalidInput, "the loopback's address does not leave the host");
}

#[test]
fn a_broadcast_reaches_the_network_only_if_the_socket_allows_it() {
    let _guard = watchdog("a_broadcast_reaches_the_network_only_if_the_socket_allows_it");
    let lab = Lab::new(&WireConfig::default(), |_| {});
    let (a, b) = (socket(&lab, 0, "0.0.0.0:0"), socket(&lab, 1, "0.0.0.0:0"));
    let to = at("10.9.0.255", &b);
    assert_eq!(a.send_to(b"x", to).unwrap_err().kind(), ErrorKind::PermissionDenied);
    a.set_broadcast(true).unwrap();
    a.send_to(b"all", to).unwrap();
    let mut buf = [0; 8];
    let got = b.recv_msg(&mut [IoSliceMut::new(&mut buf)]).unwrap();
    assert_eq!((got.len, got.dst, got.from), (3, to.ip(), at("10.9.0.1", &a)));
}

#[test]
fn members_of_a_group_are_reached_over_the_wire() {
    let _guard = watchdog("members_of_a_group_are_reached_over_the_wire");
    let (left, right) = wire(&WireConfig::default()).unwrap();
    let stacks = [crate::common::stack(), crate::common::stack()];
    let out = stacks[0].attach(left, &crate::lab::addrs(0)).unwrap();
    stacks[1].attach(right, &crate::lab::addrs(1)).unwrap();
    let lab = Lab { stacks, v6: false };
    let (a, b) = (socket(&lab, 0, "10.9.0.1:0"), socket(&lab, 1, "0.0.0.0:0"));
    let (group, own) = ("239.1.2.3".parse().unwrap(), "10.9.0.2".parse().unwrap());
    let to = at("239.1.2.3", &b);
    let no_route = a.send_to(b"x", to).unwrap_err();
    assert_eq!(no_route.kind(), ErrorKind::NetworkUnreachable);
    lab.stacks[0].add_route("239.0.0.0/8".parse().unwrap(), out).unwrap();
    b.join_multicast_v4(&group, &own).unwrap();
    a.send_to(b"joined", to).unwrap();
    let mut buf = [0; 8];
    let got = b.recv_msg(&mut [IoSliceMut::new(&mut buf)]).unwrap();
    assert_eq!((got.len, got.dst, got.hop_limit), (6, to.ip(), 1), "a group is the link's");
    b.leave_multicast_v4(&group, &own).unwrap();
    // A datagram to the group is now dropped; a later one to the host shows that the first would have arrived by then.
    a.send_to(b"left", to).unwrap();
    a.send_to(b"last", at("10.9.0.2", &b)).unwrap();
    assert_eq!((b.recv(&mut buf).unwrap(), &buf[..4]), (4, &b"last"[..]));
}

#[test]
fn datagrams_of_a_flow_are_joined_for_a_socket_that_asks() {
    let _guard = watchdog("datagrams_of_a_flow_are_joined_for_a_socket_that_asks");
    let lab = Lab::new(&WireConfig::default(), |config| config.workers = 0);
    let (a, b) = (socket(&lab, 0, "10.9.0.1:0"), socket(&lab, 1, "10.9.0.2:0"));
    b.set_nonblocking(true).unwrap();
    b.set_gro(true).unwrap();
    let to = SendMeta::to(b.local_addr().unwrap());
    let pieces: Vec<Vec<u8>> =
        [1000, 1000, 1000, 400, 1000, 0, 700].iter().map(|len| vec![3; *len]).collect();
    let batch: Vec<_> = pieces.iter().map(|bytes| Outgoing { bytes, meta: to }).collect();
    assert_eq!(a.send_batch(&batch).unwrap(), 7);
    lab.drive(Duration::from_millis(1));
    let mut metas = [RecvMeta::EMPTY; 8];
    let mut room = vec![[0; 5000]; 8];
    let mut bufs: Vec<_> = room.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
    let count = b.recv_batch(&mut bufs, &mut metas).unwrap();
    let got: Vec<_> = metas[..count].iter().map(|meta| (meta.len, meta.segment_size)).collect();
    assert_eq!(got, [(3400, 1000), (1000, 0), (0, 0), (700, 0)]);
    // A buffer with a segment size is sent as packets, and received as one buffer.
    let cut = SendMeta { segment_size: Some(1200), ..to };
    a.send_msg(&[IoSlice::new(&[4; 5000])], &cut).unwrap();
    lab.drive(Duration::from_millis(2));
    let whole = b.recv_msg(&mut bufs[..1]).unwrap();
    assert_eq!((whole.len, whole.segment_size, whole.segment_count()), (5000, 1200, 5));
    drop((a, b));
    lab.assert_empty();
}

/// Both ends without threads, and the result of a send of 5,000 bytes in datagrams of `size`: frames, datagrams that were
/// sent joined, and those that were received.
fn cut(config: &WireConfig, v6: bool, size: u16, discover: MtuDiscover) -> (u64, u64, usize) {
    let lab = Lab::new(config, |config| config.workers = 0);
    let at = |side: usize| {
        if v6 { ["[fd09::1]:0", "[fd09::2]:0"][side] } else { ["10.9.0.1:0", "10.9.0.2:0"][side] }
    };
    let (a, b) = (socket(&lab, 0, at(0)), socket(&lab, 1, at(1)));
    b.set_nonblocking(true).unwrap();
    a.set_mtu_discover(discover).unwrap();
    let bytes: Vec<u8> = (0..5000u32).map(|i| (i / 7) as u8).collect();
    let meta = SendMeta { segment_size: Some(size), ..SendMeta::to(b.local_addr().unwrap()) };
    a.send_msg(&[IoSlice::new(&bytes)], &meta).unwrap();
    lab.drive(Duration::from_millis(1));
    let (mut got, mut count, mut buf) = (Vec::new(), 0, [0; 5000]);
    while let Ok(len) = b.recv(&mut buf) {
        got.extend_from_slice(&buf[..len]);
        count += 1;
    }
    assert!(got == bytes && lab.count("frames_bad_checksum") == 0);
    (counter(&lab.stacks[0], "frames_out"), counter(&lab.stacks[0], "udp_out_joined"), count)
}

#[test]
fn a_buffer_of_many_datagrams_is_one_frame_if_the_interface_segments() {
    let _guard = watchdog("a_buffer_of_many_datagrams_is_one_frame_if_the_interface_segments");
    let plain = WireConfig { offload: true, ..WireConfig::default() };
    let cuts = WireConfig { segment_max: 65_535, ..plain.clone() };
    let small = WireConfig { segment_max: 4000, ..plain.clone() };
    use MtuDiscover::{Do, Dont, Probe, Want};
    for (v6, fits) in [(false, 1472), (true, 1452)] {
        for discover in [Want, Do, Probe] {
            assert_eq!(cut(&cuts, v6, 1000, discover), (1, 5, 5));
            assert_eq!(cut(&cuts, v6, fits, discover), (1, 4, 4));
            assert_eq!(cut(&small, v6, 1000, discover), (5, 0, 5), "longer than the device takes");
            assert_eq!(cut(&plain, v6, 1000, discover), (5, 0, 5));
        }
        assert_eq!(cut(&cuts, v6, 5000, Want).1, 0, "one datagram is no buffer of many");
        assert_eq!(cut(&cuts, v6, fits + 1, Want), (7, 0, 4), "each but the last in two fragments");
    }
    assert_eq!(cut(&cuts, false, 1000, Dont), (5, 0, 5), "which routers may cut");
    assert_eq!(cut(&cuts, true, 1000, Dont), (1, 5, 5), "which they never do with IPv6");
}

#[test]
fn a_batch_ends_at_the_first_error() {
    let _guard = watchdog("a_batch_ends_at_the_first_error");
    let lab = Lab::new(&WireConfig::default(), |config| config.workers = 0);
    let (a, b, c) =
        (socket(&lab, 0, "10.9.0.1:0"), socket(&lab, 1, "10.9.0.2:0"), socket(&lab, 1, "10.9.0.2:0"));
    a.set_mtu_discover(MtuDiscover::Do).unwrap();
    let (b_at, c_at) = (b.local_addr().unwrap(), c.local_addr().unwrap());
    let nowhere = "192.0.2.1:9".parse().unwrap();
    let (short, long) = (&[7; 9][..], &[7; 1473][..]);
    let received = || {
        lab.drive(Duration::from_millis(1));
        [&b, &c].map(|socket| {
            socket.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| socket.recv(&mut [0; 16]).ok()).count()
        })
    };
    let check = |batch: &[(&[u8], SocketAddr)], result: Result<usize, Errno>, reached: [usize; 2]| {
        let out = counter(&lab.stacks[0], "udp_out_datagrams");
        let batch: Vec<_> =
            batch.iter().map(|(bytes, to)| Outgoing { bytes, meta: SendMeta::to(*to) }).collect();
        let got = a.send_batch(&batch).map_err(|error| Errno::from_io_error(&error).unwrap());
        assert_eq!((got, received()), (result, reached));
        let sent = counter(&lab.stacks[0], "udp_out_datagrams") - out;
        assert_eq!(sent, reached.iter().sum::<usize>() as u64);
    };
    check(&[(short, b_at), (short, c_at), (short, b_at)], Ok(3), [2, 1]);
    check(&[(long, b_at), (short, b_at)], Err(Errno::MSGSIZE), [0, 0]);
    check(&[(long, b_at), (short, c_at)], Err(Errno::MSGSIZE), [0, 0]);
    check(&[(long, b_at), (short, nowhere)], Err(Errno::MSGSIZE), [0, 0]);
    check(&[(short, nowhere), (short, b_at)], Err(Errno::NETUNREACH), [0, 0]);
    check(&[(short, b_at), (long, b_at), (short, b_at)], Ok(1), [1, 0]);
    check(&[(short, b_at), (short, b_at), (long, c_at), (short, b_at)], Ok(2), [2, 0]);
    check(&[(short, b_at), (short, nowhere), (short, c_at)], Ok(1), [1, 0]);
    // More than are handed over at once.
    let mut many = vec![(short, b_at); 40];
    many[20].0 = long;
    check(&many, Ok(20), [20, 0]);
}

#[test]
fn damaged_datagrams_are_counted_and_dropped() {
    let _guard = watchdog("damaged_datagrams_are_counted_and_dropped");
    let (left, right) = wire(&WireConfig::default()).unwrap();
    // The first byte of the ports, of the length, and of the checksum, each in a datagram of its own.
    let places = std::sync::Mutex::new(vec![26usize, 24, 20]);
    let damage = move |frames: &mut Vec<sockeye::netif::TxFrame>| {
        if let Some(place) = places.lock().unwrap().pop() {
            frames[0].head_mut()[place] ^= 0x40;
        }
    };
    let lab =
        Lab::between(Tap { end: left, sending: damage, receiving: |_: RxFrame<'_>| true }, right, |_| {});
    let (a, b) = (socket(&lab, 0, "10.9.0.1:0"), socket(&lab, 1, "10.9.0.2:0"));
    for text in [&b"port"[..], b"length", b"sum", b"whole"] {
        a.send_to(text, b.local_addr().unwrap()).unwrap();
    }
    let mut buf = [0; 16];
    assert_eq!(b.recv(&mut buf).unwrap(), 5);
    assert_eq!(counter(&lab.stacks[1], "udp_in_errors"), 3);
    assert_eq!(counter(&lab.stacks[1], "udp_in_csum_errors"), 2);
}
