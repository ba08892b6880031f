//! Socket addresses as bytes: `struct sockaddr_in` and `sockaddr_in6` of Linux.
//!
//! Bytes are the script's and may be anything. Tests: below.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::error::{Call, Errno};

/// Bytes of `sockaddr_in`.
const LEN_V4: usize = 16;
/// Bytes of `sockaddr_in6`.
const LEN_V6: usize = 28;

/// The family that an address names.
pub(crate) fn family(bytes: &[u8]) -> Call<i32> {
    let two = bytes.first_chunk::<2>().ok_or(Errno(libc::EINVAL))?;
    Ok(i32::from(u16::from_ne_bytes(*two)))
}

/// Reads an address of IPv4 or IPv6.
///
/// # Errors
/// EINVAL if it is too short, EAFNOSUPPORT for another family.
pub(crate) fn read(bytes: &[u8]) -> Call<SocketAddr> {
    match (family(bytes)?, bytes.len()) {
        (libc::AF_INET, LEN_V4..) => {
            let port = u16::from_be_bytes([bytes[2], bytes[3]]);
            let addr = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            Ok(SocketAddr::V4(SocketAddrV4::new(addr, port)))
        }
        (libc::AF_INET6, LEN_V6..) => {
            let port = u16::from_be_bytes([bytes[2], bytes[3]]);
            let octets = bytes[8..].first_chunk::<16>().copied().unwrap_or_default();
            let scope = bytes[24..].first_chunk::<4>().copied().unwrap_or_default();
            let addr = SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, u32::from_ne_bytes(scope));
            Ok(SocketAddr::V6(addr))
        }
        (libc::AF_INET | libc::AF_INET6, _) => Err(Errno(libc::EINVAL)),
        (_, _) => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Writes an address.
pub(crate) fn write(addr: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LEN_V6);
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes.extend((family as u16).to_ne_bytes());
    bytes.extend(addr.port().to_be_bytes());
    match addr {
        SocketAddr::V4(addr) => {
            bytes.extend(addr.ip().octets());
            bytes.resize(LEN_V4, 0);
        }
        SocketAddr::V6(addr) => {
            bytes.extend([0; 4]);
            bytes.extend(addr.ip().octets());
            bytes.extend(addr.scope_id().to_ne_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for text in ["192.0.2.1:8080", "[fd3d::1]:80", "[::ffff:192.0.2.1]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(read(&write(addr)), Ok(addr));
        }
    }

    #[test]
    fn short_and_foreign_addresses_are_refused() {
        let bytes = write("192.0.2.1:8080".parse().unwrap());
        assert_eq!(read(&bytes[..15]), Err(Errno(libc::EINVAL)));
        assert_eq!(read(&bytes[..1]), Err(Errno(libc::EINVAL)));
        assert_eq!(read(&[1, 0, 0, 0]), Err(Errno(libc::EAFNOSUPPORT)));
    }
}
