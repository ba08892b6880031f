//! Removes all rights of the process outside after the start, except its open descriptors and IP sockets.
//!
//! ```text
//! all files are open ─► own mount namespace with an empty root ─► no capabilities, no_new_privs ─► seccomp filter
//! ```
//!
//! The calling thread does this before it starts other threads, which inherit the result. The filter permits what the open descriptors need: reading,
//! writing, waiting, sockets of TCP, UDP and ping, non-executable memory, threads. All other calls fail with ENOSYS, so that the C library falls back to
//! older calls whose arguments the filter can check (clone(2) for clone3(2)). The process cannot start programs, cannot signal any process but the command, cannot open files except
//! the tables of the inside (`-p auto`), and cannot remove files except the control socket. Of the folders of these it keeps copies as mounts of their own, which no path leaves: `..` ends there.
//!
//! If the system does not permit namespaces, the root or a folder stays as it is and the gateway says so; the other steps still apply. A folder that was replaced meanwhile ends the start. Does not depend on what the
//! gateway does. Tests: below, what the filter says; `tests/gateway/sandbox.rs`.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, fstat, readlink};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, OpenTreeFlags, UnmountFlags, mount, mount_change, mount_remount,
    open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use sockeye_drivers::unshare_mounts;

/// A folder that every Linux system has. The empty root stands over it for a moment.
const PLACE: &str = "/proc";

/// What the process needs beside sockets and memory.
#[derive(Default)]
pub struct Needs<'needs> {
    /// The number of the process that signals are passed on to.
    pub signals: Option<u32>,
    /// Folders in which files are read.
    pub reads: Vec<&'needs mut OwnedFd>,
    /// Folders in which sockets of ours are removed.
    pub removes: Vec<&'needs mut OwnedFd>,
}

/// Gives up everything else, and puts other descriptors in place of the folders. If the system does not permit all of that, returns why the root is not empty, or why a folder has a way out.
///
/// # Errors
/// The system's: it knows no capabilities or no filters. A folder was replaced meanwhile.
pub fn enter(mut needs: Needs<'_>) -> io::Result<Option<io::Error>> {
    let kept = match own_mounts() {
        Ok(()) => {
            let open = folders(&mut needs)?;
            empty_root().err().or(open)
        }
        Err(refused) => Some(refused),
    };
    give_up_rights()?;
    let program = filter(&needs).map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)?;
    Ok(kept)
}

/// No capabilities, and no way to gain any.
///
/// # Errors
/// The system's.
pub fn give_up_rights() -> io::Result<()> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

fn own_mounts() -> io::Result<()> {
    unshare_mounts()?;
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

/// Makes each folder the root of a mount of its own. Where the system does not permit that, leaves the folder as it is and returns why.
fn folders(needs: &mut Needs<'_>) -> io::Result<Option<io::Error>> {
    let mut kept = None;
    for folder in needs.reads.iter_mut().chain(&mut needs.removes) {
        match without_parent(folder.as_fd()) {
            // Not permitted, or Linux before 5.2.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                kept = Some(error)
            }
            alone => **folder = alone?,
        }
    }
    Ok(kept)
}

/// Makes an empty file system the root of this process, which cannot be written.
fn empty_root() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("none", PLACE, "tmpfs", flags, c"size=0,nr_inodes=1,mode=0")?;
    chdir(PLACE)?;
    // The old root comes to lie over the new one, and goes (pivot_root(2): "pivot_root(".", ".")").
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    Ok(mount_remount("/", flags | MountFlags::RDONLY, c"")?)
}

