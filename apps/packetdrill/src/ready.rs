//! Readiness as bits of poll(2), which are those of epoll as well.
//!
//! The stack says what a `Poll` of its own reports; what Linux derives from the state (`tcp_poll`) is added here. Tests: `tests/interface.rs`.

use std::os::fd::RawFd;
use std::time::Duration;

use sockeye::TcpStream;
use sockeye::poll::{Event, Events, Interest, Poll, Token, Trigger};

use crate::adapter::{Adapter, World};
use crate::error::{Call, Errno};
use crate::files::File;
use crate::socket::{Shape, Socket};

pub(crate) const IN: u32 = libc::EPOLLIN as u32;
pub(crate) const OUT: u32 = libc::EPOLLOUT as u32;
pub(crate) const PRI: u32 = libc::EPOLLPRI as u32;
pub(crate) const ERR: u32 = libc::EPOLLERR as u32;
pub(crate) const HUP: u32 = libc::EPOLLHUP as u32;
pub(crate) const RDHUP: u32 = libc::EPOLLRDHUP as u32;
pub(crate) const RDNORM: u32 = libc::EPOLLRDNORM as u32;
pub(crate) const WRNORM: u32 = libc::EPOLLWRNORM as u32;
/// Told without being asked for.
pub(crate) const ALWAYS: u32 = ERR | HUP;
/// All that a socket can tell.
const EVERYTHING: Interest = Interest::READABLE.with(Interest::WRITABLE).with(Interest::PRIORITY);

/// One entry of poll(2): descriptor, wanted bits.
pub(crate) type Wanted = (RawFd, u32);

impl Adapter {
    /// poll(2): the bits of each entry, and how many are ready. Waits until there is one, or for `timeout`.
    pub(crate) fn poll(&self, wanted: &[Wanted], timeout: Option<Duration>) -> Call<Vec<u32>> {
        let world = self.lock();
        let until = timeout.map(|timeout| world.now + timeout);
        let look = |world: &mut World| -> Vec<u32> {
            let bits = |&(fd, events): &Wanted| match world.file(fd) {
                _ if fd < 0 => 0,
                Ok(file) => of_file(file).unwrap_or(ERR) & (events | ALWAYS),
                Err(_) => u32::from(libc::POLLNVAL.unsigned_abs()),
            };
            wanted.iter().map(bits).collect()
        };
        let (mut world, done) = self.block(world, until, |world| {
            let found = look(world);
            found.iter().any(|bits| *bits != 0).then_some(found)
        });
        Ok(done.unwrap_or_else(|| look(&mut world)))
    }
}

/// The bits of a file now.
pub(crate) fn of_file(file: &File) -> Call<u32> {
    match file {
        File::Socket(socket) => of_socket(socket),
        File::Pipe(pipe) => {
            let kind = if pipe.is_reader() { IN | RDNORM } else { OUT | WRNORM };
            Ok(if pipe.is_ready() { kind } else { 0 })
        }
        File::Epoll(_) => Err(Errno(libc::EINVAL)),
    }
}

/// The bits of a socket now.
pub(crate) fn of_socket(socket: &Socket) -> Call<u32> {
    let poll = Poll::new(Duration::ZERO);
    match &socket.shape {
        // A socket in state CLOSE that nobody has shut.
        Shape::Fresh(_) | Shape::Gone => return Ok(OUT | WRNORM | HUP),
        Shape::Listening(listener) => poll.register(listener, Token(0), EVERYTHING, Trigger::Level)?,
        Shape::Datagram(udp) => poll.register(udp, Token(0), EVERYTHING, Trigger::Level)?,
        Shape::Connecting(stream) | Shape::Connected(stream) => {
            poll.register(stream, Token(0), EVERYTHING, Trigger::Level)?;
        }
    }
    let mut events = Events::with_capacity(1);
    let _ = poll.wait(&mut events, Some(Duration::ZERO))?;
    let found = events.iter().next().map_or(0, of_event);
    Ok(found | of_state(socket))
}

/// The bits that follow from a connection's state alone.
pub(crate) fn of_state(socket: &Socket) -> u32 {
    if socket.is_deferred {
        return OUT | WRNORM;
    }
    match socket.stream().map(TcpStream::state_name) {
        // The end of a connection shuts both directions.
        Ok("CLOSED") => IN | RDNORM | OUT | WRNORM | RDHUP | HUP,
        Ok(_) | Err(_) => 0,
    }
}

/// The bits of what the stack reports.
pub(crate) fn of_event(event: &Event) -> u32 {
    let when = |condition: bool, bits: u32| if condition { bits } else { 0 };
    let both = event.is_read_closed() && event.is_write_closed();
    when(event.is_readable(), IN | RDNORM)
        | when(event.is_writable() || event.is_write_closed(), OUT | WRNORM)
        | when(event.is_priority(), PRI)
        | when(event.is_read_closed(), IN | RDNORM | RDHUP)
        | when(event.is_error(), ERR)
        | when(both || event.is_hung_up(), HUP)
}

/// What a `Poll` of the stack is to report for wanted bits.
pub(crate) fn interest(bits: u32) -> Interest {
    let all = [
        (IN | RDNORM | RDHUP, Interest::READABLE),
        (OUT | WRNORM, Interest::WRITABLE),
        (PRI, Interest::PRIORITY),
    ];
    let wanted = all.into_iter().filter(|(kind, _)| bits & kind != 0).map(|(_, interest)| interest);
    // Errors are reported to whoever waits for anything.
    wanted.reduce(Interest::with).unwrap_or(Interest::PRIORITY)
}
