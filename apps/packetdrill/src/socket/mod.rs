//! A socket of the script: a TCP socket of the stack in whichever shape it has now.
//!
//! Sockets of the stack never block here: a call that has to wait does so in `Adapter::block`. An option is kept as the bytes that the script gave,
//! because a socket whose connect has failed begins anew with all of them.
//!
//! | file | calls |
//! |---|---|
//! | `open.rs` | socket, bind, listen, accept, connect, shutdown |
//! | `transfer.rs` | reads and writes with their flags, splice, sendfile |
//! | `message.rs` | control messages of recvmsg and sendmsg |
//! | `options.rs` | getsockopt, setsockopt, ioctl, fcntl |

pub(crate) mod message;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod transfer;

use std::net::SocketAddr;
use std::time::Duration;

use sockeye::{Stack, TcpListener, TcpSocket, TcpStream};

use crate::error::{Call, Errno};
use options::Setting;

/// A socket.
pub(crate) struct Socket {
    pub stack: Stack,
    pub is_v6: bool,
    /// O_NONBLOCK.
    pub nonblocking: bool,
    pub shape: Shape,
    /// The options that were set, in order.
    pub settings: Vec<Setting>,
    pub bound: Option<SocketAddr>,
    /// SO_RCVTIMEO and SO_SNDTIMEO.
    pub rcv_timeout: Option<Duration>,
    pub snd_timeout: Option<Duration>,
    /// TCP_INQ.
    pub wants_inq: bool,
}

/// What it is now.
pub(crate) enum Shape {
    /// Neither connected nor listening.
    Fresh(TcpSocket),
    /// The handshake goes on, or has ended and no `connect` was told.
    Connecting(TcpStream),
    /// A connection, also one that has ended.
    Connected(TcpStream),
    Listening(TcpListener),
    /// Between two shapes: a call has failed in a way that left nothing.
    Gone,
}

impl Socket {
    pub fn new(stack: Stack, is_v6: bool, nonblocking: bool) -> Self {
        let mut socket = Self {
            stack,
            is_v6,
            nonblocking,
            shape: Shape::Gone,
            settings: Vec::new(),
            bound: None,
            rcv_timeout: None,
            snd_timeout: None,
            wants_inq: false,
        };
        socket.shape = Shape::Fresh(socket.fresh());
        socket
    }

    /// A socket of the stack with all that was set.
    pub fn fresh(&self) -> TcpSocket {
        let make = if self.is_v6 { TcpSocket::new_v6 } else { TcpSocket::new_v4 };
        let mut socket = make(&self.stack);
        socket.set_nonblocking(true);
        for setting in &self.settings {
            let _ = options::on_socket(&mut socket, setting);
        }
        if let Some(addr) = self.bound {
            let _ = socket.bind(addr);
        }
        socket
    }

    /// The connection.
    ///
    /// # Errors
    /// ENOTCONN for another socket.
    pub fn stream(&self) -> Call<&TcpStream> {
        match &self.shape {
            Shape::Connecting(stream) | Shape::Connected(stream) => Ok(stream),
            Shape::Fresh(_) | Shape::Listening(_) | Shape::Gone => Err(Errno(libc::ENOTCONN)),
        }
    }
}