/// The same folder as the root of a mount of its own, which is nowhere.
fn without_parent(folder: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // By its path, since the descriptor's mount is of the namespace that was left.
    let path = readlink(format!("/proc/self/fd/{}", folder.as_raw_fd()), Vec::new())?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let alone = match open_tree(CWD, &path, flags) {
        // A user namespace may not uncover what is mounted below the folder, so the copy includes it. Otherwise the copy would only keep it mounted.
        Err(Errno::INVAL) => open_tree(CWD, path, flags | OpenTreeFlags::AT_RECURSIVE),
        alone => alone,
    }?;
    let (before, now) = (fstat(folder)?, fstat(&alone)?);
    let is_same = (before.st_dev, before.st_ino) == (now.st_dev, now.st_ino);
    is_same
        .then_some(alone)
        .ok_or_else(|| io::Error::other("a folder was replaced while the gateway started"))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn filter(needs: &Needs<'_>) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: Rules = ANY.iter().map(|call| (*call, Vec::new())).collect();
    sockets(&mut rules)?;
    descriptors(&mut rules)?;
    memory_and_threads(&mut rules)?;
    let fd = |fd: &OwnedFd| fd.as_raw_fd() as u64;
    for folder in &needs.reads {
        let reads = (
            2,
            Op::MaskedEq((libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64),
            libc::O_RDONLY as u64,
        );
        rules.entry(libc::SYS_openat).or_default().push(only(&[(0, Op::Eq, fd(folder)), reads])?);
    }
    for folder in &needs.removes {
        rules.entry(libc::SYS_unlinkat).or_default().push(only(&[(0, Op::Eq, fd(folder))])?);
    }
    if let Some(pid) = needs.signals {
        for call in [libc::SYS_kill, libc::SYS_getpgid] {
            rules.insert(call, vec![only(&[(0, Op::Eq, u64::from(pid))])?]);
        }
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refused = SeccompAction::Errno(libc::ENOSYS as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?.try_into()
}

/// A rule of comparisons of the low halves of arguments, all of which have to hold.
fn only(conditions: &[(u8, Op, u64)]) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions = conditions
        .iter()
        .map(|(argument, op, value)| SeccompCondition::new(*argument, Len::Dword, op.clone(), *value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// Sockets of IP's TCP, UDP and ping, and pairs of UNIX sockets, which signals come through.
fn sockets(rules: &mut Rules) -> Result<(), seccompiler::BackendError> {
    // SOCK_CLOEXEC and SOCK_NONBLOCK stand above the kind.
    let kind = |kind: i32| (1, Op::MaskedEq(0xf), kind as u64);
    let mut made = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = (0, Op::Eq, family as u64);
        made.push(only(&[family.clone(), kind(libc::SOCK_STREAM)])?);
        made.push(only(&[family, kind(libc::SOCK_DGRAM)])?);
    }
    rules.insert(libc::SYS_socket, made);
    // Of datagrams, one could be connected to any name of the host.
    let pair = only(&[(0, Op::Eq, libc::AF_UNIX as u64), kind(libc::SOCK_STREAM)])?;
    rules.insert(libc::SYS_socketpair, vec![pair]);
    // Of the terminal, whose foreground group is looked at; of a TUN device that is adopted; of sockets.
    let requests = [
        libc::TIOCGPGRP,
        libc::TUNGETIFF,
        libc::TUNSETVNETHDRSZ,
        libc::TUNSETOFFLOAD,
        libc::FIONBIO,
        libc::FIONREAD,
        sockeye_drivers::SIOCATMARK,
    ];
    // Their 32 bits: C libraries give them types of different length and sign.
    let requests = requests.iter().map(|request| only(&[(1, Op::Eq, u64::from(*request as u32))]));
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    Ok(())
}

/// Memory that is not executed, and threads of this process.
fn memory_and_threads(rules: &mut Rules) -> Result<(), seccompiler::BackendError> {
    let not_executed = (2, Op::MaskedEq(libc::PROT_EXEC as u64), 0);
    rules.insert(libc::SYS_mmap, vec![only(std::slice::from_ref(&not_executed))?]);
    rules.insert(libc::SYS_mprotect, vec![only(&[not_executed])?]);
    let thread = (libc::CLONE_THREAD | libc::CLONE_VM) as u64;
    rules.insert(libc::SYS_clone, vec![only(&[(0, Op::MaskedEq(thread), thread)])?]);
    // A panic that aborts, and stacks of threads. Of other processes these would be signals, among them one that ends a process that has used up its limit.
    let own = (0, Op::Eq, u64::from(std::process::id()));
    rules.insert(libc::SYS_tgkill, vec![only(std::slice::from_ref(&own))?]);
    rules.insert(libc::SYS_prlimit64, vec![only(&[(0, Op::Eq, 0)])?, only(&[own])?]);
    Ok(())
}

/// The permitted commands of fcntl(2). F_SETOWN is not one of them: it can direct a descriptor's signals to any process.
fn descriptors(rules: &mut Rules) -> Result<(), seccompiler::BackendError> {
    let commands =
        [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];
    let commands = commands.iter().map(|command| only(&[(1, Op::Eq, u64::from(*command as u32))]));
    rules.insert(libc::SYS_fcntl, commands.collect::<Result<_, _>>()?);
    Ok(())
}

/// Calls that are permitted with any arguments.
const ANY: &[i64] = &[
    // Descriptors that are open.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Sockets.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Memory, threads and signals of this process.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_prctl,
    libc::SYS_getrusage,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_uname,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Those that only this machine has.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_accept,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

#[cfg(test)]
pub mod tests {
    use super::*;

    fn verdict(program: &BpfProgram, call: i64, arguments: &[u64]) -> u32 {
        let arch = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
        verdict_of(program, (arch, u32::try_from(call).unwrap()), arguments)
    }

    /// What a filter says of a call by an interface of the machine (seccomp(2)): what the kernel does with its program.
    pub fn verdict_of(program: &BpfProgram, (arch, call): (u32, u32), arguments: &[u64]) -> u32 {
        let mut words = vec![call, arch, 0, 0];
        for argument in arguments.iter().chain(&[0; 6]).take(6) {
            words.extend([*argument as u32, (argument >> 32) as u32]);
        }
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let mut jump = |holds: bool| at += usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                0x06 => return step.k,
                0x20 => value = words[step.k as usize / 4],
                0x54 => value &= step.k,
                0x05 => at += step.k as usize,
                0x15 => jump(value == step.k),
                0x25 => jump(value > step.k),
                0x35 => jump(value >= step.k),
                other => panic!("{other:#x} is no instruction that is known here"),
            }
        }
    }

    #[test]
    fn no_process_but_the_command_gets_a_signal_and_no_socket_leads_to_a_name() {
        let command = 4711;
        let program = filter(&Needs { signals: Some(command), ..Needs::default() }).unwrap();
        let (own, other) = (u64::from(std::process::id()), u64::from(std::process::id()) + 1);
        let number = |number: i32| u64::from(number as u32);
        let unix = number(libc::AF_UNIX);
        let refused = 0x0005_0000 | libc::ENOSYS as u32;
        for (call, arguments, is_permitted) in [
            (libc::SYS_kill, [command.into(), 15, 0], true),
            (libc::SYS_kill, [other, 15, 0], false),
            (libc::SYS_getpgid, [command.into(), 0, 0], true),
            (libc::SYS_getpgid, [other, 0, 0], false),
            (libc::SYS_tgkill, [own, own, 6], true),
            (libc::SYS_tgkill, [other, other, 0], false),
            (libc::SYS_tgkill, [u64::MAX, own, 0], false),
            (libc::SYS_tkill, [own, 0, 0], false),
            (libc::SYS_prlimit64, [0, number(libc::RLIMIT_STACK as i32), 0], true),
            (libc::SYS_prlimit64, [own, 0, 0], true),
            (libc::SYS_prlimit64, [other, number(libc::RLIMIT_CPU as i32), 1], false),
            (libc::SYS_socketpair, [unix, number(libc::SOCK_STREAM | libc::SOCK_CLOEXEC), 0], true),
            (libc::SYS_socketpair, [unix, number(libc::SOCK_DGRAM), 0], false),
            (libc::SYS_socketpair, [unix, number(libc::SOCK_SEQPACKET), 0], false),
            (libc::SYS_fcntl, [3, number(libc::F_DUPFD_CLOEXEC), 0], true),
            (libc::SYS_fcntl, [3, number(libc::F_SETFL), 0], true),
            (libc::SYS_fcntl, [3, number(libc::F_SETOWN), other], false),
            // F_SETSIG and F_SETOWN_EX, which `libc` does not have.
            (libc::SYS_fcntl, [3, 10, 9], false),
            (libc::SYS_fcntl, [3, 15, 1], false),
        ] {
            let expected = if is_permitted { libc::SECCOMP_RET_ALLOW } else { refused };
            assert_eq!(verdict(&program, call, &arguments), expected, "{call} {arguments:?}");
        }
    }
}
