//! getsockopt, setsockopt, ioctl and fcntl: the options that the stack has, by their numbers on Linux. Others are ENOPROTOOPT.
//!
//! The send buffer is as large as Linux's `sk_sndbuf`, which is twice the value of SO_SNDBUF: Linux counts memory there, and a large segment's is little more
//! than its bytes.
//!
//! An option is set on the socket before it connects or listens (`on_socket`), on the connection (`on_stream`) or on the listener (`on_listener`).

use std::os::fd::RawFd;
use std::time::Duration;

use sockeye::{CongestionControl, TcpKeepalive, TcpListener, TcpSocket, TcpStream, Timestamping, fastopen};

use super::{Shape, Socket};
use crate::adapter::Adapter;
use crate::error::{Call, Errno};
use crate::files::File;
use crate::tcp_info;

/// An option as it was set.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub level: i32,
    pub name: i32,
    pub value: Vec<u8>,
}

impl Setting {
    /// The value as an `int`.
    ///
    /// # Errors
    /// EINVAL if it is shorter.
    pub fn int(&self) -> Call<i32> {
        if let (libc::IPPROTO_IP, [byte]) = (self.level, &self.value[..]) {
            // IP's options may be one octet.
            return Ok(i32::from(*byte));
        }
        self.value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or(Errno(libc::EINVAL))
    }

    fn on(&self) -> Call<bool> {
        Ok(self.int()? != 0)
    }

    fn size(&self) -> Call<usize> {
        usize::try_from(self.int()?).map_err(|_| Errno(libc::EINVAL))
    }

    fn unsigned(&self) -> Call<u32> {
        u32::try_from(self.int()?).map_err(|_| Errno(libc::EINVAL))
    }

    fn seconds(&self) -> Call<Duration> {
        match self.int()? {
            seconds @ 1.. => Ok(Duration::from_secs(seconds.unsigned_abs().into())),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    fn milliseconds(&self) -> Call<Duration> {
        Ok(Duration::from_millis(self.unsigned()?.into()))
    }

    /// Zero or less is none.
    fn whole_seconds(&self) -> Option<Duration> {
        self.seconds().ok()
    }

    /// TCP_LINGER2: seconds, 0 for the stack's own, negative for not at all.
    fn fin_timeout(&self) -> Call<Option<Duration>> {
        Ok(match self.int()? {
            0 => None,
            seconds => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
        })
    }

    fn name_text(&self) -> &str {
        let len = self.value.iter().position(|byte| *byte == 0).unwrap_or(self.value.len());
        std::str::from_utf8(&self.value[..len]).unwrap_or("")
    }

    /// `struct linger`.
    fn linger(&self) -> Call<Option<Duration>> {
        let seconds =
            self.value.get(4..8).and_then(|bytes| bytes.first_chunk()).ok_or(Errno(libc::EINVAL))?;
        let seconds = u32::from_ne_bytes(*seconds);
        Ok(self.on()?.then(|| Duration::from_secs(seconds.into())))
    }

    /// `struct timeval`: zero, or [`TIMEOUT_MAX`] and more, is no limit; a negative time does not wait at all (`sock_set_timeout`).
    fn timeval(&self) -> Call<Option<Duration>> {
        let word = |at: usize| self.value.get(at..at + 8).and_then(|bytes| bytes.first_chunk());
        let (Some(seconds), Some(micros)) = (word(0), word(8)) else { return Err(Errno(libc::EINVAL)) };
        let (seconds, micros) = (i64::from_ne_bytes(*seconds), i64::from_ne_bytes(*micros));
        let micros =
            u32::try_from(micros).ok().filter(|micros| *micros < 1_000_000).ok_or(Errno(libc::EDOM))?;
        let Ok(seconds) = u64::try_from(seconds) else { return Ok(Some(Duration::ZERO)) };
        let time = Duration::new(seconds, micros * 1_000);
        Ok(Some(time).filter(|time| !time.is_zero() && *time < TIMEOUT_MAX))
    }

    fn keepalive(&self) -> Call<TcpKeepalive> {
        let all = TcpKeepalive::new();
        Ok(match self.name {
            libc::TCP_KEEPIDLE => all.with_time(self.seconds()?),
            libc::TCP_KEEPINTVL => all.with_interval(self.seconds()?),
            _ => all.with_retries(self.unsigned()?),
        })
    }

    /// TCP_USER_TIMEOUT: milliseconds, 0 for none.
    fn user_timeout(&self) -> Call<Option<Duration>> {
        let millis = self.unsigned()?;
        Ok((millis > 0).then(|| Duration::from_millis(millis.into())))
    }

    /// TCP_NOTSENT_LOWAT: 0 is the stack's own.
    fn lowat(&self) -> Call<Option<u32>> {
        Ok(Some(self.int()? as u32).filter(|bytes| *bytes > 0))
    }

    /// TCP_FASTOPEN_KEY: one key or two.
    fn keys(&self) -> Call<fastopen::Keys> {
        match self.value.as_chunks::<16>() {
            ([primary], []) => Ok(fastopen::Keys { primary: *primary, backup: None }),
            ([primary, backup], []) => Ok(fastopen::Keys { primary: *primary, backup: Some(*backup) }),
            (_, _) => Err(Errno(libc::EINVAL)),
        }
    }

    /// SO_TIMESTAMPING: time stamps are those of software, if that is asked for.
    fn timestamping(&self) -> Call<Timestamping> {
        let bits = self.unsigned()?;
        if bits & libc::SOF_TIMESTAMPING_SOFTWARE == 0 {
            return Ok(Timestamping::NONE);
        }
        let all = [
            (libc::SOF_TIMESTAMPING_TX_SOFTWARE, Timestamping::SENT),
            (libc::SOF_TIMESTAMPING_RX_SOFTWARE, Timestamping::RECEIVED),
            (libc::SOF_TIMESTAMPING_OPT_ID, Timestamping::NUMBERED),
            (libc::SOF_TIMESTAMPING_TX_SCHED, Timestamping::SCHEDULED),
            (libc::SOF_TIMESTAMPING_TX_ACK, Timestamping::ACKED),
        ];
        let given = all.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, wanted)| wanted);
        Ok(given.fold(Timestamping::NONE, Timestamping::with))
    }

