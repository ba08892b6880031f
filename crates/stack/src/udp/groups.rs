//! Which groups a socket has joined, and on which interfaces the host takes a group's datagrams.
//!
//! A membership is of a socket; a datagram to a group comes in where any socket of the stack has joined it on that
//! interface, and goes to the sockets that joined it and to those that joined nothing there but receive all groups
//! (IP_MULTICAST_ALL, which is on, as on Linux). Interfaces go by numbers: 1 is the loopback, the others follow
//! (`NetifId::interface_index`).
//!
//! # Joins and leaves at the same time
//! A join is counted at the link and in the host's list before it stands in the socket's, and a leave takes it from the
//! socket's list before it takes the counts back. So whatever stands in a socket's list is counted, and each count is taken
//! back once: by the leave that has found it there, by the end of the socket, or by the join, if another one was quicker. A
//! leave that comes in the middle of a join is before it, and finds nothing. No lock is held over both steps, because the
//! link sends its reports in between, through foreign code.
//!
//! The host's list is under a lock that joins and leaves take; a delivery reads it in the table of its core
//! (`table.rs`), which is changed under it. Rank: before the copies of the table. Tests: below,
//! `tests/udp/multicast.rs`.

use std::collections::HashMap;
use std::net::IpAddr;

use rustix::io::Errno;
use smallvec::SmallVec;
use sockeye_sync::Mutex;

/// Most memberships of one socket.
pub(crate) const MEMBERSHIPS_MAX: usize = 64;

/// A group on an interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Membership {
    pub group: IpAddr,
    pub interface: u32,
}

/// A socket's, under its `so`.
#[derive(Default)]
pub(crate) struct Memberships(SmallVec<[Membership; 1]>);

impl Memberships {
    /// Whether a datagram to `group` that came by `interface` is for the socket. `takes_all`: IP_MULTICAST_ALL.
    pub fn takes(&self, group: IpAddr, interface: u32, takes_all: bool) -> bool {
        takes_all || self.0.contains(&Membership { group, interface })
    }

    /// Whether it may become a member.
    ///
    /// # Errors
    /// EADDRINUSE if it is a member, ENOBUFS beyond the bound.
    pub fn may_join(&self, membership: &Membership) -> Result<(), Errno> {
        if self.0.contains(membership) {
            return Err(Errno::ADDRINUSE);
        }
        if self.0.len() >= MEMBERSHIPS_MAX {
            return Err(Errno::NOBUFS);
        }
        Ok(())
    }

    /// Joins a group in which the host's list counts the socket already.
    ///
    /// # Errors
    /// As of [`may_join`](Self::may_join).
    pub fn join(&mut self, membership: Membership) -> Result<(), Errno> {
        self.may_join(&membership)?;
        self.0.push(membership);
        Ok(())
    }

    /// Ends the membership of `group`, on the first interface if `interface` is `None`. Returns which it was.
    ///
    /// # Errors
    /// EADDRNOTAVAIL if there is none.
    pub fn leave(&mut self, group: IpAddr, interface: Option<u32>) -> Result<Membership, Errno> {
        let is_it = |m: &Membership| m.group == group && interface.is_none_or(|index| index == m.interface);
        let place = self.0.iter().position(is_it).ok_or(Errno::ADDRNOTAVAIL)?;
        Ok(self.0.remove(place))
    }

    /// All of them, at the end of the socket.
    pub fn take(&mut self) -> SmallVec<[Membership; 1]> {
        std::mem::take(&mut self.0)
    }
}

/// The host's: how many sockets are in each.
#[derive(Default)]
pub(crate) struct Groups(Mutex<HashMap<Membership, usize>>);

impl Groups {
    /// A socket has joined. `begin` is called for the first of the host: datagrams are to be taken in.
    pub fn join(&self, membership: Membership, begin: impl FnOnce()) {
        let mut list = self.0.lock();
        let count = list.entry(membership).or_default();
        *count += 1;
        if *count == 1 {
            begin();
        }
    }

