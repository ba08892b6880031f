//! The result of a wait: the sockets that are ready.
//!
//! Does not depend on how they are found (`poll.rs`). Tests: `tests/suite/poll.rs`.

use sockeye_sync::cpu::Place;

use super::Token;
use super::ready::Ready;

/// One socket that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub(super) token: Token,
    pub(super) ready: Ready,
    /// Where the socket begins in memory, as far as that helps.
    pub(super) socket: Place,
}

impl Event {
    /// The token given when the socket was registered.
    pub fn token(&self) -> Token {
        self.token
    }
    /// A read or accept would not block.
    pub fn is_readable(&self) -> bool {
        self.ready.any(Ready::READABLE)
    }
    /// A write would not block, or a connect has ended.
    pub fn is_writable(&self) -> bool {
        self.ready.any(Ready::WRITABLE)
    }
    /// The last byte of urgent data has arrived and is not read yet.
    pub fn is_priority(&self) -> bool {
        self.ready.any(Ready::PRIORITY)
    }
    /// The peer will send no more, or the program reads no more. Reported for `READABLE` and `PRIORITY`.
    pub fn is_read_closed(&self) -> bool {
        self.ready.any(Ready::READ_CLOSED)
    }
    /// The peer will accept no more, or the program writes no more. Reported for `WRITABLE`.
    pub fn is_write_closed(&self) -> bool {
        self.ready.any(Ready::WRITE_CLOSED)
    }
    /// Neither direction works any more (EPOLLHUP). Reported for UNIX-domain sockets.
    pub fn is_hung_up(&self) -> bool {
        self.ready.any(Ready::HUNG_UP)
    }
    /// An error is pending; `take_error` has it.
    pub fn is_error(&self) -> bool {
        self.ready.any(Ready::ERROR)
    }
}

/// The result of a wait.
#[derive(Debug)]
pub struct Events {
    pub(super) list: Vec<Event>,
    capacity: usize,
}

/// Events for which there is memory from the start.
const READY_MAX: usize = 65_536;

impl Events {
    /// Room for `capacity` events per wait, at least 1. Memory for more than 65,536 is allocated only when there are
    /// that many.
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { list: Vec::with_capacity(capacity.min(READY_MAX)), capacity }
    }
    /// The events. While one is served, the next one's socket is prefetched.
    pub fn iter(&self) -> Iter<'_> {
        if let Some(first) = self.list.first() {
            first.socket.fetch_ahead();
        }
        Iter { rest: self.list.iter() }
    }
    /// True if the wait ended without any.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.list.len() == self.capacity
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The events of a wait: see [`Events::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: std::slice::Iter<'a, Event>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Event;

    #[inline]
    fn next(&mut self) -> Option<&'a Event> {
        let event = self.rest.next()?;
        if let Some(following) = self.rest.as_slice().first() {
            following.socket.fetch_ahead();
        }
        Some(event)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl std::iter::FusedIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_for_more_events_than_memory_holds_is_no_error() {
        assert!(!Events::with_capacity(usize::MAX).is_full());
        assert!(!Events::with_capacity(0).is_full(), "at least one");
    }
}
