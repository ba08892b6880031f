//! A connection whose other end has to take the written data.
//!
//! A client that stops reading would otherwise hold its task, and the answer, for as long as its host answers window probes, which
//! is for ever. A write that has to wait begins a clock, and one for which there is room again in time ends it. When it has run
//! out, writes fail even if there is room, since there is some before a socket calls itself writable; and the connection is to be
//! reset when it is dropped: a close would leave the written data to the stack, which would offer it to the same client for as
//! long.
//!
//! It does not depend on the written data. Reads are not its affair. Tests: below.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sockeye::tokio::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Connections that can be given up.
pub trait Abort {
    /// Has the connection reset when it is dropped.
    fn abort_on_drop(&self);
}

impl Abort for TcpStream {
    fn abort_on_drop(&self) {
        // A time of zero is within its bounds.
        let _ = self.set_linger(Some(Duration::ZERO));
    }
}

/// See the module's head.
pub struct Patience<S> {
    stream: S,
    most: Duration,
    /// Runs out `most` after a write began to wait. Meaningless while none does.
    clock: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Patience<S> {
    /// `stream`, whose other end takes something at least every `most`.
    pub fn new(stream: S, most: Duration) -> Self {
        Self { stream, most, clock: Box::pin(sleep(most)), is_waiting: false }
    }
}

impl<S: Abort + Unpin> Patience<S> {
    /// Tries to write, unless the clock has run out.
    fn attempt<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if !(self.is_waiting && self.clock.as_mut().poll(cx).is_ready()) {
            let tried = attempt(Pin::new(&mut self.stream), cx);
            if tried.is_ready() {
                self.is_waiting = false;
                return tried;
            }
            if !self.is_waiting {
                self.is_waiting = true;
                self.clock.as_mut().reset(Instant::now() + self.most);
            }
            ready!(self.clock.as_mut().poll(cx));
        }
        self.stream.abort_on_drop();
        let message = format!("the client has taken nothing for {:?}", self.most);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Abort + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.attempt(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.attempt(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.attempt(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.attempt(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// One end of a pipe of 64 bytes, and whether it was given up.
    struct End(DuplexStream, Rc<Cell<bool>>);

    impl Abort for End {
        fn abort_on_drop(&self) {
            self.1.set(true);
        }
    }

    impl AsyncWrite for End {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, buf)
        }
        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }
        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn a_write_that_the_client_never_reads_fails_and_closes_the_connection() {
        run(async {
            let (ours, mut theirs) = duplex(64);
            let given_up = Rc::new(Cell::new(false));
            let end = End(ours, Rc::clone(&given_up));
            let mut patient = Patience::new(end, Duration::from_millis(5));
            patient.write_all(&[1; 64]).await.unwrap();
            assert!(!given_up.get(), "there was room");
            let error = patient.write_all(&[2; 1]).await.unwrap_err();
            assert_eq!((error.kind(), given_up.get()), (io::ErrorKind::TimedOut, true));
            // Room that is freed too late does not count.
            theirs.read_exact(&mut [0; 10]).await.unwrap();
            assert!(patient.write_all(&[2; 1]).await.is_err());
        });
    }

    #[test]
    fn a_write_that_is_read_late_does_not_fail_and_the_next_one_has_the_full_timeout() {
        run(async {
            let (ours, mut theirs) = duplex(64);
            let given_up = Rc::new(Cell::new(false));
            let mut patient = Patience::new(End(ours, Rc::clone(&given_up)), Duration::from_secs(3600));
            let reading = async {
                let mut got = vec![0; 1000];
                theirs.read_exact(&mut got).await.unwrap();
                got
            };
            // It waits some fifteen times.
            let (written, got) = tokio::join!(patient.write_all(&[3; 1000]), reading);
            written.unwrap();
            assert_eq!((got, given_up.get(), patient.is_waiting), (vec![3; 1000], false, false));
        });
    }
}
