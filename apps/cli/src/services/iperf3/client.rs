//! The client of a test: sets it up with a server, has it run for its time, and compares the counts of both.
//!
//! Does not depend on how it is shown: it reports to a [`Show`]. Invariants: every wait for the server is bounded. A
//! sender ends with a whole block, and a receiver takes data until the server has heard that the test is over: an end that
//! waits for data or room would not read the control connection.
//!
//! Tests: against a stock server in `tests/cli/iperf3.rs`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use sockeye::Stack;
use sockeye::tokio::{TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep_until, timeout};

use super::datagrams;
use super::protocol::{self, Cookie, Params, Results, State, StreamResult, stream_id};
use super::stream::Quota;
use super::streams::{Stream, Watch, results, sent_again};

/// For each answer of the server but those that come with the test's end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// For senders to end their blocks. A peer that takes nothing any more keeps them longer, and they are given up.
const BLOCKS_TIMEOUT: Duration = Duration::from_secs(2);
/// A test of so many bytes in which nothing has moved for so long is given up.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Longer than any test.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// Bytes of a block of TCP, and of a datagram if the path is not known, unless the user says otherwise; as in iperf3.
pub const BLOCK_LEN: usize = 128 << 10;
const DATAGRAM_LEN: usize = 1460;

/// The test.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// The server as it was named.
    pub host: String,
    /// The server.
    pub to: SocketAddr,
    /// Its messages. A `len` of 0 is the usual one.
    pub params: Params,
    /// Between two figures on the way; none if zero.
    pub every: Duration,
}

/// The ends of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub id: usize,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// Work of a stream in a span of time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Moved {
    pub id: usize,
    /// We send.
    pub sends: bool,
    pub bytes: u64,
    /// Segments sent again, and the congestion window at the end, bytes; of a sender of TCP.
    pub tcp: Option<(u32, u32)>,
    /// Datagrams, sent or to be expected.
    pub packets: u64,
    /// Those that did not come; of a receiver.
    pub errors: u64,
    /// Seconds; of a receiver.
    pub jitter: f64,
}

/// Some time of a test, in seconds from its beginning, by streams.
#[derive(Clone, PartialEq, Debug)]
pub struct Interval {
    pub start: f64,
    pub end: f64,
    pub streams: Vec<Moved>,
}

/// The counts of both ends.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Seconds.
    pub lasted: f64,
    /// This end.
    pub own: Results,
    /// The server.
    pub server: Results,
}

impl Measured {
    /// Of each stream whether we have sent, its sender's counts, and its receiver's.
    pub fn ends(&self, params: &Params) -> Vec<(bool, [StreamResult; 2])> {
        let both = |(index, own): (usize, &StreamResult)| {
            let server = self.server.streams.iter().find(|stream| stream.id == own.id);
            // Streams that the server does not report count as nothing.
            let server = server.cloned().unwrap_or(StreamResult { id: own.id, ..StreamResult::default() });
            let sends = params.client_sends(index);
            (sends, if sends { [own.clone(), server] } else { [server, own.clone()] })
        };
        self.own.streams.iter().enumerate().map(both).collect()
    }
}

/// Shows how a test goes.
pub trait Show: Send {
    /// The streams are there; `params` as they were agreed to.
    fn connected(&mut self, params: &Params, streams: &[Ends]);
    /// Some time has passed.
    fn passed(&mut self, interval: &Interval);
}

