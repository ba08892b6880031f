//! The IPv6 header and the extension headers that may stand before a segment (RFC 8200).
//!
//! Hop-by-hop and destination options are walked over, at most [`EXTENSION_HEADERS_MAX`] headers, each of at most 2,048 bytes;
//! an unknown option is handled as its type says. So is a routing header that has been followed to its end; another one
//! refuses the packet, of whatever type: none is obeyed. Every other next header ends the walk and is handed up as the
//! protocol. Jumbograms (RFC 2675) are refused through their option's type. Does not depend on what is in the payload. Tests:
//! `ip/tests.rs`.

use core::net::Ipv6Addr;
use core::ops::Range;

use super::fragment::{Fragment, V6_FRAGMENT_LEN};
use super::{Addresses, EXTENSION_HEADERS_MAX, EmitError, Header, ParseError, V6_HEADER_LEN};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Offset of the next-header field in the fixed header.
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
pub(super) fn skip_behind_fragment(first: u8, head: &[u8], behind: usize) -> Result<(u8, usize), ParseError> {
    // Named by the fragment header's first byte. A hop-by-hop header comes first in a packet, and so not here.
    let named_at = 0_usize.wrapping_sub(V6_FRAGMENT_LEN);
    match skip_extensions(head, (first, named_at), 0, 1).map_err(|error| moved(error, behind))? {
        (FRAGMENT, _) => Err(ParseError::Fragment),
        found => Ok(found),
    }
}

/// An error as it is found `by` bytes further on.
fn moved(error: ParseError, by: usize) -> ParseError {
    match error {
        ParseError::MisplacedHopByHop { at } => ParseError::MisplacedHopByHop { at: at.wrapping_add(by) },
        ParseError::OptionLen { at } => ParseError::OptionLen { at: at.wrapping_add(by) },
        ParseError::Option { kind, at } => ParseError::Option { kind, at: at.wrapping_add(by) },
        ParseError::Routing { at } => ParseError::Routing { at: at.wrapping_add(by) },
        ParseError::SourceRoute { .. }
        | ParseError::Truncated { .. }
        | ParseError::Version(_)
        | ParseError::HeaderLen(_)
        | ParseError::PacketLen { .. }
        | ParseError::Checksum(_)
        | ParseError::Fragment
        | ParseError::TooManyExtensions
        | ParseError::TruncatedExtension { .. } => error,
    }
}

/// Bits of the flow label in a header's first word.
const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

/// The traffic class and the flow label in a header's first word, which begins with the version.
#[inline]
fn first_word(bytes: [u8; 4]) -> (u8, u32) {
    let word = u32::from_be_bytes(bytes);
    ((word >> 20) as u8, word & FLOW_LABEL_MASK)
}

/// A header, and where behind the extension headers its payload lies. A fragment header ends them.
#[inline]
fn parse_any(packet: &[u8], have: usize) -> Result<(Header, Range<usize>), ParseError> {
    let Some(fixed) = packet.first_chunk::<V6_HEADER_LEN>() else {
        return Err(ParseError::Truncated { need: V6_HEADER_LEN, have: packet.len() });
    };
    let [b0, b1, b2, b3, len_a, len_b, next, hop_limit, addrs @ ..] = *fixed;
    let (traffic_class, flow_label) = first_word([b0, b1, b2, b3]);
    let payload_len = usize::from(u16::from_be_bytes([len_a, len_b]));
    let end = V6_HEADER_LEN + payload_len;
    if end > have {
        return Err(ParseError::PacketLen { field: payload_len, header: V6_HEADER_LEN, have });
    }
    let packet = packet.get(..end).unwrap_or(packet);
    let (protocol, start) = skip_extensions(packet, (next, NEXT_HEADER_AT), V6_HEADER_LEN, 0)?;
    let (mut src, mut dst) = ([0; 16], [0; 16]);
    let (src_bytes, dst_bytes) = addrs.split_at(16);
    src.copy_from_slice(src_bytes);
    dst.copy_from_slice(dst_bytes);
    let addresses = Addresses::V6 { src: Ipv6Addr::from(src), dst: Ipv6Addr::from(dst) };
    Ok((Header { addresses, protocol, hop_limit, traffic_class, flow_label }, start..end))
}

/// Walks over extension headers from `start` on, `before_count` of which have been; returns the upper layer's protocol
/// and where it begins. A fragment header is such a protocol here. `named` is the number of the first, and where it stands.
#[inline]
fn skip_extensions(
    packet: &[u8],
    named: (u8, usize),
    start: usize,
    before_count: usize,
) -> Result<(u8, usize), ParseError> {
    match named.0 {
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => walk_extensions(packet, named, start, before_count),
        protocol => Ok((protocol, start)),
    }
}