    fn maxseg(&self) -> Call<u16> {
        u16::try_from(self.int()?).map_err(|_| Errno(libc::EINVAL))
    }

    /// SO_MAX_PACING_RATE: all ones for no bound, in four octets or in eight.
    fn pacing(&self) -> Call<Option<u64>> {
        let rate = match self.value.first_chunk() {
            Some(bytes) => u64::from_ne_bytes(*bytes),
            None => u64::from(self.int()? as u32),
        };
        Ok((rate != u64::MAX && rate != u64::from(u32::MAX)).then_some(rate))
    }

    fn algorithm(&self) -> Call<CongestionControl> {
        let name = match self.name_text() {
            "reno" => "newreno",
            name => name,
        };
        let index = CongestionControl::NAMES.iter().position(|known| *known == name);
        index.and_then(|index| CongestionControl::ALL.get(index)).copied().ok_or(Errno(libc::ENOENT))
    }
}

/// What no option of the stack stands for.
const UNKNOWN: Errno = Errno(libc::ENOPROTOOPT);

/// Sets an option of a socket that is neither connected nor listening.
pub(super) fn on_socket(socket: &mut TcpSocket, setting: &Setting) -> Call<()> {
    match (setting.level, setting.name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => socket.set_reuse_address(setting.on()?),
        (libc::SOL_SOCKET, libc::SO_REUSEPORT) => socket.set_reuse_port(setting.on()?),
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => socket.set_zerocopy(setting.on()?),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => socket.set_timestamping(setting.timestamping()?),
        (libc::SOL_SOCKET, libc::SO_MARK | libc::SO_PRIORITY) | (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => {
            let _ = setting.int()?;
        }
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => socket.set_rcvlowat(setting.unsigned()?),
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => {
            socket.set_window_clamp(Some(setting.unsigned()?).filter(|bytes| *bytes > 0));
        }
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => socket.set_keepalive(setting.on()?),
        (libc::SOL_SOCKET, libc::SO_LINGER) => socket.set_linger(setting.linger()?)?,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => socket.set_send_buffer_size(2 * setting.size()?),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => socket.set_recv_buffer_size(setting.size()?),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => socket.set_nodelay(setting.on()?),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => socket.set_congestion_control(setting.algorithm()?),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => socket.set_maxseg(setting.maxseg()?)?,
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => socket.set_fastopen(setting.size()?),
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) => socket.set_fastopen_connect(setting.on()?),
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY) => socket.set_fastopen_keys(setting.keys()?),
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_NO_COOKIE) => socket.set_fastopen_no_cookie(setting.on()?),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT) => {
            let is_on = socket.keepalive();
            socket.set_tcp_keepalive(&setting.keepalive()?)?;
            // That has turned it on, as in `socket2`; the option does not.
            socket.set_keepalive(is_on);
        }
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => socket.set_syn_retries(setting.unsigned()?)?,
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => socket.set_defer_accept(setting.whole_seconds()),
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => socket.set_fin_timeout(setting.fin_timeout()?),
        (libc::IPPROTO_TCP, TCP_RTO_MAX_MS) => socket.set_rto_max(setting.milliseconds()?)?,
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => socket.set_user_timeout(setting.user_timeout()?)?,
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => socket.set_notsent_lowat(setting.lowat()?)?,
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            socket.set_tos(setting.unsigned()?);
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            socket.set_ttl(setting.unsigned()?)?;
        }
        (libc::IPPROTO_IP, libc::IP_FREEBIND | libc::IP_TRANSPARENT) => socket.set_transparent(setting.on()?),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => socket.set_only_v6(setting.on()?),
        (_, _) => return Err(UNKNOWN),
    }
    Ok(())
}