/// Runs a test.
///
/// # Errors
/// The connections', and the server's refusal: that it is busy, or its own error.
pub async fn run(stack: &Stack, wishes: &Wishes, show: &mut dyn Show) -> io::Result<Measured> {
    let cookie = new_cookie()?;
    let mut control = answered(TcpStream::connect_on(stack, wishes.to)).await?;
    control.set_nodelay(true)?;
    control.write_all(&cookie).await?;
    expect(&mut control, State::ParamExchange).await?;
    let params = Arc::new(settled(&wishes.params, &control)?);
    protocol::write_json(&mut control, &params.wishes()).await?;
    expect(&mut control, State::CreateStreams).await?;
    let connected = connect(stack, wishes.to, &cookie, &params, control.local_addr()?).await?;
    expect(&mut control, State::TestStart).await?;
    expect(&mut control, State::TestRunning).await?;
    show.connected(&params, &connected.ends(wishes.to)?);
    let mut tasks = Tasks::default();
    let quota = (params.num > 0).then(|| Quota::of(params.num));
    let streams = connected.begin(wishes.to, &params, quota.as_ref(), &mut tasks)?;
    let watch = Watch::start();
    attend(&mut control, &streams, wishes, &watch, quota.as_deref(), show).await?;
    streams.iter().for_each(|stream| stream.tally.end());
    drop(timeout(BLOCKS_TIMEOUT, async { while tasks.senders.join_next().await.is_some() {} }).await);
    let (own, lasted) = (results(&streams, &watch), watch.begun.elapsed().as_secs_f64());
    protocol::write_state(&mut control, State::TestEnd).await?;
    expect(&mut control, State::ExchangeResults).await?;
    protocol::write_json(&mut control, &own).await?;
    let server = answered(protocol::read_json::<Results>(&mut control)).await?;
    expect(&mut control, State::DisplayResults).await?;
    tasks.senders.shutdown().await;
    tasks.receivers.shutdown().await;
    drop(streams);
    // It may have gone already, and has said everything.
    drop(protocol::write_state(&mut control, State::IperfDone).await);
    Ok(Measured { lasted, own, server })
}

/// The movers of data.
#[derive(Default)]
struct Tasks {
    /// They end by themselves once their streams are over.
    senders: JoinSet<()>,
    receivers: JoinSet<()>,
}

impl Tasks {
    fn of(&mut self, sends: bool) -> &mut JoinSet<()> {
        if sends { &mut self.senders } else { &mut self.receivers }
    }
}

/// The 36 characters that name a test, at random, and a NUL.
fn new_cookie() -> io::Result<Cookie> {
    const CHARS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut cookie = [0; 37];
    let (chars, _nul) = cookie.split_at_mut(36);
    // Fewer than 256 bytes come at once.
    getrandom(&mut *chars, GetRandomFlags::empty())?;
    chars.iter_mut().for_each(|byte| *byte = CHARS[usize::from(*byte % 32)]);
    Ok(cookie)
}

/// The wishes with the lengths that depend on the path.
fn settled(wishes: &Params, control: &TcpStream) -> io::Result<Params> {
    let mut params = wishes.clone();
    if params.len == 0 && params.udp {
        let mss = control.get_ref().info().map_or(0, |info| info.snd_mss as usize);
        params.len = if mss == 0 { DATAGRAM_LEN } else { mss.min(protocol::DATAGRAM_MAX) };
    } else if params.len == 0 {
        params.len = BLOCK_LEN;
    }
    let refused = |refusal| io::Error::new(io::ErrorKind::InvalidInput, refusal);
    params.refusal().map_or(Ok(params), |refusal| Err(refused(refusal)))
}

/// The server's next state, if it is in time.
async fn answered<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(ANSWER_TIMEOUT, answer).await.map_err(|_| {
        let message = format!("no answer from the server within {} s", ANSWER_TIMEOUT.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, message)
    })?
}

/// Waits until the server is in this state.
async fn expect(control: &mut TcpStream, wanted: State) -> io::Result<()> {
    let state = answered(protocol::read_state(control)).await?;
    if state == wanted { Ok(()) } else { Err(refusal(control, state).await) }
}

