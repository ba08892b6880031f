//! A [`UdpSocket`]'s options, as `std` has them and beyond. Those that decide a bind are [`UdpBuilder`]'s.
//!
//! Does not depend on how datagrams move. Options are words that the next call reads; setting one never
//! blocks. Tests: `tests/udp/`.
//!
//! [`UdpBuilder`]: crate::UdpBuilder

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustix::io::Errno;
use sockeye_sync::facade::Ordering;

use super::groups::Membership;
use super::route;
use super::socket::UdpSocket;
use super::stamps::{self, Arrivals};
use crate::base::errno;
use crate::base::report::{Report, Timestamping};
use crate::config::{BUFFER_MAX, BUFFER_MIN};
use crate::inet;
use crate::inet::Core;
use crate::inet::ip::output::MtuDiscover;
use crate::inet::netif::scope::LOOPBACK;
use crate::rt::blocking::{load_timeout, store_timeout};
use crate::rt::panics;

/// A pair of methods that set and return an option which needs no checks.
macro_rules! option {
    ($(#[$doc:meta])* $set:ident, $get:ident, $field:ident, $type:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// None; the signature is that of `std`.
        pub fn $set(&self, value: $type) -> io::Result<()> {
            self.options()?.$field.store(value, Ordering::Relaxed);
            Ok(())
        }

        /// The value set.
        ///
        /// # Errors
        /// None; the signature is that of `std`.
        pub fn $get(&self) -> io::Result<$type> {
            Ok(self.options()?.$field.load(Ordering::Relaxed))
        }
    };
}

impl UdpSocket {
    /// UDP_GRO: datagrams that arrive joined are received joined, see
    /// [`RecvMeta::segment_size`](crate::RecvMeta::segment_size). Default off.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn set_gro(&self, value: bool) -> io::Result<()> {
        self.options()?.arrivals.set(Arrivals::JOINED, value);
        Ok(())
    }

    /// The value set.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn gro(&self) -> io::Result<bool> {
        Ok(self.options()?.arrivals.load() & Arrivals::JOINED != 0)
    }

    /// SO_TIMESTAMPING, in software: which timestamps are taken from now on. [`recv_report`](Self::recv_report) returns
    /// those of sends, [`RecvMeta::received_at`](crate::RecvMeta::received_at) has those of received datagrams.
    /// SO_TIMESTAMP and SO_TIMESTAMPNS are [`Timestamping::RECEIVED`]. UDP has no acknowledgments, so
    /// [`Timestamping::ACKED`] has no effect. Default none. Does not block.
    ///
    /// With [`Timestamping::NUMBERED`], reports have the number of their send among the sends with timestamps, counted
    /// from 0 since the option was set.
    ///
    /// # Errors
    /// None today.
    pub fn set_timestamping(&self, wanted: Timestamping) -> io::Result<()> {
        stamps::set(&self.handle.open()?.pcb, wanted);
        Ok(())
    }

    /// The SO_TIMESTAMPING setting. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn timestamping(&self) -> io::Result<Timestamping> {
        Ok(stamps::get(&self.handle.open()?.pcb))
    }

    /// Takes the first report on a sent datagram (recvmsg(2) with MSG_ERRQUEUE and SOF_TIMESTAMPING_OPT_TSONLY). While
    /// there is one, the socket is ready with an error ([`Event::is_error`](crate::poll::Event::is_error)), which makes
    /// no call fail. At most 1,024 wait; later ones are lost. Does not block.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn recv_report(&self) -> io::Result<Report> {
        Ok(stamps::take(&self.handle.open()?.pcb).ok_or(Errno::AGAIN)?)
    }

    option!(
        /// SO_BROADCAST: sends to broadcast addresses are allowed. Off.
        set_broadcast,
        broadcast,
        broadcast,
        bool
    );
    option!(
        /// IP_MULTICAST_LOOP: datagrams to a group come back to members on this host. On.
        set_multicast_loop_v4,
        multicast_loop_v4,
        multicast_loop_v4,
        bool
    );
    option!(
        /// IPV6_MULTICAST_LOOP. On.
        set_multicast_loop_v6,
        multicast_loop_v6,
        multicast_loop_v6,
        bool
    );
    option!(
        /// IP_MULTICAST_ALL (and IPV6_MULTICAST_ALL): receives datagrams to any group that some socket of this stack
        /// has joined. Off: only to those that this socket has joined. On, as on Linux.
        set_multicast_all,
        multicast_all,
        multicast_all,
        bool
    );
    option!(
        /// UDP_SEGMENT: buffers are cut into datagrams of so many bytes; 0 for not at all.
        set_segment_size,
        segment_size,
        segment_size,
        u16
    );
    option!(
        /// IP_RECVERR (and IPV6_RECVERR): reports errors of unconnected destinations too, and keeps each for
        /// [`recv_err`](Self::recv_err). Off.
        set_recv_err,
        wants_recv_err,
        recv_err,
        bool
    );
    option!(
        /// IP_TOS: DSCP and ECN of datagrams sent over IPv4.
        set_tos,
        tos,
        tos,
        u8
    );
    option!(
        /// IPV6_TCLASS: DSCP and ECN of datagrams sent over IPv6.
        set_tclass_v6,
        tclass_v6,
        tclass_v6,
        u8
    );
    option!(
        /// IPV6_MULTICAST_HOPS: the hop limit of datagrams to a group over IPv6. 1.
        set_multicast_hops_v6,
        multicast_hops_v6,
        multicast_hops_v6,
        u8
    );

    /// IPV6_UNICAST_HOPS: the hop limit of unicast datagrams over IPv6. Default 64, or the value that routers
    /// advertise.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn set_unicast_hops_v6(&self, hops: u8) -> io::Result<()> {
        self.options()?.set_unicast_hops_v6(hops);
        Ok(())
    }

    /// The value set; 64 by default.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn unicast_hops_v6(&self) -> io::Result<u8> {
        Ok(self.options()?.hops_v6.load(Ordering::Relaxed))
    }

    /// IP_MTU_DISCOVER and IPV6_MTU_DISCOVER.
    ///
    /// # Errors
    /// None; the signature is that of the others.
    pub fn set_mtu_discover(&self, discover: MtuDiscover) -> io::Result<()> {
        self.options()?.mtu_discover.store(discover as u8, Ordering::Relaxed);
        Ok(())
    }

    /// The value set.
    ///
    /// # Errors
    /// None; the signature is that of the others.
    pub fn mtu_discover(&self) -> io::Result<MtuDiscover> {
        Ok(MtuDiscover::of_u8(self.options()?.mtu_discover.load(Ordering::Relaxed)))
    }

    /// IP_MTU: bytes of the largest IP packet that the path to the peer carries, as far as known.
    ///
    /// # Errors
    /// `NotConnected` without a peer; `NetworkUnreachable` and similar.
    pub fn path_mtu(&self) -> io::Result<u32> {
        let (core, handle) = self.handle.enter::<Core>()?;
        let remote = handle.pcb.name.load().remote.ok_or(Errno::NOTCONN)?;
        Ok(route::path_mtu(core, remote.addr)?)
    }

    /// IP_TTL of unicast datagrams, 1 to 255. Default 64.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = u8::try_from(ttl).ok().filter(|ttl| *ttl > 0).ok_or(Errno::INVAL)?;
        self.options()?.ttl.store(ttl, Ordering::Relaxed);
        Ok(())
    }

    /// The value set.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.options()?.ttl.load(Ordering::Relaxed).into())
    }

    /// IP_MULTICAST_TTL, 0 to 255: with 0, datagrams stay on this host. Default 1.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        let ttl = u8::try_from(ttl).map_err(|_| Errno::INVAL)?;
        self.options()?.multicast_ttl_v4.store(ttl, Ordering::Relaxed);
        Ok(())
    }

    /// The value set.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        Ok(self.options()?.multicast_ttl_v4.load(Ordering::Relaxed).into())
    }

    /// SO_SNDTIMEO: the longest time that a send waits for packet memory; `None` for no limit.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        store_timeout(&self.options()?.snd_timeout, timeout)
    }

    /// The value set.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(load_timeout(&self.options()?.snd_timeout))
    }

    /// SO_RCVBUF, bytes of memory that waiting datagrams may take, limited to 2 KiB to 64 MiB.
    pub fn set_recv_buffer_size(&self, bytes: usize) {
        let bytes = bytes.clamp(BUFFER_MIN as usize, BUFFER_MAX as usize);
        if let Ok(handle) = self.handle.open() {
            handle.pcb.receive.so.lock().rcvbuf = bytes;
        }
    }

    /// The SO_RCVBUF setting: twice the bytes that it allows, as Linux returns it (socket(7)). 0 in a forked child.
    pub fn recv_buffer_size(&self) -> usize {
        self.handle.open().map_or(0, |handle| 2 * handle.pcb.receive.so.lock().rcvbuf)
    }

    /// IP_MULTICAST_IF by address: datagrams to groups are sent by the interface that has `addr`; with the wildcard, by
    /// the route.
    ///
    /// # Errors
    /// `AddrNotAvailable` if none has it.
    pub fn set_multicast_if_v4(&self, addr: &Ipv4Addr) -> io::Result<()> {
        let index =
            if addr.is_unspecified() { 0 } else { interface_with(self.handle.open()?.core(), *addr)? };
        self.options()?.multicast_if_v4.store(index, Ordering::Relaxed);
        Ok(())
    }

    /// IPV6_MULTICAST_IF: datagrams to groups are sent by the interface with this number
    /// ([`SendMeta::interface`](crate::SendMeta::interface)); with 0, by the route.
    ///
    /// # Errors
    /// ENODEV if there is none.
    pub fn set_multicast_if_v6(&self, interface: u32) -> io::Result<()> {
        if interface != 0 {
            existing(self.handle.open()?.core(), interface)?;
        }
        self.options()?.multicast_if_v6.store(interface, Ordering::Relaxed);
        Ok(())
    }

    /// IP_ADD_MEMBERSHIP: receives datagrams to the group, on the interface that has the address `interface`, or on
    /// the one that the routes choose if that is the wildcard.
    ///
    /// # Errors
    /// `InvalidInput` if it is no group, `AddrInUse` if the socket is a member, ENODEV without such an interface,
    /// ENOBUFS beyond 64 memberships.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        let interface = self.member_interface((*group).into(), *interface)?;
        self.join((*group).into(), interface)
    }

    /// IPV6_ADD_MEMBERSHIP: the same for IPv6; the interface is named by its number
    /// ([`SendMeta::interface`](crate::SendMeta::interface)), 0 for the one that the routes choose.
    ///
    /// # Errors
    /// As for [`join_multicast_v4`](Self::join_multicast_v4).
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let interface = self.member_interface_v6((*group).into(), interface)?;
        self.join((*group).into(), interface)
    }

    /// IP_DROP_MEMBERSHIP.
    ///
    /// # Errors
    /// `AddrNotAvailable` if the socket is not a member.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        let interface = self.member_interface((*group).into(), *interface)?;
        self.leave((*group).into(), Some(interface))
    }

    /// IPV6_DROP_MEMBERSHIP.
    ///
    /// # Errors
    /// `AddrNotAvailable` if the socket is not a member.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.leave((*group).into(), (interface != 0).then_some(interface))
    }

    fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        let membership = Membership { group, interface };
        let (core, handle) = self.handle.enter::<Core>()?;
        handle.pcb.receive.so.lock().groups.may_join(&membership)?;
        panics::call_or_errno(core, "join", || super::shared(core).join(core, membership))?;
        // The order is `groups.rs`'s.
        let joined = handle.pcb.receive.so.lock().groups.join(membership);
        if joined.is_err() {
            // Another thread was quicker.
            panics::call_or_errno(core, "leave", || super::shared(core).leave(core, membership))?;
        }
        Ok(joined?)
    }

    fn leave(&self, group: IpAddr, interface: Option<u32>) -> io::Result<()> {
        let (core, handle) = self.handle.enter::<Core>()?;
        let membership = handle.pcb.receive.so.lock().groups.leave(group, interface)?;
        Ok(panics::call_or_errno(core, "leave", || super::shared(core).leave(core, membership))?)
    }

    fn member_interface(&self, group: IpAddr, addr: Ipv4Addr) -> io::Result<u32> {
        let (core, _handle) = self.handle.enter()?;
        if !group.is_multicast() {
            return Err(Errno::INVAL.into());
        }
        let index =
            if addr.is_unspecified() { route::interface_of(core, group) } else { interface_with(core, addr) };
        Ok(index.map_err(|_| errno::NODEV)?)
    }

    fn member_interface_v6(&self, group: IpAddr, interface: u32) -> io::Result<u32> {
        let (core, _handle) = self.handle.enter()?;
        if !group.is_multicast() {
            return Err(Errno::INVAL.into());
        }
        let index = match interface {
            0 => route::interface_of(core, group).map_err(|_| errno::NODEV),
            named => existing(core, named),
        };
        Ok(index?)
    }
}

/// The interface that has an address.
fn interface_with(core: &inet::Core, addr: Ipv4Addr) -> Result<u32, Errno> {
    if addr.is_loopback() {
        return Ok(LOOPBACK);
    }
    let id = core.netifs.netif_with(addr.into()).ok_or(Errno::ADDRNOTAVAIL)?;
    Ok(id.interface_index())
}

/// The number, if an interface has it.
fn existing(core: &inet::Core, interface: u32) -> Result<u32, Errno> {
    let is_known =
        interface == LOOPBACK || core.netifs.each().any(|(id, _)| id.interface_index() == interface);
    if is_known { Ok(interface) } else { Err(errno::NODEV) }
}
