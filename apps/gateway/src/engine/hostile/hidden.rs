//! Ways to write the addresses that a gateway is to keep to its host, and packets to them. Tests: `tests/examples.rs`.

use std::net::{Ipv6Addr, SocketAddr};

/// The host, its link and many, by each way there is to write them.
pub const HIDDEN: [&str; 31] = [
    "127.0.0.1",
    "127.1.2.3",
    "0.0.0.0",
    "0.0.0.1",
    "169.254.169.254",
    "224.0.0.251",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[::2]",
    "[fe80::1]",
    "[fe80::1%7]",
    "[fec0::1]",
    "[ff02::1]",
    // IPv4-mapped, IPv4-compatible, translated.
    "[::ffff:127.0.0.1]",
    "[::ffff:0.0.0.0]",
    "[::ffff:169.254.169.254]",
    "[::127.0.0.1]",
    "[::192.0.2.1]",
    "[::ffff:0:127.0.0.1]",
    // 6to4, Teredo (by its client, by its server), NAT64, ISATAP.
    "[2002:7f00:1::]",
    "[2002:7f00:1::1]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:c000:207::80ff:fffe]",
    "[2001:0:7f00:1::3fff:fdf8]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::0.0.0.0]",
    "[64:ff9b:1::127.0.0.1]",
    "[64:ff9b:1:7f00:0:100::]",
    "[2001:db8:9::5efe:127.0.0.1]",
];

/// Addresses that a host treats as its own, and ways to write them.
pub const OWN: [&str; 2] = ["10.1.1.1", "2001:db8::1:1"];
pub const HIDDEN_OWN: [&str; 6] = [
    "10.1.1.1",
    "[2001:db8::1:1]",
    "[::ffff:10.1.1.1]",
    "[::10.1.1.1]",
    "[2002:a01:101:1::9]",
    "[64:ff9b::10.1.1.1]",
];

/// The sum of the Internet over these bytes, before a checksum is made of it.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
}

/// A SYN, or a datagram, of some host to `to`.
pub fn packet(to: SocketAddr, is_tcp: bool) -> Vec<u8> {
    let (from, to_addr): (Vec<u8>, Vec<u8>) = match to {
        SocketAddr::V4(to) => (vec![10, 64, 0, 1], to.ip().octets().into()),
        SocketAddr::V6(to) => {
            ("fd64::77".parse::<Ipv6Addr>().unwrap().octets().into(), to.ip().octets().into())
        }
    };
    let mut inside = [40_001u16.to_be_bytes(), to.port().to_be_bytes()].concat();
    if is_tcp {
        inside.extend([0, 0, 3, 232, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    } else {
        inside.extend([0, 10, 0, 0, b'h', b'i']);
    }
    let (protocol, at) = if is_tcp { (6, 16) } else { (17, 6) };
    let mut total = sum(&from) + sum(&to_addr) + protocol + inside.len() as u32 + sum(&inside);
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    inside[at..at + 2].copy_from_slice(&(!(total as u16)).to_be_bytes());
    let len = inside.len() as u16;
    let mut header = if to.is_ipv4() {
        let mut header = [
            &[0x45, 0][..],
            &(20 + len).to_be_bytes(),
            &[0, 0, 0, 0, 64, protocol as u8, 0, 0],
            &from,
            &to_addr,
        ]
        .concat();
        let mut total = sum(&header);
        total = (total & 0xffff) + (total >> 16);
        header[10..12].copy_from_slice(&(!(total as u16)).to_be_bytes());
        header
    } else {
        [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[protocol as u8, 64], &from, &to_addr].concat()
    };
    header.extend(inside);
    header
}
