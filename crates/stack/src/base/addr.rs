//! The names of both ends: an endpoint, and the 4-tuple that names a connection.
//!
//! Knows nothing of sockets or segments. A 4-tuple is written from the point of view of the side
//! that owns it; [`FourTuple::reversed`] is the other side's name for the same connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use siphasher::sip::SipHasher13;

/// One end of a connection, in 20 bytes (a `SocketAddr` takes 32: flow label and scope are not part
/// of a connection's name on the addresses that a stack owns).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Endpoint {
    pub addr: IpAddr,
    pub port: u16,
}

impl Endpoint {
    pub fn new(addr: IpAddr, port: u16) -> Self {
        Self { addr, port }
    }

    /// As the API shows it: an IPv4 peer of an IPv6 socket appears as an IPv4-mapped address
    /// (RFC 3493 section 3.7).
    pub fn to_socket_addr(self, mapped: bool) -> SocketAddr {
        match self.addr {
            IpAddr::V4(v4) if mapped => SocketAddr::new(IpAddr::V6(v4.to_ipv6_mapped()), self.port),
            addr => SocketAddr::new(addr, self.port),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    /// IPv4-mapped addresses become the IPv4 addresses that they stand for.
    fn from(addr: SocketAddr) -> Self {
        Self { addr: unmapped(addr.ip()), port: addr.port() }
    }
}

/// The IPv4 address behind an IPv4-mapped IPv6 address, or the address itself.
pub(crate) fn unmapped(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(addr, IpAddr::V4),
        IpAddr::V4(_) => addr,
    }
}

/// A connection's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FourTuple {
    pub local: Endpoint,
    pub remote: Endpoint,
}

impl FourTuple {
    /// The same connection as its other side names it.
    pub fn reversed(self) -> Self {
        Self { local: self.remote, remote: self.local }
    }

    /// A keyed hash (SipHash-1-3): peers choose addresses and ports, so they must not be able to
    /// choose the hash bucket. Both ends of a connection have the same one, so that those in one process stand in
    /// one part of the tables.
    pub fn hash(&self, key: &HashKey) -> u64 {
        let mut bytes = [0u8; 36];
        let (local, remote) = bytes.split_at_mut(18);
        write_endpoint(local, &self.local);
        write_endpoint(remote, &self.remote);
        if remote < local {
            local.swap_with_slice(remote);
        }
        SipHasher13::new_with_keys(key.0, key.1).hash(&bytes)
    }
}

/// The secret of the stack's hash tables, drawn at start.
#[derive(Clone, Copy)]
pub(crate) struct HashKey(pub u64, pub u64);

impl HashKey {
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.1.to_ne_bytes());
        bytes
    }
}

fn write_endpoint(out: &mut [u8], endpoint: &Endpoint) {
    out[..16].copy_from_slice(&octets(endpoint.addr));
    out[16..].copy_from_slice(&endpoint.port.to_be_bytes());
}

/// The address as 16 bytes, IPv4 in its mapped form.
pub(crate) fn octets(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The unspecified address of the same family, which as a destination means this host (as on Linux).
pub(crate) fn connect_target(addr: IpAddr) -> IpAddr {
    if !addr.is_unspecified() {
        return addr;
    }
    match addr {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple() -> FourTuple {
        FourTuple {
            local: Endpoint::new("127.0.0.1".parse().unwrap(), 80),
            remote: Endpoint::new("127.0.0.2".parse().unwrap(), 40000),
        }
    }

    #[test]
    fn the_hash_depends_on_every_part_and_on_the_key() {
        let (t, key) = (tuple(), HashKey(1, 2));
        assert_eq!(t.hash(&key), t.hash(&key));
        assert_eq!(t.hash(&key), t.reversed().hash(&key));
        assert_ne!(t.hash(&key), t.hash(&HashKey(1, 3)));
        let mut other = t;
        other.remote.port += 1;
        assert_ne!(t.hash(&key), other.hash(&key));
    }

    #[test]
    fn mapped_addresses_name_the_ipv4_endpoint() {
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:80".parse().unwrap();
        let e = Endpoint::from(mapped);
        assert_eq!(e, tuple().local);
        assert_eq!(e.to_socket_addr(true), mapped);
        assert_eq!(e.to_socket_addr(false), "127.0.0.1:80".parse().unwrap());
    }
}
