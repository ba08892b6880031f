//! Errors that the stack sends: which errors, which part of the packet they quote, and which sources never
//! get one.

use sockeye_proto::icmp::{Error, Family, Message, Problem, Unreachable};
use sockeye_proto::ip::fragment::Fragment;

use crate::fragments::part;
use crate::host::{Host, between, icmp, inwards, packet, read_icmp};

/// A protocol number for experiments (RFC 3692), which is not implemented.
const EXPERIMENT: u8 = 253;

#[test]
fn an_unknown_protocol_is_reported_with_the_packet_quoted() {
    for (family, why, most) in [
        (Family::V4, Error::Unreachable(Unreachable::Protocol), 576 - 28),
        (Family::V6, Error::ParameterProblem(Problem::NextHeader, 6), 1280 - 48),
    ] {
        for len in [0, 100, 1400] {
            let mut host = Host::new();
            let offending = packet(inwards(family), EXPERIMENT, &vec![5; len]);
            let sent = host.send(&offending);
            let (addresses, message, quote) = read_icmp(&sent[0]);
            assert_eq!((addresses, message), (inwards(family).reversed(), Message::Error(why)));
            assert_eq!(quote, offending[..offending.len().min(most)]);
            assert_eq!(host.stack.memory_in_use(), 0);
        }
    }
}

#[test]
fn the_pointer_of_a_parameter_problem_counts_extension_headers() {
    let mut host = Host::new();
    // Destination options with six bytes of padding, twice, then the experiment.
    let mut inside = vec![60, 0, 1, 4, 0, 0, 0, 0, EXPERIMENT, 0, 1, 4, 0, 0, 0, 0];
    inside.extend([1, 2, 3]);
    let sent = host.send(&packet(inwards(Family::V6), 60, &inside));
    let why = Error::ParameterProblem(Problem::NextHeader, 48);
    assert_eq!(read_icmp(&sent[0]).1, Message::Error(why));
}

#[test]
fn a_parameter_problem_points_at_the_unknown_field() {
    let v6 = |next, inside: &[u8]| packet(inwards(Family::V6), next, inside);
    // An option behind two bytes of padding; a routing header of type 4 behind destination options; a hop-by-hop header
    // named by them.
    for (next, inside, problem, at) in [
        (60, &[EXPERIMENT, 0, 0, 0, 0x81, 2, 0, 0][..], Problem::Option, 44),
        (60, &[43, 0, 1, 4, 0, 0, 0, 0, EXPERIMENT, 0, 4, 2, 0, 0, 0, 0], Problem::Field, 50),
        (60, &[0, 0, 1, 4, 0, 0, 0, 0, EXPERIMENT, 0, 1, 4, 0, 0, 0, 0], Problem::NextHeader, 40),
        (0, &[EXPERIMENT, 0, 1, 2, 0, 0, 1, 9], Problem::Field, 46),
    ] {
        let mut host = Host::new();
        let offending = v6(next, inside);
        let sent = host.send(&offending);
        let (addresses, message, quote) = read_icmp(&sent[0]);
        let why = Error::ParameterProblem(problem, at);
        assert_eq!((addresses, message), (inwards(Family::V6).reversed(), Message::Error(why)));
        assert_eq!(quote, offending);
        assert_eq!(host.stack.memory_in_use(), 0);
    }
    // Sent to a group and answered nevertheless: it comes from an address of the link.
    let mut host = Host::new();
    let to_many = packet(between("fd09::2", "ff02::1"), 60, &[EXPERIMENT, 0, 0x81, 4, 0, 0, 0, 0]);
    let sent = host.send(&to_many);
    assert_eq!(read_icmp(&sent[0]).0, inwards(Family::V6).reversed());
}

