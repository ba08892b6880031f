//! What the command is not to get from outside: sockets of the host's network, and the caller's terminal as a keyboard.
//!
//! * A socket stays in the network in which it was made. A command that inherits one of IP, as from inetd, could connect it anew to whatever the host reaches, and one
//!   of UNIX to any abstract name there. Connected UNIX streams are let through: they lead to one program for good, as a pipe does.
//! * A program whose controlling terminal is the caller's can have the kernel type there (TIOCSTI, where the system permits it), and paste on a console (TIOCLINUX); a shell would read
//!   that behind the command. A filter of system calls refuses both. It compares the request, whose upper half the kernel ignores, on each interface of the machine that a program can use.
//!   Before Linux 5.4, x32 took its numbers and those of x86-64 with and without its bit.
//!
//! Tests: below; `tests/gateway/sandbox.rs`.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::getxattr;
use seccompiler::{BpfProgram, sock_filter};

/// Where the kernel says the protocol of a socket.
const PROTOCOL: &str = "system.sockprotoname";
/// Bytes of a protocol's name, at most.
const NAME_MAX: usize = 64;
/// Of UNIX sockets, the beginning.
const UNIX: &[u8] = b"UNIX";

/// Checks that no open descriptor is a socket of a network, or a UNIX socket that could be connected to another program.
///
/// # Errors
/// `InvalidInput` for such a socket, with its number; the system's.
pub fn no_sockets() -> io::Result<()> {
    let mut streams = None;
    for entry in fs::read_dir("/proc/self/fd")?.flatten() {
        let mut name = [0; NAME_MAX];
        // It fails for what is no socket.
        let Ok(len) = getxattr(entry.path(), PROTOCOL, &mut name[..]) else { continue };
        let (number, protocol) = (entry.file_name(), String::from_utf8_lossy(&name[..len]));
        let (number, protocol) = (number.to_string_lossy(), protocol.trim_end_matches('\0'));
        let message = if !name[..len].starts_with(UNIX) {
            format!(
                "descriptor {number} is a socket of the host's network ({protocol}), by which the command would reach it: close it, or give the command a pipe"
            )
        } else if !is_stream(&entry.path(), &mut streams)? {
            format!(
                "descriptor {number} is a UNIX socket that is no connected stream, so the command could connect it to any abstract name of the host: close it, or give the command a pipe"
            )
        } else {
            continue;
        };
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Whether the UNIX socket of a descriptor is a connected stream. `known` caches [`streams`].
fn is_stream(descriptor: &Path, known: &mut Option<HashSet<String>>) -> io::Result<bool> {
    let known = match known {
        Some(known) => known,
        None => known.insert(streams(&fs::read_to_string("/proc/self/net/unix")?)),
    };
    Ok(known.contains(fs::read_link(descriptor)?.to_string_lossy().as_ref()))
}

/// The connected streams, with messages or without, in the text of a `/proc/net/unix`, as links of descriptors show them.
fn streams(table: &str) -> HashSet<String> {
    let stream = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(4);
        let (kind, state, inode) = (fields.next()?, fields.next()?, fields.next()?);
        (["0001", "0005"].contains(&kind) && state == "03").then(|| format!("socket:[{inode}]"))
    };
    table.lines().filter_map(stream).collect()
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
const CALLS: &[(u32, u32)] = &[
    (0xc000_003e, 16),
    (0xc000_003e, 514),
    (0xc000_003e, 0x4000_0000 | 16),
    (0xc000_003e, 0x4000_0000 | 514),
    (0x4000_0003, 54),
];
#[cfg(target_arch = "aarch64")]
const CALLS: &[(u32, u32)] = &[(0xc000_00b7, 29), (0x4000_0028, 54)];
#[cfg(target_arch = "riscv64")]
const CALLS: &[(u32, u32)] = &[(0xc000_00f3, 29), (0x4000_00f3, 29)];
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
    fn streams_are_told_from_sockets_that_can_be_connected_anew() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000003 00000000 00000000 0001 03  1601\n\
            0000000000000000: 00000003 00000000 00000000 0005 03  1602 @name\n\
            0000000000000000: 00000002 00000000 00010000 0001 01  1603 /run/listens\n\
            0000000000000000: 00000002 00000000 00000000 0001 01  1604\n\
            0000000000000000: 00000003 00000000 00000000 0002 03  1605\n";
        let expected = ["socket:[1601]", "socket:[1602]"].map(str::to_owned);
        assert_eq!(streams(table), HashSet::from(expected));
    }

    /// The numbers that the headers of those machines have.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn each_number_of_ioctl_is_there() {
        let (x86_64, x32, i386) = ([16, 0x4000_0010], [514, 0x4000_0202], [54]);
        let (long, short) = (x86_64.iter().chain(&x32), i386.iter());
        let all = long.map(|call| (0xc000_003e, *call)).chain(short.map(|call| (0x4000_0003, *call)));
        for (arch, call) in all {
            let verdict = verdict_of(&filter(), (arch, call), &[0, 0x5412]);
            assert_eq!(verdict, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, "{arch:x} {call:x}");
        }
    }

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
