//! The IPv4 header (RFC 791).
//!
//! Options are walked over by their length and not obeyed: a host that is no router has nothing to do for a
//! record route or a timestamp. A source route is an attack more often than a route, and refuses the packet (RFC
//! 7126 section 4.3). Does not depend on what is in the payload. Tests: `ip/tests.rs`.

use core::net::Ipv4Addr;
use core::ops::Range;

use super::fragment::Fragment;
use super::{Addresses, EmitError, Header, HeaderChecksum, Length, ParseError, Sum, V4_HEADER_LEN};

/// Where the protocol number stands.
pub(super) const PROTOCOL_AT: usize = 9;
/// "Don't fragment" in the word of flags and fragment offset.
const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments".
const MORE_FRAGMENTS: u16 = 0x2000;
/// "More fragments" and the offset: any of these bits makes the packet a fragment.
const FRAGMENT_MASK: u16 = 0x3fff;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_LOOSE_ROUTE: u8 = 131;
const OPTION_STRICT_ROUTE: u8 = 137;

/// See [`super::parse_head`]; `have` is the length of the whole packet.
pub(super) fn parse(
    packet: &[u8],
    have: usize,
    checksum: HeaderChecksum,
) -> Result<(Header, Range<usize>), ParseError> {
    let (header, range, _, word) = parse_any(packet, have, checksum)?;
    if word & FRAGMENT_MASK == 0 { Ok((header, range)) } else { Err(ParseError::Fragment) }
}

/// See [`super::fragment::parse_head`].
pub(super) fn parse_fragment(
    packet: &[u8],
    have: usize,
    checksum: HeaderChecksum,
) -> Result<(Header, Fragment, Range<usize>, usize), ParseError> {
    let (header, range, id, word) = parse_any(packet, have, checksum)?;
    let before = range.start;
    Ok((header, Fragment::of_v4(id, word), range, before))
}

/// A header, where its payload lies, its identification, and the word of flags and offset.
#[inline]
fn parse_any(
    packet: &[u8],
    have: usize,
    checksum: HeaderChecksum,
) -> Result<(Header, Range<usize>, u16, u16), ParseError> {
    let Some(fixed) = packet.first_chunk::<V4_HEADER_LEN>() else {
        return Err(ParseError::Truncated { need: V4_HEADER_LEN, have: packet.len() });
    };
    let [ver_ihl, tos, len_a, len_b, id_a, id_b, frag_a, frag_b, ttl, protocol, _, _, addrs @ ..] = *fixed;
    let words = ver_ihl & 0x0f;
    let header_len = usize::from(words) * 4;
    if header_len < V4_HEADER_LEN {
        return Err(ParseError::HeaderLen(words));
    }
    let packet_len = usize::from(u16::from_be_bytes([len_a, len_b]));
    if packet_len < header_len || packet_len > have {
        return Err(ParseError::PacketLen { field: packet_len, header: header_len, have });
    }
    if checksum == HeaderChecksum::Verify {
        verify(packet, header_len)?;
    }
    if header_len > V4_HEADER_LEN {
        walk_options(packet, header_len)?;
    }
    let [s0, s1, s2, s3, d0, d1, d2, d3] = addrs;
    let addresses = Addresses::V4 { src: Ipv4Addr::new(s0, s1, s2, s3), dst: Ipv4Addr::new(d0, d1, d2, d3) };
    let header = Header { addresses, protocol, hop_limit: ttl, traffic_class: tos, flow_label: 0 };
    let (id, word) = (u16::from_be_bytes([id_a, id_b]), u16::from_be_bytes([frag_a, frag_b]));
    Ok((header, header_len..packet_len, id, word))
}

/// Walks over the options of a header of `header_len` bytes.
#[cold]
fn walk_options(packet: &[u8], header_len: usize) -> Result<(), ParseError> {
    let Some(header) = packet.get(..header_len) else {
        return Err(ParseError::Truncated { need: header_len, have: packet.len() });
    };
    let mut at = V4_HEADER_LEN;
    while let Some(&kind) = header.get(at) {
        match kind {
            OPTION_END => return Ok(()),
            OPTION_NOP => at += 1,
            OPTION_LOOSE_ROUTE | OPTION_STRICT_ROUTE => return Err(ParseError::SourceRoute { at }),
            _ => {
                let len = header.get(at + 1).copied().map_or(0, usize::from);
                if len < 2 || at + len > header_len {
                    return Err(ParseError::OptionLen { at });
                }
                at += len;
            }
        }
    }
    Ok(())
}

