//! Pings from inside: the gateway sends an echo request from a ping socket of the host (icmp(7)), and passes the answer on. If the user may not open
//! ping sockets (`net.ipv4.ping_group_range`), a ping gets no answer, so that no dead host looks alive.
//!
//! Other protocols are answered with "protocol unreachable". Bound: [`PINGS_MAX`] at a time; further ones are dropped, as on a busy link.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use sockeye::{IpPacket, Unsent};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use super::udp::pending_error;
use super::{Cx, task};
use crate::policy::Protocol;

/// Pings that wait for their answer.
const PINGS_MAX: usize = 128;
/// For an answer: ping(8) says so after ten seconds at the latest.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a ping's header.
const HEADER: usize = 8;

/// Starts the task.
pub fn serve(cx: &Rc<Cx>) -> io::Result<()> {
    let (give, packets) = channel(PINGS_MAX);
    let plan = cx.shared.plan;
    cx.stack.set_ip_hook(Some(Box::new(move |packet: IpPacket| match packet.echo() {
        Some(_) if plan.host.contains(&packet.dst()) || plan.names.contains(&packet.dst()) => packet.answer(),
        // One that finds no place is dropped.
        Some(_) => drop(give.try_send(packet)),
        None => packet.reject(Unsent::ProtocolUnreachable),
    })));
    task(answer(Rc::clone(cx), packets));
    Ok(())
}

async fn answer(cx: Rc<Cx>, mut packets: Receiver<IpPacket>) {
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(PINGS_MAX));
    while let Some(packet) = packets.recv().await {
        let Ok(place) = std::sync::Arc::clone(&places).try_acquire_owned() else { continue };
        let cx = Rc::clone(&cx);
        task(async move {
            run(&cx, packet).await;
            drop(place);
        });
    }
}

async fn run(cx: &Cx, packet: IpPacket) {
    let (from, to) = (SocketAddr::new(packet.src(), 0), SocketAddr::new(packet.dst(), 0));
    let target = match cx.shared.policy.decide(to) {
        Ok(target) if cx.shared.upstream.carries_datagrams() => target.addr(),
        Ok(target) => return cx.shared.flows.refused(Protocol::Icmp, (from, to), target.addr()),
        Err(onward) => {
            cx.shared.flows.refused(Protocol::Icmp, (from, to), onward);
            return packet.reject(Unsent::Prohibited);
        }
    };
    let Some(flow) = cx.shared.flows.begin(Protocol::Icmp, (from, to), target) else { return };
    let len = packet.payload_len();
    match timeout(TIMEOUT, ask(target.ip(), &packet, len)).await {
        Ok(Ok(())) => {
            flow.note_sent(len);
            flow.note_received(len);
            packet.answer();
        }
        Ok(Err(error)) => match error.kind() {
            io::ErrorKind::HostUnreachable => packet.reject(Unsent::HostUnreachable),
            io::ErrorKind::NetworkUnreachable => packet.reject(Unsent::NetworkUnreachable),
            _ => packet.ignore(),
        },
        Err(_) => packet.ignore(),
    }
}

/// Asks the host with as many bytes. Returns when it has answered.
async fn ask(to: IpAddr, packet: &IpPacket, len: usize) -> io::Result<()> {
    let (domain, protocol) = match to {
        IpAddr::V4(_) => (Domain::IPV4, socket2::Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, socket2::Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.connect(&SocketAddr::new(to, 0).into())?;
    let socket = UdpSocket::from_std(std::net::UdpSocket::from(socket))?;
    let mut bytes = vec![0; len.max(HEADER)];
    packet.copy_payload(HEADER, &mut bytes[HEADER..]);
    // Type, code and sequence number; the kernel writes checksum and identifier.
    bytes[0] = if to.is_ipv4() { 8 } else { 128 };
    let (_, seq) = packet.echo().unwrap_or_default();
    bytes[6..8].copy_from_slice(&seq.to_be_bytes());
    socket.send(&bytes).await?;
    let mut answer = vec![0; bytes.len()];
    loop {
        // What ICMP has said is an error of the socket, and no readiness to read.
        if socket.ready(Interest::READABLE | Interest::ERROR).await?.is_error() {
            pending_error(&socket)?;
        }
        match socket.try_recv(&mut answer) {
            Ok(got) if got == bytes.len() && answer[6..] == bytes[6..] => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}
