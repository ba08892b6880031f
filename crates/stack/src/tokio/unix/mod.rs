//! UNIX-domain sockets in `tokio`'s shape.
//!
//! As for TCP there is no reactor: the thread that appends to a buffer, or makes room in one, takes the tasks' wakers out
//! of it and wakes them. Any number of tasks may wait for one socket in futures; of those that call a poll function of one
//! handle, the last is woken for each direction.
//!
//! Does not depend on how data moves. Tests: `tests/unix/tokio.rs`.

mod datagram;
mod listener;
mod seqpacket;
mod socket;
mod split;
mod stream;

pub use datagram::UnixDatagram;
pub use listener::{UnixListener, UnixSeqListener};
pub use seqpacket::UnixSeqpacket;
pub use socket::UnixSocket;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::UnixStream;

#[doc(inline)]
pub use crate::unix::{SocketAddr, UCred};

/// A user, as in [`UCred`].
#[allow(non_camel_case_types)]
pub type uid_t = u32;

/// A group, as in [`UCred`].
#[allow(non_camel_case_types)]
pub type gid_t = u32;

/// A process, as in [`UCred`].
#[allow(non_camel_case_types)]
pub type pid_t = i32;

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::task::Poll;

use super::ready::Readiness;
use super::wait::{op, op_listed, poll_op, poll_op_listed, until};
use crate::rt::fork::Held;
use crate::rt::poll::{Ready, Target as _};
use crate::rt::tasks::Want;
use crate::unix::listen::{self, Room};
use crate::unix::ready::End;
use crate::unix::sock::Sock;
use sockeye_sync::coop::cooperative;

impl Readiness for Held<Sock> {
    fn readiness(&self) -> io::Result<Ready> {
        Ok(End::of(self.open()?).ready())
    }
}

/// The address that a path names. As in `tokio`, one that begins with a NUL is an abstract name.
///
/// # Errors
/// `InvalidInput` (EINVAL) for 108 bytes or more, or with another NUL in a pathname.
fn address(path: impl AsRef<Path>) -> io::Result<SocketAddr> {
    match path.as_ref().as_os_str().as_bytes() {
        [0, name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(path),
    }
}

/// A datagram socket that does not block gets `WouldBlock` when nothing more comes (Linux). A task waits, so it gets
/// the end, like a blocked thread.
fn or_end<R>(sock: &Held<Sock>, received: io::Result<R>, end: impl Fn() -> R) -> io::Result<R> {
    match received {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && sock.open()?.is_at_end() => Ok(end()),
        received => received,
    }
}

/// Connects `socket`, once the listener's backlog has room. A task that is woken tries again: the place may be another's by then.
async fn connected(socket: &crate::unix::UnixSocket, addr: &SocketAddr) -> io::Result<Held<Sock>> {
    loop {
        let attempt =
            || Poll::Ready(listen::connect_for_task(socket.sock.open()?, addr).map_err(io::Error::from));
        match cooperative(|_| attempt()).await? {
            Ok(sock) => return Ok(Held::of(sock)),
            Err(full) => until(&Room::of(socket.stack(), full), Want::Connect).await?,
        }
    }
}

/// The methods of every type; `$other` is a field beside `inner`.
macro_rules! wrapper_methods {
    ($type:ident $(, $other:ident)?) => {
        impl $type {
            /// Wraps a socket of the blocking kind, which from now on does not block.
            ///
            /// # Errors
            /// None; the signature is that of `tokio`.
            pub fn from_std(inner: crate::unix::$type) -> std::io::Result<Self> {
                inner.set_nonblocking(true)?;
                Ok(Self { inner $(, $other: Default::default())? })
            }

            /// The socket of the blocking kind inside. It stays non-blocking until told otherwise.
            ///
            /// # Errors
            /// None; the signature is that of `tokio`.
            pub fn into_std(self) -> std::io::Result<crate::unix::$type> {
                Ok(self.inner)
            }

            /// The socket of the blocking kind, for its queries and options.
            pub fn get_ref(&self) -> &crate::unix::$type {
                &self.inner
            }

            /// The socket's own address.
            ///
            /// # Errors
            /// None; the signature is that of `tokio`.
            pub fn local_addr(&self) -> std::io::Result<crate::unix::SocketAddr> {
                self.inner.local_addr()
            }

            /// Takes the pending error, if there is one.
            ///
            /// # Errors
            /// None; the signature is that of `tokio`.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.inner.take_error()
            }

            /// SO_SNDBUF, bytes: see the blocking type.
            ///
            /// # Errors
            /// None; the signature is that of `socket2`.
            pub fn set_send_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                self.inner.set_send_buffer_size(bytes)
            }

            /// The SO_SNDBUF setting: twice the bytes that it allows, as Linux returns it (socket(7)).
            ///
            /// # Errors
            /// None; the signature is that of `socket2`.
            pub fn send_buffer_size(&self) -> std::io::Result<usize> {
                self.inner.send_buffer_size()
            }

            /// SO_RCVBUF, bytes: see the blocking type.
            ///
            /// # Errors
            /// None; the signature is that of `socket2`.
            pub fn set_recv_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                self.inner.set_recv_buffer_size(bytes)
            }

            /// The SO_RCVBUF setting: twice the bytes that were set, as Linux returns it (socket(7)).
            ///
            /// # Errors
            /// None; the signature is that of `socket2`.
            pub fn recv_buffer_size(&self) -> std::io::Result<usize> {
                self.inner.recv_buffer_size()
            }

            /// SO_PASSCRED: see the blocking type.
            ///
            /// # Errors
            /// None; the signature is that of `socket2`.
            pub fn set_passcred(&self, passcred: bool) -> std::io::Result<()> {
                self.inner.set_passcred(passcred)
            }

            /// Whether SO_PASSCRED is set.
            ///
            /// # Errors
            /// None; the signature is that of `socket2`.
            pub fn passcred(&self) -> std::io::Result<bool> {
                self.inner.passcred()
            }
        }

        $crate::tokio::methods::try_from_std!($type, crate::unix::$type);
    };
}
use wrapper_methods;

