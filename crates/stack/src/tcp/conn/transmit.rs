//! From segments to frames: headers are written, and frames handed to their interface.
//!
//! A connection's frames are gathered in the outbox while its protocol code runs ([`push`]) and offered to a lane of their
//! interface at the end of each run of items, or when another connection sends in the same call, still under the lock
//! ([`flush`]). Segments that belong to no connection go one by one ([`send`]). How they get from the lane to the
//! interface is described in `inet/netif/departures.rs`.
//!
//! Tests: `tests/wire/transfers.rs`, `tests/wire/faults.rs`.

use std::net::IpAddr;

use sockeye_mbuf::Chain;
use sockeye_proto::ip;
use sockeye_proto::ip::fragment::{self, Fragment};
use sockeye_proto::tcp::meter::Tally;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire::{self, ChecksumOut};

use super::Conn;
use super::outbox::{Context, Unowned};
use crate::base::addr::FourTuple;
use crate::base::payload::Data;
use crate::inet::input::count;
use crate::inet::ip::count::OUT_NO_ROUTES;
use crate::inet::ip::flow_label;
use crate::inet::ip::output::identification;
use crate::inet::ip::path_mtu::FLOOR_V4;
use crate::inet::netif::device::Device;
use crate::inet::netif::output::hand_over;
use crate::inet::netif::table::{PACKET_MAX, Via};
use crate::inet::netif::{Checksum, HEAD_MAX, TxFrame};
use crate::tcp::socket::tos_ttl::TosTtl;

// The headers that are written here fit into a frame.
const _: () = assert!(ip::V6_HEADER_LEN + wire::HEADER_LEN_EMITTED_MAX == HEAD_MAX);

/// What an IP header has besides what the segment says.
#[derive(Clone, Copy)]
struct Fields {
    tos_ttl: TosTtl,
    /// 0 for IPv4.
    flow_label: u32,
    /// Routers may cut it, unless it is longer than the least MTU (IPv4).
    is_cut: bool,
}

/// How a segment of more than one packet is cut.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    /// Bytes of text of each packet but the last.
    pub mss: u16,
    /// Here, and not by the device.
    pub is_ours: bool,
}

/// Frames on their way to an interface, all of one flow.
#[derive(Default)]
pub(crate) struct Pending {
    frames: Vec<TxFrame>,
    /// Which way they go, and the hash of their flow; meaningless without frames.
    flow: Option<(Via, u64)>,
}

