//! Addresses by which a socket is found: [`ToSocketAddrs`] and [`lookup_host`].
//!
//! An argument is either addresses or a name. A name is resolved by the resolver of the stack, in the caller's task; that of the machine blocks, so on a
//! runtime of `tokio` it is asked on one of the threads for blocking work. Does not depend on sockets. Tests: `tests/tokio/names.rs`, `tests/tokio/shape.rs`.

use std::io;
use std::net::SocketAddr;

use crate::base::names::{self, Addrs, Internal, Places, ToPlaces};
use crate::rt::handle::Stack;
use crate::rt::resolve::{self, Asked};

/// Arguments that are resolved to addresses without blocking the task, as `tokio::net::ToSocketAddrs`: addresses, and names with a port. It is
/// implemented for the same types, and sealed.
pub trait ToSocketAddrs: ToPlaces {}

impl<T: ToPlaces + ?Sized> ToSocketAddrs for T {}

/// The addresses of `host`, as the resolver of the current stack ([`Stack::current`]) has them; none, if it is a name that has none. May be cancelled.
///
/// Where the application has set no resolver ([`Stack::set_resolver`]), it is the machine's. On a runtime of `tokio`, that is asked on
/// one of its threads for blocking work; on another executor this **blocks** while a name is resolved.
///
/// # Errors
/// `InvalidInput` if it is no name with a port; those of the resolver.
pub async fn lookup_host<T: ToSocketAddrs>(host: T) -> io::Result<impl Iterator<Item = SocketAddr>> {
    lookup_host_on(&Stack::current(), host).await
}

/// [`lookup_host`] by the resolver of a stack of your own.
///
/// # Errors
/// As there.
pub async fn lookup_host_on<T: ToSocketAddrs>(
    stack: &Stack,
    host: T,
) -> io::Result<impl Iterator<Item = SocketAddr> + use<T>> {
    Ok(resolve(stack, host).await?.into_iter())
}

pub(super) async fn resolve(stack: &Stack, host: impl ToSocketAddrs) -> io::Result<Addrs> {
    let places = host.to_places(Internal);
    drop(host);
    match places {
        Places::Addrs(addrs) => Ok(addrs),
        Places::Invalid(reason) => Err(names::invalid(reason)),
        Places::Host(host, port) => match Asked::of(stack)? {
            Some(asked) => asked.ask(stack, &host, port).await,
            None => of_machine(host, port).await,
        },
    }
}

/// Tries an operation that does not wait with each address of `host` until it works.
pub(super) async fn each<R>(
    stack: &Stack,
    host: impl ToSocketAddrs,
    operation: impl FnMut(SocketAddr) -> io::Result<R>,
) -> io::Result<R> {
    resolve::try_each(resolve(stack, host).await?, operation)
}

async fn of_machine(host: String, port: u16) -> io::Result<Addrs> {
    match ::tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(move || resolve::of_machine(&host, port)).await?,
        Err(_) => resolve::of_machine(&host, port),
    }
}
