//! The operations of tasks: an attempt that does not block, again and again until it would not have blocked, within the task's budget
//! ([`coop`]). And how tasks wait for TCP streams, listeners and UDP sockets; for UNIX-domain sockets `unix/ready.rs` says so.
//!
//! Does not depend on the operation. Tests: `tests/waiting`, `tests/tokio/coop.rs`.

use std::io;
use std::task::{Context, Poll, ready};

use ::tokio::io::ReadBuf;
use sockeye_sync::facade::Arc;

use crate::rt::env::Env;
use crate::rt::fork::Held;
use crate::rt::poll::Waiters;
use crate::rt::tasks::{self, Listed, Places, Polled, Waitable, Waiting, Want};
use crate::tcp::conn::ready::is_in_error;
use crate::tcp::socket::TcpListener;
use crate::tcp::socket::TcpStream;
use crate::udp::naming::Handle;
use sockeye_sync::coop::{self, cooperative};

/// An operation as a poll function: of the tasks that call it on one handle, the last is woken.
pub(super) fn poll_op<S: Polled, R>(
    socket: &S,
    want: Want,
    cx: &mut Context<'_>,
    attempt: impl FnMut() -> io::Result<R>,
) -> Poll<io::Result<R>> {
    coop::poll(cx, |cx| until_done(socket, cx, || tasks::poll(socket, want, cx.waker()), attempt))
}

/// Appends to a buffer what `receive` puts into it; nothing if that fails. Nothing is initialized before: zeroing 8 KiB takes longer than
/// a small read.
pub(super) fn append<'b, R>(
    buf: &mut ReadBuf<'b>,
    receive: impl FnOnce(&mut ReadBuf<'b>) -> Poll<io::Result<R>>,
) -> Poll<io::Result<R>> {
    let filled = buf.filled().len();
    let received = receive(buf);
    if matches!(received, Poll::Ready(Err(_))) {
        buf.set_filled(filled);
    }
    received
}

/// An operation as a future: any number of tasks may wait so, and one that is dropped leaves the others as they are.
pub(super) async fn op<S: Waitable, R>(
    socket: &S,
    want: Want,
    mut attempt: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    let mut waiting = Waiting::new(socket, want);
    cooperative(|cx| until_done(socket, cx, || waiting.poll(cx.waker()), &mut attempt)).await
}

/// [`op`] where only an attempt can say whether it would block, and an attempt that would asks to be told: the task is on the list when
/// it is made once more.
pub(super) async fn op_listed<S: Waitable, R>(
    socket: &S,
    want: Want,
    mut attempt: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    let mut waiting = Waiting::new(socket, want);
    cooperative(|cx| until_done(socket, cx, once(|| waiting.poll(cx.waker())), &mut attempt)).await
}

/// [`op_listed`] as a poll function: of the tasks that call it on one handle, the last is woken.
pub(super) fn poll_op_listed<S: Polled, R>(
    socket: &S,
    want: Want,
    cx: &mut Context<'_>,
    attempt: impl FnMut() -> io::Result<R>,
) -> Poll<io::Result<R>> {
    coop::poll(cx, |cx| until_done(socket, cx, once(|| tasks::poll(socket, want, cx.waker())), attempt))
}

/// A wait that is over the first time, when the task is on the list, and has no end the second time.
fn once(mut list: impl FnMut() -> Poll<io::Result<()>>) -> impl FnMut() -> Poll<io::Result<()>> {
    let mut is_listed = false;
    move || {
        if std::mem::replace(&mut is_listed, true) {
            return Poll::Pending;
        }
        match list() {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

/// Waits until an operation would not block.
pub(super) async fn until<S: Waitable>(socket: &S, want: Want) -> io::Result<()> {
    let mut waiting = Waiting::new(socket, want);
    cooperative(|cx| waiting.poll_first(cx.waker())).await
}

/// [`until`] as a poll function.
pub(super) fn poll_until<S: Polled>(socket: &S, want: Want, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    coop::poll(cx, |cx| tasks::poll_first(socket, want, cx.waker()))
}

/// Has the task woken at the next slow tick, for changes that are not announced.
pub(super) fn try_later<R>(env: &Env, cx: &Context<'_>) -> Poll<io::Result<R>> {
    match env.memory_waiters.register(env, cx.waker()) {
        Ok(()) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

fn until_done<R>(
    socket: &impl Waitable,
    cx: &Context<'_>,
    mut wait: impl FnMut() -> Poll<io::Result<()>>,
    mut attempt: impl FnMut() -> io::Result<R>,
) -> Poll<io::Result<R>> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(wait())?,
            // At the memory cap.
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return try_later(socket.env()?, cx),
            done => return Poll::Ready(done),
        }
    }
}

impl Waitable for TcpStream {
    fn env(&self) -> io::Result<&Env> {
        Ok(self.enter()?.0)
    }

    fn with_list<R>(&self, want: Want, f: impl FnOnce(bool, &mut Waiters) -> R) -> io::Result<R> {
        let conn = self.conn()?;
        let mut so = conn.so.lock();
        let is_over = match want {
            Want::Read => so.rcv.is_readable(),
            Want::Write => so.snd.is_writable(),
            Want::Connect => so.snd.connected || so.snd.shut,
            Want::Priority => so.rcv.has_urgent() || so.rcv.eof || so.rcv.shut,
            Want::Error => is_in_error(conn, &so),
        };
        Ok(f(is_over || conn.has_error(), &mut so.waiters))
    }
}

impl Polled for TcpStream {
    fn places(&self) -> &Places {
        self.places()
    }
}

impl Waitable for TcpListener {
    fn env(&self) -> io::Result<&Env> {
        Ok(self.enter()?.0)
    }

    /// It has neither errors nor urgent data: everything is waited for as a connection is.
    fn with_list<R>(&self, _want: Want, f: impl FnOnce(bool, &mut Waiters) -> R) -> io::Result<R> {
        Ok(self.enter()?.1.with_waiting(f))
    }
}

impl Polled for TcpListener {
    fn places(&self) -> &Places {
        self.places()
    }
}

impl<T: Listed> Polled for Held<T>
where
    Self: Waitable,
{
    fn places(&self) -> &Places {
        self.places()
    }
}

impl Waitable for Held<Arc<Handle>> {
    fn env(&self) -> io::Result<&Env> {
        Ok(self.enter()?.0)
    }

    /// A send never waits but for memory.
    fn with_list<R>(&self, want: Want, f: impl FnOnce(bool, &mut Waiters) -> R) -> io::Result<R> {
        let mut so = self.open()?.pcb.receive.so.lock();
        let is_over = match want {
            Want::Read => so.is_readable() || so.error.is_some(),
            Want::Write | Want::Connect => true,
            Want::Priority => so.error.is_some(),
            Want::Error => so.is_in_error(),
        };
        Ok(f(is_over, &mut so.waiters))
    }
}