/// The methods of types that send and receive.
macro_rules! data_wrapper_methods {
    ($type:ident) => {
        impl $type {
            /// Two sockets that are connected to each other, of the current stack ([`Stack::current`](crate::Stack::current)).
            ///
            /// # Errors
            /// None today.
            pub fn pair() -> std::io::Result<(Self, Self)> {
                Self::pair_on(&crate::rt::handle::Stack::current())
            }

            /// [`pair`](Self::pair) of a stack of your own.
            ///
            /// # Errors
            /// None today.
            pub fn pair_on(stack: &crate::rt::handle::Stack) -> std::io::Result<(Self, Self)> {
                let (a, b) = crate::unix::$type::pair_on(stack)?;
                Ok((Self::from_std(a)?, Self::from_std(b)?))
            }

            /// The address of the peer.
            ///
            /// # Errors
            /// `NotConnected`.
            pub fn peer_addr(&self) -> std::io::Result<crate::unix::SocketAddr> {
                self.inner.peer_addr()
            }

            /// The credentials of the peer.
            ///
            /// # Errors
            /// None; the signature is that of `tokio`.
            pub fn peer_cred(&self) -> std::io::Result<crate::unix::UCred> {
                self.inner.peer_cred()
            }

            /// sendmsg(2), once there is room; see the blocking type's `send_msg`.
            ///
            /// # Errors
            /// As for the blocking type.
            pub async fn send_msg(
                &self,
                bufs: &[std::io::IoSlice<'_>],
                to: Option<&crate::unix::SocketAddr>,
                ancillary: &mut crate::unix::SendAncillary,
                flags: crate::unix::MsgFlags,
            ) -> std::io::Result<usize> {
                let attempt = || self.inner.send_msg(bufs, to, ancillary, flags);
                // Whether there is room on the way to another socket is for an attempt to say.
                match to {
                    None => super::op(&self.inner.sock, super::Want::Write, attempt).await,
                    Some(_) => super::op_listed(&self.inner.sock, super::Want::Write, attempt).await,
                }
            }

            /// recvmsg(2), once there is something; see the blocking type's `recv_msg`.
            ///
            /// # Errors
            /// As for the blocking type.
            pub async fn recv_msg(
                &self,
                bufs: &mut [std::io::IoSliceMut<'_>],
                ancillary: &mut crate::unix::RecvAncillary,
                flags: crate::unix::MsgFlags,
            ) -> std::io::Result<crate::unix::RecvMsg> {
                let sock = &self.inner.sock;
                let end = || crate::unix::RecvMsg {
                    bytes: 0,
                    flags: crate::unix::MsgFlags::NONE,
                    addr: crate::unix::SocketAddr(None),
                };
                let attempt = || super::or_end(sock, self.inner.recv_msg(bufs, ancillary, flags), end);
                super::op(sock, super::Want::Read, attempt).await
            }
        }

        $crate::tokio::methods::ready_methods!($type, |socket| &socket.inner.sock);
    };
}
use data_wrapper_methods;
