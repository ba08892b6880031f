//! An iperf3 server, for stock clients: TCP and UDP, any number of streams, either direction or both; and a client.
//!
//! `protocol` has the messages, `test` runs one test as the server, `client` as the client, `streams` keeps the counts,
//! and `stream` and `datagrams` move data. One test at a time runs at each address, as with iperf3's own server; a client
//! that comes meanwhile gets that answer.
//!
//! ```text
//!   idle ──cookie of a new client──► taken ──the test has ended──► idle
//!                                      │  a connection with its cookie: a stream, given to the test by its channel
//! ```
//!
//! Does not depend on the device. Invariant: `Server::current` is set for exactly as long as a `Taken` lives, also
//! when its task fails or is dropped.
//!
//! Tests: with stock programs in `tests/cli/{tun,iperf3}.rs`; at the ends of the files.

pub mod client;
mod datagrams;
pub mod protocol;
mod stream;
pub mod streams;
mod test;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sockeye::Stack;
use sockeye::tokio::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use protocol::{Cookie, STREAMS_MAX, State};

/// How long a client may take to send its cookie.
const COOKIE_TIMEOUT: Duration = Duration::from_secs(10);

/// The server of one address.
struct Server {
    current: Mutex<Option<Current>>,
    datagrams: Arc<UdpSocket>,
}

/// The test that runs.
struct Current {
    cookie: Cookie,
    streams: mpsc::Sender<Numbered>,
}

/// A stream with its place in the order in which the listener gave them out. Their cookies are read by a task each, which
/// may come by in another order, but the role of a stream follows from that one.
struct Numbered {
    number: u64,
    stream: TcpStream,
}

/// Role of a connection, by its cookie.
enum Role {
    Control(Taken),
    Stream(mpsc::Sender<Numbered>),
    Refused,
}

/// The right to run a test, given back when this is dropped.
struct Taken {
    server: Arc<Server>,
    streams: mpsc::Receiver<Numbered>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        *self.server.lock() = None;
    }
}

/// Serves this address.
pub async fn start(stack: &Stack, at: SocketAddr, tasks: &mut JoinSet<()>) -> io::Result<()> {
    let listener = TcpListener::bind_on(stack, at).await?;
    let datagrams = Arc::new(UdpSocket::bind_on(stack, at).await?);
    let server = Arc::new(Server { current: Mutex::new(None), datagrams });
    let accepted = Cell::new(0);
    tasks.spawn(super::accept(listener, move |stream, from| {
        let server = Arc::clone(&server);
        let accepted = Numbered { number: accepted.replace(accepted.get() + 1), stream };
        async move {
            if let Err(error) = greet(server, accepted).await {
                eprintln!("iperf3 client {from}: {error}");
            }
        }
    }));
    Ok(())
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn role(self: Arc<Self>, cookie: Cookie) -> Role {
        let mut current = self.lock();
        match &*current {
            Some(running) if running.cookie == cookie => Role::Stream(running.streams.clone()),
            Some(_) => Role::Refused,
            None => {
                let (sender, streams) = mpsc::channel(2 * STREAMS_MAX);
                *current = Some(Current { cookie, streams: sender });
                drop(current);
                Role::Control(Taken { server: self, streams })
            }
        }
    }
}

async fn greet(server: Arc<Server>, Numbered { number, mut stream }: Numbered) -> io::Result<()> {
    let cookie = timeout(COOKIE_TIMEOUT, protocol::read_cookie(&mut stream)).await??;
    match server.role(cookie) {
        Role::Control(taken) => {
            // The control connection's few bytes are waited for.
            stream.set_nodelay(true)?;
            test::run(taken, stream).await
        }
        // A test that has its streams takes no more; the surplus is closed.
        Role::Stream(streams) => {
            drop(streams.try_send(Numbered { number, stream }));
            Ok(())
        }
        Role::Refused => protocol::write_state(&mut stream, State::AccessDenied).await,
    }
}
