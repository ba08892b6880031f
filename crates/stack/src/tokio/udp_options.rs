//! The options, addresses and peeks of an asynchronous [`UdpSocket`].
//!
//! A peek takes no datagram off the queue, so of several tasks that wait, all are woken and may find the same one. Does not depend
//! on how datagrams move. Tests: `tests/udp/tokio.rs`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll, ready};

use ::tokio::io::ReadBuf;

use super::UdpSocket;
use super::methods::passed_methods;
use super::wait::{op, poll_op};
use crate::base::report::{Report, Timestamping};
use crate::rt::tasks::Want;

impl UdpSocket {
    /// Waits for a datagram and copies the oldest, which stays in the queue. May be cancelled.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::peek`].
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        op(self.handle(), Want::Read, || self.inner.peek(buf)).await
    }

    /// [`peek`](Self::peek) as a poll function. Of several tasks that call it, or receive by a poll function, the last is woken.
    ///
    /// # Errors
    /// As for [`peek`](Self::peek).
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_peek_from(cx, buf).map_ok(|_from| ())
    }

    /// Copies the oldest datagram if there is one; it stays in the queue. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; else as for [`peek`](Self::peek).
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.peek(buf)
    }

    /// Waits for a datagram and copies the oldest, which stays in the queue; also returns its sender. May be cancelled.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::peek_from`].
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        op(self.handle(), Want::Read, || self.inner.peek_from(buf)).await
    }

    /// [`peek_from`](Self::peek_from) as a poll function. Of several tasks that call it, or receive by a poll function, the last is woken.
    ///
    /// # Errors
    /// As for [`peek_from`](Self::peek_from).
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let room = buf.initialize_unfilled();
        let (len, from) = ready!(poll_op(self.handle(), Want::Read, cx, || self.inner.peek_from(room)))?;
        buf.advance(len);
        Poll::Ready(Ok(from))
    }

    /// Copies the oldest datagram if there is one, which stays in the queue; also returns its sender. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; else as for [`peek_from`](Self::peek_from).
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.inner.peek_from(buf)
    }

    /// Waits for a datagram and returns the sender of the oldest. May be cancelled.
    ///
    /// # Errors
    /// As for [`peek_from`](Self::peek_from).
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        Ok(self.peek_from(&mut []).await?.1)
    }

    /// [`peek_sender`](Self::peek_sender) as a poll function. Of several tasks that call it, or receive by a poll function, the last is
    /// woken.
    ///
    /// # Errors
    /// As for [`peek_from`](Self::peek_from).
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        self.poll_peek_from(cx, &mut ReadBuf::new(&mut []))
    }

    /// The sender of the oldest datagram, if there is one. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; else as for [`peek_from`](Self::peek_from).
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        Ok(self.inner.peek_from(&mut [])?.1)
    }

    /// The IPV6_TCLASS setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.inner.tclass_v6().map(u32::from)
    }

    /// IPV6_TCLASS: DSCP and ECN of datagrams sent over IPv6.
    ///
    /// # Errors
    /// EINVAL if it is more than an octet.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.inner.set_tclass_v6(u8::try_from(tclass).map_err(|_| rustix::io::Errno::INVAL)?)
    }

    /// The IP_TOS setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.inner.tos().map(u32::from)
    }

    /// [`tos_v4`](Self::tos_v4), by its older name.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn tos(&self) -> io::Result<u32> {
        self.tos_v4()
    }

    /// IP_TOS: DSCP and ECN of datagrams sent over IPv4, an octet; higher bits do not count, as in Linux.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        // The option is an octet, whatever its argument's type.
        self.inner.set_tos(tos as u8)
    }

    /// [`set_tos_v4`](Self::set_tos_v4), by its older name.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn set_tos(&self, tos: u32) -> io::Result<()> {
        self.set_tos_v4(tos)
    }

    /// IP_ADD_MEMBERSHIP.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::join_multicast_v4`].
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.inner.join_multicast_v4(&group, &interface)
    }

    /// IP_DROP_MEMBERSHIP.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::leave_multicast_v4`].
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.inner.leave_multicast_v4(&group, &interface)
    }
}

