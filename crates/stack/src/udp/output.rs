//! Datagrams that leave the stack: their header, and the Internet layer for the rest.
//!
//! A buffer that stands for several datagrams leaves as one frame where the interface cuts it
//! ([`Netif::udp_segment_max`](crate::netif::Netif::udp_segment_max)), and is cut here where it does not; each is then a packet. Datagrams that the
//! interface has no room for are dropped and counted, and an error only for a socket that has asked for errors (as on Linux: ENOBUFS with
//! IP_RECVERR).
//!
//! Does not depend on receivers. Takes no lock; the interface's queue has its own. Tests:
//! `tests/udp/wire.rs`.

use std::num::NonZeroU16;

use rustix::io::Errno;
use sockeye_mbuf::Chain;
use sockeye_proto::ip::PROTOCOL_UDP;
use sockeye_proto::udp::{self, ChecksumOut, HEADER_LEN, Segments};
use sockeye_sync::facade::Ordering;

use super::count;
use super::deliver::{Flow, Load};
use super::pcb::Pcb;
use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::ip::output::{self, ChecksumAt, Outgoing, SendError};
use crate::inet::netif::NetifId;

/// Where in a header the checksum stands.
const CHECKSUM_AT: usize = 6;

/// What went wrong with a run.
pub(super) struct Refused {
    /// EMSGSIZE, ENETUNREACH; ENOBUFS, which is the caller's to pass on or not ([`tells`]).
    pub error: Errno,
    /// The load that the error is about, if the socket's caller is told of it: this one and those behind it were not sent. `None` if all were
    /// tried.
    pub ends_at: Option<usize>,
}

/// Sends a run out of an interface, up to the first error that the socket's caller is told of.
///
/// # Errors
/// That error; without one, the last that the caller is not told of.
pub(super) fn send(pcb: &Pcb, core: &Core, netif: NetifId, flow: &Flow, run: &[Load]) -> Result<(), Refused> {
    let hash = flow.tuple.hash(&core.key);
    Context::run(core, |cx| {
        let mut untold = Ok(());
        for (at, load) in run.iter().enumerate() {
            if let Err(error) = send_load(cx, netif, flow, hash, load) {
                let error = refusal(core, error);
                if tells(pcb, error) {
                    return Err(Refused { error, ends_at: Some(at) });
                }
                untold = Err(Refused { error, ends_at: None });
            }
        }
        untold
    })
}

/// Sends what one buffer holds, up to the first datagram that is refused.
fn send_load(
    cx: &mut Context<'_>,
    netif: NetifId,
    flow: &Flow,
    hash: u64,
    load: &Load,
) -> Result<(), SendError> {
    let udp = super::shared(cx.core);
    if is_cut_by_device(cx, netif, flow, load) {
        udp.count(count::OUT_JOINED, load.count());
        one(cx, netif, flow, (hash, load.segment_size), load.payload.clone())?;
        udp.count(count::OUT_DATAGRAMS, load.count());
        return Ok(());
    }
    for payload in cut(load) {
        one(cx, netif, flow, (hash, 0), payload)?;
        udp.count(count::OUT_DATAGRAMS, 1);
    }
    Ok(())
}

/// Whether datagrams to a group come back to members here.
pub(super) fn comes_back(pcb: &Pcb, flow: &Flow) -> bool {
    let dst = flow.tuple.local.addr;
    let options = &pcb.options;
    let loops = if dst.is_ipv4() { &options.multicast_loop_v4 } else { &options.multicast_loop_v6 };
    !dst.is_multicast() || loops.load(Ordering::Relaxed)
}

/// The datagrams of a load.
fn cut(load: &Load) -> impl Iterator<Item = Chain> {
    let (payload, len) = (&load.payload, load.payload.len());
    let segments = NonZeroU16::new(load.segment_size).and_then(|size| Segments::new(len, size));
    let whole = segments.is_none().then(|| payload.clone());
    let parts = segments.into_iter().flatten();
    whole.into_iter().chain(parts.map(|range| payload.slice(range.start, range.len())))
}

/// Whether the datagrams of a load leave as one frame.
fn is_cut_by_device(cx: &Context<'_>, netif: NetifId, flow: &Flow, load: &Load) -> bool {
    let (each, all) = (usize::from(load.segment_size), load.payload.len());
    let way = outgoing(netif, flow, &[], (0, load.segment_size));
    each > 0 && output::takes_joined(cx, netif, &way, (HEADER_LEN + each, HEADER_LEN + all))
}

fn one(
    cx: &mut Context<'_>,
    netif: NetifId,
    flow: &Flow,
    (hash, gso_size): (u64, u16),
    payload: Chain,
) -> Result<(), SendError> {
    let (src, dst) = (flow.tuple.remote, flow.tuple.local);
    let header = udp::Header { src_port: src.port, dst_port: dst.port };
    // The Internet layer fills in the checksum.
    let too_long = SendError::TooLong(u32::from(u16::MAX));
    let header = udp::emit(&header, payload.len(), ChecksumOut::Zero).ok_or(too_long)?;
    output::send(cx, &outgoing(netif, flow, &header, (hash, gso_size)), payload)
}

/// How datagrams of a flow leave.
fn outgoing<'h>(netif: NetifId, flow: &Flow, header: &'h [u8], (hash, gso_size): (u64, u16)) -> Outgoing<'h> {
    Outgoing {
        dst: flow.tuple.local.addr,
        netif: Some(netif),
        gso_size,
        discover: flow.discover,
        src: Some(flow.tuple.remote.addr),
        protocol: PROTOCOL_UDP,
        hop_limit: Some(flow.hop_limit),
        traffic_class: flow.traffic_class,
        header,
        checksum: ChecksumAt::Pseudo(CHECKSUM_AT),
        flow: hash,
    }
}

/// Whether a socket's caller is told of the error.
pub(super) fn tells(pcb: &Pcb, error: Errno) -> bool {
    error != Errno::NOBUFS || pcb.options.recv_err.load(Ordering::Relaxed)
}

/// The errno of a refusal, which is counted.
fn refusal(core: &Core, error: SendError) -> Errno {
    match error {
        SendError::NoWay(why) => why.errno(),
        SendError::NoSource => Errno::ADDRNOTAVAIL,
        SendError::TooLong(_) => Errno::MSGSIZE,
        SendError::QueueFull => {
            super::shared(core).count(count::SNDBUF_ERRORS, 1);
            Errno::NOBUFS
        }
    }
}
