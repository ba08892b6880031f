//! Options of the two ends of a connection's life: how often a SYN is repeated, when a listener takes a handshake for done, and how
//! long a closed connection waits for the peer's FIN. Also the bound of the timeouts in between (TCP_RTO_MAX_MS).
//!
//! Does not depend on the protocol. Tests: `tests/ip/handshakes.rs`.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::io::Errno;
use sockeye_proto::tcp::syncache::Patience;
use sockeye_sync::facade::Ordering;

use super::builder::SocketSettings;
use super::{TcpListener, TcpSocket, TcpStream};
use crate::tcp::conn::reason;

/// Linux's `MAX_TCP_SYNCNT`.
const SYN_RETRIES_MAX: u32 = 127;
/// Linux's `TCP_FIN_TIMEOUT_MAX`.
const FIN_TIMEOUT_MAX: Duration = Duration::from_secs(120);
/// The values that Linux accepts for TCP_RTO_MAX_MS.
const RTO_MAX_MS: RangeInclusive<u32> = 1_000..=120_000;

impl SocketSettings {
    /// TCP_SYNCNT, or `default`, the stack's.
    pub fn syn_retries_or(&self, default: u8) -> u8 {
        if self.syn_retries == 0 { default } else { self.syn_retries }
    }
}

impl TcpSocket {
    /// TCP_SYNCNT of the connection: see [`TcpStream::set_syn_retries`]. Of a listener: how often its SYN-ACKs are repeated, instead of
    /// [`TcpConfig::synack_retries`](crate::TcpConfig::synack_retries), and at most 15 times.
    ///
    /// # Errors
    /// `InvalidInput` for a number that is not 1 to 127.
    pub fn set_syn_retries(&mut self, retries: u32) -> io::Result<()> {
        self.settings.syn_retries = syn_retries(retries)?;
        Ok(())
    }

    /// The TCP_SYNCNT that was set.
    pub fn syn_retries(&self) -> Option<u32> {
        Some(u32::from(self.settings.syn_retries)).filter(|retries| *retries != 0)
    }

    /// TCP_QUICKACK of a socket that connects: with `false`, the acknowledgment that ends the handshake waits for the
    /// first written bytes, which carry it, at most 200 ms. This saves a packet if the application writes first.
    /// Default `true`; it has no effect on loopback or on a listener.
    pub fn set_quickack(&mut self, quickack: bool) {
        self.settings.quickack = quickack;
    }

    /// Whether the acknowledgment that ends the handshake is sent at once: see [`set_quickack`](Self::set_quickack).
    pub fn quickack(&self) -> bool {
        self.settings.quickack
    }

    /// TCP_DEFER_ACCEPT of a listener: see [`TcpListener::set_defer_accept`]. On a socket that connects, any time value
    /// has the effect of [`set_quickack`](Self::set_quickack) with `false`, as on Linux.
    pub fn set_defer_accept(&mut self, time: Option<Duration>) {
        self.settings.defers = Patience::defers_for(time.unwrap_or_default());
    }

    /// The TCP_DEFER_ACCEPT time: see [`TcpListener::defer_accept`].
    pub fn defer_accept(&self) -> Option<Duration> {
        defer_time(self.settings.defers)
    }

    /// TCP_LINGER2 of the connection, or of a listener's connections: see [`TcpStream::set_fin_timeout`].
    pub fn set_fin_timeout(&mut self, timeout: Option<Duration>) {
        self.settings.fin_timeout_ms =
            fin_timeout_ms(timeout.unwrap_or_else(|| self.stack.tcp_config().fin_timeout));
    }

    /// The TCP_LINGER2 time.
    pub fn fin_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.settings.fin_timeout_ms))
    }

    /// TCP_RTO_MAX_MS of the connection, or of a listener's connections: see [`TcpStream::set_rto_max`].
    ///
    /// # Errors
    /// As there.
    pub fn set_rto_max(&mut self, rto_max: Duration) -> io::Result<()> {
        self.settings.rto_max_ms = rto_max_ms(rto_max)?;
        Ok(())
    }

    /// The TCP_RTO_MAX_MS time.
    pub fn rto_max(&self) -> Duration {
        Duration::from_millis(u64::from(self.settings.rto_max_ms))
    }
}

impl TcpStream {
    /// TCP_SYNCNT: how often the SYN is repeated before a connect fails with `TimedOut`, instead of
    /// [`TcpConfig::syn_retries`](crate::TcpConfig::syn_retries). It also affects a connect in progress. Does not
    /// block.
    ///
    /// # Errors
    /// `InvalidInput` for a number that is not 1 to 127.
    pub fn set_syn_retries(&self, retries: u32) -> io::Result<()> {
        self.conn()?.options.syn_retries.store(syn_retries(retries)?, Ordering::Relaxed);
        self.notify(reason::OPTION)
    }

