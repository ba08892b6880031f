//! How names become addresses: the resolver of a stack.
//!
//! Calls of both kinds come here with a name that is no address (`base/names.rs` has parsed those). A stack asks the application's [`Resolve`] if
//! it has one, else the machine's resolver. A task polls the resolver's future in its own; a blocking call polls it on its thread.
//!
//! The resolver is foreign code: it is called, polled and dropped with no lock held, and a panic in it is caught, reported and the failure of the
//! call that asked. Does not depend on sockets. Tests: `tests/tokio/names.rs`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::base::names::{self, Addrs, Internal, Places, ToPlaces};
use crate::rt::asked::{self, Slot};
use crate::rt::env::Env;
use crate::rt::handle::Stack;
use crate::rt::panics::{self, PanicSource};

/// A resolver of host names on a stack: [`Stack::set_resolver`].
///
/// The stack calls it for each name in a call of `sockeye` or `sockeye::tokio` on this stack, such as
/// `connect("server:80")`, `bind` or `lookup_host`. It does not call it for addresses: `"10.0.0.1:80"`, `"[::1]:80"`
/// and `("::1", 80)` are parsed. The stack does not cache answers.
///
/// ```
/// use std::net::{IpAddr, SocketAddr};
/// use sockeye::{Config, Resolve, Resolving, Stack, TcpListener, TcpStream};
///
/// struct OneName(IpAddr);
///
/// impl Resolve for OneName {
///     fn resolve<'a>(&'a self, _: &'a Stack, host: &'a str, port: u16) -> Resolving<'a> {
///         Box::pin(async move {
///             if host == "server" {
///                 Ok(vec![SocketAddr::new(self.0, port)])
///             } else {
///                 Err(std::io::Error::other(format!("{host} is not known: there is only server")))
///             }
///         })
///     }
/// }
///
/// let stack = Stack::new(Config::default())?;
/// stack.set_resolver(Some(Box::new(OneName([127, 0, 0, 1].into()))));
/// let listener = TcpListener::bind_on(&stack, "server:80")?;
/// assert!(TcpStream::connect_on(&stack, "server:80").is_ok());
/// assert!(TcpStream::connect_on(&stack, "client:80").is_err());
/// # std::io::Result::Ok(())
/// ```
pub trait Resolve: Send + Sync {
    /// Resolves `host`, the part before the last colon: any text that is not an address, even an empty one. `port` is
    /// the caller's; the addresses are returned with the port to use, which is usually the same. `stack` is the stack
    /// on which the name is used. A resolver that sends queries over that stack need not store a handle of it, which
    /// would keep the stack alive.
    ///
    /// The caller tries the addresses in the order in which they are returned, the first 64 of them (`send_to` only the
    /// first). If there is no address, all calls except `lookup_host` fail with `InvalidInput`; an error is passed on
    /// unchanged.
    ///
    /// The task that made the call polls the future, on any executor; for a blocking call, the calling thread does,
    /// which is parked in between. The future must not block. It is dropped unfinished when the task gives up. The
    /// stack sets no timeout: the resolver must. With a stack that has no threads
    /// ([`Config::workers`](crate::Config::workers) of 0), a future that waits for that stack can only end if another
    /// thread, or the caller's executor, drives it.
    ///
    /// A panic, here or in the future, is caught and reported ([`Stack::set_panic_hook`]), and the call fails with `Other`.
    fn resolve<'a>(&'a self, stack: &'a Stack, host: &'a str, port: u16) -> Resolving<'a>;
}

/// The future of [`Resolve::resolve`].
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Address arguments of blocking calls, in place of [`std::net::ToSocketAddrs`]: the trait is implemented for the same
/// types, and sealed. The [resolver of the stack](Stack::set_resolver) resolves names, which a type's own
/// implementation could not do.
pub trait ToSocketAddrs: ToPlaces {
    /// The addresses, on the current stack ([`Stack::current`]). **Blocks** if the argument is a name.
    ///
    /// # Errors
    /// `InvalidInput` for a text that is neither an address with a port nor a name with one; those of the stack's resolver.
    fn to_socket_addrs(&self) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        self.to_socket_addrs_on(&Stack::current())
    }

    /// [`to_socket_addrs`](Self::to_socket_addrs) with the resolver of another stack.
    ///
    /// # Errors
    /// As there.
    fn to_socket_addrs_on(&self, stack: &Stack) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        Ok(resolve(stack, self)?.into_vec().into_iter())
    }
}

