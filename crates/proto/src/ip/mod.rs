//! The fixed headers of IPv4 (RFC 791) and IPv6 (RFC 8200), as far as they carry an upper-layer
//! segment from one host to another.
//!
//! Bytes become a [`Header`] and the range of the payload once. This module does not depend on routes,
//! interfaces or any upper layer beyond its protocol number and the pseudo header. Invariants: no input
//! panics; a payload range always lies inside the bytes given. Fragments are refused by name: they are read by
//! [`fragment`] and put together by [`reass`]. Tests: `ip/tests.rs`.

pub mod checksum;
pub mod ecn;
pub mod fragment;
pub mod martian;
pub mod reass;
pub mod source;
#[cfg(test)]
mod tests;
mod v4;
mod v6;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

pub use checksum::Sum;

/// Bytes of an IPv4 header without options.
pub const V4_HEADER_LEN: usize = 20;
/// Bytes of the fixed IPv6 header.
pub const V6_HEADER_LEN: usize = 40;
/// Protocol number of ICMP for IPv4 (IANA, as the others).
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of IGMP.
pub const PROTOCOL_IGMP: u8 = 2;
/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Protocol number of ICMP for IPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;
/// The next header that says that nothing follows (RFC 8200 section 4.7).
pub const PROTOCOL_NO_NEXT_HEADER: u8 = 59;
/// Most IPv6 extension headers that are walked over before a packet is refused.
///
/// RFC 8200 recommends an order in which each kind occurs once or twice; a longer chain costs the
/// receiver work without telling it anything (RFC 8504 section 5.3 allows such a limit).
pub const EXTENSION_HEADERS_MAX: usize = 8;

/// Source and destination, both of one family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source address.
        src: Ipv4Addr,
        /// Destination address.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: Ipv6Addr,
        /// Destination address.
        dst: Ipv6Addr,
    },
}

impl Addresses {
    /// Pairs two addresses; `None` if they are of different families.
    pub const fn new(src: IpAddr, dst: IpAddr) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::V6 { src, dst }),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// Source address.
    pub const fn src(&self) -> IpAddr {
        match self {
            Self::V4 { src, .. } => IpAddr::V4(*src),
            Self::V6 { src, .. } => IpAddr::V6(*src),
        }
    }

    /// Destination address.
    pub const fn dst(&self) -> IpAddr {
        match self {
            Self::V4 { dst, .. } => IpAddr::V4(*dst),
            Self::V6 { dst, .. } => IpAddr::V6(*dst),
        }
    }

    /// The addresses of the answer.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { src, dst } => Self::V4 { src: dst, dst: src },
            Self::V6 { src, dst } => Self::V6 { src: dst, dst: src },
        }
    }

    /// Bytes of the header that [`emit`] writes for these addresses.
    pub const fn header_len(&self) -> usize {
        match self {
            Self::V4 { .. } => V4_HEADER_LEN,
            Self::V6 { .. } => V6_HEADER_LEN,
        }
    }

    /// The sum over the pseudo header (RFC 9293 section 3.1; RFC 8200 section 8.1), `len` being the
    /// bytes of upper-layer header and payload together.
    pub fn pseudo_header(&self, protocol: u8, len: u32) -> Sum {
        let [high_a, high_b, low_a, low_b] = len.to_be_bytes();
        let tail = [high_a, high_b, low_a, low_b, 0, 0, 0, protocol];
        // IPv4 writes the length in 16 bits and the protocol in the 16 before it; the extra zeros of
        // the IPv6 form and the other order do not change a sum.
        match self {
            Self::V4 { src, dst } => Sum::of(&src.octets()).add_bytes(&dst.octets()).add_bytes(&tail),
            Self::V6 { src, dst } => Sum::of(&src.octets()).add_bytes(&dst.octets()).add_bytes(&tail),
        }
    }
}

