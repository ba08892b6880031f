//! How sockets come into being and connect: socket, bind, listen, accept, connect, shutdown.

use std::net::{Shutdown, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use sockeye::TcpStream;

use super::{Shape, Socket};
use crate::adapter::{Adapter, Locked, World};
use crate::error::{Call, Errno};
use crate::files::File;

/// The largest backlog that the stack takes.
const BACKLOG_MAX: i32 = 4096;

impl Adapter {
    pub(crate) fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Call<RawFd> {
        let is_v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return Err(Errno(libc::EAFNOSUPPORT)),
        };
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let mut world = self.lock();
        let stack = self.stack(&mut world)?;
        let socket = match (kind & !flags, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Socket::new(stack, is_v6, nonblocking),
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Socket::datagram(stack, is_v6, nonblocking)?,
            (_, _) => return Err(Errno(libc::EPROTONOSUPPORT)),
        };
        world.files.add(File::Socket(Box::new(socket)))
    }

    pub(crate) fn bind(&self, fd: RawFd, addr: SocketAddr) -> Call<()> {
        let mut world = self.lock();
        let socket = world.files.socket(fd)?;
        if let Shape::Datagram(udp) = &socket.shape {
            if udp.local_addr()?.port() != 0 {
                return Err(Errno(libc::EINVAL));
            }
            let bound = socket.udp().bind(addr)?;
            bound.set_nonblocking(true)?;
            socket.shape = Shape::Datagram(bound);
            return world.register(fd);
        }
        let Shape::Fresh(fresh) = &mut socket.shape else { return Err(Errno(libc::EINVAL)) };
        fresh.bind(addr)?;
        socket.bound = Some(fresh.local_addr().unwrap_or(addr));
        Ok(())
    }

    pub(crate) fn listen(&self, fd: RawFd, backlog: i32) -> Call<()> {
        let mut world = self.lock();
        let socket = world.files.socket(fd)?;
        match std::mem::replace(&mut socket.shape, Shape::Gone) {
            Shape::Fresh(fresh) => {
                let backlog = usize::try_from(backlog.clamp(1, BACKLOG_MAX)).unwrap_or(1);
                match fresh.listen(backlog) {
                    Ok(listener) => {
                        listener.set_nonblocking(true)?;
                        socket.shape = Shape::Listening(listener);
                    }
                    Err(error) => {
                        socket.shape = Shape::Fresh(socket.fresh());
                        return Err(error.into());
                    }
                }
            }
            shape @ Shape::Listening(_) => socket.shape = shape,
            shape => {
                socket.shape = shape;
                return Err(Errno(libc::EINVAL));
            }
        }
        world.register(fd)?;
        drop(self.settle(world));
        Ok(())
    }

    pub(crate) fn accept(&self, fd: RawFd) -> Call<(RawFd, SocketAddr)> {
        let mut world = self.lock();
        let socket = world.files.socket(fd)?;
        let (nonblocking, timeout) = (socket.nonblocking, socket.rcv_timeout);
        let until = until(&world, nonblocking, timeout);
        let (_world, done) = self.block(world, until, |world| settled(accept_now(world, fd)));
        done.unwrap_or(Err(Errno(libc::EAGAIN)))
    }

    pub(crate) fn connect(&self, fd: RawFd, addr: SocketAddr) -> Call<()> {
        let mut world = self.lock();
        let before = world.sent_count();
        let socket = world.files.socket(fd)?;
        let (nonblocking, timeout) = (socket.nonblocking, socket.snd_timeout);
        if let Shape::Datagram(udp) = &socket.shape {
            return Ok(udp.connect(addr)?);
        }
        match std::mem::replace(&mut socket.shape, Shape::Gone) {
            Shape::Fresh(_) => start(socket, addr)?,
            Shape::Connecting(stream) => {
                socket.shape = Shape::Connecting(stream);
                if socket.is_deferred {
                    return Err(Errno(libc::EISCONN));
                }
                if outcome(socket).is_none() {
                    return Err(Errno(libc::EALREADY));
                }
            }
            Shape::Connected(stream) => {
                let has_ended = stream.state_name() == "CLOSED";
                socket.shape = Shape::Connected(stream);
                if !has_ended {
                    return Err(Errno(libc::EISCONN));
                }
                start(socket, addr)?;
            }
            shape => {
                socket.shape = shape;
                return Err(Errno(libc::EISCONN));
            }
        }
        world.register(fd)?;
        let is_silent = world.sent_count() == before;
        let socket = world.files.socket(fd)?;
        if is_silent && defers(socket) {
            // Fast Open: the SYN waits for the first write.
            socket.is_deferred = true;
            return Ok(());
        }
        let world = self.settle(world);
        let until = until(&world, nonblocking, timeout);
        self.await_connect(world, fd, until).1
    }

    /// Waits for the end of a handshake.
    pub(super) fn await_connect<'a>(
        &'a self,
        world: Locked<'a>,
        fd: RawFd,
        until: Option<Duration>,
    ) -> (Locked<'a>, Call<()>) {
        let (mut world, done) = self.block(world, until, |world| {
            world.files.socket(fd).map_or_else(|error| Some(Err(error)), outcome)
        });
        let result = done.unwrap_or(Err(Errno(libc::EINPROGRESS)));
        if let Ok(socket) = world.files.socket(fd) {
            finish(socket, &result);
        }
        (world, result)
    }

    /// `connect` to AF_UNSPEC: the connection is reset, and the socket can be used anew.
    pub(crate) fn disconnect(&self, fd: RawFd) -> Call<()> {
        let mut world = self.lock();
        let socket = world.files.socket(fd)?;
        if let Shape::Datagram(udp) = &socket.shape {
            udp.disconnect();
            return Ok(());
        }
        if let Ok(stream) = socket.stream() {
            stream.set_linger(Some(Duration::ZERO))?;
        }
        socket.shape = Shape::Gone;
        socket.shape = Shape::Fresh(socket.fresh());
        drop(self.settle(world));
        Ok(())
    }

    pub(crate) fn shutdown(&self, fd: RawFd, how: i32) -> Call<()> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let mut world = self.lock();
        let socket = world.files.socket(fd)?;
        match &socket.shape {
            Shape::Listening(_) if !matches!(how, Shutdown::Write) => {
                socket.shape = Shape::Gone;
                socket.shape = Shape::Fresh(socket.fresh());
            }
            Shape::Listening(_) => {}
            _ => socket.stream()?.shutdown(how)?,
        }
        drop(self.settle(world));
        Ok(())
    }
}

