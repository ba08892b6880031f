//! Forwards datagrams from a stack through ordinary sockets, and their answers back.
//!
//! The stack makes a *flow* of each pair of client and destination: a socket with their datagrams. Each gets an ordinary socket of its own,
//! so that answers come only from the host that was asked, and a thread for each direction. What the ordinary socket is told by ICMP, the
//! client is told. The stack ends a flow that is idle, and with it both threads.
//!
//! Bounds: [`FLOWS_MAX`]; beyond, the flow that was idle longest ends. It does not depend on where the packets come from. Tests:
//! `tests/examples.rs`.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sockeye::{Stack, UdpBuilder, UdpFlow, UdpFlowConfig, UdpFlowListener, Unsent};

use super::{Policy, Protocol};

/// Most flows.
pub const FLOWS_MAX: usize = 256;
/// How long a flow without datagrams is kept.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// How often a thread that waits for answers looks whether the flow has ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of the largest datagram, and more.
const DATAGRAM_MAX: usize = 64 << 10;

/// Serves all datagrams on a thread of its own.
pub fn serve(stack: &Stack, policy: Arc<Policy>) -> io::Result<()> {
    let mut config = UdpFlowConfig::default();
    (config.flows_max, config.idle) = (FLOWS_MAX, Some(IDLE_MAX));
    let builder = UdpBuilder::new_v6(stack).transparent(true).canonical_addrs(true);
    let listener = builder.listen_any_flows(&config)?;
    thread::Builder::new().name("datagrams".to_owned()).spawn(move || accept(&listener, &policy))?;
    Ok(())
}

fn accept(listener: &UdpFlowListener, policy: &Arc<Policy>) {
    while let Ok((flow, _)) = listener.accept() {
        // A flow that cannot be led onward ends here, and is as good as lost.
        let Ok(to) = flow.local_addr() else { continue };
        if !policy(Protocol::Udp, to) {
            let _ = flow.reject(Unsent::Prohibited);
            continue;
        }
        let Ok(socket) = onward(to) else { continue };
        let (flow, socket) = (Arc::new(flow), Arc::new(socket));
        let (asked, answering) = (Arc::clone(&flow), Arc::clone(&socket));
        let asking = thread::Builder::new().spawn(move || ask(&asked, &socket));
        if asking.is_ok() {
            let _ = thread::Builder::new().spawn(move || answer(&flow, &answering));
        }
    }
}

/// An ordinary socket that is connected to `to`.
fn onward(to: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let wildcard: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = std::net::UdpSocket::bind(wildcard)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(LOOK_EVERY))?;
    Ok(socket)
}

/// Sends the client's datagrams onward until the flow ends.
fn ask(flow: &UdpFlow, socket: &std::net::UdpSocket) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        match flow.recv(&mut buffer) {
            // A datagram that cannot be sent is lost, as any may be; what the network says of it is told.
            Ok(len) => drop(socket.send(&buffer[..len]).map_err(|error| tell(flow, &error))),
            Err(error) if has_ended(&error) => return,
            // The client's host has said something about an answer.
            Err(_) => {}
        }
    }
}

/// Sends answers back until the flow ends.
fn answer(flow: &UdpFlow, socket: &std::net::UdpSocket) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        match socket.recv(&mut buffer) {
            Ok(len) => drop(flow.send(&buffer[..len])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => tell(flow, &error),
        }
        if flow.has_ended() {
            return;
        }
    }
}

/// Tells the client what the network says about its datagrams.
fn tell(flow: &UdpFlow, error: &io::Error) {
    let why = match error.kind() {
        ErrorKind::ConnectionRefused => Unsent::PortUnreachable,
        ErrorKind::HostUnreachable => Unsent::HostUnreachable,
        ErrorKind::NetworkUnreachable => Unsent::NetworkUnreachable,
        ErrorKind::PermissionDenied => Unsent::Prohibited,
        _ => return,
    };
    if let Ok(host) = flow.local_addr() {
        let _ = flow.report(why, host.ip(), &[]);
    }
}

fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionAborted)
}
