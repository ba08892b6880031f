//! The methods that several types have in common, by macros, so that they stand on the types themselves, as in `tokio`.
//!
//! A type has a field `inner`, the socket of the blocking kind; an expression finds the list that its tasks wait on. Does not depend on
//! how data moves. Tests: below, `tests/tokio/ready.rs`.

/// Readiness: methods of every socket that sends and receives; it has a field `assumed`. Tasks wait on `$socket`.
macro_rules! ready_methods {
    ($type:ident, |$this:ident| $socket:expr) => {
        impl $type {
            /// Waits until the socket is ready for some of `interest`, and returns the readiness, including a closed
            /// direction. Any number of tasks may wait. May be cancelled.
            ///
            /// The readiness is true when it is returned; another task may use it first.
            ///
            /// # Errors
            /// `Other` if the task's waker panics while it is cloned. A pending error makes the socket ready.
            pub async fn ready(
                &self,
                interest: ::tokio::io::Interest,
            ) -> std::io::Result<::tokio::io::Ready> {
                let $this = self;
                $crate::tokio::ready::ready($socket, &self.assumed, interest).await
            }

            /// Waits until a receive would not block. Any number of tasks may wait. May be cancelled. On an accepted
            /// stream, and after a read that returned bytes, it returns at once: the next read shows whether there is
            /// more.
            ///
            /// # Errors
            /// `Other` if the task's waker panics while it is cloned. A pending error makes the socket readable.
            pub async fn readable(&self) -> std::io::Result<()> {
                let $this = self;
                $crate::tokio::ready::readable($socket, &self.assumed).await
            }

            /// Waits until a send would not block. Any number of tasks may wait. May be cancelled. After an attempt
            /// that has sent something, for example with `try_io`, it returns at once: the next attempt shows whether
            /// there is room.
            ///
            /// # Errors
            /// `Other` if the task's waker panics while it is cloned. A pending error makes the socket writable.
            pub async fn writable(&self) -> std::io::Result<()> {
                let $this = self;
                $crate::tokio::ready::writable($socket, &self.assumed).await
            }

            /// Calls `f`, a non-blocking operation, if the socket is ready for some of `interest`.
            ///
            /// # Errors
            /// `WouldBlock` if it is not ready, without a call of `f`; else the result of `f`.
            pub fn try_io<R>(
                &self,
                interest: ::tokio::io::Interest,
                f: impl FnOnce() -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                let $this = self;
                $crate::tokio::ready::try_io($socket, &self.assumed, interest, f)
            }

            /// Calls `f`, a non-blocking operation, when the socket is ready for some of `interest`, and again at each
            /// change while it returns `WouldBlock`. May be cancelled: effects of `f` remain.
            ///
            /// # Errors
            /// The errors of `f`, except `WouldBlock`; `Other` if the task's waker panics while it is cloned.
            pub async fn async_io<R>(
                &self,
                interest: ::tokio::io::Interest,
                f: impl FnMut() -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                let $this = self;
                $crate::tokio::ready::async_io($socket, interest, f).await
            }
        }
    };
}
pub(super) use ready_methods;

