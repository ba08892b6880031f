//! One test of iperf3, from its parameters to its results.
//!
//! The task of the control connection runs it; each stream has a task of its own. Must not know how blocks are moved.
//!
//! Invariants: every wait is bounded: the setting up by a time, the running by a time without any progress. The streams'
//! tasks end before the results are made, and their sockets are closed before the client is asked for its own.
//!
//! Tests: with a stock client in `tests/cli/tun.rs`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sockeye::TcpInfo;
use sockeye::tokio::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until, timeout};

use super::Taken;
use super::datagrams::{self, Numbers};
use super::protocol::{self, Params, Results, State, StreamResult, stream_id};
use super::stream::{self, Tally};
use crate::bench::meter::process_cpu;

/// For parameters and streams to come, and for the last word.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// A test in which nothing has moved for so long is given up, as in iperf3 (`--rcv-timeout`).
const IDLE_MAX: Duration = Duration::from_secs(120);

/// A stream of the test.
struct Stream {
    sends: bool,
    tally: Arc<Tally>,
    /// To ask about it; none of datagrams.
    socket: Option<sockeye::TcpStream>,
    /// What had been moved when the time that counts began.
    omitted: Omitted,
}

#[derive(Clone, Copy, Default)]
struct Omitted {
    bytes: u64,
    numbers: Numbers,
}

/// Runs the test that `taken` has the right to.
///
/// # Errors
/// What the control connection says or does against the protocol, and what its streams fail with.
pub(super) async fn run(mut taken: Taken, mut control: TcpStream) -> io::Result<()> {
    protocol::write_state(&mut control, State::ParamExchange).await?;
    let params = Arc::new(timeout(SETUP_TIMEOUT, protocol::read_params(&mut control)).await??);
    protocol::write_state(&mut control, State::CreateStreams).await?;
    let peer = control.peer_addr()?;
    let mut tasks = JoinSet::new();
    let gathered = timeout(SETUP_TIMEOUT, gather(&mut taken, peer, &params)).await??;
    protocol::write_state(&mut control, State::TestStart).await?;
    protocol::write_state(&mut control, State::TestRunning).await?;
    let mut streams = gathered.begin(&params, &mut tasks)?;
    let ended = attend(&mut control, &mut streams, &params).await?;
    tasks.shutdown().await;
    let Some(watch) = ended else { return Ok(()) };
    let results = results(&streams, &watch);
    // Closes them. A client that waits for the rest of a block would else not come to read what we say next.
    drop(streams);
    protocol::write_state(&mut control, State::ExchangeResults).await?;
    let read = protocol::read_json::<serde_json::Value>(&mut control);
    timeout(SETUP_TIMEOUT, read).await??;
    protocol::write_json(&mut control, &results).await?;
    protocol::write_state(&mut control, State::DisplayResults).await?;
    // Whether it says that it is done or goes without a word is all the same now.
    let _last = timeout(SETUP_TIMEOUT, protocol::read_state(&mut control)).await;
    Ok(())
}

/// What has come for a test to run on.
enum Gathered {
    Streams(Vec<TcpStream>),
    Datagrams(Arc<UdpSocket>, Vec<SocketAddr>),
}

async fn gather(taken: &mut Taken, peer: SocketAddr, params: &Params) -> io::Result<Gathered> {
    let count = params.receiving_count() + params.sending_count();
    if params.udp {
        let socket = Arc::clone(&taken.server.datagrams);
        let peers = datagrams::gather(&socket, peer.ip(), count).await?;
        return Ok(Gathered::Datagrams(socket, peers));
    }
    let mut streams = Vec::with_capacity(count);
    while streams.len() < count {
        // The sender is the server's own for as long as the test has its place.
        streams.push(taken.streams.recv().await.ok_or(io::ErrorKind::BrokenPipe)?);
    }
    Ok(Gathered::Streams(streams))
}

