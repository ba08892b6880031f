//! The ECN field of an IP header (RFC 3168 section 5): what a sender writes, a router changes and a receiver reads.
//!
//! The two low bits of the octet that both versions have at different places. It does not depend on TCP. Tests stand
//! at the end.

use super::{HeaderChecksum, Sum, V4_HEADER_LEN, V6_HEADER_LEN, parse_head};

/// The bits of [`Header::traffic_class`](super::Header::traffic_class) that are ECN's.
pub const MASK: u8 = 0b11;
/// ECN-capable transport, ECT(0): written by a sender that prefers marks to drops.
pub const ECT_0: u8 = 0b10;
/// Congestion experienced.
const CE: u8 = 0b11;

/// True if the sender of a packet with this traffic class is ECN-capable, or a router has marked it.
pub const fn is_capable(traffic_class: u8) -> bool {
    traffic_class & MASK != 0
}

/// Does as a congested router to a packet that it forwards: marks it, if its sender is ECN-capable. `packet` begins with
/// the IP header. True if it is marked now; false if the packet would have to be dropped instead, or is none.
pub fn mark(packet: &mut [u8]) -> bool {
    let Ok((header, _)) = parse_head(packet, usize::from(u16::MAX), HeaderChecksum::Trusted) else {
        return false;
    };
    if header.traffic_class & MASK == 0 {
        return false;
    }
    match packet.first().map(|first| first >> 4) {
        Some(4) => mark_v4(packet),
        Some(_) => mark_v6(packet),
        None => false,
    }
}

fn mark_v4(packet: &mut [u8]) -> bool {
    let Some(fixed) = packet.first_chunk_mut::<V4_HEADER_LEN>() else { return false };
    let header_len = usize::from(fixed[0] & 0x0f) * 4;
    fixed[1] |= CE;
    (fixed[10], fixed[11]) = (0, 0);
    let Some(header) = packet.get_mut(..header_len) else { return false };
    let sum = Sum::of(header).checksum().to_be_bytes();
    if let Some(field) = header.get_mut(10..12) {
        field.copy_from_slice(&sum);
    }
    true
}

fn mark_v6(packet: &mut [u8]) -> bool {
    let Some(fixed) = packet.first_chunk_mut::<V6_HEADER_LEN>() else { return false };
    // The traffic class begins in the middle of the first octet.
    fixed[1] |= CE << 4;
    true
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::super::{Addresses, Header, PROTOCOL_TCP, emit, parse};
    use super::*;

    fn packet(src: &str, dst: &str, traffic_class: u8) -> Vec<u8> {
        let addr = |text: &str| text.parse::<IpAddr>().unwrap();
        let addresses = Addresses::new(addr(src), addr(dst)).unwrap();
        let header =
            Header { addresses, protocol: PROTOCOL_TCP, hop_limit: 64, traffic_class, flow_label: 0 };
        let mut bytes = vec![0; addresses.header_len() + 8];
        emit(&header, 8, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn only_ecn_capable_packets_are_marked() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            for (class, marked) in [(0xb8 | ECT_0, true), (0xb9, true), (0xbb, true), (0xb8, false)] {
                let mut bytes = packet(src, dst, class);
                assert_eq!(mark(&mut bytes), marked);
                let (header, range) = parse(&bytes, HeaderChecksum::Verify).unwrap();
                assert_eq!(header.traffic_class, if marked { 0xbb } else { class });
                assert_eq!(header.traffic_class & MASK == CE, marked);
                assert_eq!((header.hop_limit, range.len()), (64, 8));
            }
        }
    }

    #[test]
    fn invalid_packets_are_not_marked() {
        for bytes in [vec![], vec![0x45; 10], vec![0x6b; 20], vec![0x12; 64]] {
            let mut same = bytes.clone();
            assert!(!mark(&mut same));
            assert_eq!(same, bytes);
        }
    }
}
