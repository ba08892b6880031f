//! [`TcpListener`] of the asynchronous kind.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use super::TcpStream;
use super::addr::{ToSocketAddrs, each};
use super::methods::{passed_methods, try_from_std};
use super::wait::{op, poll_op};
use crate::rt::handle::Stack;
use crate::rt::panics;
use crate::rt::tasks::Want;

/// A listener in the shape of `tokio::net::TcpListener`. Several tasks may accept; each connection goes to
/// one of them.
#[derive(Debug)]
pub struct TcpListener {
    inner: crate::tcp::socket::TcpListener,
}

impl TcpListener {
    /// Listens on the current stack ([`Stack::current`]).
    ///
    /// # Errors
    /// As for [`crate::TcpListener::bind`].
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::bind_on(&Stack::current(), addr).await
    }

    /// [`bind`](Self::bind) on a stack of your own. Waits only while a name is resolved.
    ///
    /// # Errors
    /// As for [`crate::TcpListener::bind`].
    pub async fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<Self> {
        Self::from_std(each(stack, addr, |addr| crate::tcp::socket::TcpListener::bind_on(stack, addr)).await?)
    }

    /// Wraps a listener of the blocking kind, which from now on does not block.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn from_std(inner: crate::tcp::socket::TcpListener) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self { inner })
    }

    /// The listener of the blocking kind inside. It stays non-blocking until told otherwise.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn into_std(self) -> io::Result<crate::tcp::socket::TcpListener> {
        Ok(self.inner)
    }

    /// The listener of the blocking kind, for its queries and options.
    pub fn get_ref(&self) -> &crate::tcp::socket::TcpListener {
        &self.inner
    }

    /// The next connection, and where it comes from. Any number of tasks may wait. May be cancelled: no connection is lost.
    ///
    /// # Errors
    /// `Other` if the task's waker panics while it is cloned.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        op(&self.inner, Want::Read, || self.try_accept()).await
    }

    /// [`accept`](Self::accept) as a poll function. Of several tasks that call it, the last is woken.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        poll_op(&self.inner, Want::Read, cx, || self.try_accept())
    }

    fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (core, listener) = self.inner.enter()?;
        panics::call(core, "accept", || {
            let child = listener.pop_oldest()?.ok_or(rustix::io::Errno::AGAIN)?;
            let (stream, addr) = self.inner.adopt(core, listener, child);
            Ok((TcpStream::accepted(stream)?, addr))
        })
    }
}

try_from_std!(TcpListener, crate::tcp::socket::TcpListener);
passed_methods!(TcpListener {
    /// The address that is listened on.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    local_addr() -> SocketAddr;

    /// The IP_TTL setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    ttl() -> u32;

    /// IP_TTL, or IPV6_UNICAST_HOPS, 1 to 255: see [`crate::TcpListener::set_ttl`].
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    set_ttl(ttl: u32) -> ();
});