/// Sets an option of a connection.
fn on_stream(stream: &TcpStream, setting: &Setting) -> Call<()> {
    match (setting.level, setting.name) {
        // They decide about names, and this one has its name.
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => {}
        // Routes and queues do not tell marks apart, and a connection always looks for the path's MTU.
        (libc::SOL_SOCKET, libc::SO_MARK | libc::SO_PRIORITY) | (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => {
            let _ = setting.int()?;
        }
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => stream.set_zerocopy(setting.on()?)?,
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => stream.set_timestamping(setting.timestamping()?)?,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => stream.set_keepalive(setting.on()?)?,
        (libc::SOL_SOCKET, libc::SO_LINGER) => stream.set_linger(setting.linger()?)?,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => stream.set_send_buffer_size(2 * setting.size()?)?,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => stream.set_recv_buffer_size(setting.size()?)?,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => stream.set_nodelay(setting.on()?)?,
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => stream.set_quickack(setting.on()?)?,
        (libc::IPPROTO_TCP, libc::TCP_CORK) => stream.set_cork(setting.on()?)?,
        // It counts for the next handshake.
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => drop(setting.maxseg()?),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => stream.set_congestion_control(setting.algorithm()?)?,
        (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) => stream.set_max_pacing_rate(setting.pacing()?)?,
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => stream.set_rcvlowat(setting.unsigned()?)?,
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => stream.set_window_clamp(setting.unsigned()?)?,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT) => {
            let is_on = stream.keepalive()?;
            stream.set_tcp_keepalive(&setting.keepalive()?)?;
            if !is_on {
                stream.set_keepalive(false)?;
            }
        }
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => stream.set_syn_retries(setting.unsigned()?)?,
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => stream.set_fin_timeout(setting.fin_timeout()?)?,
        (libc::IPPROTO_TCP, TCP_RTO_MAX_MS) => stream.set_rto_max(setting.milliseconds()?)?,
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => stream.set_user_timeout(setting.user_timeout()?)?,
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => stream.set_notsent_lowat(setting.lowat()?)?,
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            stream.set_tos(setting.unsigned()?)?;
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            stream.set_ttl(setting.unsigned()?)?;
        }
        (_, _) => return Err(UNKNOWN),
    }
    Ok(())
}

