//! A descriptor that shows whether a poller has events, on systems without eventfd(2): an end of a pair of sockets.
//!
//! `eventfd.rs` has the same names for Linux. Does not depend on when it is shown or hidden (`table.rs`). Tests: below, and
//! `tests/suite/poll_fd.rs` with `--cfg sockeye_portable`.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A descriptor that is readable from [`show`](Self::show) to [`hide`](Self::hide).
#[derive(Debug)]
pub(crate) struct Signal {
    shown: UnixStream,
    shows: UnixStream,
}

impl Signal {
    /// Hidden.
    ///
    /// # Errors
    /// The system's, above all `EMFILE`.
    pub fn new() -> io::Result<Self> {
        let (shown, shows) = UnixStream::pair()?;
        shown.set_nonblocking(true)?;
        shows.set_nonblocking(true)?;
        Ok(Self { shown, shows })
    }

    /// Makes it readable. Never blocks.
    pub fn show(&self) {
        // It fails only if the buffer is full, and the descriptor is readable then.
        let _buffer_is_full = (&self.shows).write(&[1]);
    }

    /// Makes it unreadable. Never blocks.
    pub fn hide(&self) {
        // A read that does not fill the place has emptied the buffer.
        let mut place = [0; 64];
        while (&self.shown).read(&mut place).is_ok_and(|len| len == place.len()) {}
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shown.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_shows_is_hidden_at_once() {
        let signal = Signal::new().unwrap();
        // The last number fills the buffer.
        for shows in [1, 64, 65, 100_000] {
            (0..shows).for_each(|_| signal.show());
            assert_eq!((&signal.shown).read(&mut [0; 1]).unwrap(), 1);
            signal.hide();
            assert_eq!((&signal.shown).read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }
}
