//! The halves of a stream.
//!
//! Must not know how bytes move. Tests: `tests/unix_tokio.rs`.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, ReadBuf};
use sockeye_sync::facade::Arc;

use super::UnixStream;

/// `AsyncWrite` by way of the stream that an expression finds.
macro_rules! async_write {
    ($type:ty, |$this:ident| $stream:expr) => {
        impl ::tokio::io::AsyncWrite for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $this = &*self;
                $stream.poll_write_shared(cx, &[std::io::IoSlice::new(buf)])
            }
            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $this = &*self;
                $stream.poll_write_shared(cx, bufs)
            }
            fn is_write_vectored(&self) -> bool {
                true
            }
            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }
            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                _cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $this = &*self;
                std::task::Poll::Ready($stream.shutdown_write())
            }
        }
    };
}
pub(super) use async_write;

/// The reading half of a borrowed stream.
#[derive(Debug)]
pub struct ReadHalf<'a>(pub(super) &'a UnixStream);

/// The writing half of a borrowed stream.
#[derive(Debug)]
pub struct WriteHalf<'a>(pub(super) &'a UnixStream);

/// The reading half of a [`UnixStream`].
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<UnixStream>);

/// The writing half of a [`UnixStream`]. Dropping it shuts the direction down.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<UnixStream>,
    shut_on_drop: bool,
}

/// Two halves that are not of one stream.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are not of one stream: reunite those that into_split gave together")
    }
}

impl std::error::Error for ReuniteError {}

pub(super) fn split(stream: UnixStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(Arc::clone(&stream)), OwnedWriteHalf { stream, shut_on_drop: true })
}

impl OwnedReadHalf {
    /// The whole stream again.
    ///
    /// # Errors
    /// [`ReuniteError`] with both halves if they are not of one stream.
    pub fn reunite(self, mut write: OwnedWriteHalf) -> Result<UnixStream, ReuniteError> {
        if !Arc::ptr_eq(&self.0, &write.stream) {
            return Err(ReuniteError(self, write));
        }
        write.shut_on_drop = false;
        drop(write);
        Arc::try_unwrap(self.0).map_err(|stream| {
            let write = OwnedWriteHalf { stream: Arc::clone(&stream), shut_on_drop: true };
            ReuniteError(Self(stream), write)
        })
    }
}

impl OwnedWriteHalf {
    /// Drops the half without shutting the direction down.
    pub fn forget(mut self) {
        self.shut_on_drop = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shut_on_drop {
            // It cannot fail.
            let _ = self.stream.shutdown_write();
        }
    }
}

impl AsyncRead for ReadHalf<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_shared(cx, buf)
    }
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_shared(cx, buf)
    }
}

async_write!(WriteHalf<'_>, |half| half.0);
async_write!(OwnedWriteHalf, |half| half.stream);
