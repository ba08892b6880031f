//! Effect of an ICMP error that quotes one of our segments on its connection (RFC 1122 section 4.2.3.9, RFC 5461).
//!
//! Both families' errors become TCP's own few reasons; whether a report is believed, the pcb decides by the sequence
//! number. It does not depend on sockets. Tests: `tests/ip/fragments.rs`.

use std::net::IpAddr;

use sockeye_proto::icmp::{self, Error};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::events::Events;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::unreachable::Unreachable;
use sockeye_proto::time::Instant;

use crate::base::payload::Data;
use crate::inet::ip::{self, path_mtu::FLOOR_V4};
use crate::rt::counter;
use crate::tcp::Core;

/// Tells the pcb. Output has to follow.
pub(super) fn apply(
    core: &Core,
    pcb: &mut Pcb<Data>,
    remote: IpAddr,
    (seq, error): (SeqNum, Error),
    is_accepted: bool,
    now: Instant,
) -> Events {
    if !pcb.has_in_flight(seq) {
        core.count(counter::ICMP_OUT_OF_WINDOW);
    }
    let why = match error {
        Error::PacketTooBig(mtu) => {
            // Where packets will be cut on their way it does not matter whether segments have become smaller.
            let is_cut = remote.is_ipv4() && mtu < FLOOR_V4.into() && pcb.has_in_flight(seq);
            if pcb.on_packet_too_big(seq, mtu, now) || is_cut {
                // The next connection there begins with it.
                ip::on_path_mtu(core, remote, mtu.min(pcb.path_mtu()), 0, now);
            }
            return Events::NONE;
        }
        Error::Unreachable(what) => unreachable(what, remote.is_ipv4()),
        Error::HopLimitExceeded | Error::ReassemblyTimeExceeded => Unreachable::Host,
        Error::ParameterProblem(..) => Unreachable::Malformed,
    };
    let tells = tells_of_no_route(error, remote.is_ipv4());
    let events = if tells { pcb.on_no_route(seq, now) } else { Events::NONE };
    events.with(pcb.on_unreachable(seq, why, is_accepted, now))
}

/// Whether a report about a SYN-ACK ends its handshake, which nobody waits for yet. As on Linux, those that say that there is no way
/// do on IPv4 (`tcp_v4_err`), and those that say that it is forbidden or makes no sense on IPv6 (`icmpv6_err_convert`).
pub(crate) fn ends_handshake(error: Error, is_ipv4: bool) -> bool {
    match error {
        Error::PacketTooBig(_) => false,
        Error::Unreachable(icmp::Unreachable::Network | icmp::Unreachable::Host) => is_ipv4,
        Error::Unreachable(
            icmp::Unreachable::BeyondScope
            | icmp::Unreachable::NetworkOtherwise
            | icmp::Unreachable::HostOtherwise,
        ) => false,
        Error::Unreachable(
            icmp::Unreachable::Prohibited | icmp::Unreachable::Port | icmp::Unreachable::SourceRoute,
        ) => !is_ipv4,
        Error::Unreachable(icmp::Unreachable::Protocol) => false,
        Error::HopLimitExceeded | Error::ReassemblyTimeExceeded => is_ipv4,
        Error::ParameterProblem(..) => true,
    }
}

/// Whether no route led on: RFC 6069 section 3 takes ICMP's codes 0 and 1 for that, and ICMPv6's code 0.
fn tells_of_no_route(error: Error, is_ipv4: bool) -> bool {
    match error {
        Error::Unreachable(icmp::Unreachable::Network) => true,
        Error::Unreachable(icmp::Unreachable::Host) => is_ipv4,
        _ => false,
    }
}

fn unreachable(what: icmp::Unreachable, is_ipv4: bool) -> Unreachable {
    match what {
        icmp::Unreachable::Network | icmp::Unreachable::NetworkOtherwise => Unreachable::Network,
        icmp::Unreachable::Prohibited if !is_ipv4 => Unreachable::Prohibited,
        icmp::Unreachable::SourceRoute if !is_ipv4 => Unreachable::Malformed,
        icmp::Unreachable::Host
        | icmp::Unreachable::HostOtherwise
        | icmp::Unreachable::Prohibited
        | icmp::Unreachable::BeyondScope
        | icmp::Unreachable::SourceRoute => Unreachable::Host,
        icmp::Unreachable::Protocol => Unreachable::Protocol,
        icmp::Unreachable::Port => Unreachable::Port,
    }
}
