//! Requests that have no `ioctl`: making a pair of connected interfaces, each in a namespace of its own, and deleting one.
//!
//! rtnetlink messages (rtnetlink(7), veth(4)). It does not depend on the use of the interfaces. Tests:
//! `tests/devices.rs`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::Namespace;
use crate::netlink::{attribute, change, message, zero_ended};

/// Connects the two namespaces by interfaces of these names, which are down and without addresses.
///
/// # Errors
/// The system's, among them `AlreadyExists`.
pub fn veth_pair(here: (&Namespace, &str), there: (&Namespace, &str)) -> io::Result<()> {
    let peer_fd = there.0.as_fd().as_raw_fd();
    let (name, peer_name) = (here.1.to_owned(), there.1.to_owned());
    here.0.run(move || change(&new_link(&name, &peer_name, peer_fd)))?
}

/// Deletes the interface `name`, also while it is in use.
///
/// # Errors
/// The system's, among them `NotFound` as `No such device`.
pub fn delete_link(namespace: &Namespace, name: &str) -> io::Result<()> {
    let mut body = vec![0; IFINFOMSG_LEN];
    attribute(&mut body, libc::IFLA_IFNAME, &zero_ended(name));
    namespace.run(move || change(&message(libc::RTM_DELLINK, libc::NLM_F_ACK, &body)))?
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

    message(libc::RTM_NEWLINK, libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
}

/// Bytes of `struct ifinfomsg`.
const IFINFOMSG_LEN: usize = 16;
/// `linux/veth.h`.
const VETH_INFO_PEER: u16 = 1;
