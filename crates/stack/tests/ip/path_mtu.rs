//! The path MTU cache: which packets update it, which senders use it, and for how long.

use std::io::Write;
use std::time::Duration;

use sockeye::{IcmpSocket, MtuDiscover, UdpSocket};
use sockeye_proto::icmp::{Error, Family, Message};

use crate::host::{Host, icmp, inwards};
use crate::segments::{connecting, syn_ack};

/// The family, our own wildcard, and a port of the other side.
const FAMILIES: [(Family, &str, &str); 2] =
    [(Family::V4, "0.0.0.0:0", "10.9.0.2:9"), (Family::V6, "[::]:0", "[fd09::2]:9")];
const EMSGSIZE: Option<i32> = Some(90);

fn connected(host: &Host, any: &str, to: &str) -> UdpSocket {
    let socket = UdpSocket::bind_on(&host.stack, any).unwrap();
    socket.connect(to).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The lengths of the packets that a datagram of 1,400 bytes leaves in.
fn lengths(host: &mut Host, socket: &UdpSocket) -> Vec<usize> {
    socket.send(&[1; 1400]).unwrap();
    host.turn().iter().map(Vec::len).collect()
}

fn report(host: &mut Host, family: Family, mtu: u32, quoted: &[u8]) {
    host.send(&icmp(inwards(family), Message::Error(Error::PacketTooBig(mtu)), quoted));
}

#[test]
fn a_report_about_a_datagram_applies_to_its_destination_for_ten_minutes() {
    for (family, any, to) in FAMILIES {
        let mut host = Host::new();
        let socket = connected(&host, any, to);
        let headers = inwards(family).header_len() + 8;
        assert_eq!(socket.path_mtu().unwrap(), 1500);
        socket.send(&[1; 1400]).unwrap();
        let sent = host.turn().remove(0);
        assert_eq!(sent.len(), 1400 + headers);
        report(&mut host, family, 1300, &sent);
        assert_eq!(socket.send(b"the error is reported once").unwrap_err().raw_os_error(), EMSGSIZE);
        assert_eq!((socket.path_mtu().unwrap(), host.count("ip_path_mtu_learned")), (1300, 1));

        let other = connected(&host, any, to);
        for one in [&socket, &other] {
            let lengths = lengths(&mut host, one);
            assert!(lengths.len() == 2 && lengths.iter().all(|len| *len <= 1300), "{lengths:?}");
        }
        report(&mut host, family, 1400, &sent);
        assert_eq!((socket.path_mtu().unwrap(), host.count("ip_path_mtu_learned")), (1300, 1));
        let _ = socket.take_error();

        host.pass(Duration::from_secs(599));
        assert_eq!(lengths(&mut host, &socket).len(), 2);
        host.pass(Duration::from_secs(1));
        assert_eq!(lengths(&mut host, &socket), [1400 + headers]);
    }
}

#[test]
fn a_report_about_a_first_fragment_applies_and_one_about_a_later_fragment_does_not() {
    for (family, any, to) in FAMILIES {
        let mut host = Host::new();
        let socket = connected(&host, any, to);
        socket.send(&[1; 3000]).unwrap();
        let fragments = host.turn();
        let [first, second, _] = &fragments[..] else { panic!("{} fragments", fragments.len()) };
        for (quoted, learned) in [(second, (1500, 0)), (first, (1400, 1))] {
            report(&mut host, family, 1400, &quoted[..500]);
            assert_eq!((socket.path_mtu().unwrap(), host.count("ip_path_mtu_learned")), learned);
        }
        let _ = socket.take_error();
        socket.send(&[1; 3000]).unwrap();
        let lengths: Vec<_> = host.turn().iter().map(Vec::len).collect();
        assert!(lengths.len() == 3 && lengths.iter().all(|len| *len <= 1400), "{lengths:?}");
    }
}

#[test]
fn a_socket_option_decides_how_too_long_datagrams_are_handled() {
    for (family, any, to) in FAMILIES {
        let mut host = Host::new();
        let socket = connected(&host, any, to);
        let headers = inwards(family).header_len() + 8;
        socket.send(&[1; 1400]).unwrap();
        let sent = host.turn().remove(0);
        report(&mut host, family, 1300, &sent);
        let _ = socket.take_error();

        socket.set_mtu_discover(MtuDiscover::Do).unwrap();
        assert_eq!(socket.send(&vec![0; 1301 - headers]).unwrap_err().raw_os_error(), EMSGSIZE);
        socket.send(&vec![0; 1300 - headers]).unwrap();
        assert_eq!(host.turn().len(), 1);

        socket.set_mtu_discover(MtuDiscover::Probe).unwrap();
        assert_eq!(socket.mtu_discover().unwrap(), MtuDiscover::Probe);
        assert_eq!(lengths(&mut host, &socket), [1400 + headers]);
        assert_eq!(socket.send(&vec![0; 1501 - headers]).unwrap_err().raw_os_error(), EMSGSIZE);

        socket.set_mtu_discover(MtuDiscover::Dont).unwrap();
        assert_eq!(lengths(&mut host, &socket).len(), 2);
        let created = host.count("ip_frag_creates");
        socket.send(b"short").unwrap();
        let short = host.turn().remove(0);
        assert_eq!((short.len(), host.count("ip_frag_creates")), (headers + 5, created));
        if family == Family::V4 {
            assert_eq!((sent[6], short[6]), (0x40, 0), "only the second may be cut on the way");
        }
    }
}

#[test]
fn a_report_that_quotes_an_unsent_datagram_is_ignored() {
    for (family, any, to) in FAMILIES {
        let mut host = Host::new();
        let socket = connected(&host, any, to);
        socket.send(&[1; 1400]).unwrap();
        let sent = host.turn().remove(0);
        let ports = inwards(family).header_len();
        let mut forged = sent.clone();
        forged[ports] ^= 0x55;
        report(&mut host, family, 1300, &forged);
        report(&mut host, family, 1300, &sent[..ports + 7]);
        assert_eq!((socket.path_mtu().unwrap(), host.count("ip_path_mtu_learned")), (1500, 0));
    }
}

#[test]
fn a_report_of_less_than_a_link_takes_gives_the_least_mtu_or_is_discarded() {
    for ((family, any, to), (least, errors)) in FAMILIES.into_iter().zip([(552, 1), (1500, 0)]) {
        let mut host = Host::new();
        let socket = connected(&host, any, to);
        socket.send(&[1; 1400]).unwrap();
        let sent = host.turn().remove(0);
        for mtu in [1, if family == Family::V4 { 551 } else { 1279 }] {
            report(&mut host, family, mtu, &sent);
            assert_eq!(socket.path_mtu().unwrap(), least);
        }
        assert_eq!(socket.take_error().unwrap().iter().count(), errors);
        report(&mut host, family, 1280, &sent);
        assert_eq!(socket.path_mtu().unwrap(), least.min(1280));
    }
}

#[test]
fn echo_requests_update_and_use_the_path_mtu() {
    let mut host = Host::new();
    let ping = IcmpSocket::bind_on(&host.stack, "0.0.0.0".parse().unwrap()).unwrap();
    let them = "10.9.0.2".parse().unwrap();
    ping.send_to(1, &[0; 1400], them).unwrap();
    let sent = host.turn().remove(0);
    report(&mut host, Family::V4, 0, &sent);
    assert_eq!(connected(&host, "0.0.0.0:0", "10.9.0.2:9").path_mtu().unwrap(), 1006, "the next plateau");
    let _ = ping.take_error();
    ping.send_to(2, &[0; 1400], them).unwrap();
    assert_eq!(host.turn().len(), 2);
}

#[test]
fn a_new_connection_starts_with_the_known_path_mtu_and_records_reports() {
    for (family, any, to) in FAMILIES {
        let mut host = Host::new();
        let socket = connected(&host, any, to);
        socket.send(&[1; 1400]).unwrap();
        let sent = host.turn().remove(0);
        report(&mut host, family, 1400, &sent);

        let (mut stream, syn) = connecting(&mut host, to);
        host.send(&syn_ack(&syn));
        stream.write_all(&[2; 5000]).unwrap();
        let segments = host.turn();
        let longest = segments.iter().max_by_key(|segment| segment.len()).unwrap();
        assert_eq!(longest.len(), 1400, "{family:?}");
        report(&mut host, family, 1300, longest);
        assert_eq!(socket.path_mtu().unwrap(), 1300);

        // Nothing that is in flight.
        let mut forged = longest.clone();
        forged[inwards(family).header_len() + 4] ^= 0x40;
        report(&mut host, family, 1280, &forged);
        assert_eq!(socket.path_mtu().unwrap(), 1300);
    }
}

/// Bytes of a packet, and its identification if routers may cut it.
fn cut_by_routers(packet: &[u8]) -> (usize, Option<u16>) {
    assert_eq!(packet[0] >> 4, 4);
    let id = u16::from_be_bytes([packet[4], packet[5]]);
    (packet.len(), (packet[6] == 0 && packet[7] == 0).then_some(id))
}

#[test]
fn routers_may_cut_packets_on_a_path_that_takes_less_than_the_least_mtu() {
    let (_, any, to) = FAMILIES[0];
    let mut host = Host::new();
    let (mut stream, syn) = connecting(&mut host, to);
    assert_eq!(cut_by_routers(&syn).1, None);
    host.send(&syn_ack(&syn));
    stream.write_all(&[2; 1000]).unwrap();
    let long = host.turn().remove(0);
    assert_eq!(cut_by_routers(&long), (1040, None));
    let again = host.send(&icmp(inwards(Family::V4), Message::Error(Error::PacketTooBig(300)), &long));
    let again: Vec<_> = again.iter().map(|packet| cut_by_routers(packet)).collect();
    let [(552, Some(first)), (528, Some(second))] = again[..] else { panic!("{again:?}") };
    assert_eq!(second, first.wrapping_add(1));

    let (_another, syn) = connecting(&mut host, "10.9.0.2:10");
    assert!(cut_by_routers(&syn).1.is_some());
    let (_elsewhere, syn) = connecting(&mut host, "10.9.0.3:10");
    assert_eq!(cut_by_routers(&syn).1, None);
    let socket = connected(&host, any, to);
    socket.send(&[1; 500]).unwrap();
    assert!(matches!(cut_by_routers(&host.turn().remove(0)), (528, Some(_))));
    socket.set_mtu_discover(MtuDiscover::Do).unwrap();
    socket.send(&[1; 500]).unwrap();
    assert_eq!(cut_by_routers(&host.turn().remove(0)), (528, None));
}

#[test]
fn a_report_of_so_little_counts_for_segments_that_are_short_already() {
    let mut host = Host::new();
    let (mut stream, syn) = connecting(&mut host, FAMILIES[0].2);
    host.send(&syn_ack(&syn));
    stream.write_all(&[2; 500]).unwrap();
    let short = host.turn().remove(0);
    // A number that is not in flight is not believed.
    let mut forged = short.clone();
    forged[inwards(Family::V4).header_len() + 4] ^= 0x40;
    report(&mut host, Family::V4, 300, &forged);
    let again = host.pass(Duration::from_millis(1100));
    assert_eq!(cut_by_routers(&again[0]), (540, None));
    report(&mut host, Family::V4, 300, &short);
    let again = host.pass(Duration::from_millis(4000));
    assert!(matches!(cut_by_routers(again.last().unwrap()), (540, Some(_))), "{}", again.len());
}
