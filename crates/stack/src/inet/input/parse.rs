//! From a frame to a packet: headers read and checked, payload copied into a buffer of our own if it is not in
//! one already.
//!
//! The bytes may be anything: nothing here panics, and anything but a packet for this stack is dropped and counted
//! by its reason. A whole TCP segment becomes a [`Packet`], everything else a [`Received`], whose payload is not
//! looked at here. It does not depend on connections. Tests: `tests/wire/faults.rs`, where arbitrary bytes go in.

use std::net::IpAddr;

use sockeye_mbuf::{CLUSTER_MAX, Chain, Exhausted, Mbuf, Pool};
use sockeye_proto::arp;
use sockeye_proto::icmp::{self, Problem};
use sockeye_proto::ip;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire;

use super::count;
use super::ethernet::LinkHeader;
use crate::base::addr::{Endpoint, FourTuple};
use crate::base::payload::Data;
use crate::inet::Core;
use crate::inet::ip::count::{IN_ADDR_ERRORS, IN_HDR_ERRORS, V6_IN_ADDR_ERRORS, V6_IN_HDR_ERRORS};
use crate::inet::ip::{Cast, Head, Received};
use crate::inet::netif::admit::Verdict;
use crate::inet::netif::table::NetifId;
use crate::inet::netif::tables::Tables;
use crate::inet::netif::{Checksum, Medium, RxFrame};
use crate::rt::memory;

/// A TCP segment that has arrived over an interface.
pub(crate) struct Packet {
    /// The connection's name as we have it.
    pub to: FourTuple,
    pub header: Header,
    pub payload: Data,
}

/// Where a frame came in.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub netif: NetifId,
    pub medium: Medium,
    /// Addresses as they were when the batch began.
    pub tables: &'a Tables,
}

/// Content of a frame.
pub(super) enum Parsed {
    Segment(Packet),
    Other(Received),
    /// ARP, unread.
    Arp([u8; arp::LEN]),
    /// It was refused and counted, and its sender is to hear of it.
    Refused(Received, icmp::Error),
}

/// Reads a frame. The error is the counter of the reason for which it is dropped.
pub(super) fn packet(core: &Core, from: Origin<'_>, frame: RxFrame<'_>) -> Result<Parsed, usize> {
    let link = LinkHeader::read(from.medium, frame.head).map_err(|why| of_link(core, why))?;
    let packet = frame.head.get(link.len..).unwrap_or_default();
    if link.is_arp {
        let whole = packet.first_chunk().map(|bytes| Parsed::Arp(*bytes));
        return whole.ok_or_else(|| malformed(core, count::SHORT_ARP));
    }
    let packet_len = frame.len() - link.len;
    let (ip_header, range) = match ip::parse_head(packet, packet_len, ip::HeaderChecksum::Verify) {
        Ok(parsed) => parsed,
        Err(ip::ParseError::Fragment) => return fragment(core, from, link, &frame),
        Err(error) => return refused(core, from, link, &frame, error),
    };
    let inside = range.start + link.len..range.end + link.len;
    let addresses = ip_header.addresses;
    let cast = admitted(core, from, &ip_header)?;
    if ip_header.protocol != ip::PROTOCOL_TCP || cast != Cast::Unicast || link.cast != Cast::Unicast {
        return other(core, from, link, ip_header, cast, inside, &frame).map(Parsed::Other);
    }
    let segment = Segment::of(&frame, inside).ok_or_else(|| malformed(core, count::TRUNCATED))?;
    match frame.checksum {
        Checksum::Device => {}
        Checksum::Software => {
            // No packet is longer than its 16 bits of length say.
            let len = u32::try_from(segment.len).unwrap_or(u32::MAX);
            let sum = segment.sum(addresses.pseudo_header(ip_header.protocol, len));
            if !sum.is_valid() {
                core.input.count(count::BAD_TCP_CHECKSUM, 1);
                return Err(count::BAD_CHECKSUM);
            }
        }
    }
    let (ports, mut header, in_head) = wire::parse(segment.head, wire::ChecksumIn::Trusted)
        .map_err(|_| malformed(core, count::BAD_TCP_HEADER))?;
    if header.flags.has(Flags::BAD_OPTION) {
        header.flags = header.flags.without(Flags::BAD_OPTION);
        core.input.count(count::BAD_TCP_OPTIONS, 1);
    }
    if ip::ecn::is_capable(ip_header.traffic_class) {
        header.flags = header.flags.with(Flags::of_ip(ip_header.traffic_class));
        if header.flags.has(Flags::CE) {
            core.input.count(count::MARKED, 1);
        }
    }
    header.gso_size = frame.gso_size;
    let payload = Data(segment.payload(core, &frame, in_head)?);
    let to = FourTuple {
        local: Endpoint::new(addresses.dst(), ports.dst),
        remote: Endpoint::new(addresses.src(), ports.src),
    };
    Ok(Parsed::Segment(Packet { to, header, payload }))
}

