//! Datagrams that are received and sent in fragments, hostile fragments, and reports about segments.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use proptest::prelude::*;
use sockeye::UdpSocket;
use sockeye_proto::icmp::{Error, Family, Message, Problem, Unreachable};
use sockeye_proto::ip::fragment::{self, Fragment};
use sockeye_proto::ip::{self, Addresses, Header};

use crate::host::{Host, MTU, icmp, inwards, packet, read_icmp};
use crate::segments::connecting;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const ASK: Message = Message::EchoRequest { id: 7, seq: 9 };

/// One fragment as a packet.
pub fn part(addresses: Addresses, protocol: u8, place: Fragment, payload: &[u8]) -> Vec<u8> {
    let header = Header { addresses, protocol, hop_limit: 64, traffic_class: 0, flow_label: 0 };
    let mut packet = vec![0; fragment::header_len(&addresses)];
    fragment::emit(&header, &place, payload.len(), &mut packet).unwrap();
    packet.extend_from_slice(payload);
    packet
}

/// A packet cut into fragments of `size` bytes of payload.
fn parts(whole: &[u8], id: u32, size: usize) -> Vec<Vec<u8>> {
    let (header, range) = ip::parse(whole, ip::HeaderChecksum::Verify).unwrap();
    let payload = &whole[range];
    let cut = |(n, piece): (usize, &[u8])| {
        let place = Fragment { id, offset: (n * size) as u16, more: (n + 1) * size < payload.len() };
        part(header.addresses, header.protocol, place, piece)
    };
    payload.chunks(size).enumerate().map(cut).collect()
}

/// The datagram that the stack's fragments form: header and payload.
fn joined(sent: &[Vec<u8>]) -> (Header, Vec<u8>) {
    let mut whole = Vec::new();
    let mut header = None;
    for packet in sent {
        assert!(packet.len() <= MTU as usize);
        let (of, place, range, _) =
            fragment::parse_head(packet, packet.len(), ip::HeaderChecksum::Verify).unwrap();
        assert_eq!(usize::from(place.offset), whole.len());
        whole.extend_from_slice(&packet[range]);
        assert_eq!(place.more, packet != sent.last().unwrap());
        header = Some(of);
    }
    (header.unwrap(), whole)
}

#[test]
fn a_datagram_in_fragments_is_answered_in_fragments_whatever_their_order() {
    for family in FAMILIES {
        for (len, size) in [(3000, 1024), (9000, 1400), (60_000, 1440), (20, 8)] {
            let mut host = Host::new();
            let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut fragments = parts(&icmp(inwards(family), ASK, &data), 5, size);
            let middle = fragments.len() / 2;
            fragments.rotate_left(middle);
            let answers: Vec<_> = fragments.iter().flat_map(|packet| host.send(packet)).collect();
            let whole = if len > MTU as usize {
                let (header, payload) = joined(&answers);
                packet(header.addresses, header.protocol, &payload)
            } else {
                answers.into_iter().next().unwrap()
            };
            let (addresses, message, echoed) = read_icmp(&whole);
            assert_eq!(
                (addresses, message),
                (inwards(family).reversed(), Message::EchoReply { id: 7, seq: 9 })
            );
            assert!(echoed == data, "{family:?} {len}");
            assert_eq!((host.count("ip_reasm_oks"), host.count("ip_reasm_fails")), (1, 0));
            assert_eq!(host.stack.memory_in_use(), 0);
        }
    }
}

#[test]
fn time_exceeded_is_sent_to_the_sender_of_the_first_fragment() {
    for (family, seconds) in [(Family::V4, 30), (Family::V6, 60)] {
        let mut host = Host::new();
        let fragments = parts(&icmp(inwards(family), ASK, &[1; 100]), 5, 48);
        assert!(host.send(&fragments[0]).is_empty());
        let second = parts(&icmp(inwards(family), ASK, &[1; 100]), 6, 48);
        assert!(host.send(&second[1]).is_empty(), "its first fragment never arrives");
        assert!(host.pass(Duration::from_secs(seconds - 1)).is_empty());
        assert!(host.stack.memory_in_use() > 0);
        let errors = host.pass(Duration::from_secs(2));
        assert_eq!(errors.len(), 1);
        let (_, message, quote) = read_icmp(&errors[0]);
        assert_eq!((message, quote), (Message::Error(Error::ReassemblyTimeExceeded), fragments[0].clone()));
        assert_eq!((host.count("ip_reasm_timeout"), host.stack.memory_in_use()), (2, 0));
    }
}

