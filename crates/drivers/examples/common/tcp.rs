//! Forwards connections from a stack through ordinary sockets.
//!
//! ```text
//! SYN ─► hook: may it? ── no ──► reset
//!               │ yes
//!        connect onward ─ fails ─► reset, or silence after a timeout
//!               │ works
//!        the SYN is answered, the onward connection goes along ─► accept ─► two threads, one for each direction
//! ```
//!
//! So a peer's connect succeeds only if the one through the kernel has. Each direction copies through one buffer
//! with blocking calls: an end that does not read stops the one that writes, on either side. The end of one
//! direction is passed on and leaves the other alone; an error ends both.
//!
//! Bounds: [`CONNECTIONS_MAX`] at a time, those that are being made included; SYNs beyond are not answered, and come again.
//! It does not depend on where the packets come from. Tests: `tests/examples.rs`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sockeye::{Stack, Syn, TcpListener, TcpSocket};

use super::{Policy, Protocol};

/// Most connections.
pub const CONNECTIONS_MAX: usize = 256;
/// Connections that wait for `accept`, at most.
const BACKLOG: usize = 128;
/// How long a connect through the kernel may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Bytes that are on their way in one direction of one connection, beside both sockets' buffers.
const BUFFER: usize = 64 << 10;

struct Forwarder {
    policy: Arc<Policy>,
    /// So many clones there are, so many connections and one.
    slots: Arc<()>,
}

/// The connection onward. It goes along with the SYN, and is dropped with a handshake that is not finished.
struct Made {
    stream: std::net::TcpStream,
    slot: Arc<()>,
}

/// Serves all connections on a thread of its own.
pub fn serve(stack: &Stack, policy: Arc<Policy>) -> io::Result<()> {
    // An IPv6 socket, which takes IPv4 too, and shows its addresses as what they are.
    let mut socket = TcpSocket::new_v6(stack);
    socket.set_canonical_addrs(true);
    socket.set_transparent(true);
    let listener = socket.listen_any(BACKLOG)?;
    let forwarder = Forwarder { policy, slots: Arc::default() };
    listener.set_syn_hook(Some(Box::new(move |syn| forwarder.on_syn(syn))));
    thread::Builder::new().name("accept".to_owned()).spawn(move || accept(&listener))?;
    Ok(())
}

impl Forwarder {
    /// Decides on a connection. Does not block: it runs on a thread of the stack.
    fn on_syn(&self, syn: Syn) {
        let to = syn.local_addr();
        if !(self.policy)(Protocol::Tcp, to) {
            return syn.refuse();
        }
        let slot = Arc::clone(&self.slots);
        if Arc::strong_count(&slot) > CONNECTIONS_MAX + 1 {
            return syn.ignore();
        }
        // Where there can be no thread the SYN is dropped, and comes again.
        let _ = thread::Builder::new().spawn(move || connect(syn, to, slot));
    }
}

fn connect(syn: Syn, to: SocketAddr, slot: Arc<()>) {
    match std::net::TcpStream::connect_timeout(&to, CONNECT_MAX) {
        Ok(stream) => syn.accept_with(Made { stream, slot }),
        Err(error) if error.kind() == ErrorKind::TimedOut => syn.ignore(),
        Err(_) => syn.refuse(),
    }
}

fn accept(listener: &TcpListener) {
    while let Ok((inner, _)) = listener.accept() {
        if let Some(Made { stream, slot }) = inner.take_accept_value() {
            // Where there can be no thread both streams are dropped: the peers are told.
            let _ = thread::Builder::new().spawn(move || relay(&inner, &stream, slot));
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
