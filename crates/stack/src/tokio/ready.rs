//! Readiness in `tokio`'s words, for all kinds of sockets: `ready`, `try_io` and `async_io`.
//!
//! Readiness is that of the socket when it is asked for, from its buffers, but for [`Assumed`]: no attempt has to clear it. An attempt of
//! [`async_io`] that would block although the socket is ready, as of an application that wants more bytes than are there, waits for the next
//! change, as in `tokio`: its task is on the list first, and then it is made once more.
//!
//! Does not depend on the operation. Tests: `tests/tokio/ready.rs`.

use std::io;
use std::task::{Context, Poll};

use ::tokio::io::{Interest, Ready};
use smallvec::SmallVec;
use sockeye_sync::coop::cooperative;
use sockeye_sync::facade::{Arc, AtomicBool, Ordering};

use super::wait::{poll_until, until};
use crate::rt::env::Env;
use crate::rt::fork::Held;
use crate::rt::poll::{self, Target as _, Waiters};
use crate::rt::tasks::{self, Polled, Waitable, Waiting, Want};
use crate::tcp::conn::ready::End;
use crate::tcp::socket::TcpStream;
use crate::udp::naming::Handle;

/// A socket that says all that it is ready for.
pub(super) trait Readiness: Waitable {
    fn readiness(&self) -> io::Result<poll::Ready>;
}

/// The outcome of the last attempts, by which the next wait for the same is over at once, whether the socket is ready or not, as in `tokio`.
///
/// A program may make attempts until one would block and wait before each. A wait that is over so takes nothing of the task's budget, as in
/// `tokio`.
#[derive(Debug, Default)]
pub(super) struct Assumed {
    /// The last read got bytes or the end of the stream. Only streams set it.
    data: Flag,
    /// The last attempt to send that does not wait has sent something.
    room: Flag,
}

impl Assumed {
    /// That of a stream that was accepted: many peers send at once, so that the first wait is over without a look.
    pub fn of_accepted() -> Self {
        Self { data: Flag(AtomicBool::new(true)), room: Flag::default() }
    }

    /// Remembers how an attempt to receive has ended.
    pub fn received<R>(&self, done: io::Result<R>) -> io::Result<R> {
        self.data.set(done.is_ok());
        done
    }

    /// Remembers how a poll of a receive has ended.
    pub fn polled<R>(&self, done: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.data.set(matches!(done, Poll::Ready(Ok(_))));
        done
    }

    /// Remembers how an attempt to send has ended.
    pub fn sent<R>(&self, done: io::Result<R>) -> io::Result<R> {
        self.room.set(done.is_ok());
        done
    }

    /// The parts of `interest` for which a wait is over without a look. This uses them up.
    fn take(&self, interest: Interest) -> Ready {
        let readable = interest.is_readable() && self.data.take();
        let writable = interest.is_writable() && self.room.take();
        let when = |is_over, ready| if is_over { ready } else { Ready::EMPTY };
        when(readable, Ready::READABLE) | when(writable, Ready::WRITABLE)
    }
}

/// Relaxed throughout: one task's findings, for itself.
#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Flag {
    /// Most attempts end as the one before: then the line is not written.
    fn set(&self, to: bool) {
        if self.0.load(Ordering::Relaxed) != to {
            self.0.store(to, Ordering::Relaxed);
        }
    }

    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// Waits until a receive would not block.
pub(super) async fn readable<S: Waitable>(socket: &S, assumed: &Assumed) -> io::Result<()> {
    if assumed.data.take() { Ok(()) } else { until(socket, Want::Read).await }
}

/// [`readable`] as a poll function.
pub(super) fn poll_readable<S: Polled>(
    socket: &S,
    assumed: &Assumed,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if assumed.data.take() { Poll::Ready(Ok(())) } else { poll_until(socket, Want::Read, cx) }
}

/// Waits until a send would not block.
pub(super) async fn writable<S: Waitable>(socket: &S, assumed: &Assumed) -> io::Result<()> {
    if assumed.room.take() { Ok(()) } else { until(socket, Want::Write).await }
}

/// [`writable`] as a poll function.
pub(super) fn poll_writable<S: Polled>(
    socket: &S,
    assumed: &Assumed,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if assumed.room.take() { Poll::Ready(Ok(())) } else { poll_until(socket, Want::Write, cx) }
}

/// Waits until the socket is ready for some of `interest`, and returns the readiness.
pub(super) async fn ready<S: Readiness>(
    socket: &S,
    assumed: &Assumed,
    interest: Interest,
) -> io::Result<Ready> {
    let over = assumed.take(interest);
    if !over.is_empty() {
        return Ok(over | reported(socket.readiness()?, interest));
    }
    let mut waits = waits(socket, interest);
    cooperative(|cx| {
        let mut found = reported(socket.readiness()?, interest);
        if found.is_empty() {
            for (wait, over) in &mut waits {
                if wait.poll(cx.waker())?.is_ready() {
                    // The attempt that finds a pending error returns it, so a socket with one is ready.
                    found |= *over;
                }
            }
            if !found.is_empty() {
                found |= reported(socket.readiness()?, interest);
            }
        }
        if found.is_empty() { Poll::Pending } else { Poll::Ready(Ok(found)) }
    })
    .await
}

