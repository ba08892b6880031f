//! Errors of calls: the numbers of `errno`.

use std::io::{self, ErrorKind};

/// A number of `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// The result of a call.
pub(crate) type Call<T> = Result<T, Errno>;

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or_else(|| of_kind(error.kind())))
    }
}

/// The number of an error that the stack reports with a sentence.
fn of_kind(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        ErrorKind::ConnectionReset => libc::ECONNRESET,
        ErrorKind::ConnectionAborted => libc::ECONNABORTED,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::AddrInUse => libc::EADDRINUSE,
        ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        ErrorKind::BrokenPipe => libc::EPIPE,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
        ErrorKind::PermissionDenied => libc::EPERM,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::InvalidInput => libc::EINVAL,
        _ => libc::EIO,
    }
}
