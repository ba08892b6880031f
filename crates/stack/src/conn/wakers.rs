//! Waiting without a thread: the task whose waker a socket buffer keeps.
//!
//! A waker is stored under the mutex that guards the condition, in the section that found the
//! condition false; whoever makes it true takes the waker out under the same mutex. So no wake-up
//! is lost. There is one per direction, of the task that polled last.

use std::io;
use std::task::{Poll, Waker};

use super::Conn;

/// Ready once a read would not block.
pub(crate) fn poll_readable(conn: &Conn, waker: &Waker) -> Poll<()> {
    let mut so = conn.so.lock();
    if so.rcv.is_readable() || conn.has_error() {
        return Poll::Ready(());
    }
    store(&mut so.rcv.waker, waker);
    Poll::Pending
}

/// Ready once a write would not block.
pub(crate) fn poll_writable(conn: &Conn, waker: &Waker) -> Poll<()> {
    let mut so = conn.so.lock();
    if so.snd.is_writable() || conn.has_error() {
        return Poll::Ready(());
    }
    store(&mut so.snd.waker, waker);
    Poll::Pending
}

/// Ready once the handshake is over, well or not.
pub(crate) fn poll_connect(conn: &Conn, waker: &Waker) -> Poll<io::Result<()>> {
    let mut so = conn.so.lock();
    let snd = &mut so.snd;
    if let Some(error) = conn.take_error() {
        return Poll::Ready(Err(error.into()));
    }
    if snd.connected {
        return Poll::Ready(Ok(()));
    }
    if snd.shut {
        return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
    }
    store(&mut snd.waker, waker);
    Poll::Pending
}

fn store(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) if known.will_wake(waker) => {}
        Some(_) | None => *slot = Some(waker.clone()),
    }
}
