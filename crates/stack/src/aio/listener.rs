//! [`TcpListener`] of the asynchronous kind.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::task::{Context, Poll};

use super::{TcpStream, coop};
use crate::stack::Stack;

/// A listener in the shape of `tokio::net::TcpListener`. Several tasks may accept; each connection goes to
/// one of them.
#[derive(Debug)]
pub struct TcpListener {
    inner: crate::TcpListener,
}

impl TcpListener {
    /// Listens on the current stack ([`Stack::current`]).
    ///
    /// # Errors
    /// As for [`crate::TcpListener::bind`].
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::bind_on(&Stack::current(), addr).await
    }

    /// [`bind`](Self::bind) on a stack of your own. Asynchronous only in its shape: it never waits.
    ///
    /// # Errors
    /// As for [`crate::TcpListener::bind`].
    pub async fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<Self> {
        Self::from_std(crate::TcpListener::bind_on(stack, addr)?)
    }

    /// Wraps a listener of the blocking kind, which from now on does not block.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn from_std(inner: crate::TcpListener) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self { inner })
    }

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// None today.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// [`accept`](Self::accept) as a poll function.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        coop::poll(cx, |cx| match self.inner.listener.pop_or_register(cx.waker()) {
            None => Poll::Pending,
            Some(conn) => {
                let (stream, addr) = self.inner.adopt(conn);
                Poll::Ready(TcpStream::from_std(stream).map(|stream| (stream, addr)))
            }
        })
    }

    /// The address that is listened on.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}
