//! Why a connection failed, as `SO_ERROR` keeps it, and its `std::io` form.

use std::io;

/// A connection's pending error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SockError {
    /// The peer answered the SYN with a reset (ECONNREFUSED).
    Refused,
    /// The peer reset the connection (ECONNRESET).
    Reset,
    /// The peer reset the connection after it had closed its side (EPIPE).
    BrokenPipe,
    /// Nothing was heard for too long (ETIMEDOUT).
    TimedOut,
    /// The stack ended the connection (ECONNABORTED).
    Aborted,
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
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Refused, Self::Reset, Self::BrokenPipe, Self::TimedOut, Self::Aborted]
            .into_iter()
            .find(|error| error.code() == code)
    }
}

impl From<SockError> for io::Error {
    fn from(error: SockError) -> Self {
        let kind = match error {
            SockError::Refused => io::ErrorKind::ConnectionRefused,
            SockError::Reset => io::ErrorKind::ConnectionReset,
            SockError::BrokenPipe => io::ErrorKind::BrokenPipe,
            SockError::TimedOut => io::ErrorKind::TimedOut,
            SockError::Aborted => io::ErrorKind::ConnectionAborted,
        };
        Self::from(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_name_errors_both_ways_and_zero_is_none() {
        for code in 1..=5 {
            assert_eq!(SockError::from_code(code).unwrap().code(), code);
        }
        assert_eq!(SockError::from_code(0), None);
        assert_eq!(SockError::from_code(6), None);
    }
}
