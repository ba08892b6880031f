//! Behaviour of the TCP header codec.

use super::*;
use crate::ip::Addresses;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

const PORTS: Ports = Ports { src: 40_000, dst: 443 };

fn addresses() -> [Addresses; 2] {
    let v4 = Addresses::V4 { src: Ipv4Addr::new(10, 0, 0, 1), dst: Ipv4Addr::new(10, 0, 0, 2) };
    [v4, Addresses::V6 { src: Ipv6Addr::LOCALHOST, dst: Ipv6Addr::UNSPECIFIED }]
}

fn segment(header: &Header, checksum: ChecksumOut, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xaa; header_len(header)];
    assert_eq!(emit(PORTS, header, checksum, &mut bytes), Ok(bytes.len()));
    bytes.extend_from_slice(payload);
    bytes
}

/// A segment whose option bytes are given raw.
fn with_options(flags: Flags, options: &[u8]) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4) && options.len() <= 40);
    let header = Header { flags, ..Header::default() };
    let mut bytes = segment(&header, ChecksumOut::Omit, options);
    bytes[12] = u8::try_from((20 + options.len()) / 4).unwrap() << 4;
    bytes
}

fn options_of(flags: Flags, options: &[u8]) -> Options {
    let bytes = with_options(flags, options);
    let (_, header, range) = parse(&bytes, ChecksumIn::Trusted).unwrap();
    assert_eq!(range, bytes.len()..bytes.len());
    header.options
}

fn pseudo(addresses: &Addresses, len: usize) -> Sum {
    addresses.pseudo_header(6, u32::try_from(len).unwrap())
}

#[test]
fn a_syn_has_the_layout_that_other_hosts_send() {
    let header = Header {
        seq: SeqNum::new(0x0102_0304),
        flags: Flags::SYN,
        window: 64_240,
        options: Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { val: 0x0a0b_0c0d, ecr: 0 }),
            ..Options::default()
        },
        ..Header::default()
    };
    let bytes = segment(&header, ChecksumOut::Omit, b"");
    let expected = [
        0x9c, 0x40, 0x01, 0xbb, 1, 2, 3, 4, 0, 0, 0, 0, 0xa0, 0x02, 0xfa, 0xf0, 0, 0, 0, 0, 2, 4, 5, 0xb4, 4,
        2, 8, 10, 10, 11, 12, 13, 0, 0, 0, 0, 1, 3, 3, 7,
    ];
    assert_eq!(bytes, expected);
}

#[test]
fn a_known_segment_has_the_known_checksum() {
    // Added up by hand: 10.0.0.1 to 10.0.0.2, 22 bytes, a SYN-less ACK with the payload "hi".
    let header = Header { seq: SeqNum::new(1), flags: Flags::ACK, ..Header::default() };
    let full = pseudo(&addresses()[0], 22).add_bytes(b"hi");
    let bytes = segment(&header, ChecksumOut::Full(full), b"hi");
    let words = [0x0a00u32, 1, 0x0a00, 2, 6, 22, 40_000, 443, 0, 1, 0, 0, 0x5010, 0, 0, 0x6869];
    let sum: u32 = words.iter().sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    assert_eq!(bytes[16..18], (!u16::try_from(folded).unwrap()).to_be_bytes());
}

#[test]
fn a_damaged_segment_is_refused_unless_trusted() {
    for addresses in addresses() {
        let header = Header { flags: Flags::ACK, ..Header::default() };
        let full = pseudo(&addresses, 23).add_bytes(b"abc");
        let mut bytes = segment(&header, ChecksumOut::Full(full), b"abc");
        let verify = ChecksumIn::Verify(pseudo(&addresses, 23));
        assert_eq!(parse(&bytes, verify), Ok((PORTS, header, 20..23)));
        bytes[22] ^= 0x40;
        assert!(matches!(parse(&bytes, verify), Err(ParseError::Checksum(_))));
        assert!(parse(&bytes, ChecksumIn::Trusted).is_ok());
    }
}

