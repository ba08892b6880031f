//! Datagrams that leave the stack: their header, and the Internet layer for the rest.
//!
//! A buffer that stands for several datagrams is cut here; each is a packet. What the interface has no room for is
//! dropped and counted, and an error only for a socket that has asked for errors (as on Linux: ENOBUFS with IP_RECVERR).
//!
//! Must not know receivers. Takes no lock; the interface's queue has its own. Tests: `tests/udp_wire.rs`.

use std::num::NonZeroU16;

use rustix::io::Errno;
use sockeye_mbuf::Chain;
use sockeye_proto::ip::PROTOCOL_UDP;
use sockeye_proto::udp::{self, ChecksumOut, Segments};
use sockeye_sync::facade::Ordering;

use super::count;
use super::deliver::{Flow, Load};
use super::pcb::Pcb;
use crate::conn::outbox::Context;
use crate::ip::output::{self, ChecksumAt, Outgoing, SendError};
use crate::netif::NetifId;
use crate::stack::Core;

/// Where in a header the checksum stands.
const CHECKSUM_AT: usize = 6;

/// Sends a run out of an interface.
///
/// # Errors
/// That of the last one that could not be sent: EMSGSIZE, ENETUNREACH, ENOBUFS.
pub(super) fn send(core: &Core, pcb: &Pcb, netif: NetifId, flow: &Flow, run: &[Load]) -> Result<(), Errno> {
    let hash = flow.tuple.hash(&core.key);
    Context::run(core, |cx| {
        let mut done = Ok(());
        for load in run {
            for payload in cut(load) {
                done = one(cx, netif, flow, hash, payload).or_else(|error| refusal(core, pcb, error));
            }
        }
        done
    })
}

/// Whether what goes to a group comes back to members here.
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

fn one(
    cx: &mut Context<'_>,
    netif: NetifId,
    flow: &Flow,
    hash: u64,
    payload: Chain,
) -> Result<(), SendError> {
    let (src, dst) = (flow.tuple.remote, flow.tuple.local);
    let header = udp::Header { src_port: src.port, dst_port: dst.port };
    // The Internet layer fills in the checksum.
    let too_long = SendError::TooLong(u32::from(u16::MAX));
    let header = udp::emit(&header, payload.len(), ChecksumOut::Zero).ok_or(too_long)?;
    let outgoing = Outgoing {
        dst: dst.addr,
        netif: Some(netif),
        discover: flow.discover,
        src: Some(src.addr),
        protocol: PROTOCOL_UDP,
        hop_limit: Some(flow.hop_limit),
        traffic_class: flow.traffic_class,
        header: &header,
        checksum: ChecksumAt::Pseudo(CHECKSUM_AT),
        flow: hash,
    };
    output::send(cx, &outgoing, payload)
}

/// What a sender is told.
fn refusal(core: &Core, pcb: &Pcb, error: SendError) -> Result<(), Errno> {
    match error {
        SendError::NoWay(why) => Err(why.errno()),
        SendError::NoSource => Err(Errno::ADDRNOTAVAIL),
        SendError::TooLong(_) => Err(Errno::MSGSIZE),
        SendError::QueueFull => {
            core.udp.count(count::SNDBUF_ERRORS, 1);
            if pcb.options.recv_err.load(Ordering::Relaxed) { Err(Errno::NOBUFS) } else { Ok(()) }
        }
    }
}
