//! Builds IP packets with a datagram, as a host would send them.
//!
//! Does not depend on what is in them. Tests: `mod.rs`, `engine/queues/tests.rs`.

use std::net::SocketAddr;

use sockeye_proto::ip::{self, Addresses, Sum};
use sockeye_proto::udp;

const PROTOCOL_UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// A whole packet with this datagram, not in fragments. `None` if it is too long for one, or the ends are of two families.
pub fn datagram((from, to): (SocketAddr, SocketAddr), message: &[u8]) -> Option<Vec<u8>> {
    let addresses = Addresses::new(from.ip(), to.ip())?;
    let len = u32::try_from(message.len() + udp::HEADER_LEN).ok()?;
    let pseudo = addresses.pseudo_header(PROTOCOL_UDP, len);
    let checksum = udp::ChecksumOut::Full { pseudo, payload: Sum::of(message) };
    let header = udp::Header { src_port: from.port(), dst_port: to.port() };
    let header = udp::emit(&header, message.len(), checksum)?;
    packet(addresses, PROTOCOL_UDP, HOP_LIMIT, &[&header[..], message].concat())
}

/// A packet with this body.
pub fn packet(addresses: Addresses, protocol: u8, hop_limit: u8, body: &[u8]) -> Option<Vec<u8>> {
    let mut packet = vec![0; addresses.header_len()];
    let header = ip::Header { addresses, protocol, hop_limit, traffic_class: 0, flow_label: 0 };
    ip::emit(&header, body.len(), &mut packet).ok()?;
    packet.extend(body);
    Some(packet)
}
