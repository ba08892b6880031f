//! [`UdpFlowListener`] and [`UdpFlow`]: UDP by flow, as an application holds it.
//!
//! Does not depend on how flows begin and end: that is `flows.rs`. Tests: `tests/udp/flows.rs`.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use sockeye_mbuf::Chain;
use sockeye_proto::ip::{self, Addresses};
use sockeye_proto::udp::{self, ChecksumOut, PAYLOAD_MAX_V4};
use sockeye_sync::facade::Arc;

use super::errors::Unsent;
use super::flows::{self, Flows};
use super::methods::handle_methods;
use super::naming::Handle;
use super::pcb::{Pcb, Role};
use super::recv;
use super::socket::UdpSocket;
use crate::base::addr::FourTuple;
use crate::base::errno;
use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::ip::{Received, icmp};
use crate::inet::netif::NetifId;
use crate::inet::netif::scope::{self, LOOPBACK};
use crate::rt::blocking::nonzero;
use crate::rt::fork::Held;
use crate::rt::handle::Stack;
use crate::rt::{memory, panics};

/// Limits of a listener of flows, see [`UdpBuilder::listen_flows`](crate::UdpBuilder::listen_flows).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UdpFlowConfig {
    /// Largest number of flows, including those that wait to be accepted; at least 1. At this number, a new flow
    /// displaces another: of the next 16 flows in turn, the one without datagrams for the longest time ends
    /// (`ConnectionAborted`, counted as `udp_flows_displaced`). Default 4,096.
    pub flows_max: usize,
    /// Largest number of flows that wait to be accepted. Datagrams that would begin more are dropped and counted as
    /// `udp_flow_overflows`. Default 256.
    pub backlog: usize,
    /// How long a flow may be without datagrams in either direction before it ends; `None` for ever.
    /// [`UdpFlow::set_idle_timeout`] changes it for one flow. Default 2 minutes, the least that RFC 4787 (REQ-5) allows a NAT.
    pub idle: Option<Duration>,
    /// Limit of the memory of datagrams that wait in all flows together, in bytes, without the first 4 KiB in each. A
    /// datagram beyond it is dropped and counted as `udp_rcvbuf_errors`, as is one beyond its flow's own SO_RCVBUF
    /// ([`UdpBuilder::recv_buffer_size`](crate::UdpBuilder::recv_buffer_size)). Default 16 MiB.
    pub queued_max: usize,
}

impl Default for UdpFlowConfig {
    fn default() -> Self {
        Self { flows_max: 4096, backlog: 256, idle: Some(Duration::from_secs(120)), queued_max: 16 << 20 }
    }
}

/// A UDP socket that yields *flows*: for each pair of a sender and a destination, a connected socket with the datagrams between the
/// two. Made by [`UdpBuilder::listen_flows`](crate::UdpBuilder::listen_flows) or
/// [`listen_any_flows`](crate::UdpBuilder::listen_any_flows). Readable, for polls, while flows wait.
///
/// ```
/// use sockeye::{Config, Stack, UdpBuilder, UdpFlowConfig, UdpSocket};
///
/// let stack = Stack::new(Config::default())?;
/// let listener = UdpBuilder::new_v4(&stack).listen_flows("127.0.0.1:0".parse()?, &UdpFlowConfig::default())?;
/// let client = UdpSocket::bind_on(&stack, "127.0.0.1:0")?;
/// client.connect(listener.local_addr()?)?;
/// client.send(b"one")?;
///
/// let (flow, peer) = listener.accept()?;
/// assert_eq!(peer, client.local_addr()?);
/// let mut bytes = [0; 1500];
/// assert_eq!(flow.recv(&mut bytes)?, 3); // The datagram that has begun the flow.
/// flow.send(b"another")?; // From the address that the client has asked.
/// assert_eq!(client.recv(&mut bytes)?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping the last handle ends the listener and the flows that wait. Accepted flows continue.
pub struct UdpFlowListener {
    pub(crate) handle: Held<Arc<Handle>>,
}

impl UdpFlowListener {
    pub(crate) fn of(socket: UdpSocket) -> Self {
        Self { handle: socket.handle }
    }

    /// The next flow, and its peer. Blocks unless [`set_nonblocking`](Self::set_nonblocking) is set, at most for the
    /// [timeout](Self::set_read_timeout).
    ///
    /// # Errors
    /// `WouldBlock` if no flow waits.
    pub fn accept(&self) -> io::Result<(UdpFlow, SocketAddr)> {
        let handle = self.handle.open()?;
        loop {
            let pcb = recv::accept(handle)?;
            let flow = UdpFlow::of(pcb, self.stack());
            // It may have been idle too long in the queue. What waits in it is too old then.
            if !flow.has_ended() {
                let peer = flow.peer_addr()?;
                return Ok((flow, peer));
            }
        }
    }

