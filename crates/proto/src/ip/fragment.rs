//! The fields of a fragment: in the header of IPv4 (RFC 791), in a header of its own in IPv6 (RFC 8200 section 4.5).
//!
//! Does not reassemble (`reass.rs` does). Invariants: no input panics; ranges lie inside the packet. Tests:
//! `ip/tests.rs`.

use core::ops::Range;

use super::{
    Addresses, EmitError, Header, HeaderChecksum, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, ParseError,
    v4, v6,
};

/// Bytes of IPv6's fragment header.
pub const V6_FRAGMENT_LEN: usize = 8;

/// A fragment's place in its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Identification of a datagram: equal in all its fragments.
    pub id: u32,
    /// Bytes before it, a multiple of eight.
    pub offset: u16,
    /// It is not the last.
    pub more: bool,
}

impl Fragment {
    /// Whether it is a whole datagram that only looks like a fragment (RFC 6946).
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// From the word of flags and offset: of both families the offset in units of eight bytes, in IPv6 already
    /// multiplied.
    pub(super) fn of_v4(id: u16, word: u16) -> Self {
        Self { id: u32::from(id), offset: (word & 0x1fff) << 3, more: word & 0x2000 != 0 }
    }
}

/// Reads a packet that [`parse_head`](super::parse_head) refuses as a fragment. The header's protocol is the one in
/// the fragment header: in IPv6, headers for the destination may come first ([`upper_layer`]). The range is that of
/// the fragment's payload, and the number how many bytes of headers come before IPv6's fragment header, or all in
/// IPv4.
///
/// # Errors
/// As `parse_head`; [`ParseError::Fragment`] if it is none.
pub fn parse_head(
    head: &[u8],
    packet_len: usize,
    checksum: HeaderChecksum,
) -> Result<(Header, Fragment, Range<usize>, usize), ParseError> {
    match head.first().map(|first| first >> 4) {
        Some(4) => v4::parse_fragment(head, packet_len, checksum),
        Some(6) => v6::parse_fragment(head, packet_len),
        Some(version) => Err(ParseError::Version(version)),
        None => Err(ParseError::Truncated { need: super::V4_HEADER_LEN, have: 0 }),
    }
}

/// Skips the headers for the destination that an IPv6 datagram begins with, `protocol` being the number of the first.
/// Returns the number of the protocol inside, and how many bytes come before it. `behind` is how many bytes of headers
/// came before the datagram's first byte, the fragment header the last of them: pointers of errors are counted from there.
///
/// # Errors
/// As `parse_head`; `Truncated` if `head`, the first bytes of the datagram, ends before it is known.
pub fn upper_layer(protocol: u8, head: &[u8], behind: usize) -> Result<(u8, usize), ParseError> {
    v6::skip_behind_fragment(protocol, head, behind)
}

/// Whether the first fragment of an IPv6 datagram holds all of its headers, that of the protocol inside included
/// (RFC 7112). One with headers that will be refused is not cut, and refused when it is whole.
pub fn has_whole_chain(protocol: u8, payload: &[u8]) -> bool {
    let (protocol, at) = match upper_layer(protocol, payload, 0) {
        Ok(found) => found,
        Err(ParseError::Truncated { .. } | ParseError::TruncatedExtension { .. }) => return false,
        Err(_) => return true,
    };
    let need = match protocol {
        PROTOCOL_TCP => crate::tcp::wire::HEADER_LEN_MIN,
        PROTOCOL_UDP | PROTOCOL_ICMPV6 => 8,
        _ => 0,
    };
    payload.len() >= at + need
}

/// Writes the headers of a fragment with `payload_len` bytes behind them; returns their length.
///
/// # Errors
/// See [`EmitError`]; nothing has been written then.
pub fn emit(
    header: &Header,
    fragment: &Fragment,
    payload_len: usize,
    out: &mut [u8],
) -> Result<usize, EmitError> {
    match header.addresses {
        Addresses::V4 { src, dst } => v4::emit_fragment(header, (src, dst), fragment, payload_len, out),
        Addresses::V6 { src, dst } => v6::emit_fragment(header, (src, dst), fragment, payload_len, out),
    }
}

/// Bytes of headers that [`emit`] writes.
pub fn header_len(addresses: &Addresses) -> usize {
    match addresses {
        Addresses::V4 { .. } => super::V4_HEADER_LEN,
        Addresses::V6 { .. } => super::V6_HEADER_LEN + V6_FRAGMENT_LEN,
    }
}
