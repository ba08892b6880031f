//! How a socket receives: SO_RCVLOWAT, TCP_WINDOW_CLAMP, TCP_INQ, SO_INCOMING_CPU.
//!
//! The values stand in the receive buffer, where readers and input find them; the pcb learns of them by `reason::OPTION`. Tests:
//! `tests/tcp/receiving.rs`.

use std::io;

use rustix::io::Errno;

use super::{TcpSocket, TcpStream};
use crate::rt::poll::registration;
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::{contain, engine, reason};

/// No clamp is smaller, bytes (half of SOCK_MIN_RCVBUF).
const CLAMP_MIN: u32 = 1_152;

impl TcpSocket {
    /// SO_RCVLOWAT of the connection, or of a listener's connections: see [`TcpStream::set_rcvlowat`]. Default 1; 0 counts as 1.
    pub fn set_rcvlowat(&mut self, bytes: u32) {
        let settings = &mut self.settings;
        settings.rcvlowat = bytes.clamp(1, settings.rcvlowat_max(self.stack.config().rcvbuf_max));
        settings.rcvbuf = settings.rcvbuf.max(settings.rcvlowat);
    }

    /// TCP_WINDOW_CLAMP of the connection, or of a listener's connections: see [`TcpStream::set_window_clamp`]. Set
    /// here, it also limits the offered window scale. `None`: only the buffer is a limit.
    pub fn set_window_clamp(&mut self, bytes: Option<u32>) {
        self.settings.window_clamp = bytes.map_or(u32::MAX, |bytes| bytes.max(CLAMP_MIN));
    }
}

impl TcpStream {
    /// SO_RCVLOWAT, bytes: a blocking read waits until this many bytes have arrived (or as many as it asks for, if that
    /// is less), and only then is the socket *readable* for [`Poll`](crate::poll::Poll) and tasks. It is also readable
    /// when the peer's window is used up, at the end of the stream, and on errors. A non-blocking read takes what there
    /// is, and so does one whose timeout has passed. The value is limited to the size of the receive buffer, which
    /// grows to it if the program has not set its size. 0 counts as 1. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn set_rcvlowat(&self, bytes: u32) -> io::Result<()> {
        let (core, conn) = self.enter()?;
        contain::call(core, conn, "set_rcvlowat", || {
            Context::run(core, |cx| {
                let mut so = conn.so.lock();
                let most = if so.rcv.auto { core.config.rcvbuf_max } else { so.rcv.hiwat };
                so.rcv.lowat = bytes.clamp(1, most.max(1));
                so.rcv.hiwat = so.rcv.hiwat.max(so.rcv.lowat);
                if so.rcv.lowat > 1 {
                    // Bytes that are there may be too few now, and so when the peer's window grows.
                    registration::look_closer(&so.waiters);
                }
                engine::wake_readers(cx, conn, &mut so);
            });
            Ok(())
        })?;
        self.notify(reason::OPTION)
    }

    /// The SO_RCVLOWAT setting, bytes.
    ///
    /// # Errors
    /// None today.
    pub fn rcvlowat(&self) -> io::Result<u32> {
        Ok(self.conn()?.so.lock().rcv.lowat)
    }

    /// TCP_WINDOW_CLAMP: the largest window to offer the peer, bytes, at least 1,152. An offered window is not
    /// withdrawn. Does not block.
    ///
    /// # Errors
    /// EINVAL for 0.
    pub fn set_window_clamp(&self, bytes: u32) -> io::Result<()> {
        if bytes == 0 {
            return Err(Errno::INVAL.into());
        }
        {
            let mut so = self.conn()?.so.lock();
            so.pcb.set_window_clamp(bytes.max(CLAMP_MIN));
            so.rcv.wnd_max = so.pcb.rcv_wnd_max();
        }
        self.notify(reason::OUTPUT)
    }

    /// The largest window that the connection can offer, bytes: TCP_WINDOW_CLAMP, or what the negotiated scale can
    /// express.
    ///
    /// # Errors
    /// None today.
    pub fn window_clamp(&self) -> io::Result<u32> {
        Ok(self.conn()?.so.lock().rcv.wnd_max)
    }

    /// TCP_INQ: bytes left to read; 1 if only the end of the stream is left. After a read, it shows whether another one
    /// is useful. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn inq(&self) -> io::Result<usize> {
        let so = self.conn()?.so.lock();
        Ok(so.rcv.chain.len().max(usize::from(so.rcv.fin)))
    }

    /// SO_INCOMING_CPU: the CPU on which data last arrived; `None` before the first data. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn incoming_cpu(&self) -> io::Result<Option<u32>> {
        Ok(self.conn()?.so.lock().rcv.cpu())
    }
}
