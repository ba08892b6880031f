//! From a frame to a packet: headers read and checked, payload copied into a buffer of our own if it is not in
//! one already.
//!
//! The bytes may be anything: nothing here panics, and what is not a packet for this stack is dropped
//! and counted by its reason. A whole TCP segment becomes a [`Packet`], everything else a [`Received`], whose
//! payload is not looked at here. It must not know connections. Tests: `tests/wire_faults.rs`, where arbitrary bytes
//! go in.

use sockeye_mbuf::{CLUSTER_MAX, Chain, Exhausted, Mbuf, Pool};
use sockeye_proto::arp;
use sockeye_proto::ip;
use sockeye_proto::ndp::wire::HOP_LIMIT;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire;

use super::count;
use super::ethernet::LinkHeader;
use crate::base::addr::{Endpoint, FourTuple};
use crate::base::payload::Data;
use crate::ip::{Cast, Head, Received};
use crate::netif::table::{NetifId, is_host};
use crate::netif::tables::Tables;
use crate::netif::{Checksum, Medium, RxFrame};
use crate::stack::Core;

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

/// What a frame carried.
pub(super) enum Parsed {
    Segment(Packet),
    Other(Received),
    /// ARP, unread.
    Arp([u8; arp::LEN]),
}

/// Reads a frame. The error is the counter of the reason for which it is dropped.
pub(super) fn packet(core: &Core, from: Origin<'_>, frame: RxFrame<'_>) -> Result<Parsed, usize> {
    let link = LinkHeader::read(from.medium, frame.head)?;
    let packet = frame.head.get(link.len..).unwrap_or_default();
    if link.is_arp {
        return packet.first_chunk().map(|bytes| Parsed::Arp(*bytes)).ok_or(count::MALFORMED);
    }
    let packet_len = frame.len() - link.len;
    let (ip_header, range) = match ip::parse_head(packet, packet_len, ip::HeaderChecksum::Verify) {
        Ok(parsed) => parsed,
        Err(ip::ParseError::Fragment) => return fragment(core, from, link, &frame),
        Err(error) => return Err(ip_refusal(core, error)),
    };
    let inside = range.start + link.len..range.end + link.len;
    let addresses = ip_header.addresses;
    let (src, dst) = (addresses.src(), addresses.dst());
    // Our own addresses do not come in from outside (RFC 1122 section 3.2.1.3).
    if !from.tables.takes_in(from.netif, dst) || !is_host(src) || from.tables.is_local(src) {
        let cast = to_many(core, from, &ip_header)?;
        return other(core, from, link, ip_header, cast, inside, &frame).map(Parsed::Other);
    }
    if ip_header.protocol != ip::PROTOCOL_TCP || link.cast != Cast::Unicast {
        return other(core, from, link, ip_header, Cast::Unicast, inside, &frame).map(Parsed::Other);
    }
    let segment = Segment::of(&frame, inside).ok_or(count::MALFORMED)?;
    match frame.checksum {
        Checksum::Device => {}
        Checksum::Software => {
            let len = u32::try_from(segment.len).map_err(|_| count::MALFORMED)?;
            let sum = segment.sum(addresses.pseudo_header(ip_header.protocol, len));
            if !sum.is_valid() {
                return Err(count::BAD_CHECKSUM);
            }
        }
    }
    let (ports, mut header, in_head) =
        wire::parse(segment.head, wire::ChecksumIn::Trusted).map_err(|_| {
            core.input.count(count::BAD_TCP_HEADER, 1);
            count::MALFORMED
        })?;
    if ip::ecn::is_marked(ip_header.traffic_class) {
        header.flags = header.flags.with(Flags::CE);
        core.input.count(count::MARKED, 1);
    }
    let payload = Data(segment.payload(core, &frame, in_head)?);
    let to = FourTuple { local: Endpoint::new(dst, ports.dst), remote: Endpoint::new(src, ports.src) };
    Ok(Parsed::Segment(Packet { to, header, payload }))
}

