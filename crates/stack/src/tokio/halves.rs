//! The two halves of a stream, for TCP's and for UNIX-domain streams: a macro, so that each has types of its own, as in `tokio`.
//!
//! A stream gives `poll_read_shared`, `poll_write_shared` and `shutdown_write`, which take `&self`; a half passes its calls on.
//!
//! Does not depend on how bytes move. Tests: `tests/tokio/shape.rs`, `tests/unix/tokio.rs`.

/// Implements `AsyncRead` by the stream that an expression finds.
macro_rules! async_read {
    ($type:ty, |$this:ident| $stream:expr) => {
        impl ::tokio::io::AsyncRead for $type {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut ::tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $this = &*self;
                $stream.poll_read_shared(cx, buf)
            }
        }
    };
}
pub(super) use async_read;

/// Implements `AsyncWrite` by the stream that an expression finds.
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
                // As by writev(2), nothing in pieces does not get as far as the connection.
                if bufs.iter().all(|buf| buf.is_empty()) {
                    return std::task::Poll::Ready(Ok(0));
                }
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

/// Methods of every reading half; `$stream` finds the stream.
macro_rules! read_half_methods {
    ($half:ty, $type:ident, |$this:ident| $stream:expr) => {
        impl $half {
            /// Waits until a read would not block. May be cancelled.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($type), "::readable`].")]
            pub async fn readable(&self) -> std::io::Result<()> {
                let $this = self;
                $stream.readable().await
            }

            /// Reads the bytes that are there. Never blocks. 0 at the end of the stream, or for an empty
            /// buffer.
            ///
            /// # Errors
            /// `WouldBlock` if nothing is there.
            pub fn try_read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                let $this = self;
                $stream.try_read(buf)
            }

            /// [`try_read`](Self::try_read) into several buffers, one after the other.
            ///
            /// # Errors
            /// As for [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, bufs: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                let $this = self;
                $stream.try_read_vectored(bufs)
            }

            /// [`try_read`](Self::try_read) into a buffer that is advanced by as much.
            ///
            /// # Errors
            /// As for [`try_read`](Self::try_read).
            pub fn try_read_buf<B: bytes::BufMut>(&self, buf: &mut B) -> std::io::Result<usize> {
                let $this = self;
                $stream.try_read_buf(buf)
            }

            /// Copies received bytes without taking them, once there are any. May be cancelled.
            ///
            /// # Errors
            /// As for a read.
            pub async fn peek(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                let $this = &*self;
                $stream.peek(buf).await
            }

            /// [`peek`](Self::peek) as a poll function: returns how many bytes it has added to `buf`. Of several tasks
            /// that call it, or read, the last is woken.
            ///
            /// # Errors
            /// As for a read.
            pub fn poll_peek(
                &mut self,
                cx: &mut std::task::Context<'_>,
                buf: &mut ::tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $this = &*self;
                $stream.poll_peek(cx, buf)
            }
        }
    };
}
pub(super) use read_half_methods;

/// Methods of every writing half; `$stream` finds the stream.
macro_rules! write_half_methods {
    ($half:ty, $type:ident, |$this:ident| $stream:expr) => {
        impl $half {
            /// Waits until a write would not block. May be cancelled.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($type), "::writable`].")]
            pub async fn writable(&self) -> std::io::Result<()> {
                let $this = self;
                $stream.writable().await
            }

            /// Writes as much as fits. Never blocks.
            ///
            /// # Errors
            /// `WouldBlock` if nothing fits.
            pub fn try_write(&self, buf: &[u8]) -> std::io::Result<usize> {
                let $this = self;
                $stream.try_write(buf)
            }

            /// [`try_write`](Self::try_write) from several buffers, one after the other.
            ///
            /// # Errors
            /// As for [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                let $this = self;
                $stream.try_write_vectored(bufs)
            }
        }
    };
}
pub(super) use write_half_methods;