/// Sets an option of a listener.
fn on_listener(listener: &TcpListener, setting: &Setting) -> Call<()> {
    match (setting.level, setting.name) {
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => listener.set_fastopen(setting.size()?)?,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => listener.set_maxseg(setting.maxseg()?)?,
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => listener.set_zerocopy(setting.on()?)?,
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => listener.set_syn_retries(setting.unsigned()?)?,
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => listener.set_defer_accept(setting.whole_seconds())?,
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY) => listener.set_fastopen_keys(setting.keys()?)?,
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_NO_COOKIE) => {
            listener.set_fastopen_no_cookie(setting.on()?)?
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            listener.set_ttl(setting.unsigned()?)?;
        }
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => {}
        (_, _) => return Err(UNKNOWN),
    }
    Ok(())
}

/// Sets an option of a socket of UDP: those that count for its bind.
fn on_datagram(setting: &Setting) -> Call<()> {
    match (setting.level, setting.name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT)
        | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)
        | (libc::IPPROTO_IP, libc::IP_TRANSPARENT) => setting.on().map(drop),
        (_, _) => Err(UNKNOWN),
    }
}

impl Socket {
    fn set(&mut self, setting: Setting) -> Call<()> {
        match (setting.level, setting.name) {
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => self.rcv_timeout = setting.timeval()?,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => self.snd_timeout = setting.timeval()?,
            (libc::IPPROTO_TCP, TCP_INQ) => self.wants_inq = setting.on()?,
            (_, _) => {
                match &mut self.shape {
                    Shape::Fresh(socket) => on_socket(socket, &setting)?,
                    Shape::Connecting(stream) | Shape::Connected(stream) => on_stream(stream, &setting)?,
                    Shape::Listening(listener) => on_listener(listener, &setting)?,
                    Shape::Datagram(_) => on_datagram(&setting)?,
                    Shape::Gone => return Err(UNKNOWN),
                }
                self.settings.push(setting);
            }
        }
        Ok(())
    }

    /// The last value that was set.
    pub(super) fn was_set(&self, level: i32, name: i32) -> Option<i32> {
        let found = self.settings.iter().rev().find(|setting| (setting.level, setting.name) == (level, name));
        found.and_then(|setting| setting.int().ok())
    }

    fn get(&mut self, level: i32, name: i32) -> Call<Vec<u8>> {
        if let Some(value) = self.get_any(level, name)? {
            return Ok(value.to_ne_bytes().into());
        }
        if let (libc::IPPROTO_TCP, libc::TCP_CONGESTION) = (level, name) {
            return self.algorithm_name();
        }
        if let (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY) = (level, name) {
            // Keys that were set are those of this socket, also before it listens.
            let own =
                self.settings.iter().rev().find(|setting| (setting.level, setting.name) == (level, name));
            let stack = self.stack.config().tcp.fastopen_key;
            let of_stack = || {
                stack.map(|keys| [&keys.primary[..], keys.backup.as_ref().map_or(&[], |key| key)].concat())
            };
            return Ok(own.map(|setting| setting.value.clone()).or_else(of_stack).unwrap_or_default());
        }
        if let (libc::SOL_SOCKET, libc::SO_MEMINFO) = (level, name) {
            return Ok(tcp_info::memory(self));
        }
        match (&self.shape, level, name) {
            (_, libc::IPPROTO_TCP, libc::TCP_INFO) => tcp_info::of(self),
            // None of the algorithms has figures of its own to show.
            (_, libc::IPPROTO_TCP, TCP_CC_INFO) => Ok(Vec::new()),
            (Shape::Connecting(stream) | Shape::Connected(stream), _, _) => of_stream(stream, level, name),
            (Shape::Fresh(socket), _, _) => of_socket(socket, level, name),
            (Shape::Listening(_), libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                Ok(self.was_set(level, name).unwrap_or(536).to_ne_bytes().into())
            }
            (Shape::Listening(_) | Shape::Datagram(_) | Shape::Gone, _, _) => Err(UNKNOWN),
        }
    }

