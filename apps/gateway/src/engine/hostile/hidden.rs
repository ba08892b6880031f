//! Ways to write the addresses that a gateway is to keep to its host, and packets to them.

use std::net::IpAddr;

/// The host, its link and many, by each way there is to write them.
pub const HIDDEN: [&str; 32] = [
    "127.0.0.1",
    "127.1.2.3",
    "0.0.0.0",
    "0.0.0.1",
    "169.254.169.254",
    "224.0.0.251",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::2",
    "fe80::1",
    "fec0::1",
    // Services with the host's secrets.
    "100.100.100.200",
    "fd20:ce::254",
    "ff02::1",
    // IPv4-mapped, IPv4-compatible, translated.
    "::ffff:127.0.0.1",
    "::ffff:0.0.0.0",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "::192.0.2.1",
    "::ffff:0:127.0.0.1",
    // 6to4, Teredo (by its client, by its server), NAT64, ISATAP.
    "2002:7f00:1::",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "2001:0:c000:207::80ff:fffe",
    "2001:0:7f00:1::3fff:fdf8",
    "64:ff9b::127.0.0.1",
    "64:ff9b::0.0.0.0",
    "64:ff9b:1::127.0.0.1",
    "64:ff9b:1:7f00:0:100::",
    "2001:db8:9::5efe:127.0.0.1",
];

/// The sum of the Internet over these bytes, before a checksum is made of it.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
}

/// An IP packet of a TCP segment, a datagram or an ICMP message, with right checksums. What stands in `inside` for its checksum does not count.
pub fn packet(from: IpAddr, to: IpAddr, protocol: u8, mut inside: Vec<u8>) -> Vec<u8> {
    let octets = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    let (from_octets, to_octets) = (octets(from), octets(to));
    let at = match protocol {
        6 => Some(16),
        17 => Some(6),
        1 | 58 => Some(2),
        _ => None,
    };
    if let Some(place) = at.and_then(|at| inside.get_mut(at..at + 2)) {
        place.fill(0);
    }
    let mut total = sum(&inside);
    if protocol != 1 {
        total += sum(&from_octets) + sum(&to_octets) + u32::from(protocol) + inside.len() as u32;
    }
    if let Some(place) = at.and_then(|at| inside.get_mut(at..at + 2)) {
        place.copy_from_slice(&folded(total));
    }
    let len = inside.len() as u16;
    let mut header = if to.is_ipv4() {
        let fixed = [0, 0, 0, 0, 64, protocol, 0, 0];
        let mut header =
            [&[0x45, 0][..], &(20 + len).to_be_bytes(), &fixed, &from_octets, &to_octets].concat();
        let checksum = folded(sum(&header));
        header[10..12].copy_from_slice(&checksum);
        header
    } else {
        [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[protocol, 64], &from_octets, &to_octets].concat()
    };
    header.extend(inside);
    header
}

fn folded(mut total: u32) -> [u8; 2] {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    (!(total as u16)).to_be_bytes()
}
