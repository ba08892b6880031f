//! Ancillary data of `send_msg` and `recv_msg`: flags, rights, credentials.
//!
//! Does not depend on buffers. Bound: [`RIGHTS_MAX`] rights in a message. Tests: `tests/unix/rights.rs`.

use std::os::fd::OwnedFd;

use super::SocketAddr;
use super::rights::Right;

/// The largest number of rights in one message (SCM_MAX_FD of Linux); more are refused with EINVAL.
pub const RIGHTS_MAX: usize = 253;

/// Flags of `send_msg` and `recv_msg`, and those that a [`RecvMsg`] reports; a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MsgFlags(u8);

impl MsgFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// MSG_PEEK: received data stays; rights are duplicated.
    pub const PEEK: Self = Self(1);
    /// MSG_TRUNC. As a request: a datagram's whole length is returned, even if not all of it fitted. In a result: it
    /// did not fit.
    pub const TRUNC: Self = Self(2);
    /// MSG_CTRUNC, only in a result: rights did not fit and were closed.
    pub const CTRUNC: Self = Self(4);
    /// MSG_DONTWAIT: this call does not block.
    pub const DONTWAIT: Self = Self(8);
    /// MSG_WAITALL: a stream's receive waits until the buffers are full.
    pub const WAITALL: Self = Self(16);
    /// MSG_NOSIGNAL. Accepted, without effect: no signal is ever sent.
    pub const NOSIGNAL: Self = Self(32);
    /// MSG_EOR. Accepted, without effect, as on Linux: every packet is a record.
    pub const EOR: Self = Self(64);

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in the set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}

impl std::ops::BitOr for MsgFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl std::ops::BitOrAssign for MsgFlags {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.with(other);
    }
}

/// Credentials of a process (`struct ucred`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UCred {
    /// The process; 0 if it is not known.
    pub pid: i32,
    /// Its user; `u32::MAX` if there is none, 65534 in a message that has none.
    pub uid: u32,
    /// Its group; as for the user.
    pub gid: u32,
}

impl UCred {
    /// Of a socket without a peer.
    pub(crate) const NO_PEER: Self = Self { pid: 0, uid: u32::MAX, gid: u32::MAX };
    /// Of bytes that were sent before a socket asked for credentials.
    pub(crate) const UNKNOWN: Self = Self { pid: 0, uid: OVERFLOW_ID, gid: OVERFLOW_ID };

    /// Its user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Its group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The process, if it is known.
    pub fn pid(&self) -> Option<i32> {
        (self.pid != 0).then_some(self.pid)
    }

    /// This process's, with its real user and group, as messages carry them.
    pub(crate) fn of_process() -> Self {
        Self {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        }
    }

    /// This process's, with its effective user and group, as SO_PEERCRED has them.
    pub(crate) fn of_process_effective() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..Self::of_process()
        }
    }
}

/// Linux's id of a user that it cannot name (`overflowuid`).
const OVERFLOW_ID: u32 = 65534;

/// Ancillary data to send. A call that succeeds empties it; after one that fails everything is still there.
#[derive(Debug, Default)]
pub struct SendAncillary {
    pub(crate) rights: Vec<Right>,
    pub(crate) creds: Option<UCred>,
}

impl SendAncillary {
    /// Nothing.
    pub const fn new() -> Self {
        Self { rights: Vec::new(), creds: None }
    }

    /// Adds a socket or a file descriptor (SCM_RIGHTS). The handle itself is sent: send a `try_clone` to keep it.
    pub fn add_right(&mut self, right: impl Into<Right>) {
        self.rights.push(right.into());
    }

    /// Adds a file descriptor of the kernel.
    pub fn add_fd(&mut self, fd: OwnedFd) {
        self.add_right(fd);
    }

    /// Sends these credentials (SCM_CREDENTIALS) in place of the process's own. Unless the process's effective user is
    /// root, they must be its own, or the send fails with EPERM.
    pub fn set_credentials(&mut self, creds: UCred) {
        self.creds = Some(creds);
    }

    /// The rights that are to be sent.
    pub fn rights(&self) -> &[Right] {
        &self.rights
    }

    /// Takes the rights back.
    pub fn take_rights(&mut self) -> Vec<Right> {
        std::mem::take(&mut self.rights)
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.rights.is_empty() && self.creds.is_none()
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

/// Received ancillary data, with room for a number of rights.
#[derive(Debug, Default)]
pub struct RecvAncillary {
    rights_max: usize,
    pub(crate) rights: Vec<Right>,
    pub(crate) creds: Option<UCred>,
}

impl RecvAncillary {
    /// Room for no rights: those that come are closed, and `CTRUNC` is reported.
    pub const fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Room for `rights_max` rights a call. Credentials always have room.
    pub const fn with_capacity(rights_max: usize) -> Self {
        Self { rights_max, rights: Vec::new(), creds: None }
    }

    /// How many rights a call can receive.
    pub fn capacity(&self) -> usize {
        self.rights_max
    }

    /// The rights that came with the last call.
    pub fn rights(&self) -> &[Right] {
        &self.rights
    }

    /// Takes the rights that came with the last call. The next call closes those that are not taken.
    pub fn take_rights(&mut self) -> Vec<Right> {
        std::mem::take(&mut self.rights)
    }

    /// The sender's credentials, if the socket has SO_PASSCRED set.
    pub fn credentials(&self) -> Option<UCred> {
        self.creds
    }
}

/// Result of `recv_msg`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecvMsg {
    /// Bytes received; with `TRUNC` asked for, the datagram's whole length.
    pub bytes: usize,
    /// `TRUNC` and `CTRUNC`, if data or rights were cut off.
    pub flags: MsgFlags,
    /// The sender; for a stream, the peer.
    pub addr: SocketAddr,
}
