//! [`UdpBuilder`]: settings that must be chosen before a socket is bound.
//!
//! Does not depend on how datagrams move. Tests: `tests/udp/bind.rs`, `tests/udp/any.rs`.

use std::io;
use std::net::SocketAddr;

use sockeye_sync::facade::Arc;

use super::flow::{UdpFlowConfig, UdpFlowListener, flows_of};
use super::naming::Handle;
use super::pcb::{Init, Pcb, Protocol, Role};
use super::socket::UdpSocket;
use crate::config::{BUFFER_MAX, BUFFER_MIN};
use crate::rt::fork::Held;
use crate::rt::handle::Stack;

/// Settings that decide conflicts of binds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reuse {
    pub addr: bool,
    pub port: bool,
    pub v6_only: bool,
}

/// Whose addresses a socket may go by.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Place {
    /// The stack's.
    #[default]
    Own,
    /// Any host's.
    Transparent,
    /// Any host's, at every port.
    AnyPort,
}

/// A builder of a UDP socket: options that affect binding, then [`bind`](Self::bind), [`bind_any`](Self::bind_any) or
/// [`unbound`](Self::unbound).
///
/// ```
/// use sockeye::{Stack, UdpBuilder};
///
/// let stack = Stack::global();
/// let one = UdpBuilder::new_v4(stack).reuse_port(true).bind("127.0.0.1:0".parse().unwrap())?;
/// let other = UdpBuilder::new_v4(stack).reuse_port(true).bind(one.local_addr()?)?;
/// assert_eq!(one.local_addr()?, other.local_addr()?);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct UdpBuilder {
    stack: Stack,
    is_v6: bool,
    reuse: Reuse,
    place: Place,
    rcvbuf: u32,
    canonical: bool,
}

impl UdpBuilder {
    /// An IPv4 socket.
    pub fn new_v4(stack: &Stack) -> Self {
        Self::new(stack, false)
    }

    /// An IPv6 socket, which also uses IPv4 (as mapped addresses) unless [`only_v6`](Self::only_v6) is set.
    pub fn new_v6(stack: &Stack) -> Self {
        Self::new(stack, true)
    }

    /// A socket of the family of `addr`.
    pub fn for_addr(stack: &Stack, addr: SocketAddr) -> Self {
        Self::new(stack, addr.is_ipv6())
    }

    fn new(stack: &Stack, is_v6: bool) -> Self {
        Self {
            stack: stack.clone(),
            is_v6,
            reuse: Reuse::default(),
            place: Place::Own,
            rcvbuf: stack.config().udp_rcvbuf,
            canonical: false,
        }
    }

    /// SO_REUSEADDR: sockets that all have it share a port. Unicast datagrams go to the last one bound, those to a group
    /// to all.
    #[must_use]
    pub fn reuse_address(mut self, reuse: bool) -> Self {
        self.reuse.addr = reuse;
        self
    }

    /// SO_REUSEPORT: sockets that all have it share a port, and datagrams are spread over them by their 4-tuple.
    #[must_use]
    pub fn reuse_port(mut self, reuse: bool) -> Self {
        self.reuse.port = reuse;
        self
    }

    /// IPV6_V6ONLY.
    #[must_use]
    pub fn only_v6(mut self, only: bool) -> Self {
        self.reuse.v6_only = only;
        self
    }

    /// IP_TRANSPARENT: the socket may be bound to other hosts' addresses and send from them, by
    /// [`SendMeta::src`](crate::SendMeta::src). Packets to them arrive by interfaces with [`Stack::set_any_address`].
    #[must_use]
    pub fn transparent(mut self, transparent: bool) -> Self {
        self.place = if transparent { Place::Transparent } else { Place::Own };
        self
    }

    /// Shows IPv4 addresses as IPv4 addresses even on an IPv6 socket: `10.0.0.1:53` instead of `[::ffff:10.0.0.1]:53`.
    /// The default `false` is the behaviour of Linux and RFC 3493 section 3.7. The option affects the addresses that
    /// the socket returns: the senders and destinations of datagrams, `local_addr`, `peer_addr`, and the same for its
    /// flows; but not arguments of calls.
    #[must_use]
    pub fn canonical_addrs(mut self, canonical: bool) -> Self {
        self.canonical = canonical;
        self
    }

