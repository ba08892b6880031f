//! Packets of protocols other than TCP on their way out.
//!
//! [`send`] finds the way and the source address, writes the IP header, fills in the checksum of the protocol inside
//! and hands the frame to its interface; bells are rung at the end of the call. Packets for this stack itself come
//! in again then (`Due::looped`). It must not be called under a lock. Tests: `tests/ip`.

use std::net::IpAddr;

use sockeye_mbuf::Chain;
use sockeye_proto::ip;
use sockeye_proto::ip::fragment::{self, Fragment};
use sockeye_sync::facade::{AtomicU32, Ordering};

use super::{Cast, Head, Received, count, flow_label};
use crate::base::addr::{Endpoint, FourTuple};
use crate::inet::context::Context;
use crate::inet::netif::output::hand_over;
use crate::inet::netif::table::{NetifId, Via};
use crate::inet::netif::tables::NoWay;
use crate::inet::netif::{Checksum, HEAD_MAX, TxFrame};

/// Bytes of the longest header of a protocol inside that [`send`] takes.
pub(crate) const TRANSPORT_HEAD_MAX: usize = 64;

/// Offset of the checksum in the header of the protocol inside, and the bytes that it covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChecksumAt {
    /// Over header and payload (ICMP for IPv4, IGMP).
    Plain(usize),
    /// With the pseudo header in front (UDP, ICMPv6).
    Pseudo(usize),
    /// It has none that we know.
    None,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub dst: IpAddr,
    /// The interface by which it has to leave, for groups and link-local addresses; `None`: by the routes.
    pub netif: Option<NetifId>,
    /// `None`: by source selection.
    pub src: Option<IpAddr>,
    pub protocol: u8,
    /// `None`: the interface's default.
    pub hop_limit: Option<u8>,
    pub traffic_class: u8,
    /// The header of the protocol inside, at most [`TRANSPORT_HEAD_MAX`] bytes.
    pub header: &'a [u8],
    pub checksum: ChecksumAt,
    /// Bytes of payload of each packet but the last, if the payload is several packets' and the interface cuts it
    /// ([`takes_joined`]); else 0.
    pub gso_size: u16,
    /// Treatment if it is longer than the way takes.
    pub discover: MtuDiscover,
    /// Chooses among an interface's queues, and the flow label; packets of one flow stay in order.
    pub flow: u64,
}

/// A socket's treatment of datagrams that are longer than their path takes (IP_MTU_DISCOVER, IPV6_MTU_DISCOVER).
///
/// The MTU of a path is learned from routers' reports about datagrams sent there, and is kept for ten minutes (RFC 1191,
/// RFC 8201), for all sockets of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum MtuDiscover {
    /// Sends datagrams in fragments that are longer than the path takes. Shorter ones are not cut on the way, so that
    /// routers report those that are too long for them (IP_PMTUDISC_WANT).
    #[default]
    Want = 0,
    /// As [`Want`](Self::Want), but over IPv4 routers may fragment datagrams that are too long for them
    /// (IP_PMTUDISC_DONT).
    Dont = 1,
    /// Refuses datagrams longer than the path takes: EMSGSIZE (IP_PMTUDISC_DO).
    Do = 2,
    /// Refuses datagrams longer than the link takes, and ignores the learned path MTU: for applications that look
    /// for the MTU themselves (RFC 8899; IP_PMTUDISC_PROBE).
    Probe = 3,
}

impl MtuDiscover {
    /// That of this number.
    pub(crate) fn of_u8(number: u8) -> Self {
        match number {
            1 => Self::Dont,
            2 => Self::Do,
            3 => Self::Probe,
            _ => Self::Want,
        }
    }

    /// Whether datagrams that are too long go in fragments.
    fn allows_fragments(self) -> bool {
        match self {
            Self::Want | Self::Dont => true,
            Self::Do | Self::Probe => false,
        }
    }
}

/// Why a packet was not sent. Always counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendError {
    /// There is no way there (ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL: see [`NoWay`]).
    NoWay(NoWay),
    /// No address of ours can be its source, or the one given is of the other family (EADDRNOTAVAIL).
    NoSource,
    /// It is longer than the way takes, whose MTU this is, bytes (EMSGSIZE).
    TooLong(u32),
    /// The interface's queue was full (ENOBUFS).
    QueueFull,
}