    /// A socket has left. `end` is called for the last.
    pub fn leave(&self, membership: Membership, end: impl FnOnce()) {
        let mut list = self.0.lock();
        let Some(count) = list.get_mut(&membership) else { return };
        *count -= 1;
        if *count == 0 {
            list.remove(&membership);
            end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::Ipv4Addr;
    use std::sync::{Arc, Weak};
    use std::task::{self, Wake, Waker};

    use super::*;
    use crate::config::Config;
    use crate::inet;
    use crate::inet::netif::{ChannelConfig, MacAddr, Medium, Prefix, channel};
    use crate::rt::handle::Stack;
    use crate::udp::UdpSocket;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    /// Leaves the group when a frame leaves.
    struct Leave(Weak<UdpSocket>, Mutex<Option<io::Error>>);

    impl Wake for Leave {
        fn wake(self: Arc<Self>) {
            if let Some(socket) = self.0.upgrade() {
                *self.1.lock() = socket.leave_multicast_v4(&GROUP, &HERE).err();
            }
        }
    }

    #[test]
    fn a_leave_while_the_group_is_being_joined_finds_no_membership_and_leaves_none_behind() {
        let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
        let medium = Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, 1]));
        let (netif, ports) = channel(&ChannelConfig { medium, ..ChannelConfig::default() }).unwrap();
        let id = stack.attach(netif, &[Prefix::new(HERE.into(), 24).unwrap()]).unwrap();
        let socket = Arc::new(UdpSocket::bind_on(&stack, "0.0.0.0:0").unwrap());
        let leave = Arc::new(Leave(Arc::downgrade(&socket), Mutex::new(None)));
        let waker = Waker::from(Arc::clone(&leave));
        // The report of the group is the first frame.
        assert!(ports[0].poll_recv(&mut task::Context::from_waker(&waker)).is_pending());
        socket.join_multicast_v4(&GROUP, &HERE).unwrap();
        assert_eq!(leave.1.lock().take().unwrap().kind(), io::ErrorKind::AddrNotAvailable);
        let core = stack.core::<inet::Core>().unwrap();
        let is_member = || crate::udp::shared(core).is_member(core.cpu(), id, GROUP.into());
        assert!(is_member());
        drop(Arc::into_inner(socket).unwrap());
        assert!(!is_member());
    }

    fn of(group: &str, interface: u32) -> Membership {
        Membership { group: group.parse().unwrap(), interface }
    }

    #[test]
    fn a_host_is_a_member_from_the_first_join_to_the_last_leave() {
        let (groups, membership) = (Groups::default(), of("239.1.2.3", 1));
        let changes = std::cell::Cell::new(0);
        let note = || changes.set(changes.get() + 1);
        let mut story = Vec::new();
        for is_join in [true, true, false, false, false] {
            if is_join {
                groups.join(membership, note)
            } else {
                groups.leave(membership, note)
            }
            story.push(changes.get());
        }
        assert_eq!(story, [1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_socket_joins_a_group_once_leaves_only_joined_groups_and_is_bounded() {
        let mut own = Memberships::default();
        own.join(of("239.1.2.3", 1)).unwrap();
        own.join(of("239.1.2.3", 2)).unwrap();
        assert_eq!(own.join(of("239.1.2.3", 2)), Err(Errno::ADDRINUSE));
        assert_eq!(own.leave("239.1.2.3".parse().unwrap(), Some(3)), Err(Errno::ADDRNOTAVAIL));
        assert_eq!(own.leave("239.1.2.3".parse().unwrap(), None), Ok(of("239.1.2.3", 1)));
        assert!(own.takes("239.1.2.3".parse().unwrap(), 2, false));
        assert!(!own.takes("239.1.2.3".parse().unwrap(), 1, false));
        let more = (0..).take_while(|i| own.join(of("ff02::5", 10 + i)).is_ok()).count();
        assert_eq!(more, MEMBERSHIPS_MAX - 1);
        assert_eq!(own.take().len(), MEMBERSHIPS_MAX);
    }
}
