//! TCP Fast Open as applications ask for it (RFC 7413; Linux's `TCP_FASTOPEN`, `TCP_FASTOPEN_CONNECT` and
//! `MSG_FASTOPEN`).
//!
//! A connect that is to carry text does not send its SYN: the first write does (`SendBuf::defers_syn`). The content
//! of the SYN is decided when the connection is made. Tests: `tests/fastopen.rs`.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use sockeye_proto::tcp::fast_open::FastOpenSyn;
use sockeye_proto::time::Instant;

use super::{TcpListener, TcpSocket, TcpStream};
use crate::base::addr::FourTuple;
use crate::config::BACKLOG_MAX;
use crate::tcp::Core;
use crate::tcp::conn::{Conn, user};
use crate::tcp::handshake::fastopen::SERVER_ALL;
use crate::tcp::handshake::listen::Listener;

/// Settings of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FastOpenOptions {
    /// TCP_FASTOPEN: the length of a listener's queue.
    queue_len: usize,
    /// TCP_FASTOPEN_CONNECT.
    connects: bool,
    /// The connect brings its text along.
    has_text: bool,
}

impl FastOpenOptions {
    /// Purpose of a connect's SYN.
    pub fn syn(&self, core: &Core, tuple: &FourTuple, mss_default: u16, now: Instant) -> Option<FastOpenSyn> {
        let asks = self.connects || self.has_text;
        let cache = &core.fast_open_cache;
        asks.then(|| cache.syn(tuple.remote.addr, core.config.tcp.fastopen, mss_default, now)).flatten()
    }

    /// Lets the SYN wait for a write, if there is to be one that it can take along.
    pub fn prepare(&self, conn: &Conn, syn: Option<FastOpenSyn>) {
        let takes_text = syn.is_some_and(|syn| syn.cookie.is_none_or(|cookie| !cookie.is_request()));
        if self.has_text || (self.connects && takes_text) {
            conn.so.lock().snd.defers_syn = true;
        }
    }

    /// Whether the SYN of this connection waits.
    pub fn defers(&self, conn: &Conn) -> bool {
        (self.connects || self.has_text) && conn.so.lock().snd.defers_syn
    }

    pub fn listen(&self, core: &Core, listener: &Listener, backlog: usize) {
        let by_config = if core.config.tcp.fastopen & SERVER_ALL != 0 { backlog } else { 0 };
        listener.fast_open.set_len_max(self.queue_len.max(by_config).min(BACKLOG_MAX));
    }
}

impl TcpSocket {
    /// TCP_FASTOPEN of a listener: at most `queue_len` connections (0: none; 4096 at most) that were made at their SYN
    /// wait for the rest of their handshake. They are accepted at once, with the text of the SYN to be read. Works only
    /// if `TcpConfig::fastopen` has [`SERVER`](crate::fastopen::SERVER).
    ///
    /// The text of a SYN may come twice, if the network duplicates it: its request must bear that (RFC 7413
    /// section 6.1).
    pub fn set_fastopen(&mut self, queue_len: usize) {
        self.fast_open.queue_len = queue_len;
    }

    /// TCP_FASTOPEN_CONNECT: if there is a cookie of the peer, [`connect`](Self::connect) returns at once, and the
    /// first write goes with the SYN. Else it connects as ever, and asks for a cookie.
    pub fn set_fastopen_connect(&mut self, connects: bool) {
        self.fast_open.connects = connects;
    }

    /// Connects, with `data` on the SYN as far as Fast Open is possible and it fits, and behind the handshake
    /// otherwise (`sendto` with `MSG_FASTOPEN`). Blocks until the handshake is over, unless the socket does not block.
    /// Returns the stream and how many bytes of `data` it took: all, if the socket blocks.
    ///
    /// # Errors
    /// As for [`TcpStream::connect`]; `OutOfMemory` at the cap of packet memory.
    pub fn connect_with(mut self, addr: SocketAddr, data: &[u8]) -> io::Result<(TcpStream, usize)> {
        self.fast_open.has_text = !data.is_empty();
        let blocks = !self.settings.nonblocking;
        let stream = self.start(addr)?;
        let taken = {
            let (core, ends) = stream.sending()?;
            user::send(core, &ends, &[IoSlice::new(data)])?
        };
        if blocks {
            let (core, conn) = stream.enter()?;
            user::finish_connect(core, conn, None)?;
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
}

impl TcpStream {
    /// TCP_FASTOPEN_CONNECT has let the connect wait, and nothing was written yet.
    pub(super) fn defers_connect(&self) -> io::Result<bool> {
        Ok(self.conn()?.so.lock().snd.defers_syn)
    }
}