#[test]
fn an_atomic_fragment_is_delivered_and_does_not_disturb_fragments_of_its_identification() {
    let mut host = Host::new();
    let fragments = parts(&icmp(inwards(Family::V6), ASK, &[1; 100]), 5, 48);
    host.send(&fragments[0]);
    let (_, message, _) = read_icmp(&host.send(&parts(&icmp(inwards(Family::V6), ASK, b"x"), 5, 48)[0])[0]);
    assert_eq!(message, Message::EchoReply { id: 7, seq: 9 });
    let answers: Vec<_> = fragments[1..].iter().flat_map(|packet| host.send(packet)).collect();
    assert_eq!(read_icmp(&answers[0]).2, [1; 100]);
}

#[test]
fn the_rest_of_a_refused_datagram_is_dropped_when_it_times_out() {
    let at = |offset| Fragment { id: 1, offset, more: true };
    let mut host = Host::new();
    for offset in [0, 8, 32] {
        assert!(host.send(&part(inwards(Family::V4), 17, at(offset), &[0; 16])).is_empty());
    }
    assert_eq!((host.count("ip_frag_overlap"), host.count("ip_frag_of_dead")), (1, 1));
    host.pass(Duration::from_secs(31));
    assert_eq!(host.stack.memory_in_use(), 0);
}

#[test]
fn ipv6_reports_lengths_that_are_no_multiple_of_eight_and_truncated_header_chains() {
    let mut host = Host::new();
    let at = |offset| Fragment { id: 1, offset, more: true };
    let odd = host.send(&part(inwards(Family::V6), 17, at(8), &[0; 9]));
    assert_eq!(odd.len(), 0, "no error for a fragment that is not the first (RFC 4443 section 2.4)");
    let odd = host.send(&part(inwards(Family::V6), 17, at(0), &[0; 9]));
    assert_eq!(read_icmp(&odd[0]).1, Message::Error(Error::ParameterProblem(Problem::Field, 4)));
    let cut = host.send(&part(inwards(Family::V6), 6, at(0), &[0; 16]));
    assert_eq!(read_icmp(&cut[0]).1, Message::Error(Error::ParameterProblem(Problem::IncompleteChain, 0)));
    assert_eq!((host.count("ip_frag_incomplete_chain"), host.count("ip_frag_bad_length")), (1, 2));
    assert_eq!(host.stack.memory_in_use(), 0);
}

/// A source beside the honest one, for a number.
fn forged(family: Family, number: u32) -> Addresses {
    let (src, dst) = match family {
        Family::V4 => (format!("10.9.{}.{}", 1 + number / 200, 10 + number % 200), "10.9.0.1"),
        Family::V6 => (format!("fd09::{:x}", 0x1000 + number), "fd09::1"),
    };
    crate::host::between(&src, dst)
}

#[test]
fn a_flood_of_fragments_stays_within_its_bounds_and_a_fresh_datagram_gets_through() {
    // Large pieces meet the bound of memory, small ones that of datagrams; many sources, or one.
    for (family, len, sources, ids) in [
        (Family::V4, 1400, 100, 50),
        (Family::V6, 1400, 100, 50),
        (Family::V4, 8, 2000, 1),
        (Family::V6, 8, 2000, 1),
        (Family::V6, 8, 1, 5000),
    ] {
        let mut host = Host::new();
        let fragments = |id| parts(&icmp(inwards(family), ASK, &[1; 2000]), id, 1024);
        let before = fragments(5);
        host.send(&before[0]);
        for source in 0..sources {
            for id in 0..ids {
                let place = Fragment { id, offset: 0, more: true };
                host.send(&part(forged(family, source), 17, place, &vec![0; len]));
            }
        }
        let what = format!("{len} bytes, {sources} sources, {family:?}");
        assert!(host.stack.memory_in_use() <= 5 << 20, "{what}: {}", host.stack.memory_in_use());
        assert!(host.count("ip_reasm_evicted") > 900, "{what}: {}", host.count("ip_reasm_evicted"));
        assert_eq!(host.count("ip_frag_no_room"), 0, "{what}");
        let fresh: Vec<_> = fragments(6).iter().flat_map(|packet| host.send(packet)).collect();
        assert!(!fresh.is_empty(), "{what}: a datagram that arrives now is answered");
        // Sources that hold more than a share are evicted before those that hold less.
        let answer = host.send(&before[1]);
        assert_eq!(answer.is_empty(), sources == 2000, "{what}: the datagram that was begun before");
        host.pass(Duration::from_secs(61));
        assert_eq!(host.stack.memory_in_use(), 0);
    }
}

