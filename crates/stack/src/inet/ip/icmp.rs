//! ICMP for both families: answers requests, reports errors to the sockets concerned, and makes errors.
//!
//! [`error`] is the one place that sends an error, and [`may_answer`] the rules for whether one may be sent at all (RFC 1122
//! section 3.2.2, RFC 4443 section 2.4 (e)): never for an error, for a packet sent to more than one host, for a source that is
//! not one, nor for a fragment but the first. Errors are limited for each interface and each destination
//! (`sockeye_proto::icmp::limit`). Answers to echo requests are not, as on Linux: each is as long as its request, and with few
//! cores the queue is full. Does not depend on sockets. Its mutex, the limits', is a leaf. Tests: `tests/ip/`.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use siphasher::sip::SipHasher24;
use sockeye_mbuf::Chain;
use sockeye_proto::icmp::limit::{Bucket, Limits, Refused};
use sockeye_proto::icmp::{CHECKSUM_AT, Error, Family, HEADER_LEN, Message, Problem, Unreachable};
use sockeye_proto::ip;
use sockeye_proto::ip::fragment;
use sockeye_proto::ip::martian::{Kind, Source};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::time::Instant;
use sockeye_sync::Mutex;
use sockeye_sync::facade::OnceLock;

use super::output::{ChecksumAt, MtuDiscover, Outgoing, flow_of, send};
use super::report::Unsent;
use super::{Cast, Received, count, hook};
use crate::base::addr::{Endpoint, FourTuple, HashKey};
use crate::inet::context::{Aside, Context};
use crate::inet::link;
use crate::inet::netif::TxFrame;
use crate::inet::netif::table::{NETIFS_MAX, NetifId};
use crate::inet::protocols::Undelivered;

/// Bytes of an IPv4 packet with an error in it (RFC 1812 section 4.3.2.3).
const ERROR_V4_MAX: usize = 576;
/// Bytes of an IPv6 packet with an error in it (RFC 4443 section 2.4 (c)).
const ERROR_V6_MAX: usize = 1280;
/// Errors about packets from one interface are sent at most this often, in a burst of [`ERROR_BURST`] (Linux: `icmp_msgs_per_sec`,
/// `icmp_msgs_burst`).
const ERROR_EVERY: Duration = Duration::from_millis(1);
const ERROR_BURST: u32 = 50;
/// To one destination they come this often (Linux: `icmp_ratelimit`).
const ERROR_EACH_EVERY: Duration = Duration::from_secs(1);
const ERROR_EACH_BURST: u32 = 6;
/// The traffic class of errors: "internetwork control" (RFC 1812 section 4.3.2.5).
const ERROR_CLASS: u8 = 0xc0;

/// How often errors are sent, for each interface; the last are those of loopback. Made when the first error is.
pub(super) struct ErrorRate([OnceLock<Mutex<Limits>>; NETIFS_MAX + 1]);

impl ErrorRate {
    pub fn new() -> Self {
        Self([const { OnceLock::new() }; NETIFS_MAX + 1])
    }

    /// The limits of the interface that the packet in error came by.
    fn of(&self, netif: NetifId, key: &HashKey, now: Instant) -> &Mutex<Limits> {
        let index = netif.index().min(NETIFS_MAX);
        self.0[index].get_or_init(|| {
            let all = Bucket::new(ERROR_EVERY, ERROR_BURST, now);
            let each = Bucket::new(ERROR_EACH_EVERY, ERROR_EACH_BURST, now);
            let half = |n: usize| {
                SipHasher24::new_with_key(&key.bytes()).hash(format!("ICMP errors {index} {n}").as_bytes())
            };
            Mutex::new(Limits::new(all, each, HashKey(half(0), half(1)).bytes()))
        })
    }
}

/// A message has come in.
pub(super) fn input(cx: &mut Context<'_>, family: Family, received: Received) {
    let core = cx.core;
    core.ip.count(count::ICMP_IN_MSGS);
    let (header, len) = received.first::<HEADER_LEN>();
    if len < HEADER_LEN {
        return core.ip.count(count::ICMP_IN_ERRORS);
    }
    let holds = match family {
        Family::V4 => received.sum(ip::Sum::ZERO).is_valid() || received.netif == NetifId::LOOPBACK,
        Family::V6 => received.checksum_holds(),
    };
    if !holds {
        return core.ip.count(count::ICMP_IN_CSUM_ERRORS);
    }
    match Message::parse(family, header) {
        Message::EchoRequest { id, seq } => {
            core.ip.count(count::ICMP_IN_ECHOS);
            if let Some(received) = hook::ask(cx, received) {
                reply(cx, family, id, seq, received);
            }
        }
        Message::EchoReply { id, .. } => {
            core.ip.count(count::ICMP_IN_ECHO_REPS);
            core.protocols().echo_reply(cx, id, received);
        }
        Message::Error(error) => on_error(cx, error, &received),
        Message::Neighbor(_) => link::ndp::input(cx, &received),
        Message::Membership(_) => link::group_input(cx, &received),
        Message::Other(..) => {
            core.ip.count(count::ICMP_IN_IGNORED);
        }
    }
}

