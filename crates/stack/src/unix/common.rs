//! Methods of every public type: options, addresses, queries. A macro, so that the methods stand on the types
//! themselves, as in `std`.
//!
//! Does not depend on how data moves. Tests: `tests/unix/`.

use std::io;

use sockeye_sync::facade::{Arc, Ordering};

use super::addr::SocketAddr;
use super::ancillary::UCred;
use super::locking::{Chosen, Locking};
use super::pcb::{Kind, Pcb};
use super::sock::{Sock, wants_creds};
use super::wakes::Wakes;
use crate::config::{BUFFER_MAX, BUFFER_MIN};

impl Sock {
    pub fn local_addr(&self) -> SocketAddr {
        SocketAddr(self.pcb.name.get().cloned())
    }

    /// The peer, wherever it is stored.
    pub fn current_peer(&self) -> Option<Arc<Pcb>> {
        if self.pcb.kind.is_connected() {
            return self.connection();
        }
        Chosen::with_datagram_peer(self.core(), &self.pcb, self.peer.as_ref(), Arc::clone)
    }

    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.current_peer().ok_or(rustix::io::Errno::NOTCONN)?;
        Ok(SocketAddr(peer.name.get().cloned()))
    }

    pub fn peer_cred(&self) -> UCred {
        // The peer is a socket of this process; one that was never paired or connected has none.
        if self.peer.is_some() { UCred::of_process_effective() } else { UCred::NO_PEER }
    }

    pub fn set_passcred(&self, passcred: bool) {
        self.pcb.options.passcred.store(passcred, Ordering::Relaxed);
        let Some(peer) = self.connection() else { return };
        for pcb in [&self.pcb, &peer] {
            let mut so = pcb.so.lock();
            so.wants_creds = wants_creds(&self.pcb, &peer);
        }
    }

    pub fn set_sndbuf(&self, bytes: usize) {
        let bytes = clamped(bytes);
        self.pcb.options.sndbuf.store(bytes, Ordering::Relaxed);
        if let Some(peer) = self.connection() {
            let mut wakes = Wakes::new(self.core());
            let mut so = peer.so.lock();
            so.hiwat = bytes as usize;
            wakes.writers(&peer, &mut so);
            drop(so);
            wakes.fire();
        }
    }

    pub fn set_rcvbuf(&self, bytes: usize) {
        self.pcb.options.rcvbuf.store(clamped(bytes), Ordering::Relaxed);
    }

    /// SIOCINQ: for a datagram socket, the length of the next datagram.
    pub fn bytes_readable(&self) -> usize {
        let so = self.pcb.so.lock();
        match self.pcb.kind {
            Kind::Stream | Kind::Seqpacket => so.data.len(),
            Kind::Datagram => so.records.first().map_or(0, |(len, _)| len),
        }
    }

    /// SIOCOUTQ: sent bytes that the peer has not received yet.
    pub fn bytes_unsent(&self) -> usize {
        let Some(peer) = self.current_peer() else { return 0 };
        let so = peer.so.lock();
        match self.pcb.kind {
            Kind::Stream | Kind::Seqpacket => so.data.len(),
            Kind::Datagram => so.flows.bytes_of(&self.pcb),
        }
    }
}

fn clamped(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).clamp(BUFFER_MIN, BUFFER_MAX)
}