/// A part of a datagram. Its payload is copied: a small one must not keep a large buffer while the others are waited
/// for.
fn fragment(core: &Core, from: Origin<'_>, link: LinkHeader, frame: &RxFrame<'_>) -> Result<Parsed, usize> {
    let packet = frame.head.get(link.len..).unwrap_or_default();
    let parsed = ip::fragment::parse_head(packet, frame.len() - link.len, ip::HeaderChecksum::Verify);
    let (header, place, range, _) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refused(core, from, link, frame, error),
    };
    let cast = admitted(core, from, &header)?;
    let inside = range.start + link.len..range.end + link.len;
    let lent = RxFrame { own: None, ..*frame };
    let received = other(core, from, link, header, cast, inside, &lent)?;
    Ok(Parsed::Other(Received { fragment: Some(place), ..received }))
}

/// How many receivers a packet for us is sent to. TCP is for one host only (RFC 9293 MUST-57).
///
/// # Errors
/// The counter under which it is dropped.
#[inline]
fn admitted(core: &Core, from: Origin<'_>, header: &ip::Header) -> Result<Cast, usize> {
    match from.tables.verdict(from.netif, header) {
        Verdict::Here => Ok(Cast::Unicast),
        Verdict::Many if header.protocol != ip::PROTOCOL_TCP => {
            let cast = cast_to_many(core, from, header.addresses.dst());
            cast.ok_or_else(|| not_for_us(core, header, Verdict::Elsewhere))
        }
        why => Err(not_for_us(core, header, why)),
    }
}

/// Counts a packet that is dropped for its addresses, by reason and under the kernel's MIB name. Linux has no counter for
/// martian sources in IPv4, and counts them among the bad headers in IPv6.
#[cold]
fn not_for_us(core: &Core, header: &ip::Header, why: Verdict) -> usize {
    let is_v6 = header.addresses.src().is_ipv6();
    let addr_errors = if is_v6 { V6_IN_ADDR_ERRORS } else { IN_ADDR_ERRORS };
    match why {
        Verdict::Here | Verdict::Many => core.input.count(count::TCP_TO_MANY, 1),
        Verdict::Elsewhere => core.ip.count(addr_errors),
        Verdict::MartianDestination => {
            core.input.count(count::MARTIAN_DST, 1);
            core.ip.count(addr_errors);
        }
        Verdict::MartianSource => {
            core.input.count(count::MARTIAN, 1);
            if is_v6 {
                core.ip.count(V6_IN_HDR_ERRORS);
            }
        }
        Verdict::ReversePath => core.input.count(count::RP_FILTER, 1),
    }
    count::NOT_FOR_US
}

/// The kind of `dst`, if it is a broadcast address of the link or a group of ours.
fn cast_to_many(core: &Core, from: Origin<'_>, dst: IpAddr) -> Option<Cast> {
    let is_member = || dst.is_multicast() && core.protocols().is_member(core, from.netif, dst);
    let of_group = || (core.links.wants(from.netif, dst) || is_member()).then_some(Cast::Multicast);
    from.tables.cast(from.netif, dst).or_else(of_group)
}

