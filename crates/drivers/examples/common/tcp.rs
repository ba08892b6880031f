//! Forwards connections from a stack through ordinary sockets.
//!
//! ```text
//! SYN ─► hook: may it? ── no ──► reset
//!               │ yes
//!        connect onward ─ fails ─► reset, or silence after a timeout
//!               │ works
//!        the SYN is answered ─► accept ─► two threads, one for each direction
//! ```
//!
//! So a peer's connect succeeds only if the one through the kernel has. Each direction copies through one buffer
//! with blocking calls: an end that does not read stops the one that writes, on either side. The end of one
//! direction is passed on and leaves the other alone; an error ends both.
//!
//! Bounds: [`CONNECTIONS_MAX`] at a time, those that are being made included; SYNs beyond are not answered, and come again.
//! It does not depend on where the packets come from. Tests: `tests/examples.rs`.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sockeye::{Stack, Syn, TcpListener, TcpSocket};

use super::{Policy, Protocol, canonical};

/// Most connections.
pub const CONNECTIONS_MAX: usize = 256;
/// Connections that wait for `accept`, at most.
const BACKLOG: usize = 128;
/// How long a connect through the kernel may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a peer may take for the last step of its handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(60);
/// Bytes that are on their way in one direction of one connection, beside both sockets' buffers.
const BUFFER: usize = 64 << 10;

struct Forwarder {
    policy: Arc<Policy>,
    /// Connected through the kernel, and not accepted yet, by destination and peer.
    made: Mutex<HashMap<(SocketAddr, SocketAddr), Made>>,
    /// So many clones there are, so many connections and one.
    slots: Arc<()>,
}

struct Made {
    at: Instant,
    stream: std::net::TcpStream,
    slot: Arc<()>,
}

/// Serves all connections on a thread of its own.
pub fn serve(stack: &Stack, policy: Arc<Policy>) -> io::Result<()> {
    // An IPv6 socket, which takes IPv4 too.
    let mut socket = TcpSocket::new_v6(stack);
    socket.set_transparent(true);
    let listener = socket.listen_any(BACKLOG)?;
    let forwarder = Arc::new(Forwarder { policy, made: Mutex::default(), slots: Arc::default() });
    let asked = Arc::clone(&forwarder);
    listener.set_syn_hook(Some(Box::new(move |syn| asked.on_syn(syn))));
    thread::Builder::new().name("accept".to_owned()).spawn(move || forwarder.accept(&listener))?;
    Ok(())
}

impl Forwarder {
    /// Decides on a connection. Does not block: it runs on a thread of the stack.
    fn on_syn(self: &Arc<Self>, syn: Syn) {
        let to = canonical(syn.local_addr());
        if !(self.policy)(Protocol::Tcp, to) {
            return syn.refuse();
        }
        let slot = Arc::clone(&self.slots);
        if Arc::strong_count(&slot) > CONNECTIONS_MAX + 1 {
            return syn.ignore();
        }
        let own = Arc::clone(self);
        // Where there can be no thread the SYN is dropped, and comes again.
        let _ = thread::Builder::new().spawn(move || own.connect(syn, to, slot));
    }

    fn connect(&self, syn: Syn, to: SocketAddr, slot: Arc<()>) {
        match std::net::TcpStream::connect_timeout(&to, CONNECT_MAX) {
            Ok(stream) => {
                let made = Made { at: Instant::now(), stream, slot };
                let mut all = self.made.lock().unwrap_or_else(PoisonError::into_inner);
                all.retain(|_, made| made.at.elapsed() < HANDSHAKE_MAX);
                all.insert((to, canonical(syn.peer_addr())), made);
                drop(all);
                syn.accept();
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => syn.ignore(),
            Err(_) => syn.refuse(),
        }
    }

    fn accept(&self, listener: &TcpListener) {
        while let Ok((inner, peer)) = listener.accept() {
            let Ok(local) = inner.local_addr() else { continue };
            let name = (canonical(local), canonical(peer));
            let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            if let Some(Made { stream, slot, .. }) = made {
                // Where there can be no thread both streams are dropped, which resets or closes them.
                let _ = thread::Builder::new().spawn(move || relay(&inner, &stream, slot));
            }
        }
    }
}

/// Copies both ways until both directions have ended.
fn relay(inner: &sockeye::TcpStream, outer: &std::net::TcpStream, slot: Arc<()>) {
    let _ = (inner.set_nodelay(true), outer.set_nodelay(true));
    let give_up = || {
        let _ = (inner.shutdown(Shutdown::Both), outer.shutdown(Shutdown::Both));
    };
    thread::scope(|scope| {
        let out = thread::Builder::new().spawn_scoped(scope, || {
            match pump(inner, outer) {
                Ok(()) => drop(outer.shutdown(Shutdown::Write)),
                Err(_) => give_up(),
            };
        });
        match out.and_then(|_| pump(outer, inner)) {
            Ok(()) => drop(inner.shutdown(Shutdown::Write)),
            Err(_) => give_up(),
        }
    });
    drop(slot);
}

/// Copies until the end of `from`.
fn pump(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => to.write_all(&buffer[..len])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