impl Pending {
    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// A segment of `conn`, which is over a wire, as the next of its frames. Segments of another connection in
/// the same call go first.
pub(super) fn push(cx: &mut Context<'_>, conn: &Conn, header: &Header, payload: Data, cut: Cut) {
    let Some(via) = conn.via.now(&cx.core.netifs, conn.tuple.local.addr, conn.tuple.remote.addr) else {
        return cx.core.ip.count(OUT_NO_ROUTES);
    };
    let path = &conn.options.path;
    let fields = Fields {
        tos_ttl: TosTtl::of(&conn.options),
        flow_label: flow_label_of(cx, &conn.tuple, conn.hash, path.rehashes()),
        is_cut: path.is_cut(),
    };
    add(cx, via, conn.hash, &conn.tuple, (header, cut, fields), payload);
}

/// Sends a segment that no connection has made, from `tuple.local` to `tuple.remote`.
pub(crate) fn send(
    cx: &mut Context<'_>,
    via: Via,
    tuple: &FourTuple,
    (header, unowned): (&Header, Unowned),
    payload: Data,
) {
    // The hash that a connection of this name has, so that its frames go the same way.
    let hash = tuple.hash(&cx.core.key);
    let flow_label = flow_label_of(cx, tuple, hash, cx.core.rehashes(unowned.rehashes));
    let fields = Fields { tos_ttl: unowned.tos_ttl, flow_label, is_cut: false };
    add(cx, via, hash, tuple, (header, Cut { mss: u16::MAX, is_ours: false }, fields), payload);
    flush(cx);
}

/// The flow label of a segment, after another path was asked for so often.
#[inline]
fn flow_label_of(cx: &Context<'_>, tuple: &FourTuple, hash: u64, rehashes: u8) -> u32 {
    if tuple.local.addr.is_ipv6() { flow_label::of_flow(cx.core, hash, rehashes) } else { 0 }
}

fn add(
    cx: &mut Context<'_>,
    via: Via,
    hash: u64,
    tuple: &FourTuple,
    (header, cut, fields): (&Header, Cut, Fields),
    payload: Data,
) {
    let Some((id, netif)) = cx.core.netifs.out(via) else { return };
    let tos_ttl = fields.tos_ttl.or(|| cx.core.links.hop_limit(id, tuple.local.addr.is_ipv6()));
    let fields = Fields { tos_ttl, ..fields };
    let flow = Some((via, hash));
    if cx.outbox.pending.flow != flow {
        flush(cx);
        cx.outbox.pending.flow = flow;
    }
    let mss_len = usize::from(cut.mss);
    if payload.0.len() <= mss_len {
        return add_frame(cx, netif, tuple, (header, 0, fields), payload.0);
    }
    let most = if cut.is_ours { mss_len } else { text_max(netif, tuple, header) };
    if payload.0.len() > most {
        return add_parts(cx, netif, tuple, (header, cut.mss, fields), payload.0, most);
    }
    add_frame(cx, netif, tuple, (header, cut.mss, fields), payload.0);
}

/// Text of such a segment that the interface takes to be cut.
fn text_max(netif: &Device, tuple: &FourTuple, header: &Header) -> usize {
    let (ip_len, most) = match tuple.local.addr {
        IpAddr::V4(_) => (ip::V4_HEADER_LEN, u32::MAX),
        IpAddr::V6(_) => (ip::V6_HEADER_LEN, PACKET_MAX),
    };
    (netif.segment_max().min(most) as usize).saturating_sub(ip_len + wire::header_len(header))
}

/// [`add`] of more than the interface takes at once, in parts: the connection has made it for the way that it had when it
/// began, and routes change; or of what the interface may not cut.
#[cold]
fn add_parts(
    cx: &mut Context<'_>,
    netif: &Device,
    tuple: &FourTuple,
    (header, mss, fields): (&Header, u16, Fields),
    mut payload: Chain,
    most: usize,
) {
    let mss_len = usize::from(mss);
    let part_len = (most - most % mss_len).max(mss_len);
    let gso_size = |len: usize| if len > mss_len { mss } else { 0 };
    let mut part = *header;
    part.flags = header.flags.without(Flags::FIN).without(Flags::PSH);
    while payload.len() > part_len {
        let text = payload.split_front(part_len);
        add_frame(cx, netif, tuple, (&part, gso_size(part_len), fields), text);
        // Less than a segment has.
        part.seq += part_len as u32;
    }
    part.flags = header.flags;
    let gso_size = gso_size(payload.len());
    add_frame(cx, netif, tuple, (&part, gso_size, fields), payload);
}

fn add_frame(
    cx: &mut Context<'_>,
    netif: &Device,
    tuple: &FourTuple,
    (header, gso_size, fields): (&Header, u16, Fields),
    payload: Chain,
) {
    let id = if fields.is_cut { identify(cx, tuple, header, (payload.len(), gso_size)) } else { None };
    let Some(mut frame) = encode(netif, tuple, header, (fields, id), payload, gso_size > 0) else {
        return cx.core.input.count(count::UNSENDABLE, 1);
    };
    frame.gso_size = gso_size;
    cx.outbox.pending.frames.push(frame);
}

/// Number of segments pushed, as they will leave the device.
pub(crate) fn pushed(cx: &Context<'_>) -> Tally {
    let mut tally = Tally::default();
    for frame in &cx.outbox.pending.frames {
        let bytes = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
        let packets = if frame.gso_size == 0 { 1 } else { bytes.div_ceil(u32::from(frame.gso_size)).max(1) };
        tally.segments += packets;
        tally.with_text += if bytes > 0 { packets } else { 0 };
        tally.text_bytes = tally.text_bytes.saturating_add(bytes);
    }
    tally
}

/// Offers the pushed frames to the interface. Under the lock of the connection that has pushed it.
pub(crate) fn flush(cx: &mut Context<'_>) {
    let pending = &mut cx.outbox.pending;
    let Some((via, hash)) = pending.flow.filter(|_| !pending.frames.is_empty()) else { return };
    // The list keeps its memory between calls.
    let mut frames = std::mem::take(&mut pending.frames);
    hand_over(cx, via, hash, &mut frames);
    frames.clear();
    cx.outbox.pending.frames = frames;
}

/// The identification of a segment of `len` bytes of text that routers may cut, and so must be able to put together (RFC 6864); `None` of one
/// that is longer than the least MTU: it asks whether the path takes it.
#[cold]
fn identify(
    cx: &Context<'_>,
    tuple: &FourTuple,
    header: &Header,
    (len, gso_size): (usize, u16),
) -> Option<u32> {
    let addresses = ip::Addresses::new(tuple.local.addr, tuple.remote.addr)?;
    let (each_len, count) = match usize::from(gso_size) {
        0 => (len, 1),
        each_len => (each_len, len.div_ceil(each_len)),
    };
    let headers_len = addresses.header_len() + wire::header_len(header);
    let is_short = headers_len + each_len <= FLOOR_V4.into() && headers_len + len <= PACKET_MAX as usize;
    let count = u32::try_from(count).ok()?;
    is_short.then(|| identification(cx, &addresses, count))
}

/// A segment as a frame; `None` if its addresses are of two families or it is longer than a packet can be. One that `is_cut` by the
/// device may be longer over IPv4.
fn encode(
    netif: &Device,
    tuple: &FourTuple,
    header: &Header,
    (fields, id): (Fields, Option<u32>),
    payload: Chain,
    is_cut: bool,
) -> Option<TxFrame> {
    let addresses = ip::Addresses::new(tuple.local.addr, tuple.remote.addr)?;
    let tcp_len = wire::header_len(header) + payload.len();
    let ecn = if header.flags.has(Flags::ECT) { ip::ecn::ECT_0 } else { 0 };
    let ip_header = fields.tos_ttl.header(addresses, ecn, fields.flow_label);
    let mut head = [0; HEAD_MAX];
    let emit = if is_cut { ip::emit_to_be_cut } else { ip::emit };
    let ip_len = match id {
        Some(id) => fragment::emit(&ip_header, &Fragment { id, offset: 0, more: false }, tcp_len, &mut head),
        None => emit(&ip_header, tcp_len, &mut head),
    };
    let ip_len = ip_len.ok()?;
    let pseudo = addresses.pseudo_header(ip::PROTOCOL_TCP, u32::try_from(tcp_len).ok()?);
    let (checksum, sum) = if netif.offloads_checksum() {
        (Checksum::Device, ChecksumOut::Offload(pseudo))
    } else {
        let payload_sum = payload.iter().fold(ip::Sum::ZERO, |sum, piece| sum.add_bytes(piece));
        (Checksum::Software, ChecksumOut::Full(pseudo.join(payload_sum)))
    };
    let ports = wire::Ports { src: tuple.local.port, dst: tuple.remote.port };
    let tcp_header_len = wire::emit(ports, header, sum, head.get_mut(ip_len..)?).ok()?;
    TxFrame::new(head.get(..ip_len + tcp_header_len)?, payload, checksum)
}
