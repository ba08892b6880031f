//! Every way in which a frame can be malformed: which counters rise, and that no other does.
//!
//! A row names the error, the frames (the last of which has it), and the counters that the last frame raises. Totals are
//! among them; counters that every frame raises are left out.

use std::collections::BTreeSet;

use sockeye_proto::arp;
use sockeye_proto::icmp::{Error, Family, Message, Unreachable};
use sockeye_proto::ip::fragment::Fragment;
use sockeye_proto::ip::{self, Addresses, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, Sum};

use crate::fragments::part;
use crate::host::{Host, MACS, between, frame, icmp, inwards, packet};

/// A protocol number for experiments (RFC 3692), which is not implemented.
const EXPERIMENT: u8 = 253;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;
const IGMP: u8 = 2;
const ASK: Message = Message::EchoRequest { id: 7, seq: 9 };

/// Counters that every frame raises, and packet memory, which is returned.
fn is_of_any(name: &str) -> bool {
    ["frames_in", "input_batches"].contains(&name) || name.starts_with("mbuf_")
}

struct Row {
    what: &'static str,
    frames: Vec<Vec<u8>>,
    counters: String,
}

fn row(what: &'static str, counters: impl Into<String>, frame: Vec<u8>) -> Row {
    Row { what, frames: vec![frame], counters: counters.into() }
}

/// Counters that rise together, as words.
const IP: &str = "ip_in_receives ip_in_delivers";
const ICMP: &str = "ip_in_receives ip_in_delivers icmp_in_msgs";
const HEADER: &str = "frames_malformed ip_in_hdr_errors";
/// The sender gets an error.
const TOLD: &str = "ip_out_requests icmp_out_msgs frames_out";
const FRAGMENT: &str = "ip_in_receives ip_reasm_reqds ip_reasm_fails";

fn check(host: impl Fn() -> Host, rows: Vec<Row>) {
    for Row { what, frames, counters } in rows {
        let mut host = host();
        let (last, first) = frames.split_last().unwrap();
        first.iter().for_each(|frame| drop(host.send(frame)));
        let before = host.stack.counters();
        host.send(last);
        let risen = host.stack.counters().into_iter().zip(before).filter(|((_, now), (_, then))| now > then);
        let risen: BTreeSet<_> = risen.map(|((name, _), _)| name).filter(|name| !is_of_any(name)).collect();
        assert_eq!(risen, counters.split_whitespace().collect(), "{what}");
        assert_eq!(host.stack.connection_count(), 0, "{what}");
    }
}

