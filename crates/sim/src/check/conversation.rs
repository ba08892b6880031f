//! A conversation: a client and a server that follow their parts, and their observations.
//!
//! Each side writes in one task and reads in another, so that neither direction waits for the other. Events are noted as
//! they happen, because a crash may end a side anywhere. A side that hears nothing for [`PATIENCE`] gives up, which the
//! verdict allows only where a fault explains it. Tests: `tests/hosts/checkers.rs`.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::plan::{Leaves, Part, Talk};
use crate::executor::JoinHandle;
use crate::net::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
use crate::network::{Host, Net};
use crate::rng::Rng;
use crate::time;

/// How long a side waits for anything to happen, longer than any connection takes to give up by itself.
const PATIENCE: Duration = Duration::from_secs(8000);
/// The first conversation's port.
const PORT: u16 = 5000;

/// Client and server, by index.
pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

/// Outcome of one direction of a side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It was under way when the host crashed, or the conversation was never made.
    Unknown,
    /// The stream's end was read; or all was written and shut down.
    Clean,
    /// An error was reported.
    Error(ErrorKind),
    /// Nothing happened for too long.
    GaveUp,
    /// The side left as its part says.
    Left,
}

/// Observations of a side so far.
#[derive(Debug)]
pub(super) struct Seen {
    /// Connected or accepted; an error, or given up.
    pub opened: Cell<End>,
    /// Bytes that writes took.
    pub written: Cell<u64>,
    pub wrote: Cell<End>,
    /// Bytes that reads gave, all of them right.
    pub got: Cell<u64>,
    pub read: Cell<End>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Conversation {
    pub talk: Talk,
    pub number: usize,
    pub seen: [Rc<Seen>; 2],
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

/// One side at work.
struct Side {
    part: Part,
    /// The streams of bytes to send and to expect.
    sends: u64,
    expects: u64,
    rng: Rng,
    seen: Rc<Seen>,
}

impl Conversation {
    pub fn start(net: &Net, hosts: &[Host], number: usize, talk: &Talk) -> Rc<Self> {
        let host = &hosts[talk.server];
        let ip = if talk.v6 { host.addr_v6() } else { host.addr() };
        let addr = SocketAddr::new(ip, PORT + u16::try_from(number).unwrap_or(0));
        let seen = [Seen::new(), Seen::new()];
        let side = |index: usize| Side {
            part: talk.sides[index],
            sends: net.seed() ^ (number * 2 + index) as u64,
            expects: net.seed() ^ (number * 2 + 1 - index) as u64,
            rng: net.rng(&format!("side {number} {index}")),
            seen: Rc::clone(&seen[index]),
        };
        let (client, server, at) = (side(CLIENT), side(SERVER), talk.at);
        let tasks = vec![
            host.spawn(async move {
                let stream = time::timeout(PATIENCE, accept(addr)).await;
                server.begin(stream).await;
            }),
            hosts[talk.client].spawn(async move {
                time::sleep(at).await;
                let stream = time::timeout(PATIENCE, TcpStream::connect(addr)).await;
                client.begin(stream).await;
            }),
        ];
        Rc::new(Self { talk: talk.clone(), number, seen, tasks: RefCell::new(tasks) })
    }

    /// Waits for both sides to end, or to have been ended.
    pub async fn ended(&self) {
        let tasks = self.tasks.take();
        for task in tasks {
            // A crash is no surprise: the verdict knows of it.
            let _ = task.await;
        }
    }

    /// Both sides sent all that they had and read all that the other had.
    pub fn is_clean(&self) -> bool {
        self.seen.iter().all(|seen| seen.wrote.get() == End::Clean && seen.read.get() == End::Clean)
    }

    /// Bytes that both sides read.
    pub fn bytes_read(&self) -> u64 {
        self.seen.iter().map(|seen| seen.got.get()).sum()
    }
}

impl Seen {
    fn new() -> Rc<Self> {
        let unknown = || Cell::new(End::Unknown);
        Rc::new(Self {
            opened: unknown(),
            written: Cell::new(0),
            wrote: unknown(),
            got: Cell::new(0),
            read: unknown(),
        })
    }
}

async fn accept(addr: SocketAddr) -> io::Result<TcpStream> {
    let listener = TcpListener::bind(addr).await?;
    Ok(listener.accept().await?.0)
}

impl Side {
    async fn begin(self, stream: Result<io::Result<TcpStream>, time::Elapsed>) {
        let stream = match stream {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return self.seen.opened.set(End::Error(error.kind())),
            Err(time::Elapsed) => return self.seen.opened.set(End::GaveUp),
        };
        self.seen.opened.set(End::Clean);
        stream.set_nodelay(self.part.nodelay).expect("it never fails");
        if self.part.leaves == Leaves::Rudely {
            stream.set_linger(Some(Duration::ZERO)).expect("zero is short enough");
        }
        let (read, write) = stream.into_split();
        let (part, seen) = (self.part, Rc::clone(&self.seen));
        let mut reader_rng = self.rng.clone().fork(1);
        let expects = self.expects;
        let reader = crate::spawn(async move { receive(read, part, expects, &mut reader_rng, &seen).await });
        match part.leaves {
            Leaves::Politely => {
                drop(self.send(write).await);
                let _ = reader.await;
            }
            Leaves::Last => {
                // The half that writes has to stay while the other reads.
                let _ = reader.await;
                drop(self.send(write).await);
            }
            Leaves::Early | Leaves::Rudely => {
                let seen = Rc::clone(&self.seen);
                let write = self.send_without_end(write).await;
                if !reader.is_finished() {
                    seen.read.set(End::Left);
                }
                reader.abort();
                if let Some(write) = write {
                    write.forget();
                }
            }
        }
    }

    /// Writes everything and shuts down.
    async fn send(self, write: OwnedWriteHalf) -> Option<OwnedWriteHalf> {
        let seen = Rc::clone(&self.seen);
        let mut write = self.send_without_end(write).await?;
        let end = match write.shutdown().await {
            Ok(()) => End::Clean,
            Err(error) => End::Error(error.kind()),
        };
        seen.wrote.set(end);
        Some(write)
    }

    /// Writes everything; `None` if that failed.
    async fn send_without_end(mut self, mut write: OwnedWriteHalf) -> Option<OwnedWriteHalf> {
        let mut bytes = Bytes::new(self.sends);
        let mut buffer = Vec::new();
        let mut left = self.part.bytes;
        while left > 0 {
            if buffer.is_empty() {
                let len = self.rng.between(1, self.part.write_max).min(left);
                buffer.resize(usize::try_from(len).unwrap_or(1), 0);
                buffer.iter_mut().for_each(|byte| *byte = bytes.next());
            }
            match time::timeout(PATIENCE, write.write(&buffer)).await {
                Ok(Ok(taken)) => {
                    buffer.drain(..taken);
                    left -= taken as u64;
                    self.seen.written.set(self.seen.written.get() + taken as u64);
                }
                Ok(Err(error)) => {
                    self.seen.wrote.set(End::Error(error.kind()));
                    return None;
                }
                Err(time::Elapsed) => {
                    self.seen.wrote.set(End::GaveUp);
                    return None;
                }
            }
            pause(&self.part, &mut self.rng).await;
        }
        self.seen.wrote.set(End::Left);
        Some(write)
    }
}

/// Reads to the end and checks every byte.
async fn receive(mut read: OwnedReadHalf, part: Part, expects: u64, rng: &mut Rng, seen: &Seen) {
    let mut bytes = Bytes::new(expects);
    let mut buffer = vec![0; usize::try_from(part.read_max).unwrap_or(1)];
    loop {
        let want = usize::try_from(rng.between(1, part.read_max)).unwrap_or(1);
        let end = match time::timeout(PATIENCE, read.read(&mut buffer[..want])).await {
            Ok(Ok(0)) => End::Clean,
            Ok(Ok(got)) => {
                for byte in &buffer[..got] {
                    assert_eq!(*byte, bytes.next(), "byte {} of a stream is another one", seen.got.get());
                    seen.got.set(seen.got.get() + 1);
                }
                pause(&part, rng).await;
                continue;
            }
            Ok(Err(error)) => End::Error(error.kind()),
            Err(time::Elapsed) => End::GaveUp,
        };
        return seen.read.set(end);
    }
}

async fn pause(part: &Part, rng: &mut Rng) {
    if rng.chance(part.pause) {
        let longest = u64::try_from(part.pause_max.as_micros()).unwrap_or(u64::MAX);
        time::sleep(Duration::from_micros(rng.below(longest))).await;
    }
}

/// The bytes of a stream, from its first on.
pub(super) struct Bytes {
    rng: Rng,
    word: [u8; 8],
    used: usize,
}

impl Bytes {
    pub fn new(stream: u64) -> Self {
        Self { rng: Rng::new(stream), word: [0; 8], used: 8 }
    }

    pub fn next(&mut self) -> u8 {
        if self.used == self.word.len() {
            (self.word, self.used) = (self.rng.u64().to_le_bytes(), 0);
        }
        self.used += 1;
        self.word[self.used - 1]
    }
}
