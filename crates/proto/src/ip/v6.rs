//! The IPv6 header and the extension headers that may stand before a segment (RFC 8200).
//!
//! Hop-by-hop and destination options are walked over, at most [`EXTENSION_HEADERS_MAX`] headers, each
//! of at most 2,048 bytes; an unknown option does what its type says. Every other next header ends the
//! walk and is handed up as the protocol, so that a routing header is an unknown protocol to the caller
//! and not obeyed. Jumbograms (RFC 2675) are refused through their option's type. Must not know what is
//! in the payload. Tests: `ip/tests.rs`.

use core::net::Ipv6Addr;
use core::ops::Range;

use super::fragment::{Fragment, V6_FRAGMENT_LEN};
use super::{Addresses, EXTENSION_HEADERS_MAX, EmitError, Header, ParseError, V6_HEADER_LEN};

const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Where the fixed header says what follows it.
const NEXT_HEADER_AT: usize = 6;

/// The offset in the word of a fragment header, in bytes, as its unit is eight.
const OFFSET_MASK: u16 = 0xfff8;
/// "More fragments" in that word.
const MORE_FRAGMENTS: u16 = 1;

const OPTION_PAD1: u8 = 0;
/// Two bits of an option's type: what to do if it is not known; zero says skip it.
const OPTION_ACTION_MASK: u8 = 0xc0;

/// See [`super::parse_head`]; `have` is the length of the whole packet.
pub(super) fn parse(packet: &[u8], have: usize) -> Result<(Header, Range<usize>), ParseError> {
    let (header, range) = parse_any(packet, have)?;
    if header.protocol == FRAGMENT { Err(ParseError::Fragment) } else { Ok((header, range)) }
}

/// See [`super::fragment::parse_head`].
pub(super) fn parse_fragment(
    packet: &[u8],
    have: usize,
) -> Result<(Header, Fragment, Range<usize>, usize), ParseError> {
    let (header, range) = parse_any(packet, have)?;
    if header.protocol != FRAGMENT {
        return Err(ParseError::Fragment);
    }
    let start = range.start + V6_FRAGMENT_LEN;
    let Some(&[next, _, at_a, at_b, id @ ..]) =
        packet.get(range.start..start).and_then(|bytes| <&[u8; V6_FRAGMENT_LEN]>::try_from(bytes).ok())
    else {
        return Err(ParseError::Truncated { need: start, have: packet.len() });
    };
    if start > range.end {
        return Err(ParseError::Truncated { need: start, have: range.end });
    }
    let word = u16::from_be_bytes([at_a, at_b]);
    let fragment =
        Fragment { id: u32::from_be_bytes(id), offset: word & OFFSET_MASK, more: word & MORE_FRAGMENTS != 0 };
    Ok((Header { protocol: next, ..header }, fragment, start..range.end, range.start))
}

/// See [`super::fragment::upper_layer`].
pub(super) fn skip_behind_fragment(first: u8, head: &[u8]) -> Result<(u8, usize), ParseError> {
    // A hop-by-hop header comes first in a packet, and so not here.
    match skip_extensions(head, first, 0, 1)? {
        (FRAGMENT, _) => Err(ParseError::Fragment),
        found => Ok(found),
    }
}

/// A header, and where behind the extension headers its payload lies. A fragment header ends them.
#[inline]
fn parse_any(packet: &[u8], have: usize) -> Result<(Header, Range<usize>), ParseError> {
    let Some(fixed) = packet.first_chunk::<V6_HEADER_LEN>() else {
        return Err(ParseError::Truncated { need: V6_HEADER_LEN, have: packet.len() });
    };
    let [b0, b1, _, _, len_a, len_b, next, hop_limit, addrs @ ..] = *fixed;
    let traffic_class = (b0 << 4) | (b1 >> 4);
    let payload_len = usize::from(u16::from_be_bytes([len_a, len_b]));
    let end = V6_HEADER_LEN + payload_len;
    if end > have {
        return Err(ParseError::PacketLen { field: payload_len, header: V6_HEADER_LEN, have });
    }
    let packet = packet.get(..end).unwrap_or(packet);
    let (protocol, start) = skip_extensions(packet, next, V6_HEADER_LEN, 0)?;
    let (mut src, mut dst) = ([0; 16], [0; 16]);
    let (src_bytes, dst_bytes) = addrs.split_at(16);
    src.copy_from_slice(src_bytes);
    dst.copy_from_slice(dst_bytes);
    let addresses = Addresses::V6 { src: Ipv6Addr::from(src), dst: Ipv6Addr::from(dst) };
    Ok((Header { addresses, protocol, hop_limit, traffic_class }, start..end))
}

