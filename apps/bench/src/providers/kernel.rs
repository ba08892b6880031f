//! The kernel's side: `std::net` over 127.0.0.1, readiness by epoll.
//!
//! Purpose: the kernel as a program would use it that wants to be fast: congestion control that
//! does not pace loopback, a long accept queue, level-triggered epoll.
//!
//! Does not depend on the workloads.
//!
//! Invariants: one listener lives as long as its provider, and [`Provider::listen`] hands out clones
//! of it: with a port for each sample, the TIME-WAIT states that `crr` leaves would add up over
//! the samples until the kernel's table of them is full and it works differently. Bulk clients set
//! their congestion control before connecting; `crr` clients do not, because it would be one more
//! system call a connection and one-byte exchanges do not depend on it.
//!
//! Tests: below.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::process::{Resource, getrlimit};
use socket2::{Domain, SockRef, Socket, Type};

use crate::provider::{BACKLOG_MAX, Counters, EVENTS_MAX, Poller, Provider};
use crate::providers::std_shape::std_shape;

/// The kernel's TCP.
pub struct Kernel {
    listener: TcpListener,
    /// Whether its clients use [`congestion`], too.
    sets_congestion: bool,
}

impl Kernel {
    /// For connections that live long: both ends use [`congestion`].
    pub fn new() -> io::Result<Self> {
        Ok(Self { listener: listen_on_loopback()?, sets_congestion: true })
    }

    /// For connections of one exchange: only the listener's side sets its congestion control.
    pub fn for_short_connections() -> io::Result<Self> {
        Ok(Self { listener: listen_on_loopback()?, sets_congestion: false })
    }
}

impl Provider for Kernel {
    type Listener = TcpListener;
    type Stream = TcpStream;
    type Poller = Epoll;

    fn listen(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    fn listen_anew(&self) -> io::Result<TcpListener> {
        listen_on_loopback()
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        if !self.sets_congestion {
            return TcpStream::connect(to);
        }
        let socket = socket()?;
        socket.connect(&to.into())?;
        Ok(socket.into())
    }

    fn poller(&self) -> io::Result<Epoll> {
        Ok(Epoll { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    fn counters(&self) -> Counters {
        Counters::new()
    }

    fn pairs_max(&self) -> usize {
        descriptors_max().saturating_sub(DESCRIPTORS_RESERVED) / 2
    }
}

std_shape!(TcpListener, TcpStream, |stream| SockRef::from(stream).set_linger(Some(Duration::ZERO)));

/// Level-triggered epoll.
pub struct Epoll {
    epoll: OwnedFd,
}

impl Poller for Epoll {
    type Stream = TcpStream;

    fn register(&mut self, stream: &TcpStream, token: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token as u64);
        Ok(epoll::add(&self.epoll, stream, data, epoll::EventFlags::IN)?)
    }

    fn wait(&mut self, timeout: Duration, mut ready: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "timeout out of range"))?;
        // Not initialised, so the room costs nothing each time.
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        let (events, _) = match epoll::wait(&self.epoll, &mut room[..], Some(&timeout)) {
            Ok(events) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        for event in events {
            // Tokens come from `register`, so they fit back into the type they had there.
            ready(event.data.u64() as usize)?;
        }
        Ok(())
    }
}

/// Which congestion control the kernel's side uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// This one is set on every bulk socket.
    Set(&'static str),
    /// None of [`CONGESTION_WANTED`] may be set; the machine's default stays.
    Default {
        /// Its name, if the kernel reports it.
        name: String,
        /// Why setting the first wish failed.
        refusal: String,
    },
}

impl Congestion {
    /// Its name, if it can be chosen.
    pub fn set(&self) -> Option<&'static str> {
        match self {
            Congestion::Set(name) => Some(name),
            Congestion::Default { .. } => None,
        }
    }

    /// Its name, for the parameters of a result.
    pub fn name(&self) -> &str {
        match self {
            Congestion::Set(name) => name,
            Congestion::Default { name, .. } => name,
        }
    }
}

/// The congestion control of the kernel's side: the first of [`CONGESTION_WANTED`] that may be set,
/// tried once on a socket that is thrown away.
pub fn congestion() -> &'static Congestion {
    static FOUND: OnceLock<Congestion> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut refusal = String::new();
        for &name in CONGESTION_WANTED {
            match Socket::new(Domain::IPV4, Type::STREAM, None)
                .and_then(|socket| socket.set_tcp_congestion(name.as_bytes()))
            {
                Ok(()) => return Congestion::Set(name),
                Err(e) if refusal.is_empty() => refusal = e.to_string(),
                Err(_) => {}
            }
        }
        Congestion::Default { name: default_congestion(), refusal }
    })
}

fn descriptors_max() -> usize {
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(current).unwrap_or(usize::MAX)
}

fn default_congestion() -> String {
    Socket::new(Domain::IPV4, Type::STREAM, None)
        .and_then(|socket| socket.tcp_congestion())
        .map(|name| String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
        .unwrap_or_else(|_| "unknown".to_owned())
}

/// A TCP socket with [`congestion`], in the caller's network namespace.
pub fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(name) = congestion().set() {
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    Ok(socket)
}

/// A listener there. What it accepts has its congestion control.
pub fn listen_at(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket()?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG_MAX as i32)?;
    Ok(socket.into())
}

fn listen_on_loopback() -> io::Result<TcpListener> {
    listen_at((Ipv4Addr::LOCALHOST, 0).into())
}

/// In order of preference. BBR paces even loopback and cubic needs a permission where it is not in
/// `net.ipv4.tcp_allowed_congestion_control`; without loss or pacing reno behaves like cubic.
const CONGESTION_WANTED: &[&str] = &["cubic", "reno"];

/// Descriptors kept for everything that is not a connection: standard streams, listener, epoll.
const DESCRIPTORS_RESERVED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::checks;

    #[test]
    fn bytes_arrive_and_the_poller_reports_them_until_they_are_read() {
        checks::readiness_is_level_triggered(&Kernel::new().unwrap());
    }

    #[test]
    fn a_closed_peer_is_an_unexpected_eof_for_read_exact() {
        checks::a_closed_peer_ends_the_stream(&Kernel::for_short_connections().unwrap());
    }

    #[test]
    fn sockets_carry_the_congestion_control_that_is_reported() {
        let (client, server) = checks::pair(&Kernel::new().unwrap());
        for stream in [&client, &server] {
            let name = SockRef::from(stream).tcp_congestion().unwrap();
            let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
            assert_eq!(name, congestion().name());
        }
    }
}