/// Methods of streams: reads and writes that do not wait, and their readiness as poll functions.
macro_rules! stream_methods {
    ($type:ident, |$this:ident| $socket:expr) => {
        impl $type {
            /// [`readable`](Self::readable) as a poll function. Of several tasks that call it, or read, the last is woken.
            ///
            /// # Errors
            /// As for [`readable`](Self::readable).
            pub fn poll_read_ready(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $this = self;
                $crate::tokio::ready::poll_readable($socket, &self.assumed, cx)
            }

            /// [`writable`](Self::writable) as a poll function. Of several tasks that call it, or write, the last is woken.
            ///
            /// # Errors
            /// As for [`writable`](Self::writable).
            pub fn poll_write_ready(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $this = self;
                $crate::tokio::ready::poll_writable($socket, &self.assumed, cx)
            }

            /// Reads the bytes that are there. Never blocks. 0 at the end of the stream, or for an empty
            /// buffer.
            ///
            /// # Errors
            /// `WouldBlock` if nothing is there.
            pub fn try_read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.assumed.received(std::io::Read::read(&mut &self.inner, buf))
            }

            /// [`try_read`](Self::try_read) into several buffers, one after the other.
            ///
            /// # Errors
            /// As for [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, bufs: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                self.assumed.received(std::io::Read::read_vectored(&mut &self.inner, bufs))
            }

            /// [`try_read`](Self::try_read) into a buffer, which is advanced by the bytes read.
            ///
            /// # Errors
            /// As for [`try_read`](Self::try_read).
            pub fn try_read_buf<B: bytes::BufMut>(&self, buf: &mut B) -> std::io::Result<usize> {
                let room = buf.chunk_mut().len();
                self.assumed.received(self.recv_apart(room, |piece| buf.put_slice(piece)))
            }

            /// Writes as much as fits. Never blocks.
            ///
            /// # Errors
            /// `WouldBlock` if nothing fits.
            pub fn try_write(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.assumed.sent(std::io::Write::write(&mut &self.inner, buf))
            }

            /// [`try_write`](Self::try_write) from several buffers, one after the other.
            ///
            /// # Errors
            /// As for [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.assumed.sent(std::io::Write::write_vectored(&mut &self.inner, bufs))
            }

            /// Waits for received bytes, and copies them without removing them. May be cancelled.
            ///
            /// # Errors
            /// As for a read.
            pub async fn peek(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                let $this = self;
                let attempt = || self.inner.peek(buf);
                $crate::tokio::wait::op($socket, $crate::rt::tasks::Want::Read, attempt).await
            }

            /// [`peek`](Self::peek) as a poll function: returns how many bytes it has added to `buf`. Of several tasks
            /// that call it, or read, the last is woken.
            ///
            /// # Errors
            /// As for a read.
            pub fn poll_peek(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut ::tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $this = self;
                let unfilled = buf.initialize_unfilled();
                let attempt = || self.inner.peek(unfilled);
                let peeked =
                    $crate::tokio::wait::poll_op($socket, $crate::rt::tasks::Want::Read, cx, attempt);
                peeked.map_ok(|len| {
                    buf.advance(len);
                    len
                })
            }
        }
    };
}
pub(super) use stream_methods;

/// Methods of datagram sockets: readiness as poll functions, and receives into buffers that grow. A task receives by `$receive`.
macro_rules! datagram_methods {
    ($type:ident, $addr:ty, $receive:ident, |$this:ident| $socket:expr) => {
        impl $type {
            /// [`readable`](Self::readable) as a poll function. Of several tasks that call it, or another poll function that
            /// receives, the last is woken.
            ///
            /// # Errors
            /// As for [`readable`](Self::readable).
            pub fn poll_recv_ready(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $this = self;
                $crate::tokio::wait::poll_until($socket, $crate::rt::tasks::Want::Read, cx)
            }

            /// [`writable`](Self::writable) as a poll function. Of several tasks that call it, or another poll function that sends,
            /// the last is woken.
            ///
            /// # Errors
            /// As for [`writable`](Self::writable).
            pub fn poll_send_ready(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $this = self;
                $crate::tokio::ready::poll_writable($socket, &self.assumed, cx)
            }

            /// [`recv`](Self::recv) into a buffer, which is advanced by the bytes received; bytes for which its next
            /// piece has no room are cut off.
            ///
            /// # Errors
            /// As for [`recv`](Self::recv).
            pub async fn recv_buf<B: bytes::BufMut>(&self, buf: &mut B) -> std::io::Result<usize> {
                Ok(self.recv_buf_from(buf).await?.0)
            }

            /// [`recv_from`](Self::recv_from) into a buffer, as [`recv_buf`](Self::recv_buf).
            ///
            /// # Errors
            /// As for [`recv_from`](Self::recv_from).
            pub async fn recv_buf_from<B: bytes::BufMut>(
                &self,
                buf: &mut B,
            ) -> std::io::Result<(usize, $addr)> {
                let $this = self;
                let room = buf.chunk_mut().len();
                let attempt = || self.$receive(room, |piece| buf.put_slice(piece));
                $crate::tokio::wait::op($socket, $crate::rt::tasks::Want::Read, attempt).await
            }

            /// [`try_recv`](Self::try_recv) into a buffer, as [`recv_buf`](Self::recv_buf).
            ///
            /// # Errors
            /// As for [`try_recv`](Self::try_recv).
            pub fn try_recv_buf<B: bytes::BufMut>(&self, buf: &mut B) -> std::io::Result<usize> {
                Ok(self.try_recv_buf_from(buf)?.0)
            }

            /// [`try_recv_from`](Self::try_recv_from) into a buffer, as [`recv_buf`](Self::recv_buf).
            ///
            /// # Errors
            /// As for [`try_recv_from`](Self::try_recv_from).
            pub fn try_recv_buf_from<B: bytes::BufMut>(
                &self,
                buf: &mut B,
            ) -> std::io::Result<(usize, $addr)> {
                let room = buf.chunk_mut().len();
                self.recv_apart(room, |piece| buf.put_slice(piece))
            }
        }
    };
}
pub(super) use datagram_methods;

