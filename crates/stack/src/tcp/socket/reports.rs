//! SO_ZEROCOPY, SO_TIMESTAMPING, and the reports that they bring: the calls.
//!
//! `conn/reports.rs` has the reports. There is no error queue: [`TcpStream::recv_report`] stands for `recvmsg` with `MSG_ERRQUEUE`.
//! Tests: `tests/tcp/reports.rs`.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use sockeye_sync::facade::Ordering;

use super::{TcpListener, TcpSocket, TcpStream};
use crate::base::report::{Report, Timestamping};
use crate::rt::handle::Stack;
use crate::tcp::Core;
use crate::tcp::conn::contain;
use crate::tcp::conn::sockbuf::SendBuf;

impl Stack {
    /// The time since the stack was made, by the clock of its timestamps; zero in a child of fork(2). Does not block.
    pub fn now(&self) -> Duration {
        self.core::<Core>()
            .map_or(Duration::ZERO, |core| crate::base::clock::Clock::since_start(core.clock.now()))
    }
}

impl TcpSocket {
    /// SO_ZEROCOPY of the connection, or of a listener's connections: see [`TcpStream::set_zerocopy`].
    pub fn set_zerocopy(&mut self, zerocopy: bool) {
        self.settings.zerocopy = zerocopy;
    }

    /// Whether SO_ZEROCOPY is set.
    pub fn zerocopy(&self) -> bool {
        self.settings.zerocopy
    }

    /// SO_TIMESTAMPING of the connection, or of a listener's connections: see [`TcpStream::set_timestamping`].
    pub fn set_timestamping(&mut self, wanted: Timestamping) {
        self.settings.timestamping = wanted;
    }

    /// The SO_TIMESTAMPING setting.
    pub fn timestamping(&self) -> Timestamping {
        self.settings.timestamping
    }
}

impl TcpListener {
    /// SO_ZEROCOPY of the connections that are made from now on: see [`TcpStream::set_zerocopy`].
    ///
    /// # Errors
    /// None today.
    pub fn set_zerocopy(&self, zerocopy: bool) -> io::Result<()> {
        // Relaxed: an option, which orders nothing.
        self.enter()?.1.zerocopy.store(zerocopy, Ordering::Relaxed);
        Ok(())
    }
}

impl TcpStream {
    /// SO_ZEROCOPY: sends with [`SendFlags::ZEROCOPY`](crate::SendFlags::ZEROCOPY) are reported when the peer has
    /// acknowledged their bytes, or the connection has ended ([`recv_report`](Self::recv_report)). Each such send that
    /// takes a byte has a number, from 0 on. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn set_zerocopy(&self, zerocopy: bool) -> io::Result<()> {
        self.with_send_buffer("set_zerocopy", |snd| {
            if zerocopy || snd.reports().is_some() {
                snd.reports_mut().zerocopy = zerocopy;
            }
        })
    }

    /// Whether SO_ZEROCOPY is set. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn zerocopy(&self) -> io::Result<bool> {
        Ok(self.conn()?.so.lock().snd.reports().is_some_and(|reports| reports.zerocopy))
    }

    /// SO_TIMESTAMPING, in software: which timestamps are taken from now on. [`recv_report`](Self::recv_report) returns
    /// those of sends, [`recv_timestamp`](Self::recv_timestamp) that of received bytes. Segments that are processed
    /// together have one time. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn set_timestamping(&self, wanted: Timestamping) -> io::Result<()> {
        let (core, conn) = self.enter()?;
        contain::call(core, conn, "set_timestamping", || {
            let mut so = conn.so.lock();
            let nxt = so.rcv.nxt;
            if wanted != Timestamping::NONE || so.snd.reports().is_some() {
                so.snd.reports_mut().set_timestamping(wanted, nxt);
            }
            Ok(())
        })
    }

    /// The SO_TIMESTAMPING setting. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn timestamping(&self) -> io::Result<Timestamping> {
        let mut so = self.conn()?.so.lock();
        Ok(so.snd.reports().map_or(Timestamping::NONE, |reports| reports.timestamping()))
    }

    /// Takes the first report on sent bytes (`recvmsg` with `MSG_ERRQUEUE`). While there is one, the socket is ready
    /// with an error ([`Event::is_error`](crate::poll::Event::is_error)), which is not a failure of the connection. At
    /// most 1,024 timestamps wait; later ones are lost, but completions are not. Does not block.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn recv_report(&self) -> io::Result<Report> {
        let mut so = self.conn()?.so.lock();
        Ok(so.snd.reports().and_then(|reports| reports.take()).ok_or(Errno::AGAIN)?)
    }

    /// When the last byte of the last read arrived, as the time since the stack was made ([`Stack::now`]), with
    /// [`Timestamping::RECEIVED`] (`SCM_TIMESTAMPING` of `recvmsg`); `None` if that was before timestamps were
    /// requested. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn recv_timestamp(&self) -> io::Result<Option<Duration>> {
        Ok(self.conn()?.so.lock().snd.reports().and_then(|reports| reports.read_at()))
    }

    fn with_send_buffer(&self, call: &'static str, change: impl FnOnce(&mut SendBuf)) -> io::Result<()> {
        let (core, conn) = self.enter()?;
        contain::call(core, conn, call, || {
            change(&mut conn.so.lock().snd);
            Ok(())
        })
    }
}