/// Sends a packet with `payload` behind the header. See the module's head.
///
/// # Errors
/// See [`SendError`].
pub(crate) fn send(cx: &mut Context<'_>, outgoing: &Outgoing<'_>, payload: Chain) -> Result<(), SendError> {
    let core = cx.core;
    core.ip.count(count::OUT_REQUESTS);
    let tables = core.netifs.tables();
    let found = match outgoing.netif {
        Some(netif) => tables.lookup_on(netif, outgoing.dst),
        None => match outgoing.src {
            Some(src) => tables.lookup_from(src, outgoing.dst),
            None => tables.lookup(outgoing.dst),
        },
    };
    let via = found.map_err(|why| {
        core.ip.count(count::OUT_NO_ROUTES);
        SendError::NoWay(why)
    })?;
    let src = outgoing.src.or_else(|| tables.source(via, outgoing.dst));
    drop(tables);
    let Some(addresses) = src.and_then(|src| ip::Addresses::new(src, outgoing.dst)) else {
        core.ip.count(count::OUT_DISCARDS);
        return Err(SendError::NoSource);
    };
    let is_v6 = outgoing.dst.is_ipv6();
    let header = ip::Header {
        addresses,
        protocol: outgoing.protocol,
        hop_limit: outgoing.hop_limit.unwrap_or_else(|| core.links.hop_limit(via.netif(), is_v6)),
        traffic_class: outgoing.traffic_class,
        flow_label: if is_v6 { flow_label::of_flow(core, outgoing.flow, 0) } else { 0 },
    };
    match core.netifs.out(via) {
        Some(_) if stays_here(outgoing.dst, header.hop_limit) => Ok(()),
        Some((id, netif)) => {
            let (mtu, may_be_cut) = path_of(cx, core.links.mtu(id, netif.mtu(), is_v6), outgoing);
            let offload = netif.offloads_checksum();
            let len = addresses.header_len() + outgoing.header.len() + payload.len();
            if outgoing.gso_size == 0 && (len > mtu as usize || may_be_cut) {
                return cut(cx, via, &header, outgoing, payload, mtu);
            }
            let mut frame = frame(&header, outgoing, payload, offload).ok_or(SendError::TooLong(mtu))?;
            frame.gso_size = outgoing.gso_size;
            transmit(cx, via, outgoing.flow, frame)
        }
        None => loop_back(cx, header, outgoing, payload),
    }
}

/// Whether a packet to a group is for this host only: by its hop limit, or by the group's scope (RFC 4291 section 2.7, of which 0 is reserved).
fn stays_here(dst: IpAddr, hop_limit: u8) -> bool {
    let is_of_host = matches!(dst, IpAddr::V6(group) if group.octets()[1] & 0xf <= 1);
    dst.is_multicast() && (hop_limit == 0 || is_of_host)
}

/// Whether an interface takes a payload that is several datagrams', and cuts it: `each_len` bytes behind the IP header in each
/// but the last, `len` in all. Where packets may be cut on their way it does not: it would say otherwise.
pub(crate) fn takes_joined(
    cx: &Context<'_>,
    netif: NetifId,
    outgoing: &Outgoing<'_>,
    (each_len, len): (usize, usize),
) -> bool {
    let Some(device) = cx.core.netifs.netif(netif) else { return false };
    let is_v6 = outgoing.dst.is_ipv6();
    let header_len = if is_v6 { ip::V6_HEADER_LEN } else { ip::V4_HEADER_LEN };
    let (mtu, may_be_cut) = path_of(cx, cx.core.links.mtu(netif, device.mtu(), is_v6), outgoing);
    !may_be_cut
        && device.offloads_checksum()
        && header_len + len <= device.udp_segment_max() as usize
        && header_len + each_len <= mtu as usize
}

/// Bytes of the largest packet that the path takes, as far as is known, of a link with this MTU; and whether routers may cut the packet (IPv4).
#[inline]
fn path_of(cx: &Context<'_>, link: u32, outgoing: &Outgoing<'_>) -> (u32, bool) {
    let known = match outgoing.discover {
        MtuDiscover::Probe => None,
        MtuDiscover::Want | MtuDiscover::Dont | MtuDiscover::Do => {
            cx.core.ip.path_mtus.get(&cx.core.key, outgoing.dst, cx.now)
        }
    };
    let may_be_cut = match outgoing.discover {
        MtuDiscover::Dont => outgoing.dst.is_ipv4(),
        MtuDiscover::Want => known.is_some_and(|path| path.is_cut),
        MtuDiscover::Do | MtuDiscover::Probe => false,
    };
    (known.map_or(link, |path| path.mtu.min(link)), may_be_cut)
}