/// Methods that are those of the socket of the blocking kind.
macro_rules! passed_methods {
    ($type:ident { $( $(#[$doc:meta])* $name:ident($($arg:ident: $arg_type:ty),*) -> $result:ty; )* }) => {
        impl $type {
            $(
                $(#[$doc])*
                pub fn $name(&self $(, $arg: $arg_type)*) -> std::io::Result<$result> {
                    self.inner.$name($($arg),*)
                }
            )*
        }
    };
}
pub(super) use passed_methods;

/// From the type of the blocking kind, as `from_std`.
macro_rules! try_from_std {
    ($type:ident, $std:ty) => {
        impl TryFrom<$std> for $type {
            type Error = std::io::Error;

            fn try_from(inner: $std) -> std::io::Result<Self> {
                Self::from_std(inner)
            }
        }
    };
}
pub(super) use try_from_std;

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::tokio::unix::{UnixDatagram, UnixStream};
    use crate::tokio::{TcpStream, UdpSocket};
    use crate::{Stack, TcpListener};

    /// Bytes that are copied under a lock, and more.
    const LENS: [usize; 3] = [5, 1000, 20_000];

    /// Receives what `send` has sent while the application uses its socket, while it panics, and while it does neither.
    fn receives(
        send: impl Fn(&[u8]) -> io::Result<usize>,
        receive: impl Fn(usize, &mut dyn FnMut(&[u8])) -> io::Result<usize>,
        uses: &dyn Fn(),
    ) {
        for len in LENS {
            let text: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let hooks: [(&dyn Fn(), usize); 3] = [(uses, len), (&|| panic!("of a buffer"), 0), (&|| (), len)];
            for (hook, put_len) in hooks {
                assert_eq!(send(&text).unwrap(), len);
                let mut got = Vec::new();
                let received = catch_unwind(AssertUnwindSafe(|| {
                    receive(len, &mut |piece| {
                        hook();
                        got.extend_from_slice(piece);
                    })
                }));
                let received = received.ok().map(Result::unwrap);
                assert_eq!(received, (put_len > 0).then_some(len), "a panic goes to the caller");
                assert!(got == text[..put_len]);
                let none = receive(1, &mut |_| panic!("it was taken")).unwrap_err();
                assert_eq!(none.kind(), ErrorKind::WouldBlock);
            }
        }
    }

    #[test]
    fn a_buffer_may_use_the_socket_that_it_is_filled_from_and_may_panic() {
        let stack = Stack::new(crate::Config { workers: 0, ..Default::default() }).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let near = crate::TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
        near.set_nodelay(true).unwrap();
        let far = TcpStream::from_std(listener.accept().unwrap().0).unwrap();
        receives(|text| io::Write::write(&mut &near, text), |room, put| far.recv_apart(room, put), &|| {
            assert_ne!(far.peer_addr().unwrap(), far.local_addr().unwrap());
            assert_eq!(far.try_write(b"x").unwrap(), 1);
        });
        let (near, far) = UnixStream::pair_on(&stack).unwrap();
        receives(|text| near.try_write(text), |room, put| far.recv_apart(room, put), &|| {
            assert_eq!(far.try_write(b"x").unwrap(), 1);
            assert!(far.take_error().unwrap().is_none());
        });
        let (near, far) = UnixDatagram::pair_on(&stack).unwrap();
        receives(|text| near.try_send(text), |room, put| Ok(far.recv_apart(room, put)?.0), &|| {
            assert_eq!(far.try_send(b"x").unwrap(), 1);
            assert!(far.take_error().unwrap().is_none());
        });
        let udp = UdpSocket::from_std(crate::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap()).unwrap();
        udp.get_ref().connect(udp.local_addr().unwrap()).unwrap();
        receives(|text| udp.try_send(text), |room, put| Ok(udp.recv_apart(room, put)?.0), &|| {
            assert!(udp.take_error().unwrap().is_none());
        });
        let panics = stack.counters().into_iter().filter(|(name, _)| name.starts_with("panics"));
        assert_eq!(panics.map(|(_, count)| count).sum::<u64>(), 0, "they are not the stack's");
    }
}
