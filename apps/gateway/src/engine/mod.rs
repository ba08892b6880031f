//! A loop: a stack, and the flows that it began, all on one thread.
//!
//! Loops share the policy, the table of flows, the log, and the queues of the device (`queues.rs`). Each loop has a single-threaded
//! tokio runtime and a stack without threads: the loop reads a packet from inside, runs it through the stack, and the flow's task writes to
//! its ordinary socket, without a thread switch.
//!
//! ```text
//!            ┌───────────── epoll (tokio) ─────────────┐
//!            │                                         │
//!  queue of the device ─ driver ─ Stack::poll ─ tasks ─ ordinary sockets
//! ```
//!
//! | file | tasks |
//! |---|---|
//! | `port.rs`, `queues.rs`, `guest.rs`, `door.rs` | none: the device; its queues, which loops share; where machines come in |
//! | `driver.rs`, `looks.rs`, `load.rs` | none: the main future, which drives the stack; busy polling; when loops join |
//! | `tcp.rs`, `attempts.rs`, `relay.rs` | connections from inside; the limit on pending connects; relaying bytes |
//! | `udp.rs`, `runs.rs`, `ping.rs` | UDP flows; datagrams sent by one system call; pings |
//! | `names.rs`, `messages.rs` | the name server; message formats |
//! | `scratch.rs` | none: a buffer |
//! | `credit.rs` | none: the limit on unanswered flows |
//! | `inward.rs` | published ports; `forwards.rs` has their table, `clients.rs` limits the clients of UDP |
//!
//! Tests: `tests/gateway.rs`.

mod attempts;
mod clients;
mod credit;
mod door;
mod driver;
pub mod forwards;
mod guest;
#[cfg(test)]
mod hostile;
#[cfg(test)]
pub use hostile::HIDDEN;
pub mod inward;
pub mod load;
mod looks;
pub mod messages;
mod names;
mod ping;
pub mod port;
pub mod queues;
mod relay;
mod runs;
mod scratch;
mod tcp;
mod udp;

use std::fs::File;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sockeye::netif::CaptureHandle;
use sockeye::{Config, Stack};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle as Task, LocalSet, spawn_local};

use crate::flows::Flows;
use crate::lan::Router;
use crate::plan::Plan;
use crate::policy::{Policy, Protocol};
use crate::resolvers::Resolvers;
use crate::upstream::Upstream;
use attempts::Attempts;
use clients::Clients;
use credit::Credit;
use forwards::{Forwards, Open, WAITING_MAX};
use port::{Port, Source};
use queues::{Owned, Queues, Share};

/// Bytes that a flow takes at a time in one direction, and has outside of sockets at most.
pub const CHUNK: usize = 256 << 10;
const _: () = assert!(CHUNK >= runs::BUFFER_LEN && CHUNK >= names::MESSAGE_MAX);

/// What all loops share.
pub struct Shared {
    /// What may be reached.
    pub policy: Policy,
    /// How.
    pub upstream: Upstream,
    /// The flows of all loops.
    pub flows: Arc<Flows>,
    /// Ports of the host that lead inside.
    pub forwards: Forwards,
    /// Resolvers that names are forwarded to.
    pub resolvers: Resolvers,
    /// The device has gone: there is nothing to serve any more.
    pub device_gone: Notify,
    /// The addresses inside.
    pub plan: Plan,
    /// What answers machines on Ethernet.
    pub router: Arc<Router>,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// Packet memory of each loop, bytes at most.
    pub memory_max: usize,
    /// Flows of each loop at most.
    pub flows_max: usize,
    /// How long a loop looks again before it sleeps, at most.
    pub busy: Duration,
    /// The queues that loops share, if there are several.
    pub queues: Option<Arc<Queues>>,
    /// The records of packets.
    pub captures: Mutex<Vec<CaptureHandle>>,
}

/// What the tasks of a loop share.
pub struct Cx {
    stack: Stack,
    shared: Arc<Shared>,
    /// Where others learn which flows are this loop's, if there are other loops.
    share: Option<Arc<Share>>,
    attempts: Rc<Attempts>,
    clients: Rc<Clients>,
    credits: Credits,
}

/// What each kind of flows may begin.
struct Credits {
    connections: Rc<Credit>,
    datagrams: Rc<Credit>,
    queries: Rc<Credit>,
    /// Of published UDP ports.
    clients: Rc<Credit>,
}

impl Credits {
    /// The driver has a turn.
    fn turn(&self) {
        let all = [&self.connections, &self.datagrams, &self.queries, &self.clients];
        all.into_iter().for_each(|credit| credit.turn());
    }
}

