//! Settings of a [`TcpSocket`], and options that it has beside those of its connection.
//!
//! Tests: `tests/tokio/shape.rs`.

use std::io;
use std::time::Duration;

use super::TcpSocket;
use super::keepalive::user_timeout_of;
use super::stream::{linger_ms, linger_of};

impl TcpSocket {
    /// Whether SO_REUSEADDR is set.
    pub fn reuse_address(&self) -> bool {
        self.settings.reuse_addr
    }

    /// Whether SO_REUSEPORT is set.
    pub fn reuse_port(&self) -> bool {
        self.settings.reuse_port
    }

    /// Whether IPV6_V6ONLY is set.
    pub fn only_v6(&self) -> bool {
        self.settings.v6_only
    }

    /// The TCP_USER_TIMEOUT that was set.
    pub fn user_timeout(&self) -> Option<Duration> {
        user_timeout_of(self.settings.user_timeout_ms)
    }

    /// Whether TCP_NODELAY is set.
    pub fn nodelay(&self) -> bool {
        self.settings.nodelay
    }

    /// SO_KEEPALIVE of the connection, or of a listener's connections, with the times that were set before, or of
    /// [`TcpConfig`](crate::TcpConfig).
    pub fn set_keepalive(&mut self, keepalive: bool) {
        self.settings.keepalive.enabled = keepalive;
    }

    /// Whether SO_KEEPALIVE is set.
    pub fn keepalive(&self) -> bool {
        self.settings.keepalive.enabled
    }

    /// SO_LINGER of the connection, or of a listener's connections: see [`TcpStream::set_linger`](crate::TcpStream::set_linger).
    ///
    /// # Errors
    /// `InvalidInput` for more than 49 days.
    pub fn set_linger(&mut self, linger: Option<Duration>) -> io::Result<()> {
        self.settings.linger_ms = linger_ms(linger)?;
        Ok(())
    }

    /// The SO_LINGER setting.
    pub fn linger(&self) -> Option<Duration> {
        linger_of(self.settings.linger_ms)
    }

    /// The SO_SNDBUF setting: twice the bytes of payload that it allows, as Linux returns it (socket(7)).
    pub fn send_buffer_size(&self) -> usize {
        2 * self.settings.sndbuf as usize
    }

    /// The SO_RCVBUF setting: twice the bytes of payload that it allows, as Linux returns it (socket(7)).
    pub fn recv_buffer_size(&self) -> usize {
        2 * self.settings.rcvbuf as usize
    }

    /// The IP_TOS, or IPV6_TCLASS, setting.
    pub fn tos(&self) -> u32 {
        self.settings.tos_ttl.tos.into()
    }

    /// Where the socket is bound; the wildcard and port 0 before it is.
    #[cfg(feature = "tokio")]
    pub(crate) fn bound_addr(&self) -> std::net::SocketAddr {
        self.local_addr().unwrap_or_else(|| std::net::SocketAddr::new(self.wildcard(), 0))
    }

    /// Whether it is an IPv6 socket.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_v6(&self) -> bool {
        self.is_v6
    }
}
