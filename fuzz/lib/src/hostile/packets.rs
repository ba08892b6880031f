//! Packets between addresses of every class: TCP, UDP, echo requests, errors about loopback connections of the stack.
//!
//! Checksums are correct, so packets are refused for their addresses. It does not depend on the stack. Tests: with the
//! target.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arbitrary::{Result, Unstructured};
use sockeye::netif::{LINK_HEADER_LEN, MacAddr};
use sockeye_proto::icmp::{Error, Family, Message, Problem, Unreachable};
use sockeye_proto::ip::fragment::{self, Fragment};
use sockeye_proto::ip::{self, Addresses, Sum};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire::{self, ChecksumOut, Ports};

use super::addresses::{address, is_ours};

/// Ports of loopback services, of public services, of conversations inside, and one that is not used.
pub const LOOPBACK_PORT: u16 = 80;
pub const OPEN_PORT: u16 = 81;
pub const INSIDE_PORTS: [u16; 2] = [1000, 2000];
const PORTS: [u16; 6] = [LOOPBACK_PORT, OPEN_PORT, INSIDE_PORTS[0], INSIDE_PORTS[1], 9, 4000];

/// A packet; `None` if the bytes describe none.
pub fn packet(u: &mut Unstructured<'_>) -> Result<Option<Vec<u8>>> {
    let is_v6 = u.arbitrary()?;
    let (mut src, mut dst) = (address(u, is_v6)?, address(u, is_v6)?);
    // Mostly only one of the two is strange.
    match u.int_in_range(0..=4u8)? {
        0 | 1 => src = neighbor(is_v6),
        2 | 3 => dst = ours(is_v6),
        _ => {}
    }
    let Some(addresses) = Addresses::new(src, dst) else { return Ok(None) };
    let (protocol, inside) = match u.int_in_range(0..=9u8)? {
        0..=3 => (ip::PROTOCOL_TCP, segment(u, addresses)?),
        4..=6 => (ip::PROTOCOL_UDP, datagram(u, addresses)?),
        7 => message(addresses, Message::EchoRequest { id: u.arbitrary()?, seq: 1 }, b"data"),
        8 => error(u, addresses)?,
        _ => (u.arbitrary()?, u.arbitrary::<[u8; 12]>()?.to_vec()),
    };
    let header = ip::Header {
        addresses,
        protocol,
        hop_limit: if u.ratio(1, 8)? { 255 } else { 64 },
        traffic_class: 0,
        flow_label: 0,
    };
    let mut packet = vec![0; 128];
    let len = if u.ratio(1, 10)? {
        let part = Fragment { id: u.int_in_range(0..=3)?, offset: 0, more: u.ratio(1, 4)? };
        fragment::emit(&header, &part, inside.len(), &mut packet)
    } else {
        ip::emit(&header, inside.len(), &mut packet)
    };
    let Ok(len) = len else { return Ok(None) };
    packet.truncate(len);
    packet.extend_from_slice(&inside);
    Ok(Some(packet))
}

/// The packet behind a link header: unicast, broadcast or multicast.
pub fn framed(u: &mut Unstructured<'_>, own: MacAddr, packet: &[u8]) -> Result<Vec<u8>> {
    let to = [own, own, own, MacAddr([0xff; 6]), MacAddr([0x33, 0x33, 0, 0, 0, 1])];
    let ethertype: u16 = if packet.first().is_some_and(|first| first >> 4 == 4) { 0x0800 } else { 0x86dd };
    let mut frame = Vec::with_capacity(LINK_HEADER_LEN + packet.len());
    frame.extend_from_slice(&u.choose(&to)?.0);
    frame.extend_from_slice(&[2, 0, 0, 0, 9, 9]);
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(packet);
    Ok(frame)
}

/// ARP between addresses of every class. No sender claims to have ours: a stack gives those up (RFC 5227 section 2.4).
pub fn arp(u: &mut Unstructured<'_>, own: MacAddr) -> Result<Vec<u8>> {
    let (sender, target) = (address(u, false)?, address(u, false)?);
    let sender = if is_ours(sender) { neighbor(false) } else { sender };
    let (IpAddr::V4(sender), IpAddr::V4(target)) = (sender, target) else { return Ok(Vec::new()) };
    let mut packet = sockeye_proto::arp::Packet::request([2, 0, 0, 0, 9, 9], sender, target);
    if u.arbitrary()? {
        packet.operation = sockeye_proto::arp::Operation::Reply;
    }
    Ok([&own.0[..], &[2, 0, 0, 0, 9, 9, 8, 6], &packet.emit()].concat())
}

