//! Flows of datagrams from inside.
//!
//! The stack makes a flow of each pair of client and destination. Each has an ordinary socket that is connected to where it leads, so that answers come only from
//! the host that was asked. What the host's socket is told by ICMP, the client is told.
//!
//! A flow ends when it was idle for its time. Bounds: half of `--flows-max`, beyond which the one that was idle longest gives way; the stack's for what waits ([`sockeye::UdpFlowConfig`]). A datagram that cannot be
//! sent at once is lost, as at any router.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use sockeye::tokio::{UdpFlow, UdpFlowListener};
use sockeye::{UdpBuilder, UdpFlowConfig, Unsent};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::{Cx, task};
use crate::args::UDP_IDLE;
use crate::flows::Flow;
use crate::policy::Protocol;
use crate::rates::Way;

/// Bytes of the largest datagram, and more.
const DATAGRAM_MAX: usize = 64 << 10;
/// Datagrams of one direction before the other tasks have their turn.
const TURN: usize = 32;
/// Between two tries to accept when there is no memory for it.
const RETRY: Duration = Duration::from_millis(10);

thread_local! {
    /// Where a datagram stands between two calls. In use within one poll of a task only.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; DATAGRAM_MAX].into());
}

/// Starts the tasks.
pub fn serve(cx: &Rc<Cx>) -> io::Result<()> {
    let mut config = UdpFlowConfig::default();
    // The rest of the table is for connections: a flow of datagrams begins with one packet from anybody, and stays for its time.
    (config.flows_max, config.idle) = ((cx.shared.flows_max / 2).max(1), Some(UDP_IDLE));
    let builder = UdpBuilder::new_v6(&cx.stack).transparent(true).canonical_addrs(true);
    let listener = UdpFlowListener::from_std(builder.listen_any_flows(&config)?)?;
    task(accept(Rc::clone(cx), listener));
    Ok(())
}

async fn accept(cx: Rc<Cx>, listener: UdpFlowListener) {
    loop {
        match listener.accept().await {
            Ok((flow, from)) => {
                task(run(Rc::clone(&cx), flow, from));
                cx.share.turn().await;
            }
            // No memory, which comes back.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn run(cx: Rc<Cx>, inner: UdpFlow, from: SocketAddr) {
    // A flow that has ended already.
    let Ok(to) = inner.local_addr() else { return };
    let target = match cx.shared.policy.decide(to) {
        Ok(target) if cx.shared.upstream.carries_datagrams() => target.addr(),
        Ok(target) => return refuse(&cx, inner, (from, to), target.addr()),
        Err(onward) => return refuse(&cx, inner, (from, to), onward),
    };
    let Some(flow) = cx.shared.flows.begin(Protocol::Udp, (from, to), target) else { return };
    let outer = match cx.share.measure(onward(target)).await {
        Ok(outer) => outer,
        Err(error) => return tell(&inner, &error),
    };
    tokio::select! {
        () = ask(&inner, &outer, &flow) => {}
        () = answer(&inner, &outer, &flow) => {}
    }
}

fn refuse(cx: &Cx, inner: UdpFlow, ends: (SocketAddr, SocketAddr), onward: SocketAddr) {
    cx.shared.flows.refused(Protocol::Udp, ends, onward);
    // It fails if the flow has ended.
    let _ = inner.reject(Unsent::Prohibited);
}

async fn onward(to: SocketAddr) -> io::Result<UdpSocket> {
    let wildcard: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(wildcard).await?;
    socket.connect(to).await?;
    // A new socket counts as full until the runtime has looked, and the first datagram waits already.
    socket.writable().await?;
    Ok(socket)
}

/// Sends the client's datagrams onward until the flow ends.
async fn ask(inner: &UdpFlow, outer: &UdpSocket, flow: &Flow) {
    loop {
        if inner.socket().readable().await.is_err() {
            return;
        }
        for _ in 0..TURN {
            let done = BUFFER.with_borrow_mut(|buffer| match inner.socket().try_recv(buffer) {
                Ok(len) if flow.admits(Way::Out, len) => {
                    flow.note_sent(len);
                    Ok(outer.try_send(&buffer[..len]).map(drop))
                }
                // Faster than `--rate-bytes`.
                Ok(_) => Ok(Ok(())),
                Err(error) => Err(error),
            });
            match done {
                Ok(sent) => told(inner, sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) if inner.has_ended() => return,
                // The client's host has said something about an answer.
                Err(_) => {}
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Sends answers back until the flow ends.
async fn answer(inner: &UdpFlow, outer: &UdpSocket, flow: &Flow) {
    loop {
        // What ICMP has said is an error of the socket, and no readiness to read.
        let Ok(ready) = outer.ready(Interest::READABLE | Interest::ERROR).await else { return };
        if ready.is_error() {
            told(inner, pending_error(outer));
        }
        for _ in 0..TURN {
            let done = BUFFER.with_borrow_mut(|buffer| -> io::Result<()> {
                let len = outer.try_recv(buffer)?;
                if flow.admits(Way::In, len) {
                    flow.note_received(len);
                    // One for which there is no room is lost.
                    let _ = inner.socket().try_send(&buffer[..len]);
                }
                Ok(())
            });
            match done {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                done => told(inner, done),
            }
        }
        if inner.has_ended() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The pending error of a socket of the host (SO_ERROR), which is taken.
pub fn pending_error(socket: &UdpSocket) -> io::Result<()> {
    let would_block = || io::Error::from(ErrorKind::WouldBlock);
    // With none the readiness is cleared; an error that comes meanwhile sets it again.
    let error = socket.try_io(Interest::ERROR, || socket.take_error()?.ok_or_else(would_block));
    error.map_or(Ok(()), Err)
}

fn told(inner: &UdpFlow, done: io::Result<()>) {
    if let Err(error) = done {
        tell(inner, &error);
    }
}

/// Tells the client what the network says about its datagrams.
fn tell(inner: &UdpFlow, error: &io::Error) {
    let why = match error.kind() {
        ErrorKind::ConnectionRefused => Unsent::PortUnreachable,
        ErrorKind::HostUnreachable => Unsent::HostUnreachable,
        ErrorKind::NetworkUnreachable => Unsent::NetworkUnreachable,
        ErrorKind::PermissionDenied => Unsent::Prohibited,
        _ => return,
    };
    if let Ok(host) = inner.local_addr() {
        let _ = inner.report(why, host.ip(), &[]);
    }
}