/// A part of a datagram. Its payload is copied: a small one must not keep a large buffer while the others are waited
/// for.
fn fragment(core: &Core, from: Origin<'_>, link: LinkHeader, frame: &RxFrame<'_>) -> Result<Parsed, usize> {
    let packet = frame.head.get(link.len..).unwrap_or_default();
    let (header, place, range, _) =
        ip::fragment::parse_head(packet, frame.len() - link.len, ip::HeaderChecksum::Verify)
            .map_err(|error| ip_refusal(core, error))?;
    let (src, dst) = (header.addresses.src(), header.addresses.dst());
    let is_ours = from.tables.takes_in(from.netif, dst) && is_host(src) && !from.tables.is_local(src);
    let cast = if is_ours { Cast::Unicast } else { to_many(core, from, &header)? };
    let inside = range.start + link.len..range.end + link.len;
    let lent = RxFrame { own: None, ..*frame };
    let received = other(core, from, link, header, cast, inside, &lent)?;
    Ok(Parsed::Other(Received { fragment: Some(place), ..received }))
}

/// A packet that is not for us alone, or does not come from one host. Of such, those are taken that went to all on
/// the link or to a group of ours; TCP is never among them (RFC 9293 MUST-57). Their source may be unspecified, if
/// its host has no address yet.
fn to_many(core: &Core, from: Origin<'_>, header: &ip::Header) -> Result<Cast, usize> {
    let (src, dst) = (header.addresses.src(), header.addresses.dst());
    // Who has an address of ours too, and says so: that must be heard (RFC 4862 section 5.4.4).
    let is_neighbor_s = header.protocol == ip::PROTOCOL_ICMPV6 && header.hop_limit == HOP_LIMIT;
    let from_outside =
        (is_host(src) || src.is_unspecified()) && (is_neighbor_s || !from.tables.is_local(src));
    if !from_outside || header.protocol == ip::PROTOCOL_TCP {
        let is_to_many = || dst.is_multicast() || from.tables.cast(from.netif, dst).is_some();
        if !from_outside {
            core.input.count(count::MARTIAN, 1);
        } else if is_to_many() {
            core.input.count(count::TCP_TO_MANY, 1);
        }
        return Err(count::NOT_FOR_US);
    }
    let is_member = || dst.is_multicast() && core.udp.is_member(core.cpu(), from.netif, dst);
    let of_group = || (core.links.wants(from.netif, dst) || is_member()).then_some(Cast::Multicast);
    let cast = from.tables.cast(from.netif, dst).or_else(of_group);
    if cast.is_none() && !is_host(src) {
        // Without an address a host talks to all, and not to one.
        core.input.count(count::MARTIAN, 1);
    }
    cast.ok_or(count::NOT_FOR_US)
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
    let head = Head::of(frame.head.get(link.len..range.start).ok_or(count::MALFORMED)?);
    let inside = Segment::of(frame, range).ok_or(count::MALFORMED)?;
    let payload = inside.payload(core, frame, 0..inside.head.len())?;
    // A broadcast of the link that names one host is answered by nobody (RFC 1122 section 3.2.2).
    let cast = if cast == Cast::Unicast { link.cast } else { cast };
    let (netif, link_src, checksum) = (from.netif, link.src, frame.checksum);
    Ok(Received { netif, link_src, header, fragment: None, cast, checksum, head, payload })
}

/// Counts why the IP headers are refused, and says under which total.
#[cold]
fn ip_refusal(core: &Core, error: ip::ParseError) -> usize {
    let why = match error {
        ip::ParseError::Checksum(_) => return count::BAD_CHECKSUM,
        // Fragments are read as such; one that comes here is cut off within its header.
        ip::ParseError::Truncated { .. } | ip::ParseError::Fragment => count::TRUNCATED,
        ip::ParseError::Version(_) => count::BAD_VERSION,
        ip::ParseError::HeaderLen(_) => count::BAD_HEADER_LEN,
        ip::ParseError::PacketLen { .. } => count::BAD_LENGTH,
        ip::ParseError::TooManyExtensions => count::TOO_MANY_EXTENSIONS,
        ip::ParseError::MisplacedHopByHop => count::MISPLACED_HOP_BY_HOP,
        ip::ParseError::Option(_) => count::REFUSED_OPTION,
    };
    core.input.count(why, 1);
    count::MALFORMED
}

/// What IP carried: the part of the frame's head, and so much of the rest. Padding is in neither.
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
        let copy = || receive_buffer(&core.pool, first, self.rest, self.rest_len);
        // What is parked goes back before a segment is lost for want of memory.
        copy().or_else(|full| if core.recycler.reclaim(core) { copy() } else { Err(full) })
    }

    /// The payload, which begins with `in_head` of our head, where it lies: in `first` and what follows it.
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
