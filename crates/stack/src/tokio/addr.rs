//! Addresses by which a socket is found: [`ToSocketAddrs`] and [`lookup_host`].
//!
//! An argument is either addresses or a name. A name is resolved by the system's resolver, which blocks: on a runtime of `tokio` that
//! happens on one of its threads for blocking work. Does not depend on sockets. Tests: `tests/tokio_shape.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use smallvec::{SmallVec, smallvec};

/// Arguments that can be resolved to addresses without blocking the task, as `tokio::net::ToSocketAddrs`: addresses, and names with a
/// port. It is implemented for the same types, and sealed.
pub trait ToSocketAddrs: sealed::ToPlaces {}

/// The addresses of `host`; none, if it is a name that has none.
///
/// On a runtime of `tokio`, a name is resolved on one of its threads for blocking work; on another executor this **blocks** while it is
/// resolved.
///
/// # Errors
/// `InvalidInput` if it is no name with a port; those of the system's resolver.
pub async fn lookup_host<T: ToSocketAddrs>(host: T) -> io::Result<impl Iterator<Item = SocketAddr>> {
    resolve(host).await
}

/// Addresses in the order in which they are tried.
pub(super) type Addrs = smallvec::IntoIter<[SocketAddr; 1]>;

pub(super) async fn resolve(host: impl ToSocketAddrs) -> io::Result<Addrs> {
    let places = host.to_places(sealed::Internal);
    drop(host);
    match places {
        sealed::Places::Addrs(addrs) => Ok(addrs.into_iter()),
        sealed::Places::Name(name) => look_up(move || std::net::ToSocketAddrs::to_socket_addrs(&name)).await,
        sealed::Places::Host(host, port) => {
            look_up(move || std::net::ToSocketAddrs::to_socket_addrs(&(&*host, port))).await
        }
    }
}

/// Tries an operation that does not wait with each address of `host` until it works.
pub(super) async fn each<R>(
    host: impl ToSocketAddrs,
    mut operation: impl FnMut(SocketAddr) -> io::Result<R>,
) -> io::Result<R> {
    let mut last = no_address();
    for addr in resolve(host).await? {
        match operation(addr) {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the name has no address")
}

async fn look_up<I: Iterator<Item = SocketAddr>>(
    resolver: impl FnOnce() -> io::Result<I> + Send + 'static,
) -> io::Result<Addrs> {
    let resolve = || resolver().map(|addrs| addrs.collect::<SmallVec<[SocketAddr; 1]>>().into_iter());
    match ::tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(resolve).await?,
        Err(_) => resolve(),
    }
}

mod sealed {
    use super::{SmallVec, SocketAddr};

    /// The addresses of an argument.
    pub enum Places {
        Addrs(SmallVec<[SocketAddr; 1]>),
        /// A name with a port, as text.
        Name(String),
        Host(String, u16),
    }

    /// Only this crate has one.
    pub struct Internal;

    pub trait ToPlaces {
        #[doc(hidden)]
        fn to_places(&self, _: Internal) -> Places;
    }
}

use sealed::{Internal, Places, ToPlaces};

impl Places {
    fn one(addr: SocketAddr) -> Self {
        Self::Addrs(smallvec![addr])
    }
}

/// A type of which the text or the address of one is made.
macro_rules! addrs {
    ($($type:ty, |$this:ident| $places:expr;)*) => {
        $(
            impl ToSocketAddrs for $type {}

            impl ToPlaces for $type {
                fn to_places(&self, _: Internal) -> Places {
                    let $this = self;
                    $places
                }
            }
        )*
    };
}

addrs! {
    SocketAddr, |addr| Places::one(*addr);
    SocketAddrV4, |addr| Places::one((*addr).into());
    SocketAddrV6, |addr| Places::one((*addr).into());
    (IpAddr, u16), |addr| Places::one((*addr).into());
    (Ipv4Addr, u16), |addr| Places::one((*addr).into());
    (Ipv6Addr, u16), |addr| Places::one((*addr).into());
    &[SocketAddr], |addrs| Places::Addrs(SmallVec::from_slice(addrs));
    str, |text| text.parse().map_or_else(|_| Places::Name(text.to_owned()), Places::one);
    String, |text| text.as_str().to_places(Internal);
    (&str, u16), |host| host_at(host.0, host.1);
    (String, u16), |host| host_at(&host.0, host.1);
}

fn host_at(host: &str, port: u16) -> Places {
    host.parse::<IpAddr>()
        .map_or_else(|_| Places::Host(host.to_owned(), port), |addr| Places::one(SocketAddr::new(addr, port)))
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {}

impl<T: ToPlaces + ?Sized> ToPlaces for &T {
    fn to_places(&self, _: Internal) -> Places {
        (**self).to_places(Internal)
    }
}
