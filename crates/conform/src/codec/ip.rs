//! Headers of IPv4 and IPv6, and the checksum of RFC 1071.
//!
//! It does not depend on what a packet carries. Tests: those of `codec.rs`.

use std::net::{IpAddr, Ipv4Addr};

use super::{IPV4_HEADER, IPV6_HEADER};

/// An IP header before so many bytes.
pub(super) fn header(from: IpAddr, to: IpAddr, protocol: u8, ecn: u8, len: usize) -> Vec<u8> {
    let mut bytes = match from {
        IpAddr::V4(_) => {
            let [high, low] = ((IPV4_HEADER + len) as u16).to_be_bytes();
            vec![0x45, ecn & 3, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0]
        }
        IpAddr::V6(_) => {
            let [high, low] = (len as u16).to_be_bytes();
            vec![0x60, (ecn & 3) << 4, 0, 0, high, low, protocol, 64]
        }
    };
    bytes.extend(octets(from));
    bytes.extend(octets(to));
    if from.is_ipv4() {
        let sum = folded(sum(&bytes));
        bytes[10..12].copy_from_slice(&(!sum).to_be_bytes());
    }
    bytes
}

/// What is read of an IP header.
pub(super) struct Head {
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: u8,
    /// DSCP and ECN.
    pub class: u8,
    pub ttl: u8,
    pub is_whole: bool,
    pub label: u32,
}

/// The header of an IPv4 packet, and the rest.
pub(super) fn ipv4_body(packet: &[u8]) -> Result<(Head, &[u8]), &'static str> {
    let header_len = usize::from(packet[0] & 15) * 4;
    let total = usize::from(u16_at(packet, 2)?);
    let is_whole = |header: &&[u8]| header.len() >= IPV4_HEADER;
    let header = packet.get(..header_len).filter(is_whole).ok_or("a short IP header")?;
    let body = packet.get(header_len..total).ok_or("a packet shorter than it says")?;
    if folded(sum(header)) != 0xffff {
        return Err("a wrong sum of an IPv4 header");
    }
    let at = |at| u32_at(header, at).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    let (from, to, is_whole) = (at(12)?, at(16)?, header[6] & 0x40 != 0);
    Ok((Head { from, to, protocol: header[9], class: header[1], ttl: header[8], is_whole, label: 0 }, body))
}

/// The same of an IPv6 packet.
pub(super) fn ipv6_body(packet: &[u8]) -> Result<(Head, &[u8]), &'static str> {
    let (header, rest) = packet.split_at_checked(IPV6_HEADER).ok_or("a short IP header")?;
    let body = rest.get(..usize::from(u16_at(header, 4)?)).ok_or("a packet shorter than it says")?;
    let word = u32_at(header, 0)?;
    let (class, label) = ((word >> 20) as u8, word & 0xf_ffff);
    let at = |at: usize| -> Result<IpAddr, &'static str> {
        let bytes: [u8; 16] = header[at..at + 16].try_into().map_err(|_| "a short IP header")?;
        Ok(bytes.into())
    };
    let (from, to) = (at(8)?, at(24)?);
    Ok((Head { from, to, protocol: header[6], class, ttl: header[7], is_whole: true, label }, body))
}

pub(super) fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, &'static str> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]])).ok_or("a short header")
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, &'static str> {
    Ok(u32::from(u16_at(bytes, at)?) << 16 | u32::from(u16_at(bytes, at + 2)?))
}

/// The sum of RFC 1071, not folded yet.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    pairs.sum()
}

pub(super) fn folded(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}