/// One of our packets could not be delivered.
fn on_error(cx: &mut Context<'_>, error: Error, quoting: &Received) {
    let index = match error {
        Error::Unreachable(_) => count::ICMP_IN_DEST_UNREACHS,
        Error::PacketTooBig(_) => count::ICMP_IN_PKT_TOO_BIGS,
        Error::HopLimitExceeded | Error::ReassemblyTimeExceeded => count::ICMP_IN_TIME_EXCDS,
        Error::ParameterProblem(..) => count::ICMP_IN_PARM_PROBS,
    };
    cx.core.ip.count(index);
    if is_less_than_any_link(error, quoting) {
        cx.core.ip.count(count::ICMP_IN_IGNORED);
        return;
    }
    let mut quoted = quoting.payload.clone();
    quoted.trim_front(HEADER_LEN);
    if !undelivered(cx, quoted, error, (quoting.netif, quoting.header.addresses.src())) {
        cx.core.ip.count(count::ICMP_IN_ERRORS);
        cx.core.ip.count(count::ICMP_IN_BAD_QUOTES);
    }
}

/// Whether an IPv6 link is said to take less than each must take. Such a report is discarded (RFC 8201 section 4).
fn is_less_than_any_link(error: Error, quoting: &Received) -> bool {
    let is_ipv6 = family_of(quoting) == Family::V6;
    matches!(error, Error::PacketTooBig(mtu) if is_ipv6 && mtu < super::path_mtu::FLOOR_V6.into())
}

/// A frame of ours found no host at its next hop on the link of `netif`: reports it to its sender as an ICMP error would.
/// Not to be called with a lock held.
pub(crate) fn no_neighbor(cx: &mut Context<'_>, netif: NetifId, frame: &TxFrame) {
    let head = frame.head().get(frame.link_len()..).unwrap_or_default();
    let Some((header, _)) = quoted_head(head) else { return };
    let Ok(mut quoted) = cx.core.pool.copy_in(head) else { return cx.ask_for_memory() };
    quoted.append(frame.payload.clone());
    undelivered(cx, quoted, Error::Unreachable(Unreachable::Host), (netif, header.addresses.src()));
}

/// `offender` says, by the interface `netif`, that this beginning of a packet of ours could not be delivered. False if it
/// cannot be understood. No host there can know of a conversation that goes out elsewhere: it is not believed, be it about TCP,
/// UDP or an echo request.
fn undelivered(
    cx: &mut Context<'_>,
    mut quoted: Chain,
    error: Error,
    (netif, offender): (NetifId, IpAddr),
) -> bool {
    let mut head = [0; QUOTED_HEAD_MAX];
    let len = quoted.copy_to(0, &mut head);
    let Some((header, range)) = quoted_head(&head[..len]) else { return false };
    quoted.trim_front(range.start);
    let len = quoted.len();
    let (local, remote) = (header.addresses.src(), header.addresses.dst());
    if !cx.core.netifs.tables().goes_out_by(netif, local, remote) {
        cx.core.ip.count(count::ICMP_IN_ELSEWHERE);
    } else if header.protocol == ip::PROTOCOL_TCP {
        segment_undelivered(cx, &header.addresses, &quoted, error);
    } else {
        let undelivered = Undelivered { addresses: &header.addresses, quoted, error, offender, netif };
        let is_ours = cx.core.protocols().undelivered(cx, header.protocol, undelivered);
        path_reported(cx, is_ours, &header.addresses, range.end, error);
    }
    len >= QUOTED_PAYLOAD_MIN
}

/// The header of a packet of ours, and where the protocol inside begins and the packet ends. Of a datagram that was sent in
/// fragments only the first says to what socket it belongs; `None` for the others.
fn quoted_head(head: &[u8]) -> Option<(ip::Header, Range<usize>)> {
    // The quote is a part of the packet, so its length field says more than there is.
    match ip::parse_head(head, usize::MAX, ip::HeaderChecksum::Trusted) {
        Err(ip::ParseError::Fragment) => {}
        whole => return whole.ok(),
    }
    let parsed = fragment::parse_head(head, usize::MAX, ip::HeaderChecksum::Trusted);
    let (header, _, range, _) = parsed.ok().filter(|(_, place, ..)| place.offset == 0)?;
    if header.addresses.src().is_ipv4() {
        return Some((header, range));
    }
    let (protocol, at) =
        fragment::upper_layer(header.protocol, head.get(range.start..)?, range.start).ok()?;
    Some((ip::Header { protocol, ..header }, range.start + at..range.end))
}

