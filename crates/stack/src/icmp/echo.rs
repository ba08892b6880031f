//! Echo requests on their way out, and incoming answers: they go to the socket whose identifier they carry.
//!
//! Runs on the thread that received it; wakes are left in the outbox. An error is believed if the request that it quotes
//! has the identifier of a socket here, and at most ends one call of that. Does not depend on how packets come in.
//! Tests: `tests/ip/sockets.rs`.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use sockeye_mbuf::{Chain, Exhausted};
use sockeye_proto::icmp::{CHECKSUM_AT, Family, HEADER_LEN, Message};
use sockeye_proto::ip;
use sockeye_sync::facade::Ordering;

use crate::base::addr::{Endpoint, FourTuple};
use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::ip::count;
use crate::inet::ip::output::{self, ChecksumAt, MtuDiscover, Outgoing, SendError, flow_of};
use crate::inet::ip::report::Unsent;
use crate::inet::ip::{Cast, Received};
use crate::inet::netif::{NetifId, scope};
use crate::inet::protocols::Undelivered;
use crate::rt::failpoints::{self, Point};
use crate::rt::memory;
use crate::rt::panics;
use crate::udp::deliver::{Flow, Load, Loads, to_one};
use crate::udp::errors;
use crate::udp::naming::Handle;
use crate::udp::route::{self, Way};

/// Most bytes behind the header of a request: the bound of an IPv4 packet.
pub(super) const DATA_MAX: usize = 65_535 - ip::V4_HEADER_LEN - HEADER_LEN;

/// Sends a request with `data` to `to`, or to the peer.
///
/// # Errors
/// EDESTADDRREQ, EMSGSIZE, EACCES (a broadcast address), a pending error, an error of the route, ENOBUFS; ENODEV and
/// EINVAL for an interface that is not there, or not the socket's.
pub(super) fn request(handle: &Handle, seq: u16, data: &[u8], to: Option<SocketAddr>) -> Result<(), Errno> {
    panics::call_or_errno(handle.core(), "send", || send(handle, seq, data, to))
}

fn send(handle: &Handle, seq: u16, data: &[u8], to: Option<SocketAddr>) -> Result<(), Errno> {
    let (core, pcb) = (handle.core(), &handle.pcb);
    let name = pcb.name.load();
    let remote = || name.remote.map(|remote| remote.addr);
    let dst = to.map(|to| to.ip()).or_else(remote).ok_or(Errno::DESTADDRREQ)?;
    if dst.is_ipv6() != pcb.is_v6 {
        return Err(Errno::AFNOSUPPORT);
    }
    if data.len() > DATA_MAX {
        return Err(Errno::MSGSIZE);
    }
    if scope::is_broadcast(&core.netifs, dst) {
        return Err(Errno::ACCESS);
    }
    let scope = to.map_or(Ok(None), |to| scope::named(core, &to))?.map(NetifId::interface_index);
    let interface = scope.unwrap_or_else(|| route::interface_for(pcb, dst));
    let src = route::source(core, pcb, &name, dst, None, interface)?;
    let way = route::way(core, src, dst, interface)?;
    if let Some(error) = pcb.take_error() {
        return Err(error);
    }
    let payload = copy(core, data)?;
    let (options, family) = (&pcb.options, if pcb.is_v6 { Family::V6 } else { Family::V4 });
    let (protocol, checksum, hop_limit, class) = match family {
        Family::V4 => {
            let ttl = options.ttl.load(Ordering::Relaxed);
            (ip::PROTOCOL_ICMP, ChecksumAt::Plain(CHECKSUM_AT), Some(ttl), &options.tos)
        }
        Family::V6 => {
            let hops = options.unicast_hops_v6();
            (ip::PROTOCOL_ICMPV6, ChecksumAt::Pseudo(CHECKSUM_AT), hops, &options.tclass_v6)
        }
    };
    let netif = match way {
        Way::All(interface) => NetifId::of_interface(core, interface),
        Way::Out(via) if scope.is_some_and(|scope| scope != via.netif().interface_index()) => {
            return Err(Errno::INVAL);
        }
        Way::Own | Way::Out(_) => None,
    };
    let header = Message::EchoRequest { id: name.local.port, seq }.emit(family).unwrap_or_default();
    Context::run(core, |cx| {
        let outgoing = Outgoing {
            dst,
            netif,
            src: Some(src),
            protocol,
            gso_size: 0,
            hop_limit,
            traffic_class: class.load(Ordering::Relaxed),
            header: &header,
            checksum,
            discover: MtuDiscover::Want,
            flow: flow_of(cx, src, dst),
        };
        failpoints::hit(Point::EchoRequest, u64::from(name.local.port));
        output::send(cx, &outgoing, payload).map_err(errno)?;
        cx.core.ip.count(count::ICMP_OUT_MSGS);
        cx.core.ip.count(count::ICMP_OUT_ECHOS);
        Ok(())
    })
}

