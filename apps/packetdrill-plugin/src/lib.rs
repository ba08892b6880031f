//! The shared object that packetdrill loads.
//!
//! It exports packetdrill's entry point and three functions with the names of libc's, which packetdrill calls past its own interface: the object is
//! preloaded as well (`LD_PRELOAD`), so that these come first. A descriptor that is not the adapter's goes on to the kernel. Everything else is in
//! `sockeye-packetdrill`, a library that exports nothing, because these names must not get into any other program.
#![cfg(target_os = "linux")]

use std::ffi::{c_char, c_int, c_void};

use libc::{off_t, size_t, socklen_t, ssize_t};
use sockeye_packetdrill::abi::Interface;
use sockeye_packetdrill::{abi, interpose};

/// packetdrill's entry point.
///
/// # Safety
/// `flags` is null or a C string, and `interface` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    // SAFETY: by the caller.
    unsafe { abi::init(flags, interface) };
}

/// close(2).
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    // SAFETY: no pointers; closing a descriptor is what the caller asks for.
    interpose::close(fd).unwrap_or_else(|| unsafe { libc::syscall(libc::SYS_close, fd) } as c_int)
}

/// getsockopt(2).
///
/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let ours = interpose::getsockopt(fd, level, name, value, len);
    // SAFETY: by the caller.
    ours.unwrap_or_else(
        || unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) } as c_int
    )
}

/// sendfile(2).
///
/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    let ours = interpose::sendfile(to, from, offset, count);
    // SAFETY: by the caller.
    ours.unwrap_or_else(|| unsafe { libc::syscall(libc::SYS_sendfile, to, from, offset, count) } as ssize_t)
}
