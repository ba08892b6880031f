//! Headers against RFC 768's text and a checksum computed the long way; cutting and joining against each other.

use core::num::NonZeroU16;

use proptest::prelude::*;

use super::*;
use crate::ip::{Addresses, PROTOCOL_UDP};

fn addresses(is_v6: bool) -> Addresses {
    let (src, dst) = if is_v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
    Addresses::new(src.parse().unwrap(), dst.parse().unwrap()).unwrap()
}

fn pseudo(is_v6: bool, len: usize) -> Sum {
    addresses(is_v6).pseudo_header(PROTOCOL_UDP, u32::try_from(len).unwrap())
}

/// A whole datagram.
fn datagram(is_v6: bool, payload: &[u8]) -> Vec<u8> {
    let header = Header { src_port: 5353, dst_port: 53 };
    let pseudo = pseudo(is_v6, HEADER_LEN + payload.len());
    let checksum = ChecksumOut::Full { pseudo, payload: Sum::of(payload) };
    let mut bytes = emit(&header, payload.len(), checksum).unwrap().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

fn verify(is_v6: bool, bytes: &[u8]) -> Result<(Header, Range<usize>), ParseError> {
    let len = datagram_len(bytes, bytes.len())?;
    let sum = pseudo(is_v6, len).add_bytes(&bytes[..len]);
    parse(bytes, bytes.len(), ChecksumIn::Verify { sum, zero_is_refused: is_v6 })
}

#[test]
fn a_header_is_four_fields_and_the_length_counts_it() {
    let bytes = datagram(false, b"abc");
    assert_eq!(bytes[..6], [0x14, 0xe9, 0, 53, 0, 11]);
    assert_eq!(verify(false, &bytes), Ok((Header { src_port: 5353, dst_port: 53 }, 8..11)));
}

#[test]
fn no_checksum_is_zero_and_a_checksum_of_zero_is_ones() {
    for is_v6 in [false, true] {
        // A payload that makes the sum come out as zero: the complement of everything else's sum.
        let bare = emit(&Header { src_port: 5353, dst_port: 53 }, 2, ChecksumOut::Zero).unwrap();
        let rest = pseudo(is_v6, HEADER_LEN + 2).add_bytes(&bare);
        let bytes = datagram(is_v6, &rest.checksum().to_be_bytes());
        assert_eq!(bytes[6..8], [0xff, 0xff]);
        assert!(verify(is_v6, &bytes).is_ok());
    }
}

#[test]
fn only_ipv4_accepts_datagrams_without_a_checksum() {
    let mut bytes = datagram(false, b"abc");
    bytes[6..8].fill(0);
    assert!(verify(false, &bytes).is_ok());
    let mut bytes = datagram(true, b"abc");
    bytes[6..8].fill(0);
    assert_eq!(verify(true, &bytes), Err(ParseError::NoChecksum));
}

#[test]
fn a_wrong_length_is_refused_and_padding_is_removed() {
    let mut bytes = datagram(false, b"abc");
    assert_eq!(parse(&bytes[..7], 7, ChecksumIn::Trusted), Err(ParseError::Truncated(7)));
    bytes.push(0);
    assert_eq!(verify(false, &bytes).unwrap().1, 8..11);
    for (field, have) in [(7, 12), (0, 12), (13, 12)] {
        bytes[4..6].copy_from_slice(&u16::to_be_bytes(field));
        let refused = parse(&bytes, have, ChecksumIn::Trusted);
        assert_eq!(refused, Err(ParseError::Length { field: usize::from(field), have }));
    }
}

#[test]
fn a_payload_beyond_the_limit_is_not_written() {
    let header = Header { src_port: 1, dst_port: 2 };
    assert!(emit(&header, PAYLOAD_MAX_V6, ChecksumOut::Zero).is_some());
    assert!(emit(&header, PAYLOAD_MAX_V6 + 1, ChecksumOut::Zero).is_none());
    assert_eq!(PAYLOAD_MAX_V4, 65_507);
}

proptest! {
    #[test]
    fn every_damaged_bit_is_noticed(
        payload in prop::collection::vec(any::<u8>(), 0..64),
        is_v6: bool,
        place: prop::sample::Index,
        bit in 0u8..8,
    ) {
        let mut bytes = datagram(is_v6, &payload);
        prop_assert!(verify(is_v6, &bytes).is_ok());
        let place = place.index(bytes.len());
        bytes[place] ^= 1u8 << bit;
        // Checksums of ones and of zeros are equivalent, and zero means that there is none.
        let is_unsigned = !is_v6 && bytes[6..8] == [0, 0];
        prop_assert!(is_unsigned || verify(is_v6, &bytes).is_err());
    }

    #[test]
    fn arbitrary_bytes_give_a_range_inside_or_a_refusal(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        more in 0usize..100,
    ) {
        if let Ok((_, range)) = parse(&bytes, bytes.len() + more, ChecksumIn::Trusted) {
            prop_assert!(range.start == HEADER_LEN && range.start <= range.end);
            prop_assert!(range.end <= bytes.len() + more);
        }
    }

    #[test]
    fn segmented_datagrams_cover_the_buffer_and_join_to_the_same_buffer(len in 0usize..3000, size in 1u16..200) {
        let size = NonZeroU16::new(size).unwrap();
        let Some(segments) = Segments::new(len, size) else {
            prop_assert!(len.div_ceil(usize::from(size.get())) > SEGMENTS_MAX);
            return Ok(());
        };
        let count = segments.count_left();
        let ranges: Vec<_> = segments.collect();
        prop_assert_eq!(ranges.len(), count);
        prop_assert_eq!(ranges.iter().map(|r| r.len()).sum::<usize>(), len);
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        let (first, rest) = ranges.split_first().unwrap();
        let mut joiner = Joiner::new(first.len(), 0);
        prop_assert!(rest.iter().all(|r| joiner.add(r.len(), 65_535)));
        prop_assert!(rest.is_empty() || joiner.size() == size.get());
    }
}

#[test]
fn an_empty_buffer_is_one_empty_datagram() {
    let size = NonZeroU16::new(100).unwrap();
    let mut one = Segments::new(0, size).unwrap();
    assert_eq!((one.next(), one.next()), (Some(0..0), None));
    assert_eq!(Segments::new(250, size).unwrap().collect::<Vec<_>>(), [0..100, 100..200, 200..250]);
    assert!(Segments::new(100 * SEGMENTS_MAX + 1, size).is_none());
}

#[test]
fn a_shorter_datagram_ends_a_join_and_a_longer_or_empty_one_never_joins() {
    let mut joiner = Joiner::new(100, 0);
    assert_eq!(joiner.size(), 0);
    assert!(joiner.add(100, 1000) && !joiner.add(101, 1000) && !joiner.add(0, 1000));
    assert!(joiner.add(40, 1000) && !joiner.add(40, 1000));
    assert_eq!(joiner.size(), 100);
    // A join that continues an earlier one decides in the same way.
    assert!(Joiner::new(200, 100).add(100, 1000) && !Joiner::new(240, 100).add(40, 1000));
    assert!(!Joiner::new(0, 0).add(0, 1000));
    assert!(!Joiner::new(600, 0).add(600, 1000), "more bytes than one buffer takes");
    let mut joiner = Joiner::new(1, 0);
    assert_eq!((0..1000).take_while(|_| joiner.add(1, 65_535)).count(), SEGMENTS_MAX - 1);
}
