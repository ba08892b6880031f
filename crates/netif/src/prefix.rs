//! Address prefixes in the notation of RFC 4632: `10.0.0.1/24`.
//!
//! Knows nothing of interfaces. Invariant: the length is at most that of the address. Tests: below.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address and how many of its bits name the network. Bits behind them are kept: `10.0.0.1/24` is an
/// address of an interface and its network in one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

/// Text or a length that is no prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAPrefix(String);

impl fmt::Display for NotAPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no prefix: give an address, a slash and up to 32 or 128 bits", self.0)
    }
}

impl std::error::Error for NotAPrefix {}

impl Prefix {
    /// The first `len` bits of `addr` as the network.
    ///
    /// # Errors
    /// If the address has fewer bits.
    pub fn new(addr: IpAddr, len: u8) -> Result<Self, NotAPrefix> {
        if len > bits(addr) {
            return Err(NotAPrefix(format!("{addr}/{len}")));
        }
        Ok(Self { addr, len })
    }

    /// The address, all its bits.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// Bits that name the network.
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether no bit names the network: every address of the family is in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The network alone: the bits behind the prefix are zero.
    #[must_use]
    pub fn network(&self) -> Self {
        let addr = match self.addr {
            IpAddr::V4(addr) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V4((u32::from(addr) & mask).into())
            }
            IpAddr::V6(addr) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V6((u128::from(addr) & mask).into())
            }
        };
        Self { addr, len: self.len }
    }

    /// The address of all hosts of the network (RFC 922); `None` for IPv6, and where there is no room for one
    /// (RFC 3021).
    pub fn broadcast(&self) -> Option<IpAddr> {
        match self.addr {
            IpAddr::V4(addr) if self.len < 31 => {
                Some(IpAddr::V4((u32::from(addr) | u32::MAX >> self.len).into()))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }

    /// Whether `addr` is in the network. An address of the other family is not.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = u32::from(own) ^ u32::from(other);
                differing.leading_zeros() >= u32::from(self.len)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = u128::from(own) ^ u128::from(other);
                differing.leading_zeros() >= u32::from(self.len)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl FromStr for Prefix {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        let refused = || NotAPrefix(text.to_owned());
        let (addr, len) = text.split_once('/').ok_or_else(refused)?;
        let addr = addr.parse().map_err(|_| refused())?;
        Self::new(addr, len.parse().map_err(|_| refused())?).map_err(|_| refused())
    }
}

/// Bits of an address.
fn bits(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_contains_addresses_with_its_first_bits() {
        for (net, inside, outside) in [
            ("10.1.2.3/24", "10.1.2.255", "10.1.3.0"),
            ("10.1.2.3/32", "10.1.2.3", "10.1.2.2"),
            ("10.1.2.3/0", "255.255.255.255", "::1"),
            ("fd00::1/64", "fd00::ffff:0:0:1", "fd00:0:0:1::1"),
            ("fd00::1/128", "fd00::1", "fd00::"),
            ("::/0", "ffff::1", "1.2.3.4"),
        ] {
            assert!(prefix(net).contains(inside.parse().unwrap()), "{net} {inside}");
            assert!(!prefix(net).contains(outside.parse().unwrap()), "{net} {outside}");
        }
    }

    #[test]
    fn the_network_has_the_bits_of_the_prefix_only() {
        for (of, network) in [
            ("10.1.2.3/24", "10.1.2.0/24"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("fd00::1/64", "fd00::/64"),
            ("fd00::1/0", "::/0"),
            ("fd00::1/128", "fd00::1/128"),
        ] {
            assert_eq!(prefix(of).network(), prefix(network), "{of}");
        }
    }

    #[test]
    fn a_network_has_a_broadcast_address_if_there_is_room_for_one() {
        for (net, broadcast) in [
            ("10.1.2.3/24", Some("10.1.2.255")),
            ("10.1.2.3/0", Some("255.255.255.255")),
            ("10.1.2.4/30", Some("10.1.2.7")),
            ("10.1.2.3/31", None),
            ("10.1.2.3/32", None),
            ("fd00::1/64", None),
        ] {
            assert_eq!(prefix(net).broadcast(), broadcast.map(|addr| addr.parse().unwrap()), "{net}");
        }
    }

    #[test]
    fn text_that_is_not_a_prefix_is_refused_and_quoted() {
        for text in ["", "10.0.0.1", "10.0.0.1/33", "::/129", "10.0.0/8", "10.0.0.1/x", "10.0.0.1/-1"] {
            let refusal = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(refusal.contains(&format!("{text:?}")), "{refusal}");
        }
        assert_eq!(prefix("fd00::1/64").to_string(), "fd00::1/64");
    }
}
