//! The Internet layer beside TCP's own short way: packets of every other protocol, in and out.
//!
//! ```text
//!  input/parse.rs ──► whole TCP segments: runs, then perimeters (`input/deliver.rs`)
//!        └─────────► Received ──► input() ──► UDP · ICMP · IGMP/MLD/NDP
//!                       ▲
//!       own addresses ──┘◄── output::send() ──► route, source, header, checksum ──► netif
//! ```
//!
//! Everything here runs outside of all perimeters, in the [`Context`] of whoever received or sends: an input thread or
//! a caller. Packets to this stack itself are left in the outbox and come in when it is settled, so nothing here calls
//! itself. Must not know sockets. Tests: `tests/ip.rs`.

pub(crate) mod count;
pub(crate) mod icmp;
pub(crate) mod output;
mod received;

use sockeye_proto::group::igmp;
use sockeye_proto::icmp::Family;
use sockeye_proto::ip;
use sockeye_proto::time::Instant;
use sockeye_sync::Counters;

use crate::conn::outbox::Context;
use crate::link;

pub(crate) use received::{Cast, Head, Received};

/// What the Internet layer keeps for a stack.
pub(crate) struct Ip {
    counters: Counters<{ count::COUNT }>,
    answers: icmp::Answers,
}

impl Ip {
    pub fn new(now: Instant) -> Self {
        Self { counters: Counters::new(), answers: icmp::Answers::new(now) }
    }

    /// Counts one.
    #[inline]
    pub fn count(&self, index: usize) {
        self.counters.inc(index);
    }

    /// Names and counts.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        count::NAMES.iter().enumerate().map(|(index, (name, _))| (*name, self.counters.sum(index)))
    }
}

/// Hands a packet that is for us to the protocol inside.
pub(crate) fn input(cx: &mut Context<'_>, received: Received) {
    cx.core.ip.count(count::IN_RECEIVES);
    let family = icmp::family_of(&received);
    match (received.header.protocol, family) {
        (ip::PROTOCOL_ICMP, Family::V4) | (ip::PROTOCOL_ICMPV6, Family::V6) => {
            cx.core.ip.count(count::IN_DELIVERS);
            icmp::input(cx, family, received);
        }
        (ip::PROTOCOL_UDP, Family::V4 | Family::V6) => {
            cx.core.ip.count(count::IN_DELIVERS);
            crate::udp::input::input(cx, received);
        }
        (igmp::PROTOCOL, Family::V4) => {
            cx.core.ip.count(count::IN_DELIVERS);
            link::group_input(cx, &received);
        }
        (ip::PROTOCOL_NO_NEXT_HEADER, Family::V6) => cx.core.ip.count(count::IN_DELIVERS),
        (_, _) => {
            cx.core.ip.count(count::IN_UNKNOWN_PROTOS);
            // The frame is counted too: who knows frames only looks there.
            cx.core.input.count(crate::input::count::UNKNOWN_PROTOCOL, 1);
            icmp::unknown_protocol(cx, &received);
        }
    }
}
