//! Neighbor Discovery for IPv6 (RFC 4861) on the side of a host, and the addresses that it makes for itself (RFC 4862).
//!
//! * [`wire`]: messages, read with every check that the RFC asks for.
//! * [`host`]: default routers, prefixes and addresses, as routers advertise them.
//! * [`stable`]: the interface identifier of an address, and link-local addresses.
//!
//! The states of neighbors are `neighbor`'s, duplicate address detection is `dad`'s. Nothing here knows
//! interfaces. Tests: at the ends of the files.

pub mod host;
pub mod stable;
pub mod wire;

use core::net::Ipv6Addr;

/// The group of all nodes on the link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The group of all routers on the link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The solicited-node group of an address (RFC 4291 section 2.7.1).
pub const fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = addr.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_4291_section_2_7_1() {
        let addr: Ipv6Addr = "4037::01:800:200e:8c6c".parse().unwrap();
        assert_eq!(solicited_node(addr), "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
    }
}