/// Bytes behind the IP header that an error quotes at least (RFC 792): ports and a sequence number, or as much of another
/// protocol.
const QUOTED_PAYLOAD_MIN: usize = 8;

/// A datagram of `len` bytes that a socket of ours may have sent was reported: of its size, the path's MTU is learnt.
fn path_reported(cx: &Context<'_>, is_ours: bool, addresses: &ip::Addresses, len: usize, error: Error) {
    if let Error::PacketTooBig(mtu) = error
        && is_ours
    {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        super::on_path_mtu(cx.core, addresses.dst(), mtu, len, cx.now);
    }
}

/// A segment of ours, of which at least ports and sequence number are quoted, did not arrive.
fn segment_undelivered(cx: &mut Context<'_>, addresses: &ip::Addresses, quoted: &Chain, error: Error) {
    let mut first = [0; 8];
    if quoted.copy_to(0, &mut first) < first.len() {
        return;
    }
    let [s0, s1, d0, d1, seq @ ..] = first;
    let tuple = FourTuple {
        local: Endpoint::new(addresses.src(), u16::from_be_bytes([s0, s1])),
        remote: Endpoint::new(addresses.dst(), u16::from_be_bytes([d0, d1])),
    };
    cx.due.aside.push_back(Aside::Undelivered(tuple, SeqNum::new(u32::from_be_bytes(seq)), error));
}

/// Bytes of IP headers that are read in a quoted packet.
const QUOTED_HEAD_MAX: usize = 128;

/// Answers an echo request with its own data. A request to many is answered in IPv6 only (RFC 4443 section 4.2),
/// from an address of ours.
pub(super) fn reply(cx: &mut Context<'_>, family: Family, id: u16, seq: u16, request: Received) {
    let addresses = request.header.addresses;
    let answers_many = family == Family::V6 && request.cast == Cast::Multicast && has_sender(cx, &request);
    if !is_single(cx, &request) && !answers_many {
        return cx.core.ip.count(count::ICMP_IN_IGNORED);
    }
    let flow = flow_of(cx, addresses.dst(), addresses.src());
    let Some(header) = (Message::EchoReply { id, seq }).emit(family) else { return };
    let traffic_class = request.header.traffic_class;
    let outgoing = Outgoing { traffic_class, ..answer_to(family, &request, &header, flow) };
    let mut data = request.payload;
    data.trim_front(HEADER_LEN);
    if send(cx, &outgoing, data).is_ok() {
        cx.core.ip.count(count::ICMP_OUT_MSGS);
        cx.core.ip.count(count::ICMP_OUT_ECHO_REPS);
    }
}

/// The stack does not take the packet's protocol.
pub(super) fn unknown_protocol(cx: &mut Context<'_>, received: &Received) {
    let at = ip::protocol_at(received.head.bytes());
    let why = match family_of(received) {
        Family::V4 => Error::Unreachable(Unreachable::Protocol),
        Family::V6 => Error::ParameterProblem(Problem::NextHeader, u32::try_from(at).unwrap_or(u32::MAX)),
    };
    error(cx, received, why);
}

/// [`error`] that the application sends in the name of `host`.
pub(crate) fn report(cx: &mut Context<'_>, received: &Received, why: Unsent, host: IpAddr) {
    let family = family_of(received);
    let at = u32::try_from(ip::protocol_at(received.head.bytes())).unwrap_or(u32::MAX);
    if host.is_ipv4() == received.header.addresses.src().is_ipv4() {
        error_from(cx, received, why.to_icmp(family, at), Some(host));
    }
}

/// Tells the sender of a packet that could not be delivered, if the rules and the limits allow it.
pub(crate) fn error(cx: &mut Context<'_>, received: &Received, why: Error) {
    error_from(cx, received, why, None);
}

/// [`error`] in the name of `host`; `None`: in that of the host that the packet was for, if that is one.
fn error_from(cx: &mut Context<'_>, received: &Received, why: Error, host: Option<IpAddr>) {
    let family = family_of(received);
    let Some(header) = Message::Error(why).emit(family).filter(|_| may_answer(cx, family, received, why))
    else {
        return;
    };
    let addresses = received.header.addresses;
    let flow = flow_of(cx, host.unwrap_or_else(|| addresses.dst()), addresses.src());
    if !allowed(cx, received.netif, flow) {
        return;
    }
    let Some(quote) = quote(cx, family, received) else {
        return cx.core.ip.count(count::ICMP_OUT_ERRORS);
    };
    let traffic_class = if family == Family::V4 { ERROR_CLASS } else { 0 };
    let answer = answer_to(family, received, &header, flow);
    let outgoing = Outgoing { traffic_class, src: host.or(answer.src), ..answer };
    let index =
        if send(cx, &outgoing, quote).is_ok() { count::ICMP_OUT_MSGS } else { count::ICMP_OUT_ERRORS };
    cx.core.ip.count(index);
}

