//! Calls of the Internet layer to the layers above it. A whole TCP segment needs none of this.
//!
//! Tests: `tests/ip`, `tests/udp/wire.rs`.

use std::net::IpAddr;

use sockeye_mbuf::Chain;
use sockeye_proto::icmp::Error;
use sockeye_proto::ip::Addresses;

use super::Core;
use super::context::{Context, Due};
use super::ip::Received;
use super::netif::NetifId;

/// See the module's head.
pub(crate) trait Protocols: Send + Sync {
    /// A UDP datagram has come in.
    fn datagram(&self, cx: &mut Context<'_>, received: Received);

    /// An answer to an echo request with the identifier `id` has come in.
    fn echo_reply(&self, cx: &mut Context<'_>, id: u16, received: Received);

    /// `offender` says that a packet of ours could not be delivered: `quoted` is the part behind its IP headers, as far as it came back.
    /// Whether a socket of ours may have sent it. Not asked about TCP.
    fn undelivered(&self, cx: &mut Context<'_>, protocol: u8, undelivered: Undelivered<'_>) -> bool;

    /// Whether some socket is a member of a group on an interface.
    fn is_member(&self, core: &Core, netif: NetifId, group: IpAddr) -> bool;

    /// The end of a call that has left packets for this stack itself, or something for TCP: handles them, and does everything else that is
    /// due. Outside all locks.
    fn finish(&self, due: &mut Box<Due>);
}

/// A packet of ours that could not be delivered.
pub(crate) struct Undelivered<'a> {
    /// As we sent it.
    pub addresses: &'a Addresses,
    pub quoted: Chain,
    pub error: Error,
    pub offender: IpAddr,
    /// By which it went out, and the report came in.
    pub netif: NetifId,
}