    /// How often a SYN is repeated: TCP_SYNCNT, or the stack's.
    ///
    /// # Errors
    /// None today.
    pub fn syn_retries(&self) -> io::Result<u32> {
        Ok(u32::from(self.conn()?.options.syn_retries.load(Ordering::Relaxed)))
    }

    /// TCP_LINGER2: how long the connection waits for the peer's FIN after the last handle was dropped and its own FIN
    /// was acknowledged (FIN-WAIT-2), at most 120 s, and at least some retransmission timeouts. `None`:
    /// [`TcpConfig::fin_timeout`](crate::TcpConfig::fin_timeout). Zero: it does not wait, and resets the connection (as
    /// a negative number on Linux). Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn set_fin_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let ms = fin_timeout_ms(timeout.unwrap_or_else(|| self.stack().tcp_config().fin_timeout));
        self.conn()?.options.fin_timeout_ms.store(ms, Ordering::Relaxed);
        self.notify(reason::OPTION)
    }

    /// The TCP_LINGER2 time; zero if the connection does not wait.
    ///
    /// # Errors
    /// None today.
    pub fn fin_timeout(&self) -> io::Result<Duration> {
        Ok(Duration::from_millis(u64::from(self.conn()?.options.fin_timeout_ms.load(Ordering::Relaxed))))
    }
}

impl TcpStream {
    /// TCP_RTO_MAX_MS: the ceiling of the retransmission timeout, which doubles with each expiry, and of the time between
    /// two probes of a zero window, 1 s to 120 s, instead of [`TcpConfig::rto_max`](crate::TcpConfig::rto_max). A
    /// connection whose path was interrupted notices within this time that the path works again.
    ///
    /// [`retries`](crate::TcpConfig::retries) then stands for less time, so the connection is given up sooner. A
    /// [user timeout](Self::set_user_timeout) sets the time to wait directly. A timer that is running keeps its time.
    /// Does not block.
    ///
    /// # Errors
    /// `InvalidInput` for a time that is not 1 s to 120 s.
    pub fn set_rto_max(&self, rto_max: Duration) -> io::Result<()> {
        let ms = rto_max_ms(rto_max)?;
        self.conn()?.so.lock().pcb.set_rto_max(Duration::from_millis(u64::from(ms)));
        Ok(())
    }

    /// The TCP_RTO_MAX_MS time.
    ///
    /// # Errors
    /// None today.
    pub fn rto_max(&self) -> io::Result<Duration> {
        Ok(self.conn()?.so.lock().pcb.rto_max())
    }
}

impl TcpListener {
    /// TCP_DEFER_ACCEPT: a connection can be accepted when text (or a FIN) has arrived, or this time has passed, so
    /// that a program is woken only when there is something to read. `None` or zero: when its handshake has ended. The
    /// time is rounded up to 1, 3, 7, 15, ... seconds: until then, the peer's acknowledgment does not count, and at the
    /// end the SYN-ACK is repeated. Connections with Fast Open or SYN cookies do not wait.
    ///
    /// # Errors
    /// None today.
    pub fn set_defer_accept(&self, time: Option<Duration>) -> io::Result<()> {
        let defers = Patience::defers_for(time.unwrap_or_default());
        self.enter()?.1.defers.store(defers, Ordering::Relaxed);
        Ok(())
    }

    /// The TCP_DEFER_ACCEPT time, rounded up.
    ///
    /// # Errors
    /// None today.
    pub fn defer_accept(&self) -> io::Result<Option<Duration>> {
        Ok(defer_time(self.enter()?.1.defers.load(Ordering::Relaxed)))
    }

    /// TCP_SYNCNT: see [`TcpSocket::set_syn_retries`].
    ///
    /// # Errors
    /// `InvalidInput` for a number that is not 1 to 127.
    pub fn set_syn_retries(&self, retries: u32) -> io::Result<()> {
        self.enter()?.1.syn_retries.store(syn_retries(retries)?, Ordering::Relaxed);
        Ok(())
    }
}

fn syn_retries(retries: u32) -> io::Result<u8> {
    match u8::try_from(retries) {
        Ok(number) if (1..=SYN_RETRIES_MAX).contains(&retries) => Ok(number),
        Ok(_) | Err(_) => Err(Errno::INVAL.into()),
    }
}

fn rto_max_ms(rto_max: Duration) -> io::Result<u32> {
    match u32::try_from(rto_max.as_millis()) {
        Ok(ms) if RTO_MAX_MS.contains(&ms) => Ok(ms),
        Ok(_) | Err(_) => Err(Errno::INVAL.into()),
    }
}

fn defer_time(defers: u8) -> Option<Duration> {
    (defers > 0).then(|| Patience::time_of(defers))
}

/// In milliseconds, rounded up, so that only zero gives zero.
fn fin_timeout_ms(timeout: Duration) -> u32 {
    // At most 120,000.
    timeout.min(FIN_TIMEOUT_MAX).as_nanos().div_ceil(1_000_000) as u32
}