/// Makes an attempt if the socket is ready for some of `interest`.
pub(super) fn try_io<S: Waitable, R>(
    socket: &S,
    assumed: &Assumed,
    interest: Interest,
    attempt: impl FnOnce() -> io::Result<R>,
) -> io::Result<R> {
    let mut done = attempt_if_ready(socket, interest, attempt);
    if interest.is_readable() {
        done = assumed.received(done);
    }
    if interest.is_writable() {
        done = assumed.sent(done);
    }
    done
}

fn attempt_if_ready<R>(
    socket: &impl Waitable,
    interest: Interest,
    attempt: impl FnOnce() -> io::Result<R>,
) -> io::Result<R> {
    if is_ready(socket, interest)? { attempt() } else { Err(rustix::io::Errno::AGAIN.into()) }
}

/// Makes an attempt whenever the socket is ready for some of `interest`, until one would not have blocked.
pub(super) async fn async_io<S: Waitable, R>(
    socket: &S,
    interest: Interest,
    mut attempt: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    let changing = Changing(socket);
    let mut waits = waits(&changing, interest);
    cooperative(|cx| {
        let mut is_listed = false;
        loop {
            match attempt_if_ready(socket, interest, &mut attempt) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
            if std::mem::replace(&mut is_listed, true) {
                return Poll::Pending;
            }
            for (wait, _) in &mut waits {
                if let Poll::Ready(Err(error)) = wait.poll(cx.waker()) {
                    return Poll::Ready(Err(error));
                }
            }
        }
    })
    .await
}

/// Urgent data in tokio's words, which only tokio for Linux has.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod urgent {
    use super::{Interest, Ready};

    pub const READY: Ready = Ready::PRIORITY;

    pub fn is_asked(interest: Interest) -> bool {
        interest.is_priority()
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod urgent {
    use super::{Interest, Ready};

    pub const READY: Ready = Ready::EMPTY;

    pub fn is_asked(_interest: Interest) -> bool {
        false
    }
}

/// Events that a task with this interest waits for, and the readiness that it then returns.
fn wants(interest: Interest) -> impl Iterator<Item = (Want, Ready)> {
    [
        (interest.is_readable(), Want::Read, Ready::READABLE),
        (interest.is_writable(), Want::Write, Ready::WRITABLE),
        (urgent::is_asked(interest), Want::Priority, urgent::READY),
        (interest.is_error(), Want::Error, Ready::ERROR),
    ]
    .into_iter()
    .filter_map(|(is_asked, want, over)| is_asked.then_some((want, over)))
}

fn waits<S: Waitable>(socket: &S, interest: Interest) -> SmallVec<[(Waiting<'_, S>, Ready); 2]> {
    wants(interest).map(|(want, over)| (Waiting::new(socket, want), over)).collect()
}

fn is_ready(socket: &impl Waitable, interest: Interest) -> io::Result<bool> {
    for (want, _) in wants(interest) {
        if tasks::is_over(socket, want)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tokio's readiness for this interest. A closed direction is reported with it.
fn reported(found: poll::Ready, interest: Interest) -> Ready {
    let (read, write) = (interest.is_readable(), interest.is_writable());
    [
        (read, poll::Ready::READABLE, Ready::READABLE),
        (write, poll::Ready::WRITABLE, Ready::WRITABLE),
        (read || urgent::is_asked(interest), poll::Ready::READ_CLOSED, Ready::READ_CLOSED),
        (write, poll::Ready::WRITE_CLOSED, Ready::WRITE_CLOSED),
        (urgent::is_asked(interest), poll::Ready::PRIORITY, urgent::READY),
        (interest.is_error(), poll::Ready::ERROR, Ready::ERROR),
    ]
    .into_iter()
    .filter(|(is_asked, bit, _)| *is_asked && found.any(*bit))
    .fold(Ready::EMPTY, |all, (_, _, bit)| all | bit)
}

/// A socket whose tasks wait for a change, whatever there is already.
struct Changing<'a, S>(&'a S);

impl<S: Waitable> Waitable for Changing<'_, S> {
    fn env(&self) -> io::Result<&Env> {
        self.0.env()
    }

    fn with_list<R>(&self, want: Want, f: impl FnOnce(bool, &mut Waiters) -> R) -> io::Result<R> {
        self.0.with_list(want, |_, list| f(false, list))
    }

    fn is_ready_elsewhere(&self, want: Want) -> io::Result<bool> {
        self.0.is_ready_elsewhere(want)
    }
}

impl Readiness for TcpStream {
    fn readiness(&self) -> io::Result<poll::Ready> {
        Ok(End(Arc::clone(self.conn()?)).ready())
    }
}

impl Readiness for Held<Arc<Handle>> {
    fn readiness(&self) -> io::Result<poll::Ready> {
        Ok(self.open()?.pcb.readiness())
    }
}
