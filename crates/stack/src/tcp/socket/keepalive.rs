//! When and how a silent peer is asked whether it still exists, and for how long silence is borne at all.
//!
//! [`TcpKeepalive`] has the names of `socket2`. The calls that take it stand here for streams and sockets alike.
//! Tests: `tests/tcp/driven.rs`.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use sockeye_proto::tcp::settings::KeepaliveSettings;
use sockeye_sync::facade::Ordering;

use super::stream::invalid;
use super::{TcpSocket, TcpStream};
use crate::config::{KEEPALIVE_RETRIES_MAX, KEEPALIVE_TIME_MAX};
use crate::tcp::conn::{SocketOptions, reason};

/// Keepalive's times, in the shape of `socket2::TcpKeepalive`. Options that are not set keep their values.
#[derive(Clone, Debug, Default)]
pub struct TcpKeepalive {
    time: Option<Duration>,
    interval: Option<Duration>,
    retries: Option<u32>,
}

impl TcpKeepalive {
    /// No option set.
    pub const fn new() -> Self {
        Self { time: None, interval: None, retries: None }
    }

    /// TCP_KEEPIDLE: silence before the first probe, 1 ms to 32,767 s.
    #[must_use]
    pub const fn with_time(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    /// TCP_KEEPINTVL: time from probe to probe, 1 ms to 32,767 s.
    #[must_use]
    pub const fn with_interval(self, interval: Duration) -> Self {
        Self { interval: Some(interval), ..self }
    }

    /// TCP_KEEPCNT: unanswered probes before the connection is given up, 1 to 127.
    #[must_use]
    pub const fn with_retries(self, retries: u32) -> Self {
        Self { retries: Some(retries), ..self }
    }

    /// `settings` with the options of this value, and keepalive switched on.
    fn applied_to(&self, settings: KeepaliveSettings) -> io::Result<KeepaliveSettings> {
        let bounded = |time: Option<Duration>, old| match time {
            Some(time) if !(TIME_MIN..=KEEPALIVE_TIME_MAX).contains(&time) => Err(Errno::INVAL),
            Some(time) => Ok(time),
            None => Ok(old),
        };
        let count = match self.retries {
            None => settings.count,
            Some(retries) => u8::try_from(retries)
                .ok()
                .filter(|n| (1..=KEEPALIVE_RETRIES_MAX).contains(n))
                .ok_or(Errno::INVAL)?,
        };
        Ok(KeepaliveSettings {
            enabled: true,
            idle: bounded(self.time, settings.idle)?,
            interval: bounded(self.interval, settings.interval)?,
            count,
        })
    }
}

const TIME_MIN: Duration = Duration::from_millis(1);

impl TcpSocket {
    /// SO_KEEPALIVE, with these times. A listener's connections inherit it.
    ///
    /// # Errors
    /// `InvalidInput` for a value out of bounds; nothing is changed then.
    pub fn set_tcp_keepalive(&mut self, keepalive: &TcpKeepalive) -> io::Result<()> {
        self.settings.keepalive = keepalive.applied_to(self.settings.keepalive)?;
        Ok(())
    }

    /// TCP_USER_TIMEOUT of the connection, or of a listener's connections: see [`TcpStream::set_user_timeout`].
    ///
    /// # Errors
    /// `InvalidInput` for more than 49 days.
    pub fn set_user_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.settings.user_timeout_ms = user_timeout_ms(timeout)?;
        Ok(())
    }
}

impl TcpStream {
    /// SO_KEEPALIVE, with these times (RFC 9293 section 3.8.4).
    ///
    /// # Errors
    /// `InvalidInput` for a value out of bounds; nothing is changed then.
    pub fn set_tcp_keepalive(&self, keepalive: &TcpKeepalive) -> io::Result<()> {
        let options = &self.conn()?.options;
        options.set_keepalive_settings(&keepalive.applied_to(options.keepalive_settings())?);
        self.notify(reason::OPTION | if keepalive.time.is_some() { reason::KEEPIDLE } else { 0 })
    }

    /// TCP_KEEPIDLE.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn keepalive_time(&self) -> io::Result<Duration> {
        Ok(self.conn()?.options.keepalive_settings().idle)
    }

    /// TCP_KEEPINTVL.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn keepalive_interval(&self) -> io::Result<Duration> {
        Ok(self.conn()?.options.keepalive_settings().interval)
    }

    /// TCP_KEEPCNT.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn keepalive_retries(&self) -> io::Result<u32> {
        Ok(u32::from(self.conn()?.options.keepalive_settings().count))
    }

    /// TCP_USER_TIMEOUT: how long sent data may stay unacknowledged, or written data wait for a window, before the
    /// connection is given up with `TimedOut`; it replaces `TcpConfig::retries` and the number of keepalive probes.
    /// `None` or zero: those decide. The resolution is a millisecond. As on Linux, the time counts from the first
    /// retransmission or window probe, so one more timeout (at least 200 ms) may pass before it.
    ///
    /// # Errors
    /// `InvalidInput` for more than 49 days.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let ms = user_timeout_ms(timeout)?;
        self.conn()?.options.user_timeout_ms.store(ms, Ordering::Relaxed);
        self.notify(reason::OPTION)
    }

    /// The TCP_USER_TIMEOUT that was set.
    ///
    /// # Errors
    /// None today.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(user_timeout_of(self.conn()?.options.user_timeout_ms.load(Ordering::Relaxed)))
    }
}

/// Zero for none.
fn user_timeout_ms(timeout: Option<Duration>) -> io::Result<u32> {
    let timeout = timeout.unwrap_or_default();
    u32::try_from(timeout.as_nanos().div_ceil(1_000_000))
        .map_err(|_| invalid(format!("a user timeout of {timeout:?} is too long: at most 49 days")))
}

/// The reverse of `user_timeout_ms`.
pub(super) fn user_timeout_of(ms: u32) -> Option<Duration> {
    (ms != 0).then(|| Duration::from_millis(u64::from(ms)))
}

impl SocketOptions {
    /// Keepalive as it is set now.
    pub(crate) fn keepalive_settings(&self) -> KeepaliveSettings {
        let time = |ms: u32| Duration::from_millis(u64::from(ms));
        KeepaliveSettings {
            enabled: self.keepalive.load(Ordering::Relaxed),
            idle: time(self.keepalive_time_ms.load(Ordering::Relaxed)),
            interval: time(self.keepalive_interval_ms.load(Ordering::Relaxed)),
            count: self.keepalive_retries.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_keepalive_settings(&self, settings: &KeepaliveSettings) {
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self.keepalive_time_ms.store(ms(settings.idle), Ordering::Relaxed);
        self.keepalive_interval_ms.store(ms(settings.interval), Ordering::Relaxed);
        self.keepalive_retries.store(settings.count, Ordering::Relaxed);
        self.keepalive.store(settings.enabled, Ordering::Relaxed);
    }
}
