//! Why a connection failed, as `SO_ERROR` keeps it, and its `std::io` form.

use std::io;

use rustix::io::Errno;
use sockeye_proto::tcp::events::Events;
use sockeye_proto::tcp::unreachable::Unreachable;

use crate::base::errno;

/// A connection's pending error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SockError {
    /// The peer answered the SYN with a reset (ECONNREFUSED).
    Refused,
    /// The peer reset the connection, or the application shut the socket during its connect (ECONNRESET).
    Reset,
    /// The peer reset the connection after it had closed its side (EPIPE).
    BrokenPipe,
    /// Nothing was heard for too long (ETIMEDOUT).
    TimedOut,
    /// The stack ended the connection (ECONNABORTED).
    Aborted,
    /// A router knows no route to the network (ENETUNREACH).
    NetworkUnreachable,
    /// A router knows no way to the host, or refuses to forward over IPv4 (EHOSTUNREACH).
    HostUnreachable,
    /// The host does not know TCP (ENOPROTOOPT).
    NoProtocol,
    /// A router refuses to forward over IPv6 (EACCES).
    Prohibited,
    /// A header was not understood (EPROTO).
    Protocol,
    /// The interface is gone (ENETDOWN).
    NetDown,
    /// The stack's protocol code panicked, and the connection was given up.
    Panicked,
}

impl SockError {
    /// A number that is not 0.
    pub fn code(self) -> u8 {
        match self {
            Self::Refused => 1,
            Self::Reset => 2,
            Self::BrokenPipe => 3,
            Self::TimedOut => 4,
            Self::Aborted => 5,
            Self::NetworkUnreachable => 6,
            Self::HostUnreachable => 7,
            Self::NoProtocol => 8,
            Self::Protocol => 9,
            Self::NetDown => 10,
            Self::Panicked => 11,
            Self::Prohibited => 12,
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        [
            Self::Refused,
            Self::Reset,
            Self::BrokenPipe,
            Self::TimedOut,
            Self::Aborted,
            Self::NetworkUnreachable,
            Self::HostUnreachable,
            Self::NoProtocol,
            Self::Protocol,
            Self::NetDown,
            Self::Panicked,
            Self::Prohibited,
        ]
        .into_iter()
        .find(|error| error.code() == code)
    }

    /// Meaning of a report of the network (Linux's `icmp_err_convert`).
    pub fn reported(why: Unreachable) -> Self {
        match why {
            Unreachable::Network => Self::NetworkUnreachable,
            Unreachable::Host => Self::HostUnreachable,
            Unreachable::Prohibited => Self::Prohibited,
            Unreachable::Protocol => Self::NoProtocol,
            Unreachable::Port => Self::Refused,
            Unreachable::Malformed => Self::Protocol,
        }
    }
}

/// The error that the events mean. A reset after the peer's FIN is a broken pipe, as on Linux.
pub(super) fn failure(
    events: Events,
    peer_was_done: bool,
    reported: Option<Unreachable>,
) -> Option<SockError> {
    let reset = if peer_was_done { SockError::BrokenPipe } else { SockError::Reset };
    // The network's report on it explains why the peer is silent (RFC 5461 section 2.1).
    let silence = reported.map_or(SockError::TimedOut, SockError::reported);
    [
        (Events::REFUSED, SockError::Refused),
        (Events::RESET, reset),
        (Events::TIMED_OUT, silence),
        (Events::UNREACHABLE, silence),
        (Events::DATA_AFTER_CLOSE, SockError::Reset),
    ]
    .into_iter()
    .find_map(|(event, error)| events.has(event).then_some(error))
}

impl From<SockError> for io::Error {
    fn from(error: SockError) -> Self {
        let errno = match error {
            SockError::Refused => Errno::CONNREFUSED,
            SockError::Reset => Errno::CONNRESET,
            SockError::BrokenPipe => errno::PIPE,
            SockError::TimedOut => Errno::TIMEDOUT,
            SockError::Aborted => Errno::CONNABORTED,
            SockError::NetworkUnreachable => Errno::NETUNREACH,
            SockError::HostUnreachable => Errno::HOSTUNREACH,
            SockError::NoProtocol => Errno::NOPROTOOPT,
            SockError::Prohibited => Errno::ACCESS,
            SockError::Protocol => errno::PROTO,
            SockError::NetDown => Errno::NETDOWN,
            SockError::Panicked => return io::Error::new(io::ErrorKind::ConnectionAborted, PANICKED),
        };
        errno.into()
    }
}

/// The error of calls on a connection whose protocol code has panicked.
const PANICKED: &str = "the stack's protocol code panicked while it ran for this connection, which was given up: this is a bug \
                        of the stack; please report it with the message of the panic";

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Shutdown;
    use std::time::Duration;

    use super::*;
    use crate::tcp::conn::outbox::Context;
    use crate::tcp::conn::serve;
    use crate::{Config, Stack, TcpListener, TcpStream};

    #[test]
    fn a_reset_under_the_hold_that_brings_the_fin_before_it_is_a_broken_pipe() {
        let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let conn = server.conn().unwrap();
        let locked = conn.so.enter();
        client.shutdown(Shutdown::Write).unwrap();
        client.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        assert!(locked.has_backlog());
        Context::run(stack.core().unwrap(), |cx| {
            serve::let_go(cx, conn, locked, 0);
            serve::answer(cx);
        });
        assert_eq!(server.take_error().unwrap().unwrap().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(server.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn codes_name_errors_both_ways_and_zero_is_none() {
        for code in 1..=12 {
            assert_eq!(SockError::from_code(code).unwrap().code(), code);
        }
        assert_eq!(SockError::from_code(0), None);
        assert_eq!(SockError::from_code(13), None);
    }
}