/// The bytes with one of them changed.
fn with(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

/// An IPv4 packet with options.
fn v4_with(options: &[u8]) -> Vec<u8> {
    let mut bytes = packet(inwards(Family::V4), EXPERIMENT, b"text");
    bytes[0] += (options.len() / 4) as u8;
    bytes[3] += options.len() as u8;
    bytes.splice(20..20, options.iter().copied());
    mend(&mut bytes);
    bytes
}

/// Makes the checksum of an IPv4 header right.
fn mend(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 15) * 4;
    let header = &mut packet[..len];
    header[10..12].fill(0);
    let checksum = Sum::of(header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Destination options with `option` and padding, `count` times, then the experiment.
fn options(count: usize, option: &[u8; 6]) -> Vec<u8> {
    let header = |i| {
        let next = if i + 1 < count { DESTINATION_OPTIONS } else { EXPERIMENT };
        [&[next, 0], &option[..]].concat()
    };
    (0..count).flat_map(header).collect()
}

/// A message of a protocol with a checksum at `at`, which is made right, as a packet.
fn summed(addresses: Addresses, protocol: u8, hop_limit: u8, mut body: Vec<u8>, at: usize) -> Vec<u8> {
    let sum = match protocol {
        IGMP => Sum::ZERO,
        _ => addresses.pseudo_header(protocol, body.len() as u32),
    };
    body[at..at + 2].fill(0);
    let checksum = sum.add_bytes(&body).checksum();
    body[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    let mut bytes = packet(addresses, protocol, &body);
    match addresses {
        Addresses::V4 { .. } => {
            bytes[8] = hop_limit;
            mend(&mut bytes);
        }
        Addresses::V6 { .. } => bytes[7] = hop_limit,
    }
    bytes
}

/// Refused for this.
fn malformed(why: &str) -> String {
    format!("frames_{why} {HEADER}")
}

/// Refused for this reason, which is reported to the sender.
fn answered(why: &str) -> String {
    format!("frames_{why} {HEADER} {TOLD}")
}

#[test]
fn malformed_ipv4_headers_are_counted_by_reason() {
    let v4 = || packet(inwards(Family::V4), EXPERIMENT, b"text");
    check(
        Host::new,
        vec![
            row("a cut header", malformed("truncated"), v4()[..19].to_vec()),
            row("a version", malformed("bad_version"), with(v4(), 0, 0x55)),
            row("a header of four words", malformed("bad_header_len"), with(v4(), 0, 0x44)),
            row("a header beyond the packet", malformed("bad_length"), with(v4(), 0, 0x4f)),
            row("a length beyond the frame", malformed("bad_length"), with(v4(), 3, 25)),
            row("a length within the header", malformed("bad_length"), with(v4(), 3, 19)),
            row(
                "a checksum",
                "frames_bad_ip_checksum frames_bad_checksum ip_in_hdr_errors",
                with(v4(), 8, 63),
            ),
            row("an option without a length", answered("bad_option_len"), v4_with(&[1, 1, 1, 7])),
            row("an option of no length", answered("bad_option_len"), v4_with(&[7, 0, 4, 0])),
            row("an option of one byte's length", answered("bad_option_len"), v4_with(&[1, 7, 1, 0])),
            row("an option beyond the header", answered("bad_option_len"), v4_with(&[68, 5, 5, 0])),
            row("a loose source route", malformed("source_route"), v4_with(&[131, 7, 4, 10, 9, 0, 1, 0])),
            row("a strict source route", malformed("source_route"), v4_with(&[137, 3, 4, 0])),
        ],
    );
}

#[test]
fn malformed_ipv6_headers_are_counted_by_reason() {
    let v6 = |next, body: &[u8]| packet(inwards(Family::V6), next, body);
    let to_many = |next, body: &[u8]| packet(between("fd09::2", "ff02::1"), next, body);
    let pad = [1, 4, 0, 0, 0, 0];
    let mut second = options(2, &pad);
    second[0] = HOP_BY_HOP;
    check(
        Host::new,
        vec![
            row("a cut header", malformed("truncated"), v6(EXPERIMENT, b"")[..39].to_vec()),
            row("a length beyond the frame", malformed("bad_length"), with(v6(EXPERIMENT, b"text"), 5, 5)),
            row(
                "a cut extension",
                malformed("truncated_extension"),
                v6(DESTINATION_OPTIONS, &options(1, &pad)[..7]),
            ),
            row(
                "an extension beyond the packet",
                malformed("truncated_extension"),
                v6(DESTINATION_OPTIONS, &with(options(1, &pad), 1, 1)),
            ),
            row("a chain", malformed("too_many_extensions"), v6(DESTINATION_OPTIONS, &options(30, &pad))),
            row("a late hop-by-hop", answered("misplaced_hop_by_hop"), v6(DESTINATION_OPTIONS, &second)),
            row(
                "an option beyond its header",
                answered("bad_option_len"),
                v6(DESTINATION_OPTIONS, &options(1, &[1, 5, 0, 0, 0, 0])),
            ),
            row(
                "an option that discards",
                malformed("refused_option"),
                v6(DESTINATION_OPTIONS, &options(1, &[0x41, 4, 0, 0, 0, 0])),
            ),
            row(
                "an option that reports",
                answered("refused_option"),
                v6(DESTINATION_OPTIONS, &options(1, &[0x81, 4, 0, 0, 0, 0])),
            ),
            row(
                "an option that reports even to many",
                answered("refused_option"),
                to_many(DESTINATION_OPTIONS, &options(1, &[0x81, 4, 0, 0, 0, 0])),
            ),
            row(
                "an option that reports to one (a jumbogram)",
                answered("refused_option"),
                v6(HOP_BY_HOP, &options(1, &[0xc2, 4, 0, 1, 0, 0])),
            ),
            row(
                "an option that does not report to many",
                malformed("refused_option"),
                to_many(HOP_BY_HOP, &options(1, &[0xc2, 4, 0, 1, 0, 0])),
            ),
            row(
                "a route that leads on",
                answered("routing_header"),
                v6(ROUTING, &[EXPERIMENT, 0, 0, 1, 0, 0, 0, 0]),
            ),
            row(
                "an error with an option that reports",
                malformed("refused_option"),
                v6(
                    DESTINATION_OPTIONS,
                    &[&[PROTOCOL_ICMPV6, 0, 0x81, 4, 0, 0, 0, 0, 1][..], &[0; 60]].concat(),
                ),
            ),
        ],
    );
}

#[test]
fn malformed_segments_are_counted_by_reason() {
    let tcp = |addresses: Addresses, offset: u8, options: &[u8]| {
        let mut segment = vec![0; 20];
        segment[12] = offset << 4;
        // A reset, which is not answered.
        segment[13] = 4;
        segment.extend(options);
        summed(addresses, PROTOCOL_TCP, 64, segment, 16)
    };
    let mut rows = Vec::new();
    for family in [Family::V4, Family::V6] {
        let (addresses, at) = (inwards(family), inwards(family).header_len());
        let good = tcp(addresses, 5, &[]);
        let header = "frames_malformed frames_bad_tcp_header";
        let short = summed(addresses, PROTOCOL_TCP, 64, vec![0; 19], 16);
        rows.extend([
            row("a header of four words", header, tcp(addresses, 4, &[])),
            row("a header beyond the segment", header, tcp(addresses, 6, &[])),
            row("a cut header", header, short),
            row("a checksum", "frames_bad_checksum frames_bad_tcp_checksum", with(good, at + 2, 1)),
        ]);
        for option in [[1, 1, 1, 8], [8, 0, 1, 1], [8, 1, 1, 1], [8, 10, 1, 1]] {
            let counters = "input_packets input_bad_tcp_options";
            rows.push(row("an option's length", counters, tcp(addresses, 6, &option)));
        }
    }
    check(Host::new, rows);
}

#[test]
fn malformed_datagrams_and_icmp_messages_are_counted_by_reason() {
    let mut rows = Vec::new();
    for family in [Family::V4, Family::V6] {
        let addresses = inwards(family);
        let udp =
            |field: u8, len: usize| summed(addresses, PROTOCOL_UDP, 64, with(vec![0; len], 5, field), 6);
        let length = format!("{IP} udp_in_errors udp_in_bad_length");
        let checksum = format!("{IP} udp_in_errors udp_in_csum_errors");
        let message = || icmp(addresses, ASK, b"data");
        let at = addresses.header_len();
        let error =
            |quoted: &[u8]| icmp(addresses, Message::Error(Error::Unreachable(Unreachable::Port)), quoted);
        let ours = packet(addresses.reversed(), PROTOCOL_UDP, &[0; 7]);
        let bad_quote = format!("{ICMP} icmp_in_dest_unreachs icmp_in_errors icmp_in_bad_quotes");
        let protocol = if family == Family::V4 { ip::PROTOCOL_ICMP } else { PROTOCOL_ICMPV6 };
        rows.extend([
            row("a cut header", length.clone(), packet(addresses, PROTOCOL_UDP, &[0; 7])),
            row("a length within the header", length.clone(), udp(7, 12)),
            row("a length beyond the packet", length, udp(13, 12)),
            row("a checksum", checksum.clone(), with(udp(12, 12), at, 1)),
            row("a cut message", format!("{ICMP} icmp_in_errors"), packet(addresses, protocol, &[8; 7])),
            row("a checksum", format!("{ICMP} icmp_in_csum_errors"), with(message(), at + 4, 1)),
            row("an error that quotes nothing", bad_quote.clone(), error(&[])),
            row("an error that quotes a header only", bad_quote.clone(), error(&ours[..at])),
            row("an error that quotes no ports", bad_quote.clone(), error(&ours)),
            row("an error that quotes no packet", bad_quote, error(&[0x55; 60])),
        ]);
        if family == Family::V6 {
            let none = with(with(udp(12, 12), at + 6, 0), at + 7, 0);
            rows.push(row("no checksum", format!("{checksum} udp_in_no_checksum"), none));
        }
    }
    check(Host::new, rows);
}

#[test]
fn bad_fragments_are_counted_by_reason() {
    let at = |offset, more| Fragment { id: 1, offset, more };
    let many = (0..=128u16).map(|place| (at(place * 8, true), 8)).collect();
    let mut rows = Vec::new();
    for family in [Family::V4, Family::V6] {
        for (what, why, places) in [
            ("an overlap", "overlap", vec![(at(0, true), 16), (at(8, true), 16)]),
            ("a piece within another", "overlap", vec![(at(0, true), 32), (at(8, true), 8)]),
            ("a duplicate", "duplicate", vec![(at(0, true), 16), (at(0, true), 16)]),
            ("a second end", "inconsistent", vec![(at(16, false), 8), (at(32, false), 8)]),
            ("more behind the end", "inconsistent", vec![(at(16, false), 8), (at(24, true), 8)]),
            ("nothing", "bad_length", vec![(at(8, true), 0)]),
            ("no multiple of eight", "bad_length", vec![(at(8, true), 9)]),
            ("the end beyond a packet's", "too_long", vec![(at(65_528, false), 100)]),
            (
                "a piece of a dead datagram",
                "of_dead",
                vec![(at(0, true), 16), (at(8, true), 16), (at(32, true), 8)],
            ),
            ("too many", "too_many", Vec::clone(&many)),
        ] {
            let frames = places
                .into_iter()
                .map(|(place, len)| part(inwards(family), PROTOCOL_UDP, place, &vec![0; len]));
            let counters = format!("{FRAGMENT} ip_frag_{why}");
            rows.push(Row { what, frames: frames.collect(), counters });
        }
        // Two fragments of one datagram, one of which is ECN-capable and the other not.
        let class = |bytes: Vec<u8>| match family {
            Family::V4 => {
                let mut bytes = with(bytes, 1, 3);
                mend(&mut bytes);
                bytes
            }
            Family::V6 => with(bytes, 1, 0x30),
        };
        let pieces =
            [at(0, true), at(8, false)].map(|place| part(inwards(family), PROTOCOL_UDP, place, &[0; 8]));
        let [first, last] = pieces;
        rows.push(Row {
            what: "marks",
            frames: vec![first, class(last)],
            counters: format!("{FRAGMENT} ip_frag_bad_ecn"),
        });
    }
    check(Host::new, rows);
}

#[test]
fn bad_ipv6_fragments_are_counted_by_reason() {
    let at = |offset, more| Fragment { id: 1, offset, more };
    let first = |protocol, payload: &[u8]| part(inwards(Family::V6), protocol, at(0, true), payload);
    let cut = packet(inwards(Family::V6), 44, &[PROTOCOL_UDP, 0, 0, 0, 0, 0, 0]);
    let rows = vec![
        row(
            "a cut chain",
            format!("{FRAGMENT} ip_frag_incomplete_chain {TOLD}"),
            first(PROTOCOL_TCP, &[0; 16]),
        ),
        row(
            "a first part of nine bytes",
            format!("{FRAGMENT} ip_frag_bad_length {TOLD}"),
            first(PROTOCOL_UDP, &[0; 9]),
        ),
        row("a cut fragment header", format!("frames_truncated {HEADER}"), cut),
        row(
            "an atomic fragment with an option that discards",
            "ip_in_receives ip_reasm_reqds ip_reasm_oks ip_in_hdr_errors frames_refused_option",
            part(
                inwards(Family::V6),
                DESTINATION_OPTIONS,
                at(0, false),
                &[EXPERIMENT, 0, 0x41, 4, 0, 0, 0, 0],
            ),
        ),
    ];
    check(Host::new, rows);
}

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// To us, from the other side.
fn framed(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    frame(MACS[0], MACS[1], ethertype, packet)
}

#[test]
fn malformed_frames_and_arp_packets_are_counted_by_reason() {
    let ask = arp::Packet::request(MACS[1].0, [10, 9, 0, 2].into(), [10, 9, 0, 1].into()).emit().to_vec();
    let arp_with = |at, value| framed(ARP, &with(ask.clone(), at, value));
    let (malformed, bad_sender) = ("arp_in arp_refused arp_malformed", "arp_in arp_refused arp_bad_sender");
    let syn = with(vec![0; 20], 12, 0x50);
    let syn = summed(inwards(Family::V4), PROTOCOL_TCP, 64, with(syn, 13, 2), 16);
    let to_many = "ip_in_receives ip_in_delivers frames_not_for_us frames_tcp_to_many";
    let all = sockeye::netif::MacAddr([0xff; 6]);
    let group = sockeye::netif::MacAddr([1, 0, 0x5e, 0, 0, 1]);
    check(
        Host::ethernet,
        vec![
            row(
                "a cut Ethernet header",
                "frames_malformed frames_short_ethernet",
                framed(IPV4, &[])[..13].to_vec(),
            ),
            row("no packet", format!("frames_truncated {HEADER}"), framed(IPV4, &[])),
            row("another station", "frames_other_station", frame(MACS[1], MACS[0], IPV4, &syn)),
            row("an ethertype", "frames_unknown_ethertype", framed(0x88cc, &syn)),
            row("cut ARP", "frames_malformed frames_short_arp", framed(ARP, &ask[..27])),
            row("other hardware", malformed, arp_with(1, 2)),
            row("another protocol", malformed, arp_with(2, 9)),
            row("a hardware length", malformed, arp_with(4, 5)),
            row("a protocol length", malformed, arp_with(5, 5)),
            row("an operation", malformed, arp_with(7, 3)),
            row("a sender that is a group", bad_sender, arp_with(14, 224)),
            row("a sender that is everybody's station", bad_sender, arp_with(8, 1)),
            // RFC 1122 section 4.2.3.10.
            row("a SYN in a broadcast frame", to_many, frame(all, MACS[1], IPV4, &syn)),
            row("a SYN in a multicast frame", to_many, frame(group, MACS[1], IPV4, &syn)),
        ],
    );
}

#[test]
fn malformed_neighbor_discovery_and_group_messages_are_counted_by_reason() {
    let to_us = between("fe80::2", "fd09::1");
    let ndp = |hop_limit, body: Vec<u8>| framed(IPV6, &summed(to_us, PROTOCOL_ICMPV6, hop_limit, body, 2));
    let target = [0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let solicit = |option: &[u8]| [&[135, 0, 0, 0, 0, 0, 0, 0], &target[..], option].concat();
    let refused = |why: &str| format!("{ICMP} ndp_in ndp_refused ndp_{why}");
    let group = |why: &str| format!("group_messages_in group_messages_refused group_messages_{why}");
    let query = |group: u8| [&[130, 0, 0, 0, 0, 10, 0, 0, group][..], &[0; 19]].concat();
    let mld = |src, hop_limit, body| {
        framed(IPV6, &summed(between(src, "ff02::1"), PROTOCOL_ICMPV6, hop_limit, body, 2))
    };
    let igmp_to = |dst, ttl, body| framed(IPV4, &summed(between("10.9.0.2", dst), IGMP, ttl, body, 2));
    let igmp = |body| igmp_to("224.0.0.1", 1, body);
    let oldest = || vec![0x11, 0, 0, 0, 0, 0, 0, 0];
    let mld_refused = |why| format!("{ICMP} {}", group(why));
    let igmp_refused = |why| format!("{IP} {}", group(why));
    check(
        Host::ethernet,
        vec![
            row("a cut message", refused("malformed"), ndp(255, solicit(&[])[..23].to_vec())),
            row("a code", refused("malformed"), ndp(255, with(solicit(&[]), 1, 1))),
            row(
                "an option of no length",
                refused("bad_option"),
                ndp(255, solicit(&[1, 0, 2, 0, 0, 0, 0, 2])),
            ),
            row(
                "an option beyond the end",
                refused("bad_option"),
                ndp(255, solicit(&[1, 2, 2, 0, 0, 0, 0, 2])),
            ),
            row("half an option", refused("bad_option"), ndp(255, solicit(&[1]))),
            row("from behind a router", refused("bad_hop_limit"), ndp(254, solicit(&[]))),
            row("a target that is a group", refused("bad_addresses"), ndp(255, with(solicit(&[]), 8, 0xff))),
            row("a cut query", mld_refused("malformed"), mld("fe80::2", 1, query(0)[..23].to_vec())),
            row("a query of 26 bytes", mld_refused("malformed"), mld("fe80::2", 1, query(0)[..26].to_vec())),
            row("a query for a host", mld_refused("bad_group"), mld("fe80::2", 1, query(0xfd))),
            row("from behind a router", mld_refused("off_link"), mld("fe80::2", 2, query(0))),
            row("from an address beyond the link", mld_refused("off_link"), mld("fd09::2", 1, query(0))),
            row("a cut query", igmp_refused("malformed"), igmp(vec![0x11; 7])),
            row(
                "a query of ten bytes",
                igmp_refused("malformed"),
                igmp(vec![0x11, 9, 0, 0, 0, 0, 0, 0, 0, 0]),
            ),
            row("a query for a host", igmp_refused("bad_group"), igmp(vec![0x11, 9, 0, 0, 10, 9, 0, 1])),
            row("a report of a host", igmp_refused("bad_group"), igmp(vec![0x16, 0, 0, 0, 10, 9, 0, 1])),
            row("from behind a router", igmp_refused("off_link"), igmp_to("224.0.0.1", 64, oldest())),
            row("to us alone", igmp_refused("off_link"), igmp_to("10.9.0.1", 1, oldest())),
            row(
                "a checksum",
                igmp_refused("bad_checksum"),
                with(igmp(vec![0x11, 9, 0, 0, 0, 0, 0, 0]), 35, 8),
            ),
        ],
    );
}