/// Walks over extension headers from `start` on, `before_count` of which have been; returns the upper layer's protocol
/// and where it begins. A fragment header is such a protocol here.
fn skip_extensions(
    packet: &[u8],
    first: u8,
    start: usize,
    before_count: usize,
) -> Result<(u8, usize), ParseError> {
    let (mut next, mut at) = (first, start);
    for index in before_count..=EXTENSION_HEADERS_MAX {
        match next {
            HOP_BY_HOP if index > 0 => return Err(ParseError::MisplacedHopByHop),
            HOP_BY_HOP | DESTINATION_OPTIONS => {}
            protocol => return Ok((protocol, at)),
        }
        if index == EXTENSION_HEADERS_MAX {
            break;
        }
        let rest = packet.get(at..).unwrap_or_default();
        let (following, len) = skip_options_header(rest)?;
        next = following;
        at += len;
    }
    Err(ParseError::TooManyExtensions)
}

/// See [`super::protocol_at`].
pub(super) fn protocol_at(head: &[u8]) -> usize {
    let (mut field, mut at) = (NEXT_HEADER_AT, V6_HEADER_LEN);
    for _ in 0..EXTENSION_HEADERS_MAX {
        let Some(HOP_BY_HOP | DESTINATION_OPTIONS) = head.get(field).copied() else { break };
        let Some(units) = head.get(at + 1) else { break };
        (field, at) = (at, at + (usize::from(*units) + 1) * 8);
    }
    field
}

/// Reads one options header; returns the number of the next one and this one's length, bytes.
fn skip_options_header(bytes: &[u8]) -> Result<(u8, usize), ParseError> {
    let &[next, units, ..] = bytes else {
        return Err(ParseError::Truncated { need: 8, have: bytes.len() });
    };
    let len = (usize::from(units) + 1) * 8;
    let Some(mut options) = bytes.get(2..len) else {
        return Err(ParseError::Truncated { need: len, have: bytes.len() });
    };
    while let Some((&kind, rest)) = options.split_first() {
        if kind == OPTION_PAD1 {
            options = rest;
            continue;
        }
        if kind & OPTION_ACTION_MASK != 0 {
            return Err(ParseError::Option(kind));
        }
        let Some((&data_len, data)) = rest.split_first() else {
            return Err(ParseError::Truncated { need: 2, have: 1 });
        };
        let data_len = usize::from(data_len);
        let Some(behind) = data.get(data_len..) else {
            return Err(ParseError::Truncated { need: data_len, have: data.len() });
        };
        options = behind;
    }
    Ok((next, len))
}

/// See [`super::emit`].
pub(super) fn emit(
    header: &Header,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    payload_len: usize,
    out: &mut [u8],
) -> Result<usize, EmitError> {
    let have = out.len();
    let Some(out) = out.first_chunk_mut::<V6_HEADER_LEN>() else {
        return Err(EmitError::BufferTooShort { need: V6_HEADER_LEN, have });
    };
    let Ok(len_field) = u16::try_from(payload_len) else {
        return Err(EmitError::PayloadTooLong(payload_len));
    };
    let [len_a, len_b] = len_field.to_be_bytes();
    let class = header.traffic_class;
    let start = [0x60 | (class >> 4), class << 4, 0, 0, len_a, len_b, header.protocol, header.hop_limit];
    let (fixed, addrs) = out.split_at_mut(8);
    let (src_out, dst_out) = addrs.split_at_mut(16);
    fixed.copy_from_slice(&start);
    src_out.copy_from_slice(&src.octets());
    dst_out.copy_from_slice(&dst.octets());
    Ok(V6_HEADER_LEN)
}

/// See [`super::fragment::emit`].
pub(super) fn emit_fragment(
    header: &Header,
    (src, dst): (Ipv6Addr, Ipv6Addr),
    fragment: &Fragment,
    payload_len: usize,
    out: &mut [u8],
) -> Result<usize, EmitError> {
    let (need, have) = (V6_HEADER_LEN + V6_FRAGMENT_LEN, out.len());
    if have < need {
        return Err(EmitError::BufferTooShort { need, have });
    }
    let fixed = Header { protocol: FRAGMENT, ..*header };
    let len = emit(&fixed, src, dst, payload_len + V6_FRAGMENT_LEN, out)?;
    let [at_a, at_b] = (fragment.offset & OFFSET_MASK | u16::from(fragment.more)).to_be_bytes();
    let [a, b, c, d] = fragment.id.to_be_bytes();
    if let Some(out) = out.get_mut(len..need) {
        out.copy_from_slice(&[header.protocol, 0, at_a, at_b, a, b, c, d]);
    }
    Ok(need)
}
