//! [`PollFd`]: a set of sockets with a descriptor.
//!
//! Does not depend on when the descriptor is written to (`table.rs`, `sockeye_sync`'s `poll_queue.rs`). Tests:
//! `tests/suite/poll_fd.rs`.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use sockeye_sync::facade::Arc;

use super::Poll;
use super::signal::Signal;

/// A [`Poll`] with a descriptor, made by [`Poll::into_fd`]. The descriptor joins loops of descriptors: epoll, `mio`, `tokio`'s `AsyncFd`, `async-io`.
///
/// The descriptor is readable while a [`wait`](Poll::wait) with a time-out of zero may find something: while a socket of the set is ready in a level-triggered way,
/// or has become ready since the last wait in an edge-triggered one, or after [`Poll::wake`]. It is level-triggered itself. It may be readable though nothing is
/// found, and is not from that wait on. Only wait for it; reading from it or writing to it loses events.
///
/// It is an eventfd(2) on Linux and an end of a pair of sockets on other UNIX systems. Windows has no `PollFd`.
///
/// While a set has a descriptor, each wait takes one or two system calls more, and so does the first event after a wait.
///
/// ```
/// # use std::os::fd::AsFd;
/// use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
/// use rustix::event::{PollFd, PollFlags, Timespec, poll};
///
/// # let stack = sockeye::Stack::new(sockeye::Config { workers: 1, ..Default::default() })?;
/// let listener = sockeye::TcpListener::bind_on(&stack, "127.0.0.1:0")?;
/// let set = Poll::new(std::time::Duration::ZERO).into_fd()?;
/// set.register(&listener, Token(0), Interest::READABLE, Trigger::Level)?;
///
/// let _client = sockeye::TcpStream::connect_on(&stack, listener.local_addr()?)?;
/// // Here with ppoll(2); any loop of descriptors will do.
/// let mut fds = [PollFd::new(&set, PollFlags::IN)];
/// poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 }))?;
/// let mut events = Events::with_capacity(16);
/// assert_eq!(set.wait(&mut events, Some(std::time::Duration::ZERO))?, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PollFd {
    poll: Poll,
    /// The queue's, which outlives the set if a socket's thread is about to write to it.
    signal: Arc<Signal>,
}

impl PollFd {
    pub(super) fn new(poll: Poll) -> io::Result<Self> {
        let signal = poll.queue()?.describe()?;
        Ok(Self { poll, signal })
    }
}

impl Deref for PollFd {
    type Target = Poll;

    fn deref(&self) -> &Poll {
        &self.poll
    }
}

impl AsFd for PollFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

impl AsRawFd for PollFd {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