/// See [`super::parse_refused`].
pub(super) fn parse_refused(packet: &[u8], have: usize) -> Option<(Header, Range<usize>)> {
    let &[ver_ihl, tos, len_a, len_b, _, _, _, _, ttl, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] =
        packet.first_chunk::<V4_HEADER_LEN>()?;
    let end = usize::from(u16::from_be_bytes([len_a, len_b])).min(have);
    let start = (usize::from(ver_ihl & 0x0f) * 4).min(end);
    let addresses = Addresses::V4 { src: Ipv4Addr::new(s0, s1, s2, s3), dst: Ipv4Addr::new(d0, d1, d2, d3) };
    Some((Header { addresses, protocol, hop_limit: ttl, traffic_class: tos, flow_label: 0 }, start..end))
}

/// Checks the header checksum over `header_len` bytes.
fn verify(packet: &[u8], header_len: usize) -> Result<(), ParseError> {
    let Some(header) = packet.get(..header_len) else {
        return Err(ParseError::Truncated { need: header_len, have: packet.len() });
    };
    let sum = Sum::of(header);
    if sum.is_valid() { Ok(()) } else { Err(ParseError::Checksum(sum.folded())) }
}

/// See [`super::emit`].
pub(super) fn emit(
    header: &Header,
    (src, dst): (Ipv4Addr, Ipv4Addr),
    payload_len: usize,
    length: Length,
    out: &mut [u8],
) -> Result<usize, EmitError> {
    let have = out.len();
    let Some(out) = out.first_chunk_mut::<V4_HEADER_LEN>() else {
        return Err(EmitError::BufferTooShort { need: V4_HEADER_LEN, have });
    };
    let packet_len = payload_len.saturating_add(V4_HEADER_LEN);
    let packet_len = match u16::try_from(packet_len) {
        Ok(packet_len) => packet_len,
        Err(_) if length == Length::FromFrame => 0,
        Err(_) => return Err(EmitError::PayloadTooLong(payload_len)),
    };
    let [len_a, len_b] = packet_len.to_be_bytes();
    let [frag_a, frag_b] = DONT_FRAGMENT.to_be_bytes();
    let [s0, s1, s2, s3] = src.octets();
    let [d0, d1, d2, d3] = dst.octets();
    let (tos, ttl, protocol) = (header.traffic_class, header.hop_limit, header.protocol);
    let mut bytes =
        [0x45, tos, len_a, len_b, 0, 0, frag_a, frag_b, ttl, protocol, 0, 0, s0, s1, s2, s3, d0, d1, d2, d3];
    let [sum_a, sum_b] = Sum::of(&bytes).checksum().to_be_bytes();
    bytes[10] = sum_a;
    bytes[11] = sum_b;
    *out = bytes;
    Ok(V4_HEADER_LEN)
}

/// See [`super::fragment::emit`].
pub(super) fn emit_fragment(
    header: &Header,
    (src, dst): (Ipv4Addr, Ipv4Addr),
    fragment: &Fragment,
    payload_len: usize,
    out: &mut [u8],
) -> Result<usize, EmitError> {
    let len = emit(header, (src, dst), payload_len, Length::InHeader, out)?;
    let more = if fragment.more { MORE_FRAGMENTS } else { 0 };
    // The identification of IPv4 has 16 bits: the lower half names the datagram.
    let [.., id_a, id_b] = fragment.id.to_be_bytes();
    let [word_a, word_b] = (fragment.offset >> 3 | more).to_be_bytes();
    if let Some(out) = out.first_chunk_mut::<V4_HEADER_LEN>() {
        out[4..8].copy_from_slice(&[id_a, id_b, word_a, word_b]);
        out[10..12].fill(0);
        let checksum = Sum::of(&out[..]).checksum();
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    Ok(len)
}