    /// The address on which the socket listens; the wildcard and port 0 if it listens on every port.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let (core, handle) = self.handle.enter::<Core>()?;
        let local = handle.pcb.name.load().local;
        Ok(scope::shown(&core.netifs, local, handle.pcb.is_mapped, local.addr))
    }

    /// Number of flows, including those that wait.
    pub fn flow_count(&self) -> usize {
        let flows = self.handle.open().ok().and_then(|handle| handle.pcb.role.listener());
        flows.map_or(0, |flows| flows.count())
    }
}

handle_methods!(UdpFlowListener);

impl fmt::Debug for UdpFlowListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpFlowListener")
            .field("local", &self.local_addr().ok())
            .field("flow_count", &self.flow_count())
            .finish_non_exhaustive()
    }
}

/// The datagrams between a peer and the address to which it sends: a connected UDP socket, with all methods in
/// [`socket`](Self::socket).
///
/// An ICMP error about a datagram of the flow is its pending error, as of any connected socket: `ConnectionRefused` for an unreachable
/// port. With [`UdpSocket::set_recv_err`] the socket keeps each of them, with its details.
///
/// A flow *ends* when it was idle for its [timeout](Self::set_idle_timeout), or when a new flow displaces it
/// ([`UdpFlowConfig::flows_max`]). Then every send fails with `TimedOut` or `ConnectionAborted`, and so does every
/// receive after waiting datagrams were received. The peer's next datagram begins a new flow; so does one that arrives
/// after the flow's last handle was dropped.
pub struct UdpFlow {
    socket: UdpSocket,
}

impl UdpFlow {
    fn of(pcb: Arc<Pcb>, stack: &Stack) -> Self {
        let handle = Arc::new(Handle { stack: stack.clone(), pcb });
        Self { socket: UdpSocket { handle: Held::new(stack.clone(), handle) } }
    }

    /// Receives a datagram of the peer: see [`UdpSocket::recv`].
    ///
    /// # Errors
    /// As there; once the flow has ended and nothing waits, `TimedOut` or `ConnectionAborted`.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buf)
    }

    /// Sends a datagram to the peer, from the address to which the peer sends: see [`UdpSocket::send`].
    ///
    /// # Errors
    /// As there; once the flow has ended, `TimedOut` or `ConnectionAborted`. A send at the moment of the end may still
    /// succeed.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.socket.send(buf)
    }

    /// The peer.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// The address to which the peer sends: with a transparent listener, any host's.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// How long the flow may be without datagrams in either direction; `None` for ever. It does not end earlier, and at
    /// most a sixteenth of that time and some milliseconds later; after a change, another sixteenth of the former time
    /// later.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_idle_timeout(&self, idle: Option<Duration>) -> io::Result<()> {
        set_idle_timeout(&self.socket, idle)
    }

    /// The timeout that was set, or the listener's.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn idle_timeout(&self) -> io::Result<Option<Duration>> {
        idle_timeout(&self.socket)
    }

    /// Ends the flow, and sends its peer an ICMP error about the oldest waiting datagram, or about an empty one, from
    /// the address to which the peer sends: with [`Unsent::PortUnreachable`], the peer's call fails with
    /// `ConnectionRefused`. Never blocks. While another handle of the flow's [socket](Self::socket) is held, the flow goes on.
    ///
    /// The number of ICMP errors is limited, per interface and per pair of addresses; errors beyond that are counted
    /// and not sent.
    ///
    /// # Errors
    /// `OutOfMemory` without packet memory; this handle of the flow is dropped nevertheless.
    pub fn reject(self, why: Unsent) -> io::Result<()> {
        reject(&self.socket, why)
    }

    /// Tells the peer with an ICMP error from `router` that one of its datagrams was not delivered. `router` is the
    /// host to which the peer sends ([`local_addr`](Self::local_addr)), or a host on the path whose report is passed
    /// on. `datagram` is the payload of that datagram, as far as known; the error quotes at most 548 bytes of it over
    /// IPv4 and 1,184 over IPv6. The flow continues. Never blocks.
    ///
    /// # Errors
    /// `InvalidInput` if `router` is of the other family; `OutOfMemory` without packet memory.
    pub fn report(&self, why: Unsent, router: IpAddr, datagram: &[u8]) -> io::Result<()> {
        report(&self.socket, why, router, datagram)
    }

    /// The flow as a socket. It cannot be connected elsewhere or disconnected.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The socket alone; it continues to be the flow.
    pub fn into_socket(self) -> UdpSocket {
        self.socket
    }

    /// Whether the flow has ended: it was idle too long, or another one has displaced it. Received datagrams may still
    /// wait.
    pub fn has_ended(&self) -> bool {
        has_ended(&self.socket)
    }
}

