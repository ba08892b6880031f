//! [`UnixListener`] and [`UnixSeqListener`]: wait for connections.
//!
//! Does not depend on how connections are made (`listen.rs`). Tests: `tests/unix/`.

use std::io;

use super::addr::SocketAddr;
use super::common::{bind_methods, socket_methods};
use super::pcb::Kind;
use super::sock::Sock;
use super::{UnixSeqpacket, UnixStream, contain, listen};
use crate::config::BACKLOG_MAX;
use crate::rt::fork::Held;
use crate::rt::handle::Stack;

macro_rules! listener {
    ($(#[$doc:meta])* $name:ident, $incoming:ident, $accepted:ident, $kind:expr) => {
        $(#[$doc])*
        pub struct $name {
            pub(crate) sock: Held<Sock>,
        }

        socket_methods!($name);
        bind_methods!($name, Self::bound);

        impl $name {
            fn bound(stack: &Stack, addr: &SocketAddr) -> io::Result<Self> {
                let sock = Sock::new(stack, $kind)?;
                contain::call(&sock, "bind", || super::shared(sock.core()).names.bind(&sock.pcb, addr))?;
                listen::listen(&sock, BACKLOG_MAX)?;
                Ok(Self { sock: Held::of(sock) })
            }

            /// The next connection, and the address of its peer. Blocks unless
            /// [`set_nonblocking`](Self::set_nonblocking).
            ///
            /// # Errors
            /// `WouldBlock`.
            pub fn accept(&self) -> io::Result<($accepted, SocketAddr)> {
                let sock = listen::accept(self.sock.open()?)?;
                let addr = sock.peer_addr()?;
                Ok(($accepted { sock: Held::of(sock) }, addr))
            }

            /// listen(2) again: another backlog, 0 to 4096. One more connection than that may wait.
            ///
            /// # Errors
            /// None today.
            pub fn set_backlog(&self, backlog: usize) -> io::Result<()> {
                Ok(listen::listen(self.sock.open()?, backlog)?)
            }

            /// The connections as they arrive, without end.
            pub fn incoming(&self) -> $incoming<'_> {
                $incoming { listener: self }
            }
        }

        /// The connections as they arrive.
        #[derive(Debug)]
        pub struct $incoming<'a> {
            listener: &'a $name,
        }

        impl Iterator for $incoming<'_> {
            type Item = io::Result<$accepted>;
            fn next(&mut self) -> Option<Self::Item> {
                Some(self.listener.accept().map(|(accepted, _)| accepted))
            }
        }

        impl<'a> IntoIterator for &'a $name {
            type Item = io::Result<$accepted>;
            type IntoIter = $incoming<'a>;
            fn into_iter(self) -> Self::IntoIter {
                self.incoming()
            }
        }
    };
}

listener! {
    /// Accepts streams, in the shape of `std::os::unix::net::UnixListener`.
    ///
    /// Dropping the last handle resets the connections that were not accepted. The pathname stays, and refuses
    /// connections, until [`Stack::unix_unlink`].
    UnixListener, Incoming, UnixStream, Kind::Stream
}

listener! {
    /// Accepts sequenced-packet connections; otherwise as [`UnixListener`].
    UnixSeqListener, SeqIncoming, UnixSeqpacket, Kind::Seqpacket
}