    /// Options whose value is an `int` in every shape.
    fn get_any(&mut self, level: i32, name: i32) -> Call<Option<i32>> {
        let is_datagram = matches!(self.shape, Shape::Datagram(_));
        Ok(Some(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_TYPE) if is_datagram => libc::SOCK_DGRAM,
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) if is_datagram => libc::IPPROTO_UDP,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => {
                if self.is_v6 {
                    libc::AF_INET6
                } else {
                    libc::AF_INET
                }
            }
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => i32::from(matches!(self.shape, Shape::Listening(_))),
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let error = match &self.shape {
                    Shape::Connecting(stream) | Shape::Connected(stream) => stream.take_error()?,
                    Shape::Datagram(udp) => udp.take_error()?,
                    Shape::Fresh(_) | Shape::Listening(_) | Shape::Gone => None,
                };
                error.map_or(0, |error| Errno::from(error).0)
            }
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => {
                self.was_set(level, name).unwrap_or(0)
            }
            (libc::IPPROTO_TCP, TCP_INQ) => i32::from(self.wants_inq),
            (
                libc::IPPROTO_TCP,
                libc::TCP_FASTOPEN
                | libc::TCP_FASTOPEN_CONNECT
                | libc::TCP_FASTOPEN_NO_COOKIE
                | libc::TCP_NOTSENT_LOWAT,
            ) => self.was_set(level, name).unwrap_or(0),
            (_, _) => return Ok(None),
        }))
    }

    fn algorithm_name(&self) -> Call<Vec<u8>> {
        let algorithm = match self.stream() {
            Ok(stream) => stream.info()?.congestion_control,
            Err(_) => self.stack.config().tcp.congestion_control,
        };
        let index = CongestionControl::ALL.iter().position(|known| *known == algorithm);
        let name = index.and_then(|index| CongestionControl::NAMES.get(index)).map_or("", |name| *name);
        let mut bytes = if name == "newreno" { "reno" } else { name }.as_bytes().to_vec();
        // TCP_CA_NAME_MAX.
        bytes.resize(16, 0);
        Ok(bytes)
    }
}

/// Reads an option of a connection.
fn of_stream(stream: &TcpStream, level: i32, name: i32) -> Call<Vec<u8>> {
    let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
    let value = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => i32::from(stream.keepalive()?),
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => i32::from(stream.zerocopy()?),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => int(stream.send_buffer_size()? / 2),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => int(stream.recv_buffer_size()?),
        (libc::SOL_SOCKET, libc::SO_LINGER) => return Ok(linger(stream.linger()?)),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => i32::from(stream.nodelay()?),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => i32::from(stream.cork()?),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => i32::from(stream.quickack()?),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => int(stream.rcvlowat()? as usize),
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => int(stream.window_clamp()? as usize),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => int(stream.info()?.snd_mss as usize),
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => int(stream.syn_retries()? as usize),
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => seconds(stream.fin_timeout()?),
        (libc::IPPROTO_TCP, TCP_RTO_MAX_MS) => millis(Some(stream.rto_max()?)),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => seconds(stream.keepalive_time()?),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => seconds(stream.keepalive_interval()?),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => int(stream.keepalive_retries()? as usize),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => millis(stream.user_timeout()?),
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            int(stream.tos()? as usize)
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            int(stream.ttl()? as usize)
        }
        (_, _) => return Err(UNKNOWN),
    };
    Ok(value.to_ne_bytes().into())
}

