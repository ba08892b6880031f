//! One test of iperf3, from its parameters to its results.
//!
//! The task of the control connection runs it; each stream has a task of its own. Does not depend on how blocks are
//! moved.
//!
//! Invariants: every wait is bounded: the setting up by a time, the running by a time without any progress. The streams'
//! tasks end before the results are made, and their sockets are closed before the client is asked for its own.
//!
//! Tests: with a stock client in `tests/cli/tun.rs`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sockeye::tokio::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until, timeout};

use super::Taken;
use super::datagrams;
use super::protocol::{self, Params, State};
use super::streams::{Stream, Watch, results};

/// For parameters and streams to come, and for the last word.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// A test in which nothing has moved for so long is given up, as in iperf3 (`--rcv-timeout`).
const IDLE_MAX: Duration = Duration::from_secs(120);

/// Runs the test that `taken` has the right to.
///
/// # Errors
/// A violation of the protocol on the control connection, or an error of a stream.
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
    // Closes them. A client that waits for the rest of a block would else not come to read our next state.
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

/// The connections of a test.
enum Gathered {
    Streams(Vec<TcpStream>),
    Datagrams(Arc<UdpSocket>, Vec<SocketAddr>),
}

async fn gather(taken: &mut Taken, peer: SocketAddr, params: &Params) -> io::Result<Gathered> {
    let count = params.stream_count();
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
    streams.sort_unstable_by_key(|numbered| numbered.number);
    Ok(Gathered::Streams(streams.into_iter().map(|numbered| numbered.stream).collect()))
}

impl Gathered {
    /// Starts the tasks. Those streams that came first are those on which we receive.
    fn begin(self, params: &Arc<Params>, tasks: &mut JoinSet<()>) -> io::Result<Vec<Stream>> {
        let receiving = params.receiving_count();
        let new = |index| Stream::new(index >= receiving);
        let params = || Arc::clone(params);
        let mut streams: Vec<Stream>;
        match self {
            Gathered::Streams(sockets) => {
                streams = (0..sockets.len()).map(new).collect();
                for (stream, socket) in streams.iter_mut().zip(sockets) {
                    stream.begin(socket, params(), tasks)?;
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
                    | State::ExchangeResults | State::DisplayResults | State::IperfDone | State::AccessDenied
                    | State::ServerTerminate | State::ServerError) => {
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