    /// SO_RCVBUF, bytes of memory that waiting datagrams may take, limited to 2 KiB to 64 MiB. Default
    /// [`Config::udp_rcvbuf`](crate::Config::udp_rcvbuf).
    #[must_use]
    pub fn recv_buffer_size(mut self, bytes: usize) -> Self {
        self.rcvbuf = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(BUFFER_MIN, BUFFER_MAX);
        self
    }

    /// The socket, bound to `addr`; port 0 chooses a free port.
    ///
    /// # Errors
    /// `AddrInUse`; `AddrNotAvailable` (not an address of the stack, a group or a broadcast address; or no port is
    /// free); EAFNOSUPPORT or EINVAL for an address of the other family.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<UdpSocket> {
        let socket = self.unbound();
        socket.handle.open()?.bind(addr)?;
        Ok(socket)
    }

    /// A socket for every port: it receives unicast datagrams for which no other socket is bound, as
    /// [`TcpSocket::listen_any`](crate::TcpSocket::listen_any) does for connections. The destination of a datagram is
    /// in [`RecvMeta::dst`](crate::RecvMeta::dst) and [`dst_port`](crate::RecvMeta::dst_port); an answer uses the same
    /// values as [`SendMeta::src`](crate::SendMeta::src) and [`src_port`](crate::SendMeta::src_port). Needs
    /// [`transparent`](Self::transparent). It receives nothing sent to groups, and cannot be bound or connected; while
    /// it exists, no port is reported as closed.
    ///
    /// # Errors
    /// `AddrInUse` if there is one of the family that does not share; `InvalidInput` if it is not transparent.
    pub fn bind_any(&self) -> io::Result<UdpSocket> {
        self.check_transparent()?;
        let socket = self.make(Place::AnyPort, Role::Plain);
        socket.handle.open()?.bind_every_port()?;
        Ok(socket)
    }

    /// A listener of flows at `addr`: it yields a connected socket for each peer that sends there
    /// ([`UdpFlowListener`]); port 0 chooses a free port. Sockets that are bound or connected more specifically have
    /// priority, and a listener gets nothing sent to groups or broadcast addresses. Flows have the builder's [buffer
    /// size](Self::recv_buffer_size), and the options of a new socket otherwise.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn listen_flows(&self, addr: SocketAddr, config: &UdpFlowConfig) -> io::Result<UdpFlowListener> {
        let socket = self.make(self.place, flows_of(config));
        socket.handle.open()?.bind(addr)?;
        Ok(UdpFlowListener::of(socket))
    }

    /// A listener of flows for every port, as [`bind_any`](Self::bind_any) makes a socket for every port: it yields a
    /// connected socket for each pair of a peer and a destination, and no closed port is reported. Datagrams sent on
    /// the socket have the peer's destination as their source. Needs [`transparent`](Self::transparent).
    ///
    /// # Errors
    /// As for [`bind_any`](Self::bind_any).
    pub fn listen_any_flows(&self, config: &UdpFlowConfig) -> io::Result<UdpFlowListener> {
        self.check_transparent()?;
        let socket = self.make(Place::AnyPort, flows_of(config));
        socket.handle.open()?.bind_every_port()?;
        Ok(UdpFlowListener::of(socket))
    }

    fn check_transparent(&self) -> io::Result<()> {
        if self.place == Place::Own {
            let message = "a socket for every port is a transparent one: call transparent(true) first";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// The socket without an address. A connect or the first send gives it a free port.
    pub fn unbound(&self) -> UdpSocket {
        self.make(self.place, Role::Plain)
    }

    fn make(&self, place: Place, role: Role) -> UdpSocket {
        let (protocol, is_v6, canonical) = (Protocol::Udp, self.is_v6, self.canonical);
        let (reuse, rcvbuf) = (self.reuse, self.rcvbuf);
        let pcb = Pcb::new(Init { protocol, is_v6, canonical, reuse, place, rcvbuf, role });
        let handle = Arc::new(Handle { stack: self.stack.clone(), pcb });
        UdpSocket { handle: Held::new(self.stack.clone(), handle) }
    }
}
