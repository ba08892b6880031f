//! Parses frames with configuration requests of hosts, and builds frames with the answers.
//!
//! Does not depend on the content of the answers. The bytes come from a hostile machine. Tests: `mod.rs`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use sockeye::netif::{LINK_HEADER_LEN, MacAddr};
use sockeye_proto::ip::{self, Addresses, HeaderChecksum};
use sockeye_proto::ndp::wire::PROTOCOL_ICMPV6;
use sockeye_proto::udp;

use super::packet;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Where the type stands.
const ETHERTYPE_AT: usize = 12;
/// Where the protocol stands in a frame with each header, and the header's usual length.
const V4_PROTOCOL_AT: usize = LINK_HEADER_LEN + 9;
const V6_PROTOCOL_AT: usize = LINK_HEADER_LEN + 6;
const V6_LEN: usize = 40;
const PROTOCOL_UDP: u8 = 17;
/// Ports of DHCP (RFC 2131 section 4.1, RFC 8415 section 7.2).
const DHCP_SERVER: u16 = 67;
const DHCP_CLIENT: u16 = 68;
const DHCPV6_SERVER: u16 = 547;
const DHCPV6_CLIENT: u16 = 546;
/// A router solicitation.
const ROUTER_SOLICIT: u8 = 133;

/// What a host asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question<'a> {
    /// By DHCP: the message.
    Dhcp(&'a [u8]),
    /// By DHCPv6: the message, and who asks.
    Dhcpv6(&'a [u8], Ipv6Addr),
    /// For routers.
    Routers(Ipv6Addr),
}

/// Whether the frame may have a question, by a few of its bytes: most have none.
pub fn may_ask(head: &[u8]) -> bool {
    let Some(kind) = head.get(ETHERTYPE_AT..LINK_HEADER_LEN) else { return false };
    let at = |at: usize| head.get(at).copied().unwrap_or(0);
    let port =
        |at: usize| head.get(at..at + 2).is_some_and(|port| is_port(u16::from_be_bytes([port[0], port[1]])));
    if kind == ETHERTYPE_IPV4 {
        let len = usize::from(at(LINK_HEADER_LEN) & 15) * 4;
        return at(V4_PROTOCOL_AT) == PROTOCOL_UDP && port(LINK_HEADER_LEN + len + 2);
    }
    if kind == ETHERTYPE_IPV6 {
        let behind = LINK_HEADER_LEN + V6_LEN;
        return match at(V6_PROTOCOL_AT) {
            PROTOCOL_UDP => port(behind + 2),
            PROTOCOL_ICMPV6 => at(behind) == ROUTER_SOLICIT,
            _ => false,
        };
    }
    false
}

fn is_port(port: u16) -> bool {
    port == DHCP_SERVER || port == DHCPV6_SERVER
}

/// The sender and its question. `None` if there is none, or it is damaged. `is_checked`: the device answers for the checksum.
pub fn question(frame: &[u8], is_checked: bool) -> Option<(MacAddr, Question<'_>)> {
    let (header, packet) = frame.split_first_chunk::<LINK_HEADER_LEN>()?;
    let [_, _, _, _, _, _, a, b, c, d, e, f, _, _] = *header;
    let from = MacAddr([a, b, c, d, e, f]);
    if a & 1 != 0 {
        return None;
    }
    let (ip, range) = ip::parse(packet, HeaderChecksum::Verify).ok()?;
    let body = packet.get(range)?;
    match (ip.protocol, ip.addresses) {
        (PROTOCOL_UDP, addresses) => {
            let body = body.get(..udp::datagram_len(body, body.len()).ok()?)?;
            let sum = addresses.pseudo_header(PROTOCOL_UDP, u32::try_from(body.len()).ok()?).add_bytes(body);
            let zero_is_refused = addresses.src().is_ipv6();
            let checksum = if is_checked {
                udp::ChecksumIn::Trusted
            } else {
                udp::ChecksumIn::Verify { sum, zero_is_refused }
            };
            let (ports, payload) = udp::parse(body, body.len(), checksum).ok()?;
            let payload = body.get(payload)?;
            match (ports.dst_port, addresses) {
                (DHCP_SERVER, Addresses::V4 { .. }) => Some((from, Question::Dhcp(payload))),
                (DHCPV6_SERVER, Addresses::V6 { src, .. }) => Some((from, Question::Dhcpv6(payload, src))),
                _ => None,
            }
        }
        (PROTOCOL_ICMPV6, Addresses::V6 { src, dst }) => {
            use sockeye_proto::ndp::wire::{Message, parse};
            match parse(src, dst, ip.hop_limit, body) {
                Ok(Message::RouterSolicit { .. }) => Some((from, Question::Routers(src))),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A frame with a message of DHCP.
pub fn dhcp(ends: (MacAddr, MacAddr), (src, dst): (Ipv4Addr, Ipv4Addr), message: &[u8]) -> Option<Vec<u8>> {
    datagram(ends, ((src, DHCP_SERVER).into(), (dst, DHCP_CLIENT).into()), message)
}

/// A frame with a message of DHCPv6.
pub fn dhcpv6(ends: (MacAddr, MacAddr), (src, dst): (Ipv6Addr, Ipv6Addr), message: &[u8]) -> Option<Vec<u8>> {
    datagram(ends, ((src, DHCPV6_SERVER).into(), (dst, DHCPV6_CLIENT).into()), message)
}

fn datagram(ends: (MacAddr, MacAddr), between: (SocketAddr, SocketAddr), message: &[u8]) -> Option<Vec<u8>> {
    let kind = if between.0.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
    Some(frame(ends, kind, &packet::datagram(between, message)?))
}

/// A frame with a message of ICMPv6, whose checksum field is 0.
pub fn icmpv6(
    ends: (MacAddr, MacAddr),
    (src, dst): (Ipv6Addr, Ipv6Addr),
    mut message: Vec<u8>,
) -> Option<Vec<u8>> {
    let addresses = Addresses::V6 { src, dst };
    let sum =
        addresses.pseudo_header(PROTOCOL_ICMPV6, u32::try_from(message.len()).ok()?).add_bytes(&message);
    message.get_mut(2..4)?.copy_from_slice(&sum.checksum().to_be_bytes());
    let hop_limit = sockeye_proto::ndp::wire::HOP_LIMIT;
    let packet = packet::packet(addresses, PROTOCOL_ICMPV6, hop_limit, &message)?;
    Some(frame(ends, ETHERTYPE_IPV6, &packet))
}

fn frame((from, to): (MacAddr, MacAddr), kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind, packet].concat()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A client's message of DHCP to all hosts.
    pub fn from_client(from: MacAddr, message: &[u8]) -> Vec<u8> {
        let between =
            ((Ipv4Addr::UNSPECIFIED, DHCP_CLIENT).into(), (Ipv4Addr::BROADCAST, DHCP_SERVER).into());
        datagram((from, MacAddr([0xff; 6])), between, message).unwrap()
    }
}
