//! A connection's protocol state as seen from outside, like Linux's `TCP_INFO`.
//!
//! A look is taken under the connection's socket lock, where the pcb stands too, so its parts belong together. Tests: `tests/tcp/seeded.rs`.

use std::io;

use sockeye_proto::tcp::info::TcpInfo;
use sockeye_proto::tcp::meter::Limit;

use super::TcpStream;
use crate::tcp::Core;
use crate::tcp::conn::Conn;
use crate::tcp::conn::engine;
use crate::tcp::conn::sockbuf::Socket;

/// The limit of a connection, and the figures that show it. Sizes are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bottleneck {
    /// The present limit; `None` while there is nothing to send and nothing in flight.
    pub by: Option<Limit>,
    /// Bytes written and not sent yet.
    pub not_sent: u32,
    /// Bytes sent and not acknowledged.
    pub in_flight: u32,
    /// The congestion window.
    pub cwnd: u32,
    /// The slow start threshold: a window below it still grows from the start.
    pub ssthresh: u32,
    /// The window that the peer offers.
    pub snd_wnd: u32,
    /// The size of the send buffer, and the bytes in it.
    pub sndbuf: u32,
    /// As [`sndbuf`](Self::sndbuf).
    pub buffered: u32,
    /// The size of segments that the path is believed to carry, bytes.
    pub snd_mss: u32,
}

impl TcpStream {
    /// The protocol state of the connection. Waits for the thread that runs it, as long as a few segments take.
    ///
    /// # Errors
    /// `ConnectionAborted` if protocol code panicked.
    pub fn info(&self) -> io::Result<TcpInfo> {
        let (core, conn) = self.enter()?;
        of(core, conn)
    }

    /// The limit that keeps this connection from sending more now: the application, a window, a buffer, or the path.
    /// [`TcpInfo::carried`] has the time for each limit. Waits as [`info`](Self::info) does.
    ///
    /// # Errors
    /// As for [`info`](Self::info).
    pub fn bottleneck(&self) -> io::Result<Bottleneck> {
        Bottleneck::of(self.conn()?)
    }
}

/// Looks at a connection's buffers and pcb, which belong together under the socket lock.
fn look<R>(conn: &Conn, query: impl FnOnce(&Socket) -> R) -> io::Result<R> {
    if let Some(error) = conn.panicked() {
        return Err(error.into());
    }
    Ok(query(&conn.so.lock()))
}

/// See [`TcpStream::info`].
pub(crate) fn of(core: &Core, conn: &Conn) -> io::Result<TcpInfo> {
    look(conn, |so| {
        let info = so.pcb.info(so.snd.len(), core.clock.now());
        TcpInfo { state: conn.state_name(so), ..info }
    })
}

/// See [`TcpStream::state_name`].
pub(super) fn state_name(conn: &Conn) -> &'static str {
    look(conn, |so| conn.state_name(so)).unwrap_or_else(|_panicked| conn.state().name())
}

impl Bottleneck {
    /// See [`TcpStream::bottleneck`].
    pub(crate) fn of(conn: &Conn) -> io::Result<Self> {
        look(conn, |so| {
            let pcb = &so.pcb;
            let buffered = so.snd.len();
            let in_flight = pcb.snd_max().since(pcb.snd_una());
            let is_busy = in_flight > 0 || buffered > 0;
            Bottleneck {
                by: is_busy.then(|| pcb.limit(engine::is_full(so))),
                not_sent: buffered.saturating_sub(in_flight),
                in_flight,
                cwnd: pcb.cwnd(),
                ssthresh: pcb.ssthresh(),
                snd_wnd: pcb.snd_wnd(),
                sndbuf: so.snd.hiwat,
                buffered,
                snd_mss: u32::from(pcb.mss()),
            }
        })
    }
}