#[test]
fn only_an_error_that_quotes_the_syn_ends_a_connection_attempt() {
    for (family, to, why, kind) in [
        (Family::V4, "10.9.0.2:9", Unreachable::Host, ErrorKind::HostUnreachable),
        (Family::V6, "[fd09::2]:9", Unreachable::Network, ErrorKind::NetworkUnreachable),
        (Family::V4, "10.9.0.2:9", Unreachable::Port, ErrorKind::ConnectionRefused),
        (Family::V4, "10.9.0.2:9", Unreachable::NetworkOtherwise, ErrorKind::NetworkUnreachable),
        (Family::V4, "10.9.0.2:9", Unreachable::HostOtherwise, ErrorKind::HostUnreachable),
        // As on Linux, a prohibition has an error of its own only over IPv6.
        (Family::V4, "10.9.0.2:9", Unreachable::Prohibited, ErrorKind::HostUnreachable),
        (Family::V6, "[fd09::2]:9", Unreachable::Prohibited, ErrorKind::PermissionDenied),
        (Family::V6, "[fd09::2]:9", Unreachable::BeyondScope, ErrorKind::HostUnreachable),
    ] {
        let mut host = Host::new();
        let (mut stream, syn) = connecting(&mut host, to);
        let ip_len = inwards(family).header_len();
        let mut forged = syn.clone();
        forged[ip_len + 7] ^= 1;
        let error = Message::Error(Error::Unreachable(why));
        host.send(&icmp(inwards(family), error, &forged));
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        host.send(&icmp(inwards(family), error, &syn[..ip_len + 8]));
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), kind, "{why:?}");
        assert_eq!(host.count("icmp_in_dest_unreachs"), 2);
    }
}

proptest! {
    /// With any input nothing panics, memory is returned, and a connect in progress continues.
    #[test]
    fn arbitrary_packets_change_nothing_for_others(
        packets in prop::collection::vec(
            (any::<bool>(), any::<u8>(), any::<u32>(), 0u16..6, any::<bool>(), prop::collection::vec(any::<u8>(), 0..80),
             any::<bool>(), 0usize..60, any::<u8>()),
            1..40,
        ),
    ) {
        let mut host = Host::new();
        let (stream, syn) = connecting(&mut host, "10.9.0.2:9");
        for (v6, protocol, id, at, more, payload, whole, where_, what) in packets {
            let addresses = inwards(if v6 { Family::V6 } else { Family::V4 });
            let protocol = [1, 2, 6, 17, 58, 0, 43, 44, 60, 59, protocol][usize::from(protocol) % 11];
            let mut bytes = if whole {
                packet(addresses, protocol, &payload)
            } else {
                part(addresses, protocol, Fragment { id: id % 3, offset: at * 8, more }, &payload)
            };
            // One byte behind the addresses' place or before, with the IPv4 checksum left to be wrong at times.
            if let Some(byte) = bytes.get_mut(where_).filter(|_| where_ > 24) {
                *byte = what;
            }
            host.send(&bytes);
        }
        host.pass(Duration::from_millis(100));
        let (_, message, _) = read_icmp(&host.send(&icmp(inwards(Family::V6), ASK, b"alive"))[0]);
        prop_assert_eq!(message, Message::EchoReply { id: 7, seq: 9 });
        prop_assert!(stream.peer_addr().is_ok() || stream.take_error().unwrap().is_none());
        let again = host.pass(Duration::from_secs(61));
        prop_assert!(again.iter().any(|packet| packet[20..24] == syn[20..24]), "the SYN is repeated");
        drop(stream);
        host.pass(Duration::from_secs(1));
        prop_assert_eq!(host.stack.memory_in_use(), 0);
    }
}

#[test]
fn an_error_about_a_first_fragment_reaches_the_socket_that_sent_it() {
    for (family, any, to) in [(Family::V4, "0.0.0.0:0", "10.9.0.2:9"), (Family::V6, "[::]:0", "[fd09::2]:9")]
    {
        let mut host = Host::new();
        let socket = UdpSocket::bind_on(&host.stack, any).unwrap();
        socket.connect(to).unwrap();
        socket.send(&[1; 3000]).unwrap();
        let sent = host.turn();
        let first = &sent[0];
        let mut quotes = vec![(sent[1].clone(), false), (first.clone(), true)];
        if family == Family::V6 {
            // A header for the destination behind the fragment header, whole and cut.
            let (header, place, range, _) =
                fragment::parse_head(first, first.len(), ip::HeaderChecksum::Verify).unwrap();
            let options = [ip::PROTOCOL_UDP, 0, 1, 4, 0, 0, 0, 0];
            let behind = part(header.addresses, 60, place, &[&options[..], &first[range]].concat());
            quotes.extend([(behind[..50].to_vec(), false), (behind, true)]);
        }
        for (quoted, is_told) in quotes {
            let why = Message::Error(Error::Unreachable(Unreachable::Port));
            host.send(&icmp(inwards(family), why, &quoted[..quoted.len().min(500)]));
            let told = socket.take_error().unwrap().map(|error| error.kind());
            assert_eq!(told, is_told.then_some(ErrorKind::ConnectionRefused), "{family:?}");
        }
    }
}
