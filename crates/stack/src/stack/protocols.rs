//! Calls of the Internet layer to the protocols above it: UDP, ICMP's sockets, TCP.
//!
//! Knows only which module a call is for. Tests: `tests/ip`, `tests/udp/wire.rs`.

use std::net::IpAddr;

use sockeye_proto::ip;
use sockeye_sync::facade::Weak;

use super::Core;
use crate::icmp::echo;
use crate::inet;
use crate::inet::context::{Context, Due};
use crate::inet::ip::Received;
use crate::inet::netif::NetifId;
use crate::inet::protocols::{Protocols, Undelivered};
use crate::tcp;
use crate::udp;

/// See the module's head.
pub(super) struct Asked(pub Weak<Core>);

impl Protocols for Asked {
    fn datagram(&self, cx: &mut Context<'_>, received: Received) {
        udp::input::input(cx, received);
    }

    fn echo_reply(&self, cx: &mut Context<'_>, id: u16, received: Received) {
        echo::on_reply(cx, id, received);
    }

    fn undelivered(&self, cx: &mut Context<'_>, protocol: u8, undelivered: Undelivered<'_>) -> bool {
        match protocol {
            ip::PROTOCOL_UDP => udp::input::on_icmp_error(cx, undelivered),
            ip::PROTOCOL_ICMP | ip::PROTOCOL_ICMPV6 => echo::on_error(cx, undelivered),
            _ => false,
        }
    }

    fn is_member(&self, core: &inet::Core, netif: NetifId, group: IpAddr) -> bool {
        udp::shared(core).is_member(core.cpu(), netif, group)
    }

    fn finish(&self, due: &mut Box<Due>) {
        // Without a stack there is nothing left to tell.
        if let Some(core) = self.0.upgrade() {
            tcp::conn::outbox::Context::finish(&core, due);
        }
    }
}