impl<T: ToPlaces + ?Sized> ToSocketAddrs for T {}

/// The resolver that the application has set.
pub(crate) type Resolver = Slot<dyn Resolve>;

/// A resolver that is kept while it is asked.
pub(crate) type Asked = asked::Asked<dyn Resolve>;

impl Asked {
    /// The resolver of a stack; `None` if it is the machine's.
    ///
    /// # Errors
    /// That of a stack which this process may not use.
    pub fn of(stack: &Stack) -> io::Result<Option<Self>> {
        Ok(stack.core::<Env>()?.resolver.get())
    }

    /// The addresses of a name.
    pub async fn ask(self, stack: &Stack, host: &str, port: u16) -> io::Result<Addrs> {
        let env: &Env = stack.core()?;
        let Some(resolver) = self.value() else { return Err(panicked()) };
        let begin = || resolver.resolve(stack, host, port);
        let begun = panics::contain(env, PanicSource::Hook, "Resolve::resolve", begin);
        let mut addrs = Contained { env, future: begun }.await?;
        addrs.truncate(ADDRS_MAX);
        Ok(addrs.into())
    }
}

/// Addresses of a name that are tried.
const ADDRS_MAX: usize = 64;

/// A future of the application whose panics are caught; none if it has panicked.
struct Contained<'a> {
    env: &'a Env,
    future: Option<Resolving<'a>>,
}

impl Contained<'_> {
    fn end(&mut self) {
        panics::release(self.env, PanicSource::Hook, "the drop of Resolve's future", self.future.take());
    }
}

impl Future for Contained<'_> {
    type Output = io::Result<Vec<SocketAddr>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(future) = &mut this.future else { return Poll::Ready(Err(panicked())) };
        let poll = || future.as_mut().poll(cx);
        let Some(polled) = panics::contain(this.env, PanicSource::Hook, "Resolve's future", poll) else {
            this.end();
            return Poll::Ready(Err(panicked()));
        };
        polled
    }
}

impl Drop for Contained<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn panicked() -> io::Error {
    io::Error::other("the resolver of the stack panicked")
}

/// The addresses that an argument of a blocking call names. Blocks if it is a name.
pub(crate) fn resolve(stack: &Stack, host: &(impl ToPlaces + ?Sized)) -> io::Result<Addrs> {
    match host.to_places(Internal) {
        Places::Addrs(addrs) => Ok(addrs),
        Places::Invalid(reason) => Err(names::invalid(reason)),
        Places::Host(host, port) => match Asked::of(stack)? {
            Some(asked) => pollster::block_on(asked.ask(stack, &host, port)),
            None => of_machine(&host, port),
        },
    }
}

/// Tries an operation with each address until it works; the last error otherwise.
pub(crate) fn each<R>(
    stack: &Stack,
    host: &(impl ToPlaces + ?Sized),
    operation: impl FnMut(SocketAddr) -> io::Result<R>,
) -> io::Result<R> {
    try_each(resolve(stack, host)?, operation)
}

/// [`each`] of addresses that are there.
pub(crate) fn try_each<R>(
    addrs: Addrs,
    mut operation: impl FnMut(SocketAddr) -> io::Result<R>,
) -> io::Result<R> {
    let mut last = names::no_address();
    for addr in addrs {
        match operation(addr) {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The answer of the machine's resolver. Blocks.
pub(crate) fn of_machine(host: &str, port: u16) -> io::Result<Addrs> {
    std::net::ToSocketAddrs::to_socket_addrs(&(host, port)).map(Iterator::collect)
}