/// Methods of every half; `$stream` finds the stream.
macro_rules! half_methods {
    ($half:ty, $type:ident, $addr:ty, |$this:ident| $stream:expr) => {
        impl $half {
            /// Waits until the stream is ready for some of `interest`, and returns the readiness. May be
            /// cancelled.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($type), "::ready`].")]
            pub async fn ready(
                &self,
                interest: ::tokio::io::Interest,
            ) -> std::io::Result<::tokio::io::Ready> {
                let $this = self;
                $stream.ready(interest).await
            }

            /// The address of the other end.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($type), "::peer_addr`].")]
            pub fn peer_addr(&self) -> std::io::Result<$addr> {
                let $this = self;
                $stream.peer_addr()
            }

            /// The address of this end.
            ///
            /// # Errors
            /// None; the signature is that of `tokio`.
            pub fn local_addr(&self) -> std::io::Result<$addr> {
                let $this = self;
                $stream.local_addr()
            }
        }

        impl AsRef<$type> for $half {
            fn as_ref(&self) -> &$type {
                let $this = self;
                &$stream
            }
        }
    };
}
pub(super) use half_methods;

/// The types of the halves of `$type`, whose addresses are `$addr`.
macro_rules! halves {
    ($type:ident, $addr:ty) => {
        /// The reading half of a borrowed stream.
        #[derive(Debug)]
        pub struct ReadHalf<'a>(&'a $type);

        /// The writing half of a borrowed stream.
        #[derive(Debug)]
        pub struct WriteHalf<'a>(&'a $type);

        #[doc = concat!("The reading half of a [`", stringify!($type), "`].")]
        #[derive(Debug)]
        pub struct OwnedReadHalf(Arc<$type>);

        #[doc = concat!("The writing half of a [`", stringify!($type), "`]. Dropping it shuts the direction down.")]
        #[derive(Debug)]
        pub struct OwnedWriteHalf {
            stream: Arc<$type>,
            shut_on_drop: bool,
        }

        /// Two halves that are not of one stream.
        #[derive(Debug)]
        pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

        impl std::fmt::Display for ReuniteError {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the halves are not of one stream: reunite those that into_split gave together")
            }
        }

        impl std::error::Error for ReuniteError {}

        impl $type {
            /// Two halves for one task.
            pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
                (ReadHalf(self), WriteHalf(self))
            }

            /// Two halves for two tasks. Dropping the write half shuts that direction down.
            pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
                let stream = Arc::new(self);
                (OwnedReadHalf(Arc::clone(&stream)), OwnedWriteHalf { stream, shut_on_drop: true })
            }
        }

        impl OwnedReadHalf {
            /// The whole stream again.
            ///
            /// # Errors
            /// [`ReuniteError`] with both halves if they are not of one stream.
            pub fn reunite(self, write: OwnedWriteHalf) -> Result<$type, ReuniteError> {
                if !Arc::ptr_eq(&self.0, &write.stream) {
                    return Err(ReuniteError(self, write));
                }
                write.forget();
                Arc::try_unwrap(self.0).map_err(|stream| {
                    let write = OwnedWriteHalf { stream: Arc::clone(&stream), shut_on_drop: true };
                    ReuniteError(Self(stream), write)
                })
            }
        }

        impl OwnedWriteHalf {
            /// The whole stream again.
            ///
            /// # Errors
            /// [`ReuniteError`] with both halves if they are not of one stream.
            pub fn reunite(self, read: OwnedReadHalf) -> Result<$type, ReuniteError> {
                read.reunite(self)
            }

            /// Drops the half without shutting the direction down.
            pub fn forget(mut self) {
                self.shut_on_drop = false;
            }
        }

        impl Drop for OwnedWriteHalf {
            fn drop(&mut self) {
                if self.shut_on_drop {
                    // A connection that is closed already has nothing to shut down.
                    let _ = self.stream.shutdown_write();
                }
            }
        }

        read_half_methods!(ReadHalf<'_>, $type, |half| half.0);
        read_half_methods!(OwnedReadHalf, $type, |half| half.0);
        write_half_methods!(WriteHalf<'_>, $type, |half| half.0);
        write_half_methods!(OwnedWriteHalf, $type, |half| half.stream);
        half_methods!(ReadHalf<'_>, $type, $addr, |half| half.0);
        half_methods!(WriteHalf<'_>, $type, $addr, |half| half.0);
        half_methods!(OwnedReadHalf, $type, $addr, |half| half.0);
        half_methods!(OwnedWriteHalf, $type, $addr, |half| half.stream);
        async_read!(ReadHalf<'_>, |half| half.0);
        async_read!(OwnedReadHalf, |half| half.0);
        async_write!(WriteHalf<'_>, |half| half.0);
        async_write!(OwnedWriteHalf, |half| half.stream);
    };
}
pub(super) use halves;
