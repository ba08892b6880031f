//! Datagrams of a kernel's socket with the host's own address: the one that a datagram was sent to, and the one that an answer is sent from (`IP_PKTINFO` of ip(7), `IPV6_PKTINFO` of ipv6(7)).
//!
//! A socket at the wildcard address answers from an address that the route chooses, which is not always the one that a client has asked, and a connected client takes answers from that one alone.
//!
//! Names and control messages are read and written as bytes, whose places the kernel's interface fixes. Tests: below.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;

/// Bytes of the longest name of a socket (`sockaddr_storage`), and those of IPv4 and IPv6.
const NAME_MAX: usize = size_of::<libc::sockaddr_storage>();
const V4_NAME: usize = size_of::<libc::sockaddr_in>();
const V6_NAME: usize = size_of::<libc::sockaddr_in6>();
/// Bytes of a control message before its data: a length, a level and a kind.
const HEADER: usize = size_of::<usize>() + 2 * size_of::<c_int>();
/// Bytes for control messages: one of each family, and more.
const CONTROL_MAX: usize = 128;

#[repr(C, align(8))]
struct Name([u8; NAME_MAX]);

#[repr(C, align(8))]
struct Control([u8; CONTROL_MAX]);

/// Has [`recv_at`] tell the host's address, on a UDP socket of either family.
///
/// # Errors
/// The system's: `EBADF`, `ENOTSOCK`; `ENOPROTOOPT` for another kind of socket.
pub fn set_recv_pktinfo(socket: impl AsFd) -> io::Result<()> {
    let set = |level: c_int, option: c_int| {
        let (fd, on) = (socket.as_fd().as_raw_fd(), 1 as c_int);
        let (place, len) = (std::ptr::from_ref(&on).cast(), size_of::<c_int>() as libc::socklen_t);
        // SAFETY: the kernel reads `len` bytes at `place`, which are those of a live `int`.
        checked(unsafe { libc::setsockopt(fd, level, option, place, len) } as isize).map(drop)
    };
    // A socket of IPv4 has only the second option. One of IPv6 has both: for a broadcast, IPv6's option tells the broadcast address, and IPv4's the host's.
    let (v6, v4) = (set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO), set(libc::IPPROTO_IP, libc::IP_PKTINFO));
    v6.or(v4)
}

/// Receives a datagram into `room`: its length, its sender, and the host's address that it was sent to, if the socket tells that ([`set_recv_pktinfo`]) and it is one to answer from. IPv4
/// addresses are shown as the socket shows them: mapped ones by one of IPv6. Blocks if the socket does.
///
/// # Errors
/// The system's; `InvalidData` for a sender that is not of IP.
pub fn recv_at(socket: impl AsFd, room: &mut [u8]) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
    let (mut name, mut control) = (Name([0; NAME_MAX]), Control([0; CONTROL_MAX]));
    let mut piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut message = message((&mut name, NAME_MAX), (&mut control, CONTROL_MAX), &mut piece);
    // SAFETY: `message` leads to live memory that nothing else refers to during the call: a name, a piece and control messages, each with its length.
    let len = checked(unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) })?;
    // C libraries do not agree on its type.
    let controls_len: usize = message.msg_controllen as _;
    let from = read_name(&name.0).ok_or(io::ErrorKind::InvalidData)?;
    let at = read_control(&control.0[..controls_len.min(CONTROL_MAX)]);
    let shown = |at| match at {
        IpAddr::V4(at) if from.is_ipv6() => at.to_ipv6_mapped().into(),
        _ => at,
    };
    Ok((len, from, at.map(shown)))
}

/// Sends a datagram from the host's address `from`, or from any. Returns how many bytes were sent. Blocks if the socket does.
///
/// # Errors
/// The system's: `EINVAL` if `from` is none of the host's or of another family than `to`.
pub fn send_from(socket: impl AsFd, bytes: &[u8], to: SocketAddr, from: Option<IpAddr>) -> io::Result<usize> {
    let (mut name, mut control) = (Name([0; NAME_MAX]), Control([0; CONTROL_MAX]));
    let name_len = write_name(&mut name.0, to);
    let control_len = from.map_or(0, |from| write_control(&mut control.0, from));
    // The kernel does not write to what is sent.
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let message = message((&mut name, name_len), (&mut control, control_len), &mut piece);
    // SAFETY: `message` leads to live memory: a name, a piece and control messages, each with its length. The kernel reads them.
    checked(unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) })
}

fn message(
    (name, name_len): (&mut Name, usize),
    (control, control_len): (&mut Control, usize),
    piece: &mut libc::iovec,
) -> libc::msghdr {
    // SAFETY: it has numbers and pointers, for which zeros are valid. C libraries pad it in different ways, so it cannot be written out.
    let mut message = unsafe { std::mem::zeroed::<libc::msghdr>() };
    message.msg_name = name.0.as_mut_ptr().cast();
    message.msg_namelen = name_len as libc::socklen_t;
    message.msg_iov = piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control_len as _;
    message
}

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `N` bytes at a place, which is one of the array's.
fn at<const N: usize>(bytes: &[u8], place: usize) -> Option<[u8; N]> {
    bytes.get(place..)?.first_chunk().copied()
}

fn read_name(name: &[u8; NAME_MAX]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(at(name, 2)?);
    match c_int::from(u16::from_ne_bytes(at(name, 0)?)) {
        libc::AF_INET => Some((Ipv4Addr::from(at::<4>(name, 4)?), port).into()),
        libc::AF_INET6 => {
            let (flow, scope) = (u32::from_be_bytes(at(name, 4)?), u32::from_ne_bytes(at(name, 24)?));
            Some(SocketAddrV6::new(at::<16>(name, 8)?.into(), port, flow, scope).into())
        }
        _ => None,
    }
}

