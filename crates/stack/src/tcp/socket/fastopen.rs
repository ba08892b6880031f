//! TCP Fast Open as applications ask for it (RFC 7413; Linux's `TCP_FASTOPEN`, `TCP_FASTOPEN_CONNECT` and
//! `MSG_FASTOPEN`).
//!
//! A connect that is to carry text does not send its SYN: the first write does (`SendBuf::defers_syn`). The content
//! of the SYN is decided when the connection is made. Tests: `tests/tcp/fastopen.rs`.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use sockeye_proto::tcp::fast_open::FastOpenSyn;
use sockeye_proto::time::Instant;
use sockeye_sync::facade::Ordering;

use super::{SendFlags, TcpListener, TcpSocket, TcpStream};
use crate::base::addr::FourTuple;
use crate::config::BACKLOG_MAX;
use crate::tcp::Core;
use crate::tcp::conn::{Conn, connect, user};
use crate::tcp::handshake::fastopen::{CLIENT, CLIENT_WITHOUT_COOKIE, Keys, SERVER_ALL, Wish};
use crate::tcp::handshake::listen::Listener;

/// Settings of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FastOpenOptions {
    /// TCP_FASTOPEN: the length of a listener's queue.
    queue_len: usize,
    /// TCP_FASTOPEN_CONNECT.
    connects: bool,
    /// TCP_FASTOPEN_NO_COOKIE.
    no_cookie: bool,
    /// TCP_FASTOPEN_KEY.
    keys: Option<Keys>,
    /// The connect asks for Fast Open itself (`MSG_FASTOPEN`).
    asks: bool,
    /// And brings its text along.
    has_text: bool,
}

impl FastOpenOptions {
    /// Purpose of a connect's SYN.
    pub fn syn(&self, core: &Core, tuple: &FourTuple, mss_default: u16, now: Instant) -> Option<FastOpenSyn> {
        if !self.connects && !self.asks {
            return None;
        }
        let config = core.tcp_config();
        let asks = config.fastopen & CLIENT != 0;
        let wish = Wish {
            no_cookie: self.no_cookie || config.fastopen & CLIENT_WITHOUT_COOKIE != 0,
            mss_default,
            loss_counts: config.fastopen_blackhole_timeout,
        };
        asks.then(|| core.fast_open_cache.syn(tuple.remote.addr, wish, now)).flatten()
    }

    /// Lets the SYN wait for a write, if there is to be one that it can take along.
    pub fn prepare(&self, conn: &Conn, syn: Option<FastOpenSyn>) {
        let takes_text = syn.is_some_and(|syn| syn.cookie.is_none_or(|cookie| !cookie.is_request()));
        if takes_text && (self.has_text || (self.connects && !self.asks)) {
            let mut so = conn.so.lock();
            // A peer may have announced segments that have no room for text beside options.
            let defers = so.pcb.syn_text_max() > 0;
            so.snd.defers_syn = defers;
            // An option that is set meanwhile, or any other call, does not let it go.
            so.pcb.hold_syn(defers);
        }
    }

    /// Whether the SYN of this connection waits.
    pub fn defers(&self, conn: &Conn) -> bool {
        (self.connects || self.has_text) && conn.so.lock().snd.defers_syn
    }

    pub fn listen(&self, core: &Core, listener: &Listener, backlog: usize) {
        let by_config = if core.tcp_config().fastopen & SERVER_ALL != 0 { backlog } else { 0 };
        listener.fast_open.set_len_max(self.queue_len.max(by_config).min(BACKLOG_MAX));
        listener.fast_open.no_cookie.store(self.no_cookie, Ordering::Relaxed);
        if let Some(keys) = self.keys {
            listener.fast_open.keys.set(keys);
        }
    }
}

impl TcpSocket {
    /// TCP_FASTOPEN of a listener: at most `queue_len` connections (0: none; 4096 at most) that were made at their SYN
    /// wait for the rest of their handshake. They can be accepted at once, and the text of the SYN can be read. It
    /// works only if `TcpConfig::fastopen` has [`SERVER`](crate::fastopen::SERVER).
    ///
    /// If the network duplicates a SYN, its text may arrive twice: the request in it must tolerate that (RFC 7413
    /// section 6.1).
    pub fn set_fastopen(&mut self, queue_len: usize) {
        self.fast_open.queue_len = queue_len;
    }

