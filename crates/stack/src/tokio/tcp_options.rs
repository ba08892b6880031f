//! The options of asynchronous TCP sockets that `tokio` leaves to `socket2`, under the names of the blocking kind.
//!
//! Does not depend on how they work. Tests: `tests/tokio/options.rs`.

use std::io;
use std::time::Duration;

use sockeye_proto::tcp::cc::Algorithm as CongestionControl;

use super::methods::passed_methods;
use super::{TcpSocket, TcpStream};
use crate::base::report::{Report, Timestamping};
use crate::tcp::handshake::fastopen::Keys;
use crate::tcp::socket::TcpKeepalive;

passed_methods!(TcpStream {
    /// SO_ZEROCOPY: see [`crate::TcpStream::set_zerocopy`].
    ///
    /// # Errors
    /// None today.
    set_zerocopy(zerocopy: bool) -> ();

    /// Whether SO_ZEROCOPY is set.
    ///
    /// # Errors
    /// None today.
    zerocopy() -> bool;

    /// SO_TIMESTAMPING: see [`crate::TcpStream::set_timestamping`].
    ///
    /// # Errors
    /// None today.
    set_timestamping(wanted: Timestamping) -> ();

    /// The SO_TIMESTAMPING setting.
    ///
    /// # Errors
    /// None today.
    timestamping() -> Timestamping;

    /// The first report on bytes that were sent: see [`crate::TcpStream::recv_report`]. While there is one, the stream is
    /// [ready](Self::ready) with `Interest::ERROR`.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    recv_report() -> Report;

    /// When the last byte of the last read came: see [`crate::TcpStream::recv_timestamp`].
    ///
    /// # Errors
    /// None today.
    recv_timestamp() -> Option<Duration>;

    /// SO_KEEPALIVE: an idle connection is probed (RFC 9293 section 3.8.4). See [`crate::TcpStream::set_keepalive`].
    ///
    /// # Errors
    /// As there.
    set_keepalive(keepalive: bool) -> ();

    /// Whether SO_KEEPALIVE is set.
    ///
    /// # Errors
    /// As for [`crate::TcpStream::keepalive`].
    keepalive() -> bool;

    /// SO_KEEPALIVE, with these times: see [`crate::TcpStream::set_tcp_keepalive`].
    ///
    /// # Errors
    /// As there.
    set_tcp_keepalive(keepalive: &TcpKeepalive) -> ();

    /// TCP_KEEPIDLE.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    keepalive_time() -> Duration;

    /// TCP_KEEPINTVL.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    keepalive_interval() -> Duration;

    /// TCP_KEEPCNT.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    keepalive_retries() -> u32;

    /// TCP_USER_TIMEOUT: see [`crate::TcpStream::set_user_timeout`].
    ///
    /// # Errors
    /// As there.
    set_user_timeout(timeout: Option<Duration>) -> ();

    /// The TCP_USER_TIMEOUT that was set.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    user_timeout() -> Option<Duration>;

    /// TCP_SYNCNT: see [`crate::TcpStream::set_syn_retries`].
    ///
    /// # Errors
    /// As there.
    set_syn_retries(retries: u32) -> ();

    /// How often a SYN is repeated: see [`crate::TcpStream::syn_retries`].
    ///
    /// # Errors
    /// None today.
    syn_retries() -> u32;

    /// TCP_LINGER2: see [`crate::TcpStream::set_fin_timeout`].
    ///
    /// # Errors
    /// None today.
    set_fin_timeout(timeout: Option<Duration>) -> ();

    /// The TCP_LINGER2 time: see [`crate::TcpStream::fin_timeout`].
    ///
    /// # Errors
    /// None today.
    fin_timeout() -> Duration;

    /// TCP_RTO_MAX_MS: see [`crate::TcpStream::set_rto_max`].
    ///
    /// # Errors
    /// As there.
    set_rto_max(rto_max: Duration) -> ();

    /// The TCP_RTO_MAX_MS time: see [`crate::TcpStream::rto_max`].
    ///
    /// # Errors
    /// None today.
    rto_max() -> Duration;

    /// TCP_CORK: see [`crate::TcpStream::set_cork`].
    ///
    /// # Errors
    /// As there.
    set_cork(cork: bool) -> ();

    /// Whether TCP_CORK is on.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    cork() -> bool;

    /// TCP_MAXSEG: bytes of text in a full segment to the peer now.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    maxseg() -> u16;

    /// TCP_CONGESTION, from now on: see [`crate::TcpStream::set_congestion_control`].
    ///
    /// # Errors
    /// As there.
    set_congestion_control(algorithm: CongestionControl) -> ();

    /// TCP_CONGESTION: the algorithm in use.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    congestion_control() -> CongestionControl;

    /// SO_MAX_PACING_RATE, bytes a second: see [`crate::TcpStream::set_max_pacing_rate`].
    ///
    /// # Errors
    /// As there.
    set_max_pacing_rate(rate: Option<u64>) -> ();

    /// The SO_MAX_PACING_RATE setting.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    max_pacing_rate() -> Option<u64>;

    /// SO_SNDBUF, bytes, limited to 2 KiB to 64 MiB: see [`crate::TcpStream::set_send_buffer_size`].
    ///
    /// # Errors
    /// As there.
    set_send_buffer_size(bytes: usize) -> ();

    /// The SO_SNDBUF setting: twice the bytes that it allows, as Linux returns it (socket(7)).
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    send_buffer_size() -> usize;

    /// SO_RCVBUF, bytes, limited to 2 KiB to 64 MiB: see [`crate::TcpStream::set_recv_buffer_size`].
    ///
    /// # Errors
    /// As there.
    set_recv_buffer_size(bytes: usize) -> ();

    /// The SO_RCVBUF setting: twice the bytes that it allows, as Linux returns it (socket(7)).
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    recv_buffer_size() -> usize;

    /// IP_TOS, or IPV6_TCLASS: see [`crate::TcpStream::set_tos`].
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    set_tos(tos: u32) -> ();

    /// The setting.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    tos() -> u32;
});

