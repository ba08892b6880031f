//! Arguments that name an address: addresses, and names with a port.
//!
//! [`ToPlaces`] is what both traits named `ToSocketAddrs`, that of blocking calls and that of tasks, have in common. A text that is an address is
//! parsed here, so only names are left to be resolved. Does not depend on how that is done (`rt/resolve.rs`). Tests: below.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use smallvec::{SmallVec, smallvec};

/// Addresses in the order in which they are tried.
pub type Addrs = SmallVec<[SocketAddr; 1]>;

/// The places that an argument names.
#[derive(Debug)]
pub enum Places {
    Addrs(Addrs),
    /// A name and a port.
    Host(String, u16),
    /// Neither, for the reason.
    Invalid(&'static str),
}

/// Only this crate has one.
#[derive(Clone, Copy, Debug)]
pub struct Internal;

/// The types of which one can be made.
pub trait ToPlaces {
    #[doc(hidden)]
    fn to_places(&self, _: Internal) -> Places;
}

impl Places {
    #[inline]
    fn one(addr: SocketAddr) -> Self {
        Self::Addrs(smallvec![addr])
    }

    /// `HOST:PORT`, split at the last colon as in `std`.
    fn of_text(text: &str) -> Self {
        if let Ok(addr) = text.parse() {
            return Self::one(addr);
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Self::Invalid("invalid socket address");
        };
        port.parse().map_or(Self::Invalid("invalid port value"), |port| Self::at(host, port))
    }

    fn at(host: &str, port: u16) -> Self {
        host.parse::<IpAddr>()
            .map_or_else(|_| Self::Host(host.to_owned(), port), |addr| Self::one(SocketAddr::new(addr, port)))
    }
}

/// The error of a text that is no address, and no name with a port.
pub fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// The error of a call whose name has no address.
pub fn no_address() -> io::Error {
    invalid("the name has no address")
}

/// A type, and the places that a value of it names.
macro_rules! places {
    ($($type:ty, |$this:ident| $places:expr;)*) => {
        $(
            impl ToPlaces for $type {
                #[inline]
                fn to_places(&self, _: Internal) -> Places {
                    let $this = self;
                    $places
                }
            }
        )*
    };
}

places! {
    SocketAddr, |addr| Places::one(*addr);
    SocketAddrV4, |addr| Places::one((*addr).into());
    SocketAddrV6, |addr| Places::one((*addr).into());
    (IpAddr, u16), |addr| Places::one((*addr).into());
    (Ipv4Addr, u16), |addr| Places::one((*addr).into());
    (Ipv6Addr, u16), |addr| Places::one((*addr).into());
    &[SocketAddr], |addrs| Places::Addrs(SmallVec::from_slice(addrs));
    str, |text| Places::of_text(text);
    String, |text| Places::of_text(text);
    (&str, u16), |host| Places::at(host.0, host.1);
    (String, u16), |host| Places::at(&host.0, host.1);
}

impl<T: ToPlaces + ?Sized> ToPlaces for &T {
    #[inline]
    fn to_places(&self, _: Internal) -> Places {
        (**self).to_places(Internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(of: impl ToPlaces) -> String {
        match of.to_places(Internal) {
            Places::Addrs(addrs) => format!("{addrs:?}"),
            Places::Host(host, port) => format!("{host} at {port}"),
            Places::Invalid(reason) => reason.to_owned(),
        }
    }

    #[test]
    fn addresses_are_parsed_and_names_are_split_at_the_last_colon() {
        assert_eq!(places("10.0.0.1:80"), "[10.0.0.1:80]");
        assert_eq!(places("[::1]:80"), "[[::1]:80]");
        assert_eq!(places(("::1", 80)), "[[::1]:80]");
        assert_eq!(places((String::from("10.0.0.1"), 80)), "[10.0.0.1:80]");
        assert_eq!(places(&[SocketAddr::from(([10, 0, 0, 1], 1))][..]), "[10.0.0.1:1]");
        assert_eq!(places("server:80"), "server at 80");
        assert_eq!(places("::1:80"), "[[::1]:80]", "std's resolver takes such a host for an address, too");
        assert_eq!(places("a:b:80"), "a:b at 80");
        assert_eq!(places((":", 1)), ": at 1");
        assert_eq!(places(":80"), " at 80");
        assert_eq!(places(String::from("server")), "invalid socket address");
        assert_eq!(places("server:"), "invalid port value");
        assert_eq!(places("server:65536"), "invalid port value");
        assert_eq!(places("server:http"), "invalid port value");
    }
}