    /// TCP_FASTOPEN_CONNECT: if the stack has a cookie of the peer, [`connect`](Self::connect) returns at once, and the
    /// SYN carries the first write. Else it connects as usual, and asks for a cookie.
    ///
    /// A non-blocking first write takes only the bytes for which the SYN has room, as on Linux. When the connection is
    /// made, [`TcpInfo`](crate::TcpInfo) shows whether the peer accepted them: `syn_text_taken`, and `fast_open_fail`
    /// if not.
    pub fn set_fastopen_connect(&mut self, connects: bool) {
        self.fast_open.connects = connects;
    }

    /// TCP_FASTOPEN_NO_COOKIE: a connect sends text to a server without a cookie of it, and a listener accepts text
    /// from clients without one, as with [`CLIENT_WITHOUT_COOKIE`] and
    /// [`SERVER_WITHOUT_COOKIE`](crate::fastopen::SERVER_WITHOUT_COOKIE) for all sockets.
    ///
    /// Such a listener also answers forged addresses (RFC 7413 section 5): use it only in networks where nobody can
    /// forge them.
    pub fn set_fastopen_no_cookie(&mut self, no_cookie: bool) {
        self.fast_open.no_cookie = no_cookie;
    }

    /// TCP_FASTOPEN_KEY: the keys of a listener's cookies, instead of the stack's
    /// ([`TcpConfig::fastopen_key`](crate::TcpConfig::fastopen_key)).
    pub fn set_fastopen_keys(&mut self, keys: Keys) {
        self.fast_open.keys = Some(keys);
    }

    /// Connects with `data` (`sendto` with `MSG_FASTOPEN`): on the SYN, as far as Fast Open is possible and the data
    /// fits, otherwise after the handshake. Blocks until the handshake has ended, unless the socket is non-blocking.
    /// Returns the stream and how many bytes of `data` it took: all, if the socket blocks; else only those on the SYN,
    /// as on Linux, and none without a cookie of the peer. Without `data`, it is a connect that asks for a cookie.
    ///
    /// # Errors
    /// As for [`TcpStream::connect`]; `OutOfMemory` at the limit of packet memory.
    pub fn connect_with(self, addr: SocketAddr, data: &[u8]) -> io::Result<(TcpStream, usize)> {
        self.connect_send(addr, data, SendFlags::NONE)
    }

    /// [`connect_with`](Self::connect_with) with flags of send(2).
    ///
    /// # Errors
    /// As for [`connect_with`](Self::connect_with) and [`TcpStream::send_with`].
    pub fn connect_send(
        mut self,
        addr: SocketAddr,
        data: &[u8],
        flags: SendFlags,
    ) -> io::Result<(TcpStream, usize)> {
        self.fast_open.asks = true;
        self.fast_open.has_text = !data.is_empty();
        let blocks = !self.settings.nonblocking;
        let stream = self.start(addr)?;
        let taken = {
            let (core, ends) = stream.sending()?;
            match user::send_with(core, &ends, &[IoSlice::new(data)], flags) {
                // The SYN has left without any.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !blocks => 0,
                taken => taken?,
            }
        };
        if blocks {
            let (core, conn) = stream.enter()?;
            connect::finish(core, conn, None)?;
        }
        Ok((stream, taken))
    }
}

impl TcpListener {
    /// TCP_FASTOPEN: see [`TcpSocket::set_fastopen`].
    ///
    /// # Errors
    /// None today.
    pub fn set_fastopen(&self, queue_len: usize) -> io::Result<()> {
        self.enter()?.1.fast_open.set_len_max(queue_len.min(BACKLOG_MAX));
        Ok(())
    }

    /// TCP_FASTOPEN_NO_COOKIE: see [`TcpSocket::set_fastopen_no_cookie`].
    ///
    /// # Errors
    /// None today.
    pub fn set_fastopen_no_cookie(&self, no_cookie: bool) -> io::Result<()> {
        self.enter()?.1.fast_open.no_cookie.store(no_cookie, Ordering::Relaxed);
        Ok(())
    }

    /// TCP_FASTOPEN_KEY: from now on, these are the keys of this listener's cookies, instead of the stack's. Clients
    /// with a cookie of the backup key get a new one.
    ///
    /// # Errors
    /// None today.
    pub fn set_fastopen_keys(&self, keys: Keys) -> io::Result<()> {
        self.enter()?.1.fast_open.keys.set(keys);
        Ok(())
    }

    /// The listener's own keys.
    ///
    /// # Errors
    /// None today.
    pub fn fastopen_keys(&self) -> io::Result<Option<Keys>> {
        Ok(self.enter()?.1.fast_open.keys.keys())
    }
}

impl TcpStream {
    /// TCP_FASTOPEN_CONNECT has let the connect wait, and nothing was written yet.
    pub(crate) fn defers_connect(&self) -> io::Result<bool> {
        Ok(self.conn()?.so.lock().snd.defers_syn)
    }
}