/// Returns how many bytes it has.
fn write_name(name: &mut [u8; NAME_MAX], addr: SocketAddr) -> usize {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    name[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&addr.port().to_be_bytes());
    match addr {
        SocketAddr::V4(addr) => {
            name[4..8].copy_from_slice(&addr.ip().octets());
            V4_NAME
        }
        SocketAddr::V6(addr) => {
            name[4..8].copy_from_slice(&addr.flowinfo().to_be_bytes());
            name[8..24].copy_from_slice(&addr.ip().octets());
            name[24..28].copy_from_slice(&addr.scope_id().to_ne_bytes());
            V6_NAME
        }
    }
}

/// The host's address in these control messages; that of IPv4's option if both are there.
fn read_control(mut control: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    loop {
        let Some(len) = at(control, 0) else { return found };
        let len = usize::from_ne_bytes(len);
        let level = c_int::from_ne_bytes(at(control, size_of::<usize>())?);
        let kind = c_int::from_ne_bytes(at(control, size_of::<usize>() + size_of::<c_int>())?);
        let data = control.get(HEADER..len)?;
        match (level, kind) {
            // An index, the host's address, and that of the header, which may be a group's.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => return Some(IpAddr::from(at::<4>(data, 4)?)),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let addr = Ipv6Addr::from(at::<16>(data, 0)?);
                found = Some(addr.into()).filter(|_| !addr.to_canonical().is_multicast());
            }
            _ => {}
        }
        control = control.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    }
}

/// Returns how many bytes it has.
fn write_control(control: &mut [u8; CONTROL_MAX], from: IpAddr) -> usize {
    // The interface is the route's.
    let (level, kind, data) = match from {
        IpAddr::V4(from) => {
            (libc::IPPROTO_IP, libc::IP_PKTINFO, [&[0; 4][..], &from.octets(), &[0; 4]].concat())
        }
        IpAddr::V6(from) => (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, [&from.octets()[..], &[0; 4]].concat()),
    };
    let len = HEADER + data.len();
    let fields = [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), &data].concat();
    control[..len].copy_from_slice(&fields);
    len.next_multiple_of(size_of::<usize>())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        let mut addrs = vec![("0.0.0.0:0", "127.0.0.2")];
        if UdpSocket::bind("[::1]:0").is_ok() {
            addrs.extend([("[::]:0", "127.0.0.2"), ("[::]:0", "::1")]);
        }
        for (listen, asked) in addrs {
            let server = UdpSocket::bind(listen).unwrap();
            set_recv_pktinfo(&server).unwrap();
            let asked = SocketAddr::new(asked.parse().unwrap(), server.local_addr().unwrap().port());
            let own = if asked.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
            let client = UdpSocket::bind(own).unwrap();
            client.connect(asked).unwrap();
            client.send(b"?").unwrap();
            let mut room = [0; 9];
            let (len, from, at) = recv_at(&server, &mut room).unwrap();
            assert_eq!((&room[..len], from.port()), (&b"?"[..], client.local_addr().unwrap().port()));
            assert_eq!(at.map(|at| at.to_canonical()), Some(asked.ip()), "{listen}");
            assert_eq!(send_from(&server, b"from there", from, at).unwrap(), 10);
            client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
            assert_eq!(client.recv(&mut [0; 99]).unwrap(), 10, "a connected client takes it");
        }
    }

    #[test]
    fn a_datagram_to_all_hosts_is_answered_from_an_address_of_this_host() {
        for listen in ["0.0.0.0:0", "[::]:0"] {
            let Ok(server) = UdpSocket::bind(listen) else { continue };
            set_recv_pktinfo(&server).unwrap();
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.set_broadcast(true).unwrap();
            client.send_to(b"?", ("127.255.255.255", server.local_addr().unwrap().port())).unwrap();
            server.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
            let (_, from, at) = recv_at(&server, &mut [0; 9]).unwrap();
            assert_eq!(
                at.map(|at| (at.is_ipv6(), at.to_canonical())),
                Some((from.is_ipv6(), Ipv4Addr::LOCALHOST.into()))
            );
            assert_eq!(send_from(&server, b"here", from, at).unwrap(), 4);
        }
    }

    #[test]
    fn nothing_is_told_that_was_not_asked_for_and_errors_are_the_systems() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        assert_eq!(send_from(&server, b"x", to, None).unwrap(), 1);
        assert_eq!(recv_at(&server, &mut [0; 9]).unwrap(), (1, to, None));
        let foreign = Some("192.0.2.1".parse().unwrap());
        assert!(send_from(&server, b"x", to, foreign).is_err());
        server.set_nonblocking(true).unwrap();
        assert_eq!(recv_at(&server, &mut []).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(set_recv_pktinfo(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn control_messages_that_are_cut_have_no_address() {
        let mut control = [0; CONTROL_MAX];
        let len = write_control(&mut control, Ipv4Addr::LOCALHOST.into());
        assert_eq!(read_control(&control[..len]), Some(Ipv4Addr::LOCALHOST.into()));
        assert!((0..HEADER + 12).all(|len| read_control(&control[..len]).is_none()));
        control[..size_of::<usize>()].fill(0);
        assert_eq!(read_control(&control), None, "a length of nothing");
    }
}