/// Sends a packet that is longer than the way takes in fragments (RFC 791, RFC 8200 section 4.5), if that is allowed.
fn cut(
    cx: &mut Context<'_>,
    via: Via,
    header: &ip::Header,
    outgoing: &Outgoing<'_>,
    payload: Chain,
    mtu: u32,
) -> Result<(), SendError> {
    let id = identification(cx, &header.addresses, 1);
    let frames = outgoing
        .discover
        .allows_fragments()
        .then(|| fragments(header, outgoing, &payload, mtu, id))
        .flatten();
    let Some(mut frames) = frames else {
        cx.core.ip.count(count::FRAG_FAILS);
        return Err(SendError::TooLong(mtu));
    };
    let count = frames.len() as u64;
    if hand_over(cx, via, outgoing.flow, &mut frames) > 0 {
        cx.core.ip.count(count::OUT_DISCARDS);
        return Err(SendError::QueueFull);
    }
    // One that holds all is a packet that may be cut on the way.
    if count > 1 {
        cx.core.ip.count(count::FRAG_OKS);
        cx.core.ip.count_many(count::FRAG_CREATES, count);
    }
    Ok(())
}

/// The fragments of a packet; `None` if it is longer than a packet can be.
fn fragments(
    header: &ip::Header,
    outgoing: &Outgoing<'_>,
    payload: &Chain,
    mtu: u32,
    id: u32,
) -> Option<Vec<TxFrame>> {
    let mut transport = [0; TRANSPORT_HEAD_MAX];
    let transport = write_transport(header, outgoing, payload, false, &mut transport)?;
    let len = transport.len() + payload.len();
    // The length of the whole datagram has to fit the field, too, which counts the header in IPv4 only.
    let counted = if header.addresses.src().is_ipv4() { header.addresses.header_len() } else { 0 };
    u16::try_from(counted + len).ok()?;
    let room = (mtu as usize).checked_sub(fragment::header_len(&header.addresses))? & !7;
    let mut frames = Vec::with_capacity(len.div_ceil(room.max(8)));
    let mut start = 0;
    while start < len {
        let take = room.min(len - start);
        let place = Fragment { id, offset: u16::try_from(start).ok()?, more: start + take < len };
        let mut head = [0; HEAD_MAX];
        let mut head_len = fragment::emit(header, &place, take, &mut head).ok()?;
        // The header of the protocol inside is the first's.
        let of_head = if start == 0 { transport } else { &[] };
        head.get_mut(head_len..head_len + of_head.len())?.copy_from_slice(of_head);
        head_len += of_head.len();
        let of_payload = take.checked_sub(of_head.len())?;
        let from = (start + of_head.len()).checked_sub(transport.len())?;
        let part = payload.slice(from, of_payload);
        frames.push(TxFrame::new(head.get(..head_len)?, part, Checksum::Software)?);
        start += take;
    }
    Some(frames)
}

/// Identifications of datagrams that are sent in fragments. Each destination's follow one another from a secret
/// beginning (RFC 7739): a counter for a share of the destinations, and the keyed hash of the addresses.
pub(super) struct Ids(Box<[AtomicU32]>);

/// Counters of identifications.
const ID_COUNTERS: usize = 64;