impl TcpSocket {
    /// SO_RCVLOWAT of the connection, or of a listener's connections: see [`crate::TcpSocket::set_rcvlowat`].
    ///
    /// # Errors
    /// None today.
    pub fn set_rcvlowat(&self, bytes: u32) -> io::Result<()> {
        self.inner.lock().set_rcvlowat(bytes);
        Ok(())
    }

    /// TCP_WINDOW_CLAMP of the connection, or of a listener's connections: see [`crate::TcpSocket::set_window_clamp`].
    ///
    /// # Errors
    /// None today.
    pub fn set_window_clamp(&self, bytes: Option<u32>) -> io::Result<()> {
        self.inner.lock().set_window_clamp(bytes);
        Ok(())
    }

    /// SO_ZEROCOPY of the connection, or of a listener's connections: see [`crate::TcpStream::set_zerocopy`].
    ///
    /// # Errors
    /// None today.
    pub fn set_zerocopy(&self, zerocopy: bool) -> io::Result<()> {
        self.inner.lock().set_zerocopy(zerocopy);
        Ok(())
    }

    /// SO_TIMESTAMPING of the connection, or of a listener's connections: see [`crate::TcpStream::set_timestamping`].
    ///
    /// # Errors
    /// None today.
    pub fn set_timestamping(&self, wanted: Timestamping) -> io::Result<()> {
        self.inner.lock().set_timestamping(wanted);
        Ok(())
    }

    /// TCP_MAXSEG of the connection, or of a listener's connections: see [`crate::TcpSocket::set_maxseg`].
    ///
    /// # Errors
    /// As there.
    pub fn set_maxseg(&self, bytes: u16) -> io::Result<()> {
        self.inner.lock().set_maxseg(bytes)
    }