impl UdpSocket {
    /// SO_RCVBUF, bytes of memory that waiting datagrams may take, limited to 2 KiB to 64 MiB.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.inner.set_recv_buffer_size(bytes);
        Ok(())
    }

    /// The setting: twice the bytes that it allows, as Linux returns it (socket(7)).
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        Ok(self.inner.recv_buffer_size())
    }
}

passed_methods!(UdpSocket {
    /// SO_TIMESTAMPING: see [`crate::UdpSocket::set_timestamping`].
    ///
    /// # Errors
    /// None today.
    set_timestamping(wanted: Timestamping) -> ();

    /// The SO_TIMESTAMPING setting.
    ///
    /// # Errors
    /// None today.
    timestamping() -> Timestamping;

    /// The first report on a datagram that was sent: see [`crate::UdpSocket::recv_report`]. While there is one, the socket is
    /// [ready](Self::ready) with `Interest::ERROR`.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    recv_report() -> Report;

    /// IPV6_UNICAST_HOPS: see [`crate::UdpSocket::set_unicast_hops_v6`].
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    set_unicast_hops_v6(hops: u8) -> ();

    /// The setting.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    unicast_hops_v6() -> u8;

    /// IPV6_MULTICAST_HOPS: see [`crate::UdpSocket::set_multicast_hops_v6`].
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    set_multicast_hops_v6(hops: u8) -> ();

    /// The setting.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    multicast_hops_v6() -> u8;

    /// IP_MULTICAST_IF: see [`crate::UdpSocket::set_multicast_if_v4`].
    ///
    /// # Errors
    /// As there.
    set_multicast_if_v4(addr: &Ipv4Addr) -> ();

    /// IPV6_MULTICAST_IF: see [`crate::UdpSocket::set_multicast_if_v6`].
    ///
    /// # Errors
    /// As there.
    set_multicast_if_v6(interface: u32) -> ();

    /// IP_MULTICAST_ALL: see [`crate::UdpSocket::set_multicast_all`].
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    set_multicast_all(all: bool) -> ();

    /// The setting.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    multicast_all() -> bool;

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    local_addr() -> SocketAddr;

    /// The peer.
    ///
    /// # Errors
    /// `NotConnected`.
    peer_addr() -> SocketAddr;

    /// Takes the pending error.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    take_error() -> Option<io::Error>;

    /// The SO_BROADCAST setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    broadcast() -> bool;

    /// SO_BROADCAST: sends to broadcast addresses are allowed. Off.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    set_broadcast(on: bool) -> ();

    /// The IP_MULTICAST_LOOP setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    multicast_loop_v4() -> bool;

    /// IP_MULTICAST_LOOP: datagrams to a group come back to members on this host. On.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    set_multicast_loop_v4(on: bool) -> ();

    /// The IPV6_MULTICAST_LOOP setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    multicast_loop_v6() -> bool;

    /// IPV6_MULTICAST_LOOP. On.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    set_multicast_loop_v6(on: bool) -> ();

    /// The IP_MULTICAST_TTL setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    multicast_ttl_v4() -> u32;

    /// IP_MULTICAST_TTL, 0 to 255: 0 stays on this host. 1.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    set_multicast_ttl_v4(ttl: u32) -> ();

    /// The IP_TTL setting.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    ttl() -> u32;

    /// IP_TTL of unicast datagrams, 1 to 255. 64.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    set_ttl(ttl: u32) -> ();

    /// IPV6_ADD_MEMBERSHIP.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::join_multicast_v6`].
    join_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();

    /// IPV6_DROP_MEMBERSHIP.
    ///
    /// # Errors
    /// As for [`crate::UdpSocket::leave_multicast_v6`].
    leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
});
