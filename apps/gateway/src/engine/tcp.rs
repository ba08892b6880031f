//! Connections from inside.
//!
//! ```text
//! SYN ─► hook ─► policy: refused ────────────────────────────────► reset
//!                  │ permitted
//!                  connect onward: refused ───────────────────────► reset
//!                  │     │ unreachable, prohibited ────────────────► the same ICMP error
//!                  │     │ timed out, or no resources here ────────► no answer: the client times out, or retries
//!                  │ connected, or connected and then reset
//!                  the SYN is answered, together with the connection ─► accept ─► relay
//! ```
//!
//! So a client's connect succeeds only if the outbound one has. A proxy's "no" is one of the first three (`upstream/`), never silence. Bounds: [`SYNS_MAX`] waiting for their task; pending connects (`attempts.rs`); the table of flows, beyond which a SYN gets no
//! answer; [`BACKLOG`] connections waiting for `accept`.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use sockeye::tokio::{TcpListener, TcpStream};
use sockeye::{Syn, TcpSocket, Unsent};
use tokio::sync::mpsc::{Receiver, channel};

use super::credit::Begun;
use super::{Cx, relay, task};
use crate::flows::Flow;
use crate::policy::{Protocol, Target};
use crate::upstream::Connected;

/// Connections that wait for `accept`.
const BACKLOG: usize = 4096;
/// SYNs that wait for their task. What comes on top is dropped, and comes again.
const SYNS_MAX: usize = 256;
/// Between two tries to accept when there is no memory for it.
const RETRY: Duration = Duration::from_millis(10);

/// The connection onward, which goes along with the SYN. It is dropped with a handshake that is not finished.
struct Onward {
    connected: Connected,
    flow: Flow,
}

/// Starts the tasks.
pub fn serve(cx: &Rc<Cx>) -> io::Result<()> {
    // An IPv6 socket, which takes IPv4 too, and shows its addresses as what they are.
    let mut socket = TcpSocket::new_v6(&cx.stack);
    socket.set_canonical_addrs(true);
    socket.set_transparent(true);
    socket.set_nodelay(true);
    socket.set_keepalive(true);
    let listener = socket.listen_any(BACKLOG)?;
    let (give, syns) = channel(SYNS_MAX);
    listener.set_syn_hook(Some(Box::new(move |syn| {
        // One that finds no place is dropped, and comes again.
        let _ = give.try_send(syn);
    })));
    let listener = TcpListener::from_std(listener)?;
    task(decide(Rc::clone(cx), syns));
    task(accept(listener));
    Ok(())
}

async fn decide(cx: Rc<Cx>, mut syns: Receiver<Syn>) {
    let credit = &cx.credits.connections;
    while let Some(syn) = syns.recv().await {
        if (syns.len() > SYNS_MAX / 4 || credit.is_used_up()) && cx.attempts.is_crowded(syn.local_addr()) {
            // Most of the connects under way are to there: others' are more likely to succeed, and must not be lost behind it.
            syn.ignore();
            continue;
        }
        match cx.shared.policy.decide(syn.local_addr()) {
            Ok(target) => {
                let (begun, cx) = (credit.begin().await, Rc::clone(&cx));
                task(async move { connect(&cx, syn, target, &begun).await });
            }
            Err(onward) => {
                cx.shared.flows.refused(Protocol::Tcp, (syn.peer_addr(), syn.local_addr()), onward);
                syn.refuse();
            }
        }
    }
}

async fn connect(cx: &Cx, syn: Syn, target: Target, begun: &Begun) {
    let (from, to) = (syn.peer_addr(), syn.local_addr());
    let attempt = cx.attempts.begin(from.ip(), to);
    let Some(mut flow) = cx.shared.flows.begin(Protocol::Tcp, (from, to), target.addr()) else {
        return syn.ignore();
    };
    match cx.own(Protocol::Tcp, (from, to)) {
        Ok(owned) => flow.owned = owned,
        // Another loop has taken an earlier one of this client's.
        Err(_) => return syn.ignore(),
    }
    let connected = tokio::select! {
        biased;
        connected = cx.shared.upstream.connect(target) => connected,
        () = attempt.displaced() => {
            flow.ends_by("displaced");
            return syn.ignore();
        }
    };
    drop(attempt);
    match connected {
        Ok(connected) => {
            begun.answered();
            syn.accept_with(Onward { connected, flow });
        }
        Err(error) => {
            flow.ends_by(name(&error));
            match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => syn.refuse(),
                io::ErrorKind::HostUnreachable => syn.reject(Unsent::HostUnreachable),
                io::ErrorKind::NetworkUnreachable => syn.reject(Unsent::NetworkUnreachable),
                io::ErrorKind::PermissionDenied => syn.reject(Unsent::Prohibited),
                _ => syn.ignore(),
            }
        }
    }
}

/// An error of connecting, for the log.
fn name(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::TimedOut => "timed out",
        io::ErrorKind::HostUnreachable => "host unreachable",
        io::ErrorKind::NetworkUnreachable => "network unreachable",
        io::ErrorKind::PermissionDenied => "prohibited",
        _ => "cannot connect",
    }
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((inner, _)) => begin(inner),
            // No memory, which comes back.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

fn begin(inner: TcpStream) {
    if let Some(Onward { connected, flow }) = inner.take_accept_value() {
        task(relay::run(inner, connected, flow));
    }
}