    /// The TCP_MAXSEG that was set; 0 if none was.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn maxseg(&self) -> io::Result<u16> {
        Ok(self.inner.lock().maxseg())
    }

    /// IPV6_V6ONLY: an IPv6 wildcard listener that leaves IPv4 to others. Set it before [`bind`](Self::bind).
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn set_only_v6(&self, only: bool) -> io::Result<()> {
        self.inner.lock().set_only_v6(only);
        Ok(())
    }

    /// Whether IPV6_V6ONLY is set.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn only_v6(&self) -> io::Result<bool> {
        Ok(self.inner.lock().only_v6())
    }

    /// SO_KEEPALIVE of the connection, or of a listener's connections, with these times.
    ///
    /// # Errors
    /// `InvalidInput` for a value out of bounds; nothing is changed then.
    pub fn set_tcp_keepalive(&self, keepalive: &TcpKeepalive) -> io::Result<()> {
        self.inner.lock().set_tcp_keepalive(keepalive)
    }

    /// TCP_USER_TIMEOUT of the connection, or of a listener's connections: see [`crate::TcpStream::set_user_timeout`].
    ///
    /// # Errors
    /// As there.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.lock().set_user_timeout(timeout)
    }

    /// The TCP_USER_TIMEOUT that was set.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.lock().user_timeout())
    }

    /// IP_TTL, or IPV6_UNICAST_HOPS, of the connection, or of a listener's connections, 1 to 255.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.lock().set_ttl(ttl)
    }

    /// TCP_SYNCNT of the connection, or of a listener's SYN-ACKs: see [`crate::TcpSocket::set_syn_retries`].
    ///
    /// # Errors
    /// As there.
    pub fn set_syn_retries(&self, retries: u32) -> io::Result<()> {
        self.inner.lock().set_syn_retries(retries)
    }

    /// TCP_QUICKACK of a socket that connects: see [`crate::TcpSocket::set_quickack`].
    ///
    /// # Errors
    /// None today.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.inner.lock().set_quickack(quickack);
        Ok(())
    }

    /// TCP_DEFER_ACCEPT of a listener, or of a socket that connects: see [`crate::TcpSocket::set_defer_accept`].
    ///
    /// # Errors
    /// None today.
    pub fn set_defer_accept(&self, time: Option<Duration>) -> io::Result<()> {
        self.inner.lock().set_defer_accept(time);
        Ok(())
    }

    /// TCP_LINGER2 of the connection, or of a listener's connections: see [`crate::TcpStream::set_fin_timeout`].
    ///
    /// # Errors
    /// None today.
    pub fn set_fin_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.lock().set_fin_timeout(timeout);
        Ok(())
    }

    /// TCP_RTO_MAX_MS of the connection, or of a listener's connections: see [`crate::TcpStream::set_rto_max`].
    ///
    /// # Errors
    /// As there.
    pub fn set_rto_max(&self, rto_max: Duration) -> io::Result<()> {
        self.inner.lock().set_rto_max(rto_max)
    }

    /// TCP_FASTOPEN of a listener: see [`crate::TcpSocket::set_fastopen`].
    ///
    /// # Errors
    /// None today.
    pub fn set_fastopen(&self, queue_len: usize) -> io::Result<()> {
        self.inner.lock().set_fastopen(queue_len);
        Ok(())
    }

    /// TCP_FASTOPEN_CONNECT: see [`crate::TcpSocket::set_fastopen_connect`].
    ///
    /// # Errors
    /// None today.
    pub fn set_fastopen_connect(&self, connects: bool) -> io::Result<()> {
        self.inner.lock().set_fastopen_connect(connects);
        Ok(())
    }

    /// TCP_FASTOPEN_NO_COOKIE: see [`crate::TcpSocket::set_fastopen_no_cookie`].
    ///
    /// # Errors
    /// None today.
    pub fn set_fastopen_no_cookie(&self, no_cookie: bool) -> io::Result<()> {
        self.inner.lock().set_fastopen_no_cookie(no_cookie);
        Ok(())
    }

    /// TCP_FASTOPEN_KEY of a listener: see [`crate::TcpSocket::set_fastopen_keys`].
    ///
    /// # Errors
    /// None today.
    pub fn set_fastopen_keys(&self, keys: Keys) -> io::Result<()> {
        self.inner.lock().set_fastopen_keys(keys);
        Ok(())
    }
}
