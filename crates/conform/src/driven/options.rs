//! Socket options of the stack, by the kernel's numbers and units.
//!
//! Tests: `tests/written.rs`.

use std::io;
use std::time::Duration;

use sockeye::{TcpKeepalive, TcpSocket, TcpStream};

use super::{Socket, no_socket};
use crate::scenario::SockOpt;

/// setsockopt(2).
pub(super) fn set(socket: &mut Socket, option: SockOpt, value: u32) -> io::Result<()> {
    match socket {
        Socket::Fresh(socket) => set_before(socket, option, value),
        Socket::Stream(stream) => set_on(stream, option, value),
        Socket::None => Err(no_socket()),
    }
}

/// Sets an option of a socket that is not connected yet.
fn set_before(socket: &mut TcpSocket, option: SockOpt, value: u32) -> io::Result<()> {
    let on = value != 0;
    match option {
        SockOpt::Nodelay => socket.set_nodelay(on),
        SockOpt::Keepalive => socket.set_keepalive(on),
        SockOpt::KeepIdle | SockOpt::KeepInterval | SockOpt::KeepCount => {
            // socket2's call enables keepalive as well, and the kernel's options do not.
            let is_on = socket.keepalive();
            socket.set_tcp_keepalive(&keepalive(option, value))?;
            socket.set_keepalive(is_on);
        }
        SockOpt::Linger => socket.set_linger(Some(seconds(value)))?,
        SockOpt::UserTimeout => socket.set_user_timeout(milliseconds(value))?,
        SockOpt::Quickack => socket.set_quickack(on),
        SockOpt::NotsentLowat => socket.set_notsent_lowat(on.then_some(value))?,
        SockOpt::RcvLowat => socket.set_rcvlowat(value),
        SockOpt::RcvBuf => socket.set_recv_buffer_size(value as usize),
        SockOpt::SndBuf => socket.set_send_buffer_size(value as usize),
        SockOpt::MaxSeg => socket.set_maxseg(u16::try_from(value).map_err(|_| invalid())?)?,
        SockOpt::WindowClamp => socket.set_window_clamp(on.then_some(value)),
        SockOpt::Linger2 => socket.set_fin_timeout(fin_timeout(value)),
        SockOpt::RtoMax => socket.set_rto_max(Duration::from_millis(value.into()))?,
        SockOpt::FastOpen => socket.set_fastopen(value as usize),
        SockOpt::FastOpenConnect => socket.set_fastopen_connect(on),
        SockOpt::DeferAccept => socket.set_defer_accept(on.then(|| seconds(value))),
        SockOpt::SynCount => socket.set_syn_retries(value)?,
        SockOpt::Tos => socket.set_tos(value),
        SockOpt::Ttl => socket.set_ttl(value)?,
        // It has none of them here.
        SockOpt::Cork | SockOpt::MaxPacingRate => {}
    }
    Ok(())
}

/// Sets an option of a connection, which may still be in its handshake.
fn set_on(stream: &TcpStream, option: SockOpt, value: u32) -> io::Result<()> {
    let on = value != 0;
    match option {
        SockOpt::Nodelay => stream.set_nodelay(on),
        SockOpt::Keepalive => stream.set_keepalive(on),
        SockOpt::KeepIdle | SockOpt::KeepInterval | SockOpt::KeepCount => {
            let is_on = stream.keepalive()?;
            stream.set_tcp_keepalive(&keepalive(option, value))?;
            stream.set_keepalive(is_on)
        }
        SockOpt::Linger => stream.set_linger(Some(seconds(value))),
        SockOpt::UserTimeout => stream.set_user_timeout(milliseconds(value)),
        SockOpt::Quickack => stream.set_quickack(on),
        SockOpt::NotsentLowat => stream.set_notsent_lowat(on.then_some(value)),
        SockOpt::Cork => stream.set_cork(on),
        SockOpt::RcvLowat => stream.set_rcvlowat(value),
        SockOpt::RcvBuf => stream.set_recv_buffer_size(value as usize),
        SockOpt::SndBuf => stream.set_send_buffer_size(value as usize),
        SockOpt::SynCount => stream.set_syn_retries(value),
        SockOpt::Tos => stream.set_tos(value),
        SockOpt::Ttl => stream.set_ttl(value),
        // Too late for these.
        SockOpt::FastOpen | SockOpt::FastOpenConnect | SockOpt::DeferAccept => Err(invalid()),
        // It can only be read here.
        SockOpt::MaxSeg => Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT)),
        SockOpt::WindowClamp => stream.set_window_clamp(value),
        SockOpt::Linger2 => stream.set_fin_timeout(fin_timeout(value)),
        SockOpt::RtoMax => stream.set_rto_max(Duration::from_millis(value.into())),
        SockOpt::MaxPacingRate => stream.set_max_pacing_rate((value != u32::MAX).then_some(value.into())),
    }
}