/// Reads an option of a socket that is neither connected nor listening.
fn of_socket(socket: &TcpSocket, level: i32, name: i32) -> Call<Vec<u8>> {
    let value = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => i32::from(socket.keepalive()),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => int(socket.send_buffer_size() / 2),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => int(socket.recv_buffer_size()),
        (libc::SOL_SOCKET, libc::SO_LINGER) => return Ok(linger(socket.linger())),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => i32::from(socket.nodelay()),
        // Before a handshake: what was set, or what a peer that says nothing is assumed to take.
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) if socket.maxseg() == 0 => 536,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => int(usize::from(socket.maxseg())),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => millis(socket.user_timeout()),
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            int(socket.tos() as usize)
        }
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => i32::from(socket.only_v6()),
        (_, _) => return Err(UNKNOWN),
    };
    Ok(value.to_ne_bytes().into())
}

fn int(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn millis(time: Option<Duration>) -> i32 {
    time.map_or(0, |time| i32::try_from(time.as_millis()).unwrap_or(i32::MAX))
}

fn linger(time: Option<Duration>) -> Vec<u8> {
    let seconds = time.map_or(0, |time| i32::try_from(time.as_secs()).unwrap_or(i32::MAX));
    [i32::from(time.is_some()).to_ne_bytes(), seconds.to_ne_bytes()].concat()
}

impl Adapter {
    pub(crate) fn setsockopt(&self, fd: RawFd, setting: Setting) -> Call<()> {
        if (setting.level, setting.name) == (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT)
            && self.config()?.tcp.fastopen & fastopen::CLIENT == 0
        {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let mut world = self.lock();
        world.files.socket(fd)?.set(setting)?;
        drop(self.settle(world));
        Ok(())
    }

    pub(crate) fn getsockopt(&self, fd: RawFd, level: i32, name: i32) -> Call<Vec<u8>> {
        self.lock().files.socket(fd)?.get(level, name)
    }

    /// The answer, if the request has one, and nothing for FIONBIO.
    pub(crate) fn ioctl(&self, fd: RawFd, request: u32, argument: Option<i32>) -> Call<Option<i32>> {
        let mut world = self.lock();
        let socket = match world.file(fd)? {
            File::Socket(socket) => socket,
            File::Pipe(pipe) if u64::from(request) == libc::FIONREAD => return Ok(Some(int(pipe.len()))),
            File::Pipe(_) | File::Epoll(_) => return Err(Errno(libc::ENOTTY)),
        };
        if u64::from(request) == libc::FIONBIO {
            socket.nonblocking = argument.ok_or(Errno(libc::EFAULT))? != 0;
            return Ok(None);
        }
        if matches!(socket.shape, Shape::Listening(_)) {
            return Err(Errno(libc::EINVAL));
        }
        let stream = socket.stream().ok();
        let answer = match u64::from(request) {
            libc::FIONREAD => stream.map_or(Ok(0), TcpStream::available)?,
            libc::TIOCOUTQ => stream.map_or(Ok(0), TcpStream::unacknowledged)?,
            SIOCOUTQNSD => match stream {
                Some(stream) => stream.info()?.not_sent as usize,
                None => 0,
            },
            SIOCATMARK => usize::from(stream.map_or(Ok(false), TcpStream::at_mark)?),
            _ => return Err(Errno(libc::ENOTTY)),
        };
        Ok(Some(int(answer)))
    }

    pub(crate) fn fcntl(&self, fd: RawFd, command: i32, argument: i32) -> Call<i32> {
        let mut world = self.lock();
        let nonblocking = match world.file(fd)? {
            File::Socket(socket) => &mut socket.nonblocking,
            File::Pipe(pipe) => &mut pipe.nonblocking,
            File::Epoll(_) => return Err(Errno(libc::EINVAL)),
        };
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if *nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                *nonblocking = argument & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => Ok(0),
            _ => Err(Errno(libc::EINVAL)),
        }
    }
}

/// From here on, a time-out counts as none: no script runs so long.
const TIMEOUT_MAX: Duration = Duration::from_secs(1 << 32);
/// Constants of the kernel that the `libc` crate does not have.
pub(crate) const TCP_INQ: i32 = 36;
const TCP_CC_INFO: i32 = 26;
const TCP_RTO_MAX_MS: i32 = 44;
const SIOCOUTQNSD: u64 = 0x894b;
const SIOCATMARK: u64 = 0x8905;
