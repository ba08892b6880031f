//! Both kinds of sockets, as far as cases use them.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{Stack, UdpBuilder};

use crate::common;

/// Options of a bind.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Before {
    pub is_v6: bool,
    pub reuse_addr: bool,
    pub reuse_port: bool,
    pub v6_only: bool,
}

impl Before {
    pub fn of(addr: SocketAddr) -> Self {
        Self { is_v6: addr.is_ipv6(), ..Self::default() }
    }
}

/// How long a receive waits before it reports that nothing has arrived.
const PATIENCE: Duration = Duration::from_millis(40);

/// The source of sockets: the kernel or a stack.
pub trait Net {
    type Socket: Socket;
    fn unbound(&self, before: Before) -> Self::Socket;
    fn bind(&self, before: Before, addr: SocketAddr) -> io::Result<Self::Socket>;
    fn at(&self, addr: &str) -> Self::Socket {
        let addr = addr.parse().unwrap();
        self.bind(Before::of(addr), addr).unwrap()
    }
}

/// A socket whose receives wait for [`PATIENCE`].
pub trait Socket {
    fn local(&self) -> SocketAddr;
    fn peer(&self) -> io::Result<SocketAddr>;
    fn connect(&self, to: SocketAddr) -> io::Result<()>;
    fn disconnect(&self);
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize>;
    fn recv(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    fn peek(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    /// A vectored receive; returns the bytes, and whether some were truncated.
    fn recv_two(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<(usize, bool)>;
    fn take_error(&self) -> Option<io::Error>;
    fn set_broadcast(&self, on: bool);
    fn set_nonblocking(&self, on: bool);
    fn set_rcvbuf(&self, bytes: usize);
    fn set_ttl(&self, ttl: u32) -> io::Result<()>;
    fn join(&self, group: IpAddr, interface: IpAddr) -> io::Result<()>;
    fn leave(&self, group: IpAddr, interface: IpAddr) -> io::Result<()>;
    fn set_multicast_if_lo(&self, is_v6: bool);
    fn set_multicast_loop(&self, is_v6: bool, on: bool);
    fn set_multicast_all(&self, on: bool);
    /// Readable, writable, in error.
    fn ready(&self) -> (bool, bool, bool);
}

pub struct Kernel;

impl Net for Kernel {
    type Socket = std::net::UdpSocket;

    fn unbound(&self, before: Before) -> Self::Socket {
        let domain = if before.is_v6 { socket2::Domain::IPV6 } else { socket2::Domain::IPV4 };
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
        if before.is_v6 {
            socket.set_only_v6(before.v6_only).unwrap();
        }
        socket.set_reuse_address(before.reuse_addr).unwrap();
        socket.set_reuse_port(before.reuse_port).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.into()
    }

    fn bind(&self, before: Before, addr: SocketAddr) -> io::Result<Self::Socket> {
        let socket = self.unbound(before);
        socket2::SockRef::from(&socket).bind(&addr.into())?;
        Ok(socket)
    }
}

impl Socket for std::net::UdpSocket {
    fn local(&self) -> SocketAddr {
        self.local_addr().unwrap()
    }
    fn peer(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }
    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.connect(to)
    }
    fn disconnect(&self) {
        rustix::net::connect_unspec(self).unwrap();
    }
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_to(bytes, to)
    }
    fn recv(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from(buf)
    }
    fn peek(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.peek_from(buf)
    }
    fn recv_two(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<(usize, bool)> {
        let mut bufs = [IoSliceMut::new(first), IoSliceMut::new(second)];
        let mut ancillary = rustix::net::RecvAncillaryBuffer::new(&mut []);
        let got = rustix::net::recvmsg(self, &mut bufs, &mut ancillary, rustix::net::RecvFlags::empty())?;
        Ok((got.bytes, got.flags.contains(rustix::net::ReturnFlags::TRUNC)))
    }
    fn take_error(&self) -> Option<io::Error> {
        self.take_error().unwrap()
    }
    fn set_broadcast(&self, on: bool) {
        self.set_broadcast(on).unwrap();
    }
    fn set_nonblocking(&self, on: bool) {
        self.set_nonblocking(on).unwrap();
    }
    fn set_rcvbuf(&self, bytes: usize) {
        socket2::SockRef::from(self).set_recv_buffer_size(bytes).unwrap();
    }
    fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.set_ttl(ttl)
    }
    fn join(&self, group: IpAddr, interface: IpAddr) -> io::Result<()> {
        match (group, interface) {
            (IpAddr::V4(group), IpAddr::V4(interface)) => self.join_multicast_v4(&group, &interface),
            (IpAddr::V6(group), _) => self.join_multicast_v6(&group, LOOPBACK),
            (IpAddr::V4(_), IpAddr::V6(_)) => unreachable!("a case names one family"),
        }
    }
    fn leave(&self, group: IpAddr, interface: IpAddr) -> io::Result<()> {
        match (group, interface) {
            (IpAddr::V4(group), IpAddr::V4(interface)) => self.leave_multicast_v4(&group, &interface),
            (IpAddr::V6(group), _) => self.leave_multicast_v6(&group, LOOPBACK),
            (IpAddr::V4(_), IpAddr::V6(_)) => unreachable!("a case names one family"),
        }
    }
    fn set_multicast_if_lo(&self, is_v6: bool) {
        let socket = socket2::SockRef::from(self);
        if is_v6 {
            socket.set_multicast_if_v6(LOOPBACK).unwrap();
        } else {
            socket.set_multicast_if_v4(&std::net::Ipv4Addr::LOCALHOST).unwrap();
        }
    }
    fn set_multicast_loop(&self, is_v6: bool, on: bool) {
        if is_v6 { self.set_multicast_loop_v6(on) } else { self.set_multicast_loop_v4(on) }.unwrap();
    }
    fn set_multicast_all(&self, on: bool) {
        socket2::SockRef::from(self).set_multicast_all_v4(on).unwrap();
    }
    fn ready(&self) -> (bool, bool, bool) {
        use rustix::event::{PollFd, PollFlags, poll};
        let all = PollFlags::IN | PollFlags::OUT;
        let mut fds = [PollFd::new(self, all)];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        let found = fds[0].revents();
        (found.contains(PollFlags::IN), found.contains(PollFlags::OUT), found.contains(PollFlags::ERR))
    }
}

/// The loopback's number, here as there.
const LOOPBACK: u32 = 1;

pub struct Ours(pub Stack);

impl Ours {
    pub fn new() -> Self {
        Self(common::stack())
    }