/// A packet of another protocol.
fn other(
    core: &Core,
    from: Origin<'_>,
    link: LinkHeader,
    header: ip::Header,
    cast: Cast,
    range: std::ops::Range<usize>,
    frame: &RxFrame<'_>,
) -> Result<Received, usize> {
    let headers = frame.head.get(link.len..range.start).unwrap_or_default();
    let head = Head::of(headers);
    let inside = Segment::of(frame, range).ok_or_else(|| malformed(core, count::TRUNCATED))?;
    let payload = inside.payload(core, frame, 0..inside.head.len())?;
    // A broadcast of the link that names one host is not answered (RFC 1122 section 3.2.2).
    let cast = if cast == Cast::Unicast { link.cast } else { cast };
    let (netif, link_src, checksum, gso_size) = (from.netif, link.src, frame.checksum, frame.gso_size);
    Ok(Received {
        netif,
        link_src,
        header,
        fragment: None,
        was_in_fragments: false,
        cast,
        checksum,
        gso_size,
        head,
        payload,
    })
}

/// Counts one of the reasons for which frames are malformed, and says so.
#[cold]
fn malformed(core: &Core, why: usize) -> usize {
    core.input.count(why, 1);
    count::MALFORMED
}

/// The total under which a reason of the link header's counts.
#[cold]
fn of_link(core: &Core, why: usize) -> usize {
    if why == count::SHORT_ETHERNET { malformed(core, why) } else { why }
}

/// A packet whose IP headers are refused: counted, and its sender told where the RFCs want that.
#[cold]
fn refused(
    core: &Core,
    from: Origin<'_>,
    link: LinkHeader,
    frame: &RxFrame<'_>,
    error: ip::ParseError,
) -> Result<Parsed, usize> {
    let (why, total) = count::of_ip(&error);
    core.input.count(why, 1);
    core.ip.count(IN_HDR_ERRORS);
    let answer = problem(&error).and_then(|problem| Some((reported(core, from, link, frame)?, problem)));
    match answer {
        // Of an option whose last bit says so, only senders to one host get an error (RFC 8200 section 4.2).
        Some((received, problem)) if received.cast == Cast::Unicast || is_for_all(&error) => {
            core.input.count(total, 1);
            Ok(Parsed::Refused(received, problem))
        }
        Some(_) | None => Err(total),
    }
}

/// Errors reported to the sender: RFC 8200 sections 4.1, 4.2 and 4.4, RFC 1122 section 3.2.2.5.
pub(crate) fn problem(error: &ip::ParseError) -> Option<icmp::Error> {
    let (problem, at) = match *error {
        ip::ParseError::Option { kind, .. } if kind & OPTION_ACTION == OPTION_DISCARD => return None,
        ip::ParseError::Option { at, .. } => (Problem::Option, at),
        ip::ParseError::MisplacedHopByHop { at } => (Problem::NextHeader, at),
        ip::ParseError::OptionLen { at } | ip::ParseError::Routing { at } => (Problem::Field, at),
        // A sender of source routes is not to hear that there is a host (RFC 7126 section 4.3.5).
        ip::ParseError::SourceRoute { .. }
        | ip::ParseError::Truncated { .. }
        | ip::ParseError::Version(_)
        | ip::ParseError::HeaderLen(_)
        | ip::ParseError::PacketLen { .. }
        | ip::ParseError::Checksum(_)
        | ip::ParseError::Fragment
        | ip::ParseError::TooManyExtensions
        | ip::ParseError::TruncatedExtension { .. } => return None,
    };
    Some(icmp::Error::ParameterProblem(problem, u32::try_from(at).unwrap_or(u32::MAX)))
}

/// Whether it is reported to the sender although the packet went to many.
pub(crate) fn is_for_all(error: &ip::ParseError) -> bool {
    matches!(error, ip::ParseError::Option { kind, .. } if kind & OPTION_ACTION == OPTION_REPORT)
}

/// The two bits of an IPv6 option's type that decide about a packet if the option is not known, and two of their four
/// values (RFC 8200 section 4.2).
const OPTION_ACTION: u8 = 0xc0;
const OPTION_DISCARD: u8 = 0x40;
const OPTION_REPORT: u8 = 0x80;