#[test]
fn a_problem_behind_a_fragment_header_is_reported_for_the_first_fragment() {
    // As above, 8 bytes further on; a hop-by-hop header that the fragment header names; an unknown protocol, named by
    // the fragment header and by options behind it.
    for (next, inside, problem, at) in [
        (60, &[EXPERIMENT, 0, 0, 0, 0x81, 2, 0, 0][..], Problem::Option, 52),
        (60, &[43, 0, 1, 4, 0, 0, 0, 0, EXPERIMENT, 0, 4, 2, 0, 0, 0, 0], Problem::Field, 58),
        (60, &[0, 0, 1, 4, 0, 0, 0, 0, EXPERIMENT, 0, 1, 4, 0, 0, 0, 0], Problem::NextHeader, 48),
        (0, &[EXPERIMENT, 0, 1, 4, 0, 0, 0, 0], Problem::NextHeader, 40),
        (60, &[EXPERIMENT, 0, 1, 2, 0, 0, 1, 9], Problem::Field, 54),
        (EXPERIMENT, &[1, 2, 3, 4, 5, 6, 7, 8], Problem::NextHeader, 40),
        (60, &[EXPERIMENT, 0, 1, 4, 0, 0, 0, 0], Problem::NextHeader, 48),
    ] {
        let mut host = Host::new();
        let place = |offset, more| Fragment { id: 3, offset, more };
        let rest = [7; 16];
        let first = part(inwards(Family::V6), next, place(0, true), inside);
        assert!(host.send(&first).is_empty(), "the rest may still arrive");
        let end = u16::try_from(inside.len()).unwrap();
        let sent = host.send(&part(inwards(Family::V6), next, place(end, false), &rest));
        let (addresses, message, quote) = read_icmp(&sent[0]);
        let why = Error::ParameterProblem(problem, at);
        assert_eq!((addresses, message), (inwards(Family::V6).reversed(), Message::Error(why)));
        assert_eq!(quote, [&first[..], &rest].concat());
        assert_eq!(host.stack.memory_in_use(), 0);
    }
    // An option that must not be reported, and a datagram to a group.
    let mut host = Host::new();
    let atomic = Fragment { id: 4, offset: 0, more: false };
    let silent = part(inwards(Family::V6), 60, atomic, &[EXPERIMENT, 0, 0x41, 4, 0, 0, 0, 0]);
    assert!(host.send(&silent).is_empty());
    let to_many = between("fd09::2", "ff02::1");
    assert!(host.send(&part(to_many, 60, atomic, &[EXPERIMENT, 0, 0xc1, 4, 0, 0, 0, 0])).is_empty());
    let answers = host.send(&part(to_many, 60, atomic, &[EXPERIMENT, 0, 0x81, 4, 0, 0, 0, 0]));
    assert_eq!(read_icmp(&answers[0]).1, Message::Error(Error::ParameterProblem(Problem::Option, 50)));
    assert_eq!(host.count("frames_refused_option"), 3);
}

#[test]
fn a_routing_header_without_segments_left_is_skipped() {
    let mut host = Host::new();
    let ask = icmp(inwards(Family::V6), Message::EchoRequest { id: 1, seq: 2 }, b"data");
    let mut inside = vec![58, 0, 4, 0, 0, 0, 0, 0];
    inside.extend(&ask[40..]);
    let sent = host.send(&packet(inwards(Family::V6), 43, &inside));
    assert_eq!(read_icmp(&sent[0]).1, Message::EchoReply { id: 1, seq: 2 });
}

#[test]
fn errors_multicasts_and_packets_without_a_source_get_no_error() {
    let mut host = Host::new();
    let error = Message::Error(Error::Unreachable(Unreachable::Port));
    for family in [Family::V4, Family::V6] {
        assert!(host.send(&icmp(inwards(family), error, &[0; 40])).is_empty());
    }
    for (src, dst) in [
        ("10.9.0.2", "255.255.255.255"),
        ("10.9.0.2", "10.9.0.255"),
        ("10.9.0.2", "224.0.0.1"),
        ("0.0.0.0", "224.0.0.1"),
        ("fd09::2", "ff02::1"),
        ("::", "ff02::1"),
    ] {
        assert!(host.send(&packet(between(src, dst), EXPERIMENT, b"?")).is_empty(), "{src} {dst}");
    }
    assert_eq!(host.count("ip_in_unknown_protos"), 6);
    for src in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "10.9.0.1"] {
        assert!(host.send(&packet(between(src, "10.9.0.1"), EXPERIMENT, b"?")).is_empty(), "{src}");
    }
    assert_eq!(host.count("frames_not_for_us"), 5);
}

#[test]
fn errors_are_limited_for_each_destination_and_for_all() {
    let mut host = Host::new();
    let from = |last: usize| packet(between(&format!("10.9.0.{last}"), "10.9.0.1"), EXPERIMENT, b"?");
    let one: usize = (0..20).map(|_| host.send(&from(2)).len()).sum();
    assert_eq!((one, host.count("icmp_out_rate_limit_host")), (6, 14));
    let many: usize = (3..200).map(|last| host.send(&from(last)).len()).sum();
    // Some share a bucket with another, as there are fewer buckets than addresses.
    let refused = host.count("icmp_out_rate_limit_global") + host.count("icmp_out_rate_limit_host") - 14;
    assert_eq!(many as u64 + refused, 197);
    // The rest of fifty tokens; each error costs none, one or two of them.
    assert!((22..=88).contains(&many), "{many}");
}
