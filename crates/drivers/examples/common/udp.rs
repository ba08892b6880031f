//! Forwards datagrams from a stack through ordinary sockets, and their answers back.
//!
//! One socket of the stack receives for every host and port. Each pair of client and destination is a *flow* with an
//! ordinary socket of its own, so that answers come only from the host that was asked; a thread of the flow sends them
//! back in the destination's name. A flow without answers for [`IDLE_MAX`], or one that is refused, ends; the next
//! datagram makes another.
//!
//! Bounds: [`FLOWS_MAX`]; datagrams of others are dropped then, as a full network would. It does not depend on where the
//! packets come from. Tests: `tests/examples.rs`.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use sockeye::{SendMeta, Stack, UdpBuilder, UdpSocket};

use super::{Policy, Protocol, canonical};

/// Most flows.
pub const FLOWS_MAX: usize = 256;
/// How long a flow without answers is kept.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Bytes of the largest datagram, and more.
const DATAGRAM_MAX: usize = 64 << 10;

/// The client, and the destination that it asks.
type Name = (SocketAddr, SocketAddr);

struct Forwarder {
    policy: Arc<Policy>,
    any: UdpSocket,
    flows: Mutex<HashMap<Name, Arc<std::net::UdpSocket>>>,
}

/// Serves all datagrams on a thread of its own.
pub fn serve(stack: &Stack, policy: Arc<Policy>) -> io::Result<()> {
    let any = UdpBuilder::new_v6(stack).transparent(true).bind_any()?;
    let forwarder = Arc::new(Forwarder { policy, any, flows: Mutex::default() });
    thread::Builder::new().name("datagrams".to_owned()).spawn(move || forwarder.receive())?;
    Ok(())
}

impl Forwarder {
    fn receive(self: &Arc<Self>) {
        let mut buffer = vec![0; DATAGRAM_MAX];
        while let Ok(meta) = self.any.recv_msg(&mut [IoSliceMut::new(&mut buffer)]) {
            let to = canonical(SocketAddr::new(meta.dst, meta.dst_port));
            if !(self.policy)(Protocol::Udp, to) {
                continue;
            }
            // A datagram that cannot be sent is lost, as any may be.
            if let Ok(socket) = self.flow((canonical(meta.from), to)) {
                let _ = socket.send(&buffer[..meta.len]);
            }
        }
    }

    /// The flow's socket, a new one if need be.
    fn flow(self: &Arc<Self>, name: Name) -> io::Result<Arc<std::net::UdpSocket>> {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = flows.get(&name) {
            return Ok(Arc::clone(socket));
        }
        if flows.len() >= FLOWS_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let wildcard: SocketAddr = match name.1 {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = Arc::new(std::net::UdpSocket::bind(wildcard)?);
        socket.connect(name.1)?;
        socket.set_read_timeout(Some(IDLE_MAX))?;
        let (own, answers) = (Arc::clone(self), Arc::clone(&socket));
        thread::Builder::new().spawn(move || own.answer(name, &answers))?;
        flows.insert(name, Arc::clone(&socket));
        Ok(socket)
    }

    /// Sends answers back until there are none any more.
    fn answer(&self, name: Name, answers: &std::net::UdpSocket) {
        let (client, host) = name;
        let meta = SendMeta { src: Some(host.ip()), src_port: Some(host.port()), ..SendMeta::to(client) };
        let mut buffer = vec![0; DATAGRAM_MAX];
        while let Ok(len) = answers.recv(&mut buffer) {
            let _ = self.any.send_msg(&[IoSlice::new(&buffer[..len])], &meta);
        }
        self.flows.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
    }
}