fn neighbor(is_v6: bool) -> IpAddr {
    if is_v6 { Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2).into() } else { Ipv4Addr::new(10, 9, 0, 2).into() }
}

fn ours(is_v6: bool) -> IpAddr {
    if is_v6 { Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1).into() } else { Ipv4Addr::new(10, 9, 0, 1).into() }
}

fn ports(u: &mut Unstructured<'_>) -> Result<Ports> {
    Ok(Ports { src: *u.choose(&PORTS)?, dst: *u.choose(&PORTS)? })
}

fn segment(u: &mut Unstructured<'_>, addresses: Addresses) -> Result<Vec<u8>> {
    let flags = match u.int_in_range(0..=5u8)? {
        0..=2 => Flags::SYN,
        3 => Flags::ACK,
        4 => Flags::RST,
        _ => Flags::from_bits(u.arbitrary()?),
    };
    let (seq, ack) = (SeqNum::new(u.arbitrary()?), SeqNum::new(u.arbitrary()?));
    let header = Header { flags, seq, ack, window: 1000, ..Header::default() };
    let mut tcp = vec![0; wire::header_len(&header)];
    let pseudo = addresses.pseudo_header(ip::PROTOCOL_TCP, tcp.len() as u32);
    let written = wire::emit(ports(u)?, &header, ChecksumOut::Full(pseudo), &mut tcp);
    Ok(if written.is_ok() { tcp } else { Vec::new() })
}

fn datagram(u: &mut Unstructured<'_>, addresses: Addresses) -> Result<Vec<u8>> {
    let Ports { src, dst } = ports(u)?;
    let mut udp = [&src.to_be_bytes()[..], &dst.to_be_bytes(), &[0, 12, 0, 0], b"data"].concat();
    let sum = addresses.pseudo_header(ip::PROTOCOL_UDP, 12).add_bytes(&udp).checksum();
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    Ok(udp)
}

/// A report about a packet between addresses of every class, mostly one that the stack has sent to itself.
fn error(u: &mut Unstructured<'_>, addresses: Addresses) -> Result<(u8, Vec<u8>)> {
    let is_v6 = addresses.src().is_ipv6();
    let inside: IpAddr = if is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let (near, far) =
        if u.ratio(2, 3)? { (inside, inside) } else { (address(u, is_v6)?, address(u, is_v6)?) };
    let about = Addresses::new(near, far).unwrap_or(addresses);
    let mut quoted = vec![0; about.header_len()];
    let protocol = if u.arbitrary()? { ip::PROTOCOL_UDP } else { ip::PROTOCOL_TCP };
    let header = ip::Header { addresses: about, protocol, hop_limit: 64, traffic_class: 0, flow_label: 0 };
    // Both fit.
    let _ = ip::emit(&header, 12, &mut quoted);
    quoted.extend(INSIDE_PORTS[0].to_be_bytes());
    quoted.extend(INSIDE_PORTS[1].to_be_bytes());
    quoted.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    let what = match u.int_in_range(0..=4u8)? {
        0 => Error::Unreachable(Unreachable::Port),
        1 => Error::Unreachable(Unreachable::Host),
        2 => Error::PacketTooBig(u.int_in_range(0..=2000)?),
        3 => Error::HopLimitExceeded,
        _ => Error::ParameterProblem(Problem::Field, 0),
    };
    Ok(message(addresses, Message::Error(what), &quoted))
}

/// An ICMP message of the addresses' family.
fn message(addresses: Addresses, message: Message, data: &[u8]) -> (u8, Vec<u8>) {
    let (family, protocol) = match addresses {
        Addresses::V4 { .. } => (Family::V4, ip::PROTOCOL_ICMP),
        Addresses::V6 { .. } => (Family::V6, ip::PROTOCOL_ICMPV6),
    };
    let mut bytes = [&message.emit(family).unwrap_or_default()[..], data].concat();
    let sum = match family {
        Family::V4 => Sum::ZERO,
        Family::V6 => addresses.pseudo_header(protocol, bytes.len() as u32),
    };
    let checksum = sum.add_bytes(&bytes).checksum();
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    (protocol, bytes)
}
