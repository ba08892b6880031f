//! [`TcpSocket`] of the asynchronous kind: a socket before it connects or listens.
//!
//! Options are set by `&self`, as in `tokio`, so a mutex is around the socket of the blocking kind. Nothing here waits but
//! [`connect`](TcpSocket::connect). Tests: `tests/tokio/shape.rs`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use sockeye_sync::Mutex;

use super::{TcpListener, TcpStream};
use crate::rt::handle::Stack;

/// A TCP socket that neither is connected nor listens yet, in the shape of `tokio::net::TcpSocket`.
#[derive(Debug)]
pub struct TcpSocket {
    pub(super) inner: Mutex<crate::tcp::socket::TcpSocket>,
}

impl TcpSocket {
    /// An IPv4 socket of the current stack ([`Stack::current`]).
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn new_v4() -> io::Result<Self> {
        Ok(Self::from_std(crate::tcp::socket::TcpSocket::new_v4(&Stack::current())))
    }

    /// An IPv6 socket of the current stack ([`Stack::current`]), which also accepts IPv4 peers.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn new_v6() -> io::Result<Self> {
        Ok(Self::from_std(crate::tcp::socket::TcpSocket::new_v6(&Stack::current())))
    }

    /// Wraps a blocking socket: one of another stack, or one with options that are not here.
    pub fn from_std(inner: crate::tcp::socket::TcpSocket) -> Self {
        Self { inner: Mutex::new(inner) }
    }

    /// The blocking socket inside.
    pub fn into_std(self) -> crate::tcp::socket::TcpSocket {
        self.inner.into_inner()
    }

    /// Binds to a local address; port 0 chooses a free port.
    ///
    /// # Errors
    /// As for [`crate::TcpSocket::bind`].
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        self.inner.lock().bind(addr)
    }

    /// Connects to `addr`. May be cancelled, which closes the connection.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::connect`].
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_with(self.into_std(), addr).await
    }

    /// Connects to `addr` with as much of `data` on the SYN as Fast Open allows (`sendto` with `MSG_FASTOPEN`). After
    /// the handshake, returns the stream and how many bytes of `data` it took: none without a cookie of the peer. May
    /// be cancelled, which closes the connection.
    ///
    /// # Errors
    /// As for [`crate::TcpSocket::connect_with`].
    pub async fn connect_with(self, addr: SocketAddr, data: &[u8]) -> io::Result<(TcpStream, usize)> {
        TcpStream::connect_with_text(self.into_std(), addr, data).await
    }

    /// Turns the socket into a listener; an unbound one gets a free port. At most `backlog` (1 to 4096) connections
    /// wait to be accepted.
    ///
    /// # Errors
    /// As for [`crate::TcpSocket::listen`].
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
        TcpListener::from_std(self.into_std().listen(backlog)?)
    }

    /// The address to which the socket is bound; the wildcard and port 0 before it is bound.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.inner.lock().bound_addr())
    }

    /// SO_ERROR: the socket has none yet.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }

    /// SO_LINGER of zero: dropping the stream resets the connection, and unsent data is dropped.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }

    /// SO_LINGER: see [`TcpStream::set_linger`].
    ///
    /// # Errors
    /// As for [`crate::TcpStream::set_linger`].
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.inner.lock().set_linger(linger)
    }

    /// SO_SNDBUF, bytes, limited to 2 KiB to 64 MiB.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn set_send_buffer_size(&self, bytes: u32) -> io::Result<()> {
        self.inner.lock().set_send_buffer_size(bytes as usize);
        Ok(())
    }

    /// The SO_SNDBUF setting: twice the bytes that it allows, as Linux returns it (socket(7)).
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        Ok(u32::try_from(self.inner.lock().send_buffer_size()).unwrap_or(u32::MAX))
    }

    /// SO_RCVBUF, bytes, limited to 2 KiB to 64 MiB.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn set_recv_buffer_size(&self, bytes: u32) -> io::Result<()> {
        self.inner.lock().set_recv_buffer_size(bytes as usize);
        Ok(())
    }

    /// The SO_RCVBUF setting: twice the bytes that were set, as Linux returns it (socket(7)).
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        Ok(u32::try_from(self.inner.lock().recv_buffer_size()).unwrap_or(u32::MAX))
    }

    /// The IPV6_TCLASS setting.
    ///
    /// # Errors
    /// EOPNOTSUPP for an IPv4 socket.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        let inner = self.inner.lock();
        if inner.is_v6() { Ok(inner.tos()) } else { Err(Errno::OPNOTSUPP.into()) }
    }

    /// IPV6_TCLASS: the DSCP of segments, in the upper six bits; the stack sets the two ECN bits.
    ///
    /// # Errors
    /// EOPNOTSUPP for an IPv4 socket, EINVAL for more than an octet.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        let mut inner = self.inner.lock();
        if !inner.is_v6() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let tclass = u8::try_from(tclass).map_err(|_| Errno::INVAL)?;
        inner.set_tos(tclass.into());
        Ok(())
    }

    /// [`tos_v4`](Self::tos_v4), by its older name.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn tos(&self) -> io::Result<u32> {
        self.tos_v4()
    }

    /// [`set_tos_v4`](Self::set_tos_v4), by its older name.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn set_tos(&self, tos: u32) -> io::Result<()> {
        self.set_tos_v4(tos)
    }
}

/// An option of which setting and telling cannot fail.
macro_rules! options {
    ($($(#[$doc:meta])* $set:ident, $get:ident, $type:ty, $inner_set:ident, $inner_get:ident;)*) => {
        impl TcpSocket {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// None; the signature is that of `tokio`.
                pub fn $set(&self, value: $type) -> io::Result<()> {
                    self.inner.lock().$inner_set(value);
                    Ok(())
                }

                /// The value set.
                ///
                /// # Errors
                /// None; the signature is that of `tokio`.
                pub fn $get(&self) -> io::Result<$type> {
                    Ok(self.inner.lock().$inner_get())
                }
            )*
        }
    };
}

options! {
    /// SO_KEEPALIVE of the connection, or of a listener's connections.
    set_keepalive, keepalive, bool, set_keepalive, keepalive;
    /// SO_REUSEADDR. Set it before [`bind`](Self::bind).
    set_reuseaddr, reuseaddr, bool, set_reuse_address, reuse_address;
    /// SO_REUSEPORT. Listeners that all set it share a port; connections are spread by their hash.
    set_reuseport, reuseport, bool, set_reuse_port, reuse_port;
    /// TCP_NODELAY of the connection, or of a listener's connections.
    set_nodelay, nodelay, bool, set_nodelay, nodelay;
    /// IP_TOS: the DSCP of segments, in the upper six bits; the stack sets the two ECN bits.
    set_tos_v4, tos_v4, u32, set_tos, tos;
}

impl TcpSocket {
    /// The SO_LINGER setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.lock().linger())
    }
}
