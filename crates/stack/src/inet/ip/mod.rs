//! The Internet layer beside TCP's own short way: packets of every other protocol, in and out.
//!
//! ```text
//!  input/parse.rs ──► whole TCP segments: runs, then socket locks (`tcp/input.rs`)
//!        └─────────► Received ──► input() ──► UDP · ICMP · IGMP/MLD/NDP
//!                       ▲
//!       own addresses ──┘◄── output::send() ──► route, source, header, checksum ──► netif
//! ```
//!
//! Everything here runs with no socket lock held, in the [`Context`] of the thread that received or sends: an input thread or
//! a caller. Packets to this stack itself are noted there and come in at the end of the call, so nothing here calls itself.
//! Packets for TCP are noted, too: it has a context of its own. Does not depend on sockets. Tests: `tests/ip`.

pub(crate) mod count;
pub(crate) mod flow_label;
pub(crate) mod fragments;
pub(crate) mod hook;
pub(crate) mod icmp;
pub(crate) mod output;
pub(crate) mod path_mtu;
mod received;
pub(crate) mod report;

use std::net::IpAddr;

use sockeye_proto::group::igmp;
use sockeye_proto::icmp::Family;
use sockeye_proto::ip;
use sockeye_proto::time::Instant;
use sockeye_sync::Counters;

use crate::inet::Core;
use crate::inet::context::{Aside, Context};
use crate::inet::input::count as frames;
use crate::inet::link;

pub(crate) use received::{Cast, Head, Received};

/// The Internet layer's state of a stack.
pub(crate) struct Ip {
    counters: Counters<{ count::COUNT }>,
    asking: hook::Asking,
    error_rate: icmp::ErrorRate,
    fragments: fragments::Table,
    ids: output::Ids,
    pub path_mtus: path_mtu::PathMtus,
}

impl Ip {
    pub fn new() -> Self {
        Self {
            counters: Counters::new(),
            asking: hook::Asking::default(),
            error_rate: icmp::ErrorRate::new(),
            fragments: fragments::Table::default(),
            ids: output::Ids::default(),
            path_mtus: path_mtu::PathMtus::default(),
        }
    }

    /// Has identifications begin elsewhere.
    pub fn rekey(&self, random: impl FnMut() -> u64) {
        self.ids.rekey(random);
    }

    /// Counts one.
    #[inline]
    pub fn count(&self, index: usize) {
        self.counters.inc(index);
    }

    /// Counts `amount`.
    pub fn count_many(&self, index: usize, amount: u64) {
        self.counters.add(index, amount);
    }

    /// Names and counts.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        count::NAMES.iter().enumerate().map(|(index, (name, _))| (*name, self.counters.sum(index)))
    }
}

/// A report that was believed: the path to `dst` takes packets of `mtu` bytes, 0 if it does not say; `sent` is the length of
/// the packet that was too big.
pub(crate) fn on_path_mtu(core: &Core, dst: IpAddr, mtu: u32, sent: u32, now: Instant) {
    if core.ip.path_mtus.learn(&core.key, dst, mtu, sent, now) {
        core.ip.count(count::PATH_MTU_LEARNED);
    }
}

/// Hands a packet that is for us to the protocol inside.
pub(crate) fn input(cx: &mut Context<'_>, received: Received) {
    cx.core.ip.count(count::IN_RECEIVES);
    match received.fragment {
        Some(place) => fragments::input(cx, received, place),
        None => dispatch(cx, received),
    }
}

/// Hands a packet that is in one piece to the protocol inside.
fn dispatch(cx: &mut Context<'_>, received: Received) {
    let family = icmp::family_of(&received);
    match (received.header.protocol, family) {
        (ip::PROTOCOL_ICMP, Family::V4) | (ip::PROTOCOL_ICMPV6, Family::V6) => {
            cx.core.ip.count(count::IN_DELIVERS);
            icmp::input(cx, family, received);
        }
        (ip::PROTOCOL_TCP, Family::V4 | Family::V6) => {
            cx.core.ip.count(count::IN_DELIVERS);
            cx.due.aside.push_back(Aside::Fragmented(received));
        }
        (ip::PROTOCOL_UDP, Family::V4 | Family::V6) => {
            cx.core.ip.count(count::IN_DELIVERS);
            cx.core.protocols().datagram(cx, received);
        }
        (igmp::PROTOCOL, Family::V4) => {
            cx.core.ip.count(count::IN_DELIVERS);
            link::group_input(cx, &received);
        }
        (ip::PROTOCOL_NO_NEXT_HEADER, Family::V6) => cx.core.ip.count(count::IN_DELIVERS),
        (_, _) => {
            cx.core.ip.count(count::IN_UNKNOWN_PROTOS);
            // The frame is counted too, for readers of the counters of frames.
            cx.core.input.count(frames::UNKNOWN_PROTOCOL, 1);
            if let Some(received) = hook::ask(cx, received) {
                icmp::unknown_protocol(cx, &received);
            }
        }
    }
}