/// The methods of every type.
macro_rules! socket_methods {
    ($type:ident) => {
        impl $type {
            /// Another handle of the same socket.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn try_clone(&self) -> std::io::Result<Self> {
                Ok(Self { sock: $crate::rt::fork::Held::of(self.sock.open()?.clone()) })
            }

            /// The socket's own address.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn local_addr(&self) -> std::io::Result<$crate::unix::SocketAddr> {
                Ok(self.sock.open()?.local_addr())
            }

            /// Makes calls fail with `WouldBlock` (EAGAIN) where they would block.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                let option = &self.sock.open()?.pcb.options.nonblocking;
                option.store(nonblocking, sockeye_sync::facade::Ordering::Relaxed);
                Ok(())
            }

            /// SO_ERROR: takes the pending error, if there is one.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                Ok(self.sock.open()?.take_error().map(std::io::Error::from))
            }

            /// SO_PASSCRED: receive the credentials of the sender.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn set_passcred(&self, passcred: bool) -> std::io::Result<()> {
                self.sock.open()?.set_passcred(passcred);
                Ok(())
            }

            /// Whether SO_PASSCRED is set.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn passcred(&self) -> std::io::Result<bool> {
                Ok(self.sock.open()?.pcb.options.passcred.load(sockeye_sync::facade::Ordering::Relaxed))
            }

            /// SO_SNDBUF: how many bytes that this socket has sent may wait unread. Limited to 2 KiB to 64 MiB.
            ///
            /// # Errors
            /// None today.
            pub fn set_send_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                self.sock.open()?.set_sndbuf(bytes);
                Ok(())
            }

            /// The SO_SNDBUF setting: twice the bytes that it allows, as Linux returns it (socket(7)).
            ///
            /// # Errors
            /// None today.
            pub fn send_buffer_size(&self) -> std::io::Result<usize> {
                Ok(2 * self.sock.open()?.pcb.options.sndbuf.load(sockeye_sync::facade::Ordering::Relaxed)
                    as usize)
            }

            /// SO_RCVBUF: stored, without effect, as on Linux: the sender's SO_SNDBUF bounds the waiting bytes.
            ///
            /// # Errors
            /// None today.
            pub fn set_recv_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                self.sock.open()?.set_rcvbuf(bytes);
                Ok(())
            }

            /// The SO_RCVBUF setting: twice the bytes that were set, as Linux returns it (socket(7)).
            ///
            /// # Errors
            /// None today.
            pub fn recv_buffer_size(&self) -> std::io::Result<usize> {
                Ok(2 * self.sock.open()?.pcb.options.rcvbuf.load(sockeye_sync::facade::Ordering::Relaxed)
                    as usize)
            }

            /// SO_RCVTIMEO: how long a receive or accept may block; then it fails with `WouldBlock`.
            /// `None`: for ever.
            ///
            /// # Errors
            /// `InvalidInput` for zero.
            pub fn set_read_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                $crate::rt::blocking::store_timeout(&self.sock.open()?.pcb.options.read_timeout, timeout)
            }

            /// The SO_RCVTIMEO setting.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok($crate::rt::blocking::load_timeout(&self.sock.open()?.pcb.options.read_timeout))
            }

            /// SO_SNDTIMEO: how long a send or connect may block; then it fails with `WouldBlock`. `None`: for
            /// ever.
            ///
            /// # Errors
            /// `InvalidInput` for zero.
            pub fn set_write_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                $crate::rt::blocking::store_timeout(&self.sock.open()?.pcb.options.write_timeout, timeout)
            }

            /// The SO_SNDTIMEO setting.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok($crate::rt::blocking::load_timeout(&self.sock.open()?.pcb.options.write_timeout))
            }

            /// Closes one direction or both. A listener whose reading side is closed refuses connections, and `accept`
            /// fails with EINVAL once the backlog is empty.
            ///
            /// # Errors
            /// None today.
            pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
                let (read, write) = match how {
                    std::net::Shutdown::Read => (true, false),
                    std::net::Shutdown::Write => (false, true),
                    std::net::Shutdown::Both => (true, true),
                };
                self.sock.open()?.shutdown(read, write);
                Ok(())
            }

            /// The socket's stack.
            pub fn stack(&self) -> &$crate::rt::handle::Stack {
                self.sock.stack()
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut debug = f.debug_struct(stringify!($type));
                if let Ok(sock) = self.sock.open() {
                    debug.field("local", &sock.local_addr());
                    if let Ok(peer) = sock.peer_addr() {
                        debug.field("peer", &peer);
                    }
                }
                debug.finish()
            }
        }

        impl $crate::rt::poll::sealed::Source for $type {
            fn owner(&self) -> &$crate::rt::handle::Stack {
                self.stack()
            }

            #[allow(private_interfaces)]
            fn target(&self) -> std::io::Result<Box<dyn $crate::rt::poll::Target>> {
                Ok(Box::new($crate::unix::ready::End::of(self.sock.open()?)))
            }
        }

        impl $crate::rt::poll::Pollable for $type {}
    };
}
pub(super) use socket_methods;

/// The methods of types that send and receive.
macro_rules! data_methods {
    ($type:ident, $kind:expr) => {
        impl $type {
            /// Two sockets that are connected to each other, of the current stack ([`Stack::current`](crate::Stack::current)).
            ///
            /// # Errors
            /// None today.
            pub fn pair() -> std::io::Result<(Self, Self)> {
                Self::pair_on(&$crate::rt::handle::Stack::current())
            }

            /// [`pair`](Self::pair) of a stack of your own.
            ///
            /// # Errors
            /// None today.
            pub fn pair_on(stack: &$crate::rt::handle::Stack) -> std::io::Result<(Self, Self)> {
                let (a, b) = Sock::pair(stack, $kind)?;
                Ok((Self { sock: Held::of(a) }, Self { sock: Held::of(b) }))
            }

            /// The address of the peer.
            ///
            /// # Errors
            /// `NotConnected` (ENOTCONN).
            pub fn peer_addr(&self) -> std::io::Result<$crate::unix::SocketAddr> {
                self.sock.open()?.peer_addr()
            }

            /// SO_PEERCRED: the credentials of the peer. It is a socket of this process, so these are its own.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn peer_cred(&self) -> std::io::Result<$crate::unix::UCred> {
                Ok(self.sock.open()?.peer_cred())
            }

            /// SIOCINQ: bytes that can be received; for a datagram socket, those of the next datagram.
            ///
            /// # Errors
            /// None today.
            pub fn bytes_readable(&self) -> std::io::Result<usize> {
                Ok(self.sock.open()?.bytes_readable())
            }

            /// SIOCOUTQ: bytes sent that the peer has not received yet.
            ///
            /// # Errors
            /// None today.
            pub fn bytes_unsent(&self) -> std::io::Result<usize> {
                Ok(self.sock.open()?.bytes_unsent())
            }
        }
    };
}
pub(super) use data_methods;

