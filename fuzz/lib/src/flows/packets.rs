//! The other side of the channel: addresses of the peers, and what they send.
//!
//! Checksums of UDP count as verified by the channel, so none are made; those of IP and ICMP are right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arbitrary::{Result, Unstructured};
use sockeye_proto::icmp::{self, Family, Message};
use sockeye_proto::ip::{self, Addresses, HeaderChecksum, Sum};

/// Pairs of a peer and a host that it asks: two of each version of IP more than the smallest table has places.
pub const PAIRS: usize = 8;
/// Where the peers are.
pub const THEIRS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2))];
/// A host that the stack answers for.
pub const HOSTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7))];
/// A protocol that no stack serves (RFC 3692).
pub const UNKNOWN: u8 = 253;
const PEER_PORT: u16 = 4000;
const PORT: u16 = 53;

/// A pair's number.
pub fn pair(u: &mut Unstructured<'_>) -> Result<usize> {
    u.int_in_range(0..=PAIRS - 1)
}

/// The peer of a pair, and where it sends to.
pub fn ends(pair: usize) -> (SocketAddr, SocketAddr) {
    let version = pair % 2;
    let peer = SocketAddr::new(THEIRS[version], PEER_PORT + pair as u16);
    (peer, SocketAddr::new(HOSTS[version], PORT + (pair / 4) as u16))
}

/// The pair with these ends.
pub fn pair_of(peer: SocketAddr, asked: SocketAddr) -> Option<usize> {
    (0..PAIRS).find(|pair| ends(*pair) == (peer, asked))
}

/// What a network says about a datagram.
pub fn error(u: &mut Unstructured<'_>) -> Result<icmp::Error> {
    use icmp::Unreachable::{Host, Network, Port};
    Ok(match u.int_in_range(0..=4u8)? {
        0..=1 => icmp::Error::Unreachable(Port),
        2 => icmp::Error::Unreachable(Host),
        3 => icmp::Error::Unreachable(Network),
        _ => icmp::Error::HopLimitExceeded,
    })
}

/// Whether it is the pending error of a connected socket.
pub fn is_fatal(error: icmp::Error) -> bool {
    error == icmp::Error::Unreachable(icmp::Unreachable::Port)
}

/// A packet.
pub fn packet(src: IpAddr, dst: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let addresses = Addresses::new(src, dst).expect("of one family");
    let header = ip::Header { addresses, protocol, hop_limit: 64, traffic_class: 0, flow_label: 0 };
    let mut packet = vec![0; addresses.header_len()];
    ip::emit(&header, payload.len(), &mut packet).expect("a short one");
    packet.extend_from_slice(payload);
    packet
}

/// A datagram, whose header says that it has `said` bytes more than it has.
pub fn datagram(from: SocketAddr, to: SocketAddr, text: &[u8], said: u16) -> Vec<u8> {
    let len = 8 + text.len() as u16 + said;
    let mut udp: Vec<u8> =
        [from.port(), to.port(), len, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
    udp.extend_from_slice(text);
    packet(from.ip(), to.ip(), ip::PROTOCOL_UDP, &udp)
}

/// An ICMP message from `src` to `dst`.
pub fn icmp(src: IpAddr, dst: IpAddr, message: Message, data: &[u8]) -> Vec<u8> {
    let (family, protocol) = match src {
        IpAddr::V4(_) => (Family::V4, ip::PROTOCOL_ICMP),
        IpAddr::V6(_) => (Family::V6, ip::PROTOCOL_ICMPV6),
    };
    let mut bytes = message.emit(family).expect("a message that hosts send").to_vec();
    bytes.extend_from_slice(data);
    let sum = match family {
        Family::V4 => Sum::default(),
        Family::V6 => {
            let addresses = Addresses::new(src, dst).expect("of one family");
            addresses.pseudo_header(protocol, bytes.len() as u32)
        }
    };
    let checksum = sum.add_bytes(&bytes).checksum();
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet(src, dst, protocol, &bytes)
}

/// What a packet of the stack's is: an echo reply, a datagram with its ends and text, or something else.
#[derive(PartialEq, Eq, Debug)]
pub enum Left {
    EchoReply,
    Datagram(SocketAddr, SocketAddr, Vec<u8>),
    Other,
}

/// Reads a packet of the stack's.
pub fn read(packet: &[u8]) -> Left {
    let (header, range) = ip::parse(packet, HeaderChecksum::Verify).expect("the stack sends IP");
    let (src, dst) = (header.addresses.src(), header.addresses.dst());
    let rest = &packet[range];
    let word = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    match (header.protocol, rest.first()) {
        (ip::PROTOCOL_ICMP, Some(0)) | (ip::PROTOCOL_ICMPV6, Some(129)) => Left::EchoReply,
        (ip::PROTOCOL_UDP, Some(_)) => {
            Left::Datagram(SocketAddr::new(src, word(0)), SocketAddr::new(dst, word(2)), rest[8..].to_vec())
        }
        _ => Left::Other,
    }
}
