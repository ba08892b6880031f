//! Network namespaces: new ones, and those of other processes.
//!
//! It does not depend on what is done in one. Invariant: a thread that has entered one ends in it; no thread of the caller's
//! changes its namespace, for that cannot be undone without rights. Tests: `tests/devices.rs`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};

use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::link::KernelLink;

/// A network namespace (network_namespaces(7)): interfaces, addresses and routes of the kernel that processes outside do not
/// share. It lives as long as this value, another descriptor of it, or a process or thread in it does.
///
/// The calling thread never changes its own namespace: [`run`](Self::run) and [`spawn`](Self::spawn) use threads that end in this one. To
/// start a program in it, start it on such a thread: a child is in the namespace of the thread that made it.
///
/// ```no_run
/// use std::process::Command;
/// use sockeye_drivers::{Namespace, Tun, TunConfig};
///
/// let namespace = Namespace::new()?;
/// let tun = namespace.run(|| -> std::io::Result<Tun> {
///     let tun = Tun::open(&TunConfig::default())?;
///     tun.link().add_addr("10.9.0.1/24".parse().unwrap())?;
///     tun.link().add_route("0.0.0.0/0".parse().unwrap())?;
///     Ok(tun)
/// })??;
/// // `tun` works from every namespace: attach it to a stack, then let a program use it.
/// let status = namespace.run(|| Command::new("curl").arg("http://10.9.0.2/").status())??;
/// # drop((tun, status));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// A new one, with its loopback interface up.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN in the caller's user namespace; the system's.
    pub fn new() -> io::Result<Self> {
        let made = thread::Builder::new().name("namespace".to_owned()).spawn(|| -> io::Result<Self> {
            // SAFETY: a new network namespace takes nothing from other holders of descriptors or memory; that is
            // only so with other flags.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            KernelLink::new("lo").set_up(true)?;
            Ok(Self { fd: File::open("/proc/thread-self/ns/net")?.into() })
        })?;
        made.join().map_err(|_| io::Error::other("the thread that makes a namespace has panicked"))?
    }

    /// The one at `path`: `/run/netns/NAME` as ip-netns(8) makes it, or `/proc/PID/ns/net`. That it is a network namespace is found out
    /// when it is entered.
    ///
    /// # Errors
    /// The system's, among them `NotFound` and `PermissionDenied`.
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Ok(Self { fd: File::open(path)?.into() })
    }

    /// That of the process `pid`.
    ///
    /// # Errors
    /// `NotFound` if there is no such process; `PermissionDenied` without the right to trace it (ptrace(2)).
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Self::open(format!("/proc/{pid}/ns/net"))
    }

    /// That of the calling thread.
    ///
    /// # Errors
    /// The system's, if `/proc` is not there.
    pub fn current() -> io::Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// Runs `work` in the namespace, on a thread of its own, and waits for it: **blocks** as long as that takes.
    ///
    /// # Errors
    /// The system's, if the namespace cannot be entered: `PermissionDenied` without CAP_SYS_ADMIN in the caller's user namespace and in
    /// that which owns the namespace, `InvalidInput` if it is no network namespace.
    ///
    /// # Panics
    /// If `work` does.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        thread::scope(|scope| {
            let entered = scope.spawn(|| self.enter().map(|()| work()));
            entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `work` in the namespace, on a thread of its own.
    ///
    /// # Errors
    /// The system's, if there can be no thread. If the namespace cannot be entered, the thread returns that error.
    pub fn spawn<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<R>>> {
        let own = Self { fd: self.fd.try_clone()? };
        thread::Builder::new().spawn(move || own.enter().map(|()| work()))
    }

    fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

/// Moves the calling process into user, network and mount namespaces of its own, which needs no right where the system lets users make them
/// (user_namespaces(7)). Its user and group are root there, who owns the network and may mount, and no others exist. Loopback is up. A program that
/// is executed then stays in them.
///
/// # Errors
/// `InvalidInput` if the process has more than one thread; the system's where it does not let users make them.
pub fn unshare_user() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: new namespaces take no descriptors or memory from other holders; that is only so with other flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS) }?;
    // Without it the group's map is refused to a process without rights outside.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    KernelLink::new("lo").set_up(true)
}

/// Moves the calling thread into a mount namespace of its own: what it mounts from now on, no other process sees, once its mounts are private. With the right to it
/// (CAP_SYS_ADMIN) that is all; else the process moves into a user namespace, too, in which its user and group keep their numbers, and has all rights over that.
///
/// # Errors
/// `InvalidInput` if the process has more than one thread and not the right; the system's where it does not let users make namespaces.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: a mount namespace takes no descriptors or memory from other holders; that is only so with other flags.
    match unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
        Err(rustix::io::Errno::PERM) => {}
        done => return Ok(done?),
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: as above, and so for a user namespace.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

impl From<OwnedFd> for Namespace {
    /// Takes a descriptor of a namespace, such as another process has sent.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