/// The constructors of types that are connected from the start.
macro_rules! connect_methods {
    ($type:ident, $kind:expr) => {
        impl $type {
            /// Connects to the listener of this pathname, on the current stack ([`Stack::current`](crate::Stack::current)). Blocks
            /// while its backlog is full.
            ///
            /// # Errors
            /// `NotFound` (ENOENT), `ConnectionRefused` (no listener), EPROTOTYPE (another type of socket).
            pub fn connect<P: AsRef<std::path::Path>>(path: P) -> std::io::Result<Self> {
                Self::connect_on(&$crate::rt::handle::Stack::current(), path)
            }

            /// [`connect`](Self::connect) on a stack of your own.
            ///
            /// # Errors
            /// As for [`connect`](Self::connect).
            pub fn connect_on<P: AsRef<std::path::Path>>(
                stack: &$crate::rt::handle::Stack,
                path: P,
            ) -> std::io::Result<Self> {
                Self::connect_addr_on(stack, &$crate::unix::SocketAddr::from_pathname(path)?)
            }

            /// Connects to an address, on the current stack.
            ///
            /// # Errors
            /// As for [`connect`](Self::connect).
            pub fn connect_addr(addr: &$crate::unix::SocketAddr) -> std::io::Result<Self> {
                Self::connect_addr_on(&$crate::rt::handle::Stack::current(), addr)
            }

            /// [`connect_addr`](Self::connect_addr) on a stack of your own.
            ///
            /// # Errors
            /// As for [`connect`](Self::connect).
            pub fn connect_addr_on(
                stack: &$crate::rt::handle::Stack,
                addr: &$crate::unix::SocketAddr,
            ) -> std::io::Result<Self> {
                Ok(Self { sock: Held::of(listen::connect(&Sock::new(stack, $kind)?, addr)?) })
            }
        }
    };
}
pub(super) use connect_methods;

/// The constructors of types that have a name from the start; `$bound` makes a bound socket of a stack and an address.
macro_rules! bind_methods {
    ($type:ident, $bound:expr) => {
        impl $type {
            /// A socket of the current stack ([`Stack::current`](crate::Stack::current)), bound to this pathname. A listener listens
            /// with the largest backlog, as in `std`.
            ///
            /// # Errors
            /// `AddrInUse`; EINVAL (no pathname), ENOTDIR.
            pub fn bind<P: AsRef<std::path::Path>>(path: P) -> std::io::Result<Self> {
                Self::bind_on(&$crate::rt::handle::Stack::current(), path)
            }

            /// [`bind`](Self::bind) on a stack of your own.
            ///
            /// # Errors
            /// As for [`bind`](Self::bind).
            pub fn bind_on<P: AsRef<std::path::Path>>(
                stack: &$crate::rt::handle::Stack,
                path: P,
            ) -> std::io::Result<Self> {
                Self::bind_addr_on(stack, &$crate::unix::SocketAddr::from_pathname(path)?)
            }

            /// A socket of the current stack, bound to an address; an unnamed one takes an abstract name that is free.
            ///
            /// # Errors
            /// As for [`bind`](Self::bind).
            pub fn bind_addr(addr: &$crate::unix::SocketAddr) -> std::io::Result<Self> {
                Self::bind_addr_on(&$crate::rt::handle::Stack::current(), addr)
            }

            /// [`bind_addr`](Self::bind_addr) on a stack of your own.
            ///
            /// # Errors
            /// As for [`bind`](Self::bind).
            pub fn bind_addr_on(
                stack: &$crate::rt::handle::Stack,
                addr: &$crate::unix::SocketAddr,
            ) -> std::io::Result<Self> {
                $bound(stack, addr)
            }
        }
    };
}
pub(super) use bind_methods;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Config, Stack};

    #[test]
    fn a_wish_for_credentials_stands_while_the_other_end_takes_its_own_back() {
        let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
        let (a, b) = Sock::pair(&stack, Kind::Stream).unwrap();
        b.set_passcred(true);
        std::thread::scope(|scope| {
            let held = b.pcb.so.lock();
            scope.spawn(|| b.set_passcred(false));
            while b.pcb.options.passcred.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            // It comes to the lock, if it is not there yet.
            std::thread::sleep(Duration::from_millis(20));
            a.pcb.so.lock().wants_creds = false;
            scope.spawn(|| a.set_passcred(true));
            while !a.pcb.so.lock().wants_creds {
                std::thread::yield_now();
            }
            drop(held);
        });
        assert!(a.pcb.so.lock().wants_creds && b.pcb.so.lock().wants_creds);
    }
}