impl fmt::Debug for UdpFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpFlow")
            .field("local", &self.local_addr().ok())
            .field("peer", &self.peer_addr().ok())
            .finish_non_exhaustive()
    }
}

/// See [`UdpFlow::has_ended`].
pub(crate) fn has_ended(socket: &UdpSocket) -> bool {
    socket.handle.open().map_or(true, |handle| handle.pcb.receive.so.lock().ended.is_some())
}

/// See [`UdpFlow::set_idle_timeout`].
pub(crate) fn set_idle_timeout(socket: &UdpSocket, idle: Option<Duration>) -> io::Result<()> {
    nonzero(idle)?;
    let (core, handle) = socket.handle.enter::<Core>()?;
    panics::call(core, "an idle time-out", || {
        flows::set_idle_timeout(core, &handle.pcb, idle);
        Ok(())
    })
}

/// See [`UdpFlow::idle_timeout`].
pub(crate) fn idle_timeout(socket: &UdpSocket) -> io::Result<Option<Duration>> {
    Ok(socket.handle.open()?.pcb.role.flow().and_then(|part| part.idle_timeout()))
}

/// See [`UdpFlow::reject`].
pub(crate) fn reject(socket: &UdpSocket, why: Unsent) -> io::Result<()> {
    let pcb = &socket.handle.open()?.pcb;
    let oldest = pcb.receive.so.lock().queue.front().map(|datagram| datagram.payload.clone());
    let Some(tuple) = flows::tuple_of(pcb) else { return Err(Errno::NOTCONN.into()) };
    tell_peer(socket, why, tuple.local.addr, oldest.unwrap_or_default())
}

/// See [`UdpFlow::report`].
pub(crate) fn report(socket: &UdpSocket, why: Unsent, router: IpAddr, datagram: &[u8]) -> io::Result<()> {
    let core = socket.handle.enter::<Core>()?.0;
    let text = &datagram[..datagram.len().min(PAYLOAD_MAX_V4)];
    let text = memory::obtain(core, || core.pool.copy_in(text)).map_err(|_| errno::NOMEM)?;
    tell_peer(socket, why, crate::base::addr::unmapped(router), text)
}

/// Sends the error: the packet that it quotes is written anew, as far as it is not known.
fn tell_peer(socket: &UdpSocket, why: Unsent, router: IpAddr, text: Chain) -> io::Result<()> {
    let (core, handle) = socket.handle.enter::<Core>()?;
    let pcb = &handle.pcb;
    let (Some(FourTuple { local, remote }), Role::Flow(part)) = (flows::tuple_of(pcb), &pcb.role) else {
        return Err(Errno::NOTCONN.into());
    };
    let Some(addresses) = Addresses::new(remote.addr, local.addr) else { return Err(Errno::INVAL.into()) };
    if router.is_ipv4() != local.addr.is_ipv4() {
        return Err(Errno::INVAL.into());
    }
    let netif = match part.interface {
        LOOPBACK => NetifId::LOOPBACK,
        // If it is gone, there is no way back either.
        interface => NetifId::of_interface(core, interface).ok_or(Errno::NETUNREACH)?,
    };
    let ports = udp::Header { src_port: remote.port, dst_port: local.port };
    let ports = udp::emit(&ports, text.len(), ChecksumOut::Zero).ok_or(Errno::MSGSIZE)?;
    let mut payload = memory::obtain(core, || core.pool.copy_in(&ports)).map_err(|_| errno::NOMEM)?;
    payload.append(text);
    let header =
        ip::Header { addresses, protocol: ip::PROTOCOL_UDP, hop_limit: 64, traffic_class: 0, flow_label: 0 };
    let received = Received::rewritten(netif, header, payload).ok_or(Errno::MSGSIZE)?;
    panics::call(core, "an ICMP error", || {
        Context::run(core, |cx| icmp::report(cx, &received, why, router));
        Ok(())
    })
}

/// The listener of a socket that was made for it.
pub(super) fn flows_of(config: &UdpFlowConfig) -> Role {
    Role::Listener(Flows::new(config))
}