#[test]
fn an_offloading_device_gets_the_pseudo_header_sum_and_completes_it() {
    let header = Header { flags: Flags::ACK, window: 9, ..Header::default() };
    let sum = pseudo(&addresses()[0], 23);
    let mut bytes = segment(&header, ChecksumOut::Offload(sum), b"abc");
    assert_eq!(bytes[16..18], sum.folded().to_be_bytes());
    // As a device does: sum everything from the header on, that field included, and complement.
    let completed = Sum::of(&bytes).checksum();
    bytes[16..18].copy_from_slice(&completed.to_be_bytes());
    assert!(parse(&bytes, ChecksumIn::Verify(sum)).is_ok());
}

#[test]
fn malformed_headers_are_refused_by_name() {
    let bytes = segment(&Header::default(), ChecksumOut::Omit, b"");
    let trusted = ChecksumIn::Trusted;
    assert_eq!(parse(&bytes[..19], trusted), Err(ParseError::Truncated(19)));
    let mut bad = bytes.clone();
    bad[12] = 0x40;
    assert_eq!(parse(&bad, trusted), Err(ParseError::DataOffset { field: 16, have: 20 }));
    bad[12] = 0x60;
    let error = parse(&bad, trusted).unwrap_err();
    assert_eq!(error, ParseError::DataOffset { field: 24, have: 20 });
    assert_eq!(error.to_string(), "TCP data offset of 24 bytes in a segment of 20 bytes");
}

#[test]
fn reserved_bits_are_ignored() {
    let mut bytes = segment(&Header::default(), ChecksumOut::Omit, b"");
    bytes[12] |= 0x0e;
    assert_eq!(parse(&bytes, ChecksumIn::Trusted), Ok((PORTS, Header::default(), 20..20)));
    // The fourth is a flag by now.
    bytes[12] |= 1;
    let header = Header { flags: Flags::AE, ..Header::default() };
    assert_eq!(parse(&bytes, ChecksumIn::Trusted), Ok((PORTS, header, 20..20)));
}

#[test]
fn a_short_buffer_is_refused_and_left_alone() {
    let mut out = [7; 19];
    let error = Err(BufferTooShort { need: 20, have: 19 });
    assert_eq!(emit(PORTS, &Header::default(), ChecksumOut::Omit, &mut out), error);
    assert_eq!(out, [7; 19]);
}

#[test]
fn unknown_options_are_skipped_by_their_length() {
    let options = options_of(Flags::SYN, &[254, 6, 2, 4, 0xff, 0xff, 1, 2, 4, 5, 0xb4, 0]);
    assert_eq!(options, Options { mss: Some(1460), ..Options::default() });
}

