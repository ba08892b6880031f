//! [`UnixListener`] and [`UnixSeqListener`] of the asynchronous kind.
//!
//! Does not depend on how connections are made. Tests: `tests/unix/tokio.rs`.

use std::io;
use std::path::Path;
use std::task::{Context, Poll, ready};

use super::super::wait::{op, poll_op};
use super::{UnixSeqpacket, UnixStream, address, wrapper_methods};
use crate::rt::fork::Held;
use crate::rt::handle::Stack;
use crate::rt::tasks::Want;
use crate::tokio::ready::Assumed;
use crate::unix::SocketAddr;
use crate::unix::listen;
use crate::unix::sock::Sock;

macro_rules! listener {
    ($(#[$doc:meta])* $type:ident, $accepted:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $type {
            inner: crate::unix::$type,
        }

        wrapper_methods!($type);

        impl $type {
            /// Listens at this pathname, on the current stack ([`Stack::current`]). Never waits.
            ///
            /// # Errors
            /// As for the blocking type.
            pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
                Self::bind_addr_on(&Stack::current(), &address(path)?)
            }

            /// Listens at an address, on the current stack. Never waits.
            ///
            /// # Errors
            /// As for the blocking type.
            pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
                Self::bind_addr_on(&Stack::current(), addr)
            }

            /// Listens at an address, on a stack of your own.
            ///
            /// # Errors
            /// As for the blocking type.
            pub fn bind_addr_on(stack: &Stack, addr: &SocketAddr) -> io::Result<Self> {
                Self::from_std(crate::unix::$type::bind_addr_on(stack, addr)?)
            }

            /// The next connection, and the address of its peer. Any number of tasks may wait; each
            /// connection goes to one of them. May be cancelled: no connection is lost.
            ///
            /// # Errors
            /// `Other` if the task's waker panics while it is cloned.
            pub async fn accept(&self) -> io::Result<($accepted, SocketAddr)> {
                Self::accepted(op(&self.inner.sock, Want::Read, || self.take()).await?)
            }

            /// [`accept`](Self::accept) as a poll function.
            pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<($accepted, SocketAddr)>> {
                let sock = ready!(poll_op(&self.inner.sock, Want::Read, cx, || self.take()))?;
                Poll::Ready(Self::accepted(sock))
            }

            fn take(&self) -> io::Result<Sock> {
                Ok(listen::accept_for_task(self.inner.sock.open()?)?)
            }

            fn accepted(sock: Sock) -> io::Result<($accepted, SocketAddr)> {
                let addr = sock.peer_addr()?;
                let mut accepted = $accepted::from_std(crate::unix::$accepted { sock: Held::of(sock) })?;
                accepted.assumed = Assumed::of_accepted();
                Ok((accepted, addr))
            }
        }
    };
}

listener! {
    /// A listener in the shape of `tokio::net::UnixListener`.
    UnixListener, UnixStream
}

listener! {
    /// A listener for sequenced-packet connections; otherwise as [`UnixListener`].
    UnixSeqListener, UnixSeqpacket
}
