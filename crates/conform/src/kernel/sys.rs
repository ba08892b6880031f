//! The calls that have no safe wrapper: socket options by number, TCP_INFO, control messages, a TUN device's name, a thread's priority.
//!
//! The invariant: the kernel reads or writes no more behind a pointer than lies there. Tests: every scenario.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// TCP_RTO_MAX_MS, which `libc` does not define.
pub const TCP_RTO_MAX_MS: c_int = 44;
/// Bytes of TCP_INFO that are asked for; a kernel that knows fewer gives fewer.
pub const INFO_LEN: usize = 256;

/// Sets an option whose value is an `int`.
pub fn set_option(fd: impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<c_int>()` bytes behind the pointer, which is to a live `c_int`.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast::<c_void>(),
            size_of::<c_int>() as socklen_t,
        )
    };
    checked(result)
}

/// An option whose value is an `int`.
pub fn get_option(fd: impl AsFd, level: c_int, name: c_int) -> io::Result<c_int> {
    option_bytes(fd, level, name).map(c_int::from_ne_bytes)
}

/// TCP_INFO as bytes.
pub fn tcp_info(fd: impl AsFd) -> io::Result<[u8; INFO_LEN]> {
    option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
}

/// The first `N` bytes of an option's value, 0 behind its end.
fn option_bytes<const N: usize>(fd: impl AsFd, level: c_int, name: c_int) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut len = N as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes behind the first pointer, which is to so many live ones, and one `socklen_t` behind the second.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            bytes.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        )
    };
    checked(result).map(|()| bytes)
}

/// What an ioctl(2) says whose answer is an `int`.
pub fn ask(fd: impl AsFd, request: libc::Ioctl) -> io::Result<c_int> {
    let mut answer: c_int = 0;
    // SAFETY: these requests write one `c_int` behind the pointer, which is to a live one.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, &raw mut answer) };
    checked(result).map(|()| answer)
}

/// A control message: level, type, and its bytes.
pub type Control = (c_int, c_int, Vec<u8>);

/// recvmsg(2): the bytes that came, of which those behind the first `room` are lost, and its control messages.
pub fn recv_message(fd: impl AsFd, room: usize, flags: c_int) -> io::Result<(Vec<u8>, Vec<Control>)> {
    let mut bytes = vec![0_u8; room];
    let mut control = [0_u64; 64];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
    let mut message = message(&mut part, &mut control);
    // SAFETY: `message` names `part`, which names `bytes`, and `control`, with their lengths; all of them outlive the call.
    let received = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(received).map_err(|_negative| io::Error::last_os_error())?;
    bytes.truncate(len);
    let control: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok((bytes, controls(&control[..message.msg_controllen])))
}

/// sendmsg(2) of `bytes` with a control message that is an `u32`. Returns how many bytes were sent.
pub fn send_message(
    fd: impl AsFd,
    bytes: &[u8],
    (level, kind, value): (c_int, c_int, u32),
) -> io::Result<usize> {
    let mut bytes = bytes.to_vec();
    let pair = |first: c_int, second: c_int| {
        let [a, b, c, d] = first.to_ne_bytes();
        let [e, f, g, h] = second.to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    };
    let mut control = [CONTROL_HEAD as u64 + 4, pair(level, kind), pair(value.cast_signed(), 0)];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
    let message = message(&mut part, &mut control);
    // SAFETY: as in `recv_message`; the kernel only reads.
    let sent = unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const message, 0) };
    usize::try_from(sent).map_err(|_negative| io::Error::last_os_error())
}

/// Bytes of a `cmsghdr`: a length that counts them too, level and type. The next one begins at a multiple of 8.
const CONTROL_HEAD: usize = 16;

fn message(part: &mut libc::iovec, control: &mut [u64]) -> libc::msghdr {
    libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: std::ptr::from_mut(part),
        msg_iovlen: 1,
        msg_control: control.as_mut_ptr().cast::<c_void>(),
        msg_controllen: size_of_val(control),
        msg_flags: 0,
    }
}

fn controls(mut bytes: &[u8]) -> Vec<Control> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(CONTROL_HEAD) {
        let int = |at: usize| c_int::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let Some(len) = usize::try_from(int(0)).ok().and_then(|len| len.checked_sub(CONTROL_HEAD)) else {
            break;
        };
        let Some(value) = rest.get(..len) else { break };
        found.push((int(8), int(12), value.to_vec()));
        bytes = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
    found
}

/// Makes the file of `/dev/net/tun` the device `name`. Each IP packet has a `struct virtio_net_hdr` before it, which tells
/// whether it is joined.
pub fn attach_tun(fd: impl AsFd, name: &str) -> io::Result<()> {
    // Name, flags, and what the union has besides.
    let mut request = [0_u8; size_of::<libc::ifreq>()];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18]
        .copy_from_slice(&((libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16).to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which has as many bytes as the array and any bytes for values; it follows no pointer.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    checked(result)
}

/// Each packet that TCP hands to this device is one segment (`gso_max_segs` is 1).
pub fn forbid_joined_segments(name: &str) -> io::Result<()> {
    let attribute = |kind: u16, value: &[u8]| {
        let len = 4 + value.len();
        let head = [(len as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        [&head[..], value, &[0; 3][..len.next_multiple_of(4) - len]].concat()
    };
    // A `nlmsghdr` and an `ifinfomsg`, which names no index.
    let mut message = vec![0; 32];
    message.extend(attribute(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat()));
    message.extend(attribute(IFLA_GSO_MAX_SEGS, &1_u32.to_ne_bytes()));
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
    let route = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&route, &message, SendFlags::empty())?;
    let mut answer = [0; 256];
    recv(&route, &mut answer[..], RecvFlags::empty())?;
    // An `nlmsgerr` begins with the negative number of the error, or 0.
    let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
}

/// Of `linux/if_link.h`.
const IFLA_GSO_MAX_SEGS: u16 = 40;

/// Lets the calling thread run before all ordinary ones, if the process may.
pub fn run_first() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one `sched_param` behind the pointer, and 0 is the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameter) };
}

/// Lets the calling thread run only when no other wants to.
pub fn run_last() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: as above.
    checked(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) })
}

fn checked(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
