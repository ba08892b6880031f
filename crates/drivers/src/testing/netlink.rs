//! What there is no `ioctl` for, or none for both families: making a pair of connected interfaces, each in a namespace of
//! its own, deleting one, and routes.
//!
//! rtnetlink messages written by hand (rtnetlink(7), veth(4)). It must not know what the interfaces are for.
//! Tests: `tests/devices.rs`.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use sockeye::netif::Prefix;

use super::Namespace;
use crate::link::KernelLink;

/// Connects the two namespaces by interfaces of these names, which are down and without addresses.
///
/// # Errors
/// The system's, among them `AlreadyExists`.
pub fn veth_pair(here: (&Namespace, &str), there: (&Namespace, &str)) -> io::Result<()> {
    let peer_fd = there.0.fd().as_raw_fd();
    let (name, peer_name) = (here.1.to_owned(), there.1.to_owned());
    here.0.run(move || ask(&new_link(&name, &peer_name, peer_fd)))?
}

/// Deletes the interface `name`, under whoever uses it.
///
/// # Errors
/// The system's, among them `NotFound` as `No such device`.
pub fn delete_link(namespace: &Namespace, name: &str) -> io::Result<()> {
    let mut body = vec![0; IFINFOMSG_LEN];
    attribute(&mut body, libc::IFLA_IFNAME, &zero_ended(name));
    namespace.run(move || ask(&message(libc::RTM_DELLINK, 0, &body)))?
}

/// Leads packets to `network` to the device `link` of this namespace, which must be up; 0.0.0.0/0 and ::/0 are the
/// default routes.
///
/// # Errors
/// The system's, among them `AlreadyExists`.
pub fn add_route(namespace: &Namespace, link: &KernelLink, network: Prefix) -> io::Result<()> {
    namespace.run(|| {
        let network = network.network();
        let family = if network.addr().is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // A `struct rtmsg`: family, lengths of the networks of destination and source, type of service, table,
        // protocol, scope, type; and 32 bits of flags.
        let main_table = libc::RT_TABLE_MAIN;
        let kind = [libc::RTPROT_BOOT, libc::RT_SCOPE_LINK, libc::RTN_UNICAST];
        let [protocol, scope, unicast] = kind;
        let mut body =
            vec![family as u8, network.len(), 0, 0, main_table, protocol, scope, unicast, 0, 0, 0, 0];
        match network.addr() {
            _ if network.is_empty() => {}
            IpAddr::V4(addr) => attribute(&mut body, libc::RTA_DST, &addr.octets()),
            IpAddr::V6(addr) => attribute(&mut body, libc::RTA_DST, &addr.octets()),
        }
        attribute(&mut body, libc::RTA_OIF, &link.index()?.to_ne_bytes());
        ask(&message(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body))
    })?
}

/// The message that makes the pair: the one end here, the other in the namespace of `peer_fd`.
fn new_link(name: &str, peer_name: &str, peer_fd: i32) -> Vec<u8> {
    let mut peer = vec![0; IFINFOMSG_LEN];
    attribute(&mut peer, libc::IFLA_IFNAME, &zero_ended(peer_name));
    attribute(&mut peer, libc::IFLA_NET_NS_FD, &peer_fd.to_ne_bytes());
    let mut data = Vec::new();
    attribute(&mut data, VETH_INFO_PEER, &peer);
    let mut info = Vec::new();
    attribute(&mut info, libc::IFLA_INFO_KIND, b"veth");
    attribute(&mut info, libc::IFLA_INFO_DATA, &data);

    let mut body = vec![0; IFINFOMSG_LEN];
    attribute(&mut body, libc::IFLA_IFNAME, &zero_ended(name));
    attribute(&mut body, libc::IFLA_LINKINFO, &info);

    message(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
}

/// A question of this kind that is to be acknowledged.
fn message(kind: u16, flags: i32, body: &[u8]) -> Vec<u8> {
    let flags = flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    let len = u32::try_from(NLMSGHDR_LEN + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::new();
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    // Sequence number and sender: one question, one answer.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Sends a message from the namespace that the thread is in, and reads whether it was done.
fn ask(message: &[u8]) -> io::Result<()> {
    // Protocol 0 is that of routes and interfaces.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, message, SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (len, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    // An acknowledgment is an error message that says 0.
    let code = answer.get(..len).and_then(|answer| answer.get(NLMSGHDR_LEN..)?.first_chunk::<4>());
    match code.map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend(u16::try_from(4 + value.len()).unwrap_or(u16::MAX).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn zero_ended(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// Bytes of `struct nlmsghdr`.
const NLMSGHDR_LEN: usize = 16;
/// Bytes of `struct ifinfomsg`.
const IFINFOMSG_LEN: usize = 16;
/// `linux/veth.h`.
const VETH_INFO_PEER: u16 = 1;
