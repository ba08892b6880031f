//! A socket of the script: a socket of the stack in whichever shape it has now.
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

use sockeye::{Stack, TcpListener, TcpSocket, TcpStream, UdpBuilder, UdpSocket};

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
    /// TCP_FASTOPEN_CONNECT: the connect waits for the first write.
    pub is_deferred: bool,
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
    /// A socket of UDP, bound or not.
    Datagram(UdpSocket),
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
            is_deferred: false,
        };
        socket.shape = Shape::Fresh(socket.fresh());
        socket
    }

    /// A socket of UDP.
    ///
    /// # Errors
    /// None today.
    pub fn datagram(stack: Stack, is_v6: bool, nonblocking: bool) -> Call<Self> {
        let mut socket = Self::new(stack, is_v6, nonblocking);
        let unbound = socket.udp().unbound();
        unbound.set_nonblocking(true)?;
        socket.shape = Shape::Datagram(unbound);
        Ok(socket)
    }

    /// The builder of a socket of UDP with the options that were set.
    pub fn udp(&self) -> UdpBuilder {
        let make = if self.is_v6 { UdpBuilder::new_v6 } else { UdpBuilder::new_v4 };
        let is_on = |level, name| self.was_set(level, name).is_some_and(|value| value != 0);
        make(&self.stack)
            .reuse_address(is_on(libc::SOL_SOCKET, libc::SO_REUSEADDR))
            .reuse_port(is_on(libc::SOL_SOCKET, libc::SO_REUSEPORT))
            .only_v6(is_on(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY))
            .transparent(is_on(libc::IPPROTO_IP, libc::IP_TRANSPARENT))
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
            Shape::Fresh(_) | Shape::Listening(_) | Shape::Datagram(_) | Shape::Gone => {
                Err(Errno(libc::ENOTCONN))
            }
        }
    }
}