/// The fields of an IP header that the layers above and below use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source and destination.
    pub addresses: Addresses,
    /// Number of the protocol in the payload, after any IPv6 extension headers.
    pub protocol: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN: the type of service octet or the traffic class.
    pub traffic_class: u8,
    /// The flow label of IPv6 (RFC 6437), 20 bits; 0 for a packet that has none, as all of IPv4. Bits above are not written.
    pub flow_label: u32,
}

/// Whether the IPv4 header checksum has to be looked at; IPv6 has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderChecksum {
    /// Check it.
    Verify,
    /// The device has checked it, or the packet never left this host.
    Trusted,
}

/// Why bytes are not an IP packet that this codec carries. Always the sender's or the network's doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// Fewer bytes than the header takes.
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// A version that is neither 4 nor 6.
    Version(u8),
    /// An IPv4 header length below five words; the number of words.
    HeaderLen(u8),
    /// A length field that is shorter than the header or longer than the packet.
    PacketLen {
        /// Value of the field, bytes.
        field: usize,
        /// Bytes of header.
        header: usize,
        /// Bytes there.
        have: usize,
    },
    /// The IPv4 header does not sum up; the sum found, where 0xffff is right.
    Checksum(u16),
    /// A fragment, or a packet with an IPv6 fragment header.
    Fragment,
    /// More than [`EXTENSION_HEADERS_MAX`] IPv6 extension headers.
    TooManyExtensions,
    /// An IPv6 extension header that ends behind the packet.
    TruncatedExtension {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// A hop-by-hop header that does not come first (RFC 8200 section 4.1).
    MisplacedHopByHop {
        /// Where its number stands, bytes from the beginning of the packet, as in the variants below.
        at: usize,
    },
    /// An option whose length is none, or ends behind the header that it is in.
    OptionLen {
        /// Where the option begins.
        at: usize,
    },
    /// An IPv6 option that we do not know and whose type asks to discard the packet (RFC 8200
    /// section 4.2).
    Option {
        /// Its type.
        kind: u8,
        /// Where it stands.
        at: usize,
    },
    /// An IPv6 routing header that has somewhere else to go first (RFC 8200 section 4.4, RFC 5095).
    Routing {
        /// Where its type stands.
        at: usize,
    },
    /// An IPv4 source route, followed to its end or not (RFC 7126 sections 4.3 and 4.4).
    SourceRoute {
        /// Where the option begins.
        at: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { need, have } => write!(f, "{have} bytes where {need} are needed"),
            Self::Version(version) => write!(f, "IP version {version}"),
            Self::HeaderLen(words) => write!(f, "IPv4 header length of {words} words, less than 5"),
            Self::PacketLen { field, header, have } => {
                write!(f, "length field {field} with a header of {header} bytes in {have} bytes")
            }
            Self::Checksum(sum) => write!(f, "IPv4 header sums up to {sum:#06x}, not 0xffff"),
            Self::Fragment => f.write_str("fragment"),
            Self::TooManyExtensions => {
                write!(f, "more than {EXTENSION_HEADERS_MAX} IPv6 extension headers")
            }
            Self::TruncatedExtension { need, have } => {
                write!(f, "{have} bytes where an IPv6 extension header has {need}")
            }
            Self::MisplacedHopByHop { at } => {
                write!(f, "IPv6 hop-by-hop header that is not the first, named at byte {at}")
            }
            Self::OptionLen { at } => write!(f, "IP option at byte {at} of a length that it cannot have"),
            Self::Option { kind, at } => {
                write!(f, "IPv6 option {kind:#04x} at byte {at} asks to discard the packet")
            }
            Self::Routing { at } => write!(f, "IPv6 routing header, its type at byte {at}, leads on"),
            Self::SourceRoute { at } => write!(f, "IPv4 source route at byte {at}"),
        }
    }
}

impl core::error::Error for ParseError {}

/// Why a header cannot be written. Always the caller's doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EmitError {
    /// The buffer is shorter than the header.
    BufferTooShort {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// More payload than the length field can express, bytes.
    PayloadTooLong(usize),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BufferTooShort { need, have } => {
                write!(f, "header of {need} bytes in a buffer of {have}")
            }
            Self::PayloadTooLong(len) => write!(f, "payload of {len} bytes in one IP packet"),
        }
    }
}

