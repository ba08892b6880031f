//! UDP flows from inside.
//!
//! The stack makes a flow of each pair of client and destination. Each flow has an ordinary socket that is connected to the destination, so that only the host that
//! was asked can answer. ICMP errors that the host's socket receives are passed on to the client.
//!
//! A datagram in fragments comes by another queue than whole ones, so it may come to a loop that does not have its flow, which hands it over ([`hand_over`]).
//!
//! A flow ends after an idle time. Bounds: half of `--flows-max`, beyond which the flow that has been idle longest ends; the stack's bounds for queued datagrams ([`sockeye::UdpFlowConfig`]). A datagram that cannot be
//! sent at once is lost, as at any router.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use socket2::Type;
use sockeye::tokio::{UdpFlow, UdpFlowListener};
use sockeye::{UdpBuilder, UdpFlowConfig, Unsent};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::yield_now;

use super::credit::Begun;
use super::queues::Owned;
use super::runs::{Run, Sender, Together};
use super::{Cx, scratch, task};
use crate::args::UDP_IDLE;
use crate::flows::Flow;
use crate::policy::Protocol;
use crate::rates::Way;
use crate::upstream::connecting;

/// Bytes of packet memory that a flow's datagrams may take while they wait, within what all have: as much as comes between two turns of a flow.
const WAITING_MAX: usize = 1 << 20;
/// Datagrams from outside before the other tasks have their turn.
const TURN: usize = 64;
/// The same for those from inside: as many as the stack takes in before.
const TURN_OUT: usize = 256;
/// Between two tries to accept when there is no memory for it.
const RETRY: Duration = Duration::from_millis(10);

/// Starts the tasks.
pub fn serve(cx: &Rc<Cx>) -> io::Result<()> {
    let mut config = UdpFlowConfig::default();
    // The rest of the table is for connections, and for clients of published ports: a flow of datagrams begins with one packet from anybody, and stays for its time.
    (config.flows_max, config.idle) = ((cx.shared.flows_max / 2).max(1), Some(UDP_IDLE));
    let builder = UdpBuilder::new_v6(&cx.stack).transparent(true).canonical_addrs(true);
    let builder = builder.recv_buffer_size(WAITING_MAX);
    let listener = UdpFlowListener::from_std(builder.listen_any_flows(&config)?)?;
    task(accept(Rc::clone(cx), listener));
    Ok(())
}

async fn accept(cx: Rc<Cx>, listener: UdpFlowListener) {
    loop {
        match listener.accept().await {
            Ok((flow, from)) => begin(&cx, flow, from).await,
            // No memory, which comes back.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn begin(cx: &Rc<Cx>, inner: UdpFlow, from: SocketAddr) {
    // A flow that has ended already.
    let Ok(to) = inner.local_addr() else { return };
    // Another loop's flow needs no rule: that loop has permitted it, or it answers a client of a published port.
    let Ok(owned) = cx.own(Protocol::Udp, (from, to)) else {
        let cx = Rc::clone(cx);
        task(async move { hand_over(&cx, &inner, (from, to)).await });
        return;
    };
    match cx.shared.policy.decide(to) {
        Ok(target) if cx.shared.upstream.carries_datagrams() => {
            let begun = cx.credits.datagrams.begin().await;
            task(run(Rc::clone(cx), inner, (from, to, target.addr()), (owned, begun)));
        }
        Ok(target) => refuse(cx, inner, (from, to), target.addr()),
        Err(onward) => refuse(cx, inner, (from, to), onward),
    }
}

async fn run(
    cx: Rc<Cx>,
    inner: UdpFlow,
    (from, to, target): (SocketAddr, SocketAddr, SocketAddr),
    (owned, begun): (Option<Owned>, Begun),
) {
    let Some(mut flow) = cx.shared.flows.begin(Protocol::Udp, (from, to), target) else { return };
    flow.owned = owned;
    let outer = match onward(target) {
        Ok(outer) => outer,
        Err(error) => return tell(&inner, &error),
    };
    tokio::select! {
        () = ask(&inner, &outer, &flow) => {}
        () = answer(&inner, &outer, &flow, &begun) => {}
    }
}

/// Gives datagrams to the loop that has their flow, until none has, or none comes for a time.
async fn hand_over(cx: &Cx, inner: &UdpFlow, ends: (SocketAddr, SocketAddr)) {
    let Some(share) = &cx.share else { return };
    let hand = |buffer: &mut [u8]| match inner.socket().try_recv(buffer) {
        Ok(len) => share.queues.hand_over(share.index, ends, &buffer[..len]),
        // There is none, or the client's host has said something.
        Err(_) => !inner.has_ended(),
    };
    while inner.socket().readable().await.is_ok() && scratch::with(hand) {
        yield_now().await;
    }
}

fn refuse(cx: &Cx, inner: UdpFlow, ends: (SocketAddr, SocketAddr), onward: SocketAddr) {
    cx.shared.flows.refused(Protocol::Udp, ends, onward);
    // It fails if the flow has ended.
    let _ = inner.reject(Unsent::Prohibited);
}

/// A socket of the host that is connected to `to`, from a port that the kernel chooses.
///
/// # Errors
/// Those of [`connecting`].
pub fn onward(to: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::from_std(connecting(to, Type::DGRAM)?.into())
}

/// Sends the client's datagrams onward until the flow ends.
async fn ask(inner: &UdpFlow, outer: &UdpSocket, flow: &Flow) {
    let sender = Sender::default();
    while inner.socket().readable().await.is_ok() {
        if scratch::with(|buffer| pass_on(inner, (outer, &sender), flow, buffer)).is_break() {
            return;
        }
        yield_now().await;
    }
}

/// Sends what waits, [`TURN_OUT`] datagrams at most. `Break` if the flow has ended.
fn pass_on(
    inner: &UdpFlow,
    (outer, sender): (&UdpSocket, &Sender),
    flow: &Flow,
    buffer: &mut [u8],
) -> ControlFlow<()> {
    let mut run = Run::default();
    let mut ended = ControlFlow::Continue(());
    let send = |together: Option<Together<'_>>| {
        if let Some(together) = together {
            sender.send(outer, &together, |error| tell(inner, error));
        }
    };
    for _ in 0..TURN_OUT {
        match inner.socket().try_recv(run.room(buffer)) {
            Ok(len) if flow.admits(Way::Out, len) => {
                flow.note_sent(len);
                if !run.takes(len) {
                    send(run.take(buffer));
                }
                run.push(len);
            }
            // Faster than `--rate-bytes`.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) if inner.has_ended() => {
                ended = ControlFlow::Break(());
                break;
            }
            // The client's host has said something about an answer.
            Err(_) => {}
        }
    }
    send(run.take(buffer));
    ended
}

/// Sends answers back until the flow ends.
async fn answer(inner: &UdpFlow, outer: &UdpSocket, flow: &Flow, begun: &Begun) {
    loop {
        // What ICMP has said is an error of the socket, and no readiness to read.
        let Ok(ready) = outer.ready(Interest::READABLE | Interest::ERROR).await else { return };
        if ready.is_error() {
            told(inner, pending_error(outer));
        }
        for _ in 0..TURN {
            let done = scratch::with(|buffer| -> io::Result<()> {
                let len = outer.try_recv(buffer)?;
                begun.answered();
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
        yield_now().await;
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