impl Gathered {
    /// Starts the tasks. Those streams that came first are those on which we receive.
    fn begin(self, params: &Arc<Params>, tasks: &mut JoinSet<()>) -> io::Result<Vec<Stream>> {
        let receiving = params.receiving_count();
        let new = |index| Stream {
            sends: index >= receiving,
            tally: Arc::default(),
            socket: None,
            omitted: Omitted::default(),
        };
        let params = || Arc::clone(params);
        let mut streams: Vec<Stream>;
        match self {
            Gathered::Streams(sockets) => {
                streams = (0..sockets.len()).map(new).collect();
                for (stream, socket) in streams.iter_mut().zip(sockets) {
                    stream.socket = Some(stream::prepare(&socket, &params())?);
                    let tally = Arc::clone(&stream.tally);
                    if stream.sends {
                        tasks.spawn(stream::send(socket, params(), tally));
                    } else {
                        tasks.spawn(stream::receive(socket, params(), tally));
                    }
                }
            }
            Gathered::Datagrams(socket, peers) => {
                streams = (0..peers.len()).map(new).collect();
                let named = streams.iter().zip(&peers);
                let named: Vec<_> = named.map(|(s, peer)| (*peer, Arc::clone(&s.tally))).collect();
                let (from, to) = named.split_at(receiving.min(named.len()));
                for (peer, tally) in to.iter().cloned() {
                    tasks.spawn(datagrams::send(Arc::clone(&socket), params(), peer, tally));
                }
                if !from.is_empty() {
                    tasks.spawn(datagrams::receive(socket, params(), from.iter().cloned().collect()));
                }
            }
        }
        Ok(streams)
    }
}

/// The time that counts: when it began, and what the process had worked until then.
struct Watch {
    begun: Instant,
    cpu: Duration,
}

impl Watch {
    fn start() -> Self {
        Self { begun: Instant::now(), cpu: process_cpu() }
    }
}

/// Waits for the end of the test. `None` if the client gives up.
async fn attend(
    control: &mut TcpStream,
    streams: &mut [Stream],
    params: &Params,
) -> io::Result<Option<Watch>> {
    let mut watch = Watch::start();
    let mut omitting = params.omit > 0;
    let omit_until = Instant::now() + Duration::from_secs(u64::from(params.omit));
    let mut idle = interval(IDLE_MAX);
    let mut seen = None;
    loop {
        tokio::select! {
            state = protocol::read_state(control) => match state? {
                State::TestEnd => return Ok(Some(watch)),
                State::ClientTerminate => return Ok(None),
                other @ (State::TestStart | State::TestRunning | State::ParamExchange | State::CreateStreams
                    | State::ExchangeResults | State::DisplayResults | State::IperfDone
                    | State::AccessDenied) => {
                    let message = format!("{other:?} while the test runs");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
            },
            () = sleep_until(omit_until), if omitting => {
                omitting = false;
                streams.iter_mut().for_each(Stream::omit);
                watch = Watch::start();
            }
            _ = idle.tick() => {
                let moved: u64 = streams.iter().map(|stream| stream.tally.bytes()).sum();
                if seen.replace(moved) == Some(moved) {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing has moved"));
                }
            }
        }
    }
}

impl Stream {
    /// What was moved until now does not count.
    fn omit(&mut self) {
        self.omitted = Omitted { bytes: self.tally.bytes(), numbers: *self.tally.numbers() };
    }

    fn info(&self) -> Option<TcpInfo> {
        self.socket.as_ref()?.info().ok()
    }

    fn result(&self, index: usize, seconds: f64) -> StreamResult {
        let numbers = *self.tally.numbers();
        let info = self.info().filter(|_| self.sends);
        StreamResult {
            id: stream_id(index),
            bytes: self.tally.bytes().saturating_sub(self.omitted.bytes),
            retransmits: info.map_or(-1, |info| {
                i64::from(info.rexmt_fast) + i64::from(info.rexmt_probe) + i64::from(info.rexmt_rto)
            }),
            jitter: numbers.jitter,
            errors: numbers.errors,
            omitted_errors: self.omitted.numbers.errors,
            packets: numbers.packets,
            omitted_packets: self.omitted.numbers.packets,
            start_time: 0.0,
            end_time: seconds,
        }
    }
}

fn results(streams: &[Stream], watch: &Watch) -> Results {
    let seconds = watch.begun.elapsed().as_secs_f64();
    let cpu = process_cpu().saturating_sub(watch.cpu).as_secs_f64();
    let percent = if seconds > 0.0 { 100.0 * cpu / seconds } else { 0.0 };
    let sends = streams.iter().any(|stream| stream.sends && stream.socket.is_some());
    let used = streams.iter().find_map(|stream| stream.info());
    Results {
        cpu_util_total: percent,
        // The clock of a process does not tell the two apart, and the work of a stack in user space is the user's.
        cpu_util_user: percent,
        cpu_util_system: 0.0,
        sender_has_retransmits: if sends { 1 } else { -1 },
        congestion_used: used.map(|info| format!("{:?}", info.congestion_control).to_lowercase()),
        streams: streams.iter().enumerate().map(|(index, stream)| stream.result(index, seconds)).collect(),
    }
}
