//! Errors that the network reports: the pending one of a socket, and the queue of IP_RECVERR.
//!
//! As on Linux: a socket that is connected, or has asked for the queue ([`UdpSocket::set_recv_err`]), gets the error as
//! its pending one, which the next call returns once. With the queue it receives each of them, with the datagram that it was
//! about. Others are not told: an error for one destination would end a call for another (RFC 1122 section 4.1.3.3 asks
//! for it, RFC 8085 section 5.2 for caution).
//!
//! [`UdpSocket::set_recv_err`]: crate::UdpSocket::set_recv_err
//! Does not depend on sockets' calls. Tests: `tests/udp/`.

use std::net::SocketAddr;

use rustix::io::Errno;
use sockeye_mbuf::Chain;
use sockeye_sync::facade::{Arc, Ordering};

use super::pcb::{ERRORS_MAX, Pcb};
use super::stamps::Notable;
use crate::base::addr::{Endpoint, FourTuple};
use crate::base::errno;
pub use crate::inet::ip::report::Unsent;
use crate::rt::poll::Ready;
use crate::rt::wake::Wake;

impl Unsent {
    /// The errno that Linux has for it, and whether it ends the calls of a connected socket: some errors are only
    /// reported to sockets that asked for the queue.
    fn errno(self, is_ipv6: bool) -> (Errno, bool) {
        match self {
            Self::PortUnreachable => (Errno::CONNREFUSED, true),
            Self::HostUnreachable => (Errno::HOSTUNREACH, false),
            Self::NetworkUnreachable => (Errno::NETUNREACH, false),
            Self::ProtocolUnreachable => (Errno::NOPROTOOPT, true),
            Self::Prohibited if is_ipv6 => (Errno::ACCESS, true),
            Self::Prohibited => (Errno::HOSTUNREACH, true),
            Self::TooBig { .. } => (Errno::MSGSIZE, true),
            Self::ParameterProblem => (errno::PROTO, true),
            Self::TimeExceeded => (Errno::HOSTUNREACH, false),
        }
    }
}

/// An error as the queue keeps it.
pub(crate) struct Queued {
    pub what: Unsent,
    pub errno: Errno,
    /// The host that reported it; the port is 0.
    pub offender: Endpoint,
    /// Where the datagram was sent to.
    pub dst: Endpoint,
    /// The number of the interface on which both are, if their addresses are of a link.
    pub interface: u32,
    pub payload: Chain,
}

/// An error from a socket's queue ([`UdpSocket::recv_err`](crate::UdpSocket::recv_err)).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecvError {
    /// The error.
    pub what: Unsent,
    /// Linux's errno for it.
    pub errno: i32,
    /// The host that reported it; its port is 0.
    pub offender: SocketAddr,
    /// Where the datagram was sent to.
    pub dst: SocketAddr,
    /// Bytes of it that were copied.
    pub len: usize,
    /// The datagram had more bytes.
    pub is_truncated: bool,
}

/// Tells a socket that a datagram of its conversation `tuple` (as the socket names it) did not arrive: who says so, and by which interface.
pub(crate) fn report(
    pcb: &Arc<Pcb>,
    what: Unsent,
    tuple: &FourTuple,
    (offender, interface): (Endpoint, u32),
    payload: Chain,
    wakes: &mut Vec<Wake>,
) {
    let has_queue = pcb.options.recv_err.load(Ordering::Relaxed);
    let is_connected = pcb.name.load().remote.is_some();
    let (errno, is_fatal) = what.errno(tuple.remote.addr.is_ipv6());
    if !(has_queue || is_connected && is_fatal) {
        return;
    }
    let mut so = pcb.receive.so.lock();
    if has_queue && so.errors.len() < ERRORS_MAX {
        so.errors.push_back(Queued { what, errno, offender, dst: tuple.remote, interface, payload });
    }
    so.error = Some(errno);
    pcb.notable.set(Notable::ERROR, true);
    Pcb::announce(pcb, &mut so, Ready::ERROR, wakes);
}
