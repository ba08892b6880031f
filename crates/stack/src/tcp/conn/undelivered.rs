//! Effect of an ICMP error that quotes one of our segments on its connection (RFC 1122 section 4.2.3.9, RFC 5461).
//!
//! Both families' errors become TCP's own few reasons; whether a report is believed, the pcb decides by the sequence
//! number. It does not depend on sockets. Tests: `tests/ip/fragments.rs`.

use std::net::IpAddr;

use sockeye_proto::icmp::{self, Error, Problem};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::events::Events;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::unreachable::Unreachable;
use sockeye_proto::time::Instant;

use crate::base::payload::Data;
use crate::inet::ip;
use crate::tcp::Core;

/// Tells the pcb. Output has to follow.
pub(super) fn apply(
    core: &Core,
    pcb: &mut Pcb<Data>,
    remote: IpAddr,
    seq: SeqNum,
    error: Error,
    now: Instant,
) -> Events {
    match error {
        Error::PacketTooBig(mtu) => {
            if pcb.on_packet_too_big(seq, mtu, now) {
                // The next connection there begins with it.
                ip::on_path_mtu(core, remote, pcb.path_mtu(), 0, now);
            }
            Events::NONE
        }
        Error::Unreachable(what) => pcb.on_unreachable(seq, unreachable(what), now),
        Error::HopLimitExceeded | Error::ReassemblyTimeExceeded => {
            pcb.on_unreachable(seq, Unreachable::Host, now)
        }
        Error::ParameterProblem(Problem::NextHeader, _) => {
            pcb.on_unreachable(seq, Unreachable::Protocol, now)
        }
        Error::ParameterProblem(Problem::Field | Problem::Option | Problem::IncompleteChain, _) => {
            pcb.on_unreachable(seq, Unreachable::Malformed, now)
        }
    }
}

fn unreachable(what: icmp::Unreachable) -> Unreachable {
    match what {
        icmp::Unreachable::Network | icmp::Unreachable::BeyondScope => Unreachable::Network,
        icmp::Unreachable::Host | icmp::Unreachable::SourceRoute => Unreachable::Host,
        icmp::Unreachable::Protocol => Unreachable::Protocol,
        icmp::Unreachable::Port => Unreachable::Port,
        icmp::Unreachable::Prohibited => Unreachable::Prohibited,
    }
}
