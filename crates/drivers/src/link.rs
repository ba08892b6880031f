//! The kernel's side of an interface: up or down, MTU, addresses, routes, the length of its queue.
//!
//! For programs that bring up a device by themselves, tests and measurements. The interface is one of the network
//! namespace that the calling thread is in. All of it needs CAP_NET_ADMIN there, but for reading. It does not depend on
//! the kind of interface. Tests: `tests/devices.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sockeye_netif::{MacAddr, Prefix};

use crate::netlink::{ask, attribute, change, message};
use crate::sys::{IfReq, IfRequest, with_ifreq};

/// An interface of the kernel, by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelLink {
    name: String,
}

impl KernelLink {
    /// The interface `name`, which need not exist yet.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number in this network namespace.
    ///
    /// # Errors
    /// `NotFound` if there is no such interface.
    pub fn index(&self) -> io::Result<u32> {
        let request = self.get(IfRequest::GET_INDEX)?;
        u32::try_from(request.int()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Bytes of the largest IP packet.
    ///
    /// # Errors
    /// The system's.
    pub fn mtu(&self) -> io::Result<u32> {
        let request = self.get(IfRequest::GET_MTU)?;
        u32::try_from(request.int()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Changes the MTU.
    ///
    /// # Errors
    /// `InvalidInput` for one that the device cannot have; the system's.
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.set(IfRequest::SET_MTU, &mtu.to_ne_bytes())
    }

    /// Frames that the kernel keeps for us at most, before it drops.
    ///
    /// # Errors
    /// The system's.
    pub fn set_queue_len(&self, frames: u32) -> io::Result<()> {
        // The ioctl for it asks for rights in the first user namespace, which the owner of a namespace does not have.
        // A `struct ifinfomsg`: family, padding, type, interface, flags and which of them to change: none.
        let mut body = vec![0; 4];
        body.extend(self.index()?.to_ne_bytes());
        body.extend([0; 8]);
        attribute(&mut body, libc::IFLA_TXQLEN, &frames.to_ne_bytes());
        change(&message(libc::RTM_SETLINK, libc::NLM_F_ACK, &body))
    }

    /// Its Ethernet address, meaningless for interfaces without one.
    ///
    /// # Errors
    /// The system's.
    pub fn mac(&self) -> io::Result<MacAddr> {
        // A `sockaddr`: the family, then the address.
        let [_, _, mac @ ..] = self.get(IfRequest::GET_LLADDR)?.bytes::<8>();
        Ok(MacAddr(mac))
    }

    /// Whether it is up.
    ///
    /// # Errors
    /// The system's.
    pub fn is_up(&self) -> io::Result<bool> {
        Ok(self.flags()? & UP != 0)
    }

    /// Brings it up, or down.
    ///
    /// # Errors
    /// The system's.
    pub fn set_up(&self, up: bool) -> io::Result<()> {
        let flags = self.flags()?;
        let flags = if up { flags | UP } else { flags & !UP };
        self.set(IfRequest::SET_FLAGS, &flags.to_ne_bytes())
    }

    /// Gives it an address, with its network. An IPv4 address takes the place of the one before. If the interface is up,
    /// the address is in use when this returns, for which it may **block** some milliseconds: an IPv6 address is not looked
    /// for on the link first (RFC 4862 section 5.4), since the other end is known here.
    ///
    /// # Errors
    /// The system's; `TimedOut` for an IPv6 address that the kernel has taken and does not put to use.
    pub fn add_addr(&self, prefix: Prefix) -> io::Result<()> {
        match prefix.addr() {
            IpAddr::V4(addr) => {
                self.set(IfRequest::SET_ADDR, &sockaddr(addr))?;
                let bits = u32::MAX.checked_shl(32 - u32::from(prefix.len())).unwrap_or(0);
                self.set(IfRequest::SET_NETMASK, &sockaddr(Ipv4Addr::from(bits)))
            }
            IpAddr::V6(addr) => {
                change(&new_addr(addr, prefix.len(), self.index()?))?;
                if self.is_up()? { in_use(addr) } else { Ok(()) }
            }
        }
    }

    /// Has the kernel send packets to `network` out of this interface, without a gateway: a route of the main table whose next
    /// hops are the destinations themselves. 0.0.0.0/0 and ::/0 are the default routes. The bits of the address behind the
    /// network's do not matter. The interface must be up. The kernel removes the route when the interface goes down.
    ///
    /// # Errors
    /// `AlreadyExists` if there is a route to the network; ENETDOWN if the interface is down; ENODEV if there is none; the system's.
    pub fn add_route(&self, network: Prefix) -> io::Result<()> {
        self.route(network, None)
    }

    /// The same by a gateway, which is a neighbor on this interface, as on Ethernet.
    ///
    /// # Errors
    /// As [`add_route`](Self::add_route); `InvalidInput` if network and gateway are of two families; ENETUNREACH if the gateway is no neighbor.
    pub fn add_route_via(&self, network: Prefix, gateway: IpAddr) -> io::Result<()> {
        if network.addr().is_ipv4() != gateway.is_ipv4() {
            let message = format!("{network} by {gateway}: both must be of one family");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.route(network, Some(gateway))
    }

    fn route(&self, network: Prefix, gateway: Option<IpAddr>) -> io::Result<()> {
        let network = network.network();
        let family = if network.addr().is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // A `struct rtmsg`: family, lengths of the networks of destination and source, type of service, table,
        // protocol, scope, type; and 32 bits of flags.
        let main_table = libc::RT_TABLE_MAIN;
        let scope = if gateway.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
        let [protocol, unicast] = [libc::RTPROT_BOOT, libc::RTN_UNICAST];
        let mut body =
            vec![family as u8, network.len(), 0, 0, main_table, protocol, scope, unicast, 0, 0, 0, 0];
        match network.addr() {
            _ if network.is_empty() => {}
            IpAddr::V4(addr) => attribute(&mut body, libc::RTA_DST, &addr.octets()),
            IpAddr::V6(addr) => attribute(&mut body, libc::RTA_DST, &addr.octets()),
        }
        match gateway {
            None => {}
            Some(IpAddr::V4(addr)) => attribute(&mut body, libc::RTA_GATEWAY, &addr.octets()),
            Some(IpAddr::V6(addr)) => attribute(&mut body, libc::RTA_GATEWAY, &addr.octets()),
        }
        attribute(&mut body, libc::RTA_OIF, &self.index()?.to_ne_bytes());
        change(&message(libc::RTM_NEWROUTE, libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body))
    }

    fn flags(&self) -> io::Result<u16> {
        Ok(u16::from_ne_bytes(self.get(IfRequest::GET_FLAGS)?.bytes()))
    }

    fn get(&self, request: IfRequest) -> io::Result<IfReq> {
        let mut argument = IfReq::new(&self.name)?;
        with_ifreq(control(AddressFamily::INET)?, request, &mut argument)?;
        Ok(argument)
    }

    fn set(&self, request: IfRequest, bytes: &[u8]) -> io::Result<()> {
        let mut argument = IfReq::new(&self.name)?;
        argument.set_bytes(bytes);
        with_ifreq(control(AddressFamily::INET)?, request, &mut argument)
    }
}

/// Waits until packets to `addr` are the kernel's own. It puts an address to use on a thread of its own, some time after
/// it was asked to: until then connections that it opens have another source, or none.
fn in_use(addr: Ipv6Addr) -> io::Result<()> {
    let deadline = Instant::now() + IN_USE_MAX;
    let mut question = vec![0; RTMSG_LEN];
    (question[0], question[1]) = (libc::AF_INET6 as u8, 128);
    attribute(&mut question, libc::RTA_DST, &addr.octets());
    let question = message(libc::RTM_GETROUTE, 0, &question);
    while ask(&question)?.get(RTM_TYPE_AT) != Some(&libc::RTN_LOCAL) {
        if Instant::now() > deadline {
            let message = format!("{addr}: not in use after {} s", IN_USE_MAX.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        std::thread::sleep(IN_USE_PAUSE);
    }
    Ok(())
}

/// The message that gives the interface `index` an address.
fn new_addr(addr: Ipv6Addr, prefix_len: u8, index: u32) -> Vec<u8> {
    // A `struct ifaddrmsg`: family, bits of the network, flags, scope, interface.
    let mut body = vec![libc::AF_INET6 as u8, prefix_len, libc::IFA_F_NODAD as u8, 0];
    body.extend(index.to_ne_bytes());
    attribute(&mut body, libc::IFA_ADDRESS, &addr.octets());
    message(libc::RTM_NEWADDR, libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
}

/// Bytes of `struct rtmsg`, and where the route's type stands in it.
const RTMSG_LEN: usize = 12;
const RTM_TYPE_AT: usize = 7;
/// How long an address may take to be put to use, and how often is looked.
const IN_USE_MAX: Duration = Duration::from_secs(5);
const IN_USE_PAUSE: Duration = Duration::from_millis(1);

/// `IFF_UP`, as the 16 bits of the flags have it.
const UP: u16 = libc::IFF_UP as u16;

/// A socket to ask questions with.
fn control(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// The kernel's `sockaddr_in`: family in the machine's order, no port, the address.
fn sockaddr(addr: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&addr.octets());
    bytes
}
