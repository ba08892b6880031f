//! [`IcmpSocket`]: the public face. Options are in `settings.rs`. Does not depend on how messages move
//! (`echo.rs`). Tests: `tests/ip/sockets.rs`.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

use rustix::io::Errno;
use sockeye_proto::icmp::HEADER_LEN;
use sockeye_sync::facade::{Arc, Ordering};

use super::echo;
use crate::rt::fork::Held;
use crate::rt::handle::Stack;
use crate::udp::Unsent;
use crate::udp::methods::handle_methods;
use crate::udp::naming::Handle;
use crate::udp::pcb::Pcb;
use crate::udp::recv;

/// Sends ICMP echo requests and receives their answers and errors, for the address family with which it was bound.
///
/// ```
/// use sockeye::IcmpSocket;
///
/// let ping = IcmpSocket::bind("0.0.0.0".parse().unwrap())?;
/// ping.send_to(1, b"are you there?", "127.0.0.1".parse().unwrap())?;
/// let mut data = [0; 64];
/// let reply = ping.recv(&mut data)?;
/// assert_eq!((reply.seq, &data[..reply.len]), (1, &b"are you there?"[..]));
/// # std::io::Result::Ok(())
/// ```
///
/// The model is Linux's ping socket (`SOCK_DGRAM` with `IPPROTO_ICMP`): the stack chooses the identifier, and answers
/// with another one never arrive here. Errors about sent requests, such as a router's "time exceeded", are kept for
/// [`recv_err`](Self::recv_err); each also makes one later call fail. Several threads may make any calls at once.
///
/// Calls that take a [`SocketAddrV6`], whose port has no meaning here, return a link-local IPv6 address, or a group of
/// a link, with its interface (RFC 4007): `"[fe80::1%2]:0".parse()` is `fe80::1` on the interface with the number 2.
pub struct IcmpSocket {
    pub(crate) handle: Held<Arc<Handle>>,
}

/// An answer to an echo request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EchoReply {
    /// The host that has answered.
    pub from: IpAddr,
    /// The address of the stack at which it arrived.
    pub dst: IpAddr,
    /// The number of the request.
    pub seq: u16,
    /// Bytes of the data that were copied.
    pub len: usize,
    /// Bytes of the data in the answer.
    pub data_len: usize,
    /// Its hop limit on arrival.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The interface by which it arrived, as in [`RecvMeta::interface`](crate::RecvMeta::interface): the scope id of a
    /// link-local `from`.
    pub interface: u32,
}

/// An error that was returned for an echo request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EchoError {
    /// The event.
    pub what: Unsent,
    /// Linux's errno for it.
    pub errno: i32,
    /// The host that reported it: for [`Unsent::TimeExceeded`] the router on the path.
    pub offender: IpAddr,
    /// The destination of the request.
    pub dst: IpAddr,
    /// The interface on which `dst` is, if it is an address of a link; else 0.
    pub scope_id: u32,
    /// Its number.
    pub seq: u16,
    /// Bytes of its data that were quoted and copied.
    pub len: usize,
}

impl IcmpSocket {
    /// A socket of the current stack ([`Stack::current`]), bound to one of the stack's addresses, or with a wildcard to
    /// all of a family.
    ///
    /// # Errors
    /// `AddrNotAvailable` if it is not an address of the stack, or no identifier is free.
    pub fn bind(addr: IpAddr) -> io::Result<Self> {
        Self::bind_on(&Stack::current(), addr)
    }

