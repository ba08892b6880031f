//! A network namespace of one's own.
//!
//! It does not depend on the work done in it. Invariant: a thread that has entered one ends in it; no thread of
//! the caller's changes its namespace, for that cannot be undone without rights. Tests: `tests/devices.rs`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::link::KernelLink;

/// A network namespace, with its loopback up. It lives as long as this, a thread or a socket in it does.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// A new one.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN; the system's.
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

    /// Runs `work` in the namespace, on a thread of its own, and waits for it.
    ///
    /// # Errors
    /// The system's, if the namespace cannot be entered.
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
    /// The system's, if there can be no thread. If the namespace cannot be entered, the thread returns that
    /// error.
    pub fn spawn<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<R>>> {
        let own = Self { fd: self.fd.try_clone()? };
        thread::Builder::new().spawn(move || own.enter().map(|()| work()))
    }

    /// Names it to the kernel.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

/// Why there can be no namespaces and devices here; `None` if there can.
pub fn unavailable() -> Option<String> {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return Some(format!("no network namespaces: {error}")),
    };
    let opened = namespace.run(|| crate::Tun::open(&crate::TunConfig::default()).map(drop));
    opened.and_then(|opened| opened).err().map(|error| format!("no TUN devices: {error}"))
}