/// Why the server is in this state and in none that was waited for.
async fn refusal(control: &mut TcpStream, state: State) -> io::Error {
    match state {
        State::AccessDenied => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the server is busy with another test; try again later",
        ),
        State::ServerTerminate => io::Error::other("the server has ended the test"),
        State::ServerError => {
            // Its own number of the error, and the system's.
            let own = answered(control.read_i32()).await.unwrap_or_default();
            let system = answered(control.read_i32()).await.unwrap_or_default();
            let cause = io::Error::from_raw_os_error(system);
            io::Error::other(format!("the server has failed by its error {own} ({cause})"))
        }
        State::TestStart
        | State::TestRunning
        | State::TestEnd
        | State::ParamExchange
        | State::CreateStreams
        | State::ClientTerminate
        | State::ExchangeResults
        | State::DisplayResults
        | State::IperfDone => {
            io::Error::new(io::ErrorKind::InvalidData, format!("the server is in state {state:?} too early"))
        }
    }
}

/// The sockets of the streams.
enum Connected {
    Streams(Vec<TcpStream>),
    Datagrams(Vec<Arc<UdpSocket>>),
}

async fn connect(
    stack: &Stack,
    to: SocketAddr,
    cookie: &Cookie,
    params: &Params,
    local: SocketAddr,
) -> io::Result<Connected> {
    // One after the other: the server knows them by the order in which they come.
    if params.udp {
        let mut sockets = Vec::with_capacity(params.stream_count());
        for _ in 0..params.stream_count() {
            let socket = UdpSocket::bind_on(stack, SocketAddr::new(local.ip(), 0)).await?;
            answered(datagrams::greet(&socket, to)).await?;
            sockets.push(Arc::new(socket));
        }
        return Ok(Connected::Datagrams(sockets));
    }
    let mut streams = Vec::with_capacity(params.stream_count());
    for _ in 0..params.stream_count() {
        let mut stream = answered(TcpStream::connect_on(stack, to)).await?;
        stream.write_all(cookie).await?;
        streams.push(stream);
    }
    Ok(Connected::Streams(streams))
}

impl Connected {
    fn ends(&self, remote: SocketAddr) -> io::Result<Vec<Ends>> {
        let local: io::Result<Vec<SocketAddr>> = match self {
            Connected::Streams(streams) => streams.iter().map(TcpStream::local_addr).collect(),
            Connected::Datagrams(sockets) => sockets.iter().map(|socket| socket.local_addr()).collect(),
        };
        let numbered = local?.into_iter().enumerate();
        Ok(numbered.map(|(index, local)| Ends { id: stream_id(index), local, remote }).collect())
    }

    /// Starts the tasks.
    fn begin(
        self,
        to: SocketAddr,
        params: &Arc<Params>,
        quota: Option<&Arc<Quota>>,
        tasks: &mut Tasks,
    ) -> io::Result<Vec<Stream>> {
        // Bytes of either direction end a test of both, as in iperf3: the faster one's.
        let back = quota.map(|_| Quota::of(params.num)).filter(|_| params.bidirectional);
        let new = |index| {
            let sends = params.client_sends(index);
            let own = if sends || !params.bidirectional { quota.cloned() } else { back.clone() };
            Stream::within(sends, own)
        };
        let params = || Arc::clone(params);
        match self {
            Connected::Streams(sockets) => {
                let begun = sockets.into_iter().enumerate().map(|(index, socket)| {
                    let mut stream = new(index);
                    let tasks = tasks.of(stream.sends);
                    stream.begin(socket, params(), tasks).map(|()| stream)
                });
                begun.collect()
            }
            Connected::Datagrams(sockets) => {
                let begun = sockets.into_iter().enumerate().map(|(index, socket)| {
                    let stream = new(index);
                    let tally = Arc::clone(&stream.tally);
                    if stream.sends {
                        tasks.senders.spawn(datagrams::send(socket, params(), to, tally));
                    } else {
                        let receiving = datagrams::receive(socket, params(), [(to, tally)].into());
                        tasks.receivers.spawn(receiving);
                    }
                    Ok(stream)
                });
                begun.collect()
            }
        }
    }
}

