//! The header before each frame of a device with `IFF_VNET_HDR`: which side completes checksums, and how to cut.
//!
//! It is `struct virtio_net_hdr` of the virtio specification (version 1.2, section 5.1.6) in the machine's byte order, as
//! the kernel's TUN driver has it unless told otherwise. It does not depend on where frames come from. Invariant:
//! arbitrary bytes are read without panic. The kernel's word is taken, a guest's (`of_guest`) is looked at. Tests: below.

use sockeye_netif::{Checksum, TxFrame};

/// Bytes of the header.
pub(crate) const LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
pub(crate) const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// The segment was marked by the network (RFC 3168); beside its kind.
#[cfg(feature = "vhost-user")]
const GSO_ECN: u8 = 0x80;

/// IP protocol numbers and where their checksum stands in the header (RFC 9293 section 3.1, RFC 768).
const TCP: u8 = 6;
const TCP_CHECKSUM_AT: u16 = 16;
const UDP: u8 = 17;
const UDP_CHECKSUM_AT: u16 = 6;

/// The header for a frame on its way to the kernel.
pub(super) fn of(frame: &TxFrame) -> [u8; LEN] {
    let mut header = [0; LEN];
    if frame.checksum == Checksum::Software {
        return header;
    }
    let (head, link_len) = (frame.head(), frame.link_len());
    let Some(transport) = Transport::of(head, link_len) else { return header };
    header[0] = NEEDS_CSUM;
    put(&mut header, 6, transport.at);
    put(&mut header, 8, transport.checksum_at());
    if frame.gso_size > 0 && frame.payload.len() > usize::from(frame.gso_size) {
        header[1] = transport.gso_type();
        put(&mut header, 2, u16::try_from(head.len()).unwrap_or(u16::MAX));
        put(&mut header, 4, frame.gso_size);
    }
    header
}

/// The kernel's data on a frame that it gave us: whether it has checked it, and the size of its packets.
pub(super) fn read(header: [u8; LEN]) -> (Checksum, u16) {
    // A checksum that is not filled in yet has left no host, so nothing can have damaged the bytes that it
    // covers.
    let is_good = header[0] & (NEEDS_CSUM | DATA_VALID) != 0;
    let gso_size = if header[1] == GSO_NONE { 0 } else { u16::from_ne_bytes([header[4], header[5]]) };
    (if is_good { Checksum::Device } else { Checksum::Software }, gso_size)
}

/// Work that a guest was offered to leave to us.
#[cfg(feature = "vhost-user")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offers {
    /// Checksums.
    pub checksum: bool,
    /// Cutting segments of TCP over IPv4, and over IPv6.
    pub segments_v4: bool,
    pub segments_v6: bool,
}

/// A guest's data on its frame, as [`read`]. `None` if it asks for what it was not offered. The numbers are the guest's own affair: what is wrong with them
/// is wrong with its own bytes.
#[cfg(feature = "vhost-user")]
pub(crate) fn of_guest(header: [u8; LEN], offers: Offers) -> Option<(Checksum, u16)> {
    let is_left = header[0] & NEEDS_CSUM != 0;
    let may_be_cut = match header[1] & !GSO_ECN {
        GSO_NONE => header[1] == GSO_NONE,
        GSO_TCPV4 => is_left && offers.segments_v4,
        GSO_TCPV6 => is_left && offers.segments_v6,
        _ => false,
    };
    // A guest that says that a checksum is good would have us trust it.
    let is_one = header[0] & !NEEDS_CSUM == 0 && may_be_cut && (!is_left || offers.checksum);
    is_one.then(|| read(header)).filter(|(_, gso_size)| header[1] == GSO_NONE || *gso_size > 0)
}

fn put(header: &mut [u8; LEN], at: usize, value: u16) {
    header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
}

/// Where the TCP or UDP header is, as far as the stack itself writes them: IPv6 without extension headers.
struct Transport {
    at: u16,
    protocol: u8,
    is_v4: bool,
}

impl Transport {
    fn of(head: &[u8], link_len: usize) -> Option<Self> {
        let first = *head.get(link_len)?;
        let is_v4 = first >> 4 == 4;
        let (ip_len, protocol_at) = if is_v4 { (usize::from(first & 15) * 4, 9) } else { (40, 6) };
        let protocol = *head.get(link_len + protocol_at)?;
        let at = u16::try_from(link_len + ip_len).ok()?;
        matches!(protocol, TCP | UDP).then_some(Self { at, protocol, is_v4 })
    }

    fn checksum_at(&self) -> u16 {
        if self.protocol == TCP { TCP_CHECKSUM_AT } else { UDP_CHECKSUM_AT }
    }

