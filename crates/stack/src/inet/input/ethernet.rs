//! The link header of a received frame, if the interface has any.
//!
//! Frames for another station are dropped and counted: a switch that does not know yet where a station is floods. It
//! does not depend on the packet. Tests: below.

use super::count;
use crate::inet::ip::Cast;
use crate::inet::netif::{LINK_HEADER_LEN, MacAddr, Medium};

/// The bytes before the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LinkHeader {
    /// Bytes of it.
    pub len: usize,
    /// The sender of the frame.
    pub src: Option<MacAddr>,
    /// The kind of destination on the link.
    pub cast: Cast,
    /// It is ARP that follows, and no IP.
    pub is_arp: bool,
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_ARP: u16 = 0x0806;
/// The bit of an address that makes it a group's (IEEE 802).
const GROUP_BIT: u8 = 1;

impl LinkHeader {
    /// Reads the link-layer header of this medium. The error is the counter of the reason for which the frame is
    /// dropped.
    #[inline]
    pub fn read(medium: Medium, frame: &[u8]) -> Result<Self, usize> {
        match medium {
            Medium::Ip => Ok(Self { len: 0, src: None, cast: Cast::Unicast, is_arp: false }),
            Medium::Ethernet(own) => ethernet(own, frame),
        }
    }
}

fn ethernet(own: MacAddr, frame: &[u8]) -> Result<LinkHeader, usize> {
    let Some(&[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1]) =
        frame.first_chunk::<LINK_HEADER_LEN>()
    else {
        return Err(count::SHORT_ETHERNET);
    };
    let dst = [d0, d1, d2, d3, d4, d5];
    let cast = match dst {
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Cast::Broadcast,
        [first, ..] if first & GROUP_BIT != 0 => Cast::Multicast,
        dst if dst == own.0 => Cast::Unicast,
        _ => return Err(count::OTHER_STATION),
    };
    match u16::from_be_bytes([t0, t1]) {
        ethertype @ (ETHERTYPE_IPV4 | ETHERTYPE_IPV6 | ETHERTYPE_ARP) => {
            let src = Some(MacAddr([s0, s1, s2, s3, s4, s5]));
            Ok(LinkHeader { len: LINK_HEADER_LEN, src, cast, is_arp: ethertype == ETHERTYPE_ARP })
        }
        _ => Err(count::UNKNOWN_ETHERTYPE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn read(dst: [u8; 6], ethertype: u16) -> Result<LinkHeader, usize> {
        let mut frame = dst.to_vec();
        frame.extend([2, 0, 0, 0, 0, 9]);
        frame.extend(ethertype.to_be_bytes());
        LinkHeader::read(Medium::Ethernet(OWN), &frame)
    }

    #[test]
    fn a_frame_is_unicast_to_us_broadcast_multicast_or_for_another_host() {
        let src = Some(MacAddr([2, 0, 0, 0, 0, 9]));
        let header = |cast| Ok(LinkHeader { len: 14, src, cast, is_arp: false });
        assert_eq!(read(OWN.0, 0x0800), header(Cast::Unicast));
        assert_eq!(read([0xff; 6], 0x86dd), header(Cast::Broadcast));
        assert_eq!(read([0x33, 0x33, 0, 0, 0, 1], 0x86dd), header(Cast::Multicast));
        assert!(read([0xff; 6], 0x0806).is_ok_and(|header| header.is_arp));
        assert_eq!(read([2, 0, 0, 0, 0, 2], 0x0800), Err(count::OTHER_STATION));
        assert_eq!(read(OWN.0, 0x88cc), Err(count::UNKNOWN_ETHERTYPE));
        assert_eq!(LinkHeader::read(Medium::Ethernet(OWN), &[0; 13]), Err(count::SHORT_ETHERNET));
    }

    #[test]
    fn a_medium_without_link_headers_has_none() {
        let none = LinkHeader { len: 0, src: None, cast: Cast::Unicast, is_arp: false };
        assert_eq!(LinkHeader::read(Medium::Ip, &[]), Ok(none));
    }
}
