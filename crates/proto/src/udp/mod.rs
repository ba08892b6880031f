//! The User Datagram Protocol (RFC 768) as bytes, and how one buffer stands for many datagrams.
//!
//! Does not depend on sockets, routes or waiters. No input panics: the bytes are checked once and become a
//! [`Header`] and a range. Tests: `tests.rs`.

mod joined;
#[cfg(test)]
mod tests;

pub use joined::{Joiner, SEGMENTS_MAX, Segments};

use core::fmt;
use core::ops::Range;

use crate::ip::Sum;

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;
/// Most bytes that one datagram carries between IPv4 addresses: an IP packet of 65,535 bytes less both headers.
pub const PAYLOAD_MAX_V4: usize = 65_535 - crate::ip::V4_HEADER_LEN - HEADER_LEN;
/// The same between IPv6 addresses, where the length field leaves out the IP header.
pub const PAYLOAD_MAX_V6: usize = 65_535 - HEADER_LEN;

/// The ports of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Of the sender; 0 if it wants no answer (RFC 768).
    pub src_port: u16,
    /// Of the receiver.
    pub dst_port: u16,
}

/// Treatment of the checksum of a datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub enum ChecksumIn {
    /// Add this up: pseudo header, UDP header and payload, in that order.
    Verify {
        /// The sum over all of them.
        sum: Sum,
        /// Whether a datagram without a checksum is refused: between IPv6 addresses (RFC 8200 section 8.1), unless the
        /// receiver has agreed to it for a tunnel (RFC 6935).
        zero_is_refused: bool,
    },
    /// The device has, or the packet never left this host.
    Trusted,
}

/// Value to write into the checksum field.
#[derive(Clone, Copy, Debug)]
pub enum ChecksumOut {
    /// The checksum, over the pseudo header and the payload given here and the header that is written.
    Full {
        /// Over the pseudo header.
        pseudo: Sum,
        /// Over the payload.
        payload: Sum,
    },
    /// The sum over the pseudo header: the device does the rest.
    Offload(Sum),
    /// Nothing (RFC 768; between IPv6 addresses RFC 6936 says which protocols may).
    Zero,
}

/// Why bytes are no datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// Fewer bytes than a header takes; how many there are.
    Truncated(usize),
    /// A length field shorter than the header or longer than the packet.
    Length {
        /// Value of the field, bytes.
        field: usize,
        /// Bytes there.
        have: usize,
    },
    /// It does not sum up.
    Checksum,
    /// There is no checksum where there must be one.
    NoChecksum,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(have) => write!(f, "{have} bytes where a header takes {HEADER_LEN}"),
            Self::Length { field, have } => write!(f, "length field {field} in {have} bytes"),
            Self::Checksum => f.write_str("the datagram does not sum up"),
            Self::NoChecksum => f.write_str("no checksum between IPv6 addresses"),
        }
    }
}

impl core::error::Error for ParseError {}

/// Reads a header. `head` is the available part of the datagram, with the whole header in it; `packet_len` the bytes
/// that IP carried. The range is that of the payload, counted from the header's first byte; bytes behind it are
/// padding.
///
/// The sum of [`ChecksumIn::Verify`] is over the bytes that the length field names: see [`datagram_len`].
///
/// # Errors
/// See [`ParseError`]; the datagram is to be dropped.
pub fn parse(
    head: &[u8],
    packet_len: usize,
    checksum: ChecksumIn,
) -> Result<(Header, Range<usize>), ParseError> {
    let (header, _) = head.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated(head.len()))?;
    let [s0, s1, d0, d1, _, _, c0, c1] = *header;
    let len = datagram_len(head, packet_len)?;
    match checksum {
        ChecksumIn::Trusted => {}
        ChecksumIn::Verify { sum, zero_is_refused } => {
            match (u16::from_be_bytes([c0, c1]), zero_is_refused) {
                (0, true) => return Err(ParseError::NoChecksum),
                (0, false) => {}
                (1.., _) if sum.is_valid() => {}
                (1.., _) => return Err(ParseError::Checksum),
            }
        }
    }
    let header = Header { src_port: u16::from_be_bytes([s0, s1]), dst_port: u16::from_be_bytes([d0, d1]) };
    Ok((header, HEADER_LEN..len))
}

/// Bytes of the datagram, header included, by its own length field, which is never more than `packet_len`. A field of 0
/// stands for all there is (jumbograms, RFC 2675 section 4).
///
/// # Errors
/// [`ParseError::Truncated`], [`ParseError::Length`].
pub fn datagram_len(head: &[u8], packet_len: usize) -> Result<usize, ParseError> {
    let (header, _) = head.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated(head.len()))?;
    let [_, _, _, _, l0, l1, _, _] = *header;
    let field = usize::from(u16::from_be_bytes([l0, l1]));
    match field {
        0 if packet_len > usize::from(u16::MAX) => Ok(packet_len),
        HEADER_LEN.. if field <= packet_len => Ok(field),
        _ => Err(ParseError::Length { field, have: packet_len }),
    }
}

/// The header of a datagram with `payload_len` bytes of payload; `None` if that is more than one can have.
pub fn emit(header: &Header, payload_len: usize, checksum: ChecksumOut) -> Option<[u8; HEADER_LEN]> {
    let len = u16::try_from(payload_len.checked_add(HEADER_LEN)?).ok()?;
    let mut bytes = [0; HEADER_LEN];
    bytes[..2].copy_from_slice(&header.src_port.to_be_bytes());
    bytes[2..4].copy_from_slice(&header.dst_port.to_be_bytes());
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
    let field = match checksum {
        ChecksumOut::Zero => 0,
        ChecksumOut::Offload(pseudo) => pseudo.folded(),
        // A checksum that comes out as zero is sent as ones, since zero means that there is none (RFC 768).
        ChecksumOut::Full { pseudo, payload } => match pseudo.add_bytes(&bytes).join(payload).checksum() {
            0 => 0xffff,
            sum => sum,
        },
    };
    bytes[6..].copy_from_slice(&field.to_be_bytes());
    Some(bytes)
}