    fn gso_type(&self) -> u8 {
        match (self.protocol, self.is_v4) {
            (UDP, _) => GSO_UDP_L4,
            (_, true) => GSO_TCPV4,
            (_, false) => GSO_TCPV6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockeye_mbuf::{Chain, Pool, PoolConfig};
    use sockeye_netif::LINK_HEADER_LEN;

    fn packet(is_v4: bool, protocol: u8, payload: Chain) -> TxFrame {
        let mut head = vec![0; if is_v4 { 40 } else { 60 }];
        (head[0], head[if is_v4 { 9 } else { 6 }]) = (if is_v4 { 0x45 } else { 0x60 }, protocol);
        TxFrame::new(&head, payload, Checksum::Device).unwrap()
    }

    fn field(header: [u8; LEN], at: usize) -> u16 {
        u16::from_ne_bytes([header[at], header[at + 1]])
    }

    #[test]
    fn a_frame_to_be_cut_names_its_headers_and_the_size_of_its_packets() {
        let pool = Pool::new(PoolConfig::default());
        let payload = pool.copy_in(&[0; 3000]).unwrap();
        for (is_v4, protocol, kind, checksum_at) in
            [(true, TCP, GSO_TCPV4, 16), (false, TCP, GSO_TCPV6, 16), (true, UDP, GSO_UDP_L4, 6)]
        {
            for link_len in [0, LINK_HEADER_LEN] {
                let mut frame = packet(is_v4, protocol, payload.clone());
                frame.gso_size = 1448;
                if link_len > 0 {
                    frame.push_link(&[0; LINK_HEADER_LEN]);
                }
                let header = of(&frame);
                let ip_len = if is_v4 { 20 } else { 40 };
                assert_eq!((header[0], header[1]), (NEEDS_CSUM, kind));
                assert_eq!(usize::from(field(header, 2)), frame.head().len());
                assert_eq!((field(header, 4), field(header, 6)), (1448, link_len as u16 + ip_len));
                assert_eq!(field(header, 8), checksum_at);
            }
        }
    }

    #[test]
    fn one_packet_is_not_cut_and_a_finished_checksum_is_left_alone() {
        let pool = Pool::new(PoolConfig::default());
        let mut frame = packet(true, TCP, pool.copy_in(&[0; 1448]).unwrap());
        frame.gso_size = 1448;
        assert_eq!((of(&frame)[0], of(&frame)[1]), (NEEDS_CSUM, GSO_NONE));
        frame.checksum = Checksum::Software;
        assert_eq!(of(&frame), [0; LEN]);
        assert_eq!(of(&packet(true, 1, Chain::new())), [0; LEN], "ICMP has no checksum of the device's");
        assert_eq!(of(&TxFrame::new(&[], Chain::new(), Checksum::Device).unwrap()), [0; LEN]);
    }

    #[test]
    fn the_kernels_checksums_and_sizes_are_trusted() {
        let with = |flags, kind| {
            let [low, high] = 1448u16.to_ne_bytes();
            read([flags, kind, 0, 0, low, high, 0, 0, 0, 0])
        };
        assert_eq!(with(0, GSO_NONE), (Checksum::Software, 0));
        assert_eq!(with(NEEDS_CSUM, GSO_TCPV4), (Checksum::Device, 1448));
        assert_eq!(with(DATA_VALID, GSO_NONE), (Checksum::Device, 0));
    }

    #[cfg(feature = "vhost-user")]
    #[test]
    fn a_guest_gets_what_it_was_offered_and_no_more() {
        let all = Offers { checksum: true, segments_v4: true, segments_v6: true };
        let with = |flags, kind, size: u16, offers| {
            let [low, high] = size.to_ne_bytes();
            of_guest([flags, kind, 0, 0, low, high, 0, 0, 0, 0], offers)
        };
        assert_eq!(with(0, GSO_NONE, 9, all), Some((Checksum::Software, 0)));
        assert_eq!(with(NEEDS_CSUM, GSO_NONE, 0, all), Some((Checksum::Device, 0)));
        assert_eq!(with(NEEDS_CSUM, GSO_TCPV4, 1448, all), Some((Checksum::Device, 1448)));
        assert_eq!(with(NEEDS_CSUM, GSO_TCPV6 | GSO_ECN, 1428, all), Some((Checksum::Device, 1428)));
        let none = Offers { checksum: false, segments_v4: false, segments_v6: false };
        for (flags, kind, size, offers) in [
            (DATA_VALID, GSO_NONE, 0, all),
            (4, GSO_NONE, 0, all),
            (NEEDS_CSUM, GSO_TCPV4, 0, all),
            (0, GSO_TCPV4, 1448, all),
            (NEEDS_CSUM, GSO_UDP_L4, 1448, all),
            (NEEDS_CSUM, GSO_ECN, 1448, all),
            (NEEDS_CSUM, GSO_NONE, 0, none),
            (NEEDS_CSUM, GSO_TCPV4, 1448, Offers { segments_v4: false, ..all }),
            (NEEDS_CSUM, GSO_TCPV6, 1448, Offers { segments_v6: false, ..all }),
        ] {
            assert_eq!(with(flags, kind, size, offers), None, "{flags} {kind} {size}");
        }
    }
}
