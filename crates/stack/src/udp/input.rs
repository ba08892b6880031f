//! Datagrams, and errors about them, that come in from the Internet layer.
//!
//! Runs on the thread that received it, with no socket lock held; wakes are left in the outbox, so that a batch of packets
//! wakes a receiver once. The bytes may be anything: anything that is no datagram, or for no socket, is counted by its
//! reason.
//!
//! Does not depend on how packets come in. Tests: `tests/udp/wire.rs`, `tests/udp/joined.rs`.

use std::num::NonZeroU16;

use sockeye_mbuf::Chain;
use sockeye_proto::icmp;
use sockeye_proto::ip::Addresses;
use sockeye_proto::udp::{self, ChecksumIn, HEADER_LEN, Segments};

use super::count;
use super::deliver::{Fate, Flow, Load, Loads};
use super::errors::{self, Unsent};
use crate::base::addr::{Endpoint, FourTuple};
use crate::inet::context::Context;
use crate::inet::ip::output::MtuDiscover;
use crate::inet::ip::{Cast, Received};
use crate::inet::netif::Checksum;
use crate::inet::protocols::Undelivered;

/// A packet that says it is a datagram has come in for us.
pub(crate) fn input(cx: &mut Context<'_>, mut received: Received) {
    let shared = super::shared(cx.core);
    let header = match parse(&mut received) {
        Ok(header) => header,
        Err(error) => {
            shared.count(count::IN_ERRORS, 1);
            return match error {
                udp::ParseError::Checksum => shared.count(count::IN_CSUM_ERRORS, 1),
                udp::ParseError::NoChecksum => {
                    shared.count(count::IN_CSUM_ERRORS, 1);
                    shared.count(count::IN_NO_CHECKSUM, 1);
                }
                udp::ParseError::Truncated(_) | udp::ParseError::Length { .. } => {
                    shared.count(count::IN_BAD_LENGTH, 1);
                }
            };
        }
    };
    let addresses = received.header.addresses;
    let flow = Flow {
        tuple: FourTuple {
            local: Endpoint::new(addresses.dst(), header.dst_port),
            remote: Endpoint::new(addresses.src(), header.src_port),
        },
        interface: received.netif.interface_index(),
        traffic_class: received.header.traffic_class,
        hop_limit: received.header.hop_limit,
        discover: MtuDiscover::default(),
        may_join: true,
    };
    let payload = received.payload.slice(HEADER_LEN, received.payload.len() - HEADER_LEN);
    let Some(load) = load(payload, received.gso_size) else {
        shared.count(count::IN_ERRORS, 1);
        return shared.count(count::IN_BAD_LENGTH, 1);
    };
    let mut loads: Loads = Loads::new();
    loads.push(load);
    let wakes = &mut cx.due.wakes;
    match received.cast {
        Cast::Unicast => {
            // The driver hears of a timer at the end of the call.
            if shared.to_host(cx.core, cx.cpu, &flow, &mut loads, wakes) == Fate::Nobody {
                shared.count(count::NO_PORTS, 1);
                drop(loads);
                crate::inet::ip::icmp::error(
                    cx,
                    &received,
                    icmp::Error::Unreachable(icmp::Unreachable::Port),
                );
            }
        }
        Cast::Multicast | Cast::Broadcast => shared.to_all(cx.core, cx.cpu, &flow, &mut loads, wakes),
    }
}

/// One datagram, or as many as a device has joined: `None` if that is more than one buffer may stand for, which bounds
/// what a frame puts into a receiver's queue.
fn load(payload: Chain, gso_size: u16) -> Option<Load> {
    let joined = NonZeroU16::new(gso_size).filter(|size| payload.len() > usize::from(size.get()));
    let Some(size) = joined else { return Some(Load { payload, segment_size: 0 }) };
    Segments::new(payload.len(), size)?;
    Some(Load { payload, segment_size: size.get() })
}

/// Reads the header, checks the sum, and cuts off bytes behind the datagram.
fn parse(received: &mut Received) -> Result<udp::Header, udp::ParseError> {
    let (head, head_len) = received.first::<HEADER_LEN>();
    let head = head.get(..head_len).unwrap_or_default();
    let packet_len = received.payload.len();
    let len = udp::datagram_len(head, packet_len)?;
    received.payload.truncate(len);
    let checksum = match received.checksum {
        Checksum::Device => ChecksumIn::Trusted,
        Checksum::Software => {
            let pseudo_len = u32::try_from(len).unwrap_or(u32::MAX);
            let addresses = received.header.addresses;
            let sum = received.sum(addresses.pseudo_header(received.header.protocol, pseudo_len));
            ChecksumIn::Verify { sum, zero_is_refused: matches!(addresses, Addresses::V6 { .. }) }
        }
    };
    Ok(udp::parse(head, len, checksum)?.0)
}

/// An ICMP error quotes a datagram of ours: `addresses` as we sent it, `quoted` from the UDP header on. The socket that sent it
/// gets the error; returns whether there is such a socket. A forged one can at most report an error to a socket whose name it
/// knows, and make datagrams to its peer go in smaller packets.
pub(crate) fn on_icmp_error(cx: &mut Context<'_>, undelivered: Undelivered<'_>) -> bool {
    let Undelivered { addresses, mut quoted, error, offender, netif } = undelivered;
    let mut head = [0; HEADER_LEN];
    if quoted.copy_to(0, &mut head) < HEADER_LEN {
        return false;
    }
    let [s0, s1, d0, d1, ..] = head;
    quoted.trim_front(HEADER_LEN);
    let tuple = FourTuple {
        local: Endpoint::new(addresses.src(), u16::from_be_bytes([s0, s1])),
        remote: Endpoint::new(addresses.dst(), u16::from_be_bytes([d0, d1])),
    };
    let table = &super::shared(cx.core).table;
    let pcb = table.with(cx.cpu, |copy| table.find(copy, &tuple).cloned());
    let Some(pcb) = pcb else { return false };
    let from = (Endpoint::new(offender, 0), netif.interface_index());
    errors::report(&pcb, Unsent::of(error), &tuple, from, quoted, &mut cx.due.wakes);
    true
}