#[cold]
fn walk_extensions(
    packet: &[u8],
    (first, named_at): (u8, usize),
    start: usize,
    before_count: usize,
) -> Result<(u8, usize), ParseError> {
    let (mut next, mut named_at, mut at) = (first, named_at, start);
    for index in before_count..=EXTENSION_HEADERS_MAX {
        match next {
            HOP_BY_HOP if index > 0 => return Err(ParseError::MisplacedHopByHop { at: named_at }),
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {}
            protocol => return Ok((protocol, at)),
        }
        if index == EXTENSION_HEADERS_MAX {
            break;
        }
        let header = extension(packet, at)?;
        if next == ROUTING {
            // Type and segments left, in every header of at least eight bytes.
            if header.get(3).is_none_or(|left| *left > 0) {
                return Err(ParseError::Routing { at: at + 2 });
            }
        } else {
            walk_options(header, at)?;
        }
        (next, named_at, at) = (header.first().copied().unwrap_or_default(), at, at + header.len());
    }
    Err(ParseError::TooManyExtensions)
}

/// The extension header that begins at `at`, whole.
fn extension(packet: &[u8], at: usize) -> Result<&[u8], ParseError> {
    let rest = packet.get(at..).unwrap_or_default();
    let len = rest.get(1).map_or(EXTENSION_LEN_MIN, |units| (usize::from(*units) + 1) * 8);
    rest.get(..len).ok_or(ParseError::TruncatedExtension { need: len, have: rest.len() })
}

/// Bytes of the shortest extension header.
const EXTENSION_LEN_MIN: usize = 8;

/// Walks over the options of a header that begins at `header_at` of the packet.
fn walk_options(header: &[u8], header_at: usize) -> Result<(), ParseError> {
    // Behind the next header's number and the length.
    let mut at = 2;
    while let Some(&kind) = header.get(at) {
        if kind == OPTION_PAD1 {
            at += 1;
            continue;
        }
        if kind & OPTION_ACTION_MASK != 0 {
            return Err(ParseError::Option { kind, at: header_at + at });
        }
        let behind = header.get(at + 1).map(|data_len| at + 2 + usize::from(*data_len));
        at = behind
            .filter(|behind| *behind <= header.len())
            .ok_or(ParseError::OptionLen { at: header_at + at })?;
    }
    Ok(())
}

/// See [`super::protocol_at`].
pub(super) fn protocol_at(head: &[u8]) -> usize {
    let (field, at) = reach(head, (NEXT_HEADER_AT, V6_HEADER_LEN));
    let behind = at + V6_FRAGMENT_LEN;
    let is_fragment = head.get(field) == Some(&FRAGMENT) && behind <= head.len();
    if is_fragment { reach(head, (at, behind)).0 } else { field }
}

/// As far as lengths alone lead from a header that begins at the second place, and whose number is at the first: where the
/// number of the header there is, and where it begins.
fn reach(head: &[u8], (mut field, mut at): (usize, usize)) -> (usize, usize) {
    for _ in 0..EXTENSION_HEADERS_MAX {
        let Some(HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) = head.get(field).copied() else { break };
        let Some(units) = head.get(at + 1) else { break };
        (field, at) = (at, at + (usize::from(*units) + 1) * 8);
    }
    (field, at)
}

/// See [`super::parse_refused`].
pub(super) fn parse_refused(packet: &[u8], have: usize) -> Option<(Header, Range<usize>)> {
    let [b0, b1, b2, b3, len_a, len_b, _, hop_limit, addrs @ ..] = packet.first_chunk::<V6_HEADER_LEN>()?;
    let end = (V6_HEADER_LEN + usize::from(u16::from_be_bytes([*len_a, *len_b]))).min(have);
    let (field, at) = reach(packet.get(..end).unwrap_or(packet), (NEXT_HEADER_AT, V6_HEADER_LEN));
    let (src, dst) = addrs.split_first_chunk::<16>()?;
    let addresses =
        Addresses::V6 { src: Ipv6Addr::from(*src), dst: Ipv6Addr::from(*dst.first_chunk::<16>()?) };
    let (traffic_class, flow_label) = first_word([*b0, *b1, *b2, *b3]);
    let header =
        Header { addresses, protocol: *packet.get(field)?, hop_limit: *hop_limit, traffic_class, flow_label };
    Some((header, at.min(end)..end))
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
    let word = 6 << 28 | u32::from(header.traffic_class) << 20 | header.flow_label & FLOW_LABEL_MASK;
    let [b0, b1, b2, b3] = word.to_be_bytes();
    let start = [b0, b1, b2, b3, len_a, len_b, header.protocol, header.hop_limit];
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
