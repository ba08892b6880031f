//! Error codes that `rustix` has no names for on Windows: there those of the same [`kind`](std::io::Error::kind), or the nearest that
//! Windows' own sockets give.
//!
//! Does not depend on which call fails. Tests: `tests/tcp/errno.rs`, on Linux.

use rustix::io::Errno;

macro_rules! codes {
    ($($name:ident, on Windows $code:literal, $of_windows:expr;)*) => {
        $(
            #[cfg(not(windows))]
            pub(crate) const $name: Errno = Errno::$name;
            #[doc = $code]
            #[cfg(windows)]
            pub(crate) const $name: Errno = $of_windows;
        )*
    };
}

codes! {
    IO, on Windows "`ERROR_IO_DEVICE`", Errno::from_raw_os_error(1117);
    NODEV, on Windows "`WSAEADDRNOTAVAIL`: the address of an interface that is not there", Errno::ADDRNOTAVAIL;
    NOMEM, on Windows "`ERROR_NOT_ENOUGH_MEMORY`", Errno::from_raw_os_error(8);
    PIPE, on Windows "`ERROR_BROKEN_PIPE`", Errno::from_raw_os_error(109);
    PROTO, on Windows "`WSAENOPROTOOPT`", Errno::NOPROTOOPT;
}
