//! Errors as Linux has them.

use std::io;

/// What a call of the file system fails with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errno {
    NoEntry,
    Io,
    BadFile,
    Exists,
    NotDirectory,
    IsDirectory,
    Invalid,
    NoSpace,
    NotEmpty,
    NameTooLong,
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        let (number, kind) = match errno {
            Errno::NoEntry => (2, io::ErrorKind::NotFound),
            Errno::Io => (5, io::ErrorKind::Other),
            Errno::BadFile => (9, io::ErrorKind::Other),
            Errno::Exists => (17, io::ErrorKind::AlreadyExists),
            Errno::NotDirectory => (20, io::ErrorKind::NotADirectory),
            Errno::IsDirectory => (21, io::ErrorKind::IsADirectory),
            Errno::Invalid => (22, io::ErrorKind::InvalidInput),
            Errno::NoSpace => (28, io::ErrorKind::StorageFull),
            Errno::NotEmpty => (39, io::ErrorKind::DirectoryNotEmpty),
            Errno::NameTooLong => (36, io::ErrorKind::InvalidFilename),
        };
        // Other systems have other numbers.
        if cfg!(target_os = "linux") { Self::from_raw_os_error(number) } else { kind.into() }
    }
}