/// A packet that was refused for its headers behind the addresses, to be quoted; `None` if it is not for us.
fn reported(core: &Core, from: Origin<'_>, link: LinkHeader, frame: &RxFrame<'_>) -> Option<Received> {
    let packet = frame.head.get(link.len..)?;
    let (header, range) = ip::parse_refused(packet, frame.len() - link.len)?;
    let cast = match from.tables.verdict(from.netif, &header) {
        Verdict::Here => Cast::Unicast,
        Verdict::Many => cast_to_many(core, from, header.addresses.dst())?,
        Verdict::Elsewhere | Verdict::MartianSource | Verdict::MartianDestination | Verdict::ReversePath => {
            return None;
        }
    };
    let lent = RxFrame { own: None, ..*frame };
    other(core, from, link, header, cast, range.start + link.len..range.end + link.len, &lent).ok()
}

/// The payload of IP: the part of the frame's head, and so much of the rest. Padding is in neither.
struct Segment<'a> {
    head: &'a [u8],
    /// Where `head` begins in the frame's.
    start: usize,
    rest: &'a Chain,
    rest_len: usize,
    len: usize,
}

impl<'a> Segment<'a> {
    /// `None` if the headers do not lie in the frame's head.
    fn of(frame: &RxFrame<'a>, range: std::ops::Range<usize>) -> Option<Self> {
        let len = range.end.checked_sub(range.start)?;
        let head = frame.head.get(range.start..range.end.min(frame.head.len()))?;
        let rest_len = len - head.len();
        (rest_len <= frame.rest.len()).then_some(Self {
            head,
            start: range.start,
            rest: frame.rest,
            rest_len,
            len,
        })
    }

    /// The payload, which begins with `in_head` of our head: where it lies if it may stay there, else copied.
    fn payload(
        &self,
        core: &Core,
        frame: &RxFrame<'_>,
        in_head: std::ops::Range<usize>,
    ) -> Result<Chain, usize> {
        match frame.own {
            Some(first) => Ok(self.reference(first, in_head)),
            None => self.copy(core, in_head).map_err(|Exhausted| count::NO_MEMORY),
        }
    }

    /// The payload, which begins with `in_head` of our head, in a buffer of our own.
    fn copy(&self, core: &Core, in_head: std::ops::Range<usize>) -> Result<Chain, Exhausted> {
        let first = self.head.get(in_head).unwrap_or_default();
        memory::obtain(core, || receive_buffer(&core.pool, first, self.rest, self.rest_len))
    }

    /// The payload, which begins with `in_head` of our head, where it lies: in `first` and the following
    /// mbufs.
    fn reference(&self, first: &Mbuf, in_head: std::ops::Range<usize>) -> Chain {
        let in_first = self.start + in_head.start..self.start + in_head.end;
        let mut payload =
            if in_first.end <= first.len() { Chain::from(first.slice(in_first)) } else { Chain::new() };
        if self.rest_len > 0 {
            payload.append(self.rest.slice(0, self.rest_len));
        }
        payload
    }

    /// `sum` with all bytes of the segment behind it.
    fn sum(&self, sum: ip::Sum) -> ip::Sum {
        let mut left = self.rest_len;
        self.rest.iter().fold(sum.add_bytes(self.head), |sum, piece| {
            let take = piece.len().min(left);
            left -= take;
            sum.add_bytes(&piece[..take])
        })
    }
}

/// Allocates a receive buffer and copies `first` and `rest_len` bytes of `rest` into it. All of input's packet
/// memory comes from here, on the input thread.
fn receive_buffer(pool: &Pool, first: &[u8], rest: &Chain, rest_len: usize) -> Result<Chain, Exhausted> {
    let mut left = first.len() + rest_len;
    let mut buffer = Chain::new();
    if left == 0 {
        return Ok(buffer);
    }
    let mut mbuf = pool.alloc(left.min(CLUSTER_MAX))?;
    let mut rest_left = rest_len;
    let of_rest = rest.iter().map(|piece| {
        let take = piece.len().min(rest_left);
        rest_left -= take;
        &piece[..take]
    });
    for mut piece in std::iter::once(first).chain(of_rest) {
        while !piece.is_empty() {
            let taken = mbuf.try_extend(piece);
            (piece, left) = (&piece[taken..], left - taken);
            if taken == 0 {
                buffer.push_back(std::mem::replace(&mut mbuf, pool.alloc(left.min(CLUSTER_MAX))?));
            }
        }
    }
    buffer.push_back(mbuf);
    Ok(buffer)
}
