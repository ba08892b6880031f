//! Behaviour of the IP header codec: identity, bounds, refusals, and that no bytes make it panic.

use super::*;
use proptest::prelude::*;

const V4: Header = Header {
    addresses: Addresses::V4 { src: Ipv4Addr::new(192, 0, 2, 1), dst: Ipv4Addr::new(198, 51, 100, 2) },
    protocol: PROTOCOL_TCP,
    hop_limit: 64,
    traffic_class: 0x28,
    flow_label: 0,
};

fn v6() -> Header {
    Header {
        addresses: Addresses::V6 {
            src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        },
        protocol: PROTOCOL_TCP,
        hop_limit: 64,
        traffic_class: 0xb9,
        flow_label: 0xa_bcde,
    }
}

fn packet(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.addresses.header_len()];
    emit(header, payload.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

/// An IPv6 packet in which `extensions` stand before the payload.
fn with_extensions(first: u8, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = packet(&v6(), &[extensions, payload].concat());
    bytes[6] = first;
    bytes
}

fn verify(bytes: &[u8]) -> Result<(Header, Range<usize>), ParseError> {
    parse(bytes, HeaderChecksum::Verify)
}

#[test]
fn padding_behind_the_packet_is_not_payload() {
    for header in [V4, v6()] {
        let mut bytes = packet(&header, b"abc");
        bytes.extend([0; 9]);
        let (parsed, range) = verify(&bytes).unwrap();
        assert_eq!(parsed, header);
        assert_eq!(&bytes[range], b"abc");
    }
}

#[test]
fn ipv4_header_on_the_wire_is_the_known_one() {
    // The checksum was added up by hand: the other words sum to 0xb166.
    let header = Header { traffic_class: 0, hop_limit: 64, ..V4 };
    let bytes = packet(&header, &[0; 20]);
    assert_eq!(bytes[..12], [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0x4e, 0x99]);
}

#[test]
fn ipv4_options_are_walked_over() {
    let mut bytes = packet(&V4, &[1, 1, 1, 0, b'x']);
    bytes[0] = 0x46;
    bytes[10..12].fill(0);
    let checksum = Sum::of(&bytes[..24]).checksum();
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    let (_, range) = verify(&bytes).unwrap();
    assert_eq!(&bytes[range], b"x");
}

#[test]
fn a_damaged_ipv4_header_is_refused_unless_trusted() {
    let mut bytes = packet(&V4, b"abc");
    bytes[8] = 63;
    assert!(matches!(verify(&bytes), Err(ParseError::Checksum(_))));
    assert!(parse(&bytes, HeaderChecksum::Trusted).is_ok());
}

#[test]
fn wrong_lengths_are_refused() {
    let bytes = packet(&V4, b"abc");
    let cut = bytes.len() - 1;
    let error = ParseError::PacketLen { field: 23, header: 20, have: 22 };
    assert_eq!(verify(&bytes[..cut]), Err(error));
    assert_eq!(verify(&[]), Err(ParseError::Truncated { need: 20, have: 0 }));
    assert_eq!(verify(&bytes[..19]), Err(ParseError::Truncated { need: 20, have: 19 }));
    let bytes6 = packet(&v6(), b"abc");
    let error = ParseError::PacketLen { field: 3, header: 40, have: 42 };
    assert_eq!(verify(&bytes6[..42]), Err(error));
    let mut short = bytes.clone();
    short[0] = 0x44;
    assert_eq!(verify(&short), Err(ParseError::HeaderLen(4)));
    short[0] = 0x55;
    assert_eq!(verify(&short), Err(ParseError::Version(5)));
}

#[test]
fn fragments_are_refused() {
    for flags in [[0x20, 0], [0, 1]] {
        let mut bytes = packet(&V4, b"abc");
        bytes[6..8].copy_from_slice(&flags);
        assert_eq!(parse(&bytes, HeaderChecksum::Trusted), Err(ParseError::Fragment));
    }
    let fragment = with_extensions(44, &[6, 0, 0, 0, 0, 0, 0, 1], b"abc");
    assert_eq!(verify(&fragment), Err(ParseError::Fragment));
}

#[test]
fn ipv6_options_before_the_segment_are_walked_over() {
    let hop = [60, 0, 5, 2, 0, 0, 0, 0];
    let dest = [PROTOCOL_TCP, 1, 1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let bytes = with_extensions(0, &[&hop[..], &dest[..]].concat(), b"abc");
    let (header, range) = verify(&bytes).unwrap();
    assert_eq!(header, v6());
    assert_eq!(&bytes[range], b"abc");
}

#[test]
fn ipv6_options_that_demand_discarding_discard_the_packet() {
    // 0xc2 is the jumbo payload option.
    let bytes = with_extensions(0, &[PROTOCOL_TCP, 0, 0xc2, 4, 0, 1, 0, 0], b"abc");
    assert_eq!(verify(&bytes), Err(ParseError::Option { kind: 0xc2, at: 42 }));
    let late = [[60, 0, 1, 4, 0, 0, 0, 0], [0, 0, 1, 4, 0, 0, 0, 0], [6, 0, 1, 4, 0, 0, 0, 0]];
    let error = Err(ParseError::MisplacedHopByHop { at: 48 });
    assert_eq!(verify(&with_extensions(0, &late.concat(), b"")), error);
}

#[test]
fn ipv6_extension_chains_are_bounded() {
    let chain = |count: usize| {
        let mut headers = vec![[60, 0, 1, 4, 0, 0, 0, 0]; count];
        headers[count - 1][0] = PROTOCOL_TCP;
        with_extensions(60, &headers.concat(), b"abc")
    };
    assert!(verify(&chain(EXTENSION_HEADERS_MAX)).is_ok());
    let error = Err(ParseError::TooManyExtensions);
    assert_eq!(verify(&chain(EXTENSION_HEADERS_MAX + 1)), error);
    // A header that says it is longer than the packet, and an option longer than its header.
    let error = ParseError::TruncatedExtension { need: 80, have: 8 };
    assert_eq!(verify(&with_extensions(60, &[6, 9, 1, 4, 0, 0, 0, 0], b"")), Err(error));
    let error = ParseError::OptionLen { at: 42 };
    assert_eq!(verify(&with_extensions(60, &[6, 0, 1, 5, 0, 0, 0, 0], b"")), Err(error));
    let error = ParseError::OptionLen { at: 47 };
    assert_eq!(verify(&with_extensions(60, &[6, 0, 1, 3, 0, 0, 0, 1], b"")), Err(error), "without a length");
}

#[test]
fn a_routing_header_is_skipped_at_its_end_and_refused_before() {
    let bytes = with_extensions(43, &[6, 0, 4, 0, 0, 0, 0, 0], b"abc");
    let (header, range) = verify(&bytes).unwrap();
    assert_eq!((header.protocol, range), (6, 48..51));
    for kind in [0, 4, 77] {
        let bytes = with_extensions(43, &[6, 0, kind, 1, 0, 0, 0, 0], b"abc");
        assert_eq!(verify(&bytes), Err(ParseError::Routing { at: 42 }));
        let (header, range) = parse_refused(&bytes, bytes.len()).unwrap();
        assert_eq!((header, &bytes[range]), (v6(), &b"abc"[..]));
    }
}

#[test]
fn ipv4_options_are_skipped_except_source_routes_and_invalid_lengths() {
    let with = |options: &[u8]| {
        let mut bytes = packet(&V4, b"abc");
        bytes[0] += (options.len() / 4) as u8;
        bytes[3] += options.len() as u8;
        bytes.splice(20..20, options.iter().copied());
        bytes[10..12].fill(0);
        let sum = Sum::of(&bytes[..20 + options.len()]).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    // Record route, timestamp, router alert, an unknown one; nothing is read behind the end of the list.
    for options in
        [&[7, 7, 4, 0, 0, 0, 0, 0][..], &[68, 4, 5, 0], &[1, 1, 1, 0], &[200, 3, 9, 0], &[0, 9, 1, 0]]
    {
        let bytes = with(options);
        let (header, range) = verify(&bytes).unwrap();
        assert_eq!((header, &bytes[range]), (V4, &b"abc"[..]), "{options:?}");
    }
    for (options, error) in [
        (&[131, 3, 4, 0][..], ParseError::SourceRoute { at: 20 }),
        (&[1, 137, 3, 4], ParseError::SourceRoute { at: 21 }),
        (&[7, 5, 0, 0], ParseError::OptionLen { at: 20 }),
        (&[1, 7, 0, 0], ParseError::OptionLen { at: 21 }),
        (&[1, 7, 1, 0], ParseError::OptionLen { at: 21 }),
        (&[1, 1, 1, 7], ParseError::OptionLen { at: 23 }),
    ] {
        let bytes = with(options);
        assert_eq!(verify(&bytes), Err(error));
        let (header, range) = parse_refused(&bytes, bytes.len()).unwrap();
        assert_eq!((header, &bytes[range]), (V4, &b"abc"[..]));
    }
}

#[test]
fn an_unknown_next_header_is_passed_to_the_caller() {
    let bytes = with_extensions(51, &[6, 0, 0, 0, 0, 0, 0, 0], b"");
    let (header, range) = verify(&bytes).unwrap();
    assert_eq!((header.protocol, range), (51, 40..48));
}

#[test]
fn emit_refuses_a_packet_that_does_not_fit() {
    let mut out = [0; 40];
    let short = |need, have| Err(EmitError::BufferTooShort { need, have });
    assert_eq!(emit(&V4, 0, &mut out[..19]), short(20, 19));
    assert_eq!(emit(&v6(), 0, &mut out[..39]), short(40, 39));
    assert_eq!(emit(&V4, 65_516, &mut out), Err(EmitError::PayloadTooLong(65_516)));
    assert_eq!(emit(&V4, 65_515, &mut out), Ok(20));
    assert_eq!(emit(&v6(), 65_536, &mut out), Err(EmitError::PayloadTooLong(65_536)));
    assert_eq!(emit(&v6(), 65_535, &mut out), Ok(40));
}

#[test]
fn a_packet_to_be_segmented_may_exceed_the_ipv4_length_field() {
    let mut out = [0; 40];
    for (payload_len, field) in [(0, 20), (65_515, 65_535), (65_516, 0), (500_000, 0)] {
        assert_eq!(emit_to_be_cut(&V4, payload_len, &mut out), Ok(20));
        assert_eq!(u16::from_be_bytes([out[2], out[3]]), field);
        assert_eq!(Sum::of(&out[..20]).folded(), 0xffff);
    }
    assert_eq!(emit_to_be_cut(&v6(), 65_535, &mut out), Ok(40));
    assert_eq!(emit_to_be_cut(&v6(), 65_536, &mut out), Err(EmitError::PayloadTooLong(65_536)));
}

#[test]
fn addresses_are_of_one_family_and_reverse() {
    assert_eq!(Addresses::new(V4.addresses.src(), v6().addresses.dst()), None);
    for addresses in [V4.addresses, v6().addresses] {
        let back = addresses.reversed();
        assert_eq!(Addresses::new(addresses.dst(), addresses.src()), Some(back));
        let sum = addresses.pseudo_header(6, 20);
        assert_eq!(sum.folded(), back.pseudo_header(6, 20).folded());
    }
}

#[test]
fn the_pseudo_header_is_that_of_the_rfcs() {
    let v4_bytes = [192, 0, 2, 1, 198, 51, 100, 2, 0, 6, 0, 33];
    assert_eq!(V4.addresses.pseudo_header(6, 33), Sum::of(&v4_bytes));
    let Addresses::V6 { src, dst } = v6().addresses else { panic!("not an IPv6 pair") };
    let v6_bytes = [&src.octets()[..], &dst.octets()[..], &[0, 1, 0, 33, 0, 0, 0, 6]].concat();
    assert_eq!(v6().addresses.pseudo_header(6, 65_569), Sum::of(&v6_bytes));
}

fn any_header() -> impl Strategy<Value = Header> {
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>())
        .prop_map(|(src, dst)| Addresses::V4 { src: src.into(), dst: dst.into() });
    let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>())
        .prop_map(|(src, dst)| Addresses::V6 { src: src.into(), dst: dst.into() });
    (prop_oneof![v4, v6], any::<u8>(), any::<u8>(), 0..1_u32 << 20).prop_map(
        |(addresses, hops, class, label)| Header {
            addresses,
            protocol: PROTOCOL_TCP,
            hop_limit: hops,
            traffic_class: class,
            flow_label: if addresses.src().is_ipv6() { label } else { 0 },
        },
    )
}

proptest! {
    #[test]
    fn emit_then_parse_is_identity(
        header in any_header(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let bytes = packet(&header, &payload);
        let (parsed, range) = verify(&bytes).unwrap();
        prop_assert_eq!(parsed, header);
        prop_assert_eq!(&bytes[range], &payload[..]);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_ranges_lie_inside(
        mut bytes in prop::collection::vec(any::<u8>(), 0..120),
        version in prop_oneof![Just(0x45u8), Just(0x46u8), Just(0x60u8), any::<u8>()],
        len in 0u8..120,
        next in prop_oneof![Just(0u8), Just(60), Just(6), any::<u8>()],
    ) {
        // Plausible first fields let the walk get past the first checks.
        for (index, byte) in [(0, version), (2, 0), (3, len), (4, 0), (5, len), (6, next)] {
            if let Some(to) = bytes.get_mut(index) {
                *to = byte;
            }
        }
        for found in [parse(&bytes, HeaderChecksum::Trusted).ok(), parse_refused(&bytes, bytes.len())] {
            let range = found.map_or(0..0, |(_, range)| range);
            prop_assert!(range.start <= range.end && range.end <= bytes.len());
        }
    }
}
