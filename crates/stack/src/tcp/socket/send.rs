//! Calls and options that say when and how fast written bytes leave: [`SendFlags`], TCP_CORK, TCP_MAXSEG, TCP_CONGESTION,
//! SO_MAX_PACING_RATE.
//!
//! The pcb has the options, under the connection's lock. Does not depend on how it obeys them. Tests: `tests/tcp/sender.rs`, in
//! tasks `tests/tokio/options.rs`.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use sockeye_proto::tcp::cc::Algorithm as CongestionControl;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_sync::facade::Ordering;

use super::{TcpListener, TcpSocket, TcpStream, stream};
use crate::base::payload::Data;
use crate::tcp::conn::{contain, reason, user};

/// Flags of a send (send(2)), as a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SendFlags(u8);

impl SendFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// `MSG_MORE`: the program will write more at once. A short segment at the end of these bytes is held back, even
    /// with TCP_NODELAY, until the next send, an acknowledgment or a changed window of the peer, TCP_NODELAY set again,
    /// or a retransmission timeout if nothing is in flight.
    pub const MORE: Self = Self(1);
    /// `MSG_EOR`: a record ends with these bytes. No segment has bytes from both sides of the boundary, in the first
    /// transmission or a repetition. The receiver does not see the boundary in the stream.
    pub const EOR: Self = Self(1 << 1);
    /// `MSG_ZEROCOPY`: the program wants a report when the stack no longer needs the bytes, if SO_ZEROCOPY is on
    /// ([`TcpStream::set_zerocopy`]). Bytes in slices are copied nevertheless, and the report says so; those of
    /// [`TcpStream::send_mbufs_with`] are not. Over an interface, a packet has at most 17 parts (slices or pieces of a
    /// chain): it ends there even if they have less than 64 KiB.
    pub const ZEROCOPY: Self = Self(1 << 2);

    /// The flags of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl TcpSocket {
    /// TCP_MAXSEG of the connection, or of a listener's connections: the largest number of bytes in a segment, text and
    /// TCP options, that is announced to the peer and sent to it, if the interface supports it; 88 to 32,767, or 0 for
    /// the interface's own.
    ///
    /// # Errors
    /// EINVAL for another value.
    pub fn set_maxseg(&mut self, bytes: u16) -> io::Result<()> {
        self.settings.maxseg = maxseg_of(bytes)?;
        Ok(())
    }

    /// The TCP_MAXSEG that was set; 0 if none was.
    pub fn maxseg(&self) -> u16 {
        self.settings.maxseg
    }
}

impl TcpListener {
    /// TCP_MAXSEG of handshakes that begin from now on: see [`TcpSocket::set_maxseg`].
    ///
    /// # Errors
    /// EINVAL for a value that it does not accept.
    pub fn set_maxseg(&self, bytes: u16) -> io::Result<()> {
        let bytes = maxseg_of(bytes)?;
        // Relaxed: an option, which orders nothing.
        self.enter()?.1.maxseg.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl TcpStream {
    /// Sends with flags (send(2)); otherwise like a vectored write. Returns the bytes taken.
    ///
    /// # Errors
    /// As for a write; ENOBUFS for a zero-copy send while 1,024 reports of the connection are due or wait to be taken.
    pub fn send_with(&self, bufs: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
        let (core, ends) = self.sending()?;
        user::send_with(core, &ends, bufs, flags)
    }

    /// TCP_CORK: while it is on, only full segments are sent; a short one with nothing before it is sent after a
    /// retransmission timeout, at least 200 ms. TCP_NODELAY has no effect meanwhile. Switching it off sends what was
    /// held back. Does not block.
    ///
    /// # Errors
    /// `ConnectionAborted` if protocol code panicked.
    pub fn set_cork(&self, cork: bool) -> io::Result<()> {
        self.change_sending("set_cork", |pcb, snd_len| pcb.set_cork(cork, snd_len))
    }

    /// Whether TCP_CORK is on. Does not block.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn cork(&self) -> io::Result<bool> {
        Ok(self.conn()?.so.lock().pcb.cork())
    }

    /// TCP_MAXSEG: the present number of bytes of text in a full segment to the peer without SACK blocks. Does not
    /// block.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn maxseg(&self) -> io::Result<u16> {
        Ok(self.conn()?.so.lock().pcb.mss_in_window())
    }

    /// TCP_CONGESTION, from now on: the window stays, and the new algorithm begins with it. On loopback, which loses
    /// nothing, NewReno stays; BBR needs a peer with SACK, and without it CUBIC is used. Does not block.
    ///
    /// # Errors
    /// `ConnectionAborted` if protocol code panicked.
    pub fn set_congestion_control(&self, algorithm: CongestionControl) -> io::Result<()> {
        self.change_sending("set_congestion_control", |pcb, _| pcb.set_congestion_control(algorithm))
    }

    /// TCP_CONGESTION: the algorithm in use. Does not block.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn congestion_control(&self) -> io::Result<CongestionControl> {
        Ok(self.conn()?.so.lock().pcb.congestion_control())
    }

    /// SO_MAX_PACING_RATE: the largest sending rate, bytes per second; data is then spread over the round trip. `None`
    /// for no limit, which is the default. It has no effect on loopback. Does not block.
    ///
    /// # Errors
    /// `InvalidInput` for `Some(0)`; `ConnectionAborted` if protocol code panicked.
    pub fn set_max_pacing_rate(&self, rate: Option<u64>) -> io::Result<()> {
        if rate == Some(0) {
            return Err(stream::invalid(
                "at a rate of 0 nothing could be sent: give 1 or more, or None".into(),
            ));
        }
        self.change_sending("set_max_pacing_rate", |pcb, _| pcb.set_max_pacing_rate(rate))
    }

    /// The SO_MAX_PACING_RATE setting; `None` if there is no bound. Does not block.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn max_pacing_rate(&self) -> io::Result<Option<u64>> {
        Ok(self.conn()?.so.lock().pcb.max_pacing_rate())
    }

    /// Changes the pcb, which is told how many bytes its send buffer has, and has sent what that lets go.
    pub(super) fn change_sending(
        &self,
        call: &'static str,
        change: impl FnOnce(&mut Pcb<Data>, u32),
    ) -> io::Result<()> {
        let (core, conn) = self.enter()?;
        contain::call(core, conn, call, || {
            let mut so = conn.so.lock();
            let snd_len = so.snd.len();
            change(&mut so.pcb, snd_len);
            Ok(())
        })?;
        self.notify(reason::OUTPUT)
    }
}

fn maxseg_of(bytes: u16) -> io::Result<u16> {
    match bytes {
        0 | MAXSEG_MIN..=MAXSEG_MAX => Ok(bytes),
        _ => Err(Errno::INVAL.into()),
    }
}

/// Bounds of TCP_MAXSEG, as on Linux.
const MAXSEG_MIN: u16 = 88;
const MAXSEG_MAX: u16 = 32_767;
