//! When two sockets that are bound to one port are in each other's way: for TCP's table and UDP's.
//!
//! The conflicts are Linux's (`docs/bind.md` has the table, a test holds it beside the kernel). Does not depend on the tables.
//! Tests: `tests/tcp/bind.rs`.

use std::io;
use std::net::IpAddr;

/// Where listeners for every port stand: they come after those of the port itself.
pub(crate) const ANY_PORT: u16 = 0;

/// The parts of a socket that decide conflicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BindOptions {
    pub reuse_addr: bool,
    pub reuse_port: bool,
    /// IPV6_V6ONLY: an IPv6 wildcard that does not take IPv4.
    pub v6_only: bool,
}

/// A place in a bind table, TCP's or UDP's.
pub(crate) struct Bind {
    pub id: u64,
    pub addr: IpAddr,
    pub options: BindOptions,
    pub listens: bool,
}

impl Bind {
    /// A socket that does not listen.
    pub fn new(id: u64, addr: IpAddr, options: BindOptions) -> Self {
        Self { id, addr, options, listens: false }
    }

    /// Whether a socket that is to be bound to `addr` of the same port stands in its way.
    pub fn conflicts(&self, addr: IpAddr, options: BindOptions) -> bool {
        if !overlap(addr, options.v6_only, self.addr, self.options.v6_only) {
            return false;
        }
        let share_addr = options.reuse_addr && self.options.reuse_addr && !self.listens;
        let share_port = options.reuse_port && self.options.reuse_port;
        !(share_addr || share_port)
    }
}

/// Whether a segment could be for both addresses. An IPv6 wildcard takes IPv4 too unless `v6_only`.
pub(crate) fn overlap(a: IpAddr, a_v6_only: bool, b: IpAddr, b_v6_only: bool) -> bool {
    match (a, b) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
            a == b || a.is_unspecified() || b.is_unspecified()
        }
        (IpAddr::V6(_), IpAddr::V4(_)) => a.is_unspecified() && !a_v6_only,
        (IpAddr::V4(_), IpAddr::V6(_)) => b.is_unspecified() && !b_v6_only,
    }
}

pub(crate) fn no_port() -> io::Error {
    io::Error::new(
        io::ErrorKind::AddrNotAvailable,
        "no ephemeral port is free: widen Config::port_range, or use more local addresses",
    )
}
