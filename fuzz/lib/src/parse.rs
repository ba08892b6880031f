//! The parsers: no bytes make them panic, ranges lie inside the bytes, and parsed values can be written and parsed again.
//!
//! Tests: `tests/corpus.rs`.

use std::net::{IpAddr, Ipv6Addr};

use sockeye_proto::arp;
use sockeye_proto::icmp;
use sockeye_proto::ip::{self, Addresses, HeaderChecksum};
use sockeye_proto::ndp::wire as ndp;
use sockeye_proto::tcp::segment::Flags;
use sockeye_proto::tcp::wire::{self, ChecksumIn, ChecksumOut};

/// IPv4 and IPv6 headers with everything in front of the payload.
pub fn ip(data: &[u8]) {
    // The first byte decides how much of the packet is at hand.
    let Some((&cut, packet)) = data.split_first() else { return };
    let trusted = ip::parse(packet, HeaderChecksum::Trusted);
    let verified = ip::parse(packet, HeaderChecksum::Verify);
    assert!(
        verified.is_err() || verified == trusted,
        "a checksum decides whether a packet is parsed, not its value"
    );
    let head = &packet[..usize::from(cut).min(packet.len())];
    if let Ok((header, range)) = ip::parse_head(head, packet.len(), HeaderChecksum::Trusted) {
        assert!(range.start <= range.end && range.end <= packet.len(), "{range:?}");
        assert!(ip::protocol_at(head) < packet.len());
        if range.start <= head.len() {
            assert_eq!(trusted.as_ref().ok(), Some(&(header, range)), "the head alone gives the same");
        }
    }
    if let Some((_, range)) = ip::parse_refused(packet, packet.len()) {
        assert!(range.start <= range.end && range.end <= packet.len(), "{range:?} of a refused packet");
    }
    let Ok((header, range)) = trusted else { return };
    assert!(range.start <= range.end && range.end <= packet.len(), "{range:?}");
    let payload = &packet[range];
    let mut out = vec![0; header.addresses.header_len() + payload.len()];
    let Ok(len) = ip::emit(&header, payload.len(), &mut out) else { return };
    out[len..].copy_from_slice(payload);
    let (again, range) = ip::parse(&out, HeaderChecksum::Verify).expect("written bytes can be parsed");
    assert_eq!((again, &out[range]), (header, payload));
}

/// TCP headers and options.
pub fn tcp(data: &[u8]) {
    let Ok((ports, header, range)) = wire::parse(data, ChecksumIn::Trusted) else { return };
    assert!(range.start <= range.end && range.end == data.len(), "{range:?} of {}", data.len());
    let mut out = [0; wire::HEADER_LEN_EMITTED_MAX];
    // Options of a segment that has both sorts, or more blocks than fit, are not all written.
    let len = wire::emit(ports, &header, ChecksumOut::Omit, &mut out).expect("the longest header fits");
    assert_eq!(len, wire::header_len(&header));
    let (ports_again, again, range) =
        wire::parse(&out[..len], ChecksumIn::Trusted).expect("written bytes can be parsed");
    assert_eq!((ports_again, range), (ports, len..len));
    assert_eq!((again.seq, again.ack, again.window), (header.seq, header.ack, header.window));
    // Options behind one of an impossible length are lost.
    assert_eq!((again.flags, again.urgent), (header.flags.without(Flags::BAD_OPTION), header.urgent));
    let (options, written) = (&header.options, &again.options);
    assert_eq!(written.timestamps, options.timestamps);
    if header.flags.has(Flags::SYN) {
        assert_eq!((written.mss, written.window_scale), (options.mss, options.window_scale));
        assert_eq!(written.sack_permitted, options.sack_permitted);
    } else {
        let count = wire::sack_blocks_fit(options.sack.len(), options.timestamps.is_some());
        assert_eq!(written.sack.as_slice(), &options.sack.as_slice()[..count]);
    }
}

/// ARP, the headers of ICMP, and neighbor discovery with its checksum put right.
pub fn link(data: &[u8]) {
    if let Ok(packet) = arp::Packet::parse(data) {
        assert_eq!(arp::Packet::parse(&packet.emit()), Ok(packet));
    }
    if let Some(header) = data.first_chunk() {
        for family in [icmp::Family::V4, icmp::Family::V6] {
            let message = icmp::Message::parse(family, *header);
            if let Some(bytes) = message.emit(family) {
                assert_eq!(icmp::Message::parse(family, bytes), message, "{header:?} as {bytes:?}");
            }
        }
    }
    neighbor_discovery(data);
}

/// Two bytes choose the addresses and the hop limit, the rest is the message.
fn neighbor_discovery(data: &[u8]) {
    let Some((&[choice, hop_limit], message)) = data.split_first_chunk() else { return };
    let local = |last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    let sources =
        [local(1), Ipv6Addr::UNSPECIFIED, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::LOCALHOST];
    let all = |last| Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, last);
    let destinations = [local(2), all(1), all(2), Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 2)];
    let (src, dst) = (sources[usize::from(choice % 4)], destinations[usize::from(choice / 4 % 4)]);
    let hop_limit = if choice < 224 { 255 } else { hop_limit };
    let mut bytes = message.to_vec();
    if let (Some(addresses), Ok(len)) =
        (Addresses::new(IpAddr::V6(src), IpAddr::V6(dst)), u32::try_from(bytes.len()))
        && let Some(field) = bytes.get_mut(2..4)
    {
        field.fill(0);
        let sum = addresses.pseudo_header(ip::PROTOCOL_ICMPV6, len).add_bytes(&bytes).checksum();
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let Ok(read) = ndp::parse(src, dst, hop_limit, &bytes) else { return };
    assert_eq!(hop_limit, 255, "from behind a router");
    // A message that a host would send is parsed to the same value.
    if let Some(packet) = ndp::emit(src, dst, &read) {
        let (header, range) =
            ip::parse(&packet, HeaderChecksum::Trusted).expect("written bytes can be parsed");
        assert_eq!(header.protocol, ip::PROTOCOL_ICMPV6);
        assert_eq!(ndp::parse(src, dst, header.hop_limit, &packet[range]), Ok(read));
    }
}