impl Cx {
    fn new(stack: Stack, shared: Arc<Shared>, share: Option<Arc<Share>>) -> Rc<Self> {
        let attempts = Attempts::new(shared.flows_max);
        let clients = Clients::new(shared.flows_max);
        let now = Instant::now();
        let credits = {
            let [connections, datagrams, queries, clients] = [(); 4].map(|()| Credit::new(now));
            Credits { connections, datagrams, queries, clients }
        };
        Rc::new(Self { stack, shared, share, attempts, clients, credits })
    }

    /// A flow between these ends, inside and outside, is this loop's as long as the answer is kept.
    ///
    /// # Errors
    /// `AddrInUse`: it is another loop's.
    fn own(&self, protocol: Protocol, ends: (SocketAddr, SocketAddr)) -> io::Result<Option<Owned>> {
        self.share.as_ref().map_or(Ok(None), |share| share.queues.own(share.index, protocol, ends))
    }
}

/// A loop that runs.
pub struct Running {
    thread: JoinHandle<()>,
    stop: watch::Sender<bool>,
    /// Where it takes sockets to serve.
    pub opens: mpsc::Sender<Open>,
}

impl Running {
    /// Starts a loop on a device. Its packets are recorded in `pcap`.
    ///
    /// # Errors
    /// The system's; the stack's for a device that it cannot serve.
    pub fn start(
        shared: Arc<Shared>,
        (source, pcap): (Source, Option<File>),
        index: usize,
    ) -> io::Result<Self> {
        let (opens, open) = mpsc::channel(WAITING_MAX);
        let (stop, stopped) = watch::channel(false);
        let (ready, is_ready) = sync_channel(1);
        let thread = thread::Builder::new().name(format!("loop-{index}")).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            LocalSet::new().block_on(&runtime, async {
                match begin(shared, source, pcap) {
                    Ok((cx, port)) => {
                        let _ = ready.send(Ok(()));
                        task(serve_opened(Rc::clone(&cx), open));
                        // A task of its own, which is not looked at with each frame.
                        let ended = task(end(stopped));
                        tokio::select! {
                            biased;
                            () = drive(&cx, port) => {}
                            _ = ended => {}
                        }
                        cx.stack.set_driver_wake(None::<fn()>);
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            });
        })?;
        is_ready.recv().map_err(|_| io::Error::other("a loop has ended before it began"))??;
        Ok(Self { thread, stop, opens })
    }

    /// Ends the loop and its flows, and waits for that. Peers are told: connections that are not over are reset.
    ///
    /// # Errors
    /// The panic of its thread, which has been printed.
    pub fn stop(self) -> thread::Result<()> {
        let _ = self.stop.send(true);
        self.thread.join()
    }
}

/// Serves the device. Does not return: what is left when it has gone ends with the loop.
async fn drive(cx: &Rc<Cx>, port: Port) {
    driver::run(cx, port).await;
    std::future::pending().await
}

async fn end(mut stopped: watch::Receiver<bool>) {
    // An error: nobody is there to stop it, so it ends.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Makes the stack and its device, and starts the tasks that serve flows.
fn begin(shared: Arc<Shared>, source: Source, pcap: Option<File>) -> io::Result<(Rc<Cx>, Port)> {
    let stack = new_stack(&shared)?;
    let port = Port::attach((source, pcap), &stack, &shared)?;
    let cx = Cx::new(stack, shared, port.share());
    serve_flows(&cx)?;
    Ok((cx, port))
}

fn new_stack(shared: &Shared) -> io::Result<Stack> {
    Stack::new(Config { workers: 0, memory_max: shared.memory_max, ..Config::default() })
}

/// Starts the tasks of all kinds of flows.
fn serve_flows(cx: &Rc<Cx>) -> io::Result<()> {
    tcp::serve(cx)?;
    udp::serve(cx)?;
    ping::serve(cx)?;
    names::serve(cx)
}

/// Serves sockets as they are opened.
async fn serve_opened(cx: Rc<Cx>, mut opens: mpsc::Receiver<Open>) {
    while let Some(Open { listening, reply }) = opens.recv().await {
        if let Err(Ok(task)) = reply.send(inward::serve(&cx, listening)) {
            // Whoever wanted it has gone.
            task.abort();
        }
    }
}

/// A task of this loop.
fn task(future: impl Future<Output = ()> + 'static) -> Task<()> {
    spawn_local(future)
}