/// The end of a call's time: at once if the socket does not block, never without a time-out.
pub(crate) fn until(world: &World, nonblocking: bool, timeout: Option<Duration>) -> Option<Duration> {
    if nonblocking { Some(world.now) } else { timeout.map(|timeout| world.now + timeout) }
}

/// A result that is no "not yet".
pub(crate) fn settled<T>(result: Call<T>) -> Option<Call<T>> {
    match result {
        Err(Errno(libc::EAGAIN)) => None,
        result => Some(result),
    }
}

fn accept_now(world: &mut World, fd: RawFd) -> Call<(RawFd, SocketAddr)> {
    let socket = world.files.socket(fd)?;
    let Shape::Listening(listener) = &socket.shape else { return Err(Errno(libc::EINVAL)) };
    let (stream, peer) = listener.accept()?;
    stream.set_nonblocking(true)?;
    let mut accepted = Socket::new(socket.stack.clone(), socket.is_v6, false);
    accepted.shape = Shape::Connected(stream);
    accepted.settings.clone_from(&socket.settings);
    (accepted.rcv_timeout, accepted.snd_timeout) = (socket.rcv_timeout, socket.snd_timeout);
    Ok((world.files.add(File::Socket(Box::new(accepted)))?, peer))
}

/// Sends the SYN, or not yet.
fn start(socket: &mut Socket, addr: SocketAddr) -> Call<()> {
    let shape = std::mem::replace(&mut socket.shape, Shape::Gone);
    let fresh = match shape {
        Shape::Fresh(fresh) => fresh,
        other => {
            // The old connection's name is given back first.
            drop(other);
            socket.fresh()
        }
    };
    match fresh.connect(addr) {
        Ok(stream) => {
            socket.shape = Shape::Connecting(stream);
            Ok(())
        }
        Err(error) => {
            socket.shape = Shape::Fresh(socket.fresh());
            Err(error.into())
        }
    }
}

/// How the connect has ended, if it has.
fn outcome(socket: &mut Socket) -> Option<Call<()>> {
    let Shape::Connecting(stream) = &socket.shape else { return Some(Ok(())) };
    match stream.take_error() {
        Ok(Some(error)) | Err(error) => return Some(Err(error.into())),
        Ok(None) => {}
    }
    if is_connected(stream) {
        return Some(Ok(()));
    }
    // Its error has been asked for.
    (stream.state_name() == "CLOSED").then_some(Err(Errno(libc::ECONNABORTED)))
}

fn is_connected(stream: &TcpStream) -> bool {
    !matches!(stream.state_name(), "SYN-SENT" | "SYN-RECEIVED" | "CLOSED")
}

/// Notes how a connect has ended.
fn finish(socket: &mut Socket, result: &Call<()>) {
    let shape = std::mem::replace(&mut socket.shape, Shape::Gone);
    socket.shape = match (shape, result) {
        (Shape::Connecting(stream), Ok(())) => Shape::Connected(stream),
        (shape @ Shape::Connecting(_), Err(Errno(libc::EINPROGRESS))) => shape,
        (Shape::Connecting(_), Err(_)) => Shape::Fresh(socket.fresh()),
        (shape, _) => shape,
    };
}

/// Whether a handshake that goes on in the background has ended well, which is then noted.
///
/// # Errors
/// With which it has ended.
pub(super) fn has_connected(socket: &mut Socket) -> Call<bool> {
    let Some(result) = outcome(socket) else { return Ok(false) };
    finish(socket, &result);
    result.map(|()| true)
}

/// Whether the connect waits for text to go with its SYN.
fn defers(socket: &Socket) -> bool {
    let is_set = |setting: &super::Setting| {
        (setting.level, setting.name) == (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT)
            && setting.int() == Ok(1)
    };
    socket.settings.iter().any(is_set)
}