/// The bytes in packet memory.
fn copy(core: &Core, data: &[u8]) -> Result<Chain, Errno> {
    memory::obtain(core, || core.pool.copy_in(data)).map_err(|Exhausted| Errno::NOBUFS)
}

fn errno(error: SendError) -> Errno {
    match error {
        SendError::NoWay(why) => why.errno(),
        SendError::NoSource => Errno::ADDRNOTAVAIL,
        SendError::TooLong(_) => Errno::MSGSIZE,
        SendError::QueueFull => Errno::NOBUFS,
    }
}

/// An answer has come in, with the identifier `id`.
pub(crate) fn on_reply(cx: &mut Context<'_>, id: u16, received: Received) {
    let addresses = received.header.addresses;
    let flow = Flow {
        tuple: tuple(id, addresses.dst(), addresses.src()),
        interface: received.netif.interface_index(),
        traffic_class: received.header.traffic_class,
        hop_limit: received.header.hop_limit,
        discover: MtuDiscover::default(),
        may_join: false,
    };
    let mut loads = Loads::new();
    loads.push(Load { payload: received.payload, segment_size: 0 });
    let table = &crate::udp::shared(cx.core).echo.table;
    let is_single = received.cast == Cast::Unicast;
    let dropped = is_single.then(|| to_one(cx.core, table, cx.cpu, &flow, &mut loads, &mut cx.due.wakes));
    if dropped.flatten() != Some(0) {
        cx.core.ip.count(count::ICMP_IN_ECHO_DROPS);
    }
}

/// An ICMP error quotes a message of ours: `addresses` as we sent it, `quoted` from the ICMP header on. True if a socket
/// here may have sent it.
pub(crate) fn on_error(cx: &mut Context<'_>, undelivered: Undelivered<'_>) -> bool {
    let Undelivered { addresses, mut quoted, error, offender, netif } = undelivered;
    let mut head = [0; HEADER_LEN];
    if quoted.copy_to(0, &mut head) < HEADER_LEN {
        return false;
    }
    let family = if addresses.src().is_ipv4() { Family::V4 } else { Family::V6 };
    let Message::EchoRequest { id, seq } = Message::parse(family, head) else { return false };
    quoted.trim_front(HEADER_LEN);
    let mut tuple = tuple(id, addresses.src(), addresses.dst());
    let table = &crate::udp::shared(cx.core).echo.table;
    let pcb = table.with(cx.cpu, |copy| table.find(copy, &tuple).cloned());
    let Some(pcb) = pcb else { return false };
    // The queue of errors has the request's number where it has a datagram's port.
    tuple.remote.port = seq;
    let from = (Endpoint::new(offender, 0), netif.interface_index());
    errors::report(&pcb, Unsent::of(error), &tuple, from, quoted, &mut cx.due.wakes);
    true
}

/// A conversation as its socket names it.
fn tuple(id: u16, local: IpAddr, remote: IpAddr) -> FourTuple {
    FourTuple { local: Endpoint::new(local, id), remote: Endpoint::new(remote, 0) }
}