/// Waits for the time to be over, or the bytes to be moved, and reports progress meanwhile.
async fn attend(
    control: &mut TcpStream,
    streams: &[Stream],
    wishes: &Wishes,
    watch: &Watch,
    quota: Option<&Quota>,
    show: &mut dyn Show,
) -> io::Result<()> {
    let lasts = if quota.is_some() { FOREVER } else { Duration::from_secs(wishes.params.time) };
    let over = watch.begun + lasts;
    let every = if wishes.every.is_zero() { FOREVER * 2 } else { wishes.every };
    let mut ticks = interval_at(watch.begun + every, every);
    let mut idle = interval_at(watch.begun + IDLE_MAX, IDLE_MAX);
    let moved = || streams.iter().map(|stream| stream.tally.bytes()).sum::<u64>();
    let mut seen = 0;
    let mut course = Course { before: vec![Seen::default(); streams.len()], until: 0.0 };
    let reached = async {
        match quota {
            Some(quota) => quota.reached().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(reached);
    loop {
        tokio::select! {
            biased;
            () = sleep_until(over) => break,
            () = &mut reached => break,
            state = protocol::read_state(control) => return Err(refusal(control, state?).await),
            _ = ticks.tick() => show.passed(&course.next(streams, watch.begun)),
            // A test that ends by its time needs no other end.
            _ = idle.tick(), if quota.is_some() => {
                if std::mem::replace(&mut seen, moved()) == seen {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing has moved"));
                }
            }
        }
    }
    if !wishes.every.is_zero() {
        show.passed(&course.next(streams, watch.begun));
    }
    Ok(())
}

/// The latest report.
struct Course {
    before: Vec<Seen>,
    /// Seconds.
    until: f64,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    bytes: u64,
    sent_again: u32,
    packets: u64,
    errors: u64,
}

impl Course {
    /// The time since then.
    fn next(&mut self, streams: &[Stream], begun: Instant) -> Interval {
        let end = begun.elapsed().as_secs_f64();
        let start = std::mem::replace(&mut self.until, end);
        let moved = streams.iter().zip(&mut self.before).enumerate().map(|(index, (stream, before))| {
            let numbers = *stream.tally.numbers();
            let info = stream.info().filter(|_| stream.sends);
            let now = Seen {
                bytes: stream.tally.bytes(),
                sent_again: info.as_ref().map_or(0, sent_again),
                packets: numbers.packets,
                errors: numbers.errors,
            };
            let since = std::mem::replace(before, now);
            Moved {
                id: stream_id(index),
                sends: stream.sends,
                bytes: now.bytes.saturating_sub(since.bytes),
                tcp: info.map(|info| (now.sent_again.saturating_sub(since.sent_again), info.cwnd)),
                packets: now.packets.saturating_sub(since.packets),
                errors: now.errors.saturating_sub(since.errors),
                jitter: numbers.jitter,
            }
        });
        Interval { start, end, streams: moved.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_printable_end_with_a_nul_and_differ() {
        let (one, other) = (new_cookie().unwrap(), new_cookie().unwrap());
        assert!(one[..36].iter().all(u8::is_ascii_alphanumeric) && one[36] == 0);
        assert_ne!(one, other);
    }

    #[test]
    fn interval_figures_cover_the_time_since_the_last_ones() {
        let streams = [Stream::new(true), Stream::new(true)];
        let mut course = Course { before: vec![Seen::default(); 2], until: 0.0 };
        streams[1].tally.add(100);
        let first = course.next(&streams, Instant::now());
        streams[1].tally.add(30);
        streams[1].tally.numbers().packets = 3;
        let second = course.next(&streams, Instant::now());
        assert_eq!(first.streams.iter().map(|moved| moved.bytes).collect::<Vec<_>>(), [0, 100]);
        assert_eq!((second.streams[1].bytes, second.streams[1].packets, second.start), (30, 3, first.end));
    }
}