/// Common parts of answers to packets.
fn answer_to<'a>(family: Family, received: &Received, header: &'a [u8], flow: u64) -> Outgoing<'a> {
    let (protocol, checksum) = match family {
        Family::V4 => (ip::PROTOCOL_ICMP, ChecksumAt::Plain(CHECKSUM_AT)),
        Family::V6 => (ip::PROTOCOL_ICMPV6, ChecksumAt::Pseudo(CHECKSUM_AT)),
    };
    let addresses = received.header.addresses;
    let dst = addresses.src();
    // A sender with a link-local address is answered on that link.
    let is_link_local = matches!(dst, IpAddr::V6(v6) if v6.is_unicast_link_local());
    Outgoing {
        dst,
        netif: (is_link_local && received.netif != NetifId::LOOPBACK).then_some(received.netif),
        src: (received.cast == Cast::Unicast).then_some(addresses.dst()),
        protocol,
        gso_size: 0,
        hop_limit: None,
        traffic_class: 0,
        header,
        checksum,
        discover: MtuDiscover::Want,
        flow,
    }
}

/// See the module's head.
fn may_answer(cx: &Context<'_>, family: Family, received: &Received, why: Error) -> bool {
    // These two are sent even to the sender of a packet to many (RFC 4443 section 2.4 (e.3)).
    let concerns_many = match why {
        Error::PacketTooBig(_) | Error::ParameterProblem(Problem::Option, _) => family == Family::V6,
        Error::Unreachable(_)
        | Error::HopLimitExceeded
        | Error::ReassemblyTimeExceeded
        | Error::ParameterProblem(Problem::Field | Problem::NextHeader | Problem::IncompleteChain, _) => {
            false
        }
    };
    let protocol = match family {
        Family::V4 => ip::PROTOCOL_ICMP,
        Family::V6 => ip::PROTOCOL_ICMPV6,
    };
    let (first, len) = received.first::<1>();
    let is_error = received.header.protocol == protocol && (len == 0 || Message::is_error(family, first[0]));
    let is_first = received.fragment.is_none_or(|place| place.offset == 0);
    let is_to_some = received.cast == Cast::Unicast || concerns_many;
    is_to_some && has_sender(cx, received) && !is_error && is_first
}

/// Whether a packet went from one host to one.
fn is_single(cx: &Context<'_>, received: &Received) -> bool {
    received.cast == Cast::Unicast && has_sender(cx, received)
}

/// Whether there can be a sender to answer. Packets from impossible senders were dropped when they came in, except for
/// broadcasts of hosts without an address, and for possible neighbor discovery about an address of ours.
fn has_sender(cx: &Context<'_>, received: &Received) -> bool {
    let kind = if received.netif == NetifId::LOOPBACK { Kind::Loopback } else { Kind::Wire };
    let class = cx.core.netifs.tables().class(received.netif, received.header.addresses.src());
    class.source(kind) == Source::Host
}

/// Takes a token, or counts that there is none.
fn allowed(cx: &Context<'_>, netif: NetifId, flow: u64) -> bool {
    let limits = cx.core.ip.error_rate.of(netif, &cx.core.key, cx.now);
    let refused = match limits.lock().take(flow, cx.now) {
        Ok(()) => return true,
        Err(Refused::Global) => count::ICMP_OUT_RATE_LIMIT_GLOBAL,
        Err(Refused::Destination) => count::ICMP_OUT_RATE_LIMIT_HOST,
    };
    cx.core.ip.count(refused);
    false
}

/// As much of a packet as an error may quote; `None` without memory.
fn quote(cx: &mut Context<'_>, family: Family, received: &Received) -> Option<Chain> {
    let whole = match family {
        Family::V4 => ERROR_V4_MAX - ip::V4_HEADER_LEN,
        Family::V6 => ERROR_V6_MAX - ip::V6_HEADER_LEN,
    };
    let head = received.head.bytes();
    let Ok(mut quote) = cx.core.pool.copy_in(head) else {
        cx.ask_for_memory();
        return None;
    };
    if received.head.is_whole() {
        let room = whole.saturating_sub(HEADER_LEN + head.len());
        quote.append(received.payload.slice(0, room.min(received.payload.len())));
    }
    Some(quote)
}

/// The family of a packet's addresses.
pub(super) fn family_of(received: &Received) -> Family {
    match received.header.addresses {
        ip::Addresses::V4 { .. } => Family::V4,
        ip::Addresses::V6 { .. } => Family::V6,
    }
}
