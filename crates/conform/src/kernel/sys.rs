//! The calls that have no safe wrapper: socket options by number, TCP_INFO, a TUN device's name, a thread's priority.
//!
//! The invariant: the kernel reads or writes no more behind a pointer than lies there. Tests: every scenario.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};

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

/// TCP_INFO as bytes.
pub fn tcp_info(fd: impl AsFd) -> io::Result<[u8; INFO_LEN]> {
    let mut bytes = [0; INFO_LEN];
    let mut len = INFO_LEN as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes behind the first pointer, which is to so many live ones, and one `socklen_t` behind the second.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        )
    };
    checked(result).map(|()| bytes)
}

/// Makes the file of `/dev/net/tun` the device `name`, with IP packets and no header before them.
pub fn attach_tun(fd: impl AsFd, name: &str) -> io::Result<()> {
    // Name, flags, and what the union has besides.
    let mut request = [0_u8; size_of::<libc::ifreq>()];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&((libc::IFF_TUN | libc::IFF_NO_PI) as u16).to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which has as many bytes as the array and any bytes for values; it follows no pointer.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    checked(result)
}

/// Lets the calling thread run before all ordinary ones, if the process may.
pub fn run_first() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one `sched_param` behind the pointer, and 0 is the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameter) };
}

fn checked(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