    /// [`bind`](Self::bind) on a stack of your own.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn bind_on(stack: &Stack, addr: IpAddr) -> io::Result<Self> {
        Self::bound(stack, SocketAddr::new(addr, 0))
    }

    /// [`bind_on`](Self::bind_on) to an address on the interface that its scope id names.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind), also if the address belongs to another interface; ENODEV if there is no such
    /// interface.
    pub fn bind_scoped_on(stack: &Stack, addr: SocketAddrV6) -> io::Result<Self> {
        Self::bound(stack, without_port(addr))
    }

    fn bound(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        let pcb = Pcb::of_echo(addr.is_ipv6(), stack.config().rcvbuf);
        let handle = Arc::new(Handle { stack: stack.clone(), pcb });
        let socket = Self { handle: Held::new(stack.clone(), handle) };
        socket.handle.open()?.bind(addr)?;
        Ok(socket)
    }

    /// From now on, sends requests to `addr` and receives answers from it only.
    ///
    /// # Errors
    /// `NetworkUnreachable`; EAFNOSUPPORT for an address of the other family.
    pub fn connect(&self, addr: IpAddr) -> io::Result<()> {
        let handle = self.handle.open()?;
        if addr.is_ipv6() != handle.pcb.is_v6 {
            return Err(Errno::AFNOSUPPORT.into());
        }
        handle.connect(SocketAddr::new(addr, 0))
    }

    /// [`connect`](Self::connect) to an address on the interface that its scope id names.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); ENODEV if there is no such interface, `InvalidInput` if the socket is bound to an
    /// address of another one.
    pub fn connect_scoped(&self, addr: SocketAddrV6) -> io::Result<()> {
        let handle = self.handle.open()?;
        if !handle.pcb.is_v6 {
            return Err(Errno::AFNOSUPPORT.into());
        }
        handle.connect(without_port(addr))
    }

    /// The identifier that the socket's requests carry.
    pub fn id(&self) -> u16 {
        self.handle.open().map_or(0, |handle| handle.pcb.name.load().local.port)
    }

    /// The address to which the socket is bound; the wildcard for all.
    pub fn local_addr(&self) -> IpAddr {
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        self.handle.open().map_or(unknown, |handle| handle.pcb.name.load().local.addr)
    }

    /// The peer, if there is one.
    pub fn peer_addr(&self) -> Option<IpAddr> {
        self.handle.open().ok()?.pcb.name.load().remote.map(|remote| remote.addr)
    }

    /// Sends the peer an echo request. Never blocks; a request longer than the path carries is fragmented.
    ///
    /// # Errors
    /// EDESTADDRREQ without a peer; EMSGSIZE beyond 65,507 bytes; ENOBUFS without packet memory or with a full queue;
    /// `PermissionDenied` for a broadcast address; `NetworkUnreachable` and similar; the pending error.
    pub fn send(&self, seq: u16, data: &[u8]) -> io::Result<()> {
        Ok(echo::request(self.handle.open()?, seq, data, None)?)
    }

    /// Sends an echo request to a host or a group.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_to(&self, seq: u16, data: &[u8], to: IpAddr) -> io::Result<()> {
        Ok(echo::request(self.handle.open()?, seq, data, Some(SocketAddr::new(to, 0)))?)
    }

    /// [`send_to`](Self::send_to) an address on the interface that its scope id names.
    ///
    /// # Errors
    /// As for [`send`](Self::send); ENODEV if there is no such interface, `InvalidInput` if the socket is bound to an address of
    /// another one.
    pub fn send_to_scoped(&self, seq: u16, data: &[u8], to: SocketAddrV6) -> io::Result<()> {
        Ok(echo::request(self.handle.open()?, seq, data, Some(without_port(to)))?)
    }

    /// Receives an answer; data beyond `buf` is cut off. Blocks until there is one.
    ///
    /// # Errors
    /// `WouldBlock` if there is none (at the end of the timeout); the pending error.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<EchoReply> {
        let mut header = [0; HEADER_LEN];
        let meta =
            recv::recv(self.handle.open()?, &mut [IoSliceMut::new(&mut header), IoSliceMut::new(buf)])?;
        let [.., s0, s1] = header;
        Ok(EchoReply {
            from: meta.from.ip(),
            dst: meta.dst,
            seq: u16::from_be_bytes([s0, s1]),
            len: meta.len.saturating_sub(HEADER_LEN),
            data_len: meta.datagram_len.saturating_sub(HEADER_LEN),
            hop_limit: meta.hop_limit,
            traffic_class: meta.traffic_class,
            interface: meta.interface,
        })
    }

    /// Takes the oldest error, and copies the quoted part of the request's data into `buf`. `None` if there is
    /// none; never blocks.
    pub fn recv_err(&self, buf: &mut [u8]) -> Option<EchoError> {
        let error = recv::recv_err(self.handle.open().ok()?, buf)?;
        let scope_id = match error.dst {
            SocketAddr::V6(dst) => dst.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        Some(EchoError {
            scope_id,
            what: error.what,
            errno: error.errno,
            offender: error.offender.ip(),
            dst: error.dst.ip(),
            seq: error.dst.port(),
            len: error.len,
        })
    }
}

/// Ports mean nothing to echo requests, and a name's port is the identifier here.
fn without_port(mut addr: SocketAddrV6) -> SocketAddr {
    addr.set_port(0);
    SocketAddr::V6(addr)
}

handle_methods!(IcmpSocket);

impl std::fmt::Debug for IcmpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IcmpSocket")
            .field("local", &self.local_addr())
            .field("id", &self.id())
            .field("peer", &self.peer_addr())
            .field("nonblocking", &self.options().is_ok_and(|it| it.nonblocking.load(Ordering::Relaxed)))
            .finish_non_exhaustive()
    }
}