/// getsockopt(2).
pub(super) fn get(stream: &TcpStream, option: SockOpt) -> io::Result<u32> {
    Ok(match option {
        // Linux has them on a connection too; no scenario asks for them.
        SockOpt::FastOpen | SockOpt::FastOpenConnect | SockOpt::DeferAccept => {
            return Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT));
        }
        SockOpt::SynCount => stream.syn_retries()?,
        SockOpt::Tos => stream.tos()?,
        SockOpt::Ttl => stream.ttl()?,
        SockOpt::Nodelay => stream.nodelay()?.into(),
        SockOpt::Keepalive => stream.keepalive()?.into(),
        SockOpt::KeepIdle => stream.keepalive_time()?.as_secs() as u32,
        SockOpt::KeepInterval => stream.keepalive_interval()?.as_secs() as u32,
        SockOpt::KeepCount => stream.keepalive_retries()?,
        SockOpt::Linger => stream.linger()?.is_some().into(),
        SockOpt::UserTimeout => stream.user_timeout()?.map_or(0, |timeout| timeout.as_millis() as u32),
        SockOpt::Quickack => stream.quickack()?.into(),
        SockOpt::NotsentLowat => stream.notsent_lowat()?.unwrap_or(0),
        SockOpt::Cork => stream.cork()?.into(),
        SockOpt::RcvLowat => stream.rcvlowat()?,
        SockOpt::RcvBuf => stream.recv_buffer_size()? as u32,
        SockOpt::SndBuf => stream.send_buffer_size()? as u32,
        SockOpt::MaxSeg => stream.maxseg()?.into(),
        SockOpt::WindowClamp => stream.window_clamp()?,
        SockOpt::RtoMax => stream.rto_max()?.as_millis() as u32,
        SockOpt::Linger2 => match stream.fin_timeout()? {
            Duration::ZERO => u32::MAX,
            timeout => timeout.as_secs() as u32,
        },
        SockOpt::MaxPacingRate => {
            stream.max_pacing_rate()?.map_or(u32::MAX, |rate| u32::try_from(rate).unwrap_or(u32::MAX))
        }
    })
}

fn keepalive(option: SockOpt, value: u32) -> TcpKeepalive {
    match option {
        SockOpt::KeepIdle => TcpKeepalive::new().with_time(seconds(value)),
        SockOpt::KeepInterval => TcpKeepalive::new().with_interval(seconds(value)),
        _ => TcpKeepalive::new().with_retries(value),
    }
}

fn seconds(value: u32) -> Duration {
    Duration::from_secs(value.into())
}

fn milliseconds(value: u32) -> Option<Duration> {
    (value != 0).then(|| Duration::from_millis(value.into()))
}

/// A number below 0 means no time at all, and 0 the default.
fn fin_timeout(value: u32) -> Option<Duration> {
    match value.cast_signed() {
        0 => None,
        ..0 => Some(Duration::ZERO),
        1.. => Some(seconds(value)),
    }
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}