    fn builder(&self, before: Before) -> UdpBuilder {
        let builder = if before.is_v6 { UdpBuilder::new_v6(&self.0) } else { UdpBuilder::new_v4(&self.0) };
        builder.only_v6(before.v6_only).reuse_address(before.reuse_addr).reuse_port(before.reuse_port)
    }
}

impl Net for Ours {
    type Socket = sockeye::UdpSocket;

    fn unbound(&self, before: Before) -> Self::Socket {
        let socket = self.builder(before).unbound();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn bind(&self, before: Before, addr: SocketAddr) -> io::Result<Self::Socket> {
        let socket = self.builder(before).bind(addr)?;
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Ok(socket)
    }
}

impl Socket for sockeye::UdpSocket {
    fn local(&self) -> SocketAddr {
        self.local_addr().unwrap()
    }
    fn peer(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }
    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.connect(to)
    }
    fn disconnect(&self) {
        self.disconnect();
    }
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_to(bytes, to)
    }
    fn recv(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from(buf)
    }
    fn peek(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.peek_from(buf)
    }
    fn recv_two(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<(usize, bool)> {
        let meta = self.recv_msg(&mut [IoSliceMut::new(first), IoSliceMut::new(second)])?;
        Ok((meta.len, meta.is_truncated()))
    }
    fn take_error(&self) -> Option<io::Error> {
        self.take_error().unwrap()
    }
    fn set_broadcast(&self, on: bool) {
        self.set_broadcast(on).unwrap();
    }
    fn set_nonblocking(&self, on: bool) {
        self.set_nonblocking(on).unwrap();
    }
    fn set_rcvbuf(&self, bytes: usize) {
        // Linux doubles the value that is set.
        self.set_recv_buffer_size(2 * bytes);
    }
    fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.set_ttl(ttl)
    }
    fn join(&self, group: IpAddr, interface: IpAddr) -> io::Result<()> {
        match (group, interface) {
            (IpAddr::V4(group), IpAddr::V4(interface)) => self.join_multicast_v4(&group, &interface),
            (IpAddr::V6(group), _) => self.join_multicast_v6(&group, LOOPBACK),
            (IpAddr::V4(_), IpAddr::V6(_)) => unreachable!("a case names one family"),
        }
    }
    fn leave(&self, group: IpAddr, interface: IpAddr) -> io::Result<()> {
        match (group, interface) {
            (IpAddr::V4(group), IpAddr::V4(interface)) => self.leave_multicast_v4(&group, &interface),
            (IpAddr::V6(group), _) => self.leave_multicast_v6(&group, LOOPBACK),
            (IpAddr::V4(_), IpAddr::V6(_)) => unreachable!("a case names one family"),
        }
    }
    fn set_multicast_if_lo(&self, is_v6: bool) {
        if is_v6 {
            self.set_multicast_if_v6(LOOPBACK).unwrap();
        } else {
            self.set_multicast_if_v4(&std::net::Ipv4Addr::LOCALHOST).unwrap();
        }
    }
    fn set_multicast_loop(&self, is_v6: bool, on: bool) {
        if is_v6 { self.set_multicast_loop_v6(on) } else { self.set_multicast_loop_v4(on) }.unwrap();
    }
    fn set_multicast_all(&self, on: bool) {
        self.set_multicast_all(on).unwrap();
    }
    fn ready(&self) -> (bool, bool, bool) {
        let poll = Poll::new(Duration::ZERO);
        poll.register(self, Token(0), Interest::READABLE | Interest::WRITABLE, Trigger::Level).unwrap();
        let mut events = Events::with_capacity(4);
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        let any = |f: fn(&sockeye::poll::Event) -> bool| events.iter().any(f);
        (
            any(sockeye::poll::Event::is_readable),
            any(sockeye::poll::Event::is_writable),
            any(sockeye::poll::Event::is_error),
        )
    }
}
