//! What the command is not to get from outside: sockets of the host's network, and the caller's terminal as a keyboard.
//!
//! * A socket stays in the network in which it was made. A command that inherits one of IP, as from inetd, could connect it anew to whatever the host reaches. UNIX sockets are let through: they
//!   lead to one program, as a pipe does.
//! * A program whose controlling terminal is the caller's can have the kernel type there (TIOCSTI, where the system permits it), and paste on a console (TIOCLINUX); a shell would read
//!   that behind the command. A filter of system calls refuses both. It compares the request, whose upper half the kernel ignores, on each interface of the machine that a program can use.
//!
//! Tests: below; `tests/gateway/sandbox.rs`.

use std::fs;
use std::io;

use rustix::fs::getxattr;
use seccompiler::{BpfProgram, sock_filter};

/// Where the kernel says the protocol of a socket.
const PROTOCOL: &str = "system.sockprotoname";
/// Bytes of a protocol's name, at most.
const NAME_MAX: usize = 64;
/// Of UNIX sockets, the beginning.
const UNIX: &[u8] = b"UNIX";

/// That no open descriptor is a socket of a network.
///
/// # Errors
/// `InvalidInput` for one that is, with its number.
pub fn no_sockets() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")?.flatten() {
        let mut name = [0; NAME_MAX];
        // It fails for what is no socket.
        let Ok(len) = getxattr(entry.path(), PROTOCOL, &mut name[..]) else { continue };
        if !name[..len].starts_with(UNIX) {
            let (number, protocol) = (entry.file_name(), String::from_utf8_lossy(&name[..len]));
            let message = format!(
                "descriptor {} is a socket of the host's network ({}), by which the command would reach it: close it, or give the command a pipe",
                number.to_string_lossy(),
                protocol.trim_end_matches('\0')
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    }
    Ok(())
}

/// Refuses requests that type on a terminal, from this thread and all that it becomes.
///
/// # Errors
/// The system's: it knows no filters.
pub fn no_typing() -> io::Result<()> {
    seccompiler::apply_filter(&filter()).map_err(io::Error::other)
}

/// What ioctl(2) is on each interface of this machine: `AUDIT_ARCH`, and the call's number.
#[cfg(target_arch = "x86_64")]
const CALLS: &[(u32, u32)] = &[(0xc000_003e, 16), (0xc000_003e, 0x4000_0000 | 514), (0x4000_0003, 54)];
#[cfg(target_arch = "aarch64")]
const CALLS: &[(u32, u32)] = &[(0xc000_00b7, 29), (0x4000_0028, 54)];
#[cfg(target_arch = "riscv64")]
const CALLS: &[(u32, u32)] = &[(0xc000_00f3, 29)];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const CALLS: &[(u32, u32)] = &[];

/// Requests that are refused. They are the same on these machines.
const REQUESTS: [u32; 2] = [0x5412, 0x541c];

/// Places in `struct seccomp_data`, and codes of instructions (seccomp(2), linux/bpf_common.h).
const CALL_AT: u32 = 0;
const ARCH_AT: u32 = 4;
/// The lower half of the second argument, on machines whose lower half is the first.
const REQUEST_AT: u32 = 24;
const LOAD: u16 = 0x20;
const IS_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// `seccompiler` would end programs of other interfaces than the machine's main one, such as those for 32 bits, so this is written by hand.
fn filter() -> BpfProgram {
    let step = |code, k, jt: usize, jf: usize| sock_filter { code, jt: jt as u8, jf: jf as u8, k };
    let mut program = Vec::new();
    for (index, (arch, call)) in CALLS.iter().enumerate() {
        // Behind the steps of the calls that follow, and the return.
        let to_requests = (CALLS.len() - 1 - index) * 4 + 1;
        program.extend([
            step(LOAD, ARCH_AT, 0, 0),
            step(IS_EQUAL, *arch, 0, 2),
            step(LOAD, CALL_AT, 0, 0),
            step(IS_EQUAL, *call, to_requests, 0),
        ]);
    }
    program.extend([step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0), step(LOAD, REQUEST_AT, 0, 0)]);
    for (index, request) in REQUESTS.iter().enumerate() {
        program.push(step(IS_EQUAL, *request, REQUESTS.len() - index, 0));
    }
    program.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    program.push(step(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::tests::verdict_of;

    #[test]
    fn only_requests_that_type_are_refused_by_any_interface() {
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        for (arch, call) in CALLS {
            let verdict = |call, request| verdict_of(&filter(), (*arch, call), &[0, request]);
            for request in REQUESTS.map(u64::from) {
                assert_eq!(verdict(*call, request), refused);
                assert_eq!(verdict(*call, 1 << 32 | request), refused, "the kernel looks at the lower half");
                assert_eq!(verdict(*call + 1, request), libc::SECCOMP_RET_ALLOW, "another call");
            }
            assert_eq!(verdict(*call, 0x5401), libc::SECCOMP_RET_ALLOW, "TCGETS");
        }
    }
}