#[test]
fn sack_blocks_are_read_in_their_order_and_on_no_syn() {
    let mut bytes = vec![1, 1, 5, 18, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 1];
    bytes.extend([0, 0, 0, 2, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    let timestamps = Some(Timestamps { val: 1, ecr: 2 });
    let sack = [block(7, 9), block(1, 2)].into_iter().collect();
    assert_eq!(options_of(Flags::ACK, &bytes), Options { timestamps, sack, ..Options::default() });
    assert_eq!(options_of(Flags::SYN, &bytes), Options { timestamps, ..Options::default() });
}

#[test]
fn a_sack_option_of_broken_blocks_has_none() {
    let options = options_of(Flags::ACK, &[5, 7, 0, 0, 0, 1, 9, 1, 5, 2, 1, 1]);
    assert_eq!(options.sack, SackBlocks::NONE);
}

#[test]
fn beside_timestamps_there_is_room_for_three_blocks() {
    let sack: SackBlocks = (0..9).map(|i| block(10 * i, 10 * i + 5)).collect();
    assert_eq!(sack.len(), 4);
    let timestamps = Some(Timestamps { val: 1, ecr: 2 });
    for (timestamps, count, len) in [(None, 4, 56), (timestamps, 3, 60)] {
        let options = Options { sack, timestamps, ..Options::default() };
        let bytes = segment(&Header { options, ..Header::default() }, ChecksumOut::Omit, b"");
        assert_eq!((bytes.len(), header_len(&Header { options, ..Header::default() })), (len, len));
        let (_, header, _) = parse(&bytes, ChecksumIn::Trusted).unwrap();
        assert_eq!(header.options.sack.as_slice(), &sack.as_slice()[..count]);
    }
}

fn block(start: u32, end: u32) -> SackBlock {
    SackBlock { start: SeqNum::new(start), end: SeqNum::new(end) }
}

#[test]
fn a_malformed_option_ends_the_list_and_keeps_the_options_before_it() {
    let mss = Options { mss: Some(1460), ..Options::default() };
    // Length 0, length 1, a length past the end, and a kind without a length.
    for tail in [[3, 0, 4, 2], [3, 1, 4, 2], [3, 9, 4, 2], [1, 1, 1, 3]] {
        let bytes = [&[2, 4, 5, 0xb4][..], &tail[..]].concat();
        assert_eq!(options_of(Flags::SYN, &bytes), mss);
        let (_, header, _) = parse(&with_options(Flags::SYN, &bytes), ChecksumIn::Trusted).unwrap();
        assert_eq!(header.flags, Flags::SYN.with(Flags::BAD_OPTION));
    }
    // The end of the list, with something that looks like an option behind it.
    assert_eq!(options_of(Flags::SYN, &[2, 4, 5, 0xb4, 0, 1, 4, 2]), mss);
}

#[test]
fn an_option_with_a_wrong_length_is_skipped() {
    let bytes = [2, 3, 9, 3, 4, 1, 1, 4, 3, 9, 8, 3, 9, 2, 4, 5, 0xb4, 1, 1, 1];
    assert_eq!(options_of(Flags::SYN, &bytes), Options { mss: Some(1460), ..Options::default() });
}

#[test]
fn an_option_that_says_nothing_leaves_an_earlier_one_as_it_is() {
    assert_eq!(options_of(Flags::SYN, &[2, 4, 5, 0xb4, 2, 4, 0, 0]).mss, Some(1460));
    let block = [1, 1, 5, 10, 0, 0, 0, 9, 0, 0, 0, 10];
    let blocks = options_of(Flags::ACK, &block).sack;
    assert_eq!(blocks.len(), 1);
    for nothing in [&[5, 2, 1, 1][..], &[5, 7, 1, 2, 3, 4, 5, 1]] {
        assert_eq!(options_of(Flags::ACK, &[&block[..], nothing].concat()).sack, blocks);
    }
}

#[test]
fn options_of_a_syn_count_on_a_syn_only() {
    let bytes = [2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7];
    assert_eq!(options_of(Flags::ACK, &bytes), Options::default());
    let sent = Options {
        mss: Some(9),
        window_scale: Some(1),
        sack_permitted: true,
        timestamps: None,
        ..Options::default()
    };
    let header = Header { flags: Flags::ACK, options: sent, ..Header::default() };
    assert_eq!(header_len(&header), HEADER_LEN_MIN);
    segment(&header, ChecksumOut::Omit, b"");
}

#[test]
fn values_out_of_bounds_are_brought_inside() {
    assert_eq!(options_of(Flags::SYN, &[1, 3, 3, 15]).window_scale, Some(14));
    assert_eq!(options_of(Flags::SYN, &[2, 4, 0, 0]).mss, None);
}

#[test]
fn fast_open_is_read_on_a_syn_and_only_with_a_length_that_cookies_have() {
    let cookie = [34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1];
    assert_eq!(options_of(Flags::SYN, &cookie).fast_open, Cookie::new(&[1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(options_of(Flags::ACK, &cookie).fast_open, None);
    assert_eq!(options_of(Flags::SYN, &[1, 1, 34, 2]).fast_open, Some(Cookie::REQUEST));
    assert_eq!(options_of(Flags::SYN, &[34, 5, 1, 2, 3, 1, 1, 1]).fast_open, None);
    let experimental = Cookie::new(&[1, 2, 3, 4]).map(Cookie::experimental);
    assert_eq!(options_of(Flags::SYN, &[254, 8, 0xf9, 0x89, 1, 2, 3, 4]).fast_open, experimental);
    assert_eq!(options_of(Flags::SYN, &[254, 4, 0xf9, 0x89]).fast_open, Some(Cookie::REQUEST.experimental()));
    assert_eq!(options_of(Flags::SYN, &[254, 8, 0xf9, 0x88, 1, 2, 3, 4]).fast_open, None, "another's");
    assert_eq!(options_of(Flags::ACK, &[254, 8, 0xf9, 0x89, 1, 2, 3, 4]).fast_open, None);
    assert_eq!(options_of(Flags::SYN, &[254, 3, 0xf9, 1]).fast_open, None);
}

#[test]
fn a_user_timeout_of_zero_is_none() {
    assert_eq!(options_of(Flags::ACK, &[28, 4, 0, 0]).user_timeout, None);
    assert_eq!(options_of(Flags::ACK, &[28, 4, 0x80, 5]).user_timeout, UserTimeout::from_bits(0x8005));
}

#[test]
fn the_longest_cookie_leaves_no_room_for_the_user_timeout() {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { val: 1, ecr: 2 }),
        fast_open: Cookie::new(&[9; 16]),
        user_timeout: UserTimeout::from_bits(30),
        ..Options::default()
    };
    let header = Header { flags: Flags::SYN, options, ..Header::default() };
    let (_, parsed, _) = parse(&segment(&header, ChecksumOut::Omit, b""), ChecksumIn::Trusted).unwrap();
    assert_eq!(parsed.options, Options { user_timeout: None, ..options });
}

#[test]
fn fast_open_stands_where_a_word_begins_with_its_padding_behind() {
    let of = |cookie: Cookie| {
        let options = Options { mss: Some(1460), fast_open: Some(cookie), ..Options::default() };
        let header = Header { flags: Flags::SYN, options, ..Header::default() };
        segment(&header, ChecksumOut::Omit, b"")[HEADER_LEN_MIN + 4..].to_vec()
    };
    assert_eq!(of(Cookie::REQUEST), [34, 2, 1, 1]);
    assert_eq!(of(Cookie::new(&[5; 8]).unwrap()), [34, 10, 5, 5, 5, 5, 5, 5, 5, 5, 1, 1]);
    assert_eq!(of(Cookie::REQUEST.experimental()), [254, 4, 0xf9, 0x89]);
    assert_eq!(
        of(Cookie::new(&[5; 6]).unwrap().experimental()),
        [254, 10, 0xf9, 0x89, 5, 5, 5, 5, 5, 5, 1, 1]
    );
}

#[test]
fn a_user_timeout_is_sent_beside_other_options_as_long_as_there_is_room() {
    let timestamps = Some(Timestamps { val: 7, ecr: 9 });
    let of = |sack: SackBlocks| {
        let user_timeout = UserTimeout::from_bits(100);
        let options = Options { timestamps, sack, user_timeout, ..Options::default() };
        let header = Header { flags: Flags::ACK, options, ..Header::default() };
        parse(&segment(&header, ChecksumOut::Omit, b""), ChecksumIn::Trusted).unwrap().1.options
    };
    let blocks = |count: u32| (0..count).map(|n| block(10 * n, 10 * n + 5)).collect::<SackBlocks>();
    for (count, is_sent) in [(0, true), (2, true), (3, false)] {
        let options = of(blocks(count));
        assert_eq!(
            options.user_timeout.map(|timeout| timeout.bits()),
            is_sent.then_some(100),
            "{count} blocks"
        );
        assert_eq!((options.timestamps, options.sack), (timestamps, blocks(count)));
    }
}

#[test]
fn counters_of_accurate_ecn_are_sent_in_both_orders_as_many_as_there_is_room_for() {
    for count in 1..=3u8 {
        for kind in [AccEcnOption::KIND_0, AccEcnOption::KIND_1] {
            let mut bytes = vec![kind, 2 + 3 * count];
            bytes.extend((1..=3 * count).map(|n| 10 * n));
            bytes.resize(12, KIND_NOP);
            let options = options_of(Flags::ACK, &bytes);
            let option = options.accecn.unwrap();
            assert_eq!((option.kind(), option.fields().len()), (kind, count.into()));
            let header = Header { flags: Flags::ACK, options, ..Header::default() };
            let again = segment(&header, ChecksumOut::Omit, b"");
            assert_eq!(parse(&again, ChecksumIn::Trusted).unwrap().1, header);
        }
    }
}

fn any_options(syn: bool) -> impl Strategy<Value = Options> {
    let timestamps =
        any::<Option<(u32, u32)>>().prop_map(|pair| pair.map(|(val, ecr)| Timestamps { val, ecr }));
    let of_syn = (prop::option::of(1u16..), prop::option::of(0u8..=14), any::<bool>());
    let blocks = prop::collection::vec(any::<(u32, u32)>(), 0..4);
    let cookie = prop::collection::vec(any::<u8>(), 0..=16);
    let all = (of_syn, timestamps, blocks, cookie);
    all.prop_map(move |((mss, window_scale, sack_permitted), timestamps, blocks, cookie)| {
        if syn {
            let fast_open = Cookie::new(&cookie);
            let is_odd_mss = mss.is_some_and(|mss| mss % 2 == 1);
            let fast_open = if is_odd_mss { fast_open.map(Cookie::experimental) } else { fast_open };
            Options { mss, window_scale, sack_permitted, timestamps, fast_open, ..Options::default() }
        } else {
            let sack = blocks.into_iter().map(|(start, end)| block(start, end)).collect();
            Options { timestamps, sack, ..Options::default() }
        }
    })
}

fn any_header() -> impl Strategy<Value = Header> {
    let flags = any::<u8>().prop_map(Flags::from_bits);
    (flags, any::<[u32; 2]>(), any::<[u16; 2]>()).prop_flat_map(|(flags, numbers, words)| {
        any_options(flags.has(Flags::SYN)).prop_map(move |options| Header {
            seq: SeqNum::new(numbers[0]),
            ack: SeqNum::new(numbers[1]),
            flags,
            window: words[0],
            urgent: words[1],
            gso_size: 0,
            options,
        })
    })
}

proptest! {
    #[test]
    fn emit_then_parse_is_identity(
        header in any_header(),
        ports in any::<[u16; 2]>(),
        payload in prop::collection::vec(any::<u8>(), 0..64),
        family in 0usize..2,
    ) {
        let ports = Ports { src: ports[0], dst: ports[1] };
        let len = header_len(&header);
        let pseudo = pseudo(&addresses()[family], len + payload.len());
        let mut bytes = vec![0xaa; len];
        let checksum = ChecksumOut::Full(pseudo.add_bytes(&payload));
        prop_assert_eq!(emit(ports, &header, checksum, &mut bytes), Ok(len));
        bytes.extend_from_slice(&payload);
        let parsed = parse(&bytes, ChecksumIn::Verify(pseudo));
        prop_assert_eq!(parsed, Ok((ports, header, len..bytes.len())));
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_ranges_lie_inside(
        mut bytes in prop::collection::vec(any::<u8>(), 0..100),
        words in 4u8..16,
    ) {
        if let Some(offset) = bytes.get_mut(12) {
            *offset = words << 4;
        }
        if let Ok((_, mut header, range)) = parse(&bytes, ChecksumIn::Trusted) {
            prop_assert!(range.start <= range.end && range.end == bytes.len());
            header.flags = header.flags.without(Flags::BAD_OPTION);
            // Parsed options can be emitted again, except the user timeout where padding takes its room, and counters of accurate ECN where that does or there are none.
            let again = segment(&header, ChecksumOut::Omit, b"");
            let mut parsed = parse(&again, ChecksumIn::Trusted).unwrap().1;
            parsed.options.user_timeout = header.options.user_timeout;
            let count_of = |header: &Header| header.options.accecn.map_or(0, |option| option.fields().len());
            prop_assert!(count_of(&parsed) <= count_of(&header));
            parsed.options.accecn = header.options.accecn;
            prop_assert_eq!(parsed, header);
        }
    }

    #[test]
    fn arbitrary_options_never_panic(
        options in prop::collection::vec(prop_oneof![0u8..12, any::<u8>()], 0..40),
        flags in any::<u8>(),
    ) {
        let whole = options.len() / 4 * 4;
        options_of(Flags::from_bits(flags), &options[..whole]);
    }
}

#[test]
fn a_buffer_that_is_too_short_is_told_with_both_lengths() {
    let error = BufferTooShort { need: 32, have: 20 };
    assert_eq!(error.to_string(), "TCP header of 32 bytes in a buffer of 20");
}