impl core::error::Error for EmitError {}

/// Reads the header of `packet` and says where its payload lies.
///
/// Bytes behind the packet's own length, such as Ethernet padding, are left out of the range. A TCP
/// segment is behind it if `protocol` is [`PROTOCOL_TCP`].
///
/// # Errors
/// See [`ParseError`]; the packet is to be dropped.
pub fn parse(packet: &[u8], checksum: HeaderChecksum) -> Result<(Header, Range<usize>), ParseError> {
    parse_head(packet, packet.len(), checksum)
}

/// [`parse`] of a packet of `packet_len` bytes of which only the first are at hand: `head` holds all headers
/// up to the payload, and as much of the payload as is there. The range may end behind `head`, but never
/// behind `packet_len`.
///
/// # Errors
/// See [`ParseError`]; the packet is to be dropped.
pub fn parse_head(
    head: &[u8],
    packet_len: usize,
    checksum: HeaderChecksum,
) -> Result<(Header, Range<usize>), ParseError> {
    let Some(first) = head.first() else {
        return Err(ParseError::Truncated { need: V4_HEADER_LEN, have: 0 });
    };
    match first >> 4 {
        4 => v4::parse(head, packet_len, checksum),
        6 => v6::parse(head, packet_len),
        version => Err(ParseError::Version(version)),
    }
}

/// The header of a packet that was refused for something behind its addresses, to say so to its sender: its protocol, and
/// where its payload begins, are those of the innermost header that can be reached by the lengths alone. The range ends with
/// the packet's own length, but never behind `packet_len`. `None` if there are no addresses.
pub fn parse_refused(head: &[u8], packet_len: usize) -> Option<(Header, Range<usize>)> {
    match head.first()? >> 4 {
        4 => v4::parse_refused(head, packet_len),
        6 => v6::parse_refused(head, packet_len),
        _ => None,
    }
}

/// Offset of the number of the protocol inside in the headers of a packet, bytes: a parameter problem points at it.
/// `head` has passed [`parse_head`]; of other bytes the answer is of no use, but there is one.
pub fn protocol_at(head: &[u8]) -> usize {
    match head.first().map(|first| first >> 4) {
        Some(6) => v6::protocol_at(head),
        _ => v4::PROTOCOL_AT,
    }
}

/// Writes a header in front of a payload of `payload_len` bytes; returns the header's length, which is
/// [`Addresses::header_len`].
///
/// No options and no extension headers are written. An IPv4 packet has "don't fragment"
/// set and so needs no identification (RFC 6864 section 4.1).
///
/// # Errors
/// See [`EmitError`]; nothing has been written then.
pub fn emit(header: &Header, payload_len: usize, out: &mut [u8]) -> Result<usize, EmitError> {
    match header.addresses {
        Addresses::V4 { src, dst } => v4::emit(header, (src, dst), payload_len, Length::InHeader, out),
        Addresses::V6 { src, dst } => v6::emit(header, src, dst, payload_len, out),
    }
}

/// As [`emit`], for a packet that is cut before it reaches a wire: an IPv4 packet of more than 65,535 bytes has a total length of
/// 0, and is as long as its frame. That is how Linux has known such packets since 6.3 (BIG TCP).
///
/// # Errors
/// See [`EmitError`]; for IPv6 as of [`emit`].
pub fn emit_to_be_cut(header: &Header, payload_len: usize, out: &mut [u8]) -> Result<usize, EmitError> {
    match header.addresses {
        Addresses::V4 { src, dst } => v4::emit(header, (src, dst), payload_len, Length::FromFrame, out),
        Addresses::V6 { src, dst } => v6::emit(header, src, dst, payload_len, out),
    }
}

/// Where the length of a packet stands that is too long for its field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    /// Nowhere: it must not be so long.
    InHeader,
    /// It is the frame's.
    FromFrame,
}