impl Default for Ids {
    fn default() -> Self {
        Self((0..ID_COUNTERS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Ids {
    /// Begins anew with other numbers.
    pub fn rekey(&self, mut random: impl FnMut() -> u64) {
        self.0.iter().for_each(|counter| counter.store(random() as u32, Ordering::Relaxed));
    }

    /// The next number for the addresses with this hash, and those up to `count` behind it.
    fn next(&self, hash: u64, count: u32) -> u32 {
        let counter = &self.0[hash as usize % ID_COUNTERS];
        // Relaxed: a number that orders nothing. The upper half of the hash, of which the lower chose the counter.
        counter.fetch_add(count, Ordering::Relaxed).wrapping_add((hash >> 32) as u32)
    }
}

/// The identification of a packet between these addresses that may be cut, and of as many behind it as `count` says.
pub(crate) fn identification(cx: &Context<'_>, addresses: &ip::Addresses, count: u32) -> u32 {
    cx.core.ip.ids.next(flow_of(cx, addresses.src(), addresses.dst()), count)
}

/// Hands one frame to the interface.
fn transmit(cx: &mut Context<'_>, via: Via, flow: u64, frame: TxFrame) -> Result<(), SendError> {
    // The list keeps its memory between calls.
    let mut frames = std::mem::take(&mut cx.due.frames);
    frames.push(frame);
    let dropped_count = hand_over(cx, via, flow, &mut frames);
    frames.clear();
    cx.due.frames = frames;
    if dropped_count == 0 {
        return Ok(());
    }
    cx.core.ip.count(count::OUT_DISCARDS);
    Err(SendError::QueueFull)
}

/// Puts a packet for ourselves where it comes in again. Its checksum is right by construction.
fn loop_back(
    cx: &mut Context<'_>,
    header: ip::Header,
    outgoing: &Outgoing<'_>,
    payload: Chain,
) -> Result<(), SendError> {
    let len = outgoing.header.len() + payload.len();
    let mut head = [0; HEAD_MAX];
    let ip_len = ip::emit(&header, len, &mut head).map_err(|_| SendError::TooLong(u32::from(u16::MAX)))?;
    let mut transport = [0; TRANSPORT_HEAD_MAX];
    let Some(bytes) = write_transport(&header, outgoing, &payload, false, &mut transport) else {
        return Err(SendError::TooLong(u32::from(u16::MAX)));
    };
    let Ok(mut whole) = cx.core.pool.copy_in(bytes) else {
        cx.ask_for_memory();
        cx.core.ip.count(count::OUT_DISCARDS);
        return Err(SendError::QueueFull);
    };
    whole.append(payload);
    cx.core.ip.count(count::LOOPED);
    cx.due.looped.push_back(Received {
        netif: NetifId::LOOPBACK,
        link_src: None,
        header,
        fragment: None,
        was_in_fragments: false,
        cast: Cast::Unicast,
        checksum: Checksum::Device,
        gso_size: 0,
        head: Head::of(&head[..ip_len]),
        payload: whole,
    });
    Ok(())
}

/// The packet as one frame; `None` if it is longer than a packet can be.
fn frame(header: &ip::Header, outgoing: &Outgoing<'_>, payload: Chain, offload: bool) -> Option<TxFrame> {
    // Devices know where TCP and UDP have their checksums, and no others.
    let offload = offload && matches!(outgoing.protocol, ip::PROTOCOL_TCP | ip::PROTOCOL_UDP);
    let mut head = [0; HEAD_MAX];
    let ip_len = ip::emit(header, outgoing.header.len() + payload.len(), &mut head).ok()?;
    let room = head.get_mut(ip_len..)?;
    let len = write_transport(header, outgoing, &payload, offload, room)?.len();
    let device = offload && matches!(outgoing.checksum, ChecksumAt::Pseudo(_));
    let checksum = if device { Checksum::Device } else { Checksum::Software };
    TxFrame::new(head.get(..ip_len + len)?, payload, checksum)
}

/// Writes the header of the protocol inside, with its checksum; with `offload` the device completes a
/// checksum over a pseudo header.
fn write_transport<'b>(
    header: &ip::Header,
    outgoing: &Outgoing<'_>,
    payload: &Chain,
    offload: bool,
    out: &'b mut [u8],
) -> Option<&'b [u8]> {
    let out = out.get_mut(..outgoing.header.len())?;
    out.copy_from_slice(outgoing.header);
    let len = u32::try_from(out.len() + payload.len()).ok()?;
    let pseudo = header.addresses.pseudo_header(outgoing.protocol, len);
    let over = |sum: ip::Sum, head: &[u8]| {
        let sum = sum.add_bytes(head);
        payload.iter().fold(sum, |sum, piece| sum.add_bytes(piece)).checksum()
    };
    let (at, field) = match outgoing.checksum {
        ChecksumAt::Plain(at) => (at, over(ip::Sum::ZERO, out)),
        ChecksumAt::Pseudo(at) if offload => (at, pseudo.folded()),
        ChecksumAt::Pseudo(at) => (at, over(pseudo, out)),
        ChecksumAt::None => return Some(out),
    };
    // A UDP datagram whose checksum is zero would be one without (RFC 768).
    let is_none = field == 0 && outgoing.protocol == ip::PROTOCOL_UDP && !offload;
    let field = if is_none { u16::MAX } else { field };
    out.get_mut(at..at + 2)?.copy_from_slice(&field.to_be_bytes());
    Some(out)
}

/// A flow's hash by its addresses alone, for protocols without ports.
pub(crate) fn flow_of(cx: &Context<'_>, local: IpAddr, remote: IpAddr) -> u64 {
    let end = |addr| Endpoint::new(addr, 0);
    FourTuple { local: end(local), remote: end(remote) }.hash(&cx.core.key)
}
